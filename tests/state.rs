//! States: saved at every batch and gone on from with other sizes, refused where they do not belong, and never a panic
//! for what is no state. The states in tests/golden were saved once and must load for ever.

mod common;

#[path = "state/files.rs"]
mod files;
#[path = "state/refused.rs"]
mod refused;
#[path = "state/resumed.rs"]
mod resumed;

use std::sync::Arc;
use uringload::State;
use uringload::config::Shuffle;
use uringload::dataset::{Dataset, FileTable, Folder, RecordOptions, Records};
use uringload::sampler::{Cursor, Mixer, epoch_digest, for_dataset};
use uringload::state::Identity;

const FOLDER: &str = include_str!("golden/state-v1-folder.json");
const RECORDS: &str = include_str!("golden/state-v1-records.json");
const MIXER: &str = include_str!("golden/state-v1-mixer.json");
const ROWS: &str = include_str!("golden/state-v1-rows.json");

/// The dataset that the golden states were saved with: no file of it need be there.
fn golden_files() -> FileTable {
    let mut files = FileTable::new();
    files.push_root("/anywhere");
    for number in 0..100_u64 {
        files.push(format!("{}/{number:03}", number % 3).as_bytes(), 4096 + 16 * number).unwrap();
    }
    files
}

fn golden_folder() -> Arc<dyn Dataset> {
    Arc::new(Folder::from_files(golden_files()))
}

fn golden_records() -> Arc<dyn Dataset> {
    let options = RecordOptions { record_bytes: 16, ..RecordOptions::default() };
    Arc::new(Records::from_files(golden_files(), &options).unwrap())
}

#[test]
fn golden_states_load() {
    for (text, dataset, cursor, order) in [
        (FOLDER, golden_folder(), Cursor::new(3, 64), Shuffle::Full),
        (RECORDS, golden_records(), Cursor::new(0, 20_000), Shuffle::Off),
    ] {
        let state = State::from_json(text).unwrap();
        assert_eq!(state.cursor(), cursor);
        state.check_dataset(&Identity::of(&*dataset)).unwrap();
        let sampler = for_dataset(&*dataset, order, 42).expect("an order");
        state.check_order(&*sampler).unwrap();
        assert_eq!((state.length, &state.mixer, &state.batching), (sampler.len(), &None, &None));
        // One rank of one, so it must have had all of the epoch up to here: the order and the hash are what they were.
        let delivered = state.delivered.unwrap();
        assert_eq!((delivered.rank, delivered.world_size), (0, 1));
        assert_eq!(delivered.digest.passed(), epoch_digest(&*sampler, cursor.epoch, 0..cursor.position));
        assert_eq!(state.to_json() + "\n", text);
    }
}

#[test]
fn golden_states_of_mixtures_and_rows_load() {
    let state = State::from_json(MIXER).unwrap();
    let mixer = Mixer { slots: vec![3, 1], epoch: 3, since: 40, given: vec![30, 10] };
    assert_eq!((state.mixer.as_ref(), state.delivered), (Some(&mixer), None));
    assert_eq!(State::from_json(&state.to_json()).unwrap(), state);
    let state = State::from_json(ROWS).unwrap();
    assert_eq!(state.cursor(), Cursor { epoch: 1, position: 32, rows: 12 });
    assert_eq!(state.batching.as_deref(), Some("packed, first fit, rows of 2048, windows of 8192"));
    assert_eq!(State::from_json(&state.to_json()).unwrap(), state);
}

#[test]
fn a_later_version_may_have_added_fields() {
    let text = FOLDER.replacen('{', "{\n  \"added\": {\"later\": [1, 2.5, null]},", 1);
    let text = text.replace("\"format\"", "\"added\": true,\n    \"format\"");
    assert_eq!(State::from_json(&text).unwrap(), State::from_json(FOLDER).unwrap());
}

/// A state tells everything in a line, whatever is in it.
#[test]
fn a_state_is_a_line_for_people() {
    let mut state = State::from_json(FOLDER).unwrap();
    state.order = "line\nline".into();
    let line = state.to_string();
    for told in ["epoch 3", "position 64 of 100", "folder", "line\\nline"] {
        assert!(line.contains(told), "{told} in {line}");
    }
    assert_eq!(line.lines().count(), 1, "{line}");
}

/// The state that `loader` has after `batches` batches.
fn stand_at(builder: uringload::loader::Builder, batches: usize) -> State {
    let mut loader = builder.build().expect("a loader");
    for _ in 0..batches {
        loader.next().expect("a batch").expect("no error");
    }
    loader.state()
}

//! The states in tests/golden, which the library reads, and writes byte by byte. Do not change the files: users have
//! such states.

use super::*;
use uringload::ErrorKind;
use uringload::config::Batching;
use uringload::config::{Buckets, EngineChoice, PackMethod, Packing, Shuffle};
use uringload::dataset::Concat;
use uringload::inspect::BatchingId;
use uringload::inspect::Identity;
use uringload::inspect::KnownOrder;
use uringload::sampler::{Mixed, Mixer, Stopping, epoch_digest, for_dataset};

/// Reads nothing: the files of the golden states need not be there.
fn unread(dataset: Arc<dyn Dataset>) -> Builder {
    builder(&dataset).engine(EngineChoice::Sim)
}

fn of_rows() -> Builder {
    let packing = Packing::new(2048).method(PackMethod::FirstFit).window(8192);
    unread(golden_folder()).batching(Batching::Packed(packing))
}

fn of_buckets() -> Builder {
    let buckets = Buckets::new(vec![4500, 5000], vec![8, 4, 2]).window(64);
    unread(golden_folder()).shuffle(Shuffle::Window(10)).batching(Batching::Buckets(buckets))
}

fn of_mixture() -> Builder {
    let concat = Arc::new(Concat::new(vec![golden_folder(), golden_folder()]).unwrap());
    let order = Mixed::of(&concat, Shuffle::Full, &[3.0, 1.0], Stopping::AllExhausted, 42).unwrap();
    unread(concat).sampler(Arc::new(order))
}

fn known(id: OrderId, positions: u64) -> Builder {
    unread(golden_folder()).sampler(Arc::new(Known(id, positions)))
}

/// A state of each kind that version 2 can have, and what resumes it.
fn written() -> Vec<(&'static str, Builder)> {
    let distributed = KnownOrder::TorchDistributed { ranks: 3, seed: Some(5), version: 1 }.into();
    vec![
        (FOLDER, unread(golden_folder())),
        (RECORDS, unread(golden_records()).shuffle(false)),
        (MIXTURE, of_mixture()),
        (ROWS, of_rows()),
        (include_str!("../../golden/state-v2-buckets.json"), of_buckets()),
        (
            include_str!("../../golden/state-v2-shards.json"),
            unread(golden_records()).shuffle(Shuffle::Shards { mixed: 4 }),
        ),
        (
            include_str!("../../golden/state-v2-pieces.json"),
            unread(golden_folder()).shuffle(Shuffle::Shards { mixed: 2 }),
        ),
        (include_str!("../../golden/state-v2-distributed.json"), known(distributed, 102)),
        (include_str!("../../golden/state-v2-custom.json"), known(OrderId::custom("mine", 1, &[1, 2]), 100)),
    ]
}

/// What is the same state, however a program wrote it, has the same checksum; one digit that differs has another.
#[test]
fn a_state_that_was_changed_is_refused() {
    for (text, _) in written() {
        let state = State::from_json(text).unwrap();
        let json = state.to_json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(State::from_json(&value.to_string()).unwrap(), state, "without spaces, in the order of the names");
        let places = json.char_indices().filter(|(_, letter)| letter.is_ascii_digit()).map(|(at, _)| at);
        for at in places {
            let mut bytes = json.clone().into_bytes();
            bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(bytes).unwrap();
            let Err(error) = State::from_json(&changed) else { panic!("byte {at} was changed: {changed}") };
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::StateMismatch), "{error}");
        }
        let error = State::from_json(&json.replace("\"length\": ", "\"length\": 1")).unwrap_err();
        assert!(
            error.what().contains("checksum") && error.remedy().is_some_and(|text| text.contains("seek")),
            "{error}"
        );
    }
}

/// A position that does not fit what was delivered, as of two states that were mixed up.
#[test]
fn a_position_that_what_was_delivered_contradicts_is_refused() {
    for (from, to) in [("\"position\": 20000", "\"position\": 20001"), ("\"samples\": 20000", "\"samples\": 19999")] {
        let changed = RECORDS.replace(from, to);
        assert_ne!(changed, RECORDS);
        let error = State::from_json(&changed).expect_err("one of them is wrong");
        assert!(error.kind() == ErrorKind::Corrupt && error.what().contains("positions"), "{error}");
    }
    assert!(State::from_json(RECORDS).is_ok());
}

#[test]
fn each_is_read_resumed_and_written_byte_by_byte() {
    for (text, builder) in written() {
        let state = State::from_json(text).unwrap();
        assert_eq!(unsummed(&state.to_json()) + "\n", text);
        assert!(text.len() < 1000, "{text}");
        let loader = builder.resume(&state).build().unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(unsummed(&loader.state().to_json()) + "\n", text);
    }
}

#[test]
fn golden_states_match_their_datasets_and_orders() {
    for (text, dataset, cursor, shuffle) in [
        (FOLDER, golden_folder(), Cursor::new(3, 64), Shuffle::Full),
        (RECORDS, golden_records(), Cursor::new(0, 20_000), Shuffle::Off),
    ] {
        let state = State::from_json(text).unwrap();
        assert_eq!(state.cursor(), cursor);
        state.check_dataset(&Identity::of(&*dataset)).unwrap();
        let sampler = for_dataset(&*dataset, shuffle, 42).expect("an order");
        state.check_order(&*sampler).unwrap();
        let samples = BatchingId::Samples;
        assert_eq!((state.length, &state.mixer, &state.batching), (sampler.len(), &None, &samples));
        // One rank of one, so it must have had all of the epoch up to here: the order and the hash are what they were.
        let delivered = state.delivered.unwrap();
        assert_eq!((delivered.rank, delivered.world_size), (0, 1));
        assert_eq!(delivered.digest.passed(), epoch_digest(&*sampler, cursor.epoch, 0..cursor.position));
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
    let packed =
        BatchingId::Packed { method: PackMethod::FirstFit, seq_len: 2048, window: 8192, seed: Some(42), version: 1 };
    assert_eq!(state.batching, packed);
}

#[test]
fn every_golden_state_loads() {
    let mut count = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).unwrap() {
        let path = entry.unwrap().path();
        State::read(&path).unwrap_or_else(|error| panic!("{error}"));
        count += 1;
    }
    assert_eq!(count, written().len() + 1, "each file is tested above");
}

#[test]
fn a_later_library_may_have_added_fields() {
    let text = FOLDER.replacen('{', "{\n  \"added\": {\"later\": [1, 2.5, null]},", 1);
    let text = text.replace("\"format\"", "\"added\": true,\n    \"format\"");
    let text = text.replace("\"kind\"", "\"added\": [],\n    \"kind\"");
    assert_eq!(State::from_json(&text).unwrap(), State::from_json(FOLDER).unwrap());
}

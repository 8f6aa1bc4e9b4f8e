//! States that do not belong where they are given, and texts that are no state.

use super::{FOLDER, MIXER, RECORDS, ROWS, golden_files, golden_folder};
use proptest::prelude::*;
use std::sync::Arc;
use uringload::config::{Batching, EngineChoice};
use uringload::dataset::{Dataset, Folder, SampleId};
use uringload::loader::{Builder, Loader};
use uringload::sampler::{Cursor, Mixer, Sampler};
use uringload::{Error, ErrorKind, State};

fn error_of(text: &str) -> Error {
    match State::from_json(text) {
        Ok(state) => panic!("{state} was read from {text}"),
        Err(error) => error,
    }
}

/// `from` occurs once.
fn changed(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in {text}");
    text.replace(from, to)
}

#[test]
fn what_cannot_be_is_refused_and_named() {
    use ErrorKind::{Corrupt, StateMismatch};
    for (from, to, kind, told) in [
        (
            "\"version\": 1",
            "\"version\": 2",
            StateMismatch,
            "version 2; this version of uringload understands version 1",
        ),
        ("\"version\": 1", "\"version\": 0", StateMismatch, "version 0"),
        ("\"version\": 1", "\"version\": \"1\"", Corrupt, "\"version\" of the state is \"1\""),
        ("\"version\": 1,", "", Corrupt, "no \"version\""),
        ("\"position\": 64", "\"position\": -5", Corrupt, "\"position\" of the state is -5"),
        ("\"position\": 64", "\"position\": 64.5", Corrupt, "64.5"),
        ("\"position\": 64", "\"position\": 1e300", Corrupt, "1e+300"),
        ("\"position\": 64", "\"position\": 18446744073709551616", Corrupt, "2^64 - 1"),
        ("\"position\": 64", "\"position\": null", Corrupt, "null"),
        ("\"position\": 64", "\"position\": 101", Corrupt, "position is 101, behind the end of an epoch of 100"),
        ("\"position\": 64,", "", Corrupt, "no \"position\""),
        ("\"epoch\": 3,\n  \"position\"", "\"position\"", Corrupt, "no \"epoch\""),
        ("\"order\": \"shuffled, seed 42\",", "", Corrupt, "no \"order\""),
        ("\"order\": \"shuffled, seed 42\"", "\"order\": 42", Corrupt, "\"order\" of the state is 42, not text"),
        ("\"batching\": null", "\"batching\": 5", Corrupt, "\"batching\""),
        ("\"format\": \"folder\",", "", Corrupt, "no \"dataset.format\""),
        ("\"files\": 100", "\"files\": 5000000000", Corrupt, "dataset.files"),
        ("\"length\": 100", "\"length\": 0", Corrupt, "without samples"),
        ("\"length\": 100", "\"length\": 100,\n  \"rows\": 3", Corrupt, "rows is 3"),
        ("\"length\": 100", "\"length\": 100,\n  \"mixer\": 3", Corrupt, "\"mixer\" of the state is 3, not an object"),
        ("\"rank\": 0", "\"rank\": 1", Corrupt, "delivered.rank is 1, not below a world size of 1"),
        ("\"since\": 0", "\"since\": 65", Corrupt, "delivered counts from"),
        ("\"lost_samples\": 0", "\"lost_samples\": 18446744073709551615", Corrupt, "lost"),
        ("\"lost_sum\": \"0000000000000000\"", "\"lost_sum\": \"+000000000000000\"", Corrupt, "delivered.lost_sum"),
        ("\"lost_sum\": \"0000000000000000\"", "\"lost_sum\": 0", Corrupt, "16 hexadecimal digits"),
    ] {
        let error = error_of(&changed(FOLDER, from, to));
        assert_eq!(error.kind(), kind, "{to}: {error}");
        assert!(error.to_string().contains(told), "{to}: {told:?} is not in {error}");
        assert!(error.remedy().is_some() && error.to_string().lines().count() == 1, "{error}");
    }
    for (from, to, told) in [
        ("      3,\n      1\n", "      3\n", "1 slots and 2 given"),
        ("      3,\n      1\n", "      0,\n      0\n", "all 0"),
        ("      3,\n      1\n", "      3,\n      4294967296\n", "mixer.slots"),
        ("      30,\n      10\n", "      -1,\n      10\n", "mixer.given"),
    ] {
        let error = error_of(&changed(MIXER, from, to));
        assert!(error.kind() == Corrupt && error.to_string().contains(told), "{to}: {told:?} is not in {error}");
    }
}

#[test]
fn what_is_no_state_is_refused() {
    let deep = "[".repeat(100_000);
    let long = format!("\"{}\"", "x".repeat(2 << 20));
    for (text, told) in [
        ("", "empty"),
        (" \n", "empty"),
        ("hello", "no JSON"),
        ("null", "not an object"),
        ("[1, 2]", "not an object"),
        ("{}", "no \"version\""),
        ("{\"version\": 1}", "no \"dataset\""),
        ("{\"version\": 1} {", "no JSON"),
        (deep.as_str(), "no JSON"),
        (long.as_str(), "1048576"),
    ] {
        let error = error_of(text);
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains(told), "{told:?} is not in {error}");
        assert!(error.to_string().len() < 300, "{error}");
    }
}

#[test]
fn a_state_that_was_cut_off_says_so() {
    for text in [FOLDER, RECORDS, MIXER, ROWS].map(str::trim_end) {
        for end in 1..text.len() {
            let error = error_of(&text[..end]);
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(&format!("cut off: it ends in the middle, behind {end} ")), "{error}");
        }
    }
}

proptest! {
    /// Whatever becomes of the text: a state that can be, or an error in one line.
    #[test]
    fn no_text_makes_it_panic(
        which in 0..4_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<u8>(), any::<u64>()), 1..6),
    ) {
        const TOKENS: [&str; 12] =
            ["-", "0", "9", "e", ".", "\"", "null", "{", "]", ",", "18446744073709551615", "\\u0000"];
        let mut text = [FOLDER, RECORDS, MIXER, ROWS][which].to_owned();
        for (at, kind, byte, number) in edits {
            let at = at.index(text.len());
            // The golden states are ASCII, and stay it.
            match kind {
                0 => text.replace_range(at..=at, TOKENS[byte as usize % TOKENS.len()]),
                1 => text.insert_str(at, &number.to_string()),
                _ => text.replace_range(at..(at + byte as usize % 40).min(text.len()), ""),
            }
            if text.is_empty() {
                break;
            }
        }
        match State::from_json(&text) {
            Ok(state) => {
                prop_assert!(state.cursor().position <= state.length);
                prop_assert_eq!(State::from_json(&state.to_json()).unwrap(), state);
            }
            Err(error) => prop_assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::StateMismatch)
                    && error.to_string().lines().count() == 1,
                "{}", error
            ),
        }
    }
}

fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset)).shuffle(true).seed(42)
}

fn refused(builder: Builder, told: &[&str]) {
    let Err(error) = builder.build() else { panic!("resumed where {told:?} is different") };
    assert_eq!(error.kind(), ErrorKind::StateMismatch, "{error}");
    for told in told {
        assert!(error.to_string().contains(told), "{told:?} is not in {error}");
    }
    assert!(error.remedy().is_some(), "{error}");
}

#[test]
fn another_dataset_is_refused_with_what_differs() {
    let state = State::from_json(FOLDER).unwrap();
    let with = |change: &dyn Fn(&mut State)| {
        let mut state = state.clone();
        change(&mut state);
        builder(&golden_folder()).resume(&state)
    };
    refused(
        with(&|state| state.dataset.format = "records".into()),
        &["format \"records\" in the state, \"folder\" here"],
    );
    refused(with(&|state| state.dataset.samples = 99), &["99 samples in the state, 100 here"]);
    refused(with(&|state| state.dataset.files = 7), &["7 files in the state, 100 here"]);
    refused(with(&|state| state.dataset.bytes += 1), &["bytes in the state"]);
    refused(with(&|state| state.dataset.fingerprint ^= 1), &["fingerprint", "names, sizes or order of files differ"]);
    let both = with(&|state| (state.dataset.samples, state.dataset.files) = (5, 6));
    refused(both, &["5 samples in the state", "6 files in the state"]);

    // A file more, and a file of another name.
    let mut files = golden_files();
    files.push(b"more", 10).unwrap();
    let dataset: Arc<dyn Dataset> = Arc::new(Folder::from_files(files));
    refused(builder(&dataset).resume(&state), &["100 samples in the state, 101 here", "100 files", "bytes"]);
    let records = State::from_json(RECORDS).unwrap();
    refused(
        builder(&golden_folder()).resume(&records),
        &["format \"records\" in the state, \"folder\" here", "samples"],
    );
}

/// An order that calls itself as it is told.
struct Named(&'static str, u64);

impl Sampler for Named {
    fn len(&self) -> u64 {
        self.1
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(cursor.position)
    }

    fn describe(&self) -> String {
        self.0.into()
    }
}

#[test]
fn another_order_is_refused_with_both() {
    let state = State::from_json(FOLDER).unwrap();
    let dataset = golden_folder();
    let told = ["\"shuffled, seed 42\" in the state, \"shuffled, seed 43\" here"];
    refused(builder(&dataset).seed(43).resume(&state), &told);
    refused(builder(&dataset).shuffle(false).resume(&state), &["\"in the order of the dataset\" here"]);
    refused(builder(&dataset).sampler(Arc::new(Named("mine\n", 100))).resume(&state), &["\"mine\\n\" here"]);
    let short = Arc::new(Named("shuffled, seed 42", 63));
    refused(builder(&dataset).sampler(short).resume(&state), &["position 64 of epoch 3, which has 63 positions here"]);
}

/// A mixture as far as a state sees it: it says where it stands, and takes only that back.
struct Mixed(Option<Mixer>);

impl Sampler for Mixed {
    fn len(&self) -> u64 {
        100
    }

    fn len_of(&self, epoch: u64) -> u64 {
        if self.0.as_ref().is_some_and(|mixer| mixer.epoch == epoch) { 70 } else { 100 }
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(cursor.position)
    }

    fn mixer(&self, cursor: Cursor) -> Option<Mixer> {
        let given = vec![cursor.position, 0];
        Some(Mixer { slots: vec![1, 0], epoch: cursor.epoch, since: cursor.position, given })
    }

    fn resumed(&self, mixer: &Mixer, _cursor: Cursor) -> uringload::Result<Option<Arc<dyn Sampler>>> {
        match mixer.slots.len() {
            2 => Ok(Some(Arc::new(Mixed(Some(mixer.clone()))))),
            _ => Err(Error::new(ErrorKind::InvalidArgument, "a mixture of two")),
        }
    }
}

#[test]
fn a_mixture_gets_back_what_it_said() {
    let dataset = golden_folder();
    let mixed = || builder(&dataset).engine(EngineChoice::Sim).sampler(Arc::new(Mixed(None)));
    let state = mixed().start(Cursor::new(2, 60)).build().expect("a loader").state();
    assert_eq!((&state.mixer.as_ref().unwrap().given, state.length), (&vec![60, 0], 100));
    let state = State::from_json(&state.to_json()).unwrap();
    let again = mixed().resume(&state).build().expect("a loader").state();
    assert_eq!(again.length, 70, "of the order that goes on, not of the one that was given");
    let mut beyond = state.clone();
    beyond.cursor.position = 71;
    refused(mixed().resume(&beyond), &["position 71 of epoch 2, which has 70 positions here"]);
    let mut other = state;
    other.mixer.as_mut().unwrap().slots = vec![1, 2, 3];
    let Err(error) = mixed().resume(&other).build() else { panic!("a mixture of three") };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn other_rows_are_refused_within_a_window() {
    let state = State::from_json(ROWS).unwrap();
    let error = state.check_batching(&Batching::Samples).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateMismatch);
    assert!(error.to_string().contains("12 rows") && error.to_string().contains("\"samples\" here"), "{error}");
    let mut state = state;
    state.cursor.rows = 0;
    state.check_batching(&Batching::Samples).unwrap();
}

#[test]
fn a_bare_cursor_is_not_checked() {
    let mut state = State::from_json(FOLDER).unwrap();
    state.dataset.samples = 5;
    state.order = "another".into();
    let folder = tempfile::tempdir().unwrap();
    for number in 0..100 {
        std::fs::write(folder.path().join(format!("{number}")), [0; 10]).unwrap();
    }
    let dataset: Arc<dyn Dataset> = Arc::new(Folder::open(&[folder.path()]).unwrap());
    let mut loader = builder(&dataset).resume(&state).start(state.cursor()).build().expect("a loader");
    assert_eq!(loader.next().unwrap().unwrap().cursor, state.cursor());
    refused(builder(&dataset).start(state.cursor()).resume(&state), &["samples"]);
}

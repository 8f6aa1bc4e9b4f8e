//! States that do not belong where they are given, and texts that are not states.

use super::identities::Counted;
use super::{FOLDER, Known, MIXER, MIXTURE, RECORDS, ROWS, builder, golden_files, golden_folder};
use proptest::prelude::*;
use std::sync::Arc;
use uringload::Builder;
use uringload::config::EngineChoice;
use uringload::dataset::{self, Dataset, Options};
use uringload::inspect::BatchingId;
use uringload::inspect::KnownOrder;
use uringload::sampler::{Cursor, OrderId};
use uringload::{Error, ErrorKind, State};

const ALL: [&str; 5] = [FOLDER, RECORDS, MIXER, MIXTURE, ROWS];

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
            "\"version\": 2",
            "\"version\": 3",
            StateMismatch,
            "version 3; this version of uringload understands version 2",
        ),
        ("\"version\": 2", "\"version\": 0", StateMismatch, "version 0"),
        ("\"version\": 2", "\"version\": \"1\"", Corrupt, "\"version\" of the state is \"1\""),
        ("\"version\": 2,", "", Corrupt, "no \"version\""),
        ("\"version\": 2", "\"version\": 1", StateMismatch, "version 1; this version"),
        ("\"position\": 64", "\"position\": -5", Corrupt, "\"position\" of the state is -5"),
        ("\"position\": 64", "\"position\": 64.5", Corrupt, "64.5"),
        ("\"position\": 64", "\"position\": 1e300", Corrupt, "1e+300"),
        ("\"position\": 64", "\"position\": 18446744073709551616", Corrupt, "2^64 - 1"),
        ("\"position\": 64", "\"position\": null", Corrupt, "null"),
        ("\"position\": 64", "\"position\": 101", Corrupt, "position is 101, past the end of an epoch of 100"),
        ("\"position\": 64,", "", Corrupt, "no \"position\""),
        ("\"epoch\": 3,\n  \"position\"", "\"position\"", Corrupt, "no \"epoch\""),
        ("\"order\"", "\"other\"", Corrupt, "no \"order\""),
        ("\"order\": {", "\"order\": 42, \"other\": {", Corrupt, "\"order\" of the state is 42, not an object"),
        ("\"batching\"", "\"other\"", Corrupt, "no \"batching\""),
        ("\"batching\": {", "\"batching\": 5, \"other\": {", Corrupt, "\"batching\" of the state is 5, not an object"),
        ("\"kind\": \"shuffled\",", "", Corrupt, "no \"order.kind\""),
        ("\"kind\": \"shuffled\"", "\"kind\": 7", Corrupt, "\"order.kind\" of the state is 7, not text"),
        (
            "\"kind\": \"shuffled\"",
            "\"kind\": \"spiral\"",
            StateMismatch,
            "\"order.kind\" of the state is \"spiral\", which this version of uringload does not know \
             (it knows sequential, shuffled,",
        ),
        (
            "\"kind\": \"samples\"",
            "\"kind\": \"Samples\"",
            StateMismatch,
            "\"batching.kind\" of the state is \"Samples\", which this version of uringload does not know \
             (it knows samples, packed,",
        ),
        ("\"seed\": 42", "\"seed\": \"42\"", Corrupt, "\"order.seed\" of the state is \"42\""),
        ("\"seed\": 42", "\"seed\": -1", Corrupt, "\"order.seed\" of the state is -1"),
        ("\"seed\": 42,", "", Corrupt, "no \"order.seed\""),
        ("\"version\": 1", "\"version\": 1.5", Corrupt, "\"order.version\" of the state is 1.5"),
        (",\n    \"version\": 1", "", Corrupt, "no \"order.version\""),
        ("\"format\": \"folder\",", "", Corrupt, "no \"dataset.format\""),
        ("\"files\": 100", "\"files\": 5000000000", Corrupt, "dataset.files"),
        ("\"length\": 100", "\"length\": 0", Corrupt, "has no samples"),
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
        assert!(error.remedy().is_some() && error.to_string().lines().count() == 2, "{error}");
    }
    for (text, from, to, kind, told) in [
        (MIXTURE, "\"stopping\": \"all_exhausted\"", "\"stopping\": \"after\"", StateMismatch, "\"order.stopping\""),
        (MIXTURE, "\"orders\": \"", "\"orders\": \"x", Corrupt, "\"order.orders\""),
        (MIXTURE, "\"parts\": 2", "\"parts\": null", Corrupt, "\"order.parts\" of the state is null"),
        (ROWS, "\"method\": \"first_fit\"", "\"method\": \"first fit\"", StateMismatch, "it knows first_fit, best_fit"),
        (ROWS, "\"seq_len\": 2048", "\"seq_len\": {}", Corrupt, "\"batching.seq_len\" of the state is an object"),
        (ROWS, "\"window\": 8192,", "", Corrupt, "no \"batching.window\""),
    ] {
        let error = error_of(&changed(text, from, to));
        assert!(error.kind() == kind && error.to_string().contains(told), "{to}: {told:?} is not in {error}");
        assert!(error.remedy().is_some() && error.to_string().lines().count() == 2, "{error}");
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
        ("hello", "not JSON"),
        ("null", "not an object"),
        ("[1, 2]", "not an object"),
        ("{}", "no \"version\""),
        ("{\"version\": 2}", "no \"order\""),
        (
            "{\"version\": 2, \"order\": {\"kind\": \"sequential\"}, \"batching\": {\"kind\": \"samples\"}}",
            "no \"dataset\"",
        ),
        ("{\"version\": 2} {", "not JSON"),
        (deep.as_str(), "not JSON"),
        (long.as_str(), "1048576"),
    ] {
        let error = error_of(text);
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains(told), "{told:?} is not in {error}");
        assert!(error.to_string().len() < 300, "{error}");
    }
}

#[test]
fn a_state_that_was_cut_off_says_so() {
    for text in ALL.map(str::trim_end) {
        for end in 1..text.len() {
            let error = error_of(&text[..end]);
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(&format!("cut off after {end} bytes")), "{error}");
        }
    }
}

proptest! {
    /// Whatever becomes of the text: a state that can be, or an error.
    #[test]
    fn no_text_makes_it_panic(
        which in 0..ALL.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<u8>(), any::<u64>()), 1..6),
    ) {
        const TOKENS: [&str; 12] =
            ["-", "0", "9", "e", ".", "\"", "null", "{", "]", ",", "18446744073709551615", "\\u0000"];
        let mut text = ALL[which].to_owned();
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
                    && error.to_string().lines().count() == 1 + usize::from(error.remedy().is_some()),
                "{}", error
            ),
        }
    }
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
    let dataset: Arc<dyn Dataset> = dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap();
    refused(builder(&dataset).resume(&state), &["100 samples in the state, 101 here", "100 files", "bytes"]);
    let records = State::from_json(RECORDS).unwrap();
    refused(
        builder(&golden_folder()).resume(&records),
        &["format \"records\" in the state, \"folder\" here", "samples"],
    );
}

#[test]
fn another_order_is_refused_with_both() {
    let dataset = golden_folder();
    let state = State::from_json(FOLDER).unwrap();
    let told = ["\"shuffled, seed 42\" in the state, \"shuffled, seed 43\" here"];
    refused(builder(&dataset).seed(43).resume(&state), &told);
    refused(builder(&dataset).shuffle(false).resume(&state), &["\"in the order of the dataset\" here"]);
    let custom = Arc::new(Known(OrderId::custom("mine\n", 1, &[]), 100));
    refused(builder(&dataset).sampler(custom).resume(&state), &["\"mine\\n\" here"]);
    let short = Arc::new(Known(KnownOrder::Shuffled { seed: 42, version: 1 }.into(), 63));
    let told = ["position 64 of epoch 3, which has 63 positions here"];
    refused(builder(&dataset).sampler(short).resume(&state), &told);
}

#[test]
fn a_mixture_gets_back_what_it_said() {
    let dataset = golden_folder();
    let mixed = || builder(&dataset).engine(EngineChoice::Sim).sampler(Arc::new(Counted(None)));
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
    let mut state = State::from_json(ROWS).unwrap();
    let error = state.check_batching(&BatchingId::Samples).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateMismatch);
    assert!(error.to_string().contains("12 rows") && error.to_string().contains("\"samples\" here"), "{error}");
    state.cursor.rows = 0;
    state.check_batching(&BatchingId::Samples).unwrap();
    let state = State::from_json(ROWS).unwrap();
    let BatchingId::Packed { method, seq_len, window, version, .. } = state.batching else {
        panic!("{}", state.batching);
    };
    let of = |seed, seq_len| BatchingId::Packed { method, seq_len, window, seed, version };
    state.check_batching(&of(Some(42), seq_len)).unwrap();
    for (other, told) in [
        (of(Some(43), seq_len), "(seed 42 in the state, 43 here)"),
        (of(None, 4096), "(seq_len 2048 in the state, 4096 here; seed 42 in the state, none here)"),
    ] {
        let error = state.check_batching(&other).unwrap_err().to_string();
        assert!(error.contains(told), "{told:?} is not in {error}");
    }
}

#[test]
fn a_bare_cursor_is_not_checked() {
    let mut state = State::from_json(FOLDER).unwrap();
    state.dataset.samples = 5;
    state.order = OrderId::custom("another", 1, &[]);
    let folder = tempfile::tempdir().unwrap();
    for number in 0..100 {
        std::fs::write(folder.path().join(format!("{number}")), [0; 10]).unwrap();
    }
    let dataset: Arc<dyn Dataset> = dataset::open(&[folder.path()], &Options::new().format("folder")).unwrap();
    let mut loader = builder(&dataset).resume(&state).start(state.cursor()).build().expect("a loader");
    assert_eq!(loader.next().unwrap().unwrap().cursor, state.cursor());
    refused(builder(&dataset).start(state.cursor()).resume(&state), &["samples"]);
}

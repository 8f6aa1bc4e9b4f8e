//! Orders are identified by what decides them, whatever their names.

use super::*;
use uringload::config::EngineChoice;
use uringload::inspect::KnownOrder;
use uringload::inspect::Shuffled;
use uringload::sampler::{Mixer, for_dataset};
use uringload::{Error, ErrorKind};

/// A mixture as a state sees it: it reports its position, and accepts only that one again.
pub(super) struct Counted(pub(super) Option<Mixer>);

impl Sampler for Counted {
    fn len(&self) -> u64 {
        100
    }

    fn len_of(&self, epoch: u64) -> u64 {
        if self.0.as_ref().is_some_and(|mixer| mixer.epoch == epoch) { 70 } else { 100 }
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(cursor.position)
    }

    fn id(&self) -> OrderId {
        KnownOrder::Shuffled { seed: 42, version: 1 }.into()
    }

    fn mixer(&self, cursor: Cursor) -> Option<Mixer> {
        let given = vec![cursor.position, 0];
        Some(Mixer { slots: vec![1, 0], epoch: cursor.epoch, since: cursor.position, given })
    }

    fn resumed(&self, mixer: &Mixer, _cursor: Cursor) -> uringload::Result<Option<Arc<dyn Sampler>>> {
        match mixer.slots.len() {
            2 => Ok(Some(Arc::new(Counted(Some(mixer.clone()))))),
            _ => Err(Error::new(ErrorKind::InvalidArgument, "a mixture of two")),
        }
    }
}

/// An order under other words.
struct Reworded(Arc<dyn Sampler>, &'static str);

impl Sampler for Reworded {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        self.0.at(cursor)
    }

    fn id(&self) -> OrderId {
        self.0.id()
    }

    fn describe(&self) -> String {
        self.1.into()
    }
}

#[test]
fn words_about_an_order_decide_nothing() {
    let dataset = golden_folder();
    let shuffled = |seed| for_dataset(&*dataset, true.into(), seed).expect("an order");
    let under = |words, seed| {
        let sampler = Arc::new(Reworded(shuffled(seed), words));
        builder(&dataset).engine(EngineChoice::Sim).sampler(sampler)
    };
    let state = State::from_json(FOLDER).unwrap();
    for words in ["", "permuted; seed is 42", "shuffled, seed 43", "in the order of the dataset"] {
        let saved = under(words, 42).resume(&state).build().expect("the same order").state();
        assert_eq!(unsummed(&saved.to_json()) + "\n", FOLDER, "called {words:?}");
    }
    let error = under("shuffled, seed 42", 43).resume(&state).build().expect_err("another order");
    assert_eq!(error.kind(), ErrorKind::StateMismatch);
}

/// A state tells everything in a line, whatever is in it.
#[test]
fn a_state_is_a_line_for_people() {
    let mut state = State::from_json(FOLDER).unwrap();
    state.order = OrderId::custom("line\nline", 1, &[]);
    let line = state.to_string();
    for told in ["epoch 3", "position 64 of 100", "folder", "line\\nline"] {
        assert!(line.contains(told), "{told} in {line}");
    }
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(State::from_json(FOLDER).unwrap().to_string().contains("shuffled, seed 42"));
}

fn error_of(text: &str, sampler: impl Sampler) -> Error {
    State::from_json(text).unwrap().check_order(&sampler).expect_err("another order")
}

#[test]
fn what_differs_is_named() {
    let shuffled = |seed, version| Known(KnownOrder::Shuffled { seed, version }.into(), 100);
    let error = error_of(FOLDER, shuffled(43, 1)).to_string();
    let told = "\"shuffled, seed 42\" in the state, \"shuffled, seed 43\" here (seed 42 in the state, 43 here)";
    assert!(error.contains(told), "{error}");
    let error = error_of(FOLDER, shuffled(42, 2));
    assert!(error.to_string().contains("(version 1 in the state, 2 here)"), "{error}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("resume with the version of the library")), "{error}");
    let error = error_of(FOLDER, shuffled(1, 2)).to_string();
    assert!(error.contains("(seed 42 in the state, 1 here; version 1 in the state, 2 here)"), "{error}");
    let error = error_of(FOLDER, Known(OrderId::custom("shuffled, seed 42", 1, &[]), 100)).to_string();
    assert!(error.contains("(kind shuffled in the state, custom here)"), "{error}");
    // All that decides an order decides whether a state is of it; so does the number of its positions.
    let error = error_of(FOLDER, Shuffled::new(80, 42)).to_string();
    assert!(error.contains("epoch 3 has 100 positions in the state, 80 here"), "{error}");
    let custom = |parameters: &[u64]| Known(OrderId::custom("mine", 1, parameters), 100);
    let text = include_str!("../../golden/state-v2-custom.json");
    let error = error_of(text, custom(&[1, 3])).to_string();
    assert!(error.contains("\"mine\" in the state, \"mine\" here (digest bcd9dbb49673066b in the state, "), "{error}");
}

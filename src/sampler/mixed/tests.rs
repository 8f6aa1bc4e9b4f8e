//! Compares mixtures with counters that walk through them, and tries invalid states.

use super::*;
use crate::sampler::KnownOrder;
use crate::sampler::{Shuffled, Strided};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SEED: u64 = 99;

fn ends(lens: &[u64]) -> Vec<u64> {
    let sum = |end: &mut u64, len: &u64| {
        *end += len;
        Some(*end)
    };
    lens.iter().scan(0, sum).collect()
}

fn orders(lens: &[u64]) -> Vec<Arc<dyn Sampler>> {
    lens.iter().zip(0..).map(|(&len, seed)| Arc::new(Shuffled::new(len, seed)) as Arc<dyn Sampler>).collect()
}

fn mixed(lens: &[u64], weights: &[f64], stopping: Stopping) -> Mixed {
    Mixed::new(orders(lens), &ends(lens), weights, stopping, SEED).expect("a mixture")
}

fn at(mixed: &dyn Sampler, epoch: u64, position: u64) -> u64 {
    mixed.at(Cursor::new(epoch, position)).0
}

fn ids(mixed: &dyn Sampler, epoch: u64, from: u64) -> Vec<u64> {
    (from..mixed.len_of(epoch)).map(|position| at(mixed, epoch, position)).collect()
}

/// The part of a sample.
fn part_of(lens: &[u64], id: u64) -> usize {
    ends(lens).partition_point(|&end| end <= id)
}

/// The `number`-th sample of part `part` in an epoch: each pass is a shuffle of its own.
fn nth(lens: &[u64], part: usize, epoch: u64, number: u64) -> u64 {
    let (pass, place) = (number / lens[part], number % lens[part]);
    let order = Shuffled::new(lens[part], part as u64);
    ends(lens)[part] - lens[part] + order.at(Cursor::new(epoch.wrapping_add(pass << 32), place)).0
}

/// The part at each position if none is ever exhausted.
fn turns(lens: &[u64], weights: &[f64], positions: u64) -> Vec<usize> {
    let endless = mixed(lens, weights, Stopping::After(u64::MAX));
    (0..positions).map(|position| part_of(lens, at(&endless, 0, position))).collect()
}

/// An epoch by counters, one sample after the other.
fn walked(lens: &[u64], weights: &[f64], stopping: Stopping, epoch: u64) -> Vec<u64> {
    const STEPS_MAX: u64 = 20_000;
    let (mut given, mut out) = (vec![0; lens.len()], Vec::new());
    let mut turn = turns(lens, weights, STEPS_MAX).into_iter();
    loop {
        let mut wanted = (0..lens.len()).filter(|&part| weights[part] > 0.0);
        let ended = match stopping {
            Stopping::FirstExhausted => wanted.any(|part| given[part] >= lens[part]),
            Stopping::After(samples) => out.len() as u64 == samples,
            _ => wanted.all(|part| given[part] >= lens[part]),
        };
        if ended {
            return out;
        }
        let part = turn.next().expect("more turns than samples");
        out.push(nth(lens, part, epoch, given[part]));
        given[part] += 1;
        if stopping == Stopping::AllExhaustedWithoutReplacement && given[part] == lens[part] {
            let left = weights_of_left(lens, weights, &given);
            if left.iter().any(|&weight| weight > 0.0) {
                turn = turns(lens, &left, STEPS_MAX).into_iter();
            }
        }
    }
}

/// The weights of the parts that are not exhausted.
fn weights_of_left(lens: &[u64], weights: &[f64], given: &[u64]) -> Vec<f64> {
    let left = |part: usize| if given[part] < lens[part] { weights[part] } else { 0.0 };
    (0..lens.len()).map(left).collect()
}

const STOPPINGS: [Stopping; 4] =
    [Stopping::FirstExhausted, Stopping::AllExhausted, Stopping::AllExhaustedWithoutReplacement, Stopping::After(150)];

/// Weights that are slots already, so that leaving parts out rounds once, as in a mixture.
fn rounded(weights: &[f64]) -> Vec<f64> {
    weights::slots(weights).expect("weights").into_iter().map(f64::from).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn a_mixture_is_what_counters_walk_through(
        parts in prop::collection::vec((1..60_u64, 0.05..1.0_f64), 1..6), epoch in 0..3_u64, idle: bool,
    ) {
        is_what_counters_walk_through(parts, epoch, idle)?;
    }
}

/// Compares every way to stop with counters: each part gives its samples in its order, and each of them once a pass.
fn is_what_counters_walk_through(parts: Vec<(u64, f64)>, epoch: u64, idle: bool) -> Result<(), TestCaseError> {
    let (mut lens, mut weights): (Vec<u64>, Vec<f64>) = parts.into_iter().unzip();
    if idle {
        lens.push(7);
        weights.push(0.0);
    }
    let weights = rounded(&weights);
    for stopping in STOPPINGS {
        let mixture = mixed(&lens, &weights, stopping);
        let got = ids(&mixture, epoch, 0);
        prop_assert_eq!(&got, &walked(&lens, &weights, stopping, epoch), "{}", stopping);
        let last = lens.len() - 1;
        prop_assert!(!idle || got.iter().all(|&id| part_of(&lens, id) != last), "a weight of 0 never comes");
        if stopping == Stopping::AllExhaustedWithoutReplacement {
            let wanted: u64 = lens.iter().zip(&weights).filter(|pair| *pair.1 > 0.0).map(|pair| pair.0).sum();
            prop_assert_eq!(got.len() as u64, wanted);
            prop_assert_eq!(got.iter().collect::<BTreeSet<_>>().len() as u64, wanted, "each exactly once");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    #[ignore = "slow: more mixtures"]
    fn many_mixtures_are_what_counters_walk_through(
        parts in prop::collection::vec((1..60_u64, 0.05..1.0_f64), 1..6), epoch in 0..3_u64, idle: bool,
    ) {
        is_what_counters_walk_through(parts, epoch, idle)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Any state is either accepted or refused, and an accepted one has samples.
    #[test]
    fn no_state_is_too_hostile(
        slots in prop::collection::vec(prop_oneof![Just(0), Just(65536), Just(32768), any::<u32>()], 2..4),
        given in prop::collection::vec(prop_oneof![0..20_u64, any::<u64>()], 2..4),
        since in prop_oneof![0..40_u64, any::<u64>()], position in prop_oneof![0..40_u64, any::<u64>()],
        adds_up: bool, epoch in 0..2_u64,
    ) {
        let since = if adds_up { given.iter().fold(0_u64, |sum, given| sum.wrapping_add(*given)) } else { since };
        let mixer = Mixer { slots, epoch: 0, since, given };
        for stopping in STOPPINGS {
            let mixture = mixed(&[10, 13], &[1.0, 3.0], stopping);
            match mixture.resumed(&mixer, Cursor::new(epoch, position)) {
                Ok(resumed) => {
                    let resumed = resumed.expect("a mixture");
                    prop_assert!(resumed.len_of(epoch) >= position);
                    for probe in (position..resumed.len_of(epoch)).take(3) {
                        prop_assert!(resumed.at(Cursor::new(epoch, probe)).0 < 23);
                    }
                }
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::StateMismatch, "{}", error);
                    prop_assert!(error.remedy().is_some());
                }
            }
        }
    }
}

#[test]
fn proportions_are_exact_everywhere() {
    let lens = [1000, 20, 5_000_000, 3, 77, 100_000, 50_000, 9];
    let weights = [0.3, 0.05, 0.2, 0.001, 0.119, 0.13, 0.15, 0.05];
    let mixture = mixed(&lens, &weights, Stopping::After(2_000_000));
    const SAMPLES: u64 = 1_000_000;
    let mut counts = [0_u64; 8];
    let mut of_run = [0_u64; 8];
    for position in 0..SAMPLES {
        let part = part_of(&lens, at(&mixture, 0, position));
        counts[part] += 1;
        of_run[part] += 1;
        if position % 64 == 63 {
            for (part, count) in std::mem::take(&mut of_run).into_iter().enumerate() {
                let wanted = weights[part] * 64.0;
                // A run is cut from the whole at two ends; at each it may have 1 + parts * weight too many or few.
                let slack = 2.0 * (1.0 + 8.0 * weights[part]);
                assert!((count as f64 - wanted).abs() <= slack, "{count} of {wanted} of part {part} before {position}");
            }
        }
    }
    for (part, count) in counts.into_iter().enumerate() {
        let share = count as f64 / SAMPLES as f64;
        assert!((share - weights[part]).abs() < 1e-5 + 0.5 / 65536.0, "part {part}: {share} of {}", weights[part]);
    }
}

/// Earlier samples do not predict the next part: in runs of 64 every place is equally likely.
#[test]
fn turns_have_no_pattern() {
    let turns = turns(&[1000; 4], &[1.0; 4], 65536);
    let mut followers = [0_u32; 16];
    let mut places = [[0_u32; 64]; 4];
    for (position, pair) in turns.windows(2).enumerate() {
        followers[pair[0] * 4 + pair[1]] += 1;
        places[pair[0]][position % 64] += 1;
    }
    // A run holds 16 of each, of which 15 can follow one of their own, and 16 each of the others.
    let expected: Vec<f64> =
        (0..16).map(|pair| 65535.0 / 4.0 * if pair / 4 == pair % 4 { 15.0 / 63.0 } else { 16.0 / 63.0 }).collect();
    for (pair, (&count, expected)) in followers.iter().zip(&expected).enumerate() {
        assert!((f64::from(count) - expected).abs() < 6.0 * expected.sqrt(), "{pair}: {count} of {expected}");
    }
    for part in places {
        let deviation = crate::sampler::statistics::deviation(&part, 63.0);
        assert!(deviation < crate::sampler::statistics::DEVIATIONS_MAX, "{deviation}");
    }
}

#[test]
fn a_part_that_starts_over_has_another_order() {
    let lens = [50, 400];
    let mixture = mixed(&lens, &[0.5, 0.5], Stopping::AllExhausted);
    for epoch in [0, 5] {
        let of_first: Vec<u64> = ids(&mixture, epoch, 0).into_iter().filter(|&id| id < 50).collect();
        assert!(of_first.len() >= 390, "{}", of_first.len());
        for pass in of_first.chunks_exact(50) {
            assert_eq!(pass.iter().collect::<BTreeSet<_>>().len(), 50, "every sample once a pass");
        }
        assert_ne!(of_first[..50], of_first[50..100]);
    }
    let last = mixture.at(Cursor::new(u64::MAX, mixture.len() - 1));
    assert!(last.0 < 450, "passes of the last epoch of all wrap around");
}

/// One change of weights: at this position, to these weights.
type Change = (u64, Vec<f64>);

/// Goes on from a state of `before` at a position of an epoch, as a mixture with other weights.
fn change(before: &dyn Sampler, lens: &[u64], stopping: Stopping, epoch: u64, change: &Change) -> Arc<dyn Sampler> {
    let cursor = Cursor::new(epoch, change.0);
    let mixer = before.mixer(cursor).expect("a mixture has a state");
    mixed(lens, &change.1, stopping).resumed(&mixer, cursor).expect("a good state").expect("a mixture")
}

#[test]
fn the_same_weights_go_on_in_the_same_order() {
    goes_on_with_the_same_weights(17);
}

#[test]
#[ignore = "slow: every position"]
fn the_same_weights_go_on_in_the_same_order_everywhere() {
    goes_on_with_the_same_weights(1);
}

/// At every `every`-th position of small mixtures: with the same weights, all goes on as if nothing had happened.
fn goes_on_with_the_same_weights(every: usize) {
    let (lens, weights) = ([5, 9, 4, 30], [0.2, 0.3, 0.0, 0.5]);
    for stopping in [STOPPINGS[0], STOPPINGS[1], STOPPINGS[2], Stopping::After(45)] {
        let whole = mixed(&lens, &weights, stopping);
        let (wanted, next) = (ids(&whole, 3, 0), ids(&whole, 4, 0));
        for position in (0..=whole.len()).step_by(every) {
            let resumed = change(&whole, &lens, stopping, 3, &(position, weights.to_vec()));
            assert_eq!(resumed.len_of(3), whole.len(), "{stopping} at {position}");
            assert_eq!(ids(&*resumed, 3, 0), wanted, "{stopping} at {position}");
            assert_eq!(ids(&*resumed, 4, 0), next, "{stopping} at {position}");
            let cursor = Cursor::new(3, position);
            assert_eq!(resumed.mixer(cursor), whole.mixer(cursor));
            assert_eq!((resumed.len(), resumed.id()), (whole.len(), whole.id()));
        }
    }
}

#[test]
fn changed_weights_lose_and_repeat_nothing() {
    changes_and_goes_on(17);
}

#[test]
#[ignore = "slow: every position"]
fn changed_weights_lose_and_repeat_nothing_anywhere() {
    changes_and_goes_on(1);
}

/// At every `every`-th position, and at a later one: each part continues where it was, and the epoch ends where its
/// rule says, with earlier samples counted.
fn changes_and_goes_on(every: usize) {
    let lens = [5, 9, 4, 30];
    let weights = [vec![0.2, 0.3, 0.1, 0.4], vec![0.5, 0.0, 0.4, 0.1], vec![0.1, 0.6, 0.0, 0.3]];
    for stopping in [STOPPINGS[0], STOPPINGS[1], STOPPINGS[2], Stopping::After(60)] {
        let first = mixed(&lens, &weights[0], stopping);
        for position in (0..=first.len()).step_by(every * if first.len() > 40 { 5 } else { 1 }) {
            let second = change(&first, &lens, stopping, 2, &(position, weights[1].clone()));
            let again = position + (second.len_of(2) - position) / 2;
            let third = change(&*second, &lens, stopping, 2, &(again, weights[2].clone()));
            // And once more without a change, from the state of the changed one.
            let end = again + (third.len_of(2) - again) / 2;
            let last = change(&*third, &lens, stopping, 2, &(end, weights[2].clone()));
            assert_eq!((last.len_of(2), ids(&*last, 2, again)), (third.len_of(2), ids(&*third, 2, again)));
            let mut all: Vec<u64> = (0..position).map(|position| at(&first, 2, position)).collect();
            all.extend((position..again).map(|position| at(&*second, 2, position)));
            all.extend(ids(&*last, 2, again));
            let mut given = [0; 4];
            for &id in &all {
                let part = part_of(&lens, id);
                assert_eq!(id, nth(&lens, part, 2, given[part]), "{stopping}, changed at {position} and {again}");
                given[part] += 1;
            }
            let used = |part: &usize| weights[2][*part] > 0.0;
            match stopping {
                Stopping::FirstExhausted => {
                    let full = (0..4).filter(|&part| given[part] == lens[part]).count();
                    assert!(full == 1 && (0..4).all(|part| given[part] <= lens[part]), "{given:?} at {position}");
                }
                Stopping::AllExhausted => {
                    assert!((0..4).filter(used).all(|part| given[part] >= lens[part]), "{given:?} at {position}");
                    let last = (again..third.len_of(2)).last().map(|last| part_of(&lens, at(&*third, 2, last)));
                    assert!(last.is_none_or(|last| given[last] == lens[last]), "it ends with the last: {given:?}");
                }
                Stopping::AllExhaustedWithoutReplacement => {
                    assert!((0..4).filter(used).all(|part| given[part] == lens[part]), "{given:?} at {position}");
                    assert!((0..4).all(|part| given[part] <= lens[part]), "{given:?} at {position}");
                }
                Stopping::After(samples) => assert_eq!(all.len() as u64, samples),
            }
            let usual = mixed(&lens, &weights[2], stopping);
            assert_eq!(ids(&*last, 3, 0), ids(&usual, 3, 0), "the next epoch is as usual");
            assert_eq!(last.mixer(Cursor::new(3, 1)), usual.mixer(Cursor::new(3, 1)));
        }
    }
}

#[test]
fn states_of_other_mixtures_are_refused_in_words() {
    let mixture = mixed(&[10, 20], &[1.0, 3.0], Stopping::FirstExhausted);
    let good = mixture.mixer(Cursor::new(7, 4)).expect("a state");
    assert_eq!(good, Mixer { slots: vec![16384, 49152], epoch: 7, since: 0, given: vec![0, 0] });
    let half = || vec![32768, 32768];
    for (mixer, word) in [
        (Mixer { slots: vec![65536], ..good.clone() }, "1 datasets"),
        (Mixer { given: vec![0; 3], ..good.clone() }, "samples of 3"),
        (Mixer { slots: vec![16384, 49153], ..good.clone() }, "add up to 65536"),
        (Mixer { slots: vec![u32::MAX, u32::MAX], ..good.clone() }, "add up to 65536"),
        (Mixer { epoch: 6, ..good.clone() }, "epoch 6"),
        (Mixer { since: 5, given: vec![2, 3], ..good.clone() }, "position 5"),
        (Mixer { since: 3, given: vec![2, 2], ..good.clone() }, "add up to the state's 3"),
        (Mixer { since: 3, given: vec![4, u64::MAX], ..good.clone() }, "add up to the state's 3"),
        (Mixer { slots: half(), since: 15, given: vec![15, 0], ..good.clone() }, "15 samples of dataset 0"),
        (Mixer { slots: half(), since: 10, given: vec![10, 0], ..good.clone() }, "epoch of 10 samples"),
    ] {
        let position = match mixer.since {
            15 => 16,
            10 => 11,
            _ => 4,
        };
        let Err(error) = mixture.resumed(&mixer, Cursor::new(7, position)) else { panic!("{mixer:?} is taken") };
        assert_eq!(error.kind(), ErrorKind::StateMismatch, "{error}");
        assert!(error.to_string().contains(word) && error.remedy().is_some(), "{error}");
    }
    let within_rows = Cursor { rows: 1, ..Cursor::new(7, 4) };
    assert!(mixture.resumed(&good, within_rows).is_ok());
    let other = Mixer { slots: half(), ..good };
    let Err(error) = mixture.resumed(&other, within_rows) else { panic!("rows of two windows") };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let Err(error) = mixed(&[10, 20], &[1.0, 0.0], Stopping::FirstExhausted).resumed(&other, Cursor::new(7, 40)) else {
        panic!("position 40 of 20 or so")
    };
    assert_eq!(error.kind(), ErrorKind::StateMismatch, "{error}");
}

/// Epochs end at the same batch on every rank, in one whose weights were changed too.
#[test]
fn ranks_end_together() {
    let (lens, stopping) = ([50, 33, 70], Stopping::AllExhausted);
    let usual = mixed(&lens, &[1.0, 2.0, 3.0], stopping);
    let changed = change(&usual, &lens, stopping, 0, &(60, vec![3.0, 2.0, 1.0]));
    assert_ne!(changed.len_of(0), changed.len_of(1));
    for (epoch, from) in [(0, 60), (1, 0)] {
        let (start, len) = (Cursor::new(epoch, from), changed.len_of(epoch));
        for drop_last in [false, true] {
            let ranks: Vec<Strided> = (0..4).map(|rank| Strided::new(rank, 4, 3, drop_last).expect("a rank")).collect();
            let batches = ranks[0].batches(len - from);
            let mut seen = Vec::new();
            for batch in 0..batches {
                let mut sizes = BTreeSet::new();
                for rank in &ranks {
                    let mut places = Vec::new();
                    rank.batch(start, len, batch, &mut places);
                    sizes.insert(places.len());
                    seen.extend(places.iter().filter(|place| !place.padding).map(|place| place.position));
                }
                assert_eq!(sizes.len(), 1, "batch {batch} of epoch {epoch}");
            }
            seen.sort_unstable();
            let kept = if drop_last { (len - from) / 12 * 12 } else { len - from };
            assert!(seen.into_iter().eq(from..from + kept), "epoch {epoch}");
        }
    }
}

#[test]
fn mixtures_that_cannot_be_are_refused() {
    let new = |lens: &[u64], ends: &[u64], weights: &[f64], stopping| {
        Mixed::new(orders(lens), ends, weights, stopping, SEED).map(|_| ())
    };
    let first = Stopping::FirstExhausted;
    for (refused, word) in [
        (new(&[5, 5], &[5, 10], &[1.0], first), "1 weights"),
        (new(&[5], &[5, 10], &[1.0, 1.0], first), "1 orders"),
        (new(&[], &[], &[], first), "above 0"),
        (new(&[5, 5], &[5, 10], &[0.0, 0.0], first), "above 0"),
        (new(&[5, 5], &[5, 10], &[1.0, f64::NAN], first), "dataset 1 is NaN"),
        (new(&[5, 0], &[5, 5], &[1.0, 0.1], first), "dataset 1 of the mixture has a weight and no samples"),
        (new(&[5, 6], &[5, 10], &[1.0, 1.0], first), "6 positions"),
        (new(&[5, 1], &[5, 4], &[1.0, 1.0], first), "dataset 1 has samples 5 to 4"),
        (new(&[5], &[5], &[1.0], Stopping::After(0)), "no samples"),
        (new(&[1; 257], &ends(&[1; 257]), &[1.0; 257], first), "257 datasets"),
        (new(&[1 << 62, 5], &[1 << 62, (1 << 62) + 5], &[1e-9, 1.0], Stopping::AllExhausted), "2^64"),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(word) && error.remedy().is_some(), "{error}");
    }
    let inner: Arc<dyn Sampler> = Arc::new(mixed(&[5, 5], &[1.0, 1.0], first));
    let error = Mixed::new(vec![inner], &[10], &[1.0], first, SEED).unwrap_err();
    assert!(error.to_string().contains("mixture itself"), "{error}");
    assert!(new(&[5, 0], &[5, 5], &[1.0, 0.0], Stopping::AllExhausted).is_ok(), "an empty dataset that never comes");
}

#[test]
fn identities_tell_orders_apart_and_words_are_short() {
    let of = |lens: &[u64], weights: &[f64], stopping| mixed(lens, weights, stopping).id();
    let two = of(&[3, 4], &[1.0, 2.0], Stopping::After(9));
    assert_eq!(
        two.to_string(),
        "mixture of 2 datasets until after:9, seed 99: shuffled, seed 0; shuffled, seed 1",
        "the words are those of the identity"
    );
    assert_eq!(two, of(&[3, 4], &[5.0, 0.0], Stopping::After(9)), "weights may change");
    assert_ne!(two, of(&[3, 5], &[1.0, 2.0], Stopping::After(9)), "another length is another order");
    let many = of(&[2; 200], &[1.0; 200], Stopping::FirstExhausted);
    let words = many.to_string();
    assert!(words.len() < 300 && !words.contains('\n'), "{words}");
    assert_ne!(many, of(&[2; 200], &[1.0; 200], Stopping::AllExhausted));
    let mut others = orders(&[2; 200]);
    others.swap(150, 151);
    let swapped = Mixed::new(others, &ends(&[2; 200]), &[1.0; 200], Stopping::FirstExhausted, SEED).unwrap();
    assert_ne!(many, swapped.id());
    let equal = vec![Arc::new(Shuffled::new(2, 0)) as Arc<dyn Sampler>; 200];
    let equal = Mixed::new(equal, &ends(&[2; 200]), &[1.0; 200], Stopping::FirstExhausted, SEED).unwrap();
    assert!(equal.describe().ends_with(": 200 times shuffled, seed 0"), "{}", equal.describe());
}

/// The number comes from an implementation in another language, written from the documentation: states have it.
#[test]
fn the_digest_of_parts_is_what_it_always_was() {
    let KnownOrder::Mixed { parts, stopping, seed, version } = mixed(&[3, 4], &[1.0, 1.0], Stopping::After(9)).id().0
    else {
        panic!("another kind");
    };
    assert_eq!((parts.count(), parts.digest(), parts.orders().len()), (2, 0x09d3_dfea_45c2_3001, 2));
    assert_eq!((stopping, seed, version), (Stopping::After(9), SEED, 1));
}

#[test]
fn names_of_stopping_are_read_back() {
    for stopping in STOPPINGS {
        assert_eq!(stopping.to_string().parse::<Stopping>().unwrap(), stopping);
    }
    let names = STOPPINGS.map(|stopping| stopping.to_string());
    assert_eq!(names[..3], ["first_exhausted", "all_exhausted", "all_exhausted_without_replacement"]);
    for wrong in ["", "first", "after", "after:", "after:-1", "After(3)"] {
        let error = wrong.parse::<Stopping>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("all_exhausted_without_replacement")));
    }
}

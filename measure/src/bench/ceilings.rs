//! What each part could give by itself: the roof that the run is under.

use super::Outcome;
use serde::Serialize;
use uringload::stats::Snapshot;
use uringload::stats::{Doing, Role};

/// What a part could give if nothing else limited it, from what was measured in this run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    part: &'static str,
    samples_per_s: f64,
    /// Where bytes limit, how many a second; where time does, null.
    bytes_per_s: Option<f64>,
    /// Bytes a sample that this part handles.
    sample_bytes: Option<f64>,
    from: String,
}

/// The parts that were seen at work, those nearest to the storage first.
pub fn ceilings(outcome: &Outcome<'_>) -> Vec<Ceiling> {
    let measured = &outcome.median().measured;
    let h2d = outcome.median().bus.as_ref().map(|bus| bus.pinned.bytes_per_second());
    let wall = measured.wall.as_secs_f64();
    of(&measured.snapshot, outcome.raw(), h2d, wall)
}

fn of(snapshot: &Snapshot, raw: Option<f64>, h2d: Option<f64>, wall: f64) -> Vec<Ceiling> {
    let count = &snapshot.count;
    let samples = count.samples as f64;
    if count.samples == 0 {
        return Vec::new();
    }
    let bytes = |part, rate: Option<f64>, bytes: u64, from: &str| {
        let (rate, each) = (rate.filter(|rate| *rate > 0.0)?, bytes as f64 / samples);
        let (bytes_per_s, sample_bytes) = (Some(rate), Some(each));
        (each > 0.0).then(|| Ceiling { part, samples_per_s: rate / each, bytes_per_s, sample_bytes, from: from.into() })
    };
    let time = |part, spent: f64, at_once: usize, from: String| {
        // What took less than a thousandth of the time says nothing about what it could do.
        let samples_per_s = samples * at_once as f64 / spent;
        (spent > wall / 1e3).then_some(Ceiling { part, samples_per_s, bytes_per_s: None, sample_bytes: None, from })
    };
    let spent = |role, doing: &[Doing]| doing.iter().map(|&one| snapshot.time(role, one).as_secs_f64()).sum::<f64>();
    let threads = |role| snapshot.threads.iter().filter(|thread| thread.role == role).count();
    let decoders = threads(Role::Stage);
    let decode = match decoders {
        0 => spent(Role::Reactor, &[Doing::Decode]),
        _ => spent(Role::Stage, &[Doing::Decode, Doing::Copy]),
    };
    let work = [Doing::Plan, Doing::Submit, Doing::Assemble, Doing::Copy];
    let transforms = threads(Role::Transform);
    [
        bytes("storage", raw, count.bytes_stored(), "a raw read of the same files, over the bytes of a sample"),
        time("loader", spent(Role::Reactor, &work), 1, "the work of the thread that reads, waits left out".into()),
        time("decode", decode, decoders.max(1), format!("the time in it, by {} threads", decoders.max(1))),
        time(
            "transform",
            spent(Role::Transform, &[Doing::Transform, Doing::Collate]),
            transforms.max(1),
            format!("the time in your own code, by {transforms} threads"),
        ),
        bytes("copy", h2d, count.bytes_copied, "copies to the GPU alone, over the bytes of a sample that are copied"),
        time("trainer", spent(Role::Consumer, &[Doing::Step]), 1, "the time between two batches".into()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use uringload::stats::ThreadSnapshot;

    #[test]
    fn each_part_has_its_own_roof() {
        let thread = |role, times: &[(Doing, u64)]| {
            let mut spent = [Duration::ZERO; Doing::ALL.len()];
            times.iter().for_each(|&(doing, millis)| spent[doing as usize] = Duration::from_millis(millis));
            ThreadSnapshot { role, spent, scheduled: None }
        };
        let mut seen = Snapshot::default();
        seen.threads = vec![
            thread(Role::Consumer, &[(Doing::Step, 250), (Doing::WaitBatch, 750)]),
            thread(Role::Reactor, &[(Doing::Plan, 50), (Doing::Submit, 50), (Doing::WaitStorage, 900)]),
            thread(Role::Stage, &[(Doing::Decode, 500)]),
            thread(Role::Stage, &[(Doing::Decode, 500)]),
        ];
        seen.count.samples = 100;
        (seen.count.bytes_delivered, seen.count.bytes_wanted, seen.count.bytes_copied) = (10_000, 10_000, 20_000);
        let found = of(&seen, Some(15_000.0), Some(40_000.0), 1.0);
        let rate = |part: &str| found.iter().find(|one| one.part == part).map(|one| one.samples_per_s.round());
        let rates = ["storage", "loader", "decode", "transform", "copy", "trainer"].map(rate);
        assert_eq!(rates, [Some(150.0), Some(1000.0), Some(200.0), None, Some(200.0), Some(400.0)]);
        // A trainer that takes no time has no roof, and neither has what was not measured.
        seen.threads[0] = thread(Role::Consumer, &[(Doing::WaitBatch, 1000)]);
        let parts: Vec<&str> = of(&seen, None, None, 1.0).iter().map(|one| one.part).collect();
        assert_eq!(parts, ["loader", "decode"]);
        assert!(of(&Snapshot::default(), Some(1.0), None, 1.0).is_empty());
    }
}

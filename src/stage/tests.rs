//! Decoding threads: all work comes back exactly once, even if it fails.

use super::*;
use crate::dataset::{FileTable, Index, Sample, SampleId, Schema, Span, Units};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use uringload_sys::Arena;

/// Unit n decodes to n bytes of its stored data; some do not decode.
struct Odd {
    index: Index,
    decoded: AtomicU64,
}

const UNITS: u32 = 40;
const PANICS: u32 = 7;
const FAILS: u32 = 11;
const LIES: u32 = 13;
/// Panics before it is decoded.
const MEASURES: u32 = 17;

impl Odd {
    fn new() -> Arc<Odd> {
        let index = Index::new("odd", FileTable::new(), Schema { fields: Vec::new() }, u64::from(UNITS));
        Arc::new(Odd { index, decoded: AtomicU64::new(0) })
    }
}

impl Dataset for Odd {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}
    fn parse(&self, _id: SampleId, _raw: &[Bytes], _out: &mut Sample) -> Result<()> {
        Ok(())
    }
    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }
}

impl Units for Odd {
    fn count(&self) -> u32 {
        UNITS
    }
    fn of(&self, _id: SampleId, _out: &mut Vec<UnitId>) {}
    fn stored(&self, _unit: UnitId, _out: &mut Vec<Span>) {}
    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        assert_ne!(unit.0, MEASURES, "the seventeenth");
        u64::from(unit.0)
    }
    fn largest_decoded(&self) -> u64 {
        u64::from(UNITS)
    }
    fn largest_stored(&self) -> u64 {
        1
    }
    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        assert_ne!(unit.0, PANICS, "the seventh");
        if unit.0 == FAILS {
            return Err(Error::new(ErrorKind::Corrupt, "eleven"));
        }
        assert_eq!(out.len() as u64, self.decoded_bytes(unit));
        out.fill(stored[0][0]);
        Ok(out.len() + usize::from(unit.0 == LIES))
    }
}

fn work(unit: u32, whole: &mut Part) -> Work {
    let out = whole.split_to(UNITS as usize);
    let task = Task::Unit { unit: UnitId(unit), stored: vec![Bytes::from(vec![unit as u8])] };
    Work { number: Number::Unit(u64::from(unit) * 2), task, out }
}

fn check(finished: &Finished) {
    let Number::Unit(number) = finished.number else { panic!("no unit") };
    let unit = number as u32 / 2;
    match &finished.result {
        Ok(bytes) => {
            assert_eq!(*bytes, unit as usize);
            assert!(finished.out.as_ref()[..*bytes].iter().all(|byte| u32::from(*byte) == unit));
        }
        Err(error) => match unit {
            PANICS => assert!(error.to_string().contains("the seventh"), "{error}"),
            FAILS => assert!(error.to_string().contains("eleven"), "{error}"),
            MEASURES => assert!(error.to_string().contains("the seventeenth"), "{error}"),
            LIES => assert_eq!(error.kind(), ErrorKind::Internal),
            _ => panic!("{error}"),
        },
    }
}

#[test]
fn all_work_comes_back_once() {
    for threads in [0, 1, 3] {
        let (_arena, mut whole) = Arena::reserve(1 << 20).unwrap();
        let stats = Arc::new(Stats::new());
        let mut clock = stats.clock(Role::Reactor, Doing::Plan);
        let mut stage = Stage::new(Odd::new(), None, threads, Arc::new(Bell::new()), Arc::clone(&stats));
        (0..UNITS).for_each(|unit| stage.submit(work(unit, &mut whole), &mut clock));
        if threads == 0 {
            assert_eq!(clock.doing(), Doing::Plan, "the clock goes on as before");
            assert_eq!(stats.count.units_decoded.get(), u64::from(UNITS) - 4, "it was done in the caller");
        }
        assert_eq!(stage.under_way(), UNITS as usize);
        let (mut seen, begin) = (Vec::new(), Instant::now());
        while seen.len() < UNITS as usize {
            assert!(begin.elapsed() < Duration::from_secs(60), "work is lost");
            let Some(finished) = stage.take() else { continue };
            check(&finished);
            seen.push(finished.number);
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq((0..UNITS).map(|unit| Number::Unit(u64::from(unit) * 2))));
        assert_eq!((stage.under_way(), stage.has_finished()), (0, false));
        let decoded: u64 =
            (0..UNITS).filter(|unit| ![PANICS, FAILS, LIES, MEASURES].contains(unit)).map(u64::from).sum();
        assert_eq!(stats.count.bytes_decoded.get(), decoded);
    }
}

/// Work arrives while the threads sleep, again and again. A lost wake-up would leave it undone.
#[test]
fn sleepers_are_woken() {
    let (_arena, mut whole) = Arena::reserve(1 << 20).unwrap();
    let stats = Arc::new(Stats::new());
    let mut clock = stats.clock(Role::Reactor, Doing::Plan);
    let mut stage = Stage::new(Odd::new(), None, 2, Arc::new(Bell::new()), Arc::clone(&stats));
    for round in 0..2000 {
        stage.submit(work(round % PANICS, &mut whole), &mut clock);
        let begin = Instant::now();
        let finished = loop {
            assert!(begin.elapsed() < Duration::from_secs(60), "round {round}: no thread woke up");
            match stage.take() {
                Some(finished) => break finished,
                None => std::hint::spin_loop(),
            }
        };
        check(&finished);
    }
    let shares = stats.snapshot();
    assert!(shares.share(Role::Stage, Doing::Decode).is_some());
}

#[test]
fn a_stage_that_is_dropped_leaves_what_was_not_begun() {
    let (_arena, mut whole) = Arena::reserve(1 << 20).unwrap();
    let stats = Arc::new(Stats::new());
    let mut clock = stats.clock(Role::Reactor, Doing::Plan);
    let dataset = Odd::new();
    let counted = Arc::clone(&dataset);
    let mut stage = Stage::new(dataset, None, 1, Arc::new(Bell::new()), stats);
    (0..UNITS).for_each(|unit| stage.submit(work(unit, &mut whole), &mut clock));
    drop(stage);
    let decoded = counted.decoded.load(Ordering::Relaxed);
    assert!(decoded <= u64::from(UNITS));
    assert_eq!(Arc::strong_count(&counted), 1, "the threads are gone");
}

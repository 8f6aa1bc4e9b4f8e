//! How many reads are in flight where each takes long, as on a network: more as long as more gain.

use super::super::common::faulty::{Fault, Faulty, Spec};
use super::super::common::{skip, within};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uringload::config::Shuffle;
use uringload::dataset::{self, Options, View};
use uringload::stats::Knob;
use uringload::{Loader, Result};

const BOUND: Duration = Duration::from_secs(120);

/// What a read takes, and how many the filesystem serves at once is not limited.
const LATENCY: Duration = Duration::from_millis(20);

const RECORD_BYTES: u64 = 4096;
const RECORDS: u64 = 100_000;

/// Time to find the depth, and time to measure.
const FOUND: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(3);

/// What a busy machine spoils is measured so often.
const TRIES: usize = 4;

/// As many threads as the loader may have.
const THREADS: u64 = 256;

fn mounted() -> Option<Faulty> {
    let file = Spec { name: "records".into(), size: RECORDS * RECORD_BYTES, fault: Fault::Slow(LATENCY) };
    Faulty::mount(vec![file]).map_err(skip).ok()
}

/// Reads a second of plain threads.
fn of_threads(faulty: &Faulty) -> f64 {
    let file = Arc::new(File::open(faulty.path().join("records")).expect("a file"));
    let (count, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, count, ends) = (Arc::clone(&file), &count, &ends);
            scope.spawn(move || {
                let mut buffer = vec![0; RECORD_BYTES as usize];
                let mut record = thread;
                while !ends.load(Ordering::Relaxed) {
                    record = (record + 7919) % RECORDS;
                    file.read_exact_at(&mut buffer, record * RECORD_BYTES).expect("a read");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(FOUND / 2);
        let (before, start) = (count.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(MEASURED);
        let rate = (count.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
        ends.store(true, Ordering::Relaxed);
        rate
    })
}

fn loader(faulty: &Faulty) -> Result<Loader> {
    let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
    let dataset = dataset::open(&[faulty.path().join("records")], &options)?;
    Loader::builder(dataset).batch_size(64).shuffle(Shuffle::Full).epochs(None).build()
}

/// Why the loader falls short of plain threads this time, if it does.
fn falls_short(faulty: &Faulty) -> Option<String> {
    let mut loader = loader(faulty).expect("a loader");
    let (stats, start) = (loader.stats(), Instant::now());
    let mut take = |until: Duration| {
        while start.elapsed() < until {
            loader.next().expect("no end").expect("a batch");
        }
        stats.snapshot()
    };
    let (before, after) = (take(FOUND), take(FOUND + MEASURED));
    let decisions = stats.decisions();
    drop(loader);
    assert!(after.in_flight_max <= THREADS, "{}", after.in_flight_max);
    let rate = after.since(&before).samples_per_second();
    let plain = of_threads(faulty);
    let share = rate / plain;
    eprintln!("{rate:.0} reads/s with a depth of {}, {plain:.0} with plain threads: {share:.2}", after.depth);
    let found = decisions.iter().any(|decision| decision.knob == Knob::Depth && decision.to >= 128);
    let is_enough = found && after.in_flight_max > 128 && share >= 0.7;
    (!is_enough).then(|| format!("{share:.2} of {plain:.0}, {} in flight: {decisions:#?}", after.in_flight_max))
}

#[test]
#[ignore = "slow: measures time"]
fn storage_that_is_slow_but_parallel_gives_what_hundreds_of_threads_get() {
    within(BOUND, || {
        let Some(faulty) = mounted() else { return };
        // The machine that this runs on may be busy with other things than these threads.
        let said: Vec<String> = (0..TRIES).map_while(|_| falls_short(&faulty)).collect();
        assert!(said.len() < TRIES, "{said:?}");
    });
}

/// A server of 200 operations a second, a limit that is not reported: reads that take the gaps between samples along
/// are tried, and kept. The order does not change.
#[test]
#[ignore = "slow: measures time"]
fn operations_that_are_scarce_are_found_out_while_reading() {
    within(BOUND, || {
        let fault = Fault::Turns(Duration::from_millis(5));
        let file = Spec { name: "records".into(), size: RECORDS * RECORD_BYTES, fault };
        let Ok(faulty) = Faulty::mount(vec![file]).map_err(skip) else { return };
        let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
        let dataset = dataset::open(&[faulty.path().join("records")], &options).expect("records");
        // Every second record: none begins where another ends.
        let view = Arc::new(View::of(dataset, (0..RECORDS / 2).map(|id| 2 * id).collect()).expect("a view"));
        let mut loader = Loader::builder(view).batch_size(64).epochs(None).build().expect("a loader");
        let stats = loader.stats();
        let mut next = 0;
        let mut take = |time: Duration, until: &dyn Fn() -> bool| {
            let (start, before) = (Instant::now(), next);
            while start.elapsed() < time && !until() {
                let batch = loader.next().expect("no end").expect("a batch");
                for id in &batch.ids {
                    assert_eq!(id.0, next % (RECORDS / 2), "in order, whatever is joined");
                    next += 1;
                }
            }
            (next - before) as f64 / start.elapsed().as_secs_f64()
        };
        let kept = || stats.decisions().into_iter().find(|one| one.knob == Knob::Gap && one.from == one.to);
        // The depth is found first, which takes as long as so few operations do.
        take(BOUND / 2, &|| kept().is_some());
        let decisions = stats.decisions();
        decisions.iter().for_each(|decision| eprintln!("{decision}"));
        let found = kept();
        assert!(found.is_some_and(|one| one.to > RECORD_BYTES && one.operation_bytes > 16 << 10), "{decisions:#?}");
        let rates: Vec<f64> = (0..TRIES).map(|_| take(Duration::from_secs(3), &|| false)).collect();
        // One sample an operation is 200 a second. A busy machine may not give the server its turns.
        assert!(rates.iter().any(|rate| *rate > 800.0), "{rates:.0?} samples/s\n{decisions:#?}");
    });
}

/// The same server, and a shuffle by windows: to read them whole is tried, and kept. The order does not change.
#[test]
#[ignore = "slow: measures time"]
fn windows_are_read_whole_where_operations_turn_out_to_be_scarce() {
    const LONG_BYTES: u64 = 16 << 10;
    within(BOUND, || {
        let fault = Fault::Turns(Duration::from_millis(5));
        let file = Spec { name: "records".into(), size: RECORDS * RECORD_BYTES, fault };
        let Ok(faulty) = Faulty::mount(vec![file]).map_err(skip) else { return };
        let options = Options::new().format("records").set("record_bytes", LONG_BYTES);
        let dataset = dataset::open(&[faulty.path().join("records")], &options).expect("records");
        let builder = || {
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(64).epochs(None);
            builder.shuffle(Shuffle::Window(1024)).seed(3)
        };
        let mut loader = builder().build().expect("a loader");
        let told = loader.route().to_string();
        assert!(told.contains("windows read whole if that gains"), "{told}");
        let (stats, mut order) = (loader.stats(), builder().order().expect("an order").batches());
        let mut take = |time: Duration, until: &dyn Fn() -> bool| {
            let (start, mut count) = (Instant::now(), 0);
            while start.elapsed() < time && !until() {
                let batch = loader.next().expect("no end").expect("a batch");
                assert_eq!(batch.ids, order.next().expect("no end").ids, "in the order, whatever is read whole");
                count += batch.ids.len();
            }
            count as f64 / start.elapsed().as_secs_f64()
        };
        let kept = || stats.decisions().into_iter().any(|one| one.knob == Knob::Whole && one.from == one.to);
        take(BOUND / 2, &kept);
        let decisions = stats.decisions();
        decisions.iter().for_each(|decision| eprintln!("{decision}"));
        assert!(kept(), "{decisions:#?}");
        let rates: Vec<f64> = (0..TRIES).map(|_| take(Duration::from_secs(3), &|| false)).collect();
        eprintln!("{rates:.0?} samples/s");
        // One sample an operation is 200 a second.
        assert!(rates.iter().any(|rate| *rate > 600.0), "{rates:.0?} samples/s\n{decisions:#?}");
    });
}

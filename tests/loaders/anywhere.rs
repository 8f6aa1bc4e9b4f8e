//! Stopping anywhere and going on elsewhere, with everything at once: orders, mixtures, rows, errors, world sizes,
//! batch sizes, engines. What all ranks get before and after the stop is what one rank gets that never stops.

use crate::common::content::write_file;
use crate::common::within;
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use uringload::Loader;
use uringload::State;
use uringload::batch::Batch;
use uringload::config::Batching;
use uringload::config::Config;
use uringload::config::{Buckets, EngineChoice, OnError, PackMethod, Packing, Shuffle};
use uringload::dataset::{self, Concat, Dataset, Options};
use uringload::sampler::{Digest, Mixed, Sampler, Stopping, for_dataset};

const BOUND: Duration = Duration::from_secs(900);
const CASES: u32 = 12;
const EPOCHS: u64 = 2;

/// Runs of each property; `URINGLOAD_SEEDS` asks for others.
fn cases() -> u32 {
    std::env::var("URINGLOAD_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(CASES)
}

/// Which dataset in which order.
#[derive(Clone, Debug)]
struct Work {
    mixture: Option<(Vec<f64>, usize)>,
    shuffle: Shuffle,
    seed: u64,
    batching: Batching,
    on_error: OnError,
    drop_last: bool,
}

/// By what means it is read, for a while.
#[derive(Clone, Debug)]
struct Means {
    world_size: u64,
    batch_size: u64,
    engine: EngineChoice,
    depth: usize,
    threads: usize,
}

/// Everything that ranks got: samples with how often, failures with their file, and the digests by epoch.
#[derive(Clone, Debug, Default, PartialEq)]
struct Got {
    samples: BTreeMap<(u64, u64), u64>,
    failed: BTreeMap<(u64, u64), String>,
    digests: BTreeMap<u64, (Digest, Digest)>,
}

impl Got {
    fn add(&mut self, batch: &Batch) {
        let epoch = batch.cursor.epoch;
        for (index, id) in batch.ids.iter().enumerate() {
            let padded = batch.padding.as_ref().is_some_and(|padding| padding[index]);
            if !padded {
                *self.samples.entry((epoch, id.0)).or_default() += 1;
            }
        }
        for failed in &batch.failed {
            let file = failed.error.path().map(|file| file.display().to_string()).unwrap_or_default();
            self.failed.insert((epoch, failed.id.0), file);
        }
        let (delivered, lost) = self.digests.entry(epoch).or_default();
        *delivered += batch.digest;
        *lost += batch.lost;
    }
}

/// Three folders of files of many lengths and two of records; some files are cut short behind the index's back.
struct Disk {
    _root: TempDir,
    parts: Vec<Arc<dyn Dataset>>,
    concat: Arc<Concat>,
    whole: Arc<dyn Dataset>,
}

impl Disk {
    fn new() -> Disk {
        let root = TempDir::new().expect("a folder");
        let folder = |name: &str, files: u64, step: u64| -> Arc<dyn Dataset> {
            let folder = root.path().join(name);
            fs::create_dir(&folder).expect("a folder");
            for number in 0..files {
                write_file(&folder.join(format!("{number:03}")), number * step % 1999).expect("a file");
            }
            let dataset = dataset::open(&[&folder], &Options::new().format("folder")).expect("a folder");
            for number in (5..files).step_by(17) {
                let file = fs::OpenOptions::new().write(true).open(folder.join(format!("{number:03}")));
                file.and_then(|file| file.set_len(number * step % 1999 / 2)).expect("a shorter file");
            }
            dataset
        };
        let records = |name: &str, records: u64| -> Arc<dyn Dataset> {
            let folder = root.path().join(name);
            fs::create_dir(&folder).expect("a folder");
            write_file(&folder.join("a"), 300 * records).expect("a file");
            write_file(&folder.join("b"), 300 * (records / 2)).expect("a file");
            let options = Options::new().format("records").set("record_bytes", 300);
            dataset::open(&[folder], &options).expect("records")
        };
        let parts = vec![folder("x", 41, 37), folder("y", 67, 131), folder("z", 23, 7), records("r", 30)];
        let concat = Arc::new(Concat::new(parts.clone()).expect("parts of one kind"));
        Disk { _root: root, parts, whole: Arc::clone(&concat) as Arc<dyn Dataset>, concat }
    }

    fn sampler(&self, work: &Work) -> Arc<dyn Sampler> {
        let Some((weights, stopping)) = &work.mixture else {
            return for_dataset(&*self.whole, work.shuffle, work.seed).expect("an order");
        };
        let orders = self.parts.iter().zip(work.seed..);
        let orders = orders.map(|(part, seed)| for_dataset(&**part, work.shuffle, seed).expect("an order"));
        let stopping = [
            Stopping::FirstExhausted,
            Stopping::AllExhausted,
            Stopping::AllExhaustedWithoutReplacement,
            Stopping::After(111),
        ][*stopping];
        Arc::new(Mixed::new(orders.collect(), self.concat.ends(), weights, stopping, work.seed).expect("a mixture"))
    }

    /// One loader a rank, read side by side for `rounds` batches, or to the end; and the states they are then in.
    fn read(&self, work: &Work, means: &Means, from: Option<&State>, rounds: u64, got: &mut Got) -> Vec<State> {
        let build = |rank| {
            let config = Config {
                batch_size: means.batch_size,
                batching: work.batching.clone(),
                epochs: Some(EPOCHS - from.map_or(0, |state| state.cursor().epoch)),
                seed: work.seed,
                rank,
                world_size: means.world_size,
                drop_last: work.drop_last,
                engine: means.engine,
                queue_depth: Some(means.depth),
                io_threads: Some(means.threads),
                on_error: work.on_error,
                memory_limit: Some(32 << 20),
                ..Config::default()
            };
            let builder = Loader::builder(Arc::clone(&self.whole)).config(config).sampler(self.sampler(work));
            let builder = if let Some(state) = from { builder.resume(state) } else { builder };
            builder.build().expect("a loader")
        };
        let mut loaders: Vec<Loader> = (0..means.world_size).map(build).collect();
        for _ in 0..rounds {
            let batches: Vec<_> = loaders.iter_mut().filter_map(Iterator::next).collect();
            assert!(batches.is_empty() || batches.len() == loaders.len(), "a rank has more batches than another");
            if batches.is_empty() {
                break;
            }
            for batch in batches {
                got.add(&batch.expect("failures are not raised"));
            }
        }
        loaders.iter().map(Loader::state).collect()
    }
}

fn any_work() -> impl Strategy<Value = Work> {
    let weights = prop::collection::vec(0.05..1.0_f64, 4);
    let mixture = prop::option::of((weights, 0..4_usize));
    let shuffle = prop_oneof![
        Just(Shuffle::Off),
        Just(Shuffle::Full),
        (1..60_u64).prop_map(Shuffle::Window),
        (1..4_u64).prop_map(|mixed| Shuffle::Shards { mixed }),
    ];
    let method = prop_oneof![Just(PackMethod::FirstFit), Just(PackMethod::BestFit), Just(PackMethod::Concat)];
    let packed = (method, 200..2500_u64, 5..90_u64)
        .prop_map(|(method, seq_len, window)| Batching::Packed(Packing::new(seq_len).method(method).window(window)));
    let buckets = (1..6_u64, 1..6_u64, 5..90_u64).prop_map(|(short, long, window)| {
        Batching::Buckets(Buckets::new(vec![400, 1200], vec![short, 3, long]).window(window))
    });
    let batching = prop_oneof![2 => Just(Batching::Samples), 2 => packed, 1 => buckets];
    let on_error = prop_oneof![Just(OnError::Skip), Just(OnError::Replace)];
    (mixture, shuffle, 0..1000_u64, batching, on_error, any::<bool>()).prop_map(
        |(mixture, shuffle, seed, batching, on_error, drop_last)| Work {
            mixture,
            shuffle,
            seed,
            batching,
            on_error,
            drop_last,
        },
    )
}

fn any_means() -> impl Strategy<Value = Means> {
    let engine = prop_oneof![Just(EngineChoice::Auto), Just(EngineChoice::Threads)];
    let means = (1..5_u64, 1..9_u64, engine, 1..40_usize, 1..9_usize);
    means.prop_map(|(world_size, batch_size, engine, depth, threads)| Means {
        world_size,
        batch_size,
        engine,
        depth,
        threads,
    })
}

/// What an epoch loses to `drop_last` hangs on the sizes; without it, nothing does.
#[test]
fn what_comes_before_and_after_a_stop_is_the_whole() {
    within(BOUND, || {
        let disk = Disk::new();
        let plan = (any_work(), any_means(), any_means(), any_means(), 0..40_u64, 0..12_u64);
        let mut runner = TestRunner::new(Runs { cases: cases(), failure_persistence: None, ..Runs::default() });
        let (failed, replaced) = (AtomicU64::new(0), AtomicU64::new(0));
        let result = runner.run(&plan, |(work, alone, before, after, rounds, more)| {
            let work = Work { drop_last: false, ..work };
            let mut whole = Got::default();
            disk.read(&work, &Means { world_size: 1, ..alone }, None, u64::MAX, &mut whole);
            let mut got = Got::default();
            let states = disk.read(&work, &before, None, rounds, &mut got);
            // The state goes through its JSON, and is the same on every rank but for the rank's own digest.
            let json = states[states.len() / 2].to_json();
            let state = State::from_json(&json).expect("our own state");
            prop_assert!(states.iter().all(|other| other.cursor() == state.cursor()));
            // A second stop, elsewhere again.
            let states = disk.read(&work, &after, Some(&state), more, &mut got);
            let last = Means { world_size: alone.world_size, ..before.clone() };
            disk.read(&work, &last, Some(&states[0]), u64::MAX, &mut got);
            prop_assert_eq!(&got, &whole);
            let count = if work.on_error == OnError::Replace { &replaced } else { &failed };
            count.fetch_add(whole.failed.len() as u64, Ordering::Relaxed);
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
        let (failed, replaced) = (failed.into_inner(), replaced.into_inner());
        assert!(failed > 0 && replaced > 0, "nothing went wrong: {failed} left out, {replaced} replaced");
    });
}

/// With `drop_last` every batch is full on every rank, no sample comes twice, and what was lost is less than a global
/// batch for each stop and end of an epoch.
#[test]
fn drop_last_loses_less_than_a_global_batch_a_stop() {
    within(BOUND, || {
        let disk = Disk::new();
        let plan = (any_means(), any_means(), 0..30_u64, 0..1000_u64);
        let mut runner = TestRunner::new(Runs { cases: cases() / 3, failure_persistence: None, ..Runs::default() });
        let result = runner.run(&plan, |(before, after, rounds, seed)| {
            let work = Work {
                mixture: None,
                shuffle: Shuffle::Full,
                seed,
                batching: Batching::Samples,
                on_error: OnError::Skip,
                drop_last: true,
            };
            let mut got = Got::default();
            let states = disk.read(&work, &before, None, rounds, &mut got);
            disk.read(&work, &after, Some(&states[0]), u64::MAX, &mut got);
            prop_assert!(got.samples.values().all(|&times| times == 1));
            let ends = EPOCHS * (before.batch_size * before.world_size).max(after.batch_size * after.world_size);
            let had = got.samples.len() as u64 + got.failed.len() as u64;
            prop_assert!(had + ends > EPOCHS * disk.whole.len(), "{} of {}", had, EPOCHS * disk.whole.len());
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    });
}

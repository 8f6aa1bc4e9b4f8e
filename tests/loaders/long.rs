//! Samples that are longer than a block of many: each takes what it needs, and memory is carried from one to the next.

use crate::common::check::{drain, ways_to};
use crate::common::content::write_file;
use crate::common::{child, sandbox, within};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::Config;
use uringload::config::{Cause, EngineChoice, IoChoice, OnError, Shuffle};
use uringload::dataset::{self, Dataset, Options};
use uringload::{Loader, Result};

const BOUND: Duration = Duration::from_secs(300);
const MIB: u64 = 1 << 20;
const CHILD: &str = "loaders::long::child_reads_long_samples";

/// Lengths in MiB, and one byte more: no two are alike, and one is far longer than the others.
const LENGTHS: [u64; 9] = [36, 41, 34, 96, 47, 38, 52, 33, 44];

/// How much is read: some of it by two ways, or all by all ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Much {
    Some,
    All,
}

impl Much {
    fn lengths(self) -> &'static [u64] {
        if self == Much::All { &LENGTHS } else { &LENGTHS[2..4] }
    }

    fn ways(self, dataset: &Arc<dyn Dataset>) -> impl Iterator<Item = (EngineChoice, IoChoice)> {
        ways_to(dataset).into_iter().step_by(if self == Much::All { 1 } else { 3 })
    }

    fn files(self) -> TempDir {
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        for (number, mib) in self.lengths().iter().enumerate() {
            write_file(&root.path().join(format!("{number}.bin")), mib * MIB + number as u64).expect("a file");
        }
        root
    }
}

fn open(path: &Path) -> Arc<dyn Dataset> {
    dataset::open(&[path], &Options::new().format("folder").set("labels", false)).expect("a folder of files")
}

fn build(dataset: &Arc<dyn Dataset>, (engine, io): (EngineChoice, IoChoice), config: Config) -> Result<Loader> {
    let config = Config { engine, io, batch_size: 1, shuffle: Shuffle::Full, seed: 3, ..config };
    Loader::builder(Arc::clone(dataset)).config(config).build()
}

fn memory_is_that_of_the_held(much: Much) {
    let root = much.files();
    let task = format!("{much:?} {}", root.path().display());
    within(BOUND, move || println!("{}", child::run(CHILD, &task)));
}

#[test]
#[ignore = "a child of the tests below"]
fn child_reads_long_samples() {
    let Some(task) = child::task() else { return };
    let (much, path) = task.split_once(' ').expect("how much, and a folder");
    let much = if much == "All" { Much::All } else { Much::Some };
    let dataset = open(Path::new(path));
    let longest = (LENGTHS[3] + 1) * MIB;
    let epochs = if much == Much::All { 4 } else { 2 };
    for way in much.ways(&dataset) {
        // A limit of two of the longest. Blocks that are as long as the longest take all of it.
        let limit = Some(2 * longest);
        let mut loader =
            build(&dataset, way, Config { memory_limit: limit, epochs: Some(epochs), ..Config::default() })
                .expect("a loader");
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert!(errors.is_empty() && ids.len() as u64 == epochs * dataset.len(), "{way:?}: {errors:?}");
        let route = loader.route();
        assert!(!route.fallbacks.iter().any(|step| step.cause == Cause::Carrying), "{route}: {:?}", route.fallbacks);
        drop(loader);
        let most = child::most_resident();
        println!("{way:?}: {} MiB resident at most", most / MIB);
        assert!(most < 2 * longest + 40 * MIB, "{way:?}: {most} bytes were resident");
    }
}

fn what_is_kept_is_not_carried_away(much: Much) {
    let root = much.files();
    within(BOUND, move || {
        let dataset = open(root.path());
        for way in much.ways(&dataset) {
            let config = Config { memory_limit: Some(400 * MIB), epochs: Some(3), ..Config::default() };
            let loader = build(&dataset, way, config).expect("a loader");
            // Three batches are kept while others are read around them, and compared only then.
            let mut kept = std::collections::VecDeque::new();
            for batch in loader {
                kept.push_back(batch.expect("a batch"));
                if kept.len() == 4 {
                    crate::common::check::checked(&*dataset, &kept.pop_front().expect("one"));
                }
            }
            kept.iter().for_each(|batch| drop(crate::common::check::checked(&*dataset, batch)));
        }
    });
}

fn one_sample_fits(much: Much) {
    let root = much.files();
    within(BOUND, move || {
        let dataset = open(root.path());
        for (turn, on_error) in [OnError::Raise, OnError::Replace].into_iter().enumerate() {
            // Of some, policies and ways take turns.
            let ways = much.ways(&dataset).enumerate().filter(|(way, _)| much == Much::All || way % 2 == turn);
            for (_, way) in ways {
                let with = |limit| Config { memory_limit: Some(limit), on_error, ..Config::default() };
                let refused = build(&dataset, way, with(MIB)).map(drop).expect_err("it does not fit");
                let remedy = refused.remedy().expect("a remedy").to_owned();
                let digits = |c: char| !c.is_ascii_digit();
                let least = remedy.split(digits).find_map(|word| word.parse::<u64>().ok()).expect("a number");
                assert!(build(&dataset, way, with(least - 1)).is_err(), "{least}");
                let mut loader = build(&dataset, way, with(least)).expect("what it asks for is enough");
                let (ids, errors) = drain(&*dataset, &mut loader);
                assert!(errors.is_empty() && ids.len() as u64 == dataset.len(), "{way:?} {on_error:?}: {errors:?}");
            }
        }
    });
}

fn where_memory_cannot_be_carried(much: Much) {
    let root = much.files();
    within(BOUND, move || {
        let dataset = open(root.path());
        for way in much.ways(&dataset) {
            sandbox::without(&[libc::SYS_mremap], libc::EINVAL, || {
                let mut loader = build(&dataset, way, Config::default()).expect("a loader");
                let fallbacks = loader.route().fallbacks;
                let step = fallbacks.iter().find(|step| step.cause == Cause::Carrying).expect("it is said");
                assert!(step.errno == Some(libc::EINVAL) && step.remedy.contains("5.7"), "{step}");
                let (ids, errors) = drain(&*dataset, &mut loader);
                assert!(errors.is_empty() && ids.len() as u64 == dataset.len(), "{way:?}: {errors:?}");
            });
        }
    });
}

#[test]
fn memory_is_that_of_the_samples_that_are_held_not_of_the_longest() {
    memory_is_that_of_the_held(Much::Some);
}

#[test]
fn what_a_consumer_keeps_is_not_carried_away() {
    what_is_kept_is_not_carried_away(Much::Some);
}

#[test]
fn one_sample_fits_into_the_limit_that_build_asks_for() {
    one_sample_fits(Much::Some);
}

#[test]
fn where_memory_cannot_be_carried_the_route_says_so() {
    where_memory_cannot_be_carried(Much::Some);
}

#[test]
#[ignore = "slow: gigabytes"]
fn long_samples_by_every_way() {
    for check in
        [memory_is_that_of_the_held, what_is_kept_is_not_carried_away, one_sample_fits, where_memory_cannot_be_carried]
    {
        check(Much::All);
    }
}

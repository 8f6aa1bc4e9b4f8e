//! Stretches of files that are kept in memory: the same samples in the same order, with the same bytes and digests, and
//! fewer reads, over every way to read.

use crate::common::check::{checked, drain, ways_to};
use crate::common::fixture::{files, made};
use crate::common::within;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::Config;
use uringload::config::{Cache, Cause, Collate, IoChoice, OnError, Padding, Shuffle};
use uringload::dataset::{Dataset, Options};
use uringload::sampler::Cursor;
use uringload::{ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(60);
const EPOCHS: u64 = 3;
const MIB: u64 = 1 << 20;

fn records(files: u64, bytes: u64, record_bytes: u64) -> (TempDir, Arc<dyn Dataset>) {
    let options = Options::new().format("records").set("record_bytes", record_bytes).set("drop_tail", true);
    made((0..files).map(|number| (format!("{number}.bin"), bytes)), &options.set("header_bytes", 7))
}

/// Files of many lengths, some of them empty, one longer than a stretch.
fn folder() -> (TempDir, Arc<dyn Dataset>) {
    let bytes = |number| if number == 3 { 3 * MIB + 5 } else { number % 5 * (number * 931 + 8) };
    files((0..40_u64).map(|number| (format!("{number:02}"), bytes(number))))
}

fn config(shuffle: Shuffle, cache: Cache) -> Config {
    Config { batch_size: 16, shuffle, cache, seed: 5, epochs: Some(EPOCHS), ..Config::default() }
}

fn build(dataset: &Arc<dyn Dataset>, config: Config) -> Loader {
    Loader::builder(Arc::clone(dataset)).config(config).build().expect("a loader")
}

/// Everything that a loader delivers, checked: the samples, the reads and what was saved of them.
fn read(dataset: &Arc<dyn Dataset>, config: Config) -> (Vec<u64>, u64, u64, String) {
    let mut loader = build(dataset, config);
    let (ids, errors) = drain(&**dataset, &mut loader);
    assert!(errors.is_empty(), "{errors:?}");
    let count = loader.stats().snapshot().count;
    let digest = loader.state().to_json();
    (ids.into_iter().map(|id| id.0).collect(), count.bytes_read, count.reads_saved, digest)
}

#[test]
fn what_fits_is_read_once() {
    // Forms take turns.
    is_read_once(|turn, form| form == turn % 5);
}

#[test]
#[ignore = "slow: every form by every way"]
fn what_fits_is_read_once_in_every_form_and_way() {
    is_read_once(|_, _| true);
}

fn is_read_once(has_turn: fn(usize, usize) -> bool) {
    within(BOUND, move || {
        let mut turn = 0;
        let padded = Collate::Padded(Padding::default().multiple_of(8));
        for (_root, dataset) in [records(3, 300_000, 1000), records(1, 700_000, 512), folder()] {
            let files: u64 = dataset.files().sizes().iter().sum();
            for (engine, io) in ways_to(&dataset) {
                turn += 1;
                let forms = [
                    (Collate::Auto, 0),
                    (Collate::Views, 0),
                    (Collate::Ragged, 0),
                    (padded, 0),
                    (Collate::Auto, 20_000),
                ];
                let forms = forms.into_iter().enumerate().filter(|(form, _)| has_turn(turn, *form));
                for (_, (collate, coalesce_gap)) in forms {
                    let with = |cache| Config {
                        engine,
                        io,
                        collate,
                        coalesce_gap: Some(coalesce_gap),
                        ..config(Shuffle::Full, cache)
                    };
                    let (ids, _, saved, state) = read(&dataset, with(Cache::Off));
                    assert_eq!(saved, 0);
                    let (same_ids, bytes, saved, same_state) = read(&dataset, with(Cache::Memory));
                    assert_eq!((ids, state), (same_ids, same_state), "{engine:?} {io:?} {collate:?}");
                    assert!(saved > 0);
                    let ends = 4096 * 2 * (dataset.files().len() as u64 + files / (256 << 10));
                    assert!(bytes <= files + ends, "{bytes} of {files} bytes were read in {EPOCHS} epochs");
                }
            }
        }
    });
}

#[test]
fn what_does_not_fit_is_said_and_the_same_wherever_an_order_begins() {
    within(BOUND, || {
        let (_root, dataset) = records(4, 6 * MIB, 1000);
        let limit = 16 * MIB;
        let with = |cache, start| Config {
            io: IoChoice::Buffered,
            memory_limit: Some(limit),
            start,
            ..config(Shuffle::Full, cache)
        };
        let all = Cursor::default();
        let (ids, read_all, ..) = read(&dataset, with(Cache::Off, all));
        let (same, read_some, saved, _) = read(&dataset, with(Cache::Memory, all));
        assert_eq!(ids, same);
        assert!(read_some < read_all * 7 / 10 && read_some > 25 * MIB, "{read_some} bytes instead of {read_all}");

        let loader = build(&dataset, with(Cache::Memory, all));
        assert!(loader.memory_limit() <= limit, "{} bytes", loader.memory_limit());
        let route = loader.route();
        let step = route.fallbacks.iter().find(|step| step.cause == Cause::Cache).expect("it is said");
        assert!(step.got.contains(&format!("of its {} bytes", 24 * MIB)) && step.remedy.contains("memory_limit"));

        // From the second epoch on, the hits of an epoch are as many, and a run that begins there has the same.
        let later = Cursor::new(1, 0);
        let (_, _, of_two_epochs, _) = read(&dataset, Config { epochs: Some(2), ..with(Cache::Memory, later) });
        assert_eq!(of_two_epochs * EPOCHS, saved * 2, "membership depends on the dataset alone");
    });
}

#[test]
fn what_cannot_be_kept_is_said() {
    let (_root, dataset) = records(1, MIB, 1000);
    // Room to read one stretch, and half of another.
    let bytes = 400_000;
    let loader = build(&dataset, Config { memory_limit: Some(bytes), ..config(Shuffle::Full, Cache::Memory) });
    let route = loader.route();
    let step = route.fallbacks.iter().find(|step| step.cause == Cause::Cache).expect("it is said");
    assert!(step.got.contains("reading every sample again") && step.remedy.contains("raise memory_limit"), "{step}");
    let (ids, errors) = drain(&*dataset, &mut { loader });
    assert_eq!((ids.len() as u64, errors.len()), (dataset.len() * EPOCHS, 0));
}

/// Changes a file's content, and neither its name nor its size.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    InPlace,
    /// For a moment the file is shorter.
    Truncated,
    Replaced,
}

impl Change {
    fn make(self, path: &Path, content: &[u8]) -> std::io::Result<()> {
        match self {
            Change::InPlace => File::options().write(true).open(path)?.write_all_at(content, 0),
            Change::Truncated => std::fs::write(path, content),
            Change::Replaced => {
                let beside = path.with_extension("new");
                std::fs::write(&beside, content)?;
                std::fs::rename(beside, path)
            }
        }
    }
}

/// A file that changes between two epochs is not served from memory, and not from what it has become: not even if it
/// was found to be the indexed one just before.
#[test]
fn a_file_that_changed_is_dropped_and_told() {
    within(BOUND, || {
        for change in [Change::InPlace, Change::Truncated, Change::Replaced] {
            let (root, dataset) = records(3, 300_000, 1000);
            // The clocks of file times tick as slowly as that.
            std::thread::sleep(Duration::from_millis(20));
            let config = Config { io: IoChoice::Buffered, epochs: None, ..config(Shuffle::Off, Cache::Memory) };
            let config = Config { memory_limit: Some(4 * MIB), on_error: OnError::Skip, ..config };
            let mut loader = build(&dataset, config);
            let mut changed = false;
            let mut failed = Vec::new();
            // Batches that were planned ahead may still come from memory.
            for batch in loader.by_ref().take_while(|batch| batch.as_ref().is_ok_and(|batch| batch.cursor.epoch < 30)) {
                let batch = batch.expect("samples are skipped");
                if batch.cursor.epoch >= 1 && !changed {
                    change.make(&root.path().join("1.bin"), &[0xee; 300_000]).expect("another content");
                    changed = true;
                }
                failed.extend(batch.failed.iter().map(|failed| (failed.id.0, failed.error.kind())));
                checked(&*dataset, &batch);
                if failed.len() >= 299 {
                    break;
                }
            }
            let ids: HashSet<u64> = failed.iter().map(|(id, _)| *id).collect();
            let may_be =
                |kind| kind == ErrorKind::Changed || (kind, change) == (ErrorKind::Truncated, Change::Truncated);
            assert!(failed.iter().all(|(_, kind)| may_be(*kind)), "{change:?}: {failed:?}");
            assert!(ids.iter().all(|id| (299..598).contains(id)) && !ids.is_empty(), "{change:?}: {ids:?}");
            let route = loader.route();
            let steps: Vec<_> = route.fallbacks.iter().filter(|step| step.cause == Cause::Cache).collect();
            assert!(steps.len() == 1 && steps[0].reason.contains("1 files changed"), "once: {steps:?}");
            assert!(steps[0].reason.contains("1.bin"), "{steps:?}");
        }
    });
}

/// Small records in windows and shards: whole stretches are read, each about once an epoch.
#[test]
fn windows_and_shards_of_small_records_are_read_whole() {
    within(BOUND, || {
        let (_root, dataset) = records(8, 2 * MIB, 1000);
        let files = 16 * MIB;
        for shuffle in [Shuffle::Window(2000), Shuffle::Shards { mixed: 2 }] {
            for (engine, io) in ways_to(&dataset) {
                // With a gap, records are read one by one.
                let with = |coalesce_gap, epochs| Config {
                    engine,
                    io,
                    coalesce_gap: Some(coalesce_gap),
                    batch_size: 64,
                    epochs: Some(epochs),
                    ..config(shuffle, Cache::Off)
                };
                let (ids, _, none, state) = read(&dataset, with(1, 1));
                let (same, bytes, saved, same_state) = read(&dataset, with(0, 1));
                assert_eq!((&ids, none, state), (&same, 0, same_state), "{shuffle:?} {engine:?} {io:?}");
                assert!(saved > dataset.len() * 99 / 100, "{saved} of {}", dataset.len());
                assert!(bytes < files * 12 / 10, "{bytes} of {files} bytes for {shuffle:?}");
            }
        }
    });
}

/// Large samples, and ranks that need only some of a window, read what they need and no more.
#[test]
fn stretches_are_not_read_for_what_is_better_read_alone() {
    let (_root, dataset) = records(4, 2 * MIB, 20_000);
    let (_, _, saved, _) = read(&dataset, config(Shuffle::Window(50), Cache::Off));
    assert_eq!(saved, 0);
    let (_root, dataset) = records(4, 2 * MIB, 1000);
    let config = Config { rank: 1, world_size: 16, ..config(Shuffle::Window(2000), Cache::Off) };
    let (_, _, saved, _) = read(&dataset, config);
    assert_eq!(saved, 0);
}

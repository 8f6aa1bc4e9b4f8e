//! Objects kept on a local disk: the same samples, bytes, order and digests; the share that fits is the share of hits;
//! and nothing that happens to the folder is an error of a sample.

use crate::common::check::{checked, drain};
use crate::common::objects::{Faults, Objects};
use crate::common::random::Random;
use crate::common::within;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::{Cause, DiskCache, EngineChoice, OnError, Shuffle};
use uringload::dataset::{self, Dataset, FileTable, Options, SampleId};
use uringload::sampler::Cursor;
use uringload::stats::Counts;
use uringload::store::Class;
use uringload::{Builder, ErrorKind, Loader, State};

pub(super) const BOUND: Duration = Duration::from_secs(240);
pub(super) const RECORD_BYTES: u64 = 7_000;
pub(super) const MIB: u64 = 1 << 20;

fn records(files: FileTable, record_bytes: u64) -> Arc<dyn Dataset> {
    let options = Options::new().format("records").set("record_bytes", record_bytes);
    dataset::inspect::of_files(files, &options).expect("records")
}

/// Objects of these numbers of records.
pub(super) fn far(bucket: &'static str, seed: u64, records_of: &[u64]) -> (Arc<Objects>, Arc<dyn Dataset>) {
    far_of(bucket, seed, records_of, RECORD_BYTES)
}

/// The same, of records of `record_bytes`.
fn far_of(bucket: &'static str, seed: u64, records_of: &[u64], record_bytes: u64) -> (Arc<Objects>, Arc<dyn Dataset>) {
    let store = Objects::new(bucket, seed);
    let names = records_of.iter().enumerate();
    let sizes: Vec<(String, u64)> = names.map(|(at, records)| (format!("{at:04}"), records * record_bytes)).collect();
    let mut files = FileTable::new();
    store.put(&mut files, "data/", &sizes);
    (store, self::records(files, record_bytes))
}

/// Shards of 3 MB and small objects.
pub(super) fn mixed(seed: u64) -> (Arc<Objects>, Arc<dyn Dataset>) {
    let sizes: Vec<u64> = (0..40).map(|at| if at % 10 == 0 { 440 } else { 1 + at * 7 % 30 }).collect();
    far("far", seed, &sizes)
}

pub(super) fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(50).shuffle(true).seed(3).memory_limit(32 << 20)
}

/// Reads all that is left: the digest of the last epoch, and what was counted. Every byte is compared.
pub(super) fn read_all(dataset: &Arc<dyn Dataset>, builder: Builder, about: &str) -> (u64, Counts, Loader) {
    let mut loader = builder.build().unwrap_or_else(|error| panic!("{about}: {error}"));
    let (ids, errors) = drain(&**dataset, &mut loader);
    assert!(errors.is_empty() && !ids.is_empty(), "{about}: {errors:?}");
    (loader.digest().delivered.sum, loader.stats().snapshot().count, loader)
}

pub(super) fn segments(folder: &Path) -> Vec<PathBuf> {
    let inner = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
    let entries = fs::read_dir(inner).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("seg-")).collect()
}

fn has(loader: &Loader, cause: Cause) -> bool {
    loader.route().fallbacks.iter().any(|step| step.cause == cause)
}

#[test]
fn every_order_has_the_same_samples_with_and_without() {
    within(BOUND, || {
        for seed in 0..16 {
            let mut random = Random::new(seed);
            let (store, dataset) = mixed(seed);
            let folder = TempDir::new().unwrap();
            let room = 1 + random.below(20 * MIB);
            let faults = Faults { short: random.below(20), throttled: random.below(5), slow: 5, ..Faults::default() };
            store.set(faults);
            let engine = random.one_of(&[EngineChoice::Auto, EngineChoice::Threads]);
            let shuffle = random.one_of(&[Shuffle::Off, Shuffle::Full, Shuffle::Window(64)]);
            let (batch, size) = (1 + random.below(90), random.one_of(&[None, Some(70_000), Some(1 << 22)]));
            let is_apart = random.below(2) == 0;
            let on_error = random.one_of(&[OnError::Raise, OnError::Replace]);
            let made = || {
                let builder = builder(&dataset).batch_size(batch).shuffle(shuffle).engine(engine).on_error(on_error);
                let builder = if is_apart { builder.coalesce_gap(0) } else { builder };
                builder.read_size(size.map(|size: u64| size as usize))
            };
            for epochs in [1, 2, 3] {
                let plain = read_all(&dataset, made().epochs(epochs), "plain");
                let cache = DiskCache::new(folder.path(), room);
                let kept = read_all(&dataset, made().epochs(epochs).cache_disk(cache), &format!("seed {seed}"));
                assert_eq!(plain.0, kept.0, "seed {seed}");
                assert_eq!(plain.1.samples, kept.1.samples, "seed {seed}");
            }
            let taken: u64 = segments(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
            assert!(taken <= room, "seed {seed}: {taken} of {room}");
        }
    });
}

#[test]
fn what_fits_is_never_asked_for_again() {
    within(BOUND, || {
        let (store, dataset) = mixed(1);
        // On a disk: a folder in memory is told.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let cache = || DiskCache::new(folder.path(), 64 * MIB);
        let (_, first, _) = read_all(&dataset, builder(&dataset).cache_disk(cache()), "first");
        let asked = store.reads();
        assert!(asked > 0 && asked < first.samples, "{asked} for {first:?}");
        // In this run and in another.
        let (_, second, loader) = read_all(&dataset, builder(&dataset).epochs(3).cache_disk(cache()), "second");
        assert_eq!(store.reads(), asked);
        assert!(second.bytes_cached >= 3 * dataset.bytes(), "{second:?}");
        let route = loader.route().to_string();
        assert!(route.contains("100.0 % of the objects kept in"), "{route}");
        assert!(!has(&loader, Cause::DiskCache), "{:?}", loader.route().fallbacks);
    });
}

/// The share of hits is the share that fits from the second epoch on, and in every one the same.
#[test]
fn half_a_cache_hits_half() {
    within(BOUND, || {
        let (store, dataset) = far_of("far", 1, &[1; 600], 105_000);
        let folder = TempDir::new().unwrap();
        // A page is not filled by the last byte of an object.
        let room = 600 * 105_000_u64.next_multiple_of(4096) / 2;
        let mut asked = Vec::new();
        for epoch in 0..4 {
            let cache = DiskCache::new(folder.path(), room);
            let builder = builder(&dataset).start(Cursor::new(epoch, 0)).more_epochs(1).cache_disk(cache);
            let before = store.reads();
            let (_, count, _) = read_all(&dataset, builder, "half");
            asked.push(store.reads() - before);
            let hits = count.bytes_cached as f64 / count.bytes_read as f64;
            assert!(epoch == 0 || (hits - 0.5).abs() <= 0.01, "epoch {epoch}: {hits}");
        }
        assert!(asked[1] == asked[2] && asked[2] == asked[3] && asked[1] < asked[0], "{asked:?}");
    });
}

#[test]
fn an_order_resumes_with_and_without() {
    within(BOUND, || {
        let (_, dataset) = mixed(5);
        let folder = TempDir::new().unwrap();
        let cache = || DiskCache::new(folder.path(), 6 * MIB);
        let whole = read_all(&dataset, builder(&dataset).epochs(3), "whole").0;
        let mut state: Option<State> = None;
        for part in 0.. {
            let with = if part % 2 == 0 { Some(cache()) } else { None };
            let made = builder(&dataset).epochs(3).cache_disk(with);
            let made = state.iter().fold(made, |made, state| made.resume(state));
            let mut loader = made.build().unwrap();
            let mut batches = 0;
            for batch in loader.by_ref().take(7) {
                checked(&*dataset, &batch.unwrap());
                batches += 1;
            }
            if batches < 7 {
                assert_eq!(loader.digest().delivered.sum, whole);
                break;
            }
            state = Some(loader.state());
        }
    });
}

/// Ranks, each a loader, find what the others have fetched, and keep to one budget.
#[test]
fn ranks_share_a_folder_and_its_budget() {
    within(BOUND, || {
        let (store, dataset) = mixed(2);
        let folder = TempDir::new().unwrap();
        let ranks = |epochs, room| {
            std::thread::scope(|scope| {
                let read = |rank| {
                    let (dataset, folder) = (&dataset, folder.path());
                    let builder = builder(dataset).rank(rank, 3).epochs(epochs);
                    scope.spawn(move || read_all(dataset, builder.cache_disk(DiskCache::new(folder, room)), "rank").1)
                };
                let threads: Vec<_> = (0..3).map(read).collect();
                threads.into_iter().map(|thread| thread.join().unwrap().bytes_cached).sum::<u64>()
            })
        };
        let room = 64 * MIB;
        // A second time, for what was not kept because others held the files for too long.
        (0..2).for_each(|_| _ = ranks(1, room));
        let asked = store.reads();
        assert!(ranks(2, room) >= 2 * dataset.bytes());
        assert_eq!(store.reads(), asked, "every rank finds all of it");
        let taken: u64 = segments(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(taken <= room);
    });
}

#[test]
fn what_the_disk_has_damaged_is_read_from_the_store() {
    within(BOUND, || {
        let (store, dataset) = mixed(3);
        let folder = TempDir::new().unwrap();
        let cache = || DiskCache::new(folder.path(), 64 * MIB);
        read_all(&dataset, builder(&dataset).cache_disk(cache()), "first");
        // Files that end early.
        let mut loader = builder(&dataset).epochs(2).cache_disk(cache()).build().unwrap();
        checked(&*dataset, &loader.next().unwrap().unwrap());
        for path in segments(folder.path()) {
            OpenOptions::new().write(true).open(&path).unwrap().set_len(MIB).unwrap();
        }
        let asked = store.reads();
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert!(errors.is_empty() && ids.len() as u64 == 2 * dataset.len() - 50, "{errors:?}");
        assert!(store.reads() > asked && has(&loader, Cause::DiskCache), "{:?}", loader.route().fallbacks);
        assert_eq!(loader.digest().delivered.sum, read_all(&dataset, builder(&dataset).epochs(2), "plain").0);
        drop(loader);
        fs::remove_dir_all(folder.path()).unwrap();
        read_all(&dataset, builder(&dataset).cache_disk(cache()), "anew");
        // A folder that is not there any more.
        let mut loader = builder(&dataset).epochs(4).cache_disk(cache()).build().unwrap();
        checked(&*dataset, &loader.next().unwrap().unwrap());
        fs::remove_dir_all(folder.path()).unwrap();
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert!(errors.is_empty() && ids.len() as u64 > 3 * dataset.len(), "{errors:?}");
    });
}

/// A byte in 256 that is read is compared with what was written.
#[test]
fn a_flipped_bit_is_found_in_time() {
    within(BOUND, || {
        let (store, dataset) = far_of("far", 4, &[4; 3], MIB);
        let folder = TempDir::new().unwrap();
        let cache = || DiskCache::new(folder.path(), 64 * MIB);
        read_all(&dataset, builder(&dataset).cache_disk(cache()), "first");
        let path = &segments(folder.path())[0];
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        for entry in 0..12 {
            // The first page says what the file is.
            let (at, mut byte) = (4096 + entry * MIB + 123, [0]);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
        let asked = store.reads();
        // No window of neighbours, which may stay in memory.
        let builder = builder(&dataset).shuffle(Shuffle::Full).epochs(100);
        let mut loader = builder.cache_disk(cache()).build().unwrap();
        loader.by_ref().for_each(|batch| drop(batch.unwrap()));
        assert!(has(&loader, Cause::DiskCache) && store.reads() > asked, "{:?}", loader.route().fallbacks);
    });
}

#[test]
fn an_object_that_was_replaced_is_not_the_one_that_is_kept() {
    within(BOUND, || {
        let (store, dataset) = far("far", 6, &[20; 8]);
        let folder = TempDir::new().unwrap();
        let cache = || DiskCache::new(folder.path(), 64 * MIB);
        read_all(&dataset, builder(&dataset).cache_disk(cache()), "first");
        // The dataset that was opened before has the old one, whole.
        store.spoil("data/0003", Class::Changed);
        read_all(&dataset, builder(&dataset).cache_disk(cache()), "as it was listed");
        // Another bucket has other objects of the same names and sizes.
        let (other, others) = far("other", 6, &[20; 8]);
        let asked = other.reads();
        read_all(&others, builder(&others).cache_disk(cache()), "another bucket");
        assert!(other.reads() > asked);
    });
}

#[test]
fn what_cannot_be_kept_is_said_or_refused() {
    within(BOUND, || {
        let (_, dataset) = far("far", 7, &[20; 8]);
        let folder = TempDir::new().unwrap();
        // Others may write to it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let open = folder.path().join("uringload-raw-1");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let error = builder(&dataset).cache_disk(DiskCache::new(folder.path(), MIB)).build().expect_err("open to all");
        assert!(error.kind() == ErrorKind::PermissionDenied && error.remedy().is_some(), "{error}");
        // A file is no folder.
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = builder(&dataset).cache_disk(DiskCache::new(&file, MIB)).build().expect_err("no folder");
        assert!(error.to_string().contains("file"), "{error}");
        // Files of folders stay where they are.
        let near = TempDir::new().unwrap();
        fs::write(near.path().join("a.bin"), vec![0; 10 * RECORD_BYTES as usize]).unwrap();
        let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
        let local = dataset::open(&[near.path()], &options).unwrap();
        let kept = TempDir::new().unwrap();
        let loader = Loader::builder(local).cache_disk(DiskCache::new(kept.path(), MIB)).build().unwrap();
        assert!(has(&loader, Cause::DiskCache) && fs::read_dir(kept.path()).unwrap().next().is_none());
        // No room at all.
        let (_, count, _) = read_all(&dataset, builder(&dataset).cache_disk(DiskCache::new(kept.path(), 0)), "0");
        assert_eq!(count.bytes_cached, 0);
    });
}

#[test]
fn a_setting_of_text_names_a_folder_and_bytes() {
    let (_, dataset) = far("far", 8, &[1]);
    let set = |value: &str| builder(&dataset).set("cache_disk", value);
    assert!(set("/tmp/a:b:1GiB").is_ok() && set("x:0").is_ok());
    for wrong in ["", "1GiB", ":1GiB", "/tmp", "/tmp:", "/tmp:many", "/tmp:-1"] {
        let error = set(wrong).map(drop).expect_err(wrong);
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("cache_disk"), "{error}");
    }
}

/// Samples that a read of the store does not give fail as without a cache.
#[test]
fn failures_are_those_of_the_store() {
    within(BOUND, || {
        let (store, dataset) = far("far", 9, &[20; 8]);
        let folder = TempDir::new().unwrap();
        store.spoil("data/0005", Class::Missing);
        let failed = |builder: Builder| {
            let mut loader = builder.on_error(OnError::Skip).build().unwrap();
            let (mut ids, _) = drain(&*dataset, &mut loader);
            ids.sort_unstable();
            (ids, loader.stats().snapshot().count.samples_skipped)
        };
        let plain = failed(builder(&dataset).epochs(2));
        let kept = failed(builder(&dataset).epochs(2).cache_disk(DiskCache::new(folder.path(), 64 * MIB)));
        assert_eq!(plain, kept);
        assert!(plain.1 == 40 && !plain.0.contains(&SampleId(100)), "{}", plain.1);
    });
}

//! What a loader promises: where it ends, what it refuses, what memory it takes, what it says about itself, and that it
//! may be dropped at any moment.

use crate::common::check::{WAYS, checked, drain, order};
use crate::common::fixture::{files, made};
use crate::common::{HANG, skip, within};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::Builder;
use uringload::batch::{Batch, Data};
use uringload::config::Config;
use uringload::config::{Collate, EngineChoice, EngineKind, IoChoice, OnError};
use uringload::dataset::{self, Dataset, FileTable, Options, SampleId};
use uringload::inspect::Shuffled;
use uringload::sampler::Cursor;
use uringload::stats::Role;
use uringload::{Error, ErrorKind, Loader};
use uringload_sys::file::{cachestat, evict};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u64 = 100;
const SEED: u64 = 3;

fn name(number: u64) -> String {
    format!("{number:03}")
}

fn size(number: u64) -> u64 {
    30_000 + number * 211
}

/// A folder of [`FILES`] files of some 40 kB, where the build lies: more likely on a disk than the folder for what is
/// temporary.
fn folder() -> (TempDir, Arc<dyn Dataset>) {
    files((0..FILES).map(|number| (name(number), size(number))))
}

/// `count` records in two files.
fn records(count: u64, record_bytes: u64, header_bytes: u64) -> (TempDir, Arc<dyn Dataset>) {
    let options = Options::new().format("records").set("record_bytes", record_bytes).set("header_bytes", header_bytes);
    let records = [("0", count / 3), ("1", count - count / 3)];
    made(records.map(|(name, records)| (name, header_bytes + records * record_bytes)), &options)
}

fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(8).shuffle(true).seed(SEED)
}

/// Builds it, or says that this way is not available here.
fn build(builder: Builder, what: impl std::fmt::Debug) -> Option<Loader> {
    match builder.build() {
        Ok(loader) => Some(loader),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip(format!("{what:?}: {error}"));
            None
        }
        Err(error) => panic!("{what:?}: {error}"),
    }
}

fn refused(builder: Builder) -> Error {
    match builder.build() {
        Ok(loader) => panic!("built, though it cannot work: {}", loader.route()),
        Err(error) => error,
    }
}

#[test]
fn epochs_come_one_after_the_other_each_in_its_order() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        let wanted = order(&Shuffled::new(FILES, SEED), 3);
        let mut loader = builder(&dataset).epochs(3).build().expect("a loader");
        assert_eq!(loader.remaining(), Some(3 * FILES.div_ceil(8)));
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(ids, wanted);
        assert!(loader.next().is_none() && loader.is_empty(), "it stays at its end");
        assert_eq!(loader.cursor(), Cursor::new(3, 0));

        let mut endless = builder(&dataset).epochs(None).build().expect("a loader");
        assert_eq!(endless.remaining(), None);
        let batches = 3 * FILES.div_ceil(8) as usize;
        let ids: Vec<SampleId> =
            endless.by_ref().take(batches).flat_map(|batch| checked(&*dataset, &batch.expect("no error"))).collect();
        assert_eq!(ids, wanted);
        assert!(!endless.is_empty() && endless.remaining().is_none());

        let mut none = builder(&dataset).epochs(0).build().expect("a loader");
        assert!(none.is_empty() && none.next().is_none());
    });
}

#[test]
fn what_cannot_work_is_refused_in_words() {
    let (_root, dataset) = folder();
    for (builder, words) in [
        (builder(&dataset).batch_size(0), ["batch size", "0"]),
        (builder(&dataset).rank(4, 4), ["rank 4", "world size 4"]),
        (builder(&dataset).rank(0, 0), ["world size", "0"]),
        (builder(&dataset).start(Cursor::new(2, FILES + 1)), ["101", "100"]),
        (builder(&dataset).collate(Collate::Dense), ["\"data\"", "have one length"]),
    ] {
        let error = refused(builder);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{words:?} in {error}");
        assert!(error.remedy().is_some(), "{error}");
    }
    let empty: Arc<dyn Dataset> =
        dataset::inspect::of_files(FileTable::new(), &Options::new().set("labels", false)).unwrap();
    assert_eq!(refused(Loader::builder(empty)).kind(), ErrorKind::Empty);
}

/// The limit that the error names is the least one that is taken, and a loader at that limit reads everything.
#[test]
fn the_remedy_of_too_little_memory_works() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        let error = refused(builder(&dataset).batch_size(20).memory_limit(100_000));
        assert_eq!(error.kind(), ErrorKind::MemoryLimit);
        for number in [20, dataset.largest(20), 100_000] {
            assert!(error.to_string().contains(&number.to_string()), "{number} in {error}");
        }
        let remedy = error.remedy().expect("a remedy");
        let wanted = remedy.split_whitespace().find_map(|word| word.parse::<u64>().ok()).expect("a number");
        let narrow = builder(&dataset).batch_size(20);
        assert_eq!(refused(narrow.clone().memory_limit(wanted - 1)).kind(), ErrorKind::MemoryLimit);
        for (engine, io) in WAYS {
            let narrow = narrow.clone().memory_limit(wanted).engine(engine).io(io);
            let Some(mut loader) = build(narrow, (engine, io)) else { continue };
            assert_eq!(loader.memory_limit(), wanted);
            let (ids, errors) = drain(&*dataset, &mut loader);
            assert_eq!((ids.len() as u64, errors.len()), (FILES, 0), "{errors:?}");
        }
    });
}

/// What was read and not taken is never more than the limit, however long the consumer takes.
#[test]
fn a_slow_consumer_meets_the_limit() {
    const LIMIT: u64 = 1 << 20;
    within(BOUND, || {
        let (_root, dataset) = folder();
        for (engine, io) in WAYS {
            let slow = builder(&dataset).memory_limit(LIMIT).engine(engine).io(io);
            let Some(mut loader) = build(slow, (engine, io)) else { continue };
            let stats = loader.stats();
            let mut came = 0;
            let mut taken = 0;
            loop {
                std::thread::sleep(Duration::from_millis(5));
                let read = stats.snapshot().count.bytes_read;
                assert!(read - taken <= LIMIT, "{read} bytes read, {taken} taken");
                let Some(batch) = loader.next() else { break };
                let batch = batch.expect("no error");
                came += checked(&*dataset, &batch).len() as u64;
                taken += batch.bytes();
            }
            assert_eq!(came, FILES);
        }
    });
}

#[test]
fn a_consumer_that_keeps_batches_goes_on_once_it_drops_them() {
    const WAIT: Duration = Duration::from_millis(50);
    within(BOUND, || {
        let (_root, dataset) = folder();
        let mut loader =
            builder(&dataset).memory_limit(2 << 20).starved_after(WAIT).epochs(2).build().expect("a loader");
        let (mut kept, mut ids, mut starved): (Vec<Batch>, Vec<SampleId>, u32) = Default::default();
        loop {
            let asked = Instant::now();
            match loader.next() {
                Some(Ok(batch)) => kept.push(batch),
                Some(Err(error)) => {
                    assert_eq!(error.kind(), ErrorKind::Starved, "{error}");
                    assert!(asked.elapsed() >= WAIT, "{:?}", asked.elapsed());
                    starved += 1;
                    ids.extend(kept.drain(..).flat_map(|batch| checked(&*dataset, &batch)));
                }
                None => break,
            }
        }
        ids.extend(kept.iter().flat_map(|batch| checked(&*dataset, batch)));
        assert!(starved > 2, "2 MiB do not hold 8 MB");
        assert_eq!(ids, order(&Shuffled::new(FILES, SEED), 2), "no sample was lost");
    });
}

/// With nothing taken, with reads in flight, with the queue full, while a batch is used: at every moment of 25 ms.
#[test]
fn it_may_be_dropped_at_any_moment() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        for (engine, io) in WAYS {
            for moment in 0..25_u64 {
                let builder = builder(&dataset).epochs(None).memory_limit(4 << 20).engine(engine).io(io);
                let Some(mut loader) = build(builder, (engine, io)) else { break };
                let kept: Vec<Batch> = (0..moment % 3).map(|_| loader.next().unwrap().expect("no error")).collect();
                std::thread::sleep(Duration::from_micros(1000 * (moment / 3)));
                let start = Instant::now();
                drop(loader);
                assert!(start.elapsed() < HANG, "{engine:?} {io:?}: {:?}", start.elapsed());
                let user = std::thread::spawn({
                    let dataset = Arc::clone(&dataset);
                    move || kept.iter().map(|batch| checked(&*dataset, batch).len() as u64).sum::<u64>()
                });
                assert_eq!(user.join().expect("no panic"), moment % 3 * 8, "batches outlive their loader");
            }
        }
    });
}

#[test]
fn two_loaders_of_one_dataset_do_not_meet() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        for (engine, io) in WAYS {
            let loader = |seed| builder(&dataset).seed(seed).memory_limit(2 << 20).engine(engine).io(io);
            let (Some(mut one), Some(mut other)) = (build(loader(1), engine), build(loader(2), engine)) else {
                continue;
            };
            let (mut ids, mut other_ids) = (Vec::new(), Vec::new());
            while let (Some(a), Some(b)) = (one.next(), other.next()) {
                ids.extend(checked(&*dataset, &a.expect("no error")));
                other_ids.extend(checked(&*dataset, &b.expect("no error")));
            }
            assert_eq!(ids, order(&Shuffled::new(FILES, 1), 1));
            assert_eq!(other_ids, order(&Shuffled::new(FILES, 2), 1));
        }
    });
}

/// Deletes one file, the first of the index, and shortens another behind the index's back.
fn damage(root: &Path) -> [SampleId; 2] {
    std::fs::remove_file(root.join(name(0))).expect("remove");
    let file = std::fs::File::options().write(true).open(root.join(name(7))).expect("open");
    file.set_len(10_000).expect("shorten");
    [SampleId(0), SampleId(7)]
}

#[test]
fn samples_that_cannot_be_read_are_skipped_and_counted() {
    within(BOUND, || {
        for (engine, io) in WAYS.into_iter().chain([(EngineChoice::Auto, IoChoice::Auto)]) {
            let (root, dataset) = folder();
            let bad = damage(root.path());
            let skipping = builder(&dataset).on_error(OnError::Skip).epochs(2).engine(engine).io(io);
            let Some(loader) = build(skipping, (engine, io)) else { continue };
            let stats = loader.stats();
            let (mut ids, mut skipped) = (Vec::new(), Vec::new());
            for batch in loader {
                let batch = batch.expect("errors cost samples, not batches");
                ids.extend(checked(&*dataset, &batch));
                skipped.extend(batch.failed.iter().map(|failed| (failed.id, failed.error.kind())));
            }
            let mut wanted = order(&Shuffled::new(FILES, SEED), 2);
            wanted.retain(|id| !bad.contains(id));
            assert_eq!(ids, wanted, "{engine:?} {io:?}: all others, in order");
            skipped.sort_unstable_by_key(|(id, _)| *id);
            let [gone, cut] = bad.map(|id| (id, if id.0 == 0 { ErrorKind::NotFound } else { ErrorKind::Truncated }));
            assert_eq!(skipped, [gone, gone, cut, cut]);
            let count = stats.snapshot().count;
            assert_eq!((count.samples_skipped, count.samples_failed, count.samples), (4, 0, 2 * FILES - 4));
        }
    });
}

#[test]
fn samples_that_cannot_be_read_are_raised_in_their_place() {
    within(BOUND, || {
        for (engine, io) in WAYS {
            let (root, dataset) = folder();
            let bad = damage(root.path());
            let Some(mut loader) = build(builder(&dataset).engine(engine).io(io), (engine, io)) else { continue };
            let (stats, batches) = (loader.stats(), loader.remaining().expect("an end"));
            let mut errors = 0;
            for chunk in order(&Shuffled::new(FILES, SEED), 1).chunks(8) {
                match loader.next().expect("a batch or its error") {
                    Ok(batch) => assert_eq!(checked(&*dataset, &batch), chunk),
                    Err(error) => {
                        assert!(chunk.iter().any(|id| bad.contains(id)), "{error}");
                        assert!(error.path().is_some() && error.offset().is_some(), "{error}");
                        errors += 1;
                    }
                }
            }
            assert!(loader.next().is_none() && loader.is_empty());
            let count = stats.snapshot().count;
            assert_eq!((count.samples_failed, count.samples_skipped), (2, 0));
            assert_eq!(count.batches + errors, batches);
        }
    });
}

/// Dense batches have the bytes of all samples end to end, whether they were read so, moved together, or gathered.
#[test]
fn dense_batches_are_equal_however_they_came_about() {
    within(BOUND, || {
        for (record_bytes, header_bytes) in [(512, 0), (4096, 512), (1000, 0), (1000, 24), (1, 0), (70_000, 3)] {
            let (_root, dataset) = records(60, record_bytes, header_bytes);
            for (engine, io) in WAYS {
                for coalesce_gap in [0, 600, 1 << 20] {
                    for shuffle in [true, false] {
                        let config = Config {
                            batch_size: 8,
                            shuffle: shuffle.into(),
                            engine,
                            io,
                            coalesce_gap: Some(coalesce_gap),
                            collate: Collate::Dense,
                            ..Config::default()
                        };
                        let dense = Loader::builder(Arc::clone(&dataset)).config(config);
                        let Some(loader) = build(dense, (engine, io)) else { continue };
                        let mut came = 0;
                        for batch in loader {
                            let batch = batch.expect("no error");
                            let Data::Dense { shape, bytes, .. } = &batch.columns[0].data else {
                                panic!("not dense: {record_bytes} bytes, gap {coalesce_gap}, {engine:?} {io:?}");
                            };
                            assert_eq!((&shape[..], bytes.len() as u64), (&[record_bytes][..], batch.bytes()));
                            came += checked(&*dataset, &batch).len();
                        }
                        assert_eq!(came, 60);
                    }
                }
            }
        }
    });
}

/// Where records are as long as the alignment asks for, dense costs nothing: not a byte is read too much, so the
/// records lie end to end as they come from the disk.
#[test]
fn dense_batches_of_aligned_records_are_read_in_place() {
    within(BOUND, || {
        let (_root, dataset) = records(200, 8192, 4096);
        for (engine, io) in WAYS {
            let Some(loader) = build(builder(&dataset).engine(engine).io(io), (engine, io)) else { continue };
            let stats = loader.stats();
            for batch in loader {
                let batch = batch.expect("no error");
                checked(&*dataset, &batch);
                assert!(
                    matches!(batch.columns[0].data, Data::Dense { .. }),
                    "auto is dense where values have one shape"
                );
            }
            let snapshot = stats.snapshot();
            assert_eq!(snapshot.read_amplification(), Some(1.0));
            assert_eq!(snapshot.count.bytes_read, 200 * 8192);
        }
        let loader = builder(&dataset).collate(Collate::Views).build().expect("a loader");
        for batch in loader {
            assert!(
                matches!(&batch.expect("no error").columns[0].data, Data::Views(_)),
                "views where views are asked for"
            );
        }
    });
}

/// Pages of the folder's files that lie in the page cache, and all of them; `None` where the kernel does not tell.
fn residency(root: &Path) -> Option<(u64, u64)> {
    let page = uringload_sys::arena::page_bytes() as u64;
    let (mut resident, mut all) = (0, 0);
    for number in 0..FILES {
        let file = std::fs::File::open(root.join(name(number))).expect("a file");
        resident += cachestat(file.as_fd(), 0, 0).ok()?.cached;
        all += size(number).div_ceil(page);
    }
    Some((resident, all))
}

fn evict_all(root: &Path) {
    for number in 0..FILES {
        let file = std::fs::File::open(root.join(name(number))).expect("a file");
        file.sync_all().expect("sync");
        evict(file.as_fd()).expect("evict");
    }
}

/// Reads all files through the page cache.
fn warm_up(root: &Path) {
    (0..FILES).for_each(|number| drop(std::fs::read(root.join(name(number))).expect("a file")));
}

/// Whether the page cache of this folder can be told and emptied, and files be read past it. Of files on an overlay the
/// kernel tells that nothing is cached, whatever is.
fn has_cold_files(root: &Path, dataset: &Arc<dyn Dataset>) -> bool {
    warm_up(root);
    let told = residency(root).is_some_and(|(resident, all)| resident * 10 > 9 * all);
    evict_all(root);
    let emptied = residency(root).is_some_and(|(resident, all)| resident * 10 < all);
    let direct = builder(dataset).io(IoChoice::Direct).build().is_ok_and(|loader| loader.route().alignment > 1);
    if !told || !emptied || !direct {
        let cache = format!("page cache is told: {told}, can be emptied: {emptied}");
        skip(format!("cold files: {cache}, O_DIRECT with a known alignment: {direct}"));
    }
    told && emptied && direct
}

/// What the route says is what is done: the engine's threads, the page cache's fill, the depth and the length of reads.
#[test]
fn the_route_is_true() {
    within(BOUND, || {
        let (root, dataset) = folder();
        if !has_cold_files(root.path(), &dataset) {
            return;
        }
        for (engine, io) in WAYS {
            evict_all(root.path());
            let Some(mut loader) = build(builder(&dataset).engine(engine).io(io), (engine, io)) else { continue };
            let (stats, route) = (loader.stats(), loader.route());
            let (ids, errors) = drain(&*dataset, &mut loader);
            assert_eq!((ids.len() as u64, errors.len()), (FILES, 0), "{errors:?}");
            assert_eq!(route.direct_io, io == IoChoice::Direct);
            assert_eq!(route.alignment > 1, route.direct_io);
            let (resident, all) = residency(root.path()).expect("it told before");
            assert_eq!(resident * 2 < all, route.direct_io, "{route}: {resident} of {all} pages");
            let wanted = if engine == EngineChoice::Uring { EngineKind::Uring } else { EngineKind::Threads };
            assert_eq!(route.engine, wanted);
            let snapshot = stats.snapshot();
            let readers = snapshot.threads.iter().filter(|thread| thread.role == Role::Io).count();
            assert_eq!(readers > 0, route.engine == EngineKind::Threads, "{readers} threads read");
            assert!(snapshot.in_flight_max as usize <= route.queue_depth);
            assert!(snapshot.count.reads * route.read_bytes as u64 >= snapshot.count.bytes_read);
            assert!(route.registered_buffers <= (route.engine == EngineKind::Uring));
        }
    });
}

#[test]
fn counts_add_up_to_what_was_delivered() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        for (engine, io) in WAYS {
            let Some(loader) = build(builder(&dataset).epochs(2).engine(engine).io(io), (engine, io)) else { continue };
            let (stats, alignment) = (loader.stats(), u64::from(loader.route().alignment));
            let (mut batches, mut samples, mut bytes) = (0, 0, 0);
            for batch in loader {
                let batch = batch.expect("no error");
                batches += 1;
                samples += batch.len() as u64;
                bytes += batch.bytes();
            }
            let count = stats.snapshot().count;
            assert_eq!((count.batches, count.samples, count.bytes_delivered), (batches, samples, bytes));
            assert_eq!((samples, bytes), (2 * FILES, 2 * dataset.bytes()));
            assert_eq!(count.bytes_wanted, bytes);
            assert!(count.bytes_read >= bytes && count.bytes_read <= bytes + samples * alignment, "{count:?}");
            assert_eq!(
                (count.reads, count.retries, count.short_reads),
                (samples, 0, 0),
                "{engine:?} {io:?}: one a file"
            );
        }
    });
}

/// `auto` looks for the place of the files at the beginning of each epoch that begins a second or more after the last
/// look, takes the nearer of page cache and disk, and says so.
#[test]
fn auto_follows_the_page_cache_from_epoch_to_epoch() {
    within(BOUND, || {
        let (root, dataset) = folder();
        if !has_cold_files(root.path(), &dataset) {
            return;
        }
        let says_so = |loader: &Loader| {
            let route = loader.route();
            assert_eq!(
                route.direct_io,
                !route.fallbacks.iter().any(|step| step.got.contains("page cache")),
                "{route:?}"
            );
            route.direct_io
        };
        warm_up(root.path());
        assert!(!says_so(&builder(&dataset).build().expect("a loader")), "warm");
        evict_all(root.path());
        assert!(says_so(&builder(&dataset).build().expect("a loader")), "cold");

        // One batch fills the memory, so that the second half of an epoch is not read before the first is dropped.
        let narrow = builder(&dataset).batch_size(FILES / 2).epochs(5);
        let limit = dataset.largest(FILES / 2) + FILES / 2 * 2 * 4096 + 4096;
        let mut loader = narrow.memory_limit(limit).build().expect("a loader");
        let mut ways = Vec::new();
        let mut came = Vec::new();
        for number in 0.. {
            let Some(batch) = loader.next() else { break };
            let batch = batch.expect("no error");
            if number % 2 == 0 {
                let direct = says_so(&loader);
                if direct {
                    warm_up(root.path());
                } else {
                    evict_all(root.path());
                }
                ways.push(direct);
                std::thread::sleep(Duration::from_millis(1100));
            }
            came.extend(checked(&*dataset, &batch));
        }
        assert_eq!(ways, [true, false, true, false, true]);
        assert_eq!(came, order(&Shuffled::new(FILES, SEED), 5));
    });
}

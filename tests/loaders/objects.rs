//! Objects of stores: every sample once and byte for byte whatever the server does, and none is lost for its mood.

use crate::common::check::{checked, drain};
use crate::common::content::{content, key_of, name_of, write_file};
use crate::common::objects::{Faults, Objects};
use crate::common::random::Random;
use crate::common::{HANG, within};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::{Collate, Config, EngineChoice, EngineKind, IoChoice, OnError};
use uringload::dataset::{self, Dataset, FileId, FileTable, Options, SampleId, Span};
use uringload::inspect::raw::measure;
use uringload::inspect::{Samples, Sequential};
use uringload::pack::PackOptions;
use uringload::sampler::Sampler;
use uringload::store::Class;
use uringload::{Builder, ErrorKind, Loader, Reader, ReaderOptions, State};

const BOUND: Duration = Duration::from_secs(120);
const POLICIES: [OnError; 4] = [OnError::Raise, OnError::Warn, OnError::Skip, OnError::Replace];
const RECORD_BYTES: u64 = 700;
const OBJECTS: u64 = 12;

/// Dropping an engine waits for 5 s for a thread that cannot be interrupted.
const SOON: Duration = Duration::from_secs(4);

fn sizes(objects: std::ops::Range<u64>) -> Vec<(String, u64)> {
    objects.map(|number| (format!("{number:03}"), RECORD_BYTES * (1 + number * 37 % 90))).collect()
}

fn records(files: FileTable) -> Arc<dyn Dataset> {
    let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
    dataset::inspect::of_files(files, &options).expect("records")
}

fn far(seed: u64) -> (Arc<Objects>, Arc<dyn Dataset>) {
    let store = Objects::new("far", seed);
    let mut files = FileTable::new();
    store.put(&mut files, "data/", &sizes(0..OBJECTS));
    (store, records(files))
}

fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(9).shuffle(true).seed(3).memory_limit(8 << 20)
}

/// Reads all of it: every sample comes once.
fn reads_all(dataset: &Arc<dyn Dataset>, builder: Builder, about: &str) -> Loader {
    let mut loader = builder.build().expect("a loader");
    let (mut ids, errors) = drain(&**dataset, &mut loader);
    assert!(errors.is_empty(), "{about}: {errors:?}");
    ids.sort_unstable();
    assert_eq!(ids, (0..dataset.len()).map(SampleId).collect::<Vec<_>>(), "{about}");
    loader
}

#[test]
fn every_sample_comes_once_whatever_the_server_does() {
    within(BOUND, || {
        for seed in 0..30 {
            let (store, dataset) = far(seed);
            let mut random = Random::new(seed);
            let after = random.one_of(&[None, Some(Duration::ZERO), Some(Duration::from_millis(20))]);
            let (short, throttled) = (random.below(40), random.below(15));
            // One read that is reset four times in a row, while others are not, has failed.
            store.set(Faults { short, throttled, after, reset: seed % 2, slow: 5, ..Faults::default() });
            let builder =
                builder(&dataset).batch_size(1 + random.below(40)).read_size(1 + random.below(30_000) as usize);
            let builder = if seed % 3 == 0 { builder.coalesce_gap(0) } else { builder };
            let loader = reads_all(&dataset, builder.on_error(random.one_of(&POLICIES)), &format!("seed {seed}"));
            let count = loader.stats().snapshot().count;
            assert!(store.reads() > 0 && count.retries >= count.short_reads, "{count:?}");
        }
    });
}

#[test]
fn five_percent_put_off_at_every_attempt_cost_no_sample() {
    within(BOUND, || {
        for policy in [OnError::Raise, OnError::Replace] {
            let (store, dataset) = far(7);
            store.set(Faults { throttled: 5, after: Some(Duration::from_secs(1)), ..Faults::default() });
            // A read for each sample, and two at a time.
            let builder = builder(&dataset).coalesce_gap(0).queue_depth(2).on_error(policy);
            let start = Instant::now();
            let retries = reads_all(&dataset, builder, "put off").stats().snapshot().count.retries;
            assert!(retries >= 10, "{retries} were put off");
            // Those that wait for a second hold up no others.
            let one_by_one = Duration::from_secs(retries / 2);
            assert!(start.elapsed() < one_by_one.max(SOON), "{:?} for {retries}", start.elapsed());
        }
    });
}

#[test]
fn a_place_of_which_half_is_not_trusted_costs_no_sample() {
    within(BOUND, || {
        for policy in POLICIES {
            let (store, dataset) = far(8);
            store.set(Faults { untrusted: 50, ..Faults::default() });
            reads_all(&dataset, builder(&dataset).read_size(2000).on_error(policy), "half of it is not trusted");
        }
    });
}

#[test]
fn a_raw_read_goes_on_where_a_server_puts_it_off() {
    within(BOUND, || {
        let (store, dataset) = far(3);
        store.set(Faults { throttled: 20, ..Faults::default() });
        let config = Config { read_size: Some(1000), ..Config::default() };
        let order: Arc<dyn Sampler> = Arc::new(Sequential::new(dataset.len()));
        let raw = measure(&dataset, &config, &order, BOUND, || false).expect("a rate");
        assert!(raw.bytes > 0 && raw.bytes < dataset.bytes() && raw.reads == store.reads(), "{raw:?}");
        store.set(Faults { always: Some(Class::Missing), ..Faults::default() });
        let error = measure(&dataset, &config, &order, BOUND, || false).map(drop).expect_err("it is missing");
        assert!(error.to_string().contains("made up: Missing"), "{error}");
    });
}

#[test]
fn a_time_in_which_no_object_is_given_costs_no_sample() {
    within(BOUND, || {
        let all = [Class::Throttled, Class::Expired, Class::Storage, Class::Refused, Class::Untrusted, Class::NoBucket];
        for (class, policy) in all.into_iter().zip(POLICIES.into_iter().cycle()) {
            let (store, dataset) = far(1);
            store.set(Faults { always: Some(class), ..Faults::default() });
            let begins = Arc::clone(&store);
            let ends = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(700));
                begins.set(Faults::default());
            });
            reads_all(&dataset, builder(&dataset).on_error(policy), &format!("{class:?}"));
            ends.join().expect("a thread");
        }
    });
}

#[test]
fn a_server_that_gives_nothing_for_too_long_is_one_error() {
    within(BOUND, || {
        let ever = Some(Duration::from_secs(u64::MAX));
        for (class, remedy, policy, after) in [
            (Class::Throttled, "fewer", OnError::Raise, None),
            (Class::Throttled, "fewer", OnError::Skip, Some(Duration::ZERO)),
            (Class::Throttled, "fewer", OnError::Replace, ever),
            (Class::Expired, "credentials", OnError::Skip, ever),
            (Class::Storage, "be reached", OnError::Warn, None),
        ] {
            let (store, dataset) = far(2);
            let start = Instant::now();
            let builder = builder(&dataset).on_error(policy).epochs(None).outage_timeout(Duration::from_millis(600));
            let mut loader = builder.build().expect("a loader");
            let first = loader.next().expect("a batch").expect("it begins well");
            checked(&*dataset, &first);
            store.set(Faults { always: Some(class), after, ..Faults::default() });
            let mut told = None;
            let error = loop {
                assert!(start.elapsed() < HANG, "{class:?} {policy:?} {after:?}: no error");
                match loader.next_timeout(Duration::from_millis(50)) {
                    Ok(Some(_)) => {}
                    Ok(None) => told = loader.stats().snapshot().outage.or(told),
                    Err(error) => break error,
                }
            };
            let (text, about) = (error.to_string(), format!("{class:?} {policy:?} {after:?}"));
            for part in ["mem://far/data", "made up", remedy, "outage_timeout"] {
                assert!(text.contains(part), "{about}: {part:?} is not in {text}");
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{about}");
            let told = told.expect("it is told meanwhile").to_string();
            assert!(told.contains("mem://far/data") && told.contains("made up"), "{told}");
            assert_eq!(loader.stats().snapshot().count.samples_failed, 0, "{about}");
        }
    });
}

/// The failed samples of a loader that skips them, with their errors' kinds.
fn failed(dataset: &Arc<dyn Dataset>, builder: Builder) -> Vec<(SampleId, ErrorKind)> {
    let mut failed = Vec::new();
    for batch in builder.on_error(OnError::Skip).build().expect("a loader") {
        let batch = batch.expect("a batch");
        checked(&**dataset, &batch);
        failed.extend(batch.failed.iter().map(|failed| (failed.id, failed.error.kind())));
    }
    failed.sort_unstable_by_key(|(id, _)| *id);
    failed
}

/// The samples of an object.
fn samples_of(dataset: &dyn Dataset, file: u32) -> Vec<SampleId> {
    let mut spans = Vec::new();
    let is_of = |id: &SampleId| {
        spans.clear();
        dataset.spans(*id, &mut spans);
        spans[0].file == FileId(file)
    };
    (0..dataset.len()).map(SampleId).filter(is_of).collect()
}

#[test]
fn what_is_wrong_with_one_object_fails_its_samples_alone() {
    within(BOUND, || {
        for (class, kind) in [
            (Class::Changed, ErrorKind::Changed),
            (Class::Missing, ErrorKind::NotFound),
            (Class::Refused, ErrorKind::PermissionDenied),
            (Class::Corrupt, ErrorKind::Corrupt),
            (Class::Storage, ErrorKind::Io),
        ] {
            let (store, dataset) = far(4);
            store.spoil("data/005", class);
            // Others are read meanwhile, so that it alone is to blame.
            store.set(Faults { slow: 100, ..Faults::default() });
            let expected: Vec<_> = samples_of(&*dataset, 5).into_iter().map(|id| (id, kind)).collect();
            assert_eq!(failed(&dataset, builder(&dataset).io_threads(2)), expected, "{class:?}");
            let raised = builder(&dataset).build().expect("a loader").find_map(Result::err).expect("an error");
            assert_eq!(raised.kind(), kind, "{raised}");
            assert!(raised.path().is_some_and(|path| path.ends_with("data/005")), "{raised}");
        }
        let (store, dataset) = far(5);
        store.shorten("data/005", RECORD_BYTES);
        let expected: Vec<_> = samples_of(&*dataset, 5).into_iter().map(|id| (id, ErrorKind::Truncated)).collect();
        assert_eq!(failed(&dataset, builder(&dataset)), expected, "shortened");
    });
}

#[test]
fn an_object_that_is_put_off_for_ever_fails_when_its_time_is_over() {
    within(BOUND, || {
        let store = Objects::new("far", 6);
        let mut files = FileTable::new();
        store.put(&mut files, "data/", &sizes(0..60));
        let dataset = records(files);
        store.spoil("data/001", Class::Throttled);
        store.set(Faults { slow: 100, after: Some(Duration::from_secs(1 << 40)), ..Faults::default() });
        let builder = builder(&dataset).shuffle(false).batch_size(1).memory_limit(32 << 20).io_threads(4);
        let expected: Vec<_> = samples_of(&*dataset, 1).into_iter().map(|id| (id, ErrorKind::Io)).collect();
        assert_eq!(failed(&dataset, builder.outage_timeout(Duration::from_millis(300))), expected);
    });
}

#[test]
fn a_read_that_stalls_ends_when_it_is_not_wanted_any_more() {
    within(BOUND, || {
        let (store, dataset) = far(8);
        store.set(Faults { stalled: 100, ..Faults::default() });
        let loader = builder(&dataset).build().expect("a loader");
        let start = Instant::now();
        while store.stalled() == 0 {
            assert!(start.elapsed() < HANG, "no read is begun");
            std::thread::sleep(Duration::from_millis(1));
        }
        let start = Instant::now();
        drop(loader);
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        let start = Instant::now();
        while store.stalled() > 0 {
            assert!(start.elapsed() < SOON, "{} reads are still in progress", store.stalled());
            std::thread::sleep(Duration::from_millis(1));
        }
        // With a deadline it is a timeout of its samples, and its thread is free for others.
        let (store, dataset) = far(9);
        store.stall("data/005");
        let expected: Vec<_> = samples_of(&*dataset, 5).into_iter().map(|id| (id, ErrorKind::Timeout)).collect();
        let builder = builder(&dataset).timeout(Duration::from_millis(200)).io_threads(2);
        assert_eq!(failed(&dataset, builder), expected);
        assert_eq!(store.stalled(), 0);
    });
}

#[test]
fn stores_and_folders_are_read_together() {
    within(BOUND, || {
        let root = tempfile::tempdir().expect("a folder");
        let near = sizes(100..110);
        near.iter().for_each(|(name, size)| write_file(&root.path().join(name), *size).expect("a file"));
        let (one, other) = (Objects::new("one", 1), Objects::new("other", 2));
        let mut files = FileTable::new();
        one.put(&mut files, "", &sizes(0..7));
        files.push_root(root.path());
        near.iter().for_each(|(name, size)| assert!(files.push(name.as_bytes(), *size).is_some()));
        other.put(&mut files, "deep/down/", &sizes(20..29));
        let dataset = records(files);
        one.set(Faults { throttled: 10, short: 10, ..Faults::default() });
        let loader = reads_all(&dataset, builder(&dataset).epochs(1), "mixed");
        assert!(one.reads() > 0 && other.reads() > 0);
        let route = loader.route();
        assert_eq!((route.engine, route.direct_io, route.alignment), (EngineKind::Remote, false, 1));
        assert_eq!(route.fallbacks.len(), 1, "the folder is read through the page cache: {:?}", route.fallbacks);
        let samples = Samples::new(Arc::clone(&dataset)).expect("samples");
        for id in (0..dataset.len()).step_by(17).map(SampleId) {
            samples.read(id).expect("a sample");
        }
        // A missing file is its own error, with objects beside it.
        std::fs::remove_file(root.path().join("103")).expect("a file");
        let expected: Vec<_> = samples_of(&*dataset, 10).into_iter().map(|id| (id, ErrorKind::NotFound)).collect();
        assert_eq!(failed(&dataset, builder(&dataset)), expected);
    });
}

#[test]
fn objects_are_read_by_threads_in_long_requests() {
    let (store, dataset) = far(1);
    for builder in [builder(&dataset).engine(EngineChoice::Uring), builder(&dataset).io(IoChoice::Direct)] {
        let error = builder.build().map(drop).expect_err("not available");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(
            error.path().is_some() && error.remedy().is_some_and(|remedy| remedy.contains("go without")),
            "{error}"
        );
    }
    let loader = builder(&dataset).build().expect("a loader");
    let route = loader.route();
    assert!(route.fallbacks.is_empty(), "threads are how objects are read: {:?}", route.fallbacks);
    assert_eq!((route.queue_depth, route.read_bytes), (512.min(route.queue_depth), 8 << 20));
    drop(loader);
    // A request costs as much as a MiB, so gaps are read along: fewer requests than samples.
    let before = store.reads();
    reads_all(&dataset, builder(&dataset).batch_size(100).collate(Collate::Views), "joined");
    let requests = store.reads() - before;
    assert!(requests < dataset.len() / 4, "{requests} requests for {} samples", dataset.len());
    assert_eq!(builder(&dataset).queue_depth(5).build().expect("a loader").route().queue_depth, 5);
}

/// The same samples in a folder and in a store.
fn copies() -> (TempDir, Arc<Objects>, Arc<dyn Dataset>, Arc<dyn Dataset>) {
    let (store, far) = far(9);
    let root = tempfile::tempdir().expect("a folder");
    for (name, size) in sizes(0..OBJECTS) {
        write_file(&root.path().join(&name), size).expect("a file");
    }
    let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
    let near = dataset::open(&[root.path()], &options).expect("records");
    (root, store, near, far)
}

#[test]
fn a_state_goes_on_from_a_local_copy_and_back() {
    within(BOUND, || {
        let (_root, store, near, far) = copies();
        store.set(Faults { short: 20, throttled: 5, ..Faults::default() });
        let builder = |dataset: &Arc<dyn Dataset>| builder(dataset).epochs(1);
        let mut whole = builder(&near).build().expect("a loader");
        let (ids, _) = drain(&*near, &mut whole);
        for (first, second) in [(&near, &far), (&far, &near), (&far, &far)] {
            let mut loader = builder(first).build().expect("a loader");
            let mut got = Vec::new();
            for batch in loader.by_ref().take(10) {
                got.extend(checked(&**first, &batch.expect("a batch")));
            }
            let state = State::from_json(&loader.state().to_json()).expect("a state");
            drop(loader);
            let mut loader = builder(second).resume(&state).build().expect("it goes on");
            got.extend(drain(&**second, &mut loader).0);
            assert!(got == ids, "another order");
            assert_eq!(loader.digest(), whole.digest());
        }
    });
}

#[test]
fn a_pack_of_a_local_copy_goes_on_from_a_store() {
    within(BOUND, || {
        let (_root, _, near, far) = copies();
        let folder = tempfile::tempdir().expect("a folder");
        let pack = |dataset: &Arc<dyn Dataset>, samples| {
            let options = PackOptions::default().shard_samples(samples);
            let pack = Loader::builder(Arc::clone(dataset)).pack(folder.path(), options)?;
            pack.run(&|_| ControlFlow::Continue(())).map(|_| pack.path(1))
        };
        let second = pack(&near, 200).expect("a pack");
        let bytes = std::fs::read(&second).expect("a shard");
        std::fs::remove_file(&second).expect("a shard");
        pack(&far, 200).expect("the missing shard is read from the store");
        assert!(std::fs::read(&second).expect("a shard") == bytes, "other bytes");
        assert!(pack(&near, 200).is_ok(), "and back");
        assert!(pack(&far, 100).is_err(), "of other settings");
    });
}

#[test]
fn bytes_come_in_any_order_that_is_asked_for() {
    within(BOUND, || {
        let store = Objects::new("far", 11);
        let (mut files, large) = (FileTable::new(), 9_437_213);
        store.put(&mut files, "data/", &[("a".into(), large), ("b".into(), 0), ("c".into(), 5000)]);
        store.set(Faults { short: 10, throttled: 10, after: Some(Duration::ZERO), ..Faults::default() });
        let wanted = |files: &FileTable, span: &Span| {
            content(key_of(name_of(&files.path(span.file))), span.offset, span.len as usize)
        };
        let span = |file, offset, len| Span { file: FileId(file), offset, len };
        let mut reader = Reader::new(files.clone(), &ReaderOptions::default()).expect("a reader");
        let mut random = Random::new(5);
        let spans: Vec<Span> = (0..60)
            .map(|_| {
                let offset = random.below(large);
                span(0, offset, random.below((large - offset).min(100_000)))
            })
            .chain([span(2, 0, 5000), span(1, 0, 0), span(0, large - 1, 1)])
            .collect();
        (0..).zip(&spans).for_each(|(id, span)| reader.submit(id, &[*span]).expect("a request"));
        let mut came = 0;
        for (id, bytes) in reader.by_ref() {
            let span = &spans[id as usize];
            assert!(bytes.expect("bytes") == wanted(&files, span), "{span:?}");
            came += 1;
        }
        assert_eq!(came, spans.len());
        assert!(reader.read(&spans[..9]).is_ok(), "in this thread");
        let mut memory = vec![0; large as usize];
        reader.read_into(&mut [(span(0, 0, large), &mut memory)]).expect("bytes");
        assert!(memory == wanted(&files, &span(0, 0, large)), "read into memory");
        let (always, after) = (Some(Class::Throttled), Some(Duration::from_secs(3600)));
        store.set(Faults { always, after, ..Faults::default() });
        let error = reader.read(&[span(2, 0, 9)]).expect_err("it waits for an hour");
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("made up: Throttled"), "{error}");
        store.set(Faults::default());
        store.spoil("data/c", Class::Missing);
        for error in [reader.read(&[span(2, 0, 9)]).map(drop), reader.read_into(&mut [(span(2, 0, 9), &mut [0; 9])])] {
            let error = error.expect_err("it is gone");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.path().is_some_and(|path| path.ends_with("data/c")), "{error}");
        }
    });
}

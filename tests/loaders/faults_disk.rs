//! A disk that lies, as a FUSE filesystem: what is broken is reported in its place with its file, what is not is
//! delivered, and nothing hangs. Root only, `skipped:` otherwise.

use crate::common::check::{checked, drain};
use crate::common::faulty::{Call, Fault, Faulty, Spec};
use crate::common::{HANG, skip, within};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::config::{EngineChoice, EngineKind, ImageCache, IoChoice, OnError};
use uringload::dataset::{self, Dataset, Options};
use uringload::stats::Snapshot;
use uringload::{Builder, Loader};
use uringload::{Error, ErrorKind};

const BOUND: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// FUSE names no alignment, so `auto` reads it buffered; an explicit "direct" must work all the same. The ring
/// is not available: see [`a_ring_is_refused`].
const WAYS: [(EngineChoice, IoChoice); 3] = [
    (EngineChoice::Auto, IoChoice::Auto),
    (EngineChoice::Auto, IoChoice::Direct),
    (EngineChoice::Threads, IoChoice::Buffered),
];

/// Good files around the ones with `faults`.
fn files(faults: &[(&str, u64, Fault)]) -> Vec<Spec> {
    let good = (0..20).map(|number| Spec {
        name: format!("good_{number:02}"),
        size: 1000 + number * 37_777,
        fault: Fault::None,
    });
    let bad = faults.iter().map(|&(name, size, fault)| Spec { name: name.into(), size, fault });
    good.chain(bad).collect()
}

/// Runs `check` for every way to read these files.
fn each_way(
    faults: &'static [(&'static str, u64, Fault)],
    check: impl Fn(&Faulty, Arc<dyn Dataset>, EngineChoice, IoChoice) + Copy + Send + Sync + 'static,
) {
    let by_way = |(engine, io)| {
        let faulty = match Faulty::mount(files(faults)) {
            Ok(faulty) => faulty,
            Err(reason) => return skip(reason),
        };
        within(BOUND, move || {
            let dataset: Arc<dyn Dataset> =
                dataset::open(&[faulty.path()], &Options::new().format("folder")).expect("a folder");
            assert_eq!(dataset.len(), 20 + faults.len() as u64);
            check(&faulty, dataset, engine, io);
        });
    };
    // All at once: most of their time they wait.
    std::thread::scope(|scope| WAYS.map(|way| scope.spawn(move || by_way(way))).map(drop));
}

fn skipping(dataset: &Arc<dyn Dataset>, engine: EngineChoice, io: IoChoice) -> Builder {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(4).shuffle(true).on_error(OnError::Skip);
    builder.engine(engine).io(io)
}

/// Reads all with `on_error = skip`; the samples that came and the errors.
fn read_all(dataset: &Arc<dyn Dataset>, engine: EngineChoice, io: IoChoice) -> (u64, Vec<Error>) {
    let mut loader = skipping(dataset, engine, io).build().expect("a loader");
    let (ids, errors) = drain(&**dataset, &mut loader);
    (ids.len() as u64, errors)
}

/// The one error: its file and its offset lie where they should.
fn assert_one_error(errors: &[Error], kind: ErrorKind, file: &str, offset: std::ops::RangeInclusive<u64>) {
    let [error] = errors else { panic!("one error is expected: {errors:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.path().is_some_and(|path| path.ends_with(file)), "{error}");
    assert!(error.offset().is_some_and(|at| offset.contains(&at)), "{error}");
}

/// Linux' ring goes on after a short read of such files with bytes from the wrong place, and no one could notice.
#[test]
fn a_ring_is_refused() {
    each_way(&[], |_, dataset, engine, io| {
        let builder = Loader::builder(dataset).engine(engine).io(io);
        let route = builder.clone().build().expect("a loader").route();
        assert_eq!(route.engine, EngineKind::Threads);
        assert_eq!(route.direct_io, io == IoChoice::Direct);
        assert_eq!(route.fallbacks.is_empty(), engine == EngineChoice::Threads, "{route:?}");
        let Err(error) = builder.engine(EngineChoice::Uring).build() else { panic!("{io:?}: a ring on FUSE") };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.remedy().is_some(), "{error}");
    });
}

#[test]
fn a_broken_byte_costs_its_sample() {
    const BROKEN: u64 = 700_000;
    each_way(&[("broken", MIB, Fault::Broken(BROKEN))], |_, dataset, engine, io| {
        let (came, errors) = read_all(&dataset, engine, io);
        assert_eq!(came, dataset.len() - 1);
        assert_one_error(&errors, ErrorKind::Io, "broken", 0..=BROKEN);
        assert!(errors[0].to_string().contains("os error 5"), "{}", errors[0]);
    });
}

#[test]
fn a_broken_byte_takes_the_place_of_its_batch() {
    each_way(&[("broken", MIB, Fault::Broken(5))], |_, dataset, engine, io| {
        let builder = Loader::builder(Arc::clone(&dataset)).batch_size(1).engine(engine).io(io);
        let mut loader = builder.build().expect("a loader");
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert_eq!(ids.len() as u64, dataset.len() - 1, "the batches around the broken one come");
        assert_one_error(&errors, ErrorKind::Io, "broken", 0..=5);
    });
}

#[test]
fn an_error_that_passes_is_retried() {
    each_way(&[("once", 3 * MIB + 5, Fault::BrokenOnce)], |_, dataset, engine, io| {
        let (came, errors) = read_all(&dataset, engine, io);
        assert!(errors.is_empty(), "{engine:?} {io:?}: {errors:?}");
        assert_eq!(came, dataset.len());
    });
}

#[test]
fn short_reads_are_repaired() {
    each_way(
        &[("sectors", MIB + 3, Fault::Short(512 * 19)), ("pages", 2 * MIB, Fault::Short(65_536))],
        |_, dataset, engine, io| {
            let (came, errors) = read_all(&dataset, engine, io);
            assert!(errors.is_empty(), "{engine:?} {io:?}: {errors:?}");
            assert_eq!(came, dataset.len());
        },
    );
}

#[test]
fn a_file_that_ends_early_is_truncated() {
    const END: u64 = 300_000;
    each_way(&[("cut", MIB, Fault::EndsAt(END)), ("empty", 4096, Fault::EndsAt(0))], |_, dataset, engine, io| {
        let (came, errors) = read_all(&dataset, engine, io);
        assert_eq!(came, dataset.len() - 2);
        let (cut, empty): (Vec<Error>, Vec<Error>) =
            errors.into_iter().partition(|error| error.path().is_some_and(|path| path.ends_with("cut")));
        assert_one_error(&cut, ErrorKind::Truncated, "cut", END..=MIB);
        assert_one_error(&empty, ErrorKind::Truncated, "empty", 0..=4096);
    });
}

#[test]
fn slow_files_do_not_hold_up_others() {
    // They do not end before all others were read.
    each_way(&[("slow_1", 100_000, Fault::Stuck), ("slow_2", 100_000, Fault::Stuck)], |faulty, dataset, engine, io| {
        let mut loader = skipping(&dataset, engine, io).build().expect("a loader");
        let (stats, asked) = (loader.stats(), Instant::now());
        let wanted: u64 = files(&[]).iter().map(|good| good.size).sum();
        let all_others = |now: Snapshot| now.count.bytes_read >= wanted && now.in_flight == 2;
        while !all_others(stats.snapshot()) {
            assert!(asked.elapsed() < HANG, "{engine:?} {io:?}: {:?}", stats.snapshot());
            std::thread::sleep(Duration::from_millis(1));
        }
        faulty.release();
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert!(errors.is_empty(), "{engine:?} {io:?}: {errors:?}");
        assert_eq!(ids.len() as u64, dataset.len());
    });
}

#[test]
fn a_loader_over_reads_that_never_end_can_be_dropped() {
    each_way(&[("stuck", MIB, Fault::Stuck)], |faulty, dataset, engine, io| {
        let builder = Loader::builder(Arc::clone(&dataset)).batch_size(4).engine(engine).io(io);
        let mut loader = builder.build().expect("a loader");
        let first = loader.next().expect("a batch").expect("the first files are good");
        let start = Instant::now();
        drop(loader);
        assert!(start.elapsed() < HANG, "{engine:?} {io:?}: {:?}", start.elapsed());
        assert_eq!(checked(&*dataset, &first).len(), 4, "a batch outlives its loader");
        faulty.release();
    });
}

/// How long reads may take where a call hangs.
const PATIENT: Duration = Duration::from_secs(1);

/// A file whose storage answers nothing, in each call there is: the others come, its error comes before twice the
/// timeout, and the loader ends.
#[test]
fn a_call_that_hangs_costs_its_sample_alone() {
    for call in [Call::Lookup, Call::Open, Call::Getattr, Call::Read, Call::Readdir] {
        each_way(&[], move |faulty, dataset, engine, io| {
            // What the kernel knew is no longer believed.
            std::thread::sleep(Duration::from_millis(150));
            faulty.hang(call, 0);
            let start = Instant::now();
            let builder = skipping(&dataset, engine, io).timeout(PATIENT);
            let mut loader = builder.build().expect("a loader");
            let (ids, errors) = drain(&*dataset, &mut loader);
            let took = start.elapsed();
            assert!(took < 2 * PATIENT, "{call:?} {engine:?} {io:?}: {took:?}");
            // A state waits a second for a look at files that do not answer.
            let (state, start) = (loader.state().to_json(), Instant::now());
            drop(loader);
            assert!(start.elapsed() < 2 * PATIENT, "{call:?} {engine:?} {io:?}: {:?}", start.elapsed());
            // A look-up of a file returns its attributes, and the folder is not listed again.
            let least = usize::from(!matches!(call, Call::Getattr | Call::Readdir));
            assert!((least..=1).contains(&errors.len()), "{call:?} {engine:?} {io:?}: {errors:?}");
            assert_eq!(ids.len() + errors.len(), 20, "{call:?} {engine:?} {io:?}: {errors:?}");
            errors.iter().for_each(|error| assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"));
            let state = uringload::State::from_json(&state).expect("a state");
            let start = Instant::now();
            let mut resumed = skipping(&dataset, engine, io)
                .timeout(PATIENT)
                .epochs(2)
                .resume(&state)
                .build()
                .expect("it is still that dataset");
            let (ids, errors) = drain(&*dataset, &mut resumed);
            assert_eq!(ids.len() + errors.len(), 20, "{call:?} {engine:?} {io:?}: {errors:?}");
            assert!(start.elapsed() < 2 * PATIENT, "{call:?} {engine:?} {io:?}: {:?}", start.elapsed());
        });
    }
}

/// The same while a dataset is opened, which looks at every file: an error in time, with the path that was asked for.
#[test]
fn a_call_that_hangs_ends_the_opening() {
    // The answer to a lookup has the attributes, so they are not asked for.
    for call in [Call::Lookup, Call::Open, Call::Read, Call::Readdir] {
        let Ok(faulty) = Faulty::mount(files(&[])).map_err(skip) else { return };
        faulty.hang(call, 7);
        let options = Options::new().format("text").timeout(PATIENT);
        let all: Vec<_> = files(&[]).iter().map(|file| faulty.path().join(&file.name)).collect();
        // What is named first answers.
        let healthy = tempfile::tempdir().expect("a folder");
        std::fs::write(healthy.path().join("a.txt"), "a\n").expect("a file");
        let folders = vec![healthy.path().to_path_buf(), faulty.path().to_path_buf()];
        let (place, paths) = if call == Call::Readdir { (folders[1].clone(), folders) } else { (all[7].clone(), all) };
        let start = Instant::now();
        let error = within(HANG, move || dataset::open(&paths, &options).map(drop)).expect_err("it hangs");
        let took = start.elapsed();
        faulty.release();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{call:?}: {error}");
        assert!((PATIENT..2 * PATIENT).contains(&took), "{call:?}: {took:?}");
        assert_eq!(error.path(), Some(&*place), "{call:?}: {error}");
    }
}

/// The same while a loader that keeps decoded images looks at what they take.
#[test]
fn a_call_that_hangs_does_not_hold_up_a_look_at_images() {
    let Ok(faulty) = Faulty::mount(files(&[])).map_err(skip) else { return };
    let dataset = dataset::open(&[faulty.path()], &Options::new()).expect("a dataset");
    std::thread::sleep(Duration::from_millis(150));
    faulty.hang(Call::Read, 0);
    let start = Instant::now();
    let built = within(HANG, move || {
        let builder = Loader::builder(dataset).transform("data", "resize(8)".parse().expect("a chain"));
        builder.cache_images(ImageCache::memory(MIB)).timeout(PATIENT).build().map(drop)
    });
    faulty.release();
    // None of the others is an image.
    assert_ne!(built.expect_err("no image").kind(), ErrorKind::Timeout);
    assert!(start.elapsed() < 2 * PATIENT, "{:?}", start.elapsed());
}

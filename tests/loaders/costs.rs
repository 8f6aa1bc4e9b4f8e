//! A loader's report on its reads by their length, its dearest samples, and the holders of its memory.

use crate::common::faulty::{Fault, Faulty, Spec};
use crate::common::fixture::files;
use crate::common::{HANG, skip, within};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uringload::Loader;
use uringload::config::{IoChoice, Shuffle};
use uringload::dataset::{self, DType, Options, SampleId};
use uringload::stats::Holder;
use uringload::transform::{Input, MapOutput};

const KIB: u64 = 1024;

#[test]
fn the_file_that_answers_late_is_the_dearest_sample() {
    const FILES: u64 = 96;
    let late = [17, 61];
    let spec = |number: u64| {
        let fault = if late.contains(&number) { Fault::Stuck } else { Fault::None };
        Spec { name: format!("{number:04}"), size: 20 * KIB, fault }
    };
    let Ok(disk) = Faulty::mount((0..FILES).map(spec).collect()).map_err(skip) else { return };
    let dataset = dataset::open(&[disk.path()], &Options::new().format("folder")).expect("files");
    within(HANG, move || {
        let begun = Instant::now();
        let builder = Loader::builder(dataset).batch_size(8).shuffle(Shuffle::Full);
        let mut loader = builder.build().expect("a loader");
        let stats = loader.stats();
        // In flight for longer than all others together, however long this machine takes for those.
        while stats.snapshot().count.reads < FILES - 2 || stats.snapshot().in_flight < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(begun.elapsed());
        let others = begun.elapsed() / 2;
        disk.release();
        loader.by_ref().for_each(|batch| drop(batch.expect("a batch")));
        let dearest = stats.dearest();
        let mut ids: Vec<u64> = dearest[..2].iter().map(|one| one.id.0).collect();
        ids.sort_unstable();
        assert_eq!(ids, late, "{dearest:?}");
        assert!(dearest[..2].iter().all(|one| one.read >= others && one.made.is_zero()), "{others:?}: {dearest:?}");
        assert!(dearest.windows(2).all(|pair| pair[0].total() >= pair[1].total()), "{dearest:?}");
        assert_eq!(dearest.len(), 16, "{dearest:?}");
    });
}

#[test]
fn the_sample_that_takes_long_to_decode_is_the_dearest() {
    for threads in [0, 2] {
        let (_root, dataset) = files((0..64).map(|number| (format!("{number:03}"), 500 + number)));
        // The last one takes longer than all others together, however long this machine takes for those.
        let (begun, done) = (Instant::now(), AtomicU64::new(0));
        let slow = move |input: &Input<'_>, out: &mut [u8]| {
            if input.id == SampleId(63) {
                while done.load(Ordering::Acquire) < 63 {
                    assert!(begun.elapsed() < HANG, "the others are not done");
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(begun.elapsed() + Duration::from_millis(1));
            }
            done.fetch_add(1, Ordering::Release);
            out.fill(0);
            Ok(out.len())
        };
        // One read after the other: without threads the work is done in the order in which reads end, and what waits
        // for the others must come last.
        let builder = Loader::builder(dataset).batch_size(8).epochs(1).num_threads(threads).queue_depth(1);
        let builder = builder.io(IoChoice::Buffered).map("data", MapOutput::fixed(DType::F32, []), slow);
        let mut loader = builder.build().expect("a loader");
        loader.by_ref().for_each(|batch| drop(batch.expect("a batch")));
        let dearest = loader.stats().dearest();
        assert_eq!(dearest[0].id, SampleId(63), "{threads} threads: {dearest:?}");
        assert!(dearest[0].made > dearest[1].total(), "{dearest:?}");
    }
}

#[test]
fn reads_are_told_by_their_length_and_memory_by_its_holder() {
    let size = |number| if number % 4 == 0 { 600 * KIB } else { 2 * KIB };
    let (_root, dataset) = files((0..40).map(|number| (format!("{number:03}"), size(number))));
    let builder = Loader::builder(dataset).batch_size(1).epochs(1).io(IoChoice::Buffered).memory_limit(4 << 20);
    let mut loader = builder.build().expect("a loader");
    // The loader reads ahead until its memory is full, and looks once a second at least, also when it has to wait.
    let stats = loader.stats();
    let most = |holder| stats.memory().iter().find(|held| held.holder == holder).map_or(0, |held| held.most_bytes);
    let asked = Instant::now();
    while most(Holder::Batches) < 512 << 10 {
        assert!(asked.elapsed() < HANG, "{:?}", stats.memory());
        std::thread::sleep(Duration::from_millis(1));
    }
    loader.by_ref().for_each(|batch| drop(batch.expect("a batch")));
    let seen = stats.snapshot();
    let counts = || seen.read_latency_by_size.iter().map(|class| class.latency.count());
    assert_eq!(counts().sum::<u64>(), seen.read_latency.count());
    assert!(seen.read_latency_by_size.len() >= 2, "{:?}", seen.read_latency_by_size);
    assert_eq!(seen.read_latency_by_size[0].up_to_bytes, Some(4 * KIB), "the shortest first");
    assert!(seen.since(&seen).read_latency_by_size.is_empty(), "nothing came between");
    let memory = stats.memory();
    assert!(memory.iter().all(|held| held.mean_bytes <= held.most_bytes && held.most_bytes <= 5 << 20), "{memory:?}");
}

//! What a loader tells of its reads by their length, of its dearest samples, and of who holds its memory.

use crate::common::content::write_file;
use crate::common::faulty::{Fault, Faulty, Spec};
use crate::common::skip;
use std::time::Duration;
use tempfile::TempDir;
use uringload::Loader;
use uringload::config::{IoChoice, Shuffle};
use uringload::dataset::{self, DType, Options, SampleId};
use uringload::stats::Holder;
use uringload::transform::{Input, MapOutput};

const KIB: u64 = 1024;

#[test]
fn the_file_that_answers_late_is_the_dearest_sample() {
    let late = [17, 61];
    let spec = |number: u64| {
        let fault = if late.contains(&number) { Fault::Slow(Duration::from_millis(120)) } else { Fault::None };
        Spec { name: format!("{number:04}"), size: 20 * KIB, fault }
    };
    let Ok(disk) = Faulty::mount((0..96).map(spec).collect()).map_err(skip) else { return };
    let dataset = dataset::open(&[disk.path()], &Options::new().format("folder")).expect("files");
    let builder = Loader::builder(dataset).batch_size(8).shuffle(Shuffle::Full).epochs(2);
    let mut loader = builder.build().expect("a loader");
    loader.by_ref().for_each(|batch| drop(batch.expect("a batch")));
    let stats = loader.stats();
    let dearest = stats.dearest();
    // Other programs may hold up others as long, but never these less.
    for id in late {
        let found = dearest.iter().find(|one| one.id == SampleId(id)).unwrap_or_else(|| panic!("no {id}: {dearest:?}"));
        assert!(found.read >= Duration::from_millis(110) && found.made.is_zero(), "{dearest:?}");
    }
    assert!(dearest.windows(2).all(|pair| pair[0].total() >= pair[1].total()) && dearest.len() == 16, "{dearest:?}");
}

#[test]
fn the_sample_that_takes_long_to_decode_is_the_dearest() {
    for threads in [0, 2] {
        let root = TempDir::new().expect("a folder");
        for number in 0..64_u64 {
            write_file(&root.path().join(format!("{number:03}")), 500 + number).expect("a file");
        }
        let dataset = dataset::open(&[root.path()], &Options::new().format("folder")).expect("files");
        let slow = |input: &Input<'_>, out: &mut [u8]| {
            if input.id == SampleId(40) {
                std::thread::sleep(Duration::from_millis(150));
            }
            out.fill(0);
            Ok(out.len())
        };
        let builder = Loader::builder(dataset).batch_size(8).epochs(1).num_threads(threads);
        let builder = builder.io(IoChoice::Buffered).map("data", MapOutput::fixed(DType::F32, []), slow);
        let mut loader = builder.build().expect("a loader");
        loader.by_ref().for_each(|batch| drop(batch.expect("a batch")));
        let dearest = loader.stats().dearest();
        assert_eq!(dearest[0].id, SampleId(40), "{threads} threads: {dearest:?}");
        assert!(dearest[0].made >= Duration::from_millis(140), "{dearest:?}");
    }
}

#[test]
fn reads_are_told_by_their_length_and_memory_by_its_holder() {
    let root = TempDir::new().expect("a folder");
    for number in 0..40_u64 {
        write_file(&root.path().join(format!("{number:03}")), if number % 4 == 0 { 600 * KIB } else { 2 * KIB })
            .expect("a file");
    }
    let dataset = dataset::open(&[root.path()], &Options::new().format("folder")).expect("files");
    let builder = Loader::builder(dataset).batch_size(1).epochs(1).io(IoChoice::Buffered).memory_limit(4 << 20);
    let mut loader = builder.build().expect("a loader");
    // Slower than the loader, which reads ahead as far as memory reaches, and looks meanwhile.
    for batch in loader.by_ref() {
        drop(batch.expect("a batch"));
        std::thread::sleep(Duration::from_millis(5));
    }
    let stats = loader.stats();
    let seen = stats.snapshot();
    let counts = || seen.read_latency_by_size.iter().map(|class| class.latency.count());
    assert_eq!(counts().sum::<u64>(), seen.read_latency.count());
    assert!(seen.read_latency_by_size.len() >= 2, "{:?}", seen.read_latency_by_size);
    assert_eq!(seen.read_latency_by_size[0].up_to_bytes, Some(4 * KIB), "the shortest first");
    assert!(seen.since(&seen).read_latency_by_size.is_empty(), "nothing came between");
    let memory = stats.memory();
    let most = |holder| memory.iter().find(|held| held.holder == holder).map_or(0, |held| held.most_bytes);
    assert!(most(Holder::Batches) >= 512 << 10, "{memory:?}");
    assert!(memory.iter().all(|held| held.mean_bytes <= held.most_bytes && held.most_bytes <= 5 << 20), "{memory:?}");
}

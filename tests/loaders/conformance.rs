//! One suite for every engine and every way through the kernel: every sample once, in order, byte-exact.

use crate::common::check::{WAYS, conforms};
use crate::common::content::{content, key_of, write_sparse};
use crate::common::{fixture, within};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::Loader;
use uringload::config::{Collate, EngineChoice, IoChoice};
use uringload::dataset::{self, Dataset, Options, SampleId};
use uringload::inspect::{Sequential, Shuffled};
use uringload::sampler::{Cursor, OrderId, Sampler};

const BOUND: Duration = Duration::from_secs(120);

fn records(root: &TempDir) -> Arc<dyn Dataset> {
    fixture::write_records(root.path());
    let options = Options::new()
        .format("records")
        .set("record_bytes", fixture::RECORD_BYTES)
        .set("header_bytes", fixture::HEADER_BYTES);
    dataset::open(&[root.path()], &options).expect("records")
}

fn folder(root: &TempDir) -> Arc<dyn Dataset> {
    fixture::write_folder(root.path());
    dataset::open(&[root.path()], &Options::new().format("folder")).expect("a folder")
}

#[test]
fn whole_files_of_every_size_and_name() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let dataset = folder(&root);
        let files = fixture::SIZES.len() + fixture::odd_names().len() + 150 + 1;
        assert_eq!(dataset.len(), files as u64, "every file is a sample");
        for way in WAYS {
            conforms(Arc::clone(&dataset), Arc::new(Shuffled::new(dataset.len(), 1)), way, |builder| builder);
            conforms(Arc::clone(&dataset), Arc::new(Sequential::new(dataset.len())), way, |builder| builder);
        }
    });
}

#[test]
fn records_that_divide_no_sector() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let dataset = records(&root);
        assert_eq!(dataset.len(), 2101);
        for way in WAYS {
            for collate in [Collate::Dense, Collate::Views] {
                let shuffled = Arc::new(Shuffled::new(dataset.len(), 2));
                conforms(Arc::clone(&dataset), shuffled, way, |builder| builder.batch_size(64).collate(collate));
            }
            let sequential = Arc::new(Sequential::new(dataset.len()));
            conforms(Arc::clone(&dataset), sequential, way, |builder| builder.batch_size(500));
        }
    });
}

#[test]
fn little_memory_and_one_read_at_a_time() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let dataset = records(&root);
        for way in WAYS {
            let sampler = Arc::new(Shuffled::new(dataset.len(), 3));
            conforms(Arc::clone(&dataset), sampler, way, |builder| builder.memory_limit(2 << 20).queue_depth(1));
        }
    });
}

/// The samples of a list, in its order: reads a few records of a huge file.
struct Chosen(Vec<u64>);

impl Sampler for Chosen {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(self.0[cursor.position as usize])
    }
    fn id(&self) -> OrderId {
        OrderId::custom("chosen", 1, &self.0)
    }
}

#[test]
fn records_behind_two_and_four_gib() {
    const RECORD: u64 = 100_003;
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let size = (5 << 30) / RECORD * RECORD;
        // Records around every place where 31, 32 or 33 bits end, and the last one.
        let borders = [0, 1 << 31, 1 << 32, size];
        let around = |border: u64| (border / RECORD).saturating_sub(2)..(border / RECORD + 2).min(size / RECORD);
        let chosen: Vec<u64> = borders.into_iter().flat_map(around).collect();
        let ranges: Vec<_> = chosen.iter().map(|&record| (record * RECORD, RECORD as usize)).collect();
        write_sparse(&root.path().join("huge"), size, &ranges).expect("a sparse file");
        let options = Options::new().format("records").set("record_bytes", RECORD);
        let dataset: Arc<dyn Dataset> = dataset::open(&[root.path()], &options).expect("records");
        for way in WAYS {
            conforms(Arc::clone(&dataset), Arc::new(Chosen(chosen.clone())), way, |builder| builder);
        }
    });
}

/// A sample of `size` bytes, most of it a hole, read whole.
fn one_huge_sample(size: u64) {
    let root = TempDir::new().expect("a folder");
    let path = root.path().join("huge");
    let borders = [0, 1 << 30, 1 << 31, 1 << 32, size - 5000];
    let ranges: Vec<_> = borders.into_iter().filter(|&at| at + 5000 <= size).map(|at| (at, 5000)).collect();
    write_sparse(&path, size, &ranges).expect("a sparse file");
    let dataset: Arc<dyn Dataset> = dataset::open(&[root.path()], &Options::new().format("folder")).expect("a folder");
    let builder = Loader::builder(dataset).batch_size(1).engine(EngineChoice::Auto).io(IoChoice::Direct);
    let mut loader = builder.memory_limit(size + (8 << 20)).build().expect("a loader");
    let batch = loader.next().expect("one batch").expect("no error");
    let bytes = batch.columns[0].bytes_of(0).expect("one sample");
    assert_eq!(bytes.len() as u64, size);
    let mut expected_from = 0;
    for (offset, len) in ranges {
        let hole = &bytes[expected_from..offset as usize];
        assert!(hole.chunks(1 << 20).all(|chunk| chunk.iter().all(|&byte| byte == 0)), "the hole before {offset}");
        let end = offset as usize + len;
        assert_eq!(bytes[offset as usize..end], content(key_of(b"huge"), offset, len), "at {offset}");
        expected_from = end;
    }
    assert!(loader.next().is_none());
}

#[test]
#[ignore = "slow: takes more than 2 GiB of memory"]
fn a_sample_over_two_gib() {
    within(BOUND, || one_huge_sample((2 << 30) + 4097));
}

#[test]
#[ignore = "slow: takes more than 4 GiB of memory"]
fn a_sample_over_four_gib() {
    within(BOUND, || one_huge_sample((4 << 30) + 4097));
}

//! Values of 128 KiB and more go straight to their columns: the bytes that the host has, no kernel, half the device's
//! memory, and few calls.

use crate::common::case::{Case, Consumer};
use crate::common::cufile::records as records_of;
use crate::common::dataset::Made;
use crate::common::{Mock, Random, within};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::Config;
use uringload::config::{Cause, Collate, Device, OnError};
use uringload::dataset::{self, DType, Dataset, Field, Index, Options, Sample, SampleId, Schema, Shape, Span, Value};
use uringload::{ErrorKind, Loader, Result};

const BOUND: Duration = Duration::from_secs(100);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const WITHOUT_LISTS: &str = "cuMemcpyBatchAsync";

/// `count` records of `bytes` each, which lie on no disk.
fn records(count: usize, bytes: usize) -> (TempDir, Arc<dyn Dataset>) {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("records");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len((count * bytes) as u64).expect("a file");
    let options = Options::new().format("records").set("record_bytes", bytes as u64);
    let dataset = dataset::open(&[&path], &options).expect("records");
    (folder, dataset)
}

/// Files of lengths around 200 KiB, one of them empty, with a label each.
fn files(count: usize, random: &mut Random) -> (TempDir, Arc<dyn Dataset>) {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for number in 0..count {
        let class = folder.path().join(["cat", "dog"][number % 2]);
        std::fs::create_dir_all(&class).expect("a class folder");
        let len = if number == 3 { 0 } else { 120 * KIB + random.below(200 * KIB) };
        std::fs::write(class.join(format!("{number:04}")), random.bytes(len)).expect("a file");
    }
    let options = Options::new().format("folder").set("labels", true).set("dtype", DType::U8);
    let dataset = dataset::open(&[folder.path()], &options).expect("a folder");
    (folder, dataset)
}

/// Records whose values are a slice of what was read, a value made of it, and a number.
struct Parsed {
    records: Arc<dyn Dataset>,
    index: Index,
}

impl Dataset for Parsed {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        self.records.spans(id, out);
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let record = &raw[0];
        let slice = record.slice(usize::from(record[0])..record.len() - id.0 as usize);
        let made: Bytes = record[..id.0 as usize % 7].iter().map(|byte| byte ^ 0x55).collect();
        out.values.extend([Value::Bytes(slice), Value::Bytes(made), Value::I64(id.0 as i64 * 3)]);
        Ok(())
    }
}

#[test]
fn values_at_odd_places_and_values_of_the_host_arrive() {
    within(BOUND, || {
        let Made { dataset: records, folder: _folder } = records_of(40, 140_001, &mut Random::new(6));
        let field = |name: &str, dtype, shape| Field { name: name.into(), dtype, shape };
        let fields = vec![
            field("slice", DType::U8, Shape::Ragged),
            field("made", DType::U8, Shape::Ragged),
            field("label", DType::I64, Shape::Fixed(Vec::new())),
        ];
        let mut index = records.index().clone();
        (index.format, index.schema, index.plain_field) = ("parsed", Schema { fields }, None);
        index.parse_reads_bytes = true;
        let dataset: Arc<dyn Dataset> = Arc::new(Parsed { records, index });
        for mock in [Mock::new("copy_us=100,jitter_us=200"), Mock::without(WITHOUT_LISTS, "")] {
            let case = Case::new(&dataset, config());
            assert_eq!(
                case.check(&mock, Consumer::Train { time: Duration::from_micros(300), held: 1 }, usize::MAX),
                16
            );
            assert!(mock.count("kernels") == 0 && mock.count("pageable_copies") > 0);
            mock.assert_clean();
        }
    });
}

fn config() -> Config {
    Config { batch_size: 5, epochs: Some(2), shuffle: true.into(), memory_limit: Some(16 << 20), ..Config::default() }
}

/// The mocks of a driver of CUDA 13, of 12.8, and of an older one.
fn drivers(settings: &str) -> [(Mock, bool); 4] {
    [
        (Mock::new(settings), true),
        (Mock::without("cuMemcpyBatchAsync_v2", settings), true),
        (Mock::without(WITHOUT_LISTS, settings), false),
        (Mock::without("cuStreamWriteValue32_v2", settings), true),
    ]
}

#[test]
fn large_values_are_those_on_the_host_and_take_no_kernel() {
    within(BOUND, || {
        let (_folder, made) = files(43, &mut Random::new(1));
        for (seed, settings) in [(1, ""), (2, "copy_us=300,jitter_us=500,seed=2")] {
            for (mock, has_lists) in drivers(settings) {
                for consumer in [Consumer::Look, Consumer::Train { time: Duration::from_micros(700), held: 1 }] {
                    let case = Case::new(&made, Config { seed, ..config() });
                    let steps = case.build(&mock).route().fallbacks;
                    assert_eq!(steps.iter().any(|step| step.cause == Cause::CopyLists), !has_lists);
                    assert_eq!(case.check(&mock, consumer, usize::MAX), 18);
                }
                assert_eq!(mock.count("kernels"), 0, "values are brought together by kernels");
                assert_eq!(mock.count("lists") > 0, has_lists);
                assert_eq!(mock.count("overlapping"), mock.count("lists"));
                assert_eq!(mock.count("pageable_copies"), 0);
                mock.assert_clean();
            }
        }
    });
}

#[test]
fn a_driver_that_refuses_lists_gets_single_copies() {
    within(BOUND, || {
        let (_folder, made) = files(20, &mut Random::new(2));
        for settings in ["fail=cuMemcpyBatchAsync_v2@2+:801", "pinnable=0"] {
            let mock = Mock::new(settings);
            assert_eq!(Case::new(&made, config()).check(&mock, Consumer::Look, usize::MAX), 8);
            assert!(mock.count("lists") <= 1 && mock.count("kernels") == 0);
            mock.assert_clean();
        }
    });
}

#[test]
fn samples_that_cannot_be_read_leave_no_gap() {
    within(BOUND, || {
        for on_error in [OnError::Skip, OnError::Replace] {
            let (folder, made) = files(40, &mut Random::new(3));
            for name in ["cat/0008", "dog/0021"] {
                std::fs::File::options()
                    .write(true)
                    .open(folder.path().join(name))
                    .and_then(|file| file.set_len(1000))
                    .expect("a file");
            }
            let mock = Mock::new("");
            let case = Case::new(&made, Config { on_error, ..config() });
            assert_eq!(case.check(&mock, Consumer::Look, usize::MAX), 16);
            assert_eq!(mock.count("kernels"), 0);
            mock.assert_clean();
        }
    });
}

#[test]
fn little_host_memory_or_padding_keeps_the_other_way() {
    within(BOUND, || {
        let (_folder, made) = files(20, &mut Random::new(4));
        // Less than two batches; and a form that kernels make.
        let tight = Config { memory_limit: Some(2 << 20), ..config() };
        let padded = Config { collate: Collate::Padded(uringload::config::Padding::default()), ..config() };
        for config in [tight, padded] {
            let mock = Mock::new("");
            assert_eq!(Case::new(&made, config).check(&mock, Consumer::Look, usize::MAX), 8);
            assert!(mock.count("kernels") > 0 && mock.count("lists") == 0);
            mock.assert_clean();
        }
    });
}

/// A loader to the mock's device.
fn device_bytes(mock: &Mock, made: &Arc<dyn Dataset>, batch: u64, host_bytes: u64) -> u64 {
    let builder = Loader::builder(Arc::clone(made)).batch_size(batch).memory_limit(host_bytes);
    let loader = builder.device(Device::cuda(0).library(mock.path())).build().expect("a loader");
    loader.route().devices[0].memory_bytes
}

#[test]
fn three_batches_are_on_the_device_and_none_as_it_was_read() {
    within(BOUND, || {
        let mock = Mock::new("");
        // A tenth of 8 x 140 MB.
        let (_folder, made) = records(24, 14_000_000);
        let batch = 8 * 14_000_000;
        let straight = device_bytes(&mock, &made, 8, 2 * batch + (8 << 20));
        // With memory for one batch alone, it goes as it was read.
        let raw = device_bytes(&mock, &made, 8, batch + (4 << 20));
        assert!(straight * 2 <= raw && raw >= 6 * batch, "{straight} of {raw}");
        assert!((3 * batch..3 * batch + (1 << 20)).contains(&straight), "{straight}");
        // Lengths that differ: three of the mean, and one of the largest.
        let (folder, _) = files(30, &mut Random::new(5));
        std::fs::write(folder.path().join("cat/large"), vec![7; 12 << 20]).expect("a file");
        let options = Options::new().format("folder").set("dtype", DType::U8);
        let made = dataset::open(&[folder.path()], &options).expect("a folder");
        let bytes = device_bytes(&mock, &made, 4, 64 << 20);
        assert!(((12 << 20)..(15 << 20)).contains(&bytes), "{bytes}");
        let case = Case::new(&made, Config { memory_limit: Some(64 << 20), ..config() });
        assert_eq!(case.check(&mock, Consumer::Look, usize::MAX), 14);
        mock.assert_clean();
    });
}

#[test]
fn too_little_device_memory_is_refused_with_the_arithmetic() {
    let (_folder, made) = records(24, MIB);
    let mock = Mock::new("");
    let device = Device::cuda(0).library(mock.path()).memory_limit(7 << 20);
    let builder = Loader::builder(made).batch_size(8).memory_limit(64 << 20).device(device);
    let error = builder.build().expect_err("an error");
    assert!(error.kind() == ErrorKind::MemoryLimit && error.to_string().contains("8389"), "{error}");
}

/// Calls of the driver for a loader of one batch of `samples` of 4 MiB, but for those that only ask.
fn calls(mock: &Mock, samples: usize) -> u64 {
    let (_folder, made) = records(samples, 4 * MIB);
    let before = mock.count("calls") - mock.count("looks");
    let host_bytes = 2 * (samples as u64 * (4 << 20)) + (16 << 20);
    let builder = Loader::builder(made).batch_size(samples as u64).epochs(1).memory_limit(host_bytes);
    let mut loader = builder.device(Device::cuda(0).library(mock.path())).build().expect("a loader");
    assert_eq!(loader.by_ref().inspect(|batch| assert!(batch.is_ok(), "{batch:?}")).count(), 1);
    drop(loader);
    mock.count("calls") - mock.count("looks") - before
}

#[test]
fn a_copy_of_32_mib_takes_three_calls_at_most() {
    within(BOUND, || {
        let mock = Mock::new("");
        let (one, five) = (calls(&mock, 8), calls(&mock, 40));
        assert_eq!(mock.count("lists"), 6);
        assert!(five - one <= 4 * 3, "{one} calls for 1 copy, {five} for 5");
        mock.assert_clean();
    });
}

//! A consumer in safe Rust on the mock: this library's own streams, and measured copies.

use crate::common::Mock;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::Device;
use uringload::dataset::{self, Options};
use uringload::inspect::raw::bus;
use uringload::inspect::raw::bus::COPY_BYTES;
use uringload::{ErrorKind, Loader};
use uringload_sys::cuda::{Context, Stream, StreamRef};

#[test]
fn a_stream_of_ones_own_is_kept_by_the_batches_that_wait_on_it() {
    let mock = Mock::new("kernel_us=500");
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    std::fs::write(folder.path().join("records"), vec![7; 40 * 1000]).expect("room for a file");
    let options = Options::new().format("records").set("record_bytes", 1000);
    let records = dataset::open(&[folder.path()], &options).expect("records");
    let device = Device::cuda(0).library(mock.path());
    let mut loader = Loader::builder(records).batch_size(8).device(device).build().expect("a loader");
    let batch = loader.next().expect("a batch").expect("no error");
    let streams = mock.count("streams");
    let compute = Arc::new(Stream::for_compute(batch.context().expect("a GPU")).expect("a stream"));
    batch.wait_on(&compute).expect("its own");
    batch.wait_on(&compute).expect("once more");
    drop(compute);
    assert_eq!(mock.count("streams"), streams + 1, "the batch tells it when it is dropped");
    let kept = batch.columns[0].clone();
    drop(batch);
    assert_eq!(mock.count("streams"), streams + 1, "a column is of the batch");
    drop(kept);
    assert_eq!(mock.count("streams"), streams);
    assert_eq!(loader.by_ref().count(), 4);
    drop(loader);
    mock.assert_clean();
}

#[test]
fn a_stream_of_another_device_is_refused_and_not_kept() {
    let mock = Mock::new("devices=2");
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    std::fs::write(folder.path().join("records"), vec![7; 8000]).expect("room for a file");
    let options = Options::new().format("records").set("record_bytes", 1000);
    let records = dataset::open(&[folder.path()], &options).expect("records");
    let device = Device::cuda(0).library(mock.path());
    let mut loader = Loader::builder(records).batch_size(8).device(device).build().expect("a loader");
    let batch = loader.next().expect("a batch").expect("no error");
    let other = Context::new(batch.context().expect("a GPU").driver(), 1).expect("a GPU");
    let there = Arc::new(Stream::for_compute(&other).expect("a stream"));
    assert_eq!(batch.wait_on(&there).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(Arc::strong_count(&there), 1);
    batch.wait_on(StreamRef::LEGACY).expect("everybody has it");
    drop((batch, loader, there, other));
    mock.assert_clean();
}

#[test]
fn copies_are_measured_by_the_slowest_of_what_they_pass() {
    // 32 MiB take 3.2 ms plus 1 ms: 8 GB/s.
    let mock = Mock::new("devices=2,copy_us=1000,mib_us=100");
    let here = mock.context();
    let there = Context::new(here.driver(), 1).expect("a GPU");
    let one = bus::measure(std::slice::from_ref(&here), Duration::from_millis(300)).expect("rates");
    let both = bus::measure(&[here.clone(), there.clone()], Duration::from_millis(300)).expect("rates");
    for (rates, most) in [(one, 8.0e9), (both, 16.0e9)] {
        for rate in [rates.pinned, rates.pageable] {
            assert!(rate.bytes > 0 && rate.bytes.is_multiple_of(COPY_BYTES as u64), "{rate:?}");
            // The mock takes at least as long as it is told to.
            assert!(rate.bytes_per_second() > 0.0 && rate.bytes_per_second() <= most * 1.01, "{rate:?}");
        }
    }
    assert!(mock.count("allocations") == 0 && mock.count("registrations") == 0);
    drop((here, there));
    mock.assert_clean();
}

#[test]
fn what_cannot_be_measured_is_an_error() {
    assert_eq!(bus::measure(&[], Duration::from_millis(10)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    for settings in ["pinnable=1000", "memory=1048576", "fail=cuMemcpyHtoDAsync_v2@3:700"] {
        let mock = Mock::new(settings);
        let error = bus::measure(&[mock.context()], Duration::from_millis(50)).unwrap_err();
        assert!(error.kind() == ErrorKind::Device && !error.to_string().is_empty(), "{settings}: {error}");
        mock.assert_given_back();
    }
}

//! Pinned memory of a loader whose batches stay on the host: copies that the consumer queued read it after the batch
//! was dropped, and must find its content.

use crate::common::case::reference;
use crate::common::cufile::records;
use crate::common::{Mock, Random, within};
use bytes::Bytes;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::Builder;
use uringload::batch::Data;
use uringload::config::{Cause, Collate, Device};
use uringload::dataset::Dataset;
use uringload::{ErrorKind, Loader};
use uringload_sys::cuda::{Context, DeviceMemory, Span, Stream, StreamRef};

type Upload = unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> c_int;

const BOUND: Duration = Duration::from_secs(60);
const RECORD_BYTES: u64 = 5000;
const RECORDS: usize = 240;
const BATCH: usize = 8;
/// A copy takes longer than reading several batches.
const SLOW: &str = "copy_us=20000";

/// Room for three batches.
fn builder(dataset: &Arc<dyn Dataset>, mock: &Mock, collate: Collate) -> Builder {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(BATCH as u64).epochs(1).memory_limit(192 << 10);
    builder.collate(collate).pin(Device::cuda(0).library(mock.path()))
}

/// The memory of a batch's first column.
fn blocks(data: Data) -> Vec<Bytes> {
    match data {
        Data::Dense { bytes, .. } => vec![bytes],
        Data::Views(views) => views,
        other => panic!("{other:?}"),
    }
}

/// Queues a copy of `bytes` without waiting for it.
fn upload(mock: &Mock, context: &Context, bytes: &Bytes, to: u64, stream: StreamRef) {
    // SAFETY: the type is that of `cuda.h`.
    let upload = unsafe { mock.function::<Upload>("cuMemcpyHtoDAsync_v2") };
    let _current = context.enter().expect("a context");
    // SAFETY: the bytes exist now, and the device's memory is as long and outlives the stream. That the driver reads
    // them later is under test; they lie in the pool, which stays mapped until none of its memory is kept.
    assert_eq!(unsafe { upload(to, bytes.as_ptr().cast(), bytes.len(), stream.as_raw()) }, 0);
}

/// Queues a copy of each batch and drops the batch at once. Returns whether every copy found its batch's content.
fn train(dataset: &Arc<dyn Dataset>, mock: &Mock, collate: Collate, keeps: bool) -> bool {
    let context = mock.context();
    let stream = Stream::new(&context).expect("a stream");
    let target = DeviceMemory::new(&context, RECORDS * RECORD_BYTES as usize).expect("memory");
    let mut wanted = Vec::new();
    let mut loader = builder(dataset, mock, collate).build().expect("a loader");
    assert!(loader.route().pinned && loader.route().to_string().contains("pinned"), "{}", loader.route());
    assert!(loader.route().fallbacks.iter().all(|step| step.cause != Cause::Pinning));
    let memory = loader.pinned().expect("pinned memory").clone();
    for batch in &mut loader {
        let column = batch.expect("a batch").columns.swap_remove(0);
        let mut blocks = blocks(column.data);
        if keeps {
            blocks = memory.keep(blocks, reference(&stream)).expect("no error");
        }
        for bytes in blocks {
            upload(mock, &context, &bytes, target.address() + wanted.len() as u64, reference(&stream));
            wanted.extend_from_slice(&bytes);
        }
    }
    stream.synchronize().expect("no error");
    drop((loader, memory));
    let mut came = vec![0; wanted.len()];
    Span::new(&target, 0..wanted.len()).expect("inside").read(&mut came).expect("no error");
    assert_eq!(wanted.len(), RECORDS * RECORD_BYTES as usize);
    came == wanted
}

/// Waits for the thread that waits for streams, which ends after the loader.
fn wait_until_given_back(mock: &Mock) {
    let start = Instant::now();
    while mock.count("registrations") + mock.count("events") > 0 && start.elapsed() < BOUND {
        std::thread::sleep(Duration::from_millis(1));
    }
    mock.assert_given_back();
}

#[test]
fn what_was_dropped_is_kept_for_the_copy_that_was_queued() {
    within(BOUND, || {
        let made = records(RECORDS, RECORD_BYTES, &mut Random::new(1));
        for collate in [Collate::Dense, Collate::Views] {
            let settings = if collate == Collate::Dense { SLOW } else { "copy_us=2000" };
            let mock = Mock::new(settings);
            assert!(train(&made.dataset, &mock, collate, true), "{collate:?}");
            assert_eq!(mock.violations(), Vec::<String>::new());
            assert_eq!(mock.count("pageable_copies"), 0);
            wait_until_given_back(&mock);
        }
    });
}

/// Shows that the test above can fail.
#[test]
fn what_is_not_kept_is_another_batchs_by_then() {
    within(BOUND, || {
        let made = records(RECORDS, RECORD_BYTES, &mut Random::new(1));
        let mock = Mock::new(SLOW);
        assert!(!train(&made.dataset, &mock, Collate::Dense, false));
        assert!(!mock.violations().is_empty());
    });
}

#[test]
fn kept_memory_outlives_the_loader() {
    within(BOUND, || {
        let made = records(RECORDS, RECORD_BYTES, &mut Random::new(2));
        let mock = Mock::new(SLOW);
        let context = mock.context();
        let stream = Stream::new(&context).expect("a stream");
        let target = DeviceMemory::new(&context, BATCH * RECORD_BYTES as usize).expect("memory");
        let mut loader = builder(&made.dataset, &mock, Collate::Dense).build().expect("a loader");
        let column = loader.next().expect("a batch").expect("a batch").columns.swap_remove(0);
        let memory = loader.pinned().expect("pinned memory");
        let kept = memory.keep(blocks(column.data), reference(&stream)).expect("no error");
        let clone = kept[0].clone();
        drop((loader, kept));
        let wanted = clone.to_vec();
        upload(&mock, &context, &clone, target.address(), reference(&stream));
        drop(clone);
        stream.synchronize().expect("no error");
        let mut came = vec![0; wanted.len()];
        Span::new(&target, 0..wanted.len()).expect("inside").read(&mut came).expect("no error");
        assert!(came == wanted && mock.violations().is_empty(), "{:?}", mock.violations());
        drop((target, stream, context));
        wait_until_given_back(&mock);
    });
}

/// Whether the memory is not pinned and the loader says so.
fn is_unpinned(loader: &Loader) -> bool {
    let route = loader.route();
    let is_told = route.fallbacks.iter().any(|step| step.cause == Cause::Pinning);
    is_told && !route.pinned && loader.pinned().is_none()
}

#[test]
fn what_cannot_be_is_told() {
    within(BOUND, || {
        let made = records(RECORDS, RECORD_BYTES, &mut Random::new(3));
        let build = |device: Device| Loader::builder(Arc::clone(&made.dataset)).pin(device).build();
        let nowhere = "/nowhere/libcuda.so.1";
        let error = build(Device::cuda(0).library(nowhere)).expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(build(Device::host()).expect_err("an error").kind(), ErrorKind::InvalidArgument);
        let loader = build(Device::auto().library(nowhere)).expect("a loader");
        assert!(is_unpinned(&loader), "{:?}", loader.route());
        assert_eq!(loader.map(|batch| batch.expect("a batch").len()).sum::<usize>(), RECORDS);
        // The driver locks no page.
        let unpinned = Mock::new("pinnable=0");
        let loader = build(Device::cuda(0).library(unpinned.path())).expect("a loader");
        assert!(is_unpinned(&loader), "{:?}", loader.route());
        let two = Mock::new("devices=2");
        let other = Context::new(&two.open().expect("a driver"), 1).expect("a context");
        let stream = Stream::new(&other).expect("a stream");
        let loader = build(Device::cuda(0).library(two.path())).expect("a loader");
        let error = loader.pinned().expect("pinned memory").keep(Vec::new(), reference(&stream)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let pinned = Loader::builder(Arc::clone(&made.dataset)).pin(Device::auto());
        let error = pinned.device(Device::host()).build().expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    });
}

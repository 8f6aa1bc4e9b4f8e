//! What a consumer may do with batches: keep them, drop them early or late, use them on streams of its own, outlive the
//! loader. Memory that is used again too early shows as a wrong byte.

use crate::common::device::{records, values};
use crate::common::random::Random;
use crate::common::within;
use crate::machine::{cases, folder, gpu, seed};
use crate::pipeline::{archive, config, first, on_gpu};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use uringload::config::Config;
use uringload::config::{Collate, Device};
use uringload::dataset::{DType, Dataset};
use uringload::device::DeviceBatch;
use uringload::{ErrorKind, Loader};
use uringload_sys::cuda::{Context, Copies, DeviceMemory, Event, Kernels, Piece, Span, Stream, StreamRef, Timing};

/// Nothing here takes as long.
const BOUND: Duration = Duration::from_secs(120);

/// A step of little work and a long chain of it: some 0.2 ms.
const STEP_BYTES: usize = 256;
const STEP_ROUNDS: u32 = 100_000;

/// 41 records of 60 000 bytes, and what each batch of eight of them has in its first column, over `epochs`.
struct Data {
    _root: tempfile::TempDir,
    dataset: Arc<dyn Dataset>,
    config: Config,
    expected: Vec<Bytes>,
}

fn data(seed: u64, epochs: u64) -> Data {
    data_of(Config { epochs: Some(epochs), ..config(seed, Collate::Dense) })
}

fn data_of(config: Config) -> Data {
    let root = folder();
    let dataset = records(root.path(), DType::U8, &[60_000]);
    let host = Loader::builder(Arc::clone(&dataset)).config(config.clone()).build().expect("a loader");
    let column = |batch: uringload::Result<uringload::batch::Batch>| values(&batch.expect("a batch").columns[0].data);
    let expected = host.map(column).collect();
    Data { _root: root, dataset, config, expected }
}

/// A stream of the test's own, as a caller's is: it is never destroyed.
fn stream(context: &Context) -> (&'static Stream, StreamRef) {
    let stream: &'static Stream = Box::leak(Box::new(Stream::new(context).expect("a stream")));
    // SAFETY: the stream was leaked, so it outlives everything.
    let reference = unsafe { stream.stream_ref() };
    (stream, reference)
}

#[test]
fn a_slow_consumer_gets_every_batch() {
    let Some(_) = gpu("a_slow_consumer_gets_every_batch") else { return };
    let data = data(seed("a_slow_consumer_gets_every_batch"), 10);
    let mut random = Random::new(1);
    let mut kept: Vec<(usize, DeviceBatch)> = Vec::new();
    let mut batches = 0;
    for (index, batch) in on_gpu(&data.dataset, &data.config).enumerate() {
        std::thread::sleep(Duration::from_millis(random.below(8)));
        kept.push((index, batch.expect("a batch")));
        // Of the memory for three batches one must be free.
        if kept.len() == 2 {
            let (index, batch) = kept.swap_remove(random.below(2) as usize);
            assert!(first(&batch) == data.expected[index], "batch {index}");
        }
        batches += 1;
    }
    assert_eq!(batches, data.expected.len());
}

#[test]
fn who_keeps_all_memory_is_told() {
    let Some(_) = gpu("who_keeps_all_memory_is_told") else { return };
    let data = data(seed("who_keeps_all_memory_is_told"), 10);
    let config = Config { starved_after: Duration::from_millis(100), ..data.config };
    let mut loader = on_gpu(&data.dataset, &config);
    let mut kept = Vec::new();
    let error = loop {
        match loader.next().expect("it does not end") {
            Ok(batch) => kept.push(batch),
            Err(error) => break error,
        }
        assert!(kept.len() < 20, "no memory holds so much");
    };
    assert_eq!(error.kind(), ErrorKind::Starved);
    for (batch, expected) in kept.drain(..).zip(&data.expected) {
        assert!(first(&batch) == *expected);
    }
    assert!(loader.next().expect("it goes on").is_ok());
}

#[test]
fn a_loader_may_be_dropped_at_any_moment() {
    let Some(context) = gpu("a_loader_may_be_dropped_at_any_moment") else { return };
    let seed = seed("a_loader_may_be_dropped_at_any_moment");
    let data = data(seed, 100);
    let archives = folder();
    let other = archive(archives.path());
    let mut random = Random::new(seed);
    let free = || context.memory().expect("the driver tells").0;
    let before = free();
    // A device's memory would not hold what so many loaders take if one of them gave nothing back.
    let limit = (before / 16).max(64 << 20);
    for round in 0..cases(24).max(3) {
        let (dataset, collate) =
            if round % 2 == 0 { (&data.dataset, Collate::Dense) } else { (&other, Collate::Ragged) };
        let config = Config { collate, ..data.config.clone() };
        let builder = Loader::builder(Arc::clone(dataset)).config(config);
        let mut loader = builder.device(Device::cuda(0).memory_limit(limit)).build().expect("a loader");
        let taken: Vec<_> = loader.by_ref().take(random.below(6) as usize).collect();
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        if round % 3 == 0 {
            drop(taken);
        }
        within(BOUND, || drop(loader));
    }
}

#[test]
fn batches_outlive_their_loader() {
    let Some(_) = gpu("batches_outlive_their_loader") else { return };
    let data = data(seed("batches_outlive_their_loader"), 10);
    let mut loader = on_gpu(&data.dataset, &data.config);
    let batches: Vec<_> = loader.by_ref().take(2).map(|batch| batch.expect("a batch")).collect();
    let column = batches[1].columns[0].clone();
    drop(loader);
    assert!(first(&batches[0]) == data.expected[0]);
    drop(batches);
    assert!(column.memory.to_host().expect("bytes") == data.expected[1]);
}

/// Kernels of the consumer's read each batch, on its own stream, behind a long step: the batch is dropped as soon as
/// they are started, and its memory must not be used again until they are done.
#[test]
fn memory_waits_for_the_stream_that_uses_it() {
    let Some(context) = gpu("memory_waits_for_the_stream_that_uses_it") else { return };
    let data = data(seed("memory_waits_for_the_stream_that_uses_it"), 10);
    let (stream, reference) = stream(&context);
    let kernels = Kernels::new(&context);
    let mut copies = Copies::new(&context).expect("a stream");
    let batch_bytes = data.expected.iter().map(Bytes::len).max().expect("batches");
    let room = (batch_bytes + Piece::BYTES).next_multiple_of(256);
    let memory = DeviceMemory::new(&context, room * data.expected.len() + STEP_BYTES).expect("memory");
    let span = |start: usize, len: usize| Span::new(&memory, start..start + len).expect("a place");
    let floats = span(room * data.expected.len(), STEP_BYTES);
    for (index, batch) in on_gpu(&data.dataset, &data.config).enumerate() {
        let batch = batch.expect("a batch");
        batch.wait_on(reference).expect("it waits");
        kernels.burn(stream, &floats, STEP_ROUNDS).expect("a step");
        let from = batch.columns[0].memory.as_cuda().expect("it lies on the device").clone();
        let piece = Piece { source: from.address(), target: 0, len: from.len() as u64 };
        let at = index * room;
        let table = copies.start(Bytes::copy_from_slice(&piece.encode()), &span(at, Piece::BYTES)).expect("a copy");
        copies.stream().synchronize().expect("a copy");
        let to = span(at + Piece::BYTES, from.len());
        kernels.gather(stream, (&table, 0..Piece::BYTES), &from, &to).expect("a kernel");
    }
    stream.synchronize().expect("kernels");
    for (index, expected) in data.expected.iter().enumerate() {
        let mut got = vec![0; expected.len()];
        span(index * room + Piece::BYTES, got.len()).read(&mut got).expect("a copy");
        assert!(got == *expected, "batch {index}");
    }
}

/// What is behind work that was told to wait for a batch, the host waits for, and for nothing else.
#[test]
fn the_default_streams_wait_for_batches() {
    let Some(context) = gpu("the_default_streams_wait_for_batches") else { return };
    let data = data(seed("the_default_streams_wait_for_batches"), 10);
    let mut batches = 0;
    for (index, batch) in on_gpu(&data.dataset, &data.config).enumerate() {
        let batch = batch.expect("a batch");
        let stream = [StreamRef::LEGACY, StreamRef::PER_THREAD][index % 2];
        assert!(stream.is_of(&context).expect("the driver tells"));
        batch.wait_on(stream).expect("it waits");
        let behind = Event::awaited(&context).expect("an event");
        behind.record_in(stream).expect("the driver records");
        behind.wait().expect("no error");
        assert!(batch.is_ready().expect("the driver tells"), "batch {index}");
        let from = batch.columns[0].memory.as_cuda().expect("it lies on the device");
        let mut got = vec![0; from.len()];
        from.read(&mut got).expect("a copy");
        assert!(got == data.expected[index], "batch {index}");
        batches += 1;
    }
    assert_eq!(batches, data.expected.len());
}

/// Batches stay on the host, in pinned memory, which is enough for one: a copy takes it to the device, and a
/// long step is put into the consumer's stream. The next batch is only read when that is done.
#[test]
fn pinned_memory_of_the_host_waits_for_the_stream_that_reads_it() {
    let Some(context) = gpu("pinned_memory_of_the_host_waits_for_the_stream_that_reads_it") else { return };
    let seed = seed("pinned_memory_of_the_host_waits_for_the_stream_that_reads_it");
    // All of one size: a short last one would fit beside another.
    let data = data_of(Config { epochs: Some(5), drop_last: true, ..config(seed, Collate::Dense) });
    let (stream, reference) = stream(&context);
    let kernels = Kernels::new(&context);
    let mut copies = Copies::new(&context).expect("a stream");
    let batch_bytes = data.expected.iter().map(Bytes::len).max().expect("batches");
    let memory = DeviceMemory::new(&context, batch_bytes.next_multiple_of(256) + STEP_BYTES).expect("memory");
    let floats = Span::new(&memory, memory.len() - STEP_BYTES..memory.len()).expect("a place");
    let config = Config { memory_limit: Some(batch_bytes as u64 * 7 / 4), ..data.config.clone() };
    let builder = Loader::builder(Arc::clone(&data.dataset)).config(config);
    let mut loader = builder.pin(Device::cuda(0)).build().expect("a loader");
    assert!(loader.route().pinned, "{:?}", loader.route());
    let pinned = loader.pinned().expect("pinned memory").clone();
    // Not the stream's idleness: behind the step it has work of the loader's, which need not be over.
    let step = Event::new(&context, Timing::Off).expect("an event");
    for (index, batch) in loader.by_ref().enumerate() {
        assert!(step.is_done().expect("the driver tells"), "batch {index} was read before the step was done");
        let bytes = values(&batch.expect("a batch").columns[0].data);
        assert!(bytes == data.expected[index], "batch {index}");
        let mut kept = pinned.keep(vec![bytes], reference).expect("no error");
        let to = Span::new(&memory, 0..kept[0].len()).expect("a place");
        copies.start(kept.swap_remove(0), &to).expect("a copy");
        copies.stream().synchronize().expect("a copy");
        kernels.burn(stream, &floats, 20 * STEP_ROUNDS).expect("a step");
        step.record(stream).expect("the driver records");
        // The last holder.
        copies.finished().expect("the driver tells");
        assert_eq!(copies.under_way(), 0);
        let mut got = vec![0; data.expected[index].len()];
        to.read(&mut got).expect("a copy");
        assert!(got == data.expected[index], "batch {index}");
    }
    assert_eq!(loader.stats().snapshot().count.batches, data.expected.len() as u64);
}

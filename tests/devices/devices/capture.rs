//! Captures of streams (CUDA graphs) beside a loader: none of its threads' calls ends a capture, nor does a batch that
//! is waited on or dropped in one, and no memory is reused before its time. `URINGLOAD_SEED=N` runs one seed again,
//! `URINGLOAD_SEEDS=N` sets their number.

use crate::common::case::reference;
use crate::common::cufile::records;
use crate::common::{Answer, Mock, Random, within};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uringload::batch::{Batch, Data};
use uringload::config::Config;
use uringload::config::{Collate, Device, EngineChoice};
use uringload::dataset::Dataset;
use uringload::device::DeviceBatch;
use uringload::{DeviceLoader, ErrorKind, Loader};
use uringload_sys::cuda::{Context, DeviceMemory, Stream, StreamRef};

const SEEDS: u64 = 200;
const BOUND: Duration = Duration::from_secs(60);
const GLOBAL: c_int = 0;
const RELAXED: c_int = 2;
const UNSUPPORTED: c_int = 900;
const INVALIDATED: c_int = 901;

type Begin = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type End = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type Query = unsafe extern "C" fn(*mut c_void) -> c_int;
type Exchange = unsafe extern "C" fn(*mut c_int) -> c_int;

/// The calls of code that captures, so that another thread can make them.
#[derive(Clone, Copy)]
pub(super) struct Capturer {
    begin: Begin,
    end: End,
    stream: StreamRef,
    mode: c_int,
}

impl Capturer {
    pub(super) fn new(mock: &Mock, stream: StreamRef, mode: c_int) -> Capturer {
        // SAFETY: the types are those of `cuda.h`.
        let begin = unsafe { mock.function::<Begin>("cuStreamBeginCapture_v2") };
        // SAFETY: as above.
        let end = unsafe { mock.function::<End>("cuStreamEndCapture") };
        Capturer { begin, end, stream, mode }
    }

    fn begin(&self, context: &Context) {
        let _current = context.enter().expect("a context");
        // SAFETY: every test keeps the stream until the capture is over.
        assert_eq!(unsafe { (self.begin)(self.stream.as_raw(), self.mode) }, 0);
    }

    /// What the end of the capture answers.
    fn end(&self) -> c_int {
        let mut graph = 0;
        // SAFETY: as above; the place fits a handle.
        unsafe { (self.end)(self.stream.as_raw(), &raw mut graph) }
    }

    /// Captures in a thread of its own until the sender is dropped.
    pub(super) fn elsewhere(self, context: &Context) -> (mpsc::Sender<()>, JoinHandle<c_int>) {
        let (sender, receiver) = mpsc::channel::<()>();
        let (started, waits) = mpsc::channel();
        let context = context.clone();
        let thread = std::thread::spawn(move || {
            self.begin(&context);
            let _ = started.send(());
            let _ = receiver.recv();
            self.end()
        });
        waits.recv().expect("a capture");
        (sender, thread)
    }
}

/// Shows that the mock refuses what a driver refuses, so that the tests below can fail.
#[test]
fn a_call_that_a_capture_cannot_see_ends_it() {
    let mock = Mock::new("");
    let context = mock.context();
    let stream = Stream::new(&context).expect("a stream");
    // SAFETY: the types are those of `cuda.h`.
    let query = unsafe { mock.function::<Query>("cuStreamQuery") };
    // SAFETY: as above.
    let exchange = unsafe { mock.function::<Exchange>("cuThreadExchangeStreamCaptureMode") };
    let other = Stream::new(&context).expect("a stream");
    // SAFETY: the stream lives.
    let ask = || unsafe { query(reference(&other).as_raw()) };
    for (mode, answer) in [(GLOBAL, UNSUPPORTED), (1, 0), (RELAXED, 0)] {
        let (sender, thread) = Capturer::new(&mock, reference(&stream), mode).elsewhere(&context);
        assert_eq!(ask(), answer, "mode {mode}");
        drop(sender);
        assert_eq!(thread.join().expect("a thread"), if answer == 0 { 0 } else { INVALIDATED });
    }
    let (sender, thread) = Capturer::new(&mock, reference(&stream), GLOBAL).elsewhere(&context);
    let mut relaxed = RELAXED;
    // SAFETY: the place is an int.
    assert_eq!(unsafe { exchange(&raw mut relaxed) }, 0);
    assert_eq!((relaxed, ask()), (GLOBAL, 0));
    // SAFETY: as above.
    assert_eq!(unsafe { exchange(&raw mut relaxed) }, 0);
    assert_eq!(relaxed, RELAXED, "the thread's mode is restored");
    // Our own calls leave a thread's mode as it was.
    assert!(other.is_idle().expect("no error"));
    assert_eq!(mock.count("refused"), 1);
    assert!(reference(&stream).is_capturing(&context).expect("no error"));
    assert!(!reference(&other).is_capturing(&context).expect("no error"));
    assert_eq!(ask(), UNSUPPORTED);
    drop(sender);
    assert_eq!(thread.join().expect("a thread"), INVALIDATED);
    // A wait for work outside ends a capture in any mode.
    let event = uringload_sys::cuda::Event::new(&context, uringload_sys::cuda::Timing::Off).expect("an event");
    event.record(&other).expect("no error");
    let own = Capturer::new(&mock, reference(&stream), RELAXED);
    own.begin(&context);
    assert_eq!(stream.wait(&event).expect_err("an error").code, 905);
    assert_eq!(own.end(), INVALIDATED);
    drop((event, stream, other, context));
    mock.assert_clean();
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn captures_and_loaders_do_not_disturb_each_other() {
    let seeds = match number("URINGLOAD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("URINGLOAD_SEEDS").unwrap_or(SEEDS),
    };
    let made = records(60, 3000, &mut Random::new(1));
    let mocks = Arc::new([Mock::new(""), Mock::without("cuStreamWriteValue32_v2", "")]);
    let mut captured = 0;
    for seed in seeds.clone() {
        let (mocks, dataset) = (Arc::clone(&mocks), Arc::clone(&made.dataset));
        let run = move || run(&mocks[(seed % 2) as usize], &dataset, seed);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| within(BOUND, run))) {
            Ok(captures) => captured += captures,
            Err(panic) => {
                eprintln!("URINGLOAD_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(captured as u64 >= 3 * (seeds.end - seeds.start), "{captured} captures");
}

/// Trains through one epoch, capturing this and that stream meanwhile; the number of captures.
fn run(mock: &Mock, dataset: &Arc<dyn Dataset>, seed: u64) -> usize {
    let mut random = Random::new(seed);
    let mut time = |most: [u64; 3]| most[random.below(3)];
    let (copy, kernel, jitter) = (time([0, 0, 100]), time([0, 0, 200]), time([0, 50, 300]));
    mock.configure(&format!("copy_us={copy},kernel_us={kernel},jitter_us={jitter},seed={seed}"));
    let context = mock.context();
    let aside = Stream::new(&context).expect("a stream");
    // A capture somewhere in the process, from before the loader is built until it is gone, in every other run.
    let around = random
        .chance(2)
        .then(|| Capturer::new(mock, reference(&aside), [GLOBAL, GLOBAL, RELAXED][random.below(3)]))
        .map(|capturer| capturer.elsewhere(&context));
    let config = Config {
        batch_size: 4 + random.below(5) as u64,
        epochs: Some(1),
        shuffle: random.chance(2).into(),
        seed,
        engine: [EngineChoice::Auto, EngineChoice::Threads][random.below(2)],
        collate: Collate::Dense,
        memory_limit: Some(1 << 20),
        ..Config::default()
    };
    let builder = || Loader::builder(Arc::clone(dataset)).config(config.clone());
    let device = Device::cuda(0).library(mock.path());
    let mut loader = builder().device(device).build().expect("a loader");
    let mut host = builder().build().expect("a loader to the host");
    let mut trainer = Trainer::new(mock, &context, random);
    for batch in loader.by_ref() {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                // Captures of one stream may follow each other so closely that the loader's thread, which asks from
                // time to time, never finds the stream without one. All of them then hold the batches dropped in them,
                // which can be as many as there is memory for, while the trainer waits here inside the last one.
                assert!(error.kind() == ErrorKind::Starved && trainer.captures_compute(), "{error}");
                trainer.end();
                continue;
            }
        };
        let wanted = host.next().expect("a batch").expect("no error");
        trainer.train(batch, &wanted);
    }
    assert!(host.next().is_none());
    let captures = trainer.finish() + usize::from(around.is_some());
    drop(loader);
    if let Some((sender, thread)) = around {
        drop(sender);
        assert_eq!(thread.join().expect("a thread"), 0, "the capture has failed");
    }
    drop((aside, context));
    assert_eq!(mock.count("refused"), 0);
    mock.assert_clean();
    mock.reset();
    captures
}

/// Who captures at the moment.
enum Under {
    Own(Capturer),
    Other(mpsc::Sender<()>, JoinHandle<c_int>),
}

/// A trainer that captures streams while it uses batches.
struct Trainer<'a> {
    mock: &'a Mock,
    context: Context,
    random: Random,
    compute: Stream,
    side: Stream,
    under: Option<Under>,
    captures: usize,
    reads: VecDeque<(Answer, Bytes)>,
}

impl<'a> Trainer<'a> {
    fn new(mock: &'a Mock, context: &Context, random: Random) -> Trainer<'a> {
        let stream = || Stream::new(context).expect("a stream");
        let (compute, side) = (stream(), stream());
        let (context, reads) = (context.clone(), VecDeque::new());
        Trainer { mock, context, random, compute, side, under: None, captures: 0, reads }
    }

    fn train(&mut self, batch: DeviceBatch, wanted: &Batch) {
        // What was dropped in the capture returns only now.
        self.end();
        let wanted = bytes(wanted);
        match self.random.below(5) {
            0 => self.read(batch, wanted),
            // The stream that uses the batch is captured when the batch is dropped.
            1 => {
                self.consume(&batch, wanted);
                self.begin_compute();
                drop(batch);
            }
            // It is captured when it is to wait for the batch.
            2 => {
                self.begin_compute();
                batch.wait_on(reference(&self.compute)).expect("no error");
                assert!(batch.is_ready().expect("no error"), "the host has waited");
                assert_eq!(batch.columns[0].memory.to_host().expect("no error"), wanted);
            }
            // Another stream is.
            3 => {
                let mode = self.random.below(3) as c_int;
                self.begin(reference(&self.side), mode);
                self.read(batch, wanted);
            }
            // Another stream is, by another thread.
            _ => {
                let capturer = Capturer::new(self.mock, reference(&self.side), GLOBAL);
                let (sender, thread) = capturer.elsewhere(&self.context);
                self.under = Some(Under::Other(sender, thread));
                self.captures += 1;
                self.read(batch, wanted);
            }
        }
    }

    /// Reads the batch in the stream for a while, and drops it at once.
    fn read(&mut self, batch: DeviceBatch, wanted: Bytes) {
        self.consume(&batch, wanted);
    }

    fn consume(&mut self, batch: &DeviceBatch, wanted: Bytes) {
        let stream = reference(&self.compute);
        batch.wait_on(stream).expect("no error");
        let time = Duration::from_micros([0, 100, 900][self.random.below(3)]);
        let memory = &batch.columns[0].memory;
        let answer = self.mock.consume_bytes(&self.context, stream, memory.address(), memory.len(), time);
        self.reads.push_back((answer, wanted));
    }

    fn begin_compute(&mut self) {
        let mode = self.random.below(3) as c_int;
        self.begin(reference(&self.compute), mode);
    }

    /// Whether the stream that uses batches is being captured.
    fn captures_compute(&self) -> bool {
        matches!(&self.under, Some(Under::Own(capturer)) if capturer.stream == reference(&self.compute))
    }

    fn begin(&mut self, stream: StreamRef, mode: c_int) {
        let capturer = Capturer::new(self.mock, stream, mode);
        capturer.begin(&self.context);
        self.under = Some(Under::Own(capturer));
        self.captures += 1;
    }

    fn end(&mut self) {
        let ended = match self.under.take() {
            None => 0,
            Some(Under::Own(capturer)) => capturer.end(),
            Some(Under::Other(sender, thread)) => {
                drop(sender);
                thread.join().expect("a thread")
            }
        };
        assert_eq!(ended, 0, "the capture has failed");
    }

    /// Compares what was read; the number of captures.
    fn finish(mut self) -> usize {
        self.end();
        for (answer, wanted) in std::mem::take(&mut self.reads) {
            let came = self.mock.consumed(&self.context, &answer).expect("what the trainer has read");
            assert!(came == wanted, "wrong bytes");
        }
        self.captures
    }
}

/// A copy of the bytes of a batch's column on the host.
fn bytes(batch: &Batch) -> Bytes {
    let Data::Dense { bytes, .. } = &batch.columns[0].data else { panic!("dense") };
    Bytes::copy_from_slice(bytes)
}

fn loader(dataset: &Arc<dyn Dataset>, mock: &Mock) -> DeviceLoader {
    let config = Config { batch_size: 4, epochs: Some(1), collate: Collate::Dense, ..Config::default() };
    let config = Config { starved_after: Duration::from_millis(100), memory_limit: Some(1 << 20), ..config };
    let device = Device::cuda(0).library(mock.path());
    Loader::builder(Arc::clone(dataset)).config(config).device(device).build().expect("a loader")
}

#[test]
fn a_capture_that_does_not_end_holds_its_batches_and_the_loader_says_so() {
    within(BOUND, || {
        let made = records(600, 3000, &mut Random::new(2));
        let mock = Mock::new("");
        let context = mock.context();
        let compute = Stream::new(&context).expect("a stream");
        let mut loader = loader(&made.dataset, &mock);
        let batch = loader.next().expect("a batch").expect("no error");
        batch.wait_on(reference(&compute)).expect("no error");
        let capturer = Capturer::new(&mock, reference(&compute), GLOBAL);
        capturer.begin(&context);
        drop(batch);
        let (mut came, mut starved) = (1, None);
        while starved.is_none() {
            match loader.next().expect("more") {
                Ok(batch) => {
                    batch.wait_on(reference(&compute)).expect("no error");
                    came += 1;
                }
                Err(error) => starved = Some(error),
            }
        }
        let error = starved.expect("an error");
        assert_eq!(error.kind(), ErrorKind::Starved, "{error}");
        assert!(error.to_string().contains("capture") && error.remedy().is_some_and(|text| text.contains("capture")));
        assert!((3..100).contains(&came), "{came} batches");
        assert_eq!(capturer.end(), 0);
        // Nothing is lost, and nothing is reported again.
        came += loader.by_ref().inspect(|batch| assert!(batch.is_ok(), "{batch:?}")).count();
        assert_eq!(came, 150);
        drop((loader, compute, context));
        assert_eq!(mock.count("refused"), 0);
        mock.assert_clean();
    });
}

#[test]
fn memory_kept_for_a_captured_stream_returns_when_its_capture_has_ended() {
    within(BOUND, || {
        let made = records(60, 3000, &mut Random::new(3));
        let mock = Mock::new("copy_us=3000");
        let context = mock.context();
        let stream = Stream::new(&context).expect("a stream");
        let target = DeviceMemory::new(&context, 12_000).expect("memory");
        let builder = Loader::builder(Arc::clone(&made.dataset)).batch_size(4).epochs(1).collate(Collate::Dense);
        let builder = builder.memory_limit(192 << 10).pin(Device::cuda(0).library(mock.path()));
        let mut loader = builder.build().expect("a loader");
        let memory = loader.pinned().expect("pinned memory").clone();
        // SAFETY: the type is that of `cuda.h`.
        let upload = unsafe {
            mock.function::<unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> c_int>(
                "cuMemcpyHtoDAsync_v2",
            )
        };
        let mut came = 0;
        for batch in &mut loader {
            let column = batch.expect("a batch").columns.swap_remove(0);
            let Data::Dense { bytes, .. } = column.data else { panic!("dense") };
            let kept = memory.keep(vec![bytes], reference(&stream)).expect("no error");
            let current = context.enter().expect("a context");
            // SAFETY: the bytes exist, and what is under test keeps them until the copy is done.
            let code = unsafe {
                upload(target.address(), kept[0].as_ptr().cast(), kept[0].len(), reference(&stream).as_raw())
            };
            assert_eq!(code, 0);
            drop(current);
            // The copy is in the stream when its capture begins, and the memory is dropped in the capture.
            let capturer = Capturer::new(&mock, reference(&stream), GLOBAL);
            capturer.begin(&context);
            drop(kept);
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(capturer.end(), 0);
            came += 1;
        }
        assert_eq!(came, 15);
        stream.synchronize().expect("no error");
        drop((loader, memory, target, stream, context));
        let start = Instant::now();
        while mock.count("registrations") + mock.count("events") + mock.count("contexts") > 0 && start.elapsed() < BOUND
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((mock.count("refused"), mock.violations()), (0, Vec::new()));
        mock.assert_given_back();
    });
}

//! The loader's calls to the driver (`sys::cuda`), and proof that the mock notices the errors it is there to notice.

use crate::common::case::Case;
use crate::common::{Mock, Random, dataset, skip, within};
use bytes::Bytes;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::config::Config;
use uringload::config::{Cause, Gds};
use uringload::inspect::GdsSearch;
use uringload_sys::cuda::{
    Context, Copies, CudaError, DeviceMemory, Event, Fill, Kernel, Kernels, Notice, Piece, Pinned, ProbeError,
    SharedStream, Span, Stream, StreamRef, Timing,
};
use uringload_sys::{Arena, Part};

const BOUND: Duration = Duration::from_secs(60);
const UPLOAD: &str = "cuMemcpyHtoDAsync_v2";
type Upload = unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> c_int;

/// A span of a whole new allocation.
fn span(context: &Context, len: usize) -> Span {
    Span::new(&DeviceMemory::new(context, len).expect("memory"), 0..len).expect("all of it")
}

/// Pinned memory, and its bytes.
fn pinned(context: &Context, len: usize) -> (Pinned, Part) {
    let (arena, part) = Arena::reserve(len).expect("an arena");
    (Pinned::new(context, &arena).expect("memory that may be pinned"), part)
}

fn reference(stream: &Stream) -> StreamRef {
    // SAFETY: every test keeps the stream until it is done with whatever it gave the reference to.
    unsafe { stream.stream_ref() }
}

#[test]
fn a_driver_that_is_none_says_what_to_do() {
    assert_eq!(Mock::new("init=34").open().unwrap_err(), ProbeError::Stub);
    assert_eq!(Mock::new("driver=11080").open().unwrap_err(), ProbeError::TooOld(11080));
    assert_eq!(Mock::new("devices=0").open().unwrap_err(), ProbeError::NoDevice);
    assert_eq!(Mock::new("init=100").open().unwrap_err(), ProbeError::NoDevice);
    let mismatch = Mock::new("init=803").open().unwrap_err();
    assert!(matches!(mismatch, ProbeError::Init(error) if error.code == 803) && mismatch.remedy().contains("restart"));
    let fabric = Mock::new("init=802").open().unwrap_err();
    assert!(fabric.to_string().contains("CUDA_ERROR_SYSTEM_NOT_READY (802)"), "{fabric}");
    assert!(fabric.remedy().contains("fabric manager"), "{}", fabric.remedy());
    assert!(matches!(Mock::new("fail=cuDeviceGetCount@1:999").open().unwrap_err(), ProbeError::Init(_)));
    for symbol in ["cuMemHostRegister_v2", "cuStreamGetCtx", "cuLaunchKernel"] {
        assert_eq!(Mock::without(symbol, "").open().unwrap_err(), ProbeError::MissingSymbol(symbol));
    }
}

#[test]
fn devices_are_described() {
    let mock = Mock::new("devices=3,memory=1000000");
    let driver = mock.open().expect("a driver");
    assert_eq!((driver.devices(), driver.version()), (3, 12040));
    let info = driver.info(2).expect("a device");
    assert_eq!((info.name.as_str(), info.memory_bytes, info.compute), ("Mock GPU 2", 1_000_000, (8, 0)));
    assert_eq!(info.pci, "ffff:02:1f.7");
    assert_eq!(driver.info(3).unwrap_err(), ProbeError::NoSuchDevice(3, 3));
    assert_eq!(Context::new(&driver, 3).unwrap_err(), ProbeError::NoSuchDevice(3, 3));
    mock.assert_clean();
}

#[test]
fn a_context_is_shared_and_given_back() {
    let mock = Mock::new("devices=2");
    let driver = mock.open().expect("a driver");
    let (first, again) = (Context::new(&driver, 0).expect("one"), Context::new(&driver, 0).expect("the same"));
    let other = Context::new(&driver, 1).expect("another device's");
    assert!(first.is_same(&again) && !first.is_same(&other));
    assert_eq!(mock.count("contexts"), 3);
    drop((first, other));
    assert_eq!(again.memory().expect("still there").1, 1 << 30);
    drop(again);
    mock.assert_clean();
    let refused = Mock::new("fail=cuDevicePrimaryCtxRetain@1:2");
    let error = Context::new(&refused.open().expect("a driver"), 0).unwrap_err();
    assert!(matches!(error, ProbeError::Init(error) if error.is_out_of_memory()));
    refused.assert_clean();
}

/// Copies random lengths from blocks that are overwritten as soon as they come home.
fn copy_much(mock: &Mock, notice: Notice, seed: u64) {
    const BLOCK: usize = 40_000;
    let context = mock.context();
    let mut random = Random::new(seed);
    let (pinned, mut rest) = pinned(&context, BLOCK * 4);
    let mut copies = Copies::new(&context).expect("a stream");
    assert_eq!(copies.notice(), notice);
    let mut expected = random.bytes(BLOCK * 8);
    let target = span(&context, expected.len());
    let whole = copies.start(Bytes::from(expected.clone()), &target).expect("a copy");
    assert_eq!((whole.bytes().len(), whole.span().address()), (expected.len(), target.address()));
    let mut finished = 0;
    let mut blocks: Vec<Part> = (0..4).map(|_| rest.split_to(BLOCK)).collect();
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut started = expected.len() as u64;
    for _ in 0..60 {
        let mut block = match blocks.pop() {
            Some(block) => block,
            None => {
                while let Ok(block) = receiver.try_recv() {
                    blocks.push(block);
                }
                finished += copies.finished().expect("no error");
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
        };
        let (len, at) = (random.below(BLOCK), random.below(expected.len() - BLOCK));
        let fresh = random.bytes(len);
        block.as_mut()[..len].copy_from_slice(&fresh);
        expected[at..at + len].copy_from_slice(&fresh);
        let bytes = Bytes::from_owner(Home(Some(block), sender.clone())).slice(..len);
        copies.start(bytes, &target.slice(at..at + len).expect("inside")).expect("a copy");
        started += len as u64;
    }
    copies.stream().synchronize().expect("no error");
    while copies.under_way() > 0 {
        finished += copies.finished().expect("no error");
    }
    assert_eq!(finished, started);
    let mut came = vec![0; expected.len()];
    target.read(&mut came).expect("no error");
    assert!(came == expected, "seed {seed}: wrong bytes");
    assert_eq!(mock.count("pageable_copies"), 1);
    drop((copies, whole, target, pinned, context));
    mock.assert_clean();
}

/// A block that comes home when its last reader is dropped.
struct Home(Option<Part>, std::sync::mpsc::Sender<Part>);

impl AsRef<[u8]> for Home {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.0.take().map(|part| self.1.send(part));
    }
}

#[test]
fn blocks_come_home_when_their_copies_are_done_and_not_before() {
    within(BOUND, || {
        for seed in 0..6 {
            let settings = format!("copy_us={},jitter_us={},seed={seed}", seed * 40, seed * 60);
            copy_much(&Mock::new(&settings), Notice::Flag, seed);
            copy_much(&Mock::without("cuStreamWriteValue32_v2", &settings), Notice::Events, seed);
            // The driver may have the function and not support it, as on virtual GPUs.
            let settings = format!("{settings},fail=cuStreamWriteValue32_v2@1+:801");
            copy_much(&Mock::new(&settings), Notice::Events, seed);
        }
    });
}

/// A driver that loads kernels lazily is asked to load them before the first launch; an older one loads them at once.
#[test]
fn kernels_are_loaded_before_they_are_launched() {
    let mock = Mock::new("fail=cuFuncLoad@1:209");
    let kernels = Kernels::new(&mock.context());
    assert_eq!(kernels.prepare(&[Kernel::Gather]).expect_err("refused").code, 209);
    kernels.prepare(&[Kernel::Gather]).expect("not refused again");
    drop(kernels);
    mock.assert_clean();
    Kernels::new(&Mock::without("cuFuncLoad", "").context()).prepare(&[Kernel::Gather]).expect("it is not needed");
}

/// The mock's devices are of compute capability 8.0, for which there is machine code: one module, whatever is loaded. A
/// driver that does not take it compiles the PTX of each kernel.
#[test]
fn machine_code_is_loaded_once_and_ptx_where_it_is_refused() {
    for (settings, cubins, modules) in [("", 1, 1), ("cubins=0", 0, 3), ("fail=cuModuleLoadData@1:222", 0, 3)] {
        let mock = Mock::new(settings);
        let kernels = Kernels::new(&mock.context());
        let wanted = [Kernel::Gather, Kernel::ImagesBF16, Kernel::Pad];
        (0..2).for_each(|_| kernels.prepare(&wanted).expect("kernels"));
        assert_eq!((mock.count("cubins"), mock.count("modules")), (cubins, modules), "{settings}");
        drop(kernels);
        mock.assert_clean();
    }
}

#[test]
fn host_memory_that_changes_before_its_copy_is_noticed() {
    let mock = Mock::new("copy_us=400000");
    let context = mock.context();
    let (_pinned, mut part) = pinned(&context, 4096);
    let stream = Stream::new(&context).expect("a stream");
    let target = span(&context, 4096);
    // SAFETY: the type is that of `cuda.h`.
    let upload = unsafe { mock.function::<Upload>(UPLOAD) };
    let current = context.enter().expect("a context");
    let start = |part: &Part| {
        // SAFETY: the memory is registered and outlives the stream's work, which is waited for below.
        unsafe { upload(target.address(), part.as_ref().as_ptr().cast(), 4096, reference(&stream).as_raw()) }
    };
    assert_eq!(start(&part), 0);
    stream.synchronize().expect("no error");
    assert_eq!(mock.violations().len(), 0);
    assert_eq!(start(&part), 0);
    part.as_mut()[1000] ^= 1;
    stream.synchronize().expect("no error");
    let violations = mock.violations();
    assert!(violations.len() == 1 && violations[0].contains("changed at byte 1000"), "{violations:?}");
    // The copy took the late content: a slot that is reused too early shows in its bytes as well.
    let mut came = vec![0; 4096];
    target.read(&mut came).expect("no error");
    assert_eq!(came[1000], 1);
    drop(current);
}

#[test]
fn device_memory_that_is_written_while_it_is_read_is_noticed() {
    let mock = Mock::new("");
    let context = mock.context();
    let target = span(&context, 4096);
    let mut copies = Copies::new(&context).expect("a stream");
    let trainer = Stream::new(&context).expect("a stream");
    let loaded = Event::new(&context, Timing::Off).expect("an event");
    let read = Event::new(&context, Timing::Off).expect("an event");
    let ready = |copies: &Copies| {
        loaded.record(copies.stream()).expect("recorded");
        trainer.wait(&loaded).expect("no error");
    };
    copies.start(Bytes::from(vec![1; 4096]), &target).expect("a copy");
    ready(&copies);
    let first = mock.consume(&context, reference(&trainer), &target, Duration::from_millis(5));
    read.record(&trainer).expect("recorded");
    copies.stream().wait(&read).expect("no error");
    copies.start(Bytes::from(vec![2; 4096]), &target).expect("a copy");
    assert_eq!(mock.consumed(&context, &first), Ok(vec![1; 4096]));
    ready(&copies);
    let second = mock.consume(&context, reference(&trainer), &target, Duration::ZERO);
    assert_eq!(mock.consumed(&context, &second), Ok(vec![2; 4096]));
    assert_eq!(mock.violations(), Vec::<String>::new());
    // The trainer has long finished, but the copy is not ordered after it.
    copies.start(Bytes::from(vec![3; 10]), &target).expect("a copy");
    copies.stream().synchronize().expect("no error");
    let violations = mock.violations();
    assert!(violations.len() == 1 && violations[0].contains("unordered"), "{violations:?}");
    // The host knows of it, so what the host starts is ordered.
    mock.reset();
    trainer.synchronize().expect("no error");
    copies.start(Bytes::from(vec![4; 4096]), &target).expect("a copy");
    copies.stream().synchronize().expect("no error");
    assert_eq!(mock.violations(), Vec::<String>::new());
    // A reader that did not wait for the copy, which is so slow that the host does not know of its end.
    mock.configure("copy_us=20000");
    copies.start(Bytes::from(vec![5; 4096]), &target).expect("a copy");
    let early = mock.consume(&context, reference(&trainer), &target, Duration::ZERO);
    let _ = mock.consumed(&context, &early);
    copies.stream().synchronize().expect("no error");
    assert_eq!(mock.violations().len(), 1);
}

/// Shows that the mock's default stream waits as a driver's does, so that what waits for a trainer there is found.
#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    type Create = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int;
    type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
    const TIME: Duration = Duration::from_millis(50);
    let mock = Mock::new("");
    let context = mock.context();
    // SAFETY: the types are those of `cuda.h`.
    let create = unsafe { mock.function::<Create>("cuStreamCreate") };
    // SAFETY: as above.
    let destroy = unsafe { mock.function::<Destroy>("cuStreamDestroy_v2") };
    let mut raw = std::ptr::null_mut();
    let current = context.enter().expect("a context");
    // SAFETY: the place fits a handle.
    assert_eq!(unsafe { create(&raw mut raw, 0) }, 0);
    // SAFETY: the stream is destroyed at the end.
    let blocking = unsafe { StreamRef::from_raw(raw) };
    let own = Stream::new(&context).expect("a stream");
    let memory = span(&context, 4096);
    for (first, second, waits) in [
        (StreamRef::LEGACY, blocking, true),
        (blocking, StreamRef::LEGACY, true),
        (StreamRef::LEGACY, reference(&own), false),
        (reference(&own), StreamRef::LEGACY, false),
        (blocking, reference(&own), false),
    ] {
        let begin = Instant::now();
        let long = mock.consume(&context, first, &memory, TIME);
        let short = mock.consume(&context, second, &memory, Duration::ZERO);
        mock.consumed(&context, &short).expect("what it has read");
        assert_eq!(begin.elapsed() >= TIME, waits, "{first:?}, {second:?}");
        mock.consumed(&context, &long).expect("what it has read");
    }
    // SAFETY: it is no longer used.
    assert_eq!(unsafe { destroy(raw) }, 0);
    drop((own, memory, current));
    drop(context);
    mock.assert_clean();
}

#[test]
fn memory_that_is_not_there_is_an_error_for_good() {
    // SAFETY: the type is that of `cuda.h`.
    let upload_of = |mock: &Mock| unsafe { mock.function::<Upload>(UPLOAD) };
    for wrong in 0..4 {
        let mock = Mock::new("copy_us=20000");
        let context = mock.context();
        let stream = Stream::new(&context).expect("a stream");
        let memory = DeviceMemory::new(&context, 4096).expect("memory");
        let (pinned, part) = pinned(&context, 4096);
        let current = context.enter().expect("a context");
        let mut address = memory.address();
        let mut held = (Some(memory), Some(pinned));
        match wrong {
            0 => address += 1,
            1 => address -= 1,
            2 => held.0 = None,
            _ => {}
        }
        // SAFETY: the host's memory outlives the test; the device's address is the mock's to judge.
        let started =
            unsafe { upload_of(&mock)(address, part.as_ref().as_ptr().cast(), 4096, reference(&stream).as_raw()) };
        assert_eq!(started, 0);
        if wrong == 3 {
            // Unregistered before it was read.
            held.1 = None;
        }
        let error = stream.synchronize().unwrap_err();
        assert_eq!((error.code, error.is_fatal()), (700, true), "{wrong}");
        assert_eq!(mock.count("illegal"), 1);
        assert_eq!(Event::new(&context, Timing::Off).unwrap_err().code, 700);
        assert_eq!(stream.is_idle().unwrap_err().code, 700);
        drop(current);
        drop((held, stream, context));
        mock.assert_given_back();
    }
}

#[test]
fn events_come_to_pass_in_order_and_know_when() {
    let mock = Mock::new("copy_us=3000");
    let context = mock.context();
    let mut copies = Copies::new(&context).expect("a stream");
    let target = span(&context, 64);
    let [start, end, never] = [(); 3].map(|()| Event::new(&context, Timing::On).expect("an event"));
    assert!(never.is_done().expect("no error"));
    // No machine is so slow that the copy is over before it is looked at.
    mock.configure("held=1");
    start.record(copies.stream()).expect("recorded");
    copies.start(Bytes::from_static(&[7; 64]), &target).expect("a copy");
    end.record(copies.stream()).expect("recorded");
    assert!(!end.is_done().expect("no error"));
    assert_eq!(end.since(&start).unwrap_err().code, 600);
    let other = Stream::new(&context).expect("a stream");
    other.wait(&end).expect("no error");
    assert!(!other.is_idle().expect("no error"));
    mock.configure("held=0");
    other.synchronize().expect("no error");
    assert!(end.is_done().expect("no error"));
    let took = end.since(&start).expect("both are there");
    assert!(took >= Duration::from_millis(3) && took < BOUND, "{took:?}");
    assert!(never.since(&start).is_err());
    copies.finished().expect("no error");
    drop((copies, target, start, end, never, other, context));
    mock.assert_clean();
}

#[test]
fn what_is_refused_is_an_error_and_leaves_nothing() {
    let mock = Mock::new("memory=1000000,taken=400000");
    let context = mock.context();
    assert_eq!(context.memory().expect("numbers"), (600_000, 1_000_000));
    let held = DeviceMemory::new(&context, 500_000).expect("memory");
    let error = DeviceMemory::new(&context, 100_001).unwrap_err();
    assert!(error.is_out_of_memory() && !error.is_fatal());
    drop(held);
    DeviceMemory::new(&context, 600_000).expect("it was given back");
    mock.configure("pinnable=100");
    let (arena, _part) = Arena::reserve(4096).expect("an arena");
    assert!(Pinned::new(&context, &arena).is_err());
    // No pinned memory for the flag: events are used.
    let mut copies = Copies::new(&context).expect("a stream");
    assert_eq!(copies.notice(), Notice::Events);
    let target = span(&context, 10);
    assert_eq!(copies.start(Bytes::from_static(&[0; 11]), &target).unwrap_err().code, 1);
    mock.configure(&format!("fail={UPLOAD}@1:1,fail=cuEventCreate@1:2"));
    assert!(copies.start(Bytes::from_static(&[0; 10]), &target).is_err());
    assert_eq!(copies.under_way(), 0);
    // The copy started but could not be marked: it is waited for all the same.
    assert!(copies.start(Bytes::from_static(&[0; 10]), &target).unwrap_err().is_out_of_memory());
    assert_eq!(copies.under_way(), 1);
    drop((copies, target, context));
    mock.assert_clean();
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let mock = Mock::new("devices=2");
    let driver = mock.open().expect("a driver");
    let [here, there] = [0, 1].map(|device| Context::new(&driver, device).expect("a context"));
    let [own, other] = [&here, &there].map(|context| Stream::new(context).expect("a stream"));
    let event = Event::new(&here, Timing::Off).expect("an event");
    assert_eq!(reference(&own).is_of(&here), Ok(true));
    assert_eq!(reference(&other).is_of(&here), Ok(false));
    assert_eq!(StreamRef::LEGACY.is_of(&here), Ok(true));
    assert_eq!(StreamRef::PER_THREAD.is_of(&there), Ok(true));
    assert_eq!(event.record_in(reference(&other)).unwrap_err().code, 400);
    let nobodys = std::ptr::without_provenance_mut(0x77_7770);
    // SAFETY: it is not a stream, and the mock finds that out.
    assert_eq!(unsafe { StreamRef::from_raw(nobodys) }.is_of(&here).unwrap_err().code, 400);
    // SAFETY: null is the legacy default stream.
    assert_eq!(unsafe { StreamRef::from_raw(std::ptr::null_mut()) }, StreamRef::LEGACY);
    drop((own, other, event, here, there));
    mock.assert_clean();
}

/// A process can load two drivers, and one driver's handle is a dangling pointer to the other. Here both count their
/// handles from the same number, so neither would notice.
#[test]
fn handles_of_another_driver_are_refused() {
    let mocks = [Mock::new(""), Mock::new("")];
    let [here, there] = [mocks[0].context(), mocks[1].context()];
    let [own, other] = [&here, &there].map(|context| Arc::new(Stream::new(context).expect("a stream")));
    let [event, others] = [&here, &there].map(|context| Event::new(context, Timing::On).expect("an event"));
    let shared = SharedStream::from(&other);
    assert_eq!(shared.is_of(&here), Ok(false));
    assert_eq!(SharedStream::from(&own).is_of(&here), Ok(true));
    let mut copies = Copies::new(&there).expect("a stream");
    let table = copies.start(Bytes::from_static(&[0; Piece::BYTES]), &span(&there, Piece::BYTES)).expect("a copy");
    let (kernels, floats) = (Kernels::new(&here), span(&here, 64));
    let answers = [
        event.record(&other),
        other.wait(&event),
        shared.wait(&event),
        shared.record(&event),
        event.since(&others).map(drop),
        kernels.burn(&other, &floats, 1),
        kernels.fill(&other, &floats, Fill { pattern: 0, size: 1 }),
        kernels.gather(&own, (&table, 0..Piece::BYTES), &floats, &floats),
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        let Err(refused) = answer else { panic!("call {index} is not refused") };
        assert_eq!(refused.code, 400, "{index}");
    }
    assert_eq!((mocks[0].count("kernels"), mocks[1].count("kernels")), (0, 0));
    drop((own, other, event, others, shared, copies, table, kernels, floats, here, there));
    mocks.iter().for_each(Mock::assert_clean);
}

#[test]
fn a_context_that_somebody_destroyed_is_an_error_everywhere() {
    let mock = Mock::new("copy_us=5000");
    let context = mock.context();
    let mut copies = Copies::new(&context).expect("a stream");
    let target = span(&context, 100);
    let kernels = Kernels::new(&context);
    let event = Event::new(&context, Timing::Off).expect("an event");
    copies.start(Bytes::from_static(&[1; 100]), &target).expect("a copy");
    mock.configure("destroy=0");
    let error = copies.start(Bytes::from_static(&[1; 100]), &target).unwrap_err();
    assert!(error.is_destroyed_context() && error.is_fatal(), "{error}");
    assert!(
        target.read(&mut [0; 100]).unwrap_err().downcast::<CudaError>().is_ok_and(|error| error.is_destroyed_context())
    );
    assert!(Stream::new(&context).unwrap_err().is_fatal());
    drop((copies, target, kernels, event, context));
    mock.assert_clean();
}

#[test]
fn a_device_that_falls_off_ends_every_wait() {
    within(BOUND, || {
        for after in 0..8 {
            let mock = Mock::new("copy_us=2000");
            let context = mock.context();
            mock.configure(&format!("lose=0@{after}:46"));
            let mut copies = Copies::new(&context);
            let mut error = copies.as_ref().err().copied();
            if let Ok(copies) = &mut copies {
                let target = DeviceMemory::new(&context, 100).map(|memory| Span::new(&memory, 0..100).expect("all"));
                for _ in 0..8 {
                    let Ok(target) = &target else { break };
                    error = error.or(copies.start(Bytes::from_static(&[1; 100]), target).err());
                }
                error = error.or(copies.stream().synchronize().err());
                error = error.or(target.err());
                // With flags there is no error here: whoever waits for a flag also asks for an event.
                let told = copies.finished();
                assert!(told.is_err() || copies.notice() == Notice::Flag || copies.under_way() == 0);
            }
            let error = error.expect("an error");
            assert!(error.code == 46 && error.is_fatal(), "{after}: {error}");
            drop(copies);
            drop(context);
            // A copy that may still be in flight keeps its source and its target.
            for name in ["streams", "events", "modules", "allocations"] {
                assert_eq!(mock.count(name), 0, "{after}: {name}");
            }
            assert_eq!(mock.violations(), Vec::<String>::new());
        }
    });
}

#[test]
fn a_forked_child_is_refused_at_once() {
    let mock = Mock::new("copy_us=100000");
    let context = mock.context();
    let mut copies = Copies::new(&context).expect("a stream");
    let target = span(&context, 100);
    copies.start(Bytes::from_static(&[1; 100]), &target).expect("a copy");
    let start = Instant::now();
    // SAFETY: the child calls the driver, which refuses, and leaves through `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = |code: i32| code == 3;
        let answers = [
            copies.start(Bytes::from_static(&[2; 100]), &target).map(drop),
            copies.stream().synchronize(),
            Stream::new(&context).map(drop),
            context.memory().map(drop),
        ];
        let well = answers.iter().all(|answer| answer.as_ref().is_err_and(|error| refused(error.code)));
        // SAFETY: ends the child at once, without the parent's destructors.
        unsafe { libc::_exit(if well { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the place fits an int, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
    assert!(start.elapsed() < BOUND);
    copies.stream().synchronize().expect("the parent goes on");
    drop((copies, target, context));
    mock.assert_clean();
}

/// Files of a system with two nodes of memory, and the nodes that the mock's devices are next to.
fn two_nodes(devices: [&str; 2]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let put = |path: String, text: &str| {
        let path = root.path().join("sys").join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    put("devices/system/node/online".into(), "0-1\n");
    put("devices/system/node/node0/cpulist".into(), "0-1023\n");
    put("devices/system/node/node1/cpulist".into(), "1024-1025\n");
    for (number, node) in devices.into_iter().enumerate() {
        put(format!("bus/pci/devices/ffff:{number:02x}:1f.7/numa_node"), node);
    }
    root
}

/// What files are read into. What is put together on the host comes in addition.
const MEMORY_BYTES: u64 = 64 << 20;

/// Bytes of this process whose pages are preferably of node 0. The kernel makes one mapping of two that meet, so their
/// number says nothing.
fn held_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").expect("a kernel with nodes");
    let is_near = |how: &str| how.starts_with("prefer") && how.ends_with(":0");
    let number = |line: &str, name: &str| -> Option<u64> {
        line.split_whitespace().find_map(|word| word.strip_prefix(name)).and_then(|number| number.parse().ok())
    };
    let near = maps.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(is_near));
    near.filter_map(|line| Some(number(line, "anon=")? * number(line, "kernelpagesize_kB=")? * 1024)).sum()
}

#[test]
fn memory_is_of_the_node_that_all_devices_are_next_to() {
    if !std::path::Path::new("/proc/self/numa_maps").exists() {
        return skip("this kernel knows no nodes");
    }
    let made = dataset::mixed(40, false, &mut Random::new(8));
    let (mock, config) = (
        Mock::new("devices=2"),
        Config { batch_size: 5, memory_limit: Some(MEMORY_BYTES), epochs: None, ..Config::default() },
    );
    for (nodes, is_near) in [(["0", "0"], true), (["0", "1"], false), (["0", "-1"], false)] {
        let root = two_nodes(nodes);
        let gds = (Gds::Off, GdsSearch::default().root(root.path()));
        let case = Case { devices: 2, gds, ..Case::new(&made.dataset, config.clone()) };
        let loader = case.build(&mock);
        let route = loader.route();
        if let Some(step) = route.fallbacks.iter().find(|step| step.cause == Cause::MemoryNode) {
            return skip(step);
        }
        assert!(route.devices.iter().all(|device| device.is_near == is_near), "{nodes:?}: {route}");
        assert_eq!(route.to_string().contains("pinned memory of that node"), is_near, "{nodes:?}: {route}");
        // What files are read into, and what is put together on the host. Without an end, no memory is given back.
        let held = held_bytes();
        assert!(!is_near || held > MEMORY_BYTES, "{nodes:?}: {held} bytes");
        assert_eq!(loader.take(8).filter_map(Result::ok).count(), 8, "{nodes:?}");
    }
    mock.assert_clean();
}

//! Device memory of another allocator, such as a trainer's: taken once, given back once, and after all work.

use super::capture::Capturer;
use crate::common::case::reference;
use crate::common::cufile::records;
use crate::common::{Mock, Random, within};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uringload::batch::Data;
use uringload::config::{Collate, Device};
use uringload::dataset::Dataset;
use uringload::{DeviceBuilder, ErrorKind, Loader};
use uringload_sys::cuda::{DeviceAllocator, Stream, StreamRef};

const BOUND: Duration = Duration::from_secs(60);

/// The driver's memory, by way of an allocator that looks at a stream when it gets memory back.
#[derive(Debug)]
struct Pool {
    allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
    query: unsafe extern "C" fn(*mut c_void) -> c_int,
    consume: unsafe extern "C" fn(*mut c_void, u64, usize, u64, *mut usize) -> c_int,
    /// Microseconds that the trainer's last work on memory still takes when it is handed out, on the default stream.
    used_micros: AtomicU64,
    /// Added to each address.
    off: AtomicU64,
    /// Bytes that it has at most.
    most: AtomicU64,
    /// What was taken: device, address, bytes.
    taken: Mutex<Vec<(u32, u64, usize)>>,
    /// The trainer's stream, and what it answered when memory came back.
    stream: Mutex<Option<StreamRef>>,
    answers: Mutex<Vec<c_int>>,
}

// SAFETY: it is the driver's memory, which has no other owner until it is freed.
unsafe impl DeviceAllocator for Pool {
    fn allocate(&self, index: u32, len: usize) -> Result<(u64, StreamRef), String> {
        if len as u64 > self.most.load(Ordering::Relaxed) {
            return Err("the pool is empty".to_owned());
        }
        let mut address = 0;
        // SAFETY: the place fits an address; a context is current.
        let code = unsafe { (self.allocate)(&raw mut address, len + 256) };
        let address = address + self.off.load(Ordering::Relaxed);
        assert_eq!(code, 0);
        self.taken.lock().expect("no panic").push((index, address, len));
        let (micros, default) = (self.used_micros.load(Ordering::Relaxed), StreamRef::LEGACY);
        if micros > 0 {
            let mut answer = 0;
            // SAFETY: the stream is the device's default one; the place fits a number.
            assert_eq!(unsafe { (self.consume)(default.as_raw(), address, len, micros, &raw mut answer) }, 0);
        }
        Ok((address, default))
    }

    fn free(&self, index: u32, address: u64) {
        if let Some(stream) = *self.stream.lock().expect("no panic") {
            // SAFETY: the test keeps the stream.
            self.answers.lock().expect("no panic").push(unsafe { (self.query)(stream.as_raw()) });
        }
        let mut taken = self.taken.lock().expect("no panic");
        let known = taken.iter().position(|&(device, at, _)| (device, at) == (index, address)).expect("it was taken");
        taken.remove(known);
        // SAFETY: it was allocated above, and is no longer used.
        assert_eq!(unsafe { (self.free)(address - self.off.load(Ordering::Relaxed)) }, 0);
    }
}

fn pool(mock: &Mock) -> Arc<Pool> {
    // SAFETY: the types are those of `cuda.h`, here and below.
    let allocate = unsafe { mock.function("cuMemAlloc_v2") };
    // SAFETY: as above.
    let free = unsafe { mock.function("cuMemFree_v2") };
    // SAFETY: as above.
    let query = unsafe { mock.function("cuStreamQuery") };
    // SAFETY: the type is that of the mock's definition.
    let consume = unsafe { mock.function("mock_cuda_consume") };
    let (used_micros, off, most) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let (taken, stream, answers) = (Mutex::default(), Mutex::default(), Mutex::default());
    Arc::new(Pool { allocate, free, query, consume, used_micros, off, most, taken, stream, answers })
}

fn device(mock: &Mock, pool: &Arc<Pool>) -> Device {
    Device::cuda(0).library(mock.path()).allocator(Arc::clone(pool) as Arc<dyn DeviceAllocator>)
}

fn loader_of(dataset: &Arc<dyn Dataset>, mock: &Mock, pool: &Arc<Pool>) -> DeviceBuilder {
    Loader::builder(Arc::clone(dataset)).batch_size(4).memory_limit(1 << 20).device(device(mock, pool))
}

#[test]
fn memory_comes_from_an_allocator_and_returns_behind_all_work() {
    within(BOUND, || {
        let made = records(60, 3000, &mut Random::new(1));
        let mock = Mock::new("copy_us=100");
        let pool = pool(&mock);
        let builder =
            || Loader::builder(Arc::clone(&made.dataset)).batch_size(4).collate(Collate::Dense).memory_limit(1 << 20);
        let on_device = || -> DeviceBuilder { builder().device(device(&mock, &pool)) };
        let mut loader = on_device().build().expect("a loader");
        let bytes = loader.route().devices[0].memory_bytes;
        assert!(pool.taken.lock().expect("no panic").iter().any(|&(_, _, len)| len as u64 == bytes));
        let context = mock.context();
        let compute = Stream::new(&context).expect("a stream");
        // SAFETY: the stream outlives the batches and the loader.
        let stream = unsafe { compute.stream_ref() };
        *pool.stream.lock().expect("no panic") = Some(stream);
        let mut last = None;
        for wanted in builder().build().expect("a loader to the host") {
            let batch = loader.next().expect("as many").expect("a batch");
            let Data::Dense { bytes, .. } = &wanted.expect("a batch").columns[0].data else { panic!("dense") };
            assert!(batch.columns[0].memory.to_host().expect("bytes") == *bytes);
            last = Some(batch);
        }
        let batch = last.expect("a batch");
        batch.wait_on(stream).expect("no error");
        let memory = &batch.columns[0].memory;
        let time = Duration::from_millis(200);
        let answer = mock.consume_bytes(&context, stream, memory.address(), memory.len(), time);
        drop(loader);
        assert_eq!(pool.taken.lock().expect("no panic").len(), 1, "a batch keeps its memory");
        drop(batch);
        assert_eq!(pool.taken.lock().expect("no panic").len(), 0);
        assert_eq!(*pool.answers.lock().expect("no panic"), [0], "it came back while the trainer's stream worked");
        mock.consumed(&context, &answer).expect("what the trainer has read");
        *pool.stream.lock().expect("no panic") = None;
        // What it has not, and what it has at another place than it may.
        pool.most.store(4096, Ordering::Relaxed);
        let error = on_device().build().expect_err("an error");
        assert!(error.kind() == ErrorKind::MemoryLimit && error.to_string().contains("the pool is empty"), "{error}");
        pool.most.store(u64::MAX, Ordering::Relaxed);
        pool.off.store(128, Ordering::Relaxed);
        let error = on_device().build().expect_err("an error");
        assert!(error.kind() == ErrorKind::Device && error.to_string().contains("DeviceAllocator"), "{error}");
        assert_eq!(pool.taken.lock().expect("no panic").len(), 0);
        drop((compute, context));
        mock.assert_clean();
    });
}

/// A caching allocator hands out memory that kernels in the trainer's stream still use.
#[test]
fn memory_is_not_written_before_the_trainer_is_through_with_it() {
    within(BOUND, || {
        let made = records(60, 3000, &mut Random::new(1));
        let mock = Mock::new("");
        let pool = pool(&mock);
        pool.used_micros.store(50_000, Ordering::Relaxed);
        let loader = loader_of(&made.dataset, &mock, &pool);
        assert_eq!(loader.build().expect("a loader").map(|batch| batch.expect("a batch").len()).sum::<usize>(), 60);
        mock.assert_clean();
    });
}

/// Neither the end of a loader nor that of its last batch breaks a capture, and the memory comes back all the same.
#[test]
fn memory_returns_beside_a_capture() {
    within(BOUND, || {
        let made = records(60, 3000, &mut Random::new(1));
        let mock = Mock::new("copy_us=100");
        let pool = pool(&mock);
        let loader = loader_of(&made.dataset, &mock, &pool);
        let context = mock.context();
        let (captured, compute) = [0; 2].map(|_| Stream::new(&context).expect("a stream")).into();
        for mode in [0, 2] {
            let mut loader = loader.clone().build().expect("a loader");
            let batch = loader.next().expect("as many").expect("a batch");
            batch.wait_on(reference(&compute)).expect("no error");
            let memory = &batch.columns[0].memory;
            let time = Duration::from_millis(20);
            let answer = mock.consume_bytes(&context, reference(&compute), memory.address(), memory.len(), time);
            let (sender, thread) = Capturer::new(&mock, reference(&captured), mode).elsewhere(&context);
            drop(loader);
            drop(batch);
            assert_eq!(pool.taken.lock().expect("no panic").len(), 0);
            drop(sender);
            assert_eq!(thread.join().expect("a thread"), 0, "the capture is broken");
            mock.consumed(&context, &answer).expect("what the trainer has read");
        }
        // What a capture itself may use is never given back.
        let mut loader = loader.build().expect("a loader");
        let batch = loader.next().expect("as many").expect("a batch");
        batch.wait_on(reference(&captured)).expect("no error");
        let (sender, thread) = Capturer::new(&mock, reference(&captured), 0).elsewhere(&context);
        drop((loader, batch));
        drop(sender);
        assert_eq!((thread.join().expect("a thread"), pool.taken.lock().expect("no panic").len()), (0, 1));
        drop((captured, compute, context));
        assert_eq!(mock.violations(), Vec::<String>::new());
    });
}

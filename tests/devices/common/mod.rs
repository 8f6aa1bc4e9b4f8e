//! A mock driver per test: a copy of the built library, so that no test sees another one's settings.
// Each test is a crate of its own and uses only a part of this module.
#![allow(dead_code, unreachable_pub)]

pub mod case;
pub mod cufile;
pub mod dataset;
pub mod nvjpeg;

use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload_sys::cuda::{Context, Driver, ProbeError, Span, StreamRef};

/// Keeps the copies of loaded drivers, which are never unloaded because they have threads.
pub struct Mock {
    library: std::mem::ManuallyDrop<Library>,
    folder: TempDir,
}

/// Counters that are zero when everything was released.
pub const ALIVE: [&str; 6] = ["contexts", "streams", "events", "modules", "allocations", "registrations"];

impl Mock {
    /// A driver with these settings.
    pub fn new(settings: &str) -> Mock {
        Mock::made_of(&built(), settings)
    }

    /// A driver that lacks a function: its name in the file is changed.
    pub fn without(symbol: &str, settings: &str) -> Mock {
        let mut bytes = built();
        let (name, mut other) = (symbol.as_bytes(), symbol.as_bytes().to_vec());
        *other.last_mut().expect("a name") = b'X';
        let mut at = 0;
        let mut found = 0;
        while let Some(next) = bytes[at..].windows(name.len()).position(|window| window == name) {
            at += next;
            bytes[at..at + name.len()].copy_from_slice(&other);
            found += 1;
        }
        assert!(found > 0, "{symbol} is nowhere in the library");
        Mock::made_of(&bytes, settings)
    }

    fn made_of(bytes: &[u8], settings: &str) -> Mock {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = folder.path().join("libcuda.so.1");
        std::fs::write(&path, bytes).expect("room for the library");
        // SAFETY: the library is the mock; loading it runs nothing but Rust's own initializers.
        let library = std::mem::ManuallyDrop::new(unsafe { Library::new(&path) }.expect("a library"));
        let mock = Mock { library, folder };
        mock.configure(settings);
        mock
    }

    /// The library's path, as `libcuda.so.1`.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("libcuda.so.1")
    }

    /// The library's folder, for LD_LIBRARY_PATH.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn open(&self) -> Result<Driver, ProbeError> {
        Driver::open(Some(&self.path()))
    }

    /// The context of device 0.
    pub fn context(&self) -> Context {
        Context::new(&self.open().expect("a driver"), 0).expect("a context")
    }

    pub fn configure(&self, settings: &str) {
        let text = CString::new(settings).expect("no zero");
        // SAFETY: the type is that of the mock's definition.
        let configure = unsafe { self.function::<unsafe extern "C" fn(*const c_char) -> c_int>("mock_cuda_configure") };
        // SAFETY: the text ends with a zero and outlives the call.
        let code = unsafe { configure(text.as_ptr()) };
        assert_eq!(code, 0, "{settings}");
    }

    /// Returns to the initial state, except for live objects.
    pub fn reset(&self) {
        // SAFETY: the type is that of the mock's definition.
        let reset = unsafe { self.function::<unsafe extern "C" fn() -> c_int>("mock_cuda_reset") };
        // SAFETY: it takes no arguments.
        assert_eq!(unsafe { reset() }, 0);
    }

    /// A counter.
    pub fn count(&self, name: &str) -> u64 {
        let text = CString::new(name).expect("no zero");
        let mut count = 0;
        // SAFETY: the type is that of the mock's definition.
        let ask = unsafe { self.function::<unsafe extern "C" fn(*const c_char, *mut u64) -> c_int>("mock_cuda_count") };
        // SAFETY: the text ends with a zero, the place fits a `u64`, and both outlive the call.
        let code = unsafe { ask(text.as_ptr(), &raw mut count) };
        assert_eq!(code, 0, "no counter {name}");
        count
    }

    /// The violations so far.
    pub fn violations(&self) -> Vec<String> {
        type Ask = unsafe extern "C" fn(usize, *mut c_char, c_int) -> c_int;
        // SAFETY: the type is that of the mock's definition.
        let ask = unsafe { self.function::<Ask>("mock_cuda_violation") };
        let text = |index| {
            let mut bytes = vec![0u8; 512];
            // SAFETY: the buffer has the length that is passed.
            let code = unsafe { ask(index, bytes.as_mut_ptr().cast(), bytes.len() as c_int) };
            let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
            (code == 0).then_some(text)
        };
        (0..).map_while(text).collect()
    }

    /// Fails if anything was not released, if there was a violation, or if anything was put where the trainer works.
    pub fn assert_clean(&self) {
        assert_eq!(self.violations(), Vec::<String>::new());
        assert_eq!(self.count("on_default"), 0);
        self.assert_given_back();
    }

    /// The same, as soon as a thread that was left behind in a call has come back and released what it holds.
    pub fn assert_soon_clean(&self) {
        let start = Instant::now();
        while !self.alive().is_empty() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.assert_clean();
    }

    /// Fails if anything was not released.
    pub fn assert_given_back(&self) {
        assert_eq!(self.alive(), [], "not given back");
    }

    /// What was not released, and how many of each.
    fn alive(&self) -> Vec<(&'static str, u64)> {
        ALIVE.iter().map(|&name| (name, self.count(name))).filter(|(_, count)| *count > 0).collect()
    }

    /// Puts a trainer's kernel into a stream, which reads `span` for `time`.
    pub fn consume(&self, context: &Context, stream: StreamRef, span: &Span, time: Duration) -> Answer {
        self.consume_bytes(context, stream, span.address(), span.len(), time)
    }

    /// Like `consume`, for bytes at an address.
    pub fn consume_bytes(
        &self,
        context: &Context,
        stream: StreamRef,
        address: u64,
        len: usize,
        time: Duration,
    ) -> Answer {
        type Consume = unsafe extern "C" fn(*mut c_void, u64, usize, u64, *mut usize) -> c_int;
        let _current = context.enter().expect("a context");
        // SAFETY: the type is that of the mock's definition.
        let consume = unsafe { self.function::<Consume>("mock_cuda_consume") };
        let mut number = 0;
        let micros = time.as_micros() as u64;
        // SAFETY: the stream lives, as whoever made the reference promised; the place fits a number.
        let code = unsafe { consume(stream.as_raw(), address, len, micros, &raw mut number) };
        Answer { code, number, stream, len }
    }

    /// What a trainer's kernel read, once it is done; the error code if it did not run.
    pub fn consumed(&self, context: &Context, answer: &Answer) -> Result<Vec<u8>, c_int> {
        type Consumed = unsafe extern "C" fn(*mut c_void, usize, *mut u8, usize) -> c_int;
        if answer.code != 0 {
            return Err(answer.code);
        }
        let _current = context.enter().expect("a context");
        // SAFETY: the type is that of the mock's definition.
        let consumed = unsafe { self.function::<Consumed>("mock_cuda_consumed") };
        let mut bytes = vec![0; answer.len];
        // SAFETY: as above; the buffer has the length that is passed.
        let code = unsafe { consumed(answer.stream.as_raw(), answer.number, bytes.as_mut_ptr(), bytes.len()) };
        if code == 0 { Ok(bytes) } else { Err(code) }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `T` is a pointer to a function with its type.
    pub unsafe fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller promises the type; the library is never unloaded.
        *unsafe { self.library.get(name.as_bytes()) }.expect("a function of the mock")
    }
}

/// A trainer's kernel in flight.
pub struct Answer {
    code: c_int,
    number: usize,
    stream: StreamRef,
    len: usize,
}

/// The library that cargo built beside this test.
fn built() -> Vec<u8> {
    let test = std::env::current_exe().expect("a path");
    let path = test.parent().expect("a folder").join("liburingload_mock_cuda.so");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Random numbers that depend on a seed alone.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            std::iter::repeat_with(|| self.next().to_le_bytes()).take(len / 8 + 1).flatten().collect();
        bytes.truncate(len);
        bytes
    }
}

/// Says that something could not be tested here, and why; bypasses the test harness's capture.
pub fn skip(reason: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// Runs `work` on its own thread and fails if it takes longer than `bound`: a hang is a failure, not a long wait.
pub fn within<T: Send + 'static>(bound: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = sender.send(work());
    });
    // Ten builds beside it make a test that takes 10 s take a minute.
    let bound = 4 * bound;
    match receiver.recv_timeout(bound) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done after {bound:?}: it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a thread that ends well has sent its result"),
        },
    }
}

//! GPUDirect Storage: NVIDIA's libcufile, loaded at run time, behind types that keep what it touches alive.
//!
//! [`Cufile::open`] does everything that can hang on a thread of its own and comes back within its bound. Then a
//! [`FileHandle`] is a file that cuFile knows, a [`RegisteredBuffer`] is memory that it may write to, and
//! [`Cufile::read`] moves bytes from the one into the other. [`guards`] are what has to be looked at before: on a
//! system that lacks its share cuFile hangs, crashes, or copies through the host without a word.
//!
//! The functions are those that have been in every cuFile since 1.0. Neither the batch API is used (in compatibility
//! mode it ignores the offset into the buffer) nor the stream API (its arguments must outlive a stream that others
//! own).

mod abi;
mod buffer;
mod configuration;
mod environment;
mod error;
pub mod guards;
mod handle;
mod properties;
mod stdin;
mod table;

pub use buffer::{DeviceRange, RegisteredBuffer};
pub use configuration::{Configuration, VARIABLE};
pub use error::{CufileError, OpenError, ReadError};
pub use handle::FileHandle;
pub use properties::{GdsMode, Properties, Version};

use configuration::InForce;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use stdin::StandardInput;
use table::Table;

/// How cuFile is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The library to load, and no other; `None`: the one that the loader finds, or the first at `places`.
    pub library: Option<PathBuf>,
    /// Libraries, or folders of them, to look at where the loader finds none: the `lib64` of a CUDA toolkit, the
    /// `nvidia/cu13/lib` or `nvidia/cufile/lib` of Python's site-packages.
    pub places: Vec<PathBuf>,
    /// How it is configured.
    pub configuration: Configuration,
    /// How long opening it may take.
    pub bound: Duration,
}

/// How long closing the driver may take before it is left to itself.
const CLOSE_BOUND: Duration = Duration::from_secs(2);

/// Whether somebody opens cuFile in this process: the environment and standard input are the process's, and a library
/// that hangs once hangs again.
static OPENING: AtomicBool = AtomicBool::new(false);

/// The turn to open; the next one's when it drops.
struct Turn;

impl Turn {
    fn take() -> Option<Turn> {
        // Not `then_some`, which would make one in any case, and drop it: that would end the turn of another.
        (!OPENING.swap(true, Ordering::AcqRel)).then(|| Turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        OPENING.store(false, Ordering::Release);
    }
}

/// An open cuFile. Clones share it; the driver is closed when the last clone, handle and buffer is gone.
#[derive(Clone)]
pub struct Cufile {
    driver: Arc<Driver>,
}

impl Cufile {
    /// Loads the library and opens its driver, on a thread of its own, within the bound.
    ///
    /// `attach` is called on that thread first: it makes the CUDA context current that the buffers belong to.
    ///
    /// # Errors
    /// See [`OpenError`]. After `TimedOut` the thread and the library are left to themselves, and every later call is
    /// `Busy` until they come back.
    pub fn open(
        options: Options,
        attach: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<Cufile, OpenError> {
        let turn = Turn::take().ok_or(OpenError::Busy)?;
        let bound = options.bound;
        // Without room in it: what is sent is either taken by who waits, or comes back to who sends.
        let (done, opened) = mpsc::sync_channel(0);
        let (log_known, log) = mpsc::channel();
        let started = thread::Builder::new().name("uringload-cufile".into()).spawn(move || {
            // In this order, so that after a panic the turn is over when the other end hears of it.
            let (done, turn) = (done, turn);
            let result = open_here(&options, attach, &log_known);
            // Where nobody waits any more, a driver that is open after all is closed as it drops, and then it is the
            // turn of the next.
            let _ = done.send((result, turn));
        });
        started.map_err(|error| OpenError::Thread(error.to_string()))?;
        match opened.recv_timeout(bound) {
            Ok((result, _turn)) => result.map(|driver| Cufile { driver: Arc::new(driver) }),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(OpenError::TimedOut { after: bound, log: log.try_recv().ok() }),
            // It has panicked, in `attach` or here.
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(OpenError::Thread("it ended without an answer".into())),
        }
    }

    /// What the driver said about itself when it was open.
    pub fn properties(&self) -> &Properties {
        &self.driver.properties
    }

    /// The library's version; `None` before CUDA 12.
    pub fn version(&self) -> Option<Version> {
        self.driver.version
    }

    /// Whether somebody else in this process had opened the driver before, with a configuration of their own.
    pub fn is_shared(&self) -> bool {
        !self.driver.is_ours
    }

    /// Whether standard input was closed, and `/dev/null` was opened in its place before cuFile could take descriptor
    /// 0.
    pub fn standard_input_was_closed(&self) -> bool {
        self.driver.standard_input.was_closed
    }

    /// Bytes of BAR1 of the GPU with this index, which bound what can be registered; `None` where cuFile cannot tell.
    pub fn bar_bytes(&self, gpu: u32) -> Option<u64> {
        let get = self.driver.table.get_bar_size?;
        let gpu = gpu.try_into().ok()?;
        let mut kib = 0usize;
        // SAFETY: the function is the header's, and writes one size_t to the address of a local one.
        let status = unsafe { get(gpu, &raw mut kib) };
        CufileError::check(status).ok()?;
        (kib as u64).checked_mul(1024)
    }

    /// Makes a file known to cuFile, which keeps its descriptor until the handle is dropped. Takes milliseconds for the
    /// first file of a file system: right for shards, wrong for millions of files.
    ///
    /// # Errors
    /// `DIO_NOT_SET` for a descriptor without `O_DIRECT`; else what `cuFileHandleRegister` says.
    pub fn register_file(&self, file: OwnedFd) -> Result<FileHandle, CufileError> {
        FileHandle::new(self.driver.clone(), file)
    }

    /// Makes memory known to cuFile for as long as the buffer lives. Meant for memory that is used again and again.
    ///
    /// # Errors
    /// What `cuFileBufRegister` says, with the memory itself: where [`is_limit`](CufileError::is_limit), a smaller
    /// range may be had. `INVALID_VALUE` for an empty range.
    pub fn register_buffer<R: DeviceRange>(&self, range: R) -> Result<RegisteredBuffer<R>, (CufileError, R)> {
        RegisteredBuffer::new(self.driver.clone(), range)
    }

    /// Reads `len` bytes at `file_offset` of the file to `buffer_offset` of the buffer, and waits until they are there.
    /// Says how many were read: fewer at the end of the file, and whenever cuFile likes.
    ///
    /// The direct way needs offsets and length in multiples of 4096; others go through memory inside cuFile. No order
    /// with CUDA streams: whatever last used this part of the buffer must have ended.
    ///
    /// A read may hang for good, and nothing can end it. So a thread that must not hang gives handle and buffer to
    /// another thread, shared, which then keeps both alive however long it takes.
    ///
    /// # Errors
    /// See [`ReadError`]. What the buffer then holds within the range is unknown.
    pub fn read<R: DeviceRange>(
        &self,
        file: &FileHandle,
        buffer: &RegisteredBuffer<R>,
        buffer_offset: u64,
        file_offset: u64,
        len: u64,
    ) -> Result<u64, ReadError> {
        let ours = Arc::ptr_eq(&self.driver, file.driver()) && Arc::ptr_eq(&self.driver, buffer.driver());
        let end = buffer_offset.checked_add(len).filter(|&end| end <= buffer.len());
        let file_end = file_offset.checked_add(len).and_then(|end| i64::try_from(end).ok());
        let (true, Some(_), Some(_)) = (ours, end, file_end) else { return Err(ReadError::Range) };
        let (Ok(bytes), Ok(at), Ok(into)) = (len.try_into(), file_offset.try_into(), buffer_offset.try_into()) else {
            return Err(ReadError::Range);
        };
        let base = buffer.address() as *mut c_void;
        // SAFETY: the handle is registered until `file` drops and the memory until `buffer` does, and both are borrowed
        // for the whole call. The range lies in the buffer, as was checked above; nothing in Rust refers to its bytes,
        // and it stays allocated, by the contract of `DeviceRange`. All arguments have the header's types.
        let read = unsafe { (self.driver.table.read)(file.raw(), base, bytes, at, into) };
        // Before anything else can change it; of meaning for -1 only.
        let errno = std::io::Error::last_os_error();
        match u64::try_from(read) {
            Ok(read) if read <= len => Ok(read),
            // More than there was room for: whatever happened, it is no read.
            Ok(_) => Err(ReadError::Cufile(CufileError::INTERNAL_ERROR)),
            Err(_) if read == -1 => Err(ReadError::Io(errno)),
            Err(_) => Err(ReadError::Cufile(CufileError::from_code(
                read.checked_neg().and_then(|code| code.try_into().ok()).unwrap_or(i32::MIN),
            ))),
        }
    }
}

impl std::fmt::Debug for Cufile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shared = self.is_shared();
        f.debug_struct("Cufile").field("version", &self.version()).field("shared", &shared).finish_non_exhaustive()
    }
}

/// What all handles and buffers of an opening share.
struct Driver {
    table: Table,
    properties: Properties,
    version: Option<Version>,
    standard_input: StandardInput,
    /// Whether it was opened by us, and is closed by us.
    is_ours: bool,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.is_ours {
            return;
        }
        let close = self.table.driver_close;
        let (done, closed) = mpsc::channel();
        let started = thread::Builder::new().name("uringload-cufile".into()).spawn(move || {
            // SAFETY: no handle and no buffer of this driver is left, because each shares the driver, so no call into
            // it is under way. The library is never unloaded.
            let status = unsafe { close() };
            // Why it would not close helps nobody any more.
            let _ = done.send(CufileError::check(status));
        });
        if started.is_ok() {
            let _ = closed.recv_timeout(CLOSE_BOUND);
        }
        self.standard_input.restore();
    }
}

fn open_here(
    options: &Options,
    attach: impl FnOnce() -> Result<(), String>,
    log_known: &mpsc::Sender<PathBuf>,
) -> Result<Driver, OpenError> {
    attach().map_err(OpenError::Attach)?;
    let standard_input = StandardInput::protect().map_err(OpenError::Configuration)?;
    let in_force = InForce::new(&options.configuration).map_err(OpenError::Configuration)?;
    if let Some(log) = in_force.log() {
        // The other end is gone where nobody waits any more.
        let _ = log_known.send(log.to_path_buf());
    }
    let table = Table::load(options.library.as_deref(), &options.places)?;
    let version = Version::of(&table);
    let used_before = table.use_count.is_some_and(|count| {
        // SAFETY: the function is the header's and takes nothing.
        let uses = unsafe { count() };
        uses > 0
    });
    // SAFETY: the function is the header's and takes nothing. Its configuration is in force, a CUDA context is current
    // if the caller's `attach` made it so, and standard input is open.
    let status = unsafe { (table.driver_open)() };
    standard_input.restore();
    let is_ours = match CufileError::check(status) {
        Ok(()) => !used_before,
        Err(CufileError::DRIVER_ALREADY_OPEN) => false,
        Err(error) => return Err(OpenError::Driver { error, log: in_force.last_error() }),
    };
    let properties = Properties::of(&table).map_err(|error| OpenError::Driver { error, log: None })?;
    Ok(Driver { table, properties, version, standard_input, is_ours })
}

//! GPUDirect Storage: NVIDIA's libcufile, loaded at run time, behind types that keep alive what it touches.
//!
//! [`Cufile::open`] does everything that can hang on a thread of its own, and returns within its bound. After that a
//! [`FileHandle`] is a file that cuFile knows, a [`RegisteredBuffer`] is memory that it may write to, and
//! [`Cufile::read`] moves bytes from one to the other. Check [`guards`] first: on a system that lacks something, cuFile
//! hangs, crashes, or silently copies through the host.
//! Only functions available in every cuFile since 1.0 are used. The batch API is not, because in compatibility mode it
//! ignores the offset into the buffer. Nor is the stream API, whose arguments must outlive a stream of another owner.

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

/// How to open cuFile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The library to load. `None` tries the one that the loader finds, then `places`.
    pub library: Option<PathBuf>,
    /// Libraries, or folders that hold one, to try if the loader finds none: `lib64` of a CUDA toolkit, or
    /// `nvidia/cu13/lib` or `nvidia/cufile/lib` in Python's site-packages.
    pub places: Vec<PathBuf>,
    /// How to configure it.
    pub configuration: Configuration,
    /// How long opening it may take.
    pub bound: Duration,
}

impl Options {
    /// Opens the library that the loader finds, within `bound`.
    pub fn new(configuration: Configuration, bound: Duration) -> Options {
        Options { library: None, places: Vec::new(), configuration, bound }
    }

    /// Sets the library to load.
    pub fn library(self, library: Option<PathBuf>) -> Options {
        Options { library, ..self }
    }

    /// Sets where to look if the loader finds none.
    pub fn places(self, places: Vec<PathBuf>) -> Options {
        Options { places, ..self }
    }
}

/// How long closing the driver may take before it is left alone.
const CLOSE_BOUND: Duration = Duration::from_secs(2);

/// Whether some thread of this process is opening cuFile. A global, because environment and standard input belong to
/// the process, and because a library that hangs once hangs again.
static OPENING: AtomicBool = AtomicBool::new(false);

/// The turn to open cuFile. Dropping it lets the next one have it.
struct Turn;

impl Turn {
    fn take() -> Option<Turn> {
        // Not `then_some`, which would always make a `Turn` and drop it, and so end another thread's turn.
        (!OPENING.swap(true, Ordering::AcqRel)).then(|| Turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        OPENING.store(false, Ordering::Release);
    }
}

/// An open cuFile. Clones share it. The driver is closed when the last clone, handle and buffer is dropped.
#[derive(Clone)]
pub struct Cufile {
    driver: Arc<Driver>,
}

impl Cufile {
    /// Loads the library and opens its driver, on a thread of its own, within the bound.
    ///
    /// `attach` runs first on that thread, to make current the CUDA context that the buffers belong to. As for a
    /// driver, name no library that you would not link.
    ///
    /// # Errors
    /// See [`OpenError`]. After `TimedOut` the thread and the library are left alone, and every later call is `Busy`
    /// until they return.
    pub fn open(
        options: Options,
        attach: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<Cufile, OpenError> {
        let turn = Turn::take().ok_or(OpenError::Busy)?;
        let bound = options.bound;
        // Without a buffer, so that what is sent either reaches the receiver or comes back to the sender.
        let (done, opened) = mpsc::sync_channel(0);
        let (log_known, log) = mpsc::channel();
        let started = thread::Builder::new().name("uringload-cufile".into()).spawn(move || {
            // In this order, so that after a panic the turn has already ended when the receiver notices.
            let (done, turn) = (done, turn);
            let result = open_here(&options, attach, &log_known);
            // If the caller no longer waits, the driver that did open is closed as it drops, and then the turn ends.
            let _ = done.send((result, turn));
        });
        started.map_err(|error| OpenError::Thread(error.to_string()))?;
        match opened.recv_timeout(bound) {
            Ok((result, _turn)) => result.map(|driver| Cufile { driver: Arc::new(driver) }),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(OpenError::TimedOut { after: bound, log: log.try_recv().ok() }),
            // It panicked, here or in `attach`.
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(OpenError::Thread("it ended without an answer".into())),
        }
    }

    /// What the driver reported about itself when it was opened.
    pub fn properties(&self) -> &Properties {
        &self.driver.properties
    }

    /// Version of the library; `None` before CUDA 12.
    pub fn version(&self) -> Option<Version> {
        self.driver.version
    }

    /// Whether other code in this process opened the driver first, with a configuration of its own.
    pub fn is_shared(&self) -> bool {
        !self.driver.is_ours
    }

    /// Whether standard input was closed. If so, `/dev/null` was opened in its place before cuFile could take
    /// descriptor 0.
    pub fn standard_input_was_closed(&self) -> bool {
        self.driver.standard_input.was_closed
    }

    /// Registers a file, whose descriptor stays open until the handle is dropped. It takes milliseconds for the first
    /// file of a file system, which is fine for shards and not for millions of files.
    ///
    /// # Errors
    /// `DIO_NOT_SET` for a descriptor without `O_DIRECT`; otherwise what `cuFileHandleRegister` reports.
    pub fn register_file(&self, file: OwnedFd) -> Result<FileHandle, CufileError> {
        FileHandle::new(self.driver.clone(), file)
    }

    /// Registers memory for as long as the buffer lives. This pays off for memory that is used repeatedly.
    ///
    /// # Errors
    /// What `cuFileBufRegister` reports, together with the memory. If [`is_limit`](CufileError::is_limit) holds, a
    /// smaller range may succeed. `INVALID_VALUE` for an empty range.
    pub fn register_buffer<R: DeviceRange>(&self, range: R) -> Result<RegisteredBuffer<R>, (CufileError, R)> {
        RegisteredBuffer::new(self.driver.clone(), range)
    }

    /// Reads `len` bytes at `file_offset` of the file to `buffer_offset` of the buffer, and waits for them. Returns how
    /// many were read: fewer at the end of the file, and whenever cuFile chooses.
    ///
    /// The direct path needs offsets and length to be multiples of 4096; other reads go through memory inside cuFile.
    /// Reads are not ordered with CUDA streams: whatever last used this part of the buffer must have ended.
    ///
    /// A read can hang for good, and nothing can end it. A thread that must not hang shares handle and buffer with
    /// another thread, which reads and keeps both alive however long it takes.
    ///
    /// # Errors
    /// See [`ReadError`]. The content of the range in the buffer is then unknown.
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
        // SAFETY: the handle is registered until `file` drops and the memory until `buffer` does, and the call borrows
        // both. The range is inside the buffer, as checked above. By the contract of `DeviceRange` it stays allocated,
        // and nothing in Rust refers to its bytes. All arguments have the types of the header.
        let read = unsafe { (self.driver.table.read)(file.raw(), base, bytes, at, into) };
        // Taken before anything else can change it. It is meaningful for -1 only.
        let errno = std::io::Error::last_os_error();
        match u64::try_from(read) {
            Ok(read) if read <= len => Ok(read),
            // More than there was room for: whatever happened, it was not this read.
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

/// What all handles and buffers of one opening share.
struct Driver {
    table: Table,
    properties: Properties,
    version: Option<Version>,
    standard_input: StandardInput,
    /// Whether we opened it, and so close it.
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
            // SAFETY: each handle and buffer shares the driver, so none is left, and no call into it is in progress.
            // The library is never unloaded.
            let status = unsafe { close() };
            // The reason why it would not close matters to no one any more.
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
        // The receiver is gone if the caller no longer waits.
        let _ = log_known.send(log.to_path_buf());
    }
    let table = Table::load(options.library.as_deref(), &options.places)?;
    let version = Version::of(&table);
    let used_before = table.use_count.is_some_and(|count| {
        // SAFETY: the type matches the header, and the function takes nothing.
        let uses = unsafe { count() };
        uses > 0
    });
    // SAFETY: the type matches the header, and the function takes nothing. Its configuration is in force, `attach` has
    // made a CUDA context current if the caller wants one, and standard input is open.
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

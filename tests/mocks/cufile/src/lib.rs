//! A `libcufile.so.0` for machines without a GPU: `pread(2)` into host memory that represents a device's.
//!
//! Its functions have the ABI of cufile.h 1.20. [`mock_cufile_set`], which a test looks up in the library that it
//! loads, sets its faults; [`Knob`] says what each number means. All state belongs to the process, so tests that use it
//! take turns.

use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a test can set, and read with [`mock_cufile_get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Knob {
    /// What `cuFileDriverOpen` returns.
    OpenError,
    /// What `cuFileHandleRegister` returns.
    HandleError,
    /// What `cuFileBufRegister` returns.
    BufferError,
    /// What `cuFileBufDeregister` returns.
    BufferEndError,
    /// What `cuFileRead` returns: negative, as returned.
    ReadError,
    /// What `cuFileRead` sets `errno` to.
    ReadErrno,
    /// The CUDA error that goes with each error.
    CudaError,
    /// Most bytes that a read returns; 0: all.
    ShortRead,
    /// Bytes that a read claims beyond those requested.
    LongRead,
    /// Milliseconds that `cuFileDriverOpen` takes, at most 10 seconds; setting it to 0 ends the wait early.
    OpenHangs,
    /// Milliseconds that `cuFileRead` takes, likewise.
    ReadHangs,
    /// Milliseconds that `cuFileDriverClose` takes, likewise.
    CloseHangs,
    /// 1: `cuFileDriverOpen` closes descriptor 0. 2: `cuFileHandleDeregister` does. 3: both.
    ClosesZero,
    /// What `cuFileGetVersion` reports.
    Version,
    /// The version of nvidia-fs: major times 1000 plus minor.
    NvidiaFs,
    /// The control flags of the properties.
    ControlFlags,
    /// The feature flags of the properties.
    FeatureFlags,
    /// Bytes that may be registered at once; more give 5036, as when BAR1 is full. 0: any number.
    BarBytes,
    /// Counted: successful calls of `cuFileDriverOpen` minus those of `cuFileDriverClose`.
    Uses,
    /// Counted: registered files.
    Handles,
    /// Counted: registered buffers.
    Buffers,
    /// Counted: files whose descriptor referred to another file when they were deregistered.
    ClosedTooEarly,
    /// Counted: calls of `cuFileRead`.
    Reads,
    /// The length of the readable file that `CUFILE_ENV_PATH_JSON` named when the driver was opened; 0: there was none.
    ConfigurationBytes,
    /// The seed of faults of reads and files; 0: no faults.
    FaultSeed,
    /// How many of a thousand reads and files have a fault.
    FaultShare,
    /// 1: `cuFileRead` ignores the offset into the buffer.
    NoOffset,
    /// Counted: reads and files that had a fault.
    Faults,
    /// The number of the call of `cuFileRead` from which on it writes nothing and reports success; 0: none.
    SilentFrom,
}

const KNOBS: usize = Knob::SilentFrom as usize + 1;

/// The longest that anything hangs, so that no test hangs forever.
const HANGS_MAX: Duration = Duration::from_secs(300);

static VALUES: [AtomicI64; KNOBS] = [const { AtomicI64::new(0) }; KNOBS];

/// `CUfileError_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Status {
    /// `CUfileOpError`.
    pub code: c_int,
    /// `CUresult`.
    pub cuda: c_int,
}

/// `CUfileDescr_t`; the union has the size and alignment of a pointer and begins with the descriptor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Descriptor {
    kind: c_int,
    padding: c_int,
    fd: c_int,
    rest_of_union: c_int,
    operations: *const c_void,
}

/// `CUfileIOParams_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BatchRead {
    /// 1, the only mode.
    pub mode: c_int,
    /// The registered base.
    pub base: *mut c_void,
    /// Offset in the file.
    pub file_offset: i64,
    /// Offset in the buffer: ignored, as in the compatibility mode of the real library.
    pub buffer_offset: i64,
    /// Bytes.
    pub size: usize,
    /// The file.
    pub handle: *mut c_void,
    /// 0: a read.
    pub opcode: c_int,
    /// Returned with the event.
    pub cookie: *mut c_void,
}

/// `CUfileIOEvents_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BatchEvent {
    /// That of the read.
    pub cookie: *mut c_void,
    /// 16 if it is complete, 64 if it failed.
    pub status: c_int,
    /// Bytes read, or a negative error.
    pub result: usize,
}

/// What is registered, and the results of batches.
#[derive(Default)]
struct Registered {
    /// By handle: the descriptor and its inode at registration.
    files: HashMap<usize, (c_int, u64)>,
    /// By base: the length in bytes.
    buffers: HashMap<usize, usize>,
    done: Vec<(usize, isize)>,
    batches: HashSet<usize>,
    next: usize,
}

static REGISTERED: Mutex<Option<Registered>> = Mutex::new(None);

fn value(knob: Knob) -> i64 {
    VALUES[knob as usize].load(Ordering::SeqCst)
}

fn count(knob: Knob, by: i64) {
    VALUES[knob as usize].fetch_add(by, Ordering::SeqCst);
}

fn status(code: i64) -> Status {
    let cuda = if code == 0 { 0 } else { value(Knob::CudaError) as c_int };
    Status { code: code as c_int, cuda }
}

fn registered() -> MutexGuard<'static, Option<Registered>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(use_it: impl FnOnce(&mut Registered) -> T) -> T {
    use_it(registered().get_or_insert_default())
}

/// Waits as long as the knob says, or until it is set to 0.
fn hang(knob: Knob) {
    let start = Instant::now();
    while value(knob) > 0 && start.elapsed() < Duration::from_millis(value(knob).unsigned_abs()).min(HANGS_MAX) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The fault of a read.
enum Fault {
    /// It returns this.
    Code(i64),
    /// It returns -1, with this errno.
    Errno(c_int),
    /// It returns at most this many bytes.
    Short(usize),
    /// It takes this long.
    Slow(Duration),
}

/// A random number, if this call is to have a fault.
fn chance() -> Option<u64> {
    static CALLS: AtomicI64 = AtomicI64::new(0);
    let seed = value(Knob::FaultSeed);
    if seed == 0 {
        return None;
    }
    let call = CALLS.fetch_add(1, Ordering::SeqCst).unsigned_abs();
    let mut word = seed.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ call.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 32;
    let strikes = (word % 1000) < value(Knob::FaultShare).unsigned_abs();
    count(Knob::Faults, i64::from(strikes));
    strikes.then_some(word / 1000)
}

fn fault() -> Option<Fault> {
    let random = chance()?;
    let choice = random / 8;
    Some(match random % 8 {
        0 | 1 => Fault::Code(-(5001 + (choice % 49) as i64)),
        2 | 3 => Fault::Errno([libc::EIO, libc::EINTR, libc::EAGAIN, libc::ENODEV][(choice % 4) as usize]),
        4..7 => Fault::Short(4096 * (choice % 40) as usize),
        _ => Fault::Slow(Duration::from_millis(choice % 30)),
    })
}

fn set_errno(to: c_int) {
    // SAFETY: the C library gives the address of this thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { errno.write(to) };
}

fn close_zero(bit: i64) {
    if value(Knob::ClosesZero) & bit != 0 {
        // SAFETY: closing a descriptor touches no memory. That the descriptor belongs to other code is under test.
        unsafe { libc::close(0) };
    }
}

fn inode(fd: c_int) -> u64 {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the buffer is one `stat` long.
    let failed = unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0;
    // SAFETY: all zeros are a valid `stat`, and so is what the call wrote.
    let stat = unsafe { stat.assume_init() };
    if failed { 0 } else { stat.st_ino }
}

/// Sets a [`Knob`], by its number.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn mock_cufile_set(knob: u32, value: i64) {
    VALUES[knob as usize].store(value, Ordering::SeqCst);
}

/// The value of a [`Knob`], by its number.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn mock_cufile_get(knob: u32) -> i64 {
    VALUES[knob as usize].load(Ordering::SeqCst)
}

/// As in cufile.h.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverOpen() -> Status {
    let configuration = std::env::var_os("CUFILE_ENV_PATH_JSON");
    let json = configuration.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    mock_cufile_set(Knob::ConfigurationBytes as u32, json.len() as i64);
    write_log(&json);
    hang(Knob::OpenHangs);
    close_zero(1);
    let code = value(Knob::OpenError);
    if code == 0 {
        count(Knob::Uses, 1);
    }
    status(code)
}

/// Writes a log as the real library does: to the folder that the configuration names, or else to the current one.
fn write_log(json: &str) {
    let folder = json.split_once("\"dir\": \"").and_then(|(_, rest)| rest.split_once('"'));
    let folder = folder.map_or(".", |(folder, _)| folder);
    let line = format!(" 21-11-2026 12:00:00:000 [pid=1 tid=1] ERROR  mock:1 error {}\n", value(Knob::OpenError));
    // If it cannot be written, the test that looks for it fails.
    let _ = std::fs::write(format!("{folder}/cufile_mock.log"), line);
}

/// As in cufile.h: the version that counts uses.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverClose_v2() -> Status {
    hang(Knob::CloseHangs);
    count(Knob::Uses, -1);
    status(0)
}

/// As in the ABI before use counts: must not be called if the second version exists.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverClose() -> Status {
    status(5030)
}

/// As in cufile.h.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileUseCount() -> c_long {
    value(Knob::Uses) as c_long
}

/// As in cufile.h.
///
/// # Safety
/// `version` is the address of an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller promises that.
    unsafe { version.write(value(Knob::Version) as c_int) };
    status(0)
}

/// As in cufile.h, but it writes all of the 256 bytes that a careful caller provides.
///
/// # Safety
/// `properties` is the address of 256 bytes, aligned to 8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileDriverGetProperties(properties: *mut c_void) -> Status {
    let mut words = [0xffff_ffff_u32; 64];
    let nvidia_fs = value(Knob::NvidiaFs);
    let known = [
        (nvidia_fs / 1000) as u32,
        (nvidia_fs % 1000) as u32,
        4,
        0,
        16384,
        0,
        if nvidia_fs > 0 { 1 << 4 } else { 0 },
        value(Knob::ControlFlags) as u32,
        value(Knob::FeatureFlags) as u32,
        131_072,
        1024,
        u32::MAX,
        128,
        5,
    ];
    words[..known.len()].copy_from_slice(&known);
    let to: *mut u32 = properties.cast();
    // SAFETY: the caller promises 256 bytes, which are 64 words.
    unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    status(0)
}

/// As in cufile.h.
///
/// # Safety
/// Both addresses point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileHandleRegister(handle: *mut *mut c_void, descriptor: *mut Descriptor) -> Status {
    // SAFETY: the caller promises that.
    let descriptor = unsafe { descriptor.read() };
    if value(Knob::HandleError) != 0 {
        return status(value(Knob::HandleError));
    }
    if let Some(random) = chance() {
        return status(5001 + (random % 49) as i64);
    }
    if descriptor.kind != 1 || !descriptor.operations.is_null() || inode(descriptor.fd) == 0 {
        return status(5022);
    }
    let made = with(|registered| {
        if registered.files.values().any(|(fd, _)| *fd == descriptor.fd) {
            return None;
        }
        registered.next += 1;
        registered.files.insert(registered.next, (descriptor.fd, inode(descriptor.fd)));
        Some(registered.next)
    });
    let Some(made) = made else { return status(5028) };
    count(Knob::Handles, 1);
    // SAFETY: the caller promises that.
    unsafe { handle.write(made as *mut c_void) };
    status(0)
}

/// As in cufile.h.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileHandleDeregister(handle: *mut c_void) {
    if let Some((fd, was)) = with(|registered| registered.files.remove(&(handle as usize))) {
        count(Knob::Handles, -1);
        if inode(fd) != was {
            count(Knob::ClosedTooEarly, 1);
        }
    }
    close_zero(2);
}

/// As in cufile.h.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileBufRegister(base: *const c_void, length: usize, _flags: c_int) -> Status {
    if value(Knob::BufferError) != 0 {
        return status(value(Knob::BufferError));
    }
    let bar = value(Knob::BarBytes) as usize;
    let code = with(|registered| {
        let held: usize = registered.buffers.values().sum();
        if bar > 0 && held + length > bar {
            return 5036;
        }
        if registered.buffers.contains_key(&(base as usize)) {
            return 5023;
        }
        registered.buffers.insert(base as usize, length);
        0
    });
    count(Knob::Buffers, i64::from(code == 0));
    status(code)
}

/// As in cufile.h.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileBufDeregister(base: *const c_void) -> Status {
    if value(Knob::BufferEndError) != 0 {
        return status(value(Knob::BufferEndError));
    }
    let known = with(|registered| registered.buffers.remove(&(base as usize))).is_some();
    count(Knob::Buffers, -i64::from(known));
    status(if known { 0 } else { 5024 })
}

/// As in cufile.h.
///
/// # Safety
/// The range from `base` plus `buffer_offset` is memory of this process that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileRead(
    handle: *mut c_void,
    base: *mut c_void,
    size: usize,
    file_offset: libc::off_t,
    buffer_offset: libc::off_t,
) -> isize {
    count(Knob::Reads, 1);
    hang(Knob::ReadHangs);
    let error = value(Knob::ReadError);
    if error != 0 {
        set_errno(value(Knob::ReadErrno) as c_int);
        return error as isize;
    }
    let mut size = size;
    match fault() {
        Some(Fault::Code(code)) => return code as isize,
        Some(Fault::Errno(errno)) => {
            set_errno(errno);
            return -1;
        }
        Some(Fault::Short(bytes)) => size = size.min(bytes),
        Some(Fault::Slow(time)) => std::thread::sleep(time),
        None => {}
    }
    let known = with(|registered| {
        let (fd, _) = *registered.files.get(&(handle as usize))?;
        // Unregistered memory is legal; the real library reads it in another way.
        let fits = registered.buffers.get(&(base as usize)).is_none_or(|len| buffer_offset as usize + size <= *len);
        fits.then_some(fd)
    });
    let Some(fd) = known else { return -5027 };
    let short = value(Knob::ShortRead) as usize;
    let size = if short > 0 { size.min(short) } else { size };
    let buffer_offset = if value(Knob::NoOffset) == 0 { buffer_offset as usize } else { 0 };
    let into = base.wrapping_byte_add(buffer_offset);
    let silent = value(Knob::SilentFrom);
    if silent > 0 && value(Knob::Reads) >= silent {
        // SAFETY: a zeroed `stat` is a value, which the call overwrites.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the place lives until the call returns.
        let known = unsafe { libc::fstat(fd, &raw mut status) } == 0;
        let left = (status.st_size - file_offset).max(0) as usize;
        return if known { size.min(left) as isize } else { -1 };
    }
    // SAFETY: the caller promises that the range may be written to.
    let read = unsafe { libc::pread(fd, into, size, file_offset) };
    if read < 0 { -1 } else { read + value(Knob::LongRead) as isize }
}

/// As in cufile.h.
///
/// # Safety
/// `batch` is the address of a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOSetUp(batch: *mut *mut c_void, count: c_uint) -> Status {
    if count > 128 {
        return status(5022);
    }
    let made = with(|registered| {
        registered.next += 1;
        registered.batches.insert(registered.next);
        registered.next
    });
    // SAFETY: the caller promises that.
    unsafe { batch.write(made as *mut c_void) };
    status(0)
}

/// As in cufile.h, and like the real library in compatibility mode: each read goes to the *base* of its buffer,
/// whatever offset it names. Anyone who moves to the batch API learns of it here.
///
/// # Safety
/// `reads` is the address of `count` reads, each into memory that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOSubmit(
    batch: *mut c_void,
    count: c_uint,
    reads: *mut BatchRead,
    _flags: c_uint,
) -> Status {
    if !with(|registered| registered.batches.contains(&(batch as usize))) {
        return status(5022);
    }
    for index in 0..count as usize {
        let place = reads.wrapping_add(index);
        // SAFETY: the caller promises `count` reads.
        let read = unsafe { place.read() };
        // SAFETY: the base is the start of the caller's memory.
        let done = unsafe { cuFileRead(read.handle, read.base, read.size, read.file_offset, 0) };
        with(|registered| registered.done.push((read.cookie as usize, done)));
    }
    status(0)
}

/// As in cufile.h.
///
/// # Safety
/// `events` is the address of `*count` events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOGetStatus(
    _batch: *mut c_void,
    _least: c_uint,
    count: *mut c_uint,
    events: *mut BatchEvent,
    _timeout: *mut c_void,
) -> Status {
    // SAFETY: the caller promises that.
    let room = unsafe { count.read() };
    let done: Vec<_> = with(|registered| {
        let taken = registered.done.len().min(room as usize);
        registered.done.drain(..taken).collect()
    });
    for (index, (cookie, result)) in done.iter().enumerate() {
        let state = if *result < 0 { 64 } else { 16 };
        let event = BatchEvent { cookie: *cookie as *mut c_void, status: state, result: result.cast_unsigned() };
        // SAFETY: there is room for every event that is written.
        unsafe { events.wrapping_add(index).write(event) };
    }
    // SAFETY: as above.
    unsafe { count.write(done.len() as c_uint) };
    status(0)
}

/// As in cufile.h.
// SAFETY: a separate library, loaded without global symbols: it replaces no other function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIODestroy(batch: *mut c_void) {
    with(|registered| registered.batches.remove(&(batch as usize)));
}

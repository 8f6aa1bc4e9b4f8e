//! A `libnvjpeg.so` for machines without a GPU: the processor decodes, and the mock of the CUDA driver gets the pixels.
//!
//! Its functions have the ABI of nvjpeg.h. A test names the driver with [`mock_nvjpeg_driver`], sets faults with
//! [`mock_nvjpeg_set`] and reads counts with [`mock_nvjpeg_get`]; [`Knob`] says what each number means. All state
//! belongs to the library, so each copy of the file is a library of its own.
//!
//! It is stricter than nvJPEG: handles and states must be its own, a batch must have the number of images that it was
//! made ready for, and a state that failed must be made ready again.

use libloading::Library;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use uringload_images::{Decoding, decode, dimensions};

/// What a test can set, and read with [`mock_nvjpeg_get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Knob {
    /// 1: the GPU has an engine for JPEGs.
    Hardware,
    /// The major version; 0 is taken for 12.
    Version,
    /// What `nvjpegCreateEx` returns for the backend that every GPU has.
    CreateError,
    /// What `nvjpegJpegStateCreate` returns.
    StateError,
    /// Microseconds that an image takes.
    DelayMicros,
    /// Images whose file's length is divisible by this cannot be decoded; 0: none.
    FailEvery,
    /// What is returned for them; 0 is taken for 3, a bad JPEG.
    FailCode,
    /// The same, by the hardware engine alone: code 4, not supported.
    HardwareFailEvery,
    /// From this number of decoded images on, every call fails with 6, an execution that failed; 0: never.
    LostFrom,
    /// Rows that the header is said to have beyond those that it has.
    ExtraRows,
    /// Counted: handles that were not given back.
    Handles,
    /// Counted: states that were not given back.
    States,
    /// Counted: images decoded.
    Images,
    /// Counted: batches decoded.
    Batches,
    /// Counted: images of the largest batch.
    LargestBatch,
    /// Counted: calls that nvJPEG's documentation forbids.
    Misuses,
}

const KNOBS: usize = Knob::Misuses as usize + 1;

static VALUES: [AtomicI64; KNOBS] = [const { AtomicI64::new(0) }; KNOBS];

/// `nvjpegStatus_t`.
type Status = c_int;
const SUCCESS: Status = 0;
const INVALID_PARAMETER: Status = 2;
const BAD_JPEG: Status = 3;
const NOT_SUPPORTED: Status = 4;
const EXECUTION_FAILED: Status = 6;
const ARCH_MISMATCH: Status = 7;

/// `NVJPEG_BACKEND_HARDWARE`.
const HARDWARE: c_int = 3;
/// `NVJPEG_OUTPUT_RGBI`.
const RGBI: c_int = 5;
const CHANNELS: usize = 3;

/// `nvjpegImage_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Image {
    channel: [*mut u8; 4],
    pitch: [usize; 4],
}

/// What handles and states are: a handle has its backend, and a state the images that it is ready for.
#[derive(Default)]
struct Made {
    handles: HashMap<usize, c_int>,
    states: HashMap<usize, c_int>,
    last: usize,
}

static MADE: Mutex<Option<Made>> = Mutex::new(None);

type CopyToDevice = unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> c_int;

static COPY: OnceLock<CopyToDevice> = OnceLock::new();

fn value(knob: Knob) -> i64 {
    VALUES[knob as usize].load(Ordering::SeqCst)
}

fn count(knob: Knob, by: i64) -> i64 {
    VALUES[knob as usize].fetch_add(by, Ordering::SeqCst) + by
}

fn with<T>(use_it: impl FnOnce(&mut Made) -> T) -> T {
    use_it(MADE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn misused(what: &str) -> Status {
    eprintln!("mock-nvjpeg: {what}");
    count(Knob::Misuses, 1);
    INVALID_PARAMETER
}

/// Sets a number.
// SAFETY: nothing else with this name is linked into the library, as for every function below.
#[unsafe(no_mangle)]
pub extern "C" fn mock_nvjpeg_set(knob: u32, number: i64) {
    VALUES[knob as usize].store(number, Ordering::SeqCst);
}

/// A number.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn mock_nvjpeg_get(knob: u32) -> i64 {
    VALUES[knob as usize].load(Ordering::SeqCst)
}

/// Names the CUDA driver that pixels are given to.
///
/// # Safety
/// The path ends with a zero, and is that of the mock of the driver.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mock_nvjpeg_driver(path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let path = unsafe { CStr::from_ptr(path) };
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    copy_of(path).map_or(1, |copy| c_int::from(COPY.set(copy).is_err()))
}

/// How a driver takes bytes.
fn copy_of(driver: &std::path::Path) -> Option<CopyToDevice> {
    // SAFETY: the mock runs nothing when it is loaded.
    let library = ManuallyDrop::new(unsafe { Library::new(driver) }.ok()?);
    // SAFETY: the type is that of `cuda.h`.
    let copy = unsafe { library.get::<CopyToDevice>(b"cuMemcpyHtoDAsync_v2") }.ok()?;
    Some(*copy)
}

/// How the named driver takes bytes, or else the one that this process finds: programs that know nothing of mocks name
/// none.
fn copy() -> Option<CopyToDevice> {
    let found = || copy_of(std::path::Path::new("libcuda.so.1")).map(|copy| *COPY.get_or_init(|| copy));
    COPY.get().copied().or_else(found)
}

/// The version: major, minor, patch level.
///
/// # Safety
/// The pointer is to an int.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegGetProperty(which: c_int, number: *mut c_int) -> Status {
    let major = if value(Knob::Version) == 0 { 12 } else { value(Knob::Version) };
    // SAFETY: as the caller promises.
    unsafe { number.write(if which == 0 { major as c_int } else { 4 }) };
    SUCCESS
}

/// Makes a handle.
///
/// # Safety
/// The last pointer is to a place for one.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegCreateEx(
    backend: c_int,
    _memory: *mut c_void,
    _pinned: *mut c_void,
    flags: c_uint,
    handle: *mut usize,
) -> Status {
    // Older libraries know no interpolation, and the hardware does not.
    if backend == HARDWARE && (value(Knob::Hardware) == 0 || flags != 0) {
        return ARCH_MISMATCH;
    }
    if backend != HARDWARE && value(Knob::CreateError) != 0 {
        return value(Knob::CreateError) as Status;
    }
    let made = with(|made| {
        made.last += 1;
        made.handles.insert(made.last, backend);
        made.last
    });
    count(Knob::Handles, 1);
    // SAFETY: as the caller promises.
    unsafe { handle.write(made) };
    SUCCESS
}

/// Gives a handle back.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn nvjpegDestroy(handle: usize) -> Status {
    if with(|made| made.handles.remove(&handle)).is_none() {
        return misused("a handle is given back that is none");
    }
    count(Knob::Handles, -1);
    SUCCESS
}

/// Makes a state.
///
/// # Safety
/// The pointer is to a place for one.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegJpegStateCreate(handle: usize, state: *mut usize) -> Status {
    if backend_of(handle).is_none() {
        return misused("a state for a handle that is none");
    }
    if value(Knob::StateError) != 0 {
        return value(Knob::StateError) as Status;
    }
    let made = with(|made| {
        made.last += 1;
        made.states.insert(made.last, 0);
        made.last
    });
    count(Knob::States, 1);
    // SAFETY: as the caller promises.
    unsafe { state.write(made) };
    SUCCESS
}

/// Gives a state back.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn nvjpegJpegStateDestroy(state: usize) -> Status {
    if with(|made| made.states.remove(&state)).is_none() {
        return misused("a state is given back that is none");
    }
    count(Knob::States, -1);
    SUCCESS
}

fn backend_of(handle: usize) -> Option<c_int> {
    with(|made| made.handles.get(&handle).copied())
}

/// The decoder's choices: pixels as they are stored.
fn stored() -> Decoding {
    Decoding { orient: false, ..Decoding::default() }
}

/// The size of an image.
///
/// # Safety
/// As nvjpeg.h says: so many bytes, two ints, and four ints twice.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegGetImageInfo(
    handle: usize,
    data: *const u8,
    length: usize,
    components: *mut c_int,
    subsampling: *mut c_int,
    widths: *mut c_int,
    heights: *mut c_int,
) -> Status {
    if backend_of(handle).is_none() {
        return misused("a look at an image by a handle that is none");
    }
    // SAFETY: as the caller promises.
    let file = unsafe { std::slice::from_raw_parts(data, length) };
    let Ok((height, width)) = dimensions(file, &stored()) else { return BAD_JPEG };
    let rows = height as c_int + value(Knob::ExtraRows) as c_int;
    // SAFETY: as the caller promises, here and below.
    unsafe { components.write(CHANNELS as c_int) };
    // SAFETY: as above. 2 is 4:2:0.
    unsafe { subsampling.write(2) };
    // SAFETY: as above.
    unsafe { widths.cast::<[c_int; 4]>().write([width as c_int, width as c_int / 2, width as c_int / 2, 0]) };
    // SAFETY: as above.
    unsafe { heights.cast::<[c_int; 4]>().write([rows, rows / 2, rows / 2, 0]) };
    SUCCESS
}

/// Decodes one image.
fn decode_one(file: &[u8], image: Image, stream: *mut c_void, is_hardware: bool) -> Status {
    std::thread::sleep(Duration::from_micros(value(Knob::DelayMicros).unsigned_abs()));
    if value(Knob::LostFrom) > 0 && value(Knob::Images) + 1 >= value(Knob::LostFrom) {
        return EXECUTION_FAILED;
    }
    let is_one_of = |knob: Knob| value(knob) > 0 && file.len() as i64 % value(knob) == 0;
    if is_hardware && is_one_of(Knob::HardwareFailEvery) {
        return NOT_SUPPORTED;
    }
    if is_one_of(Knob::FailEvery) {
        return if value(Knob::FailCode) == 0 { BAD_JPEG } else { value(Knob::FailCode) as Status };
    }
    let Ok(decoded) = decode(file, &stored()) else { return BAD_JPEG };
    let Some(copy) = copy() else { return misused("no driver was named") };
    let row = decoded.width() as usize * CHANNELS;
    // At once, if there is nothing between the rows.
    let part = if image.pitch[0] == row { decoded.pixels().len() } else { row };
    for (index, pixels) in decoded.pixels().chunks_exact(part).enumerate() {
        let to = image.channel[0].addr() + index * image.pitch[0];
        // SAFETY: the mock of the driver looks at the address, and has copied the bytes when it returns.
        if unsafe { copy(to as u64, pixels.as_ptr().cast(), part, stream) } != 0 {
            return EXECUTION_FAILED;
        }
    }
    count(Knob::Images, 1);
    SUCCESS
}

/// Decodes an image into memory of the device.
///
/// # Safety
/// As nvjpeg.h says: so many bytes, and an image.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecode(
    handle: usize,
    state: usize,
    data: *const u8,
    length: usize,
    format: c_int,
    image: *mut Image,
    stream: *mut c_void,
) -> Status {
    let Some(backend) = backend_of(handle).filter(|_| with(|made| made.states.contains_key(&state))) else {
        return misused("an image is decoded by a handle or a state that is none");
    };
    if format != RGBI {
        return misused("only interleaved pixels are known here");
    }
    // SAFETY: as the caller promises.
    let file = unsafe { std::slice::from_raw_parts(data, length) };
    // SAFETY: as above.
    decode_one(file, unsafe { image.read() }, stream, backend == HARDWARE)
}

/// Makes a state ready for batches of so many images.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn nvjpegDecodeBatchedInitialize(
    handle: usize,
    state: usize,
    images: c_int,
    threads: c_int,
    format: c_int,
) -> Status {
    if backend_of(handle).is_none() || images < 1 || threads < 1 || format != RGBI {
        return misused("a state is made ready for something that cannot be");
    }
    if with(|made| made.states.get_mut(&state).map(|ready| *ready = images)).is_none() {
        return misused("a state is made ready that is none");
    }
    SUCCESS
}

/// Decodes a batch: as many images as the state is ready for.
///
/// # Safety
/// As nvjpeg.h says: three lists of so many entries.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecodeBatched(
    handle: usize,
    state: usize,
    data: *const *const u8,
    lengths: *const usize,
    images: *mut Image,
    stream: *mut c_void,
) -> Status {
    let ready = with(|made| made.states.get(&state).copied()).unwrap_or(0) as usize;
    let Some(backend) = backend_of(handle).filter(|_| ready > 0) else {
        return misused("a batch for a state that is not ready");
    };
    for index in 0..ready {
        // SAFETY: as the caller promises, here and below.
        let (at, len) = (unsafe { data.add(index) }, unsafe { lengths.add(index) });
        // SAFETY: as above.
        let (file, len) = (unsafe { at.read() }, unsafe { len.read() });
        // SAFETY: as above.
        let file = unsafe { std::slice::from_raw_parts(file, len) };
        // SAFETY: as above.
        let image = unsafe { images.add(index) };
        // SAFETY: as above.
        let status = decode_one(file, unsafe { image.read() }, stream, backend == HARDWARE);
        if status != SUCCESS {
            // It must be made ready again.
            with(|made| made.states.insert(state, 0));
            return status;
        }
    }
    count(Knob::Batches, 1);
    VALUES[Knob::LargestBatch as usize].fetch_max(ready as i64, Ordering::SeqCst);
    SUCCESS
}

//! A `libnvjpeg.so` for machines without a GPU: the processor decodes, and the mock of the CUDA driver gets the pixels.
//!
//! Its functions have the ABI of nvjpeg.h. A test names the driver with [`mock_nvjpeg_driver`], sets faults with
//! [`mock_nvjpeg_set`] and reads counts with [`mock_nvjpeg_get`]; [`Knob`] says what each number means. All state
//! belongs to the library, so each copy of the file is a library of its own.
//!
//! It refuses a handle without memory of both kinds, as nvJPEG does, and is stricter: handles and states must be its
//! own, a batch must have the number of images that it was made ready for, and a state that failed must be made ready
//! again. Its hardware is as strange as the real one is said to be: it refuses a batch for one file that it does not
//! know, and it writes when it is called, whatever the stream has still to do (reported for nvJPEG 12.3.5 to 13.2.1).

mod driver;

use driver::Driver;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use uringload_images::{Decoding, decode, dimensions};

/// What a test can set, and read with [`mock_nvjpeg_get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Knob {
    /// 1: the GPU has an engine for JPEGs.
    Hardware,
    /// What `nvjpegCreateExV2` returns for the engine where there is none; 0 is taken for 7, another architecture.
    HardwareError,
    /// The major version; 0 is taken for 12.
    Version,
    /// What `nvjpegCreateExV2` returns for the backend that every GPU has.
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
    /// Levels by which its pixels are brighter than the processor's: it rounds otherwise.
    Brighter,
    /// Counted: handles that were not given back.
    Handles,
    /// Counted: states, and places for headers, that were not given back.
    States,
    /// Counted: blocks of memory that were not given back, the device's and the host's.
    Blocks,
    /// Counted: images decoded.
    Images,
    /// Counted: batches decoded.
    Batches,
    /// Counted: images decoded by the engine.
    HardwareImages,
    /// Counted: batches that the engine refused for a file that it does not know.
    Refused,
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
const ALLOCATOR_FAILURE: Status = 5;
const EXECUTION_FAILED: Status = 6;
const ARCH_MISMATCH: Status = 7;

/// `NVJPEG_BACKEND_HARDWARE`.
const HARDWARE: c_int = 3;
/// `NVJPEG_OUTPUT_RGBI`.
const RGBI: c_int = 5;
const CHANNELS: usize = 3;
/// What a state takes of the device for an image.
const WORK_BYTES: usize = 100_000;

/// `nvjpegImage_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Image {
    channel: [*mut u8; 4],
    pitch: [usize; 4],
}

/// `nvjpegDevAllocatorV2_t` and `nvjpegPinnedAllocatorV2_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Allocator {
    take: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, usize, *mut c_void) -> c_int,
    give: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int,
    of: *mut c_void,
}

// SAFETY: its context may be used by any thread, as nvJPEG asks.
unsafe impl Send for Allocator {}

/// What handles and states are: a handle has its backend and its memory of both kinds, a state the images that it is
/// ready for and what it took for them, and a place for a header whether the engine knows such a file.
#[derive(Default)]
struct Made {
    handles: HashMap<usize, (c_int, [Allocator; 2])>,
    states: HashMap<usize, State>,
    headers: HashMap<usize, bool>,
    last: usize,
}

struct State {
    handle: usize,
    ready: c_int,
    /// Addresses of the device and of the host, and how many bytes are there.
    work: Vec<(usize, usize)>,
}

static MADE: Mutex<Option<Made>> = Mutex::new(None);

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
    driver::at(path).map_or(1, |driver| c_int::from(driver::DRIVER.set(driver).is_err()))
}

/// Whether a JPEG is a baseline file of one scan, and of a subsampling other than 4:1:0 and 4:1:1.
fn is_for_hardware(file: &[u8]) -> bool {
    let (mut at, mut is_known, mut scans) = (2, false, 0);
    while let Some(&[0xff, marker, high, low, ..]) = file.get(at..) {
        let len = usize::from(high) << 8 | usize::from(low);
        match marker {
            // Of the frame: precision, rows, columns, components, and of the first of these its number and factors.
            0xc0 => is_known = file.get(at + 11).is_some_and(|factors| factors >> 4 < 4),
            0xda => {
                scans += 1;
                let data = file.get(at + 2 + len..).unwrap_or_default();
                let ends = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 0xd0..=0xd7);
                let Some(end) = data.windows(2).position(ends) else { break };
                at += 2 + len + end;
                continue;
            }
            0xd9 => break,
            _ => {}
        }
        at += 2 + len;
    }
    is_known && scans == 1
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
/// The first two pointers are null or to allocators, which are used as long as the handle is, and the last is to a
/// place for a handle.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegCreateExV2(
    backend: c_int,
    device: *const Allocator,
    pinned: *const Allocator,
    flags: c_uint,
    handle: *mut usize,
) -> Status {
    if device.is_null() || pinned.is_null() {
        return INVALID_PARAMETER;
    }
    // Older libraries know no interpolation, and the hardware does not.
    if backend == HARDWARE && (value(Knob::Hardware) == 0 || flags != 0) {
        return if value(Knob::HardwareError) == 0 { ARCH_MISMATCH } else { value(Knob::HardwareError) as Status };
    }
    if backend != HARDWARE && value(Knob::CreateError) != 0 {
        return value(Knob::CreateError) as Status;
    }
    let made = with(|made| {
        made.last += 1;
        // SAFETY: as the caller promises.
        let memory = [device, pinned].map(|memory| unsafe { memory.read() });
        made.handles.insert(made.last, (backend, memory));
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
    if with(|made| made.states.values().any(|state| state.handle == handle)) {
        return misused("a handle is given back before its states");
    }
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
        made.states.insert(made.last, State { handle, ready: 0, work: Vec::new() });
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
    let status = work_of(state, 0);
    if with(|made| made.states.remove(&state)).is_none() {
        return misused("a state is given back that is none");
    }
    count(Knob::States, -1);
    status
}

/// The GPU's engines for JPEGs.
///
/// # Safety
/// Both pointers are to numbers.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegGetHardwareDecoderInfo(
    handle: usize,
    engines: *mut c_uint,
    cores: *mut c_uint,
) -> Status {
    if backend_of(handle).is_none() {
        return misused("engines of a handle that is none");
    }
    let is_there = value(Knob::Hardware) != 0;
    // SAFETY: as the caller promises, here and below.
    unsafe { engines.write(if is_there { 7 } else { 0 }) };
    // SAFETY: as above.
    unsafe { cores.write(c_uint::from(is_there)) };
    SUCCESS
}

/// Makes a place for a header.
///
/// # Safety
/// The pointer is to a place for a handle.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegJpegStreamCreate(handle: usize, stream: *mut usize) -> Status {
    if backend_of(handle).is_none() {
        return misused("a place for a header by a handle that is none");
    }
    let made = with(|made| {
        made.last += 1;
        made.headers.insert(made.last, false);
        made.last
    });
    count(Knob::States, 1);
    // SAFETY: as the caller promises.
    unsafe { stream.write(made) };
    SUCCESS
}

/// Gives it back.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn nvjpegJpegStreamDestroy(stream: usize) -> Status {
    if with(|made| made.headers.remove(&stream)).is_none() {
        return misused("a place for a header is given back that is none");
    }
    count(Knob::States, -1);
    SUCCESS
}

/// Looks at the header of a file.
///
/// # Safety
/// A number of bytes.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegJpegStreamParseHeader(
    handle: usize,
    data: *const u8,
    length: usize,
    stream: usize,
) -> Status {
    if backend_of(handle).is_none() {
        return misused("a header for a handle that is none");
    }
    // SAFETY: as the caller promises.
    let file = unsafe { std::slice::from_raw_parts(data, length) };
    if dimensions(file, &stored()).is_err() {
        return BAD_JPEG;
    }
    let is_known = is_for_hardware(file);
    match with(|made| made.headers.get_mut(&stream).map(|header| *header = is_known)) {
        Some(()) => SUCCESS,
        None => misused("a header for a place that is none"),
    }
}

/// Whether such a file is decoded in a batch: 0 where it is.
///
/// # Safety
/// The pointer is to an int.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecodeBatchedSupported(handle: usize, stream: usize, refuses: *mut c_int) -> Status {
    let (Some(backend), Some(is_known)) = (backend_of(handle), with(|made| made.headers.get(&stream).copied())) else {
        return misused("a header that is none");
    };
    // SAFETY: as the caller promises.
    unsafe { refuses.write(c_int::from(backend == HARDWARE && !is_known)) };
    SUCCESS
}

fn backend_of(handle: usize) -> Option<c_int> {
    with(|made| made.handles.get(&handle).map(|&(backend, _)| backend))
}

/// Gives back what a state works with, and takes what it needs for so many images, of both kinds of memory; where that
/// is another number it is another place, as of the library.
fn work_of(state: usize, images: c_int) -> Status {
    let found = with(|made| {
        let State { handle, ready, work } = made.states.get_mut(&state)?;
        *ready = images;
        let (_, memory) = *made.handles.get(handle)?;
        Some((memory, std::mem::take(work)))
    });
    let Some((memory, before)) = found else { return misused("a state that is none, or without a handle") };
    for (memory, (address, len)) in memory.iter().zip(before) {
        // SAFETY: the allocator's functions are as its type says, and the address is one of its own.
        if unsafe { (memory.give)(memory.of, address as *mut c_void, len, std::ptr::null_mut()) } != 0 {
            return misused("memory is not taken back");
        }
        count(Knob::Blocks, -1);
    }
    if images == 0 {
        return SUCCESS;
    }
    let len = images as usize * WORK_BYTES;
    for (is_host, memory) in [false, true].into_iter().zip(memory) {
        let mut place = std::ptr::null_mut();
        // SAFETY: as above, and the place is one for an address.
        if unsafe { (memory.take)(memory.of, &raw mut place, len, std::ptr::null_mut()) } != 0 {
            return ALLOCATOR_FAILURE;
        }
        count(Knob::Blocks, 1);
        if is_host {
            // SAFETY: the allocator gave that many bytes of the host.
            unsafe { place.cast::<u8>().write_bytes(1, len) };
        }
        with(|made| made.states.get_mut(&state).map(|state| state.work.push((place as usize, len))));
    }
    SUCCESS
}

/// What a failed batch leaves: a state that must be made ready again.
fn unready(state: usize) {
    with(|made| made.states.get_mut(&state).map(|state| state.ready = 0));
}

/// The decoder's choices: pixels as they are stored.
fn stored() -> Decoding {
    Decoding { orient: false, ..Decoding::default() }
}

/// The size of an image.
///
/// # Safety
/// As nvjpeg.h says: bytes with their number, two ints, and four ints twice.
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
    // What is pinned is read by the copy engine when its turn comes, and not before the call returns.
    let Some(driver) = driver::named() else { return misused("no driver was named") };
    let is_pinned = || {
        let mut address = 0;
        // SAFETY: the place fits an address, and the mock of the driver looks at the other one only.
        unsafe { (driver.pinned)(&raw mut address, file.as_ptr().cast_mut().cast(), 0) == 0 }
    };
    let was_pinned = is_pinned();
    std::thread::sleep(Duration::from_micros(value(Knob::DelayMicros).unsigned_abs()));
    if was_pinned && !is_pinned() {
        return misused("a file is no longer pinned while it is read");
    }
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
    if is_hardware {
        count(Knob::Images, 1);
        count(Knob::HardwareImages, 1);
        return Engine::run(&driver, stream, |stream| write(&driver, &decoded, image, stream));
    }
    count(Knob::Images, 1);
    write(&driver, &decoded, image, stream)
}

/// The hardware's own order of things, in which it writes: what is in the caller's stream is not waited for, but what
/// comes there behind the call waits for the pixels.
struct Engine<'a> {
    driver: &'a Driver,
    stream: *mut c_void,
    event: *mut c_void,
}

impl Engine<'_> {
    fn run(driver: &Driver, caller: *mut c_void, write: impl FnOnce(*mut c_void) -> Status) -> Status {
        let mut engine = Engine { driver, stream: std::ptr::null_mut(), event: std::ptr::null_mut() };
        // SAFETY: the places fit handles, here and below; a context is current.
        let made = unsafe { (driver.make_stream)(&raw mut engine.stream, 1, 0) };
        // SAFETY: as above.
        if made != 0 || unsafe { (driver.make_event)(&raw mut engine.event, 2) } != 0 {
            return EXECUTION_FAILED;
        }
        let status = write(engine.stream);
        // SAFETY: all three live.
        let recorded = unsafe { (driver.record)(engine.event, engine.stream) };
        // SAFETY: as above.
        if recorded != 0 || unsafe { (driver.wait)(caller, engine.event, 0) } != 0 {
            return EXECUTION_FAILED;
        }
        status
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        if !self.event.is_null() {
            // SAFETY: `run` made it, and it is ended once; who waits for it still does.
            unsafe { (self.driver.end_event)(self.event) };
        }
        if !self.stream.is_null() {
            // SAFETY: as above; the driver still does its work.
            unsafe { (self.driver.end_stream)(self.stream) };
        }
    }
}

/// Puts the pixels of an image into a stream.
fn write(driver: &Driver, decoded: &uringload_images::Image, image: Image, stream: *mut c_void) -> Status {
    let row = decoded.width() as usize * CHANNELS;
    // At once, if there is nothing between the rows.
    let part = if image.pitch[0] == row { decoded.pixels().len() } else { row };
    let brighter = value(Knob::Brighter) as u8;
    let pixels: Vec<u8> = decoded.pixels().iter().map(|level| level.saturating_add(brighter)).collect();
    for (index, pixels) in pixels.chunks_exact(part).enumerate() {
        let to = image.channel[0].addr() + index * image.pitch[0];
        // SAFETY: the mock of the driver looks at the address, and has copied the bytes when it returns.
        if unsafe { (driver.copy)(to as u64, pixels.as_ptr().cast(), part, stream) } != 0 {
            return EXECUTION_FAILED;
        }
    }
    SUCCESS
}

/// Decodes an image into memory of the device.
///
/// # Safety
/// As nvjpeg.h says: bytes with their number, and an image.
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
    work_of(state, images)
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
    let ready = with(|made| made.states.get(&state).map(|state| state.ready)).unwrap_or(0) as usize;
    let Some(backend) = backend_of(handle).filter(|_| ready > 0) else {
        return misused("a batch for a state that is not ready");
    };
    let file = |index: usize| {
        // SAFETY: as the caller promises, here and below.
        let (at, len) = (unsafe { data.add(index) }, unsafe { lengths.add(index) });
        // SAFETY: as above.
        let (file, len) = (unsafe { at.read() }, unsafe { len.read() });
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(file, len) }
    };
    if backend == HARDWARE && !(0..ready).all(|index| is_for_hardware(file(index))) {
        count(Knob::Refused, 1);
        unready(state);
        return NOT_SUPPORTED;
    }
    for index in 0..ready {
        // SAFETY: as above.
        let image = unsafe { images.add(index) };
        // SAFETY: as above.
        let status = decode_one(file(index), unsafe { image.read() }, stream, backend == HARDWARE);
        if status != SUCCESS {
            // It must be made ready again.
            unready(state);
            return status;
        }
    }
    count(Knob::Batches, 1);
    VALUES[Knob::LargestBatch as usize].fetch_max(ready as i64, Ordering::SeqCst);
    SUCCESS
}

//! Worlds of handles, and calls of any function of the interface on any of them, with arguments that are wrong in every
//! way except undefined behaviour. The test of orders draws them from seeds, the fuzzer from its bytes.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "calls of C stand in a row, under one promise")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use uringload_capi::*;

/// Maximum number of calls in a world.
const CALLS: usize = 100;
/// Longest that a world may take.
const BOUND: Duration = Duration::from_secs(60);

/// Choices: from SplitMix64, or from given bytes.
pub struct Random {
    state: u64,
    bytes: Option<Vec<u8>>,
}

impl Random {
    pub fn seeded(seed: u64) -> Random {
        Random { state: seed, bytes: None }
    }

    /// The bytes are used from the front, followed by zeros.
    #[allow(dead_code, reason = "for the fuzzer")]
    pub fn of(bytes: &[u8]) -> Random {
        Random { state: 0, bytes: Some(bytes.iter().rev().copied().collect()) }
    }

    fn is_over(&self) -> bool {
        self.bytes.as_ref().is_some_and(Vec::is_empty)
    }

    fn pick(&mut self, below: u64) -> u64 {
        if let Some(bytes) = &mut self.bytes {
            let count = if below <= 256 { 1 } else { 8 };
            let value = (0..count).fold(0, |value: u64, _| value << 8 | u64::from(bytes.pop().unwrap_or(0)));
            return value % below;
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % below
    }

    /// One of these, or null.
    fn one<T>(&mut self, handles: &[*mut T]) -> *mut T {
        let at = self.pick(handles.len() as u64 + 1) as usize;
        handles.get(at).copied().unwrap_or(null_mut())
    }

    /// Removes and returns one of these, or null.
    fn take<T>(&mut self, handles: &mut Vec<*mut T>) -> *mut T {
        let at = self.pick(handles.len() as u64 + 1) as usize;
        if at < handles.len() { handles.swap_remove(at) } else { null_mut() }
    }
}

/// A context of callbacks, and what they do wrong.
struct Lies {
    seed: u64,
    dropped: &'static AtomicUsize,
}

/// Contexts that the library has dropped.
pub static DROPPED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn spans(
    context: *mut c_void,
    sample: u64,
    out: *mut ul_span,
    room: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: the context of `source_of`, which lives until `drops`.
    let seed = unsafe { &*context.cast::<Lies>() }.seed;
    let mut random = Random::seeded(seed ^ sample.wrapping_mul(977));
    let kind = if seed.is_multiple_of(3) { random.pick(12) } else { 11 };
    let told = match kind {
        0 => return 7,
        1 => 100_000,
        2 => 9,
        3 => 0,
        _ => 1,
    };
    // SAFETY: the library gives a count to write to.
    unsafe { count.write(told) };
    for at in 0..told.min(room) {
        let wrong = [5_u64, 0, u64::MAX, 1 << 40];
        let (file, offset, len) = match kind {
            4 => (wrong[0], 0, 4),
            5 => (0, wrong[2], 4),
            6 => (0, 0, wrong[3]),
            _ => (0, sample * 4, 4),
        };
        // SAFETY: the library gives room for `room` spans.
        unsafe { out.add(at).write(ul_span { file, offset, len }) };
    }
    0
}

unsafe extern "C" fn parse(
    context: *mut c_void,
    sample: u64,
    read: *const ul_bytes,
    read_count: usize,
    values: *mut ul_value,
    value_count: usize,
) -> c_int {
    // SAFETY: the context of `source_of`, which lives until `drops`.
    let seed = unsafe { &*context.cast::<Lies>() }.seed;
    let kind = if seed.is_multiple_of(3) { Random::seeded(seed ^ sample).pick(8) } else { 7 };
    assert_eq!(value_count, 1);
    if kind == 0 || read_count == 0 {
        return 3;
    }
    let whole = ul_value { data: null(), span: 0, offset: 0, len: 4 };
    // SAFETY: there is one piece.
    let data = unsafe { *read }.data;
    let told = match kind {
        1 => ul_value { span: 9, ..whole },
        2 => ul_value { offset: usize::MAX, ..whole },
        3 => ul_value { len: 5, ..whole },
        4 => ul_value { data, len: 4, ..whole },
        _ => whole,
    };
    // SAFETY: there is room for one value.
    unsafe { values.write(told) };
    0
}

unsafe extern "C" fn drops(context: *mut c_void) {
    // SAFETY: made by `Box::into_raw` in `source_of`; the library calls this once.
    let lies = unsafe { Box::from_raw(context.cast::<Lies>()) };
    lies.dropped.fetch_add(1, Ordering::SeqCst);
}

#[derive(Default)]
struct Handles {
    datasets: Vec<*mut ul_dataset>,
    loaders: Vec<*mut ul_loader>,
    batches: Vec<*mut ul_batch>,
    readers: Vec<*mut ul_reader>,
    /// Contexts that were given away.
    given: usize,
    errors: u64,
    good: u64,
}

impl Handles {
    /// Records the result of a call, and frees its error.
    fn note(&mut self, status: i32, error: *mut ul_error) -> bool {
        assert!([UL_OK, UL_ERROR, UL_TIMEOUT, UL_END].contains(&status), "{status}");
        assert_eq!(status == UL_ERROR, !error.is_null(), "an error goes with its status");
        self.good += u64::from(status == UL_OK);
        if !error.is_null() {
            self.errors += 1;
            let mut info = ul_error_info::empty();
            // SAFETY: a living error and a struct with its size; texts live as long as the error.
            unsafe {
                assert_eq!(ul_error_get(error, &raw mut info), UL_OK);
                assert!(!CStr::from_ptr(info.message).to_bytes().is_empty());
                assert!(!CStr::from_ptr(info.kind).to_bytes().is_empty());
                ul_error_free(error);
            }
        }
        status == UL_OK
    }

    fn source_of(&mut self, random: &mut Random, path: &CString) {
        let (paths, name, dtype, shape) = ([path.as_ptr()], c"number", [c"i32", c"elephant"], [1_u64]);
        let field = ul_field {
            name: if random.pick(12) == 0 { null() } else { name.as_ptr() },
            dtype: dtype[usize::from(random.pick(12) == 0)].as_ptr(),
            shape: if random.pick(4) == 0 { null() } else { shape.as_ptr() },
            dimensions: 1,
        };
        let context = Box::into_raw(Box::new(Lies { seed: random.pick(1 << 40), dropped: &DROPPED }));
        let source = ul_source {
            size: if random.pick(12) == 0 { 8 } else { size_of::<ul_source>() },
            context: context.cast(),
            paths: paths.as_ptr(),
            path_count: 1,
            fields: &raw const field,
            field_count: usize::from(random.pick(12) > 0),
            samples: random.pick(200),
            fingerprint: random.pick(2),
            spans: (random.pick(12) > 0).then_some(spans),
            parse: (random.pick(2) == 0).then_some(parse),
            drop: Some(drops),
            bytes: random.pick(2) * 800,
            largest: [0, 0, 4, 3][random.pick(4) as usize],
        };
        let (mut made, mut error) = (null_mut(), null_mut());
        // SAFETY: everything that the source points to is alive here; the context is boxed.
        let status = unsafe { ul_dataset_of(&raw const source, &raw mut made, &raw mut error) };
        if self.note(status, error) {
            self.datasets.push(made);
            self.given += 1;
        } else {
            // SAFETY: the call failed, so the context is still this function's.
            drop(unsafe { Box::from_raw(context) });
        }
    }

    /// One call of any kind.
    fn step(&mut self, random: &mut Random, path: &CString) {
        let mut error = null_mut();
        // SAFETY: in each call: handles are null or living, because what is freed is taken off its list; texts are
        // living C strings; results go to variables of this function.
        unsafe {
            match random.pick(13) {
                0 => {
                    let options = [c"{\"format\": \"records\", \"record_bytes\": 4}", c"{\"nonsense\": 1}", c"[", c""];
                    let (paths, mut made) = ([path.as_ptr()], null_mut());
                    let options = options[random.pick(4) as usize].as_ptr();
                    let count = random.pick(2) as usize;
                    let status = ul_dataset_open(paths.as_ptr(), count, options, &raw mut made, &raw mut error);
                    if self.note(status, error) {
                        self.datasets.push(made);
                    }
                }
                1 => self.source_of(random, path),
                2 | 3 => {
                    let options = [
                        c"{\"batch_size\": 16, \"on_error\": \"skip\"}",
                        c"{\"batch_size\": 3, \"shuffle\": \"full\", \"memory_limit\": \"2MiB\"}",
                        c"{\"collate\": \"views\", \"epochs\": null, \"starved_after\": 1, \"memory_limit\": \"1MB\"}",
                        c"{\"batch_size\": -1}",
                        c"{\"rank\": 3}",
                        c"{\"shuffle\": \"sideways\"}",
                        c"{\"batchsize\": 7}",
                        c"{\"packing\": \"concat\", \"seq_len\": 3, \"memory_limit\": \"2MiB\"}",
                        c"{\"device\": \"host\", \"memory_limit\": \"2MiB\"}",
                    ];
                    let (options, mut made) = (options[random.pick(9) as usize].as_ptr(), null_mut());
                    let state = if random.pick(8) == 0 { c"{}".as_ptr() } else { null() };
                    let dataset = random.one(&self.datasets);
                    let status = ul_loader_new(dataset, options, state, &raw mut made, &raw mut error);
                    if self.note(status, error) {
                        self.loaders.push(made);
                    }
                }
                4..=6 => {
                    let mut batch = null_mut();
                    let wait = [0, 1, 5][random.pick(3) as usize];
                    let status = ul_loader_next(random.one(&self.loaders), wait, &raw mut batch, &raw mut error);
                    if self.note(status, error) {
                        self.batches.push(batch);
                    }
                }
                7 => {
                    let (mut text, what) = (null(), random.pick(3) as i32);
                    let status = ul_loader_tell(random.one(&self.loaders), what, &raw mut text, &raw mut error);
                    if self.note(status, error) {
                        assert!(!CStr::from_ptr(text).to_bytes().is_empty());
                    }
                    let mut fd = 0;
                    let status = ul_loader_ready_fd(random.one(&self.loaders), &raw mut fd, &raw mut error);
                    self.note(status, error);
                    if random.pick(8) == 0 {
                        ul_loader_cancel(random.one(&self.loaders));
                    }
                }
                8 => {
                    let mut made = null_mut();
                    let options = [c"{\"memory_limit\": \"1MiB\"}", c"{\"io\": \"steam\"}"][random.pick(2) as usize];
                    let dataset = random.one(&self.datasets);
                    let status = ul_reader_new(dataset, options.as_ptr(), &raw mut made, &raw mut error);
                    if self.note(status, error) {
                        self.readers.push(made);
                    }
                }
                9 | 10 => self.read(random),
                11 => self.look(random),
                _ => match random.pick(5) {
                    0 => ul_dataset_free(random.take(&mut self.datasets)),
                    1 => ul_loader_free(random.take(&mut self.loaders)),
                    2 | 3 => ul_batch_free(random.take(&mut self.batches)),
                    _ => ul_reader_free(random.take(&mut self.readers)),
                },
            }
        }
    }

    fn read(&mut self, random: &mut Random) {
        let mut error = null_mut();
        let reader = random.one(&self.readers);
        let span = ul_span { file: random.pick(2), offset: random.pick(900), len: random.pick(100) };
        let spans = if random.pick(8) == 0 { null() } else { &raw const span };
        // SAFETY: as in `step`.
        unsafe {
            let status = ul_reader_submit(reader, random.pick(20), spans, 1, &raw mut error);
            self.note(status, error);
            ul_reader_cancel(random.one(&self.readers), random.pick(20));
            let (mut id, mut batch) = (0, null_mut());
            let wait = [0, 1, 5][random.pick(3) as usize];
            let status = ul_reader_next(reader, wait, &raw mut id, &raw mut batch, &raw mut error);
            if self.note(status, error) {
                self.batches.push(batch);
            }
        }
    }

    /// Reads a batch, with structs of any size.
    fn look(&mut self, random: &mut Random) {
        let batch = random.one(&self.batches);
        // Room for the largest struct of a later header.
        let mut room = [0xaa_u8; 512].map(u64::from);
        let size = random.pick(300) as usize;
        room[0] = size as u64;
        let mut error = null_mut();
        // SAFETY: as in `step`; the structs have more room than their size says, and no alignment beyond 8.
        unsafe {
            let status = match random.pick(3) {
                0 => ul_batch_get(batch, room.as_mut_ptr().cast(), &raw mut error),
                1 => ul_batch_column(batch, random.pick(3), room.as_mut_ptr().cast(), &raw mut error),
                _ => ul_dataset_get(random.one(&self.datasets), room.as_mut_ptr().cast(), &raw mut error),
            };
            self.note(status, error);
            assert_eq!(room[0], size as u64, "the size stays");
            assert!(room[size.div_ceil(8).max(1)..].iter().all(|&word| word == 0xaa), "it wrote behind {size}");
            // On the host, the stream is ignored.
            let stream = [null_mut(), std::ptr::without_provenance_mut(UL_HOST)][random.pick(2) as usize];
            let status = ul_batch_wait_on(batch, stream, &raw mut error);
            self.note(status, error);
            let (mut tensor, index) = (null_mut::<c_void>(), random.pick(2));
            let out = (&raw mut tensor).cast();
            let status = ul_batch_export(batch, index, UL_DLPACK, out, null_mut(), &raw mut error);
            if self.note(status, error) {
                drop(uringload::sys::dlpack::Tensor::from_raw(tensor));
            }
        }
        self.export(random, batch);
    }

    /// Exports to Arrow: every form, there or not, with a place for the type or without.
    fn export(&mut self, random: &mut Random, batch: *mut ul_batch) {
        let (mut array, mut schema) = (MaybeUninit::<ArrowDeviceArray>::uninit(), MaybeUninit::<ArrowSchema>::uninit());
        let (index, form) = ([0, 1, UL_ALL][random.pick(3) as usize], random.pick(4) as i32 + 1);
        let out = if random.pick(8) == 0 { null_mut() } else { array.as_mut_ptr().cast() };
        let described = if random.pick(2) == 0 { null_mut() } else { schema.as_mut_ptr() };
        let mut error = null_mut();
        // SAFETY: as in `step`; there is room for either array, and what was given out is released once.
        unsafe {
            let status = ul_batch_export(batch, index, form, out, described, &raw mut error);
            if self.note(status, error) {
                // An `ArrowDeviceArray` begins with its array.
                let array = array.as_mut_ptr().cast::<ArrowArray>();
                (*array).release.expect("a callback")(array);
                assert!((*array).release.is_none(), "it says that it is released");
                if !described.is_null() {
                    (*described).release.expect("a callback")(described);
                }
            }
        }
    }

    fn end(mut self) -> (u64, u64) {
        // SAFETY: what is on the lists is living, and freed once.
        unsafe {
            self.datasets.drain(..).for_each(|handle| ul_dataset_free(handle));
            self.batches.drain(..).for_each(|handle| ul_batch_free(handle));
            self.loaders.drain(..).for_each(|handle| ul_loader_free(handle));
            self.readers.drain(..).for_each(|handle| ul_reader_free(handle));
            ul_dataset_free(null_mut());
            ul_batch_free(null_mut());
            ul_error_free(null_mut());
            assert_eq!(ul_error_get(null(), null_mut()), UL_ERROR);
        }
        (self.good, self.errors)
    }
}

/// The result of a world.
#[derive(Debug, Default)]
pub struct Sums {
    pub good: u64,
    pub errors: u64,
    /// Contexts of callbacks that were given away.
    pub given: usize,
}

/// Makes a world, calls whatever is drawn, and frees what is left, in another order than it was made.
pub fn world(random: &mut Random, path: &CString) -> Sums {
    let (mut handles, start) = (Handles::default(), Instant::now());
    for _ in 0..CALLS {
        if random.is_over() {
            break;
        }
        handles.step(random, path);
    }
    let given = handles.given;
    let (good, errors) = handles.end();
    assert!(start.elapsed() < BOUND, "a world takes {:?}", start.elapsed());
    Sums { good, errors, given }
}

//! Callbacks that lie, fail and contradict themselves, ten thousand times: every sample comes or counts as failed,
//! honest ones are complete, every error says what is wrong, and nothing hangs. C has no panics.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "calls of C stand in a row, under one promise")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload_capi::*;

/// Default; `URINGLOAD_SEEDS` overrides it.
const SEEDS: u64 = 10_000;
/// Samples of a dataset, of four bytes each.
const SAMPLES: u64 = 24;
/// Longest that one answer may take.
const BOUND_MS: i64 = 20_000;

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A number that depends on all of these.
fn mixed(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |sum: u64, &part| {
        let value = (sum ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (value ^ (value >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb).rotate_left(23)
    })
}

struct Lies {
    seed: u64,
    /// Calls so far: some callbacks answer differently each time.
    calls: AtomicU64,
}

/// Kinds from here on are honest.
const HONEST: u64 = 12;

impl Lies {
    /// What is wrong with this sample in `spans` (0) or `parse` (1). In a quarter of the datasets nothing is.
    fn kind(&self, sample: u64, callback: u64) -> u64 {
        let share = [0, 10, 40, 100][(self.seed % 4) as usize];
        let number = mixed(&[self.seed, sample, callback]);
        if number % 100 < share { (number / 100) % HONEST } else { HONEST }
    }

    fn is_honest(&self, sample: u64) -> bool {
        self.kind(sample, 0) == HONEST && self.kind(sample, 1) == HONEST
    }
}

unsafe extern "C" fn spans(
    context: *mut c_void,
    sample: u64,
    out: *mut ul_span,
    room: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: the context of `world`, which lives until `drops`.
    let lies = unsafe { &*context.cast::<Lies>() };
    let honest = ul_span { file: 0, offset: sample * 4, len: 4 };
    let call = lies.calls.fetch_add(1, Ordering::Relaxed);
    let (told, span) = match lies.kind(sample, 0) {
        0 => return 1,
        1 => return -1,
        2 => (0, honest),
        3 => (usize::MAX, honest),
        4 => (room + 1, honest),
        5 => (2, honest),
        6 => (1, ul_span { file: 1, ..honest }),
        7 => (1, ul_span { file: u64::MAX, ..honest }),
        8 => (1, ul_span { offset: u64::MAX, ..honest }),
        9 => (1, ul_span { len: u64::MAX, ..honest }),
        10 => (1, ul_span { len: mixed(&[call]) % 9, ..honest }),
        11 => ((mixed(&[call]) % 3) as usize, ul_span { offset: mixed(&[call]) % 200, ..honest }),
        _ => (1, honest),
    };
    // SAFETY: the library gives a count to write to.
    unsafe { count.write(told) };
    for at in 0..told.min(room) {
        // SAFETY: the library gives room for `room` spans.
        unsafe { out.add(at).write(span) };
    }
    0
}

unsafe extern "C" fn parse(
    context: *mut c_void,
    sample: u64,
    _read: *const ul_bytes,
    _read_count: usize,
    values: *mut ul_value,
    _value_count: usize,
) -> c_int {
    static ZEROS: [u8; 64] = [0; 64];
    // SAFETY: the context of `world`, which lives until `drops`.
    let lies = unsafe { &*context.cast::<Lies>() };
    let call = lies.calls.fetch_add(1, Ordering::Relaxed);
    let honest = ul_value { data: null(), span: 0, offset: 0, len: 4 };
    let value = match lies.kind(sample, 1) {
        0 => return 1,
        1 => return c_int::MIN,
        // Nothing is written: the library's default has no length.
        2 => return 0,
        3 => ul_value { span: 1, ..honest },
        4 => ul_value { span: usize::MAX, ..honest },
        5 => ul_value { offset: 1, ..honest },
        6 => ul_value { offset: usize::MAX, ..honest },
        7 => ul_value { len: usize::MAX, ..honest },
        8 => ul_value { len: 3, ..honest },
        9 => ul_value { data: ZEROS.as_ptr(), len: 64, ..honest },
        10 => ul_value { data: ZEROS.as_ptr(), len: usize::MAX, ..honest },
        11 => ul_value { len: (mixed(&[call]) % 6) as usize, ..honest },
        _ => honest,
    };
    // SAFETY: there is room for one value.
    unsafe { values.write(value) };
    0
}

unsafe extern "C" fn drops(context: *mut c_void) {
    // SAFETY: made by `Box::into_raw` in `world`; the library calls this once.
    drop(unsafe { Box::from_raw(context.cast::<Lies>()) });
    DROPPED.fetch_add(1, Ordering::SeqCst);
}

/// Checks that an error has a text, and frees it.
fn freed(error: *mut ul_error, seed: u64) -> String {
    let mut info = ul_error_info::empty();
    // SAFETY: the error is living; its texts live as long as it.
    unsafe {
        assert_eq!(ul_error_get(error, &raw mut info), UL_OK, "seed {seed}");
        let [kind, message] = [info.kind, info.message].map(|text| CStr::from_ptr(text).to_string_lossy());
        // A span that leads out of its file is an internal error too, of the dataset and not of the library.
        // Where `spans` answers otherwise each time, the library may find bytes missing that it never asked for, and
        // take that for a fault of its own: it remembers no answers to compare them with.
        let lies = Lies { seed, calls: AtomicU64::new(0) };
        let contradicts = (0..SAMPLES).any(|sample| [10, 11].contains(&lies.kind(sample, 0)));
        let blames_the_library = kind == "Internal" && message.contains("bug of uringload") && !contradicts;
        assert!(!message.is_empty() && !blames_the_library, "seed {seed}: {kind}: {message}");
        let message = message.into_owned();
        ul_error_free(error);
        message
    }
}

/// The values of a batch: those of honest samples equal the file. Returns how many came and how many did not.
///
/// # Safety
/// `batch` is living, and is not used afterwards.
unsafe fn checked(batch: *mut ul_batch, lies: &Lies) -> (u64, u64) {
    // SAFETY: zeros are null pointers and numbers; the batch is living.
    unsafe {
        let (mut info, mut column): (ul_batch_info, ul_column) = (std::mem::zeroed(), std::mem::zeroed());
        (info.size, column.size) = (size_of::<ul_batch_info>(), size_of::<ul_column>());
        assert_eq!(ul_batch_get(batch, &raw mut info, null_mut()), UL_OK);
        assert_eq!(ul_batch_column(batch, 0, &raw mut column, null_mut()), UL_OK);
        for at in 0..info.samples as usize {
            let (id, value) = (*info.ids.add(at), *column.values.data.cast::<i32>().add(at));
            assert!(!lies.is_honest(id) || value == id as i32, "seed {}: sample {id} is {value}", lies.seed);
        }
        ul_batch_free(batch);
        (info.samples, info.failed)
    }
}

/// A dataset and a loader of one seed. Returns samples that came, and errors.
fn world(seed: u64, path: &CString) -> (u64, u64) {
    let lies = Box::new(Lies { seed, calls: AtomicU64::new(0) });
    let witness = Lies { seed, calls: AtomicU64::new(0) };
    let (paths, scalar) = ([path.as_ptr()], [0_u64; 0]);
    let field = ul_field { name: c"number".as_ptr(), dtype: c"i32".as_ptr(), shape: scalar.as_ptr(), dimensions: 0 };
    let source = ul_source {
        size: size_of::<ul_source>(),
        context: Box::into_raw(lies).cast(),
        paths: paths.as_ptr(),
        path_count: 1,
        fields: &raw const field,
        field_count: 1,
        samples: SAMPLES,
        fingerprint: seed,
        spans: Some(spans),
        parse: Some(parse),
        drop: Some(drops),
        bytes: 0,
        largest: 0,
    };
    let options = [
        c"{\"batch_size\": 5, \"on_error\": \"skip\"}",
        c"{\"batch_size\": 8, \"on_error\": \"skip\", \"shuffle\": \"full\", \"engine\": \"threads\"}",
        c"{\"batch_size\": 24, \"on_error\": \"replace\"}",
        c"{\"batch_size\": 7}",
    ][(mixed(&[seed, 1]) % 4) as usize];
    let (mut data, mut loader, mut error) = (null_mut(), null_mut(), null_mut());
    let (mut came, mut failed, mut errors, mut told) = (0, 0, 0, String::new());
    // SAFETY: every pointer is a living text, a handle that a line before made, or the address of a variable; each
    // handle is freed once.
    unsafe {
        assert_eq!(ul_dataset_of(&raw const source, &raw mut data, null_mut()), UL_OK, "seed {seed}");
        if ul_loader_new(data, options.as_ptr(), null(), &raw mut loader, &raw mut error) == UL_OK {
            loop {
                let mut batch = null_mut();
                match ul_loader_next(loader, BOUND_MS, &raw mut batch, &raw mut error) {
                    UL_OK => {
                        let (more, lost) = checked(batch, &witness);
                        (came, failed) = (came + more, failed + lost);
                    }
                    UL_ERROR => {
                        told = freed(error, seed);
                        errors += 1;
                    }
                    UL_END => break,
                    status => panic!("seed {seed}: status {status}: nothing came in {BOUND_MS} ms"),
                }
                assert!(errors <= SAMPLES + 1, "seed {seed}: errors without end");
            }
        } else {
            told = freed(error, seed);
            errors += 1;
        }
        ul_loader_free(loader);
        ul_dataset_free(data);
    }
    assert!(errors > 0 || came + failed >= SAMPLES, "seed {seed}: {came} came and {failed} failed: {told}");
    assert!(!seed.is_multiple_of(4) || (came, failed, errors) == (SAMPLES, 0, 0), "seed {seed} is honest: {told}");
    (came, failed + errors)
}

#[test]
fn every_lie_is_an_error_of_its_own_and_nothing_hangs() {
    let seeds = std::env::var("URINGLOAD_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let root = TempDir::new().expect("a folder");
    let path = root.path().join("numbers");
    let bytes: Vec<u8> = (0..SAMPLES as i32).flat_map(i32::to_ne_bytes).collect();
    std::fs::write(&path, bytes).expect("a file");
    let path = CString::new(path.to_str().expect("UTF-8")).expect("text");
    let start = Instant::now();
    let (mut came, mut errors) = (0, 0);
    for seed in 0..seeds {
        let (more, wrong) = world(seed, &path);
        (came, errors) = (came + more, errors + wrong);
    }
    eprintln!("{seeds} seeds in {:?}: {came} samples came, {errors} errors", start.elapsed());
    assert!(came > seeds && errors > seeds, "{came} came and {errors} errors");
    // The last thread of a loader may still be ending.
    let start = Instant::now();
    while DROPPED.load(Ordering::SeqCst) < seeds as usize && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(DROPPED.load(Ordering::SeqCst), seeds as usize, "each context is dropped once");
}

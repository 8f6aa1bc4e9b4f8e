//! The GPU that tests run on, where there is one, and what differs between two runs: seeds, folders, numbers of cases.

use crate::common::skip;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use uringload_sys::cuda::{Context, Driver};

/// The first GPU; `None`, said aloud, where there is none.
///
/// # Panics
/// If `URINGLOAD_GPU_REQUIRED` says that there is one.
pub fn gpu(test: &str) -> Option<Context> {
    static FOUND: OnceLock<Result<Context, String>> = OnceLock::new();
    let open = || Driver::open(None).and_then(|driver| Context::new(&driver, 0)).map_err(|error| error.to_string());
    match FOUND.get_or_init(open) {
        Ok(context) => Some(context.clone()),
        Err(reason) => {
            assert!(number("URINGLOAD_GPU_REQUIRED").is_none(), "there is a GPU, and it cannot be opened: {reason}");
            skip(format!("{test}: {reason}"));
            None
        }
    }
}

/// The seed of a test, which is printed.
pub fn seed(test: &str) -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let seed = number("URINGLOAD_GPU_SEED").unwrap_or_else(now);
    eprintln!("{test}: URINGLOAD_GPU_SEED={seed}");
    seed
}

/// How many random cases there are of something, `usual` of them by default.
pub fn cases(usual: u64) -> u64 {
    number("URINGLOAD_GPU_CASES").unwrap_or(usual)
}

/// Whether all is to be small, because something looks at every access of memory: what is large is left out, aloud.
pub fn is_watched(test: &str) -> bool {
    let is_watched = number("URINGLOAD_GPU_CASES").is_some_and(|cases| cases < 50);
    if is_watched {
        skip(format!("{test}: URINGLOAD_GPU_CASES asks for less"));
    }
    is_watched
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}

/// A folder for data.
pub fn folder() -> TempDir {
    let parent = std::env::var_os("URINGLOAD_GPU_DIR").map_or_else(std::env::temp_dir, Into::into);
    TempDir::new_in(&parent).unwrap_or_else(|error| panic!("no folder can be made in {}: {error}", parent.display()))
}

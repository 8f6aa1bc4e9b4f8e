//! Our use of the CUDA driver, its mock, and loaders that deliver to devices.

mod common;
#[path = "../common/faulty.rs"]
#[allow(dead_code, unreachable_pub, reason = "this suite uses a part of it")]
mod faulty;
#[path = "../common/mounts.rs"]
#[allow(dead_code, unreachable_pub, reason = "this suite uses a part of it")]
mod mounts;

// As `mounts` and `faulty` call them.
use common::skip;
use uringload_content as content;

/// Whether this process may mount.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

mod devices {
    mod allocator;
    mod anything;
    mod bench;
    mod capture;
    mod decoded;
    mod driver;
    mod failures;
    mod kernels;
    mod nvjpeg;
    mod pinned;
    mod pipeline;
    mod resident;
    mod straight;
    mod whole;
}

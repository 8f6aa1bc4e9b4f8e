//! What a GPU does: the kernels against their twins, and whole loaders against those of the host, to the bit.
//!
//! Where there is no driver or no device each test says so and passes. It runs from a prebuilt binary on a machine
//! without Rust: nothing here names a folder of the machine that built it. From the environment it takes
//!
//! - `URINGLOAD_GPU_DIR`: where data is written, instead of the system's temporary folder: on a disk, to read past the
//!   page cache.
//! - `URINGLOAD_GPU_SEED`: the seed of all that is random, which is another one each time otherwise; it is printed.
//! - `URINGLOAD_GPU_CASES`: random cases of each kernel, instead of as many as take seconds; below 50 what is large is
//!   left out, for a sanitizer or a mock.
//! - `URINGLOAD_GPU_NVJPEG`: nvJPEG's library or its folder, where the system finds none.
//!
//! What is poisoned, run, read back and compared is all of the memory that a test uses: what a kernel reads and what
//! lies between, too.

mod common;

#[path = "gpu/bench.rs"]
mod bench;
#[path = "gpu/consumers.rs"]
mod consumers;
#[path = "gpu/kernels.rs"]
mod kernels;
#[path = "gpu/machine.rs"]
mod machine;
#[path = "gpu/pictures.rs"]
mod pictures;
#[path = "gpu/pipeline.rs"]
mod pipeline;

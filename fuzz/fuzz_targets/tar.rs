//! WebDataset archives.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Tar, TarOptions};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let options = TarOptions { no_sidecars: true, threads: 1, ..TarOptions::default() };
    walk(Tar::open(&[files(&[("a.tar", data)]).join("a.tar")], &options));
});

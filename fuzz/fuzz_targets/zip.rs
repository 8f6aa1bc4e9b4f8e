//! Zip archives of files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.zip", data)]).join("a.zip");
    walk(dataset::open(&[&path], &Options::new().format("zip").threads(1)));
});

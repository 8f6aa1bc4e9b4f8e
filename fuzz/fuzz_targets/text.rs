//! Lines of text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.txt", data)]).join("a.txt");
    walk(dataset::open(&[&path], &Options::new().format("text").sidecars(false).threads(1)));
});

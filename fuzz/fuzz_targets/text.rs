//! Lines of text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{LineOptions, Lines};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.txt", data)]).join("a.txt");
    walk(Lines::open(&[&path], &LineOptions::new().common(|common| (common.sidecars, common.threads) = (false, 1))));
});

//! FFCV's .beton: its head and records, one page and the allocations, each at its place in a whole file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::os::unix::fs::FileExt;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, two, walk};

/// The smallest page size.
const PAGE: u64 = 2 << 20;

fuzz_target!(|data: &[u8]| {
    let (head, rest) = two(data);
    let path = files(&[("a.beton", head)]).join("a.beton");
    if !rest.is_empty() {
        let (page, allocations) = two(rest);
        // The holes between them take no space.
        let file = File::options().write(true).open(&path).expect("the file is there");
        file.write_all_at(page, PAGE).expect("there is room");
        file.write_all_at(allocations, 2 * PAGE).expect("there is room");
    }
    let _ = detect(&[&path], &Options::new());
    walk(dataset::open(&[path], &Options::new().format("beton").threads(1)));
});

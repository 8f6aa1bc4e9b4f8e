//! Megatron's .idx beside a .bin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, two, walk};

fuzz_target!(|data: &[u8]| {
    let (index, tokens) = two(data);
    let folder = files(&[("a.idx", index), ("a.bin", tokens)]);
    for documents in [false, true] {
        let options = Options::new().format("tokens").set("documents", documents).set("window_tokens", 3).threads(1);
        walk(dataset::open(&[folder.join("a.bin")], &options));
    }
});

//! Megatron's .idx beside a .bin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{TokenOptions, Tokens};
use uringload_fuzz::{files, two, walk};

fuzz_target!(|data: &[u8]| {
    let (index, tokens) = two(data);
    let folder = files(&[("a.idx", index), ("a.bin", tokens)]);
    for documents in [false, true] {
        let options = TokenOptions::new().documents(documents).window_tokens(3).common(|common| common.threads = 1);
        walk(Tokens::open(&[folder.join("a.bin")], &options));
    }
});

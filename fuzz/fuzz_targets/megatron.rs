//! Megatron's .idx beside a .bin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{TokenOptions, TokenSource, Tokens};
use uringload_fuzz::{files, two, walk};

fuzz_target!(|data: &[u8]| {
    let (index, tokens) = two(data);
    let folder = files(&[("a.idx", index), ("a.bin", tokens)]);
    for documents in [false, true] {
        let source = TokenSource::Megatron { documents };
        let options = TokenOptions { threads: 1, ..TokenOptions::new(source, 3) };
        walk(Tokens::open(&[folder.join("a.bin")], &options));
    }
});

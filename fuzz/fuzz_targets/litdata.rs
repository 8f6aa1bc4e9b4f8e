//! LitData: an index.json and a chunk.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{LitData, LitDataOptions};
use uringload_fuzz::{files, two, walk};

fuzz_target!(|data: &[u8]| {
    let (index, chunk) = two(data);
    let folder = files(&[("index.json", index), ("chunk-0-0.bin", chunk), ("chunk-0-0.zstd.bin", chunk)]);
    let options = LitDataOptions { block_size: Some(4), threads: 1, ..LitDataOptions::default() };
    walk(LitData::open(&[folder], &options));
});

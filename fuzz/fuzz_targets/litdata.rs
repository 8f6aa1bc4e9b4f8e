//! LitData: an index.json and a chunk.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{BadShards, LitData, LitDataOptions};
use uringload_fuzz::{files, two, walk, with_lengths};

fuzz_target!(|data: &[u8]| {
    let (index, chunk) = two(data);
    let index = with_lengths(index, chunk.len(), chunk.len());
    let folder = files(&[("index.json", &index), ("chunk-0-0.bin", chunk)]);
    LitData::detect(folder);
    for (block_size, bad_shards) in [(None, BadShards::Refuse), (Some(4), BadShards::FailSamples)] {
        walk(LitData::open(&[folder], &LitDataOptions { block_size, bad_shards, threads: 1 }));
    }
});

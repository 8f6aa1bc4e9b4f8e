//! LitData: an index.json and a chunk that is compressed, as a whole or in parts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{BadShards, LitData, LitDataOptions};
use uringload_fuzz::{compressed, files, two, walk, with_lengths};

fuzz_target!(|data: &[u8]| {
    let (index, chunk) = two(data);
    let zip = compressed(chunk);
    let index = with_lengths(index, chunk.len().saturating_sub(1), zip.len());
    // A raw chunk beside a compressed one would be read instead.
    let is_whole = index.windows(5).any(|text| text == b".zstd");
    let name = if is_whole { "chunk-0-0.zstd.bin" } else { "chunk-0-0.bin" };
    let folder = files(&[("index.json", &index), (name, &zip)]);
    for (block_size, bad_shards) in [(None, BadShards::Refuse), (Some(4), BadShards::FailSamples)] {
        walk(LitData::open(&[folder], &LitDataOptions { block_size, bad_shards, threads: 1 }));
    }
});

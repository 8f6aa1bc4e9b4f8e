//! LitData: an index.json and a compressed chunk, compressed as a whole or in parts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{compressed, files, two, walk, with_lengths};

fuzz_target!(|data: &[u8]| {
    let (index, chunk) = two(data);
    let zip = compressed(chunk);
    let index = with_lengths(index, chunk.len().saturating_sub(1), zip.len());
    // A raw chunk beside a compressed one would be read instead.
    let is_whole = index.windows(5).any(|text| text == b".zstd");
    let name = if is_whole { "chunk-0-0.zstd.bin" } else { "chunk-0-0.bin" };
    let folder = files(&[("index.json", &index), (name, &zip)]);
    for (block_size, allowed) in [(None, false), (Some(4), true)] {
        let mut options = Options::new().format("litdata").set("allow_bad_shards", allowed).threads(1);
        if let Some(size) = block_size {
            options = options.set("block_size", size);
        }
        walk(dataset::open(&[folder], &options));
    }
});

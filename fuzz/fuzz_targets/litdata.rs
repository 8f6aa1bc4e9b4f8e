//! LitData: an index.json and a chunk, with items or with rows as Arrow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, two, walk, with_lengths};

fuzz_target!(|data: &[u8]| {
    let (index, chunk) = two(data);
    let index = with_lengths(index, chunk.len(), chunk.len());
    let folder = files(&[("index.json", &index), ("chunk-0-0.bin", chunk)]);
    let _ = detect(&[folder], &Options::new());
    for (block_size, allowed) in [(None, false), (Some(4), true)] {
        let mut options = Options::new().format("litdata").prefer("allow_bad_shards", allowed).threads(1);
        options = options.prefer("nulls", if allowed { "mask" } else { "zero" });
        if let Some(size) = block_size {
            options = options.set("block_size", size);
        }
        walk(dataset::open(&[folder], &options));
    }
});

//! MDS: an index.json and a shard.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, two, walk, with_lengths};

fuzz_target!(|data: &[u8]| {
    let (index, shard) = two(data);
    let index = with_lengths(index, shard.len(), shard.len());
    let folder = files(&[("index.json", &index), ("shard.00000.mds", shard)]);
    let _ = detect(&[folder], &Options::new());
    for allowed in [false, true] {
        let options = Options::new().format("mds").set("allow_bad_shards", allowed).threads(1);
        walk(dataset::open(&[folder], &options));
    }
});

//! MDS: an index.json and a shard.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Mds, MdsOptions, Options, detect};
use uringload_fuzz::{files, two, walk, with_lengths};

fuzz_target!(|data: &[u8]| {
    let (index, shard) = two(data);
    let index = with_lengths(index, shard.len(), shard.len());
    let folder = files(&[("index.json", &index), ("shard.00000.mds", shard)]);
    let _ = detect(&[folder], &Options::new());
    for allowed in [false, true] {
        let options = MdsOptions::new().allow_bad_shards(allowed).common(|common| common.threads = 1);
        walk(Mds::open(&[folder], &options));
    }
});

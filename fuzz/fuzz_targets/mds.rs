//! MDS: an index.json and a shard.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{BadShards, Mds, MdsOptions};
use uringload_fuzz::{files, two, walk, with_lengths};

fuzz_target!(|data: &[u8]| {
    let (index, shard) = two(data);
    let index = with_lengths(index, shard.len(), shard.len());
    let folder = files(&[("index.json", &index), ("shard.00000.mds", shard)]);
    Mds::detect(folder);
    for bad_shards in [BadShards::Refuse, BadShards::FailSamples] {
        walk(Mds::open(&[folder], &MdsOptions { bad_shards, threads: 1, ..MdsOptions::default() }));
    }
});

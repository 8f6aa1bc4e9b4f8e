//! MDS: an index.json and a shard.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Mds, MdsOptions};
use uringload_fuzz::{files, two, walk};

fuzz_target!(|data: &[u8]| {
    let (index, shard) = two(data);
    let folder = files(&[("index.json", index), ("shard.00000.mds", shard), ("shard.00000.mds.zstd", shard)]);
    walk(Mds::open(&[folder], &MdsOptions { threads: 1, ..MdsOptions::default() }));
});

//! MDS: an index.json and a shard compressed as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{compressed, files, two, walk, with_lengths};

fuzz_target!(|data: &[u8]| {
    let (index, shard) = two(data);
    let zip = compressed(shard);
    let index = with_lengths(index, shard.len().saturating_sub(1), zip.len());
    let names = ["zstd", "gz", "br", "bz2", "snappy"].map(|end| format!("shard.00000.mds.{end}"));
    let mut all: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &zip[..])).collect();
    all.push(("index.json", &index));
    let folder = files(&all);
    for allowed in [false, true] {
        let options = Options::new().format("mds").set("allow_bad_shards", allowed).threads(1);
        walk(dataset::open(&[folder], &options));
    }
});

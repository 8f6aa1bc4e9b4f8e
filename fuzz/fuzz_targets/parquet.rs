//! Parquet: all columns. A panic ends the fuzzer, even where the library catches it: libfuzzer's hook aborts first.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.parquet", data)]).join("a.parquet");
    let _ = detect(&[&path], &Options::new());
    let options = Options::new().format("parquet").threads(1);
    walk(dataset::open(&[&path], &options));
    walk(dataset::open(&[&path], &options.set("nulls", "empty")));
});

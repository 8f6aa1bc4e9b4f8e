//! TFRecord files, plain and compressed as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{compressed, files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.tfrecord", &compressed(data))]).join("a.tfrecord");
    let plain = Options::new().format("tfrecord").set("missing", "empty");
    let plain = plain.sidecars(false).threads(1);
    let lax = plain.clone().set("keep_damaged", true).set("verify_crc", false);
    for options in [plain, lax.clone().set("examples", true), lax.set("whole_records", true)] {
        walk(dataset::open(&[&path], &options));
    }
});

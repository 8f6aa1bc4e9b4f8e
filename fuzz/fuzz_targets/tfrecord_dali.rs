//! DALI's index beside a TFRecord file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

const RECORDS: &[u8] = include_bytes!("../../tests/data/tfrecord/bytes/raw.tfrecord");

fuzz_target!(|data: &[u8]| {
    let folder = files(&[("a.tfrecord", RECORDS), ("a.idx", data)]);
    let options = Options::new().format("tfrecord").set("whole_records", true).sidecars(false).threads(1);
    walk(dataset::open(&[folder.join("a.tfrecord")], &options));
});

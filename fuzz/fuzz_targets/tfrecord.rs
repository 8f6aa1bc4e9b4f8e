//! TFRecord files, plain and compressed as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Damaged, Missing, TfRecord, TfRecordContent, TfRecordOptions};
use uringload_fuzz::{compressed, files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.tfrecord", &compressed(data))]).join("a.tfrecord");
    let modes = [
        (TfRecordContent::Auto, Damaged::Error),
        (TfRecordContent::Examples, Damaged::Keep),
        (TfRecordContent::Bytes, Damaged::Keep),
    ];
    for (content, damaged) in modes {
        let options = TfRecordOptions {
            content,
            damaged,
            missing: Missing::Empty,
            verify_crc: damaged == Damaged::Error,
            no_sidecars: true,
            threads: 1,
            ..TfRecordOptions::default()
        };
        walk(TfRecord::open(&[&path], &options));
    }
});

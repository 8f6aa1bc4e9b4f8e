//! DALI's index beside a TFRecord file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{TfRecord, TfRecordOptions};
use uringload_fuzz::{files, walk};

const RECORDS: &[u8] = include_bytes!("../../tests/data/tfrecord/bytes/raw.tfrecord");

fuzz_target!(|data: &[u8]| {
    let folder = files(&[("a.tfrecord", RECORDS), ("a.idx", data)]);
    let options =
        TfRecordOptions::new().whole_records(true).common(|common| (common.sidecars, common.threads) = (false, 1));
    walk(TfRecord::open(&[folder.join("a.tfrecord")], &options));
});

//! TFRecord files, plain and compressed as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Missing, TfRecord, TfRecordOptions};
use uringload_fuzz::{compressed, files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.tfrecord", &compressed(data))]).join("a.tfrecord");
    let plain = TfRecordOptions::new().missing(Missing::Empty);
    let plain = plain.common(|common| (common.sidecars, common.threads) = (false, 1));
    let lax = plain.clone().keep_damaged(true).verify_crc(false);
    for options in [plain, lax.clone().examples(true), lax.whole_records(true)] {
        walk(TfRecord::open(&[&path], &options));
    }
});

//! Two TFRecord records that are tf.train.Example, with correct checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Missing, TfRecord, TfRecordOptions};
use uringload_fuzz::{files, framed, two, walk};

fuzz_target!(|data: &[u8]| {
    let (first, second) = two(data);
    let path = files(&[("a.tfrecord", &[framed(first), framed(second)].concat())]).join("a.tfrecord");
    let plain = TfRecordOptions::new().examples(true).common(|common| (common.sidecars, common.threads) = (false, 1));
    walk(TfRecord::open(&[&path], &plain));
    walk(TfRecord::open(&[&path], &plain.clone().missing(Missing::Empty)));
    let fixed = plain.fixed([("label", &[][..]), ("box", &[2, 2])]).fields(["label", "box"]);
    walk(TfRecord::open(&[&path], &fixed));
});

//! Two records of TFRecord that are tf.train.Example, with right checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Missing, TfRecord, TfRecordContent, TfRecordOptions};
use uringload_fuzz::{files, framed, two, walk};

fuzz_target!(|data: &[u8]| {
    let (first, second) = two(data);
    let path = files(&[("a.tfrecord", &[framed(first), framed(second)].concat())]).join("a.tfrecord");
    let plain = TfRecordOptions {
        content: TfRecordContent::Examples,
        no_sidecars: true,
        threads: 1,
        ..TfRecordOptions::default()
    };
    walk(TfRecord::open(&[&path], &plain));
    walk(TfRecord::open(&[&path], &TfRecordOptions { missing: Missing::Empty, ..plain.clone() }));
    let fixed = vec![("label".to_owned(), Vec::new()), ("box".to_owned(), vec![2, 2])];
    let fields = Some(vec!["label".to_owned(), "box".to_owned()]);
    walk(TfRecord::open(&[&path], &TfRecordOptions { fixed, fields, ..plain }));
});

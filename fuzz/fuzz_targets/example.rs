//! Two TFRecord records that are tf.train.Example, with correct checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, framed, two, walk};

fuzz_target!(|data: &[u8]| {
    let (first, second) = two(data);
    let path = files(&[("a.tfrecord", &[framed(first), framed(second)].concat())]).join("a.tfrecord");
    let plain = Options::new().format("tfrecord").set("examples", true).sidecars(false).threads(1);
    walk(dataset::open(&[&path], &plain));
    walk(dataset::open(&[&path], &plain.clone().set("missing", "empty")));
    let fixed = plain.set("fixed", ["label:", "box:2x2"]).set("fields", ["label", "box"]);
    walk(dataset::open(&[&path], &fixed));
});

//! JSON Lines, whole and with selected fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.jsonl", data)]).join("a.jsonl");
    let plain = Options::new().format("jsonl").set("keep_damaged", true);
    let plain = plain.sidecars(false).threads(1);
    for columns in [&[][..], &["text", "label", "ids"], &["text", "label:i8", "ids:f32"]] {
        let options = plain.clone().set("columns", columns);
        walk(dataset::open(&[&path], &options));
    }
});

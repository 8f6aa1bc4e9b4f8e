//! JSON Lines, whole and with selected fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{LineFormat, LineOptions, Lines};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.jsonl", data)]).join("a.jsonl");
    let plain = LineOptions::new().format(LineFormat::Jsonl).keep_damaged(true);
    let plain = plain.common(|common| (common.sidecars, common.threads) = (false, 1));
    for columns in [&[][..], &["text", "label", "ids"], &["text", "label:i8", "ids:f32"]] {
        let options = plain.clone().columns(columns);
        walk(Lines::open(&[&path], &options));
    }
});

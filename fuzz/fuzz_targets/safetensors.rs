//! safetensors, as tensors and as rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{ArrayFormat, ArrayOptions, ArraySamples, Arrays};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.safetensors", data)]).join("a.safetensors");
    for samples in [ArraySamples::Files, ArraySamples::Arrays, ArraySamples::Rows] {
        let options = ArrayOptions::new().samples(samples).common(|common| common.threads = 1);
        walk(Arrays::open(ArrayFormat::Safetensors, &[&path], &options));
    }
});

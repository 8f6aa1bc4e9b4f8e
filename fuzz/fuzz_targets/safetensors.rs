//! safetensors, as tensors and as rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.safetensors", data)]).join("a.safetensors");
    for samples in ["files", "arrays", "rows"] {
        let options = Options::new().format("safetensors").set("samples", samples).threads(1);
        walk(dataset::open(&[&path], &options));
    }
});

//! NumPy's .npy, as arrays and as rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.npy", data)]).join("a.npy");
    for samples in ["files", "rows"] {
        let options = Options::new().format("npy").set("samples", samples).threads(1);
        walk(dataset::open(&[&path], &options));
    }
});

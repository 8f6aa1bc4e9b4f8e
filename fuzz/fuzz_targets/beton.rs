//! FFCV's .beton.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Beton, BetonOptions};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    walk(Beton::open(&[files(&[("a.beton", data)]).join("a.beton")], &BetonOptions { threads: 1 }));
});

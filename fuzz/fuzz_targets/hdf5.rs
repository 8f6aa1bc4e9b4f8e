//! HDF5: all datasets with the same number of rows, and one selected by name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.h5", data)]).join("a.h5");
    let _ = detect(&[&path], &Options::new());
    let options = Options::new().format("hdf5").threads(1);
    walk(dataset::open(&[&path], &options));
    walk(dataset::open(&[&path], &options.set("tensors", ["x"])));
});

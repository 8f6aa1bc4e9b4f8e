//! HDF5: all datasets with the same number of rows, and one selected by name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Hdf5, Hdf5Options, Options, detect};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.h5", data)]).join("a.h5");
    let _ = detect(&[&path], &Options::new());
    let options = Hdf5Options::new().common(|common| common.threads = 1);
    walk(Hdf5::open(&[&path], &options));
    walk(Hdf5::open(&[&path], &options.tensors(["x"])));
});

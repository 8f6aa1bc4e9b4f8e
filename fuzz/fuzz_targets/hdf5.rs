//! HDF5: all datasets of as many rows, and one that is asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Hdf5, Hdf5Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.h5", data)]).join("a.h5");
    Hdf5::detect(&path);
    walk(Hdf5::open(&[&path], &Hdf5Options { threads: 1, ..Hdf5Options::default() }));
    walk(Hdf5::open(&[&path], &Hdf5Options { datasets: vec!["x".to_owned()], threads: 1 }));
});

//! WebDataset archives that are compressed as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Damaged, Missing, Tar, TarOptions};
use uringload_fuzz::{compressed, files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.tar", &compressed(data))]).join("a.tar");
    for (damaged, missing) in [(Damaged::Error, Missing::Error), (Damaged::Keep, Missing::Empty)] {
        let options = TarOptions { damaged, missing, no_sidecars: true, threads: 1, ..TarOptions::default() };
        walk(Tar::open(&[&path], &options));
    }
});

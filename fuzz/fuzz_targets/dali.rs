//! DALI's index beside an archive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

const ARCHIVE: &[u8] = include_bytes!("../corpus/tar/two.tar");

fuzz_target!(|data: &[u8]| {
    let folder = files(&[("a.tar", ARCHIVE), ("a.idx", data)]);
    let options = Options::new().format("tar").threads(1);
    walk(dataset::open(&[folder.join("a.tar")], &options));
});

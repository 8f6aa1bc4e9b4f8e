//! DALI's index beside an archive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Tar, TarOptions};
use uringload_fuzz::{files, walk};

const ARCHIVE: &[u8] = include_bytes!("../corpus/tar/two.tar");

fuzz_target!(|data: &[u8]| {
    let folder = files(&[("a.tar", ARCHIVE), ("a.idx", data)]);
    let options = TarOptions::new().common(|common| common.threads = 1);
    walk(Tar::open(&[folder.join("a.tar")], &options));
});

//! WebDataset archives compressed as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{compressed, files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.tar", &compressed(data))]).join("a.tar");
    for (keep, missing) in [(false, "error"), (true, "empty")] {
        let options =
            Options::new().format("tar").set("keep_damaged", keep).set("missing", missing).sidecars(false).threads(1);
        walk(dataset::open(&[&path], &options));
    }
});

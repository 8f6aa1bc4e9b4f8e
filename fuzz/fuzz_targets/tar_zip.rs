//! WebDataset archives compressed as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Missing, Tar, TarOptions};
use uringload_fuzz::{compressed, files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.tar", &compressed(data))]).join("a.tar");
    for (keep, missing) in [(false, Missing::Error), (true, Missing::Empty)] {
        let options = TarOptions::new()
            .keep_damaged(keep)
            .missing(missing)
            .common(|common| (common.sidecars, common.threads) = (false, 1));
        walk(Tar::open(&[&path], &options));
    }
});

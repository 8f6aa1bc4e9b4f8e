//! Files of lines that are compressed as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{compressed, files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.json.gz", &compressed(data))]).join("a.json.gz");
    for (format, columns) in [("jsonl", &["text", "label:i8", "ids"][..]), ("csv", &[]), ("text", &[])] {
        for keep in [false, true] {
            let options = Options::new().format(format).set("keep_damaged", keep).sidecars(false).threads(1);
            let options = if columns.is_empty() { options } else { options.set("columns", columns) };
            walk(dataset::open(&[&path], &options));
        }
    }
});

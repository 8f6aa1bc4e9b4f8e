//! CSV tables, with the delimiter in the input's first byte: all columns, and some.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let Some((&delimiter, data)) = data.split_first() else { return };
    let delimiter = match delimiter {
        b',' => ",",
        b'\t' => "tab",
        b';' => ";",
        b'|' => "|",
        _ => return,
    };
    let path = files(&[("a.csv", data)]).join("a.csv");
    let plain = Options::new().format("csv").set("delimiter", delimiter);
    let plain = plain.sidecars(false).threads(1);
    walk(dataset::open(&[&path], &plain));
    let keep = plain.set("keep_damaged", true);
    walk(dataset::open(&[&path], &keep.clone().set("columns", ["2", "0:i32"]).set("header", false)));
    walk(dataset::open(&[&path], &keep.set("columns", ["real:f64"])));
});

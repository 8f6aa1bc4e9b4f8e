//! JSON Lines, as they are and with fields asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{DType, Damaged, LineFormat, LineOptions, Lines};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let path = files(&[("a.jsonl", data)]).join("a.jsonl");
    let names = ["text", "label", "ids"].map(str::to_owned).to_vec();
    let typed = vec![("label".to_owned(), DType::I8), ("ids".to_owned(), DType::F32)];
    for (columns, dtypes) in [(Vec::new(), Vec::new()), (names.clone(), Vec::new()), (names, typed)] {
        let options = LineOptions {
            format: LineFormat::Jsonl,
            columns,
            dtypes,
            damaged: Damaged::Keep,
            no_sidecars: true,
            threads: 1,
            ..LineOptions::default()
        };
        walk(Lines::open(&[&path], &options));
    }
});

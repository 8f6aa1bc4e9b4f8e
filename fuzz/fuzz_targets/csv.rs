//! Tables: with the delimiter that the input begins with, all columns and some.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{DType, Damaged, LineFormat, LineOptions, Lines};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let Some((&delimiter, data)) = data.split_first() else { return };
    let path = files(&[("a.csv", data)]).join("a.csv");
    let plain = LineOptions {
        format: LineFormat::Csv,
        delimiter: Some(delimiter),
        no_sidecars: true,
        threads: 1,
        ..LineOptions::default()
    };
    walk(Lines::open(&[&path], &plain));
    let (columns, dtypes) = (vec!["2".to_owned(), "0".to_owned()], vec![("0".to_owned(), DType::I32)]);
    let damaged = Damaged::Keep;
    walk(Lines::open(&[&path], &LineOptions { columns, dtypes, no_header: true, damaged, ..plain.clone() }));
    let (columns, dtypes) = (vec!["real".to_owned()], vec![("real".to_owned(), DType::F64)]);
    walk(Lines::open(&[&path], &LineOptions { columns, dtypes, damaged, ..plain }));
});

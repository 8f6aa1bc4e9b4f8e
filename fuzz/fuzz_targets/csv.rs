//! CSV tables, with the delimiter in the input's first byte: all columns, and some.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{Delimiter, LineFormat, LineOptions, Lines};
use uringload_fuzz::{files, walk};

fuzz_target!(|data: &[u8]| {
    let Some((&delimiter, data)) = data.split_first() else { return };
    let delimiter = match delimiter {
        b',' => Delimiter::Comma,
        b'\t' => Delimiter::Tab,
        b';' => Delimiter::Semicolon,
        b'|' => Delimiter::Bar,
        _ => return,
    };
    let path = files(&[("a.csv", data)]).join("a.csv");
    let plain = LineOptions::new().format(LineFormat::Csv).delimiter(delimiter);
    let plain = plain.common(|common| (common.sidecars, common.threads) = (false, 1));
    walk(Lines::open(&[&path], &plain));
    let keep = plain.keep_damaged(true);
    walk(Lines::open(&[&path], &keep.clone().columns(["2", "0:i32"]).header(false)));
    walk(Lines::open(&[&path], &keep.columns(["real:f64"])));
});

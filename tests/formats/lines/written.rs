//! What Python's csv and json wrote (tests/data/make_lines.py): every value.

use super::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/lines").join(name)
}

/// What the script says that the samples are.
pub fn expected(name: &str) -> Vec<Row> {
    let text = fs::read_to_string(data("expected.json")).expect("the script wrote it");
    let mut files: BTreeMap<String, Vec<BTreeMap<String, String>>> = serde_json::from_str(&text).expect("rows of hex");
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    let bytes = |text: String| text.as_bytes().chunks(2).map(byte).collect();
    let rows = files.remove(name).expect("the file is there");
    rows.into_iter().map(|row| row.into_iter().map(|(name, value)| (name, bytes(value))).collect()).collect()
}

pub fn found(name: &str, options: &Options) -> Vec<Row> {
    let lines = dataset::open(&[data(name)], options).unwrap();
    samples(&*lines).into_iter().map(Result::unwrap).collect()
}

pub const COLUMNS: [&str; 4] = ["plain", "odd \"name\", with a comma", "number:i64", "real:f64"];

#[test]
fn tables_of_every_dialect() {
    for name in ["excel.csv", "excel.tsv", "unix.csv", "semicolon.csv", "nonnumeric.csv"] {
        let mut options = columns("csv", &COLUMNS);
        if name == "semicolon.csv" {
            options = options.set("delimiter", ";");
        }
        assert_eq!(found(name, &options), expected(name), "{name}");
    }
    assert_eq!(found("single.csv", &quiet("csv")), expected("single.csv"));
}

#[test]
fn objects_by_field_and_as_they_are() {
    for name in ["ascii.jsonl", "unicode.jsonl"] {
        let all = columns("jsonl", &["text", "label", "score", "ids", "flag", "meta"]);
        assert_eq!(found(name, &all), expected(name), "{name}");
        assert_eq!(found(name, &quiet("jsonl")), expected(&format!("{name} whole")), "{name}");
    }
}

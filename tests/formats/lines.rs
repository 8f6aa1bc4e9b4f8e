//! Formats made of lines: what a line is, what its columns are, and what bad lines get.

mod fields;
mod hostile;
mod index;
mod loader;
mod packed;
mod tables;
mod written;

use super::tar::packed::{ZSTD, pack};
use crate::common::direct::{Row, assert_error, folder, key, left_out, sample, samples};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, DType, Dataset, Options, SampleId};
use uringload::{Error, ErrorKind};

const FORMATS: [&str; 3] = ["text", "jsonl", "csv"];

/// Without sidecars, so that each look is a new one.
fn quiet(format: &str) -> Options {
    Options::new().format(format).sidecars(false).threads(2).timeout(crate::formats::memory::ON_THIS_THREAD)
}

/// With these columns and the types after their colons.
fn columns(format: &str, columns: &[&str]) -> Options {
    quiet(format).set("columns", columns)
}

/// The name of the format that a path shows.
fn detected(path: &Path) -> &'static str {
    detect(&[path], &Options::new()).map_or("nothing", |format| format.name)
}

/// The samples of a file of these bytes.
fn open(bytes: &[u8], options: &Options) -> Result<Vec<Result<Row, Error>>, Error> {
    let folder = folder(&[("file", bytes)]);
    dataset::open(&[folder.path().join("file")], options).map(|lines| samples(&*lines))
}

/// A row from names and values.
fn row(values: &[(&str, &[u8])]) -> Row {
    values.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
}

#[test]
fn lines_of_text() {
    let text = b"\xef\xbb\xbfone\r\n\n \r\nbytes \xff\0\nno end";
    let place = folder(&[("a.txt", text), ("b.txt", b""), ("c.txt", b"\n"), ("d.md", b"x\n")]);
    let lines = dataset::open(&[place.path()], &quiet("text")).unwrap();
    let found: Vec<Vec<u8>> = samples(&*lines).into_iter().map(|row| row.unwrap().remove("text").unwrap()).collect();
    assert_eq!(found, [&b"one"[..], b"", b" ", b"bytes \xff\0", b"no end", b""]);
    assert_eq!((lines.shards(), lines.bytes(), lines.format()), (&[5, 5, 6][..], 18, "text"));
    assert_eq!((lines.largest(1), lines.largest(2), lines.largest(9)), (8, 14, 18));
    assert_eq!((key(&*lines, 4), key(&*lines, 5)), ("a.txt#4".into(), "c.txt#0".into()));
    assert_eq!((lines.index().plain_field, left_out(&*lines)), (Some(0), vec![("files of other formats", 1)]));
    // A file that is named by itself is taken whatever its name.
    assert_eq!(dataset::open(&[place.path().join("d.md")], &quiet("text")).unwrap().len(), 1);
    let none = dataset::open(&[place.path().join("b.txt")], &quiet("text"));
    assert_error(none, ErrorKind::Empty, &["no file has a line"]);
    assert_error(dataset::open(&[place.path()], &quiet("csv")), ErrorKind::Empty, &[".csv or .tsv"]);
}

#[test]
fn lines_of_json_as_they_are() {
    let text = b"\n{\"a\": 1}\r\n \t\r\n{broken\n\n 2 ";
    let place = folder(&[("a.ndjson", text), ("b.jsonl", b"[]\n"), ("c.json", b"{}")]);
    let lines = dataset::open(&[place.path()], &quiet("jsonl")).unwrap();
    let found: Vec<Row> = samples(&*lines).into_iter().map(Result::unwrap).collect();
    let wanted: [&[u8]; 4] = [b"{\"a\": 1}", b"{broken", b" 2 ", b"[]"];
    assert_eq!(found, wanted.map(|line| row(&[("json", line)])));
    assert_eq!(lines.index().plain_field, Some(0));
    assert_eq!(left_out(&*lines), [("files of other formats", 1), ("empty lines", 3)]);
}

/// A part of a sequence can be read without the rest, as packing does.
#[test]
fn a_part_of_a_line_is_its_value() {
    let place = folder(&[("a.txt", b"first\nsecond\n")]);
    let lines = dataset::open(&[place.path()], &quiet("text")).unwrap();
    let mut sample = uringload::dataset::Sample::default();
    lines.parse(SampleId(1), &[bytes::Bytes::from_static(b"con")], &mut sample).unwrap();
    assert_eq!(sample.values, [uringload::dataset::Value::Bytes(bytes::Bytes::from_static(b"con"))]);
}

#[test]
fn files_of_unknown_compressions_are_refused_with_what_to_do() {
    for (name, tool) in [("a.jsonl.xz", "xz -d"), ("a.jsonl.lz4", "lz4 -d")] {
        let place = folder(&[(name, b"\xfd7zXZ\0"), ("b.jsonl", b"{}")]);
        let refused = dataset::open(&[place.path()], &quiet("jsonl"));
        assert_error(refused, ErrorKind::Unavailable, &[name, "decompress it first", tool]);
        assert_eq!(detected(&place.path().join(name)), "jsonl");
    }
}

#[test]
fn formats_show_themselves_by_names() {
    let place = folder(&[("a.jsonl", b"1"), ("b.NDJSON", b"1"), ("a.jsonl.uidx", b"")]);
    assert_eq!(detected(place.path()), "jsonl");
    assert_eq!(detected(&place.path().join("*.jsonl")), "jsonl");
    assert_eq!(detected(&place.path().join("b.NDJSON")), "jsonl");
    assert_eq!(detected(&place.path().join("a.jsonl.uidx")), "folder");
    fs::create_dir(place.path().join("class")).unwrap();
    assert_eq!(detected(place.path()), "jsonl", "beside an empty folder");
    let place = folder(&[("a.csv", b"1"), ("b.tsv", b"1")]);
    assert_eq!(detected(place.path()), "csv");
    fs::write(place.path().join("c.jpg"), "").unwrap();
    assert_eq!(detected(place.path()), "csv", "beside a stray file");
    ["d.jpg", "e.jpg"].iter().for_each(|name| fs::write(place.path().join(name), "").unwrap());
    assert_eq!(detected(place.path()), "nothing", "a mixture");
    // A folder of text files is as often one of documents.
    let place = folder(&[("a.txt", b"1"), ("b.txt", b"1")]);
    assert_eq!(detected(place.path()), "folder");
    assert_eq!(detected(&place.path().join("*.txt")), "folder");
    assert_eq!(detected(&place.path().join("a.txt")), "text");
    assert_eq!(FORMATS, ["text", "jsonl", "csv"]);
    assert_eq!(detected(Path::new("/nowhere/at/all")), "nothing");
    // With a type of elements, files hold numbers.
    let options = Options::new().set("dtype", "u16");
    assert_eq!(detect(&[place.path().join("a.txt")], &options).unwrap().name, "folder");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let refused = |options: &Options, words: &str| {
        assert_error(open(b"a,b\n1,2\n", options), ErrorKind::InvalidArgument, &[words]);
    };
    refused(&columns("text", &["a"]), "columns is only for jsonl, csv");
    refused(&columns("jsonl", &["a", "a"]), "named twice");
    refused(&columns("csv", &["a:f16"]), "cannot be read as f16");
    refused(&columns("csv", &["c"]), "choose from the columns a, b");
    let names = open(b"\"two\nlines\",\"\x1b[2J\"\n1,2\n", &columns("csv", &["c"]));
    assert_error(names, ErrorKind::InvalidArgument, &["choose from the columns two\\nlines, \\u{1b}[2J"]);
    refused(&columns("csv", &["c:i64"]), "no column \"c\"");
    let place = folder(&[("a.csv", b"a,b\n1,2\n")]);
    let set = |name, value| uringload::dataset::open(&[place.path()], &Options::new().set(name, value)).map(|_| ());
    assert_error(set("delimiter", "\""), ErrorKind::InvalidArgument, &["delimiter cannot be", "\"tab\""]);
    assert_error(set("fields", "a"), ErrorKind::InvalidArgument, &["fields", "csv"]);
}

#[test]
fn an_array_in_a_file_is_its_elements() {
    let pretty = b"\xef\xbb\xbf [\n {\n  \"id\": 1,\n  \"text\": \"a]\"\n },\n {\"id\": 2, \"text\": \"\"}\n]\n";
    let packed = pack(ZSTD, pretty);
    for (name, bytes) in [("chat.json", &pretty[..]), ("chat.json.zst", &packed)] {
        let folder = folder(&[(name, bytes)]);
        let path = folder.path();
        assert_eq!(detected(path), "jsonl", "{name}");
        let some = dataset::open(&[path], &columns("jsonl", &["text", "id"])).expect(name);
        let rows: Vec<Row> = (0..some.len()).map(|id| sample(&*some, id).expect("a row")).collect();
        let wanted = |id: i64, text: &str| row(&[("id", &id.to_le_bytes()), ("text", text.as_bytes())]);
        assert_eq!(rows, [wanted(1, "a]"), wanted(2, "")], "{name}");
        let whole = dataset::open(&[path], &quiet("jsonl")).expect(name);
        assert_eq!(sample(&*whole, 1).expect("a row"), row(&[("json", b"{\"id\": 2, \"text\": \"\"}")]));
    }
}

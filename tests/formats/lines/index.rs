//! Indexes of lines: what fits them, their size, and what damage gets. `indexes` has what all formats share.

use super::*;
use crate::common::direct::report;
use uringload::dataset::{self, Options};

pub fn with_sidecars(format: &str) -> Options {
    quiet(format).sidecars(true)
}

/// The same file as another format, or with another delimiter, has other lines.
#[test]
fn an_index_is_that_of_one_format() {
    let place = folder(&[("file", b"a,\"b\n\nc\"\n1;\"2\"\n")]);
    let path = place.path().join("file");
    for _ in 0..2 {
        let of =
            |options: &Options| dataset::open(&[&path], options).map(|lines| (lines.len(), report(&*lines).scanned));
        let rows = with_sidecars("csv").set("header", false);
        assert_eq!(of(&with_sidecars("text")).unwrap(), (4, 1));
        assert_eq!(of(&with_sidecars("jsonl")).unwrap(), (3, 1));
        assert_eq!(of(&rows).unwrap(), (2, 1));
        // Whether there is a header makes no other index.
        assert_eq!(of(&with_sidecars("csv")).unwrap(), (1, 0));
        assert_eq!(of(&rows.set("delimiter", ";")).unwrap(), (3, 1));
    }
}

/// Lines of every length, over several reads of a pass.
#[test]
fn an_index_has_at_most_sixteen_bytes_a_line() {
    let mut text = Vec::new();
    for number in 0..40_000_usize {
        text.resize(text.len() + number * number % 97, b'x');
        text.push(b'\n');
    }
    text.resize(text.len() + 300_000, b'y');
    let place = folder(&[("a.txt", &text)]);
    let lines = dataset::open(&[place.path()], &with_sidecars("text")).unwrap();
    assert_eq!(lines.len(), 40_001);
    let bytes = fs::metadata(place.path().join("a.txt.uidx")).unwrap().len();
    let each = bytes as f64 / lines.len() as f64;
    println!("{each:.2} bytes a line");
    assert!(each <= 16.0, "{each}");
    let mut wanted = text.split(|&byte| byte == b'\n');
    assert!(samples(&*lines).into_iter().all(|row| row.unwrap()["text"] == wanted.next().unwrap()));
}

#[test]
fn damage_is_refused_or_left_out() {
    let bad = b"a,b\n1,2\n3,\"4\n5,6\n";
    let place = folder(&[("0.csv", b"a,b\n7,8\n"), ("1.csv", bad), ("2.csv", b"a,b\n9,0\n")]);
    let options = with_sidecars("csv");
    let error = dataset::open(&[place.path()], &options).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(10)));
    assert_error(Err::<(), _>(error.clone()), ErrorKind::Corrupt, &["1.csv", "never closed"]);
    let keep = options.set("keep_damaged", true);
    for _ in 0..2 {
        let lines = dataset::open(&[place.path()], &keep).unwrap();
        let values: Vec<Vec<u8>> = samples(&*lines).into_iter().map(|row| row.unwrap()["a"].clone()).collect();
        assert_eq!(values, [b"7", b"1", b"9"]);
        assert_eq!(lines.index().damage[0].to_string(), error.to_string());
        assert_eq!(left_out(&*lines), [("rests of damaged shards", 1)]);
        assert!(!place.path().join("1.csv.uidx").exists(), "no index of a damaged file is kept");
    }
}

/// A file with holes, of which nothing but zeros is read.
#[test]
fn a_line_of_more_than_a_gibibyte_is_refused() {
    // What begins with zeros is no text.
    let text = b"short\n".repeat(200_000);
    let place = folder(&[("a.txt", &text)]);
    let path = place.path().join("a.txt");
    fs::File::options().write(true).open(&path).unwrap().set_len(3 << 30).unwrap();
    let refused = dataset::open(&[&path], &quiet("text"));
    let error = assert_error(refused, ErrorKind::Corrupt, &["more than 1073741824 bytes", "a.txt:1200000: "]);
    assert_eq!(error.offset(), Some(1_200_000));
}

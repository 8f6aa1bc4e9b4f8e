//! Files cut at every byte and changed at every byte: never a panic, and lines that remain are right.

use super::*;
use crate::common::content::put;
use crate::formats::memory::{COUNT, LARGEST};

const FILES: [(&str, &[u8]); 3] = [
    ("a.txt", b"\xef\xbb\xbfone\r\n\nthree\nfour"),
    ("a.jsonl", b"{\"a\": \"x\\n\", \"b\": [1, 2.5]}\n\n{\"a\": \"y\", \"b\": [-3]}\r\n{\"b\": [], \"a\": \"\"}"),
    ("a.csv", b"a,b\r\n1,\"2\r\n\"\"3\"\"\"\r\n\r\n4,5\r\n\"7\",6"),
];

/// Options that look into lines of each format.
fn options() -> [(&'static str, Options); 4] {
    let typed = columns("csv", &["a:f32", "b"]);
    [("text", quiet("text")), ("jsonl", columns("jsonl", &["a", "b:f64"])), ("csv", quiet("csv")), ("csv", typed)]
}

fn file_of(format: &str) -> (&'static str, &'static [u8]) {
    FILES[FORMATS.iter().position(|&known| known == format).unwrap()]
}

/// No file here has a kilobyte; a pass reads as much as the file has, and memory for values is taken by 64 KiB.
const ALLOCATION_MAX: usize = 128 << 10;

#[test]
fn cut_at_every_byte() {
    for (format, options) in options() {
        let (name, whole) = file_of(format);
        let wanted: Vec<Row> = open(whole, &options).unwrap().into_iter().map(|row| row.unwrap()).collect();
        for len in 0..whole.len() {
            match open(&whole[..len], &options) {
                Ok(rows) => {
                    // All but the last line are what they were; the last may be a part of what it was.
                    let complete = rows.len().saturating_sub(1);
                    for (row, wanted) in rows[..complete].iter().zip(&wanted) {
                        assert_eq!(row.as_ref().unwrap(), wanted, "{name} of {len} bytes");
                    }
                    assert!(rows.len() <= wanted.len(), "{name} of {len} bytes");
                }
                Err(error) => {
                    let kinds = [ErrorKind::Empty, ErrorKind::Corrupt, ErrorKind::InvalidArgument];
                    assert!(kinds.contains(&error.kind()), "{name} of {len} bytes: {error}");
                }
            }
        }
    }
}

#[test]
fn changed_at_every_byte() {
    for (format, options) in options() {
        let (name, whole) = file_of(format);
        let place = folder(&[(name, whole)]);
        for at in 0..whole.len() {
            for byte in *b"\n\r\",;{}[]\\ 9a\0\xff" {
                let mut bytes = whole.to_vec();
                bytes[at] = byte;
                put(&place.path().join(name), &bytes).unwrap();
                let Ok(lines) = dataset::open(&[place.path()], &options) else { continue };
                let mut spans = Vec::new();
                (0..lines.len()).for_each(|id| lines.spans(SampleId(id), &mut spans));
                assert!(
                    spans.iter().all(|span| span.offset + span.len <= bytes.len() as u64),
                    "{name}: {byte} at {at}"
                );
                assert!(spans.windows(2).all(|pair| pair[0].offset + pair[0].len < pair[1].offset), "{name}: {at}");
                for row in samples(&*lines) {
                    let error = row.err();
                    let is_named = |error: &Error| error.path().is_some() && error.offset().is_some();
                    assert!(error.as_ref().is_none_or(is_named), "{name}: {byte} at {at}: {error:?}");
                }
                // Text of any bytes is lines.
                assert!(format != "text" || !lines.is_empty());
            }
        }
    }
    assert!(LARGEST.get() <= ALLOCATION_MAX, "{} bytes at once", LARGEST.get());
}

/// Values that do not lie in the file as they are delivered take memory for many samples at once.
#[test]
fn parsing_takes_memory_by_the_batch() {
    use uringload::dataset::{self, Sample, Value};
    let objects: String =
        (0..2000).map(|n| format!("{{\"f\": {n}.5, \"x\": 0, \"t\": \"a\", \"l\": [{n}, 2]}}\n")).collect();
    let rows: String = (0..2000).map(|n| format!("{n}.5,\"a \"\"{n}\"\"\",plain\n")).collect();
    for (text, options) in [
        (objects, columns("jsonl", &["f", "t", "l:i32"])),
        (format!("f,t,p\n{rows}"), columns("csv", &["f:f32", "t", "p"])),
    ] {
        let place = folder(&[("file", text.as_bytes())]);
        let lines = dataset::open(&[place.path().join("file")], &options).unwrap();
        let whole = bytes::Bytes::from(text);
        let (mut spans, mut held, mut sample) = (Vec::new(), Vec::<Value>::with_capacity(300), Sample::default());
        let before = COUNT.get();
        for id in (0..lines.len()).map(SampleId) {
            spans.clear();
            lines.spans(id, &mut spans);
            let line = spans[0].offset as usize..(spans[0].offset + spans[0].len) as usize;
            lines.parse(id, &[whole.slice(line)], &mut sample).unwrap();
            if held.len() + sample.values.len() > 300 {
                held.clear();
            }
            held.append(&mut sample.values);
        }
        let each = (COUNT.get() - before) as f64 / lines.len() as f64;
        println!("{}: {each:.4} allocations a sample", lines.format());
        assert!(lines.len() == 2000 && each < 0.05, "{}: {each} allocations a sample", lines.format());
    }
}

/// What was read is not what the index was made of: the file changed in place, without a change of size.
#[test]
fn rows_that_are_not_those_of_the_index() {
    let place = folder(&[("a.csv", b"a,b\n1,\"2\"\n3,4\n")]);
    let lines = dataset::open(&[place.path()], &quiet("csv")).unwrap();
    for changed in [&b"a,b\n1,\"2,\n3,4\n"[..], b"a,b\n1\n\"2\"\n3,4\n"] {
        fs::write(place.path().join("a.csv"), changed).unwrap();
        let error = sample(&*lines, 0).unwrap_err();
        assert_error(Err::<(), _>(error), ErrorKind::Corrupt, &["does not end where the index says", "a.csv"]);
        assert!(sample(&*lines, 1).is_ok(), "what came before leaves nothing behind");
    }
}

//! Compressed files: the lines of plain ones, from units; and all that can be wrong with them.

use super::index::with_sidecars;
use super::loader::{files, loads};
use super::written::{COLUMNS, expected, found};
use super::*;
use crate::common::direct::{decoded, report};
use crate::formats::memory::assert_small;
use crate::formats::tar::packed::{ZSTD, pack};
use uringload::dataset::{FileId, Span, UnitId};

const WAYS: [(&str, &str); 3] = [("gzip", "gz"), (ZSTD, "zst"), ("bzip2", "bz2")];

const FILES: [(&str, &[u8]); 3] = [
    ("a.txt", b"\xef\xbb\xbfone\r\n\nthree\nfour"),
    ("a.jsonl", b"{\"a\": 1}\n\n{\"a\": 2}\r\n{\"a\": 3}"),
    ("a.csv", b"a,b\r\n1,\"2\n3\"\n\n4,5\n"),
];

fn rows(lines: &dyn Dataset) -> Vec<Row> {
    samples(lines).into_iter().map(Result::unwrap).collect()
}

#[test]
fn compressed_files_have_the_lines_of_plain_ones() {
    for ((name, bytes), format) in FILES.into_iter().zip(FORMATS) {
        let plain = folder(&[(name, bytes)]);
        let plain = dataset::open(&[plain.path()], &quiet(format)).unwrap();
        let (first, second) = bytes.split_at(9);
        for (way, ending) in WAYS {
            let parts = [pack(way, first), pack(way, second)].concat();
            // A name says nothing, and adjacent streams are one.
            let named = format!("{name}.{ending}");
            for (name, packed) in [(&*named, pack(way, bytes)), (&named, parts), (name, pack(way, bytes))] {
                let place = folder(&[(name, &packed)]);
                let scanned = dataset::open(&[place.path()], &with_sidecars(format)).unwrap();
                assert_eq!((report(&*scanned).scanned, report(&*scanned).bytes_read), (1, packed.len() as u64));
                let current = dataset::open(&[place.path()], &with_sidecars(format)).unwrap();
                // A plain name is believed; what it names is looked at only when it is read.
                assert_eq!((report(&*current).current, report(&*current).bytes_read), (1, 0), "{name}");
                for lines in [&scanned, &current] {
                    assert_eq!(rows(&**lines), rows(&*plain), "{name}");
                    assert_eq!((lines.bytes(), left_out(&**lines)), (plain.bytes(), left_out(&*plain)), "{name}");
                    assert_eq!((lines.fingerprint(), lines.shards()), (scanned.fingerprint(), plain.shards()));
                    assert_eq!((lines.largest(9), lines.index().plain_field), (0, None), "no span of a line is read");
                    let units = lines.units().expect("compressed files are units");
                    assert_eq!((units.count(), units.largest_decoded()), (1, bytes.len() as u64));
                    assert!(decoded(&**lines, units, UnitId(0)).unwrap() == bytes);
                }
            }
        }
    }
}

#[test]
fn plain_and_compressed_files_side_by_side() {
    let line = |number: u64| format!("{{\"n\": {number}}}\n");
    let text = |numbers: std::ops::Range<u64>| numbers.map(line).collect::<String>().into_bytes();
    let place = folder(&[
        ("0.jsonl", &text(0..3)),
        ("1.jsonl.gz", &pack("gzip", &text(3..7))),
        ("2.jsonl.gz", &pack("gzip", b"\n \n")),
        ("3.ndjson.zst", &pack(ZSTD, &text(7..9))),
        ("4.jsonl.gz", b""),
        ("5.JSONL", &text(9..10)),
    ]);
    assert_eq!(detected(place.path()), "jsonl");
    let lines = dataset::open(&[place.path()], &columns("jsonl", &["n"])).unwrap();
    let numbers: Vec<Vec<u8>> = rows(&*lines).into_iter().map(|mut row| row.remove("n").unwrap()).collect();
    assert_eq!(numbers, (0..10_u64).map(|number| number.to_le_bytes().to_vec()).collect::<Vec<_>>());
    assert_eq!((lines.shards(), lines.units().unwrap().count()), (&[3, 7, 7, 9, 9, 10][..], 3));
    assert_eq!((lines.largest(1), lines.largest(99)), (8, 32), "of plain files");
    let mut units = Vec::new();
    for id in 0..10 {
        units.clear();
        lines.units().unwrap().of(SampleId(id), &mut units);
        let wanted: &[UnitId] = match id {
            3..7 => &[UnitId(0)],
            7..9 => &[UnitId(2)],
            _ => &[],
        };
        assert_eq!(units, wanted, "{id}");
    }
    let mut spans = Vec::new();
    lines.units().unwrap().stored(UnitId(2), &mut spans);
    assert_eq!(spans, [Span { file: FileId(3), offset: 0, len: pack(ZSTD, &text(7..9)).len() as u64 }]);
    lines.spans(SampleId(4), &mut spans);
    assert_eq!(spans.len(), 1, "no span of its own");
}

/// tests/data/make_lines.py tells what is in them.
#[test]
fn files_that_the_tools_wrote() {
    let all = ["text", "label", "score", "ids", "flag", "meta"];
    let copies = [
        ("ascii.jsonl.gz", "ascii.jsonl"),
        ("unicode.jsonl.zst", "unicode.jsonl"),
        ("c4.00000-of-00001.json.gz", "unicode.jsonl"),
    ];
    for (name, plain) in copies {
        assert_eq!(found(name, &columns("jsonl", &all)), expected(plain), "{name}");
        assert_eq!(found(name, &quiet("jsonl")), expected(&format!("{plain} whole")), "{name}");
        assert_eq!(detected(&super::written::data(name)), "jsonl");
    }
    for (name, plain) in [("excel.csv.gz", "excel.csv"), ("unix.csv.bz2", "unix.csv"), ("excel.tsv.zst", "excel.tsv")] {
        assert_eq!(found(name, &columns("csv", &COLUMNS)), expected(plain), "{name}");
        assert_eq!(detected(&super::written::data(name)), "csv");
    }
}

/// What is called `.json` may as well be one document, of which lines are no samples.
#[test]
fn a_document_is_no_file_of_lines() {
    let shard = pack("gzip", b"{\"text\": \"a\"}\n{\"text\": NaN}\n");
    for document in [&b"{\n \"text\": 1\n}\n"[..], b"[1, 2]\n"] {
        let place = folder(&[("a.json.gz", &pack("gzip", document)), ("b.json.gz", &shard)]);
        assert_eq!(detected(place.path()), "jsonl");
        let refused = dataset::open(&[place.path()], &quiet("jsonl"));
        assert_error(refused, ErrorKind::InvalidArgument, &["a.json.gz", "this is one document"]);
    }
    for array in [&b"[\n{\"text\": \"a\"},\n{\"text\": \"b\"}\n]\n"[..], b"[{}, {}]\n"] {
        let place = folder(&[("a.json.gz", &pack("gzip", array)), ("b.json.gz", &shard)]);
        assert_eq!(dataset::open(&[place.path()], &quiet("jsonl")).unwrap().len(), 4);
    }
    let place = folder(&[("a.json.gz", &shard)]);
    assert_eq!(dataset::open(&[place.path()], &Options::new().sidecars(false)).unwrap().len(), 2);
    // Plain files of that name are usually something else.
    assert_eq!(detected(folder(&[("a.json", b"{}\n")]).path()), "folder");
}

#[test]
fn files_cut_at_every_byte() {
    let text: String = (0..300).map(|number| format!("{{\"n\": {number}}}\n")).collect();
    for (way, ending) in WAYS {
        let whole = pack(way, text.as_bytes());
        let name = format!("a.jsonl.{ending}");
        for len in (0..whole.len()).step_by(if whole.len() > 400 { 7 } else { 1 }) {
            let place = folder(&[(&name, &whole[..len]), ("b.jsonl", b"{\"n\": -1}\n")]);
            let options = columns("jsonl", &["n"]);
            if len == 0 {
                assert_eq!(dataset::open(&[place.path()], &options).unwrap().len(), 1);
                continue;
            }
            // What is cut within its magic number is a line of other bytes; it fails when it is read.
            if let Ok(lines) = dataset::open(&[place.path()], &options) {
                assert!(len < 6 && sample(&*lines, 0).is_err(), "{way} cut to {len}");
                continue;
            }
            let refused = dataset::open(&[place.path()], &options).unwrap_err();
            assert!([ErrorKind::Truncated, ErrorKind::Corrupt].contains(&refused.kind()), "{refused}");
            let text = refused.to_string();
            assert!(text.contains(&name) && (len < 6 || text.contains("counts decoded bytes")), "{text}");
            let kept = dataset::open(&[place.path()], &options.set("keep_damaged", true)).unwrap();
            let numbers: Vec<Vec<u8>> = rows(&*kept).into_iter().map(|mut row| row.remove("n").unwrap()).collect();
            let (last, before) = numbers.split_last().unwrap();
            assert_eq!(last, &(-1_i64).to_le_bytes(), "{way} cut to {len}");
            let wanted = (0..before.len() as u64).map(|number| number.to_le_bytes().to_vec());
            assert!(before.iter().cloned().eq(wanted) && before.len() <= 300, "{way} cut to {len}");
        }
    }
}

#[test]
fn what_is_wrong_is_told_in_decoded_bytes() {
    let text = b"{\"n\": 1}\n{\"n\": \"x\"}\n{\"n\": 3}\n";
    let place = folder(&[("a.jsonl.gz", &pack("gzip", text))]);
    let lines = dataset::open(&[place.path()], &columns("jsonl", &["n"])).unwrap();
    let error = assert_error(sample(&*lines, 1), ErrorKind::Corrupt, &["\"n\" is a string", "counts decoded bytes"]);
    assert_eq!(error.offset(), Some(15));
    let quote = folder(&[("a.csv.gz", &pack("gzip", b"a,b\n1,\"2\n"))]);
    let refused = dataset::open(&[quote.path()], &quiet("csv"));
    let error = assert_error(refused, ErrorKind::Corrupt, &["never closed", "counts decoded bytes"]);
    assert_eq!(error.offset(), Some(6));
    // The file changed in place after it was indexed, without a change of size.
    let (packed, other) = (pack("gzip", b"aaaa\nbb\n"), pack("gzip", b"aa\nbbb\n"));
    let place = folder(&[("a.txt.gz", &packed)]);
    let lines = dataset::open(&[place.path().join("a.txt.gz")], &quiet("text")).unwrap();
    let other = other.into_iter().chain(std::iter::repeat(0)).take(packed.len()).collect::<Vec<u8>>();
    fs::write(place.path().join("a.txt.gz"), other).unwrap();
    let changed = sample(&*lines, 0).unwrap_err();
    assert!(changed.kind() == ErrorKind::Corrupt && changed.to_string().contains("a.txt.gz"), "{changed}");
}

#[test]
fn through_the_loader() {
    let pack_all = |place: &TempDir| {
        for (number, path) in fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).enumerate() {
            let (way, ending) = WAYS[number % 3];
            let packed = pack(way, &fs::read(&path).unwrap());
            fs::write(format!("{}.{ending}", path.display()), packed).unwrap();
            fs::remove_file(path).unwrap();
        }
    };
    let line =
        |number: usize| format!("{{\"text\": \"caf\\u00e9 {number}\", \"label\": {number}, \"ids\": [{number}]}}\n");
    let json = files("jsonl", line, "");
    pack_all(&json);
    let options = columns("jsonl", &["text", "label", "ids:f32"]);
    loads(dataset::open(&[json.path()], &options).unwrap(), uringload::config::Collate::Auto);
    let table = files("csv", |number| format!("{number},\"line\n{number}\"\n"), "number,text\n");
    pack_all(&table);
    let options = columns("csv", &["number:i64", "text"]);
    loads(dataset::open(&[table.path()], &options).unwrap(), uringload::config::Collate::Ragged);
}

/// A line may have a gigabyte; columns are not learned from one.
#[test]
fn a_long_line_is_indexed_in_little_memory() {
    let parts = [&b"{\"a\": \""[..], &[b'x'; 4 << 20], b"\"}\n{\"a\": \"b\"}\n"].map(|part| pack("gzip", part));
    let [head, piece, tail] = parts;
    let place = folder(&[("a.jsonl.gz", &[head, piece.repeat(20), tail].concat())]);
    let lines = dataset::open(&[place.path()], &quiet("jsonl")).unwrap();
    assert_eq!((lines.len(), lines.length(SampleId(0), 0)), (2, Some((80 << 20) + 9)));
    let refused = dataset::open(&[place.path()], &columns("jsonl", &["a"]));
    assert_error(refused, ErrorKind::Unavailable, &["too long to learn columns from", "choose no columns"]);
    assert_small();
}

/// A gigabyte in some kilobytes is looked through, and nothing of it is held.
#[test]
fn what_decodes_to_much_is_indexed_in_little_memory() {
    const BLANKS: usize = 4 << 20;
    for (way, ending, times) in [("gzip", "gz", 32), (ZSTD, "zst", 255)] {
        let blanks = pack(way, &[b' '; BLANKS]);
        let bomb = [pack(way, b"{\"a\": 1}\n"), blanks.repeat(times), pack(way, b"\n{\"a\": 2}")].concat();
        let place = folder(&[(&format!("a.jsonl.{ending}"), &bomb)]);
        let lines = dataset::open(&[place.path()], &columns("jsonl", &["a"])).unwrap();
        assert_eq!((lines.len(), left_out(&*lines)), (2, vec![("empty lines", 1)]));
        assert_eq!(lines.units().unwrap().largest_decoded(), 9 + (BLANKS * times) as u64 + 9);
    }
    assert_small();
}

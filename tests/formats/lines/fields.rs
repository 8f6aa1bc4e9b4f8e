//! Fields of lines of JSON.

use super::*;
use bytes::Bytes;
use uringload::dataset::{self, Options, Sample, Shape, Span, Value};

fn jsonl(names: &[&str]) -> Options {
    columns("jsonl", names)
}

fn types(bytes: &[u8], names: &[&str]) -> Vec<(DType, Shape)> {
    let folder = folder(&[("file", bytes)]);
    let lines = dataset::open(&[folder.path().join("file")], &jsonl(names)).unwrap();
    lines.schema().fields.iter().map(|field| (field.dtype, field.shape.clone())).collect()
}

/// Thousands of wanted fields, in any order.
#[test]
fn lines_have_many_fields() {
    many_fields(1);
}

/// As with tables: each costs a look-up.
#[test]
#[ignore = "slow: measures time"]
fn many_fields_take_little_time() {
    let rate = many_fields(10);
    // Some 4 000 a second of a processor; 200 if every name is held against every other.
    assert!(rate > 600.0, "{rate:.0} lines a second");
}

/// Parses the lines so many times, and returns how many it were a second of the processor.
fn many_fields(rounds: usize) -> f64 {
    const FIELDS: usize = 2000;
    const LINES: usize = 100;
    // The file is large on purpose.
    let _large = crate::formats::memory::Limit::new(64 << 20);
    let of = |order: &mut dyn Iterator<Item = usize>| {
        let fields: Vec<String> =
            order.map(|number| format!("\"field_with_a_long_name_{number:05}\":{number}")).collect();
        format!("{{{}}}\n", fields.join(","))
    };
    let (forwards, backwards) = (of(&mut (0..FIELDS)), of(&mut (0..FIELDS).rev()));
    let text = [forwards, backwards].concat().repeat(LINES / 2);
    let place = folder(&[("a.jsonl", text.as_bytes())]);
    let names: Vec<String> = (0..FIELDS).map(|number| format!("field_with_a_long_name_{number:05}")).collect();
    let lines = dataset::open(&[place.path()], &quiet("jsonl").set("columns", names)).unwrap();
    let (mut spans, mut sample) = (Vec::new(), uringload::dataset::Sample::default());
    // Of this thread, so that others on the machine do not count.
    let start = uringload_sys::system::thread_cpu_time();
    for id in (0..rounds).flat_map(|_| (0..lines.len()).map(SampleId)) {
        spans.clear();
        lines.spans(id, &mut spans);
        let (at, len) = (spans[0].offset as usize, spans[0].len as usize);
        sample.values.clear();
        lines.parse(id, &[bytes::Bytes::copy_from_slice(&text.as_bytes()[at..at + len])], &mut sample).unwrap();
        assert_eq!(sample.values[7], uringload::dataset::Value::I64(7));
    }
    (rounds * LINES) as f64 / (uringload_sys::system::thread_cpu_time() - start).as_secs_f64()
}

#[test]
fn the_first_line_tells_what_fields_are() {
    let text = br#"{"s": "x", "i": -1, "u": 18446744073709551615, "f": 1.5, "ai": [1], "af": [1, 2.5], "b": false,
"#;
    let text = [&text[..text.len() - 1], br#" "o": {}, "n": null, "am": [1, "x"], "e": []}"#].concat();
    let names = ["s", "i", "u", "f", "ai", "af", "b", "o", "n", "am", "e"];
    let scalar = || Shape::Fixed(vec![]);
    let wanted = [
        (DType::U8, Shape::Ragged),
        (DType::I64, scalar()),
        (DType::U64, scalar()),
        (DType::F64, scalar()),
        (DType::I64, Shape::Ragged),
        (DType::F64, Shape::Ragged),
        (DType::Bool, scalar()),
        (DType::U8, Shape::Ragged),
        (DType::U8, Shape::Ragged),
        (DType::U8, Shape::Ragged),
        (DType::I64, Shape::Ragged),
    ];
    assert_eq!(types(&text, &names), wanted);
    // Lines that cannot be read say nothing; what is asked for wins.
    let asked = types(&[b"{broken\n", &text[..]].concat(), &["i:f32", "ai:i32", "b:u8", "none:f64"]);
    let wanted =
        [(DType::F32, scalar()), (DType::I32, Shape::Ragged), (DType::U8, Shape::Ragged), (DType::F64, scalar())];
    assert_eq!(asked, wanted);
    let unknown = open(b"\n{\"a\": 1}\n", &jsonl(&["b"]));
    let error = assert_error(unknown, ErrorKind::InvalidArgument, &["no field \"b\"", "give a type"]);
    assert_eq!(error.offset(), Some(1));
    let document = open(b"{\n\"b\": 1\n}\n", &jsonl(&["b"]));
    assert_error(document, ErrorKind::InvalidArgument, &["this is one document"]);
    let broken = open(b"{\"\n[]\n", &jsonl(&["b"]));
    let error = assert_error(broken, ErrorKind::Corrupt, &["no JSON object (EOF while parsing"]);
    assert!(error.offset().is_some(), "{error}");
}

#[test]
fn values_are_what_is_asked_for() {
    let of = |bytes: &[u8], name: &str| -> Vec<Vec<u8>> {
        let rows = open(bytes, &jsonl(&[name])).unwrap();
        rows.into_iter().map(|row| row.unwrap().into_values().next().unwrap()).collect()
    };
    let text =
        b"{\"a\": \"x\"}\n{\"a\": \"\\u00e9\\n\\ud83d\\ude00\"}\n{\"b\": {\"a\": 1}, \"\\u0061\": \"key\", \"c\": 0}\n";
    assert_eq!(of(text, "a"), [&b"x"[..], "é\n😀".as_bytes(), b"key"]);
    assert_eq!(of(b"{\"a\": 1, \"a\": 2}", "a"), [2_i64.to_le_bytes()], "the last of one name");
    assert_eq!(of(b"{\"a\": 7}\n{\"a\": -8}", "a:i8"), [[7], [248]]);
    assert_eq!(of(b"{\"a\": 1e400}\n{\"a\": 0.1}", "a:f32"), [f32::INFINITY.to_le_bytes(), 0.1_f32.to_le_bytes()]);
    let floats = [[1.0, 0.1].map(f64::to_le_bytes).concat(), vec![]];
    assert_eq!(of(b"{\"a\": [1.0, 0.1]}\n{\"a\": [ ]}", "a"), floats);
    assert_eq!(of(b"{\"a\": [1, 65535]}", "a:u16"), [[1, 0, 255, 255]]);
    let any = of(b"{\"a\": \"\\\"\"}\n{\"a\": [1, {}]}\n{\"a\": null}\n{\"a\": 1e2}", "a:u8");
    assert_eq!(any, [&b"\""[..], b"[1, {}]", b"null", b"1e2"]);
    assert_eq!(of(b"{\"a\": {\"b\": [1 , 2]} }\n{\"a\": null}", "a"), [&b"{\"b\": [1 , 2]}"[..], b"null"]);
    assert_eq!(of(b"{\"a\": true}\n{\"a\": false}", "a"), [[1], [0]]);
}

#[test]
fn text_without_escapes_is_not_copied() {
    let place = folder(&[("a.jsonl", b"{\"a\": \"where it was read\", \"b\": {}}")]);
    let lines = dataset::open(&[place.path()], &jsonl(&["a", "b"])).unwrap();
    let mut spans: Vec<Span> = Vec::new();
    lines.spans(SampleId(0), &mut spans);
    let raw = Bytes::from(fs::read(place.path().join("a.jsonl")).unwrap());
    let mut sample = Sample::default();
    lines.parse(SampleId(0), std::slice::from_ref(&raw), &mut sample).unwrap();
    for (value, at) in sample.values.iter().zip([7, 32]) {
        let Value::Bytes(bytes) = value else { panic!("{value:?}") };
        assert_eq!(bytes.as_ptr().addr(), raw.as_ptr().addr() + at);
    }
}

/// A line that has not what is asked for is an error of its own sample, with file, byte and field.
#[test]
fn bad_lines_are_errors_of_their_samples() {
    let first = "{\"s\": \"x\", \"i\": 1, \"a\": [1], \"b\": true, \"o\": {}}\n";
    for (line, at, words) in [
        (r#"{"s": "x"}"#, 0, "no field \"i\""),
        (r#"{"s": 5, "i": 1, "a": [], "b": true, "o": {}}"#, 6, "\"s\" is a number, and should be"),
        (r#"{"s": "\ud800", "i": 1, "a": [], "b": true, "o": {}}"#, 6, "\"s\" is a string that is not Unicode"),
        (r#"{"s": "x", "i": "1", "a": [], "b": true, "o": {}}"#, 16, "\"i\" is a string, and should be"),
        (r#"{"s": "x", "i": 1.5, "a": [], "b": true, "o": {}}"#, 16, "\"i\" is 1.5, which is no i64"),
        (
            r#"{"s": "x", "i": 9223372036854775808, "a": [], "b": true, "o": {}}"#,
            16,
            "9223372036854775808, which is no i64",
        ),
        (r#"{"s": "x", "i": 1, "a": [1, "2"], "b": true, "o": {}}"#, 24, "has \"2\" at index 1, which is no i64"),
        (r#"{"s": "x", "i": 1, "a": 1, "b": true, "o": {}}"#, 24, "\"a\" is a number, and should be"),
        (r#"{"s": "x", "i": 1, "a": [], "b": null, "o": {}}"#, 33, "\"b\" is null, and should be"),
        (r#"{"s": "x", "i": 1, "a": [], "b": true, "o": "{}"}"#, 44, "\"o\" is a string, and should be"),
        (r#"{"s": "x", "i": NaN, "a": [], "b": true, "o": {}}"#, 16, "\"i\" is NaN, which is no i64"),
        (r#"{"s": "x", "i": 1, "a": [1, NaN], "b": true, "o": {}}"#, 24, "has NaN at index 1, which is no i64"),
        (r#"{"s": "x", "i": nan}"#, 17, "no JSON object (expected ident"),
        (r#"{"s": "x", "i": 1NaN}"#, 17, "no JSON object (expected `,`"),
        (r#"{"s": "x", "i": -NaN}"#, 17, "no JSON object (invalid number"),
        (r#"{"s": "x", "i": NaNs}"#, 16, "no JSON object (expected value"),
        ("[1]", 0, "no JSON object (invalid type"),
        ("{} {}", 3, "no JSON object (trailing characters"),
        ("{\"s\": \"\u{1}\"}", 7, "no JSON object (control character"),
    ] {
        let text = [first, line, "\n", first].concat();
        let folder = folder(&[("file", text.as_bytes())]);
        let path = folder.path().join("file");
        let lines = dataset::open(&[&path], &jsonl(&["s", "i", "a", "b", "o"])).unwrap();
        assert_eq!(sample(&*lines, 0).unwrap(), sample(&*lines, 2).unwrap(), "{line}");
        let error = sample(&*lines, 1).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*path)), "{error}");
        let offset = error.offset().unwrap() - first.len() as u64;
        assert!(offset.abs_diff(at) <= 1 && error.to_string().contains(words), "{words} at {at}: {error}");
        assert!(error.remedy().is_some(), "{error}");
    }
    let bytes = [first.as_bytes(), b"{\"s\": \"\xff\"}\n{\"other\": \"\xff\", \"s\": \"x\"}\n"].concat();
    let rows = open(&bytes, &jsonl(&["s"])).unwrap();
    assert!(rows[1].is_err() && rows[0].is_ok(), "bytes that are no Unicode");
}

/// Python's `json` writes them, and one in an unwanted column must not cost the line.
#[test]
fn numbers_that_are_not_finite() {
    let of = |bytes: &[u8], name: &str| -> Vec<Vec<u8>> {
        let rows = open(bytes, &jsonl(&[name])).unwrap();
        rows.into_iter().map(|row| row.unwrap().into_values().next().unwrap()).collect()
    };
    let text = "{\"x\": NaN, \"t\": \"NaN \\\\\", \"a\": [1, -Infinity], \"o\": {\"y\": [Infinity]}}\n\
                {\"x\": -Infinity, \"t\": \"é\", \"a\": [NaN], \"o\": {}}\n\
                {\"x\": 2.5, \"t\": \"c\", \"a\": [], \"o\": [NaN]}";
    let text = text.as_bytes();
    assert_eq!(of(text, "t"), [&b"NaN \\"[..], "é".as_bytes(), b"c"]);
    assert_eq!(of(text, "x"), [f64::NAN, f64::NEG_INFINITY, 2.5].map(f64::to_le_bytes));
    assert_eq!(of(text, "x:f32"), [f32::NAN, f32::NEG_INFINITY, 2.5].map(f32::to_le_bytes));
    let arrays = [vec![1.0, f64::NEG_INFINITY], vec![f64::NAN], vec![]];
    assert_eq!(of(text, "a"), arrays.map(|array| array.into_iter().flat_map(f64::to_le_bytes).collect::<Vec<u8>>()));
    assert_eq!(of(text, "o"), [&b"{\"y\": [Infinity]}"[..], b"{}", b"[NaN]"]);
    assert_eq!(of(text, "x:u8"), [&b"NaN"[..], b"-Infinity", b"2.5"]);
    assert_eq!(types(text, &["x", "a"]), [(DType::F64, Shape::Fixed(vec![])), (DType::F64, Shape::Ragged)]);
    // Other oddities in unwanted columns: no number of any type, half of a pair, no UTF-8, nested too deep.
    let deep = [&b"{\"o\": "[..], &[b'['; 500], &[b']'; 500], b", \"t\": \"d\"}"].concat();
    for odd in [
        &b"{\"o\": 1e999, \"t\": \"d\"}"[..],
        b"{\"o\": \"\\ud800\", \"t\": \"d\"}",
        b"{\"o\": \"\xff\", \"t\": \"d\"}",
        &deep,
    ] {
        assert_eq!(of(odd, "t"), [b"d"], "{}", odd.escape_ascii());
    }
}

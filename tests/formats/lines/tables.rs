//! Tables: rows, headers, delimiters, types.

use super::*;

fn csv(names: &[&str]) -> Options {
    columns("csv", names)
}

#[test]
fn rows_have_the_columns_of_their_header() {
    let text = b"\xef\xbb\xbf\"a\",\"the \"\"b\"\"\",c\r\n1,\"x, \"\"y\"\"\r\nz\",\r\n\r\n\n\"\",\" \",x\"y\"\n3,4,5";
    let wanted = [
        row(&[("a", b"1"), ("the \"b\"", b"x, \"y\"\r\nz"), ("c", b"")]),
        row(&[("a", b""), ("the \"b\"", b" "), ("c", b"x\"y\"")]),
        row(&[("a", b"3"), ("the \"b\"", b"4"), ("c", b"5")]),
    ];
    let place = folder(&[("a.csv", text)]);
    let lines = dataset::open(&[place.path()], &quiet("csv")).unwrap();
    let names: Vec<&str> = lines.schema().fields.iter().map(|field| &*field.name).collect();
    assert_eq!(names, ["a", "the \"b\"", "c"]);
    assert_eq!(samples(&*lines).into_iter().map(Result::unwrap).collect::<Vec<_>>(), wanted);
    assert_eq!((lines.len(), lines.index().plain_field), (3, None));
    assert_eq!(left_out(&*lines), [("empty lines", 2)]);
    assert_eq!((lines.bytes(), lines.largest(1) >= 16), (16 + 11 + 5, true));
    let chosen = open(text, &csv(&["c", "a"])).unwrap();
    assert_eq!(chosen[2].as_ref().unwrap(), &row(&[("c", b"5"), ("a", b"3")]));
    let all = open(text, &quiet("csv").set("header", false)).unwrap();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0].as_ref().unwrap(), &row(&[("0", b"a"), ("1", b"the \"b\""), ("2", b"c")]));
}

#[test]
fn text_without_quotes_in_it_is_not_copied() {
    use uringload::dataset::{self, Sample, Value};
    let place = folder(&[("a.csv", b"a,b,c\nplain,\"qu,oted\",\"dou\"\"bled\"\n")]);
    let lines = dataset::open(&[place.path()], &quiet("csv")).unwrap();
    let raw = bytes::Bytes::from_static(b"plain,\"qu,oted\",\"dou\"\"bled\"");
    let mut sample = Sample::default();
    lines.parse(SampleId(0), std::slice::from_ref(&raw), &mut sample).unwrap();
    let within = |value: &Value| match value {
        Value::Bytes(bytes) => raw.as_ptr_range().contains(&bytes.as_ptr()),
        Value::I64(_) => false,
    };
    assert_eq!(sample.values.iter().map(within).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn numbers_and_truths_by_type() {
    let options = csv(&["i:i64", "f:f32", "b:bool", "u:u16", "t"]);
    let text = b"i,f,b,u,t\n-5, 0.25 ,True,65535,1\n\"7\",1e3,0,0,x\n";
    let rows: Vec<Row> = open(text, &options).unwrap().into_iter().map(Result::unwrap).collect();
    let one = |i: i64, f: f32, b: u8, u: u16, t: &[u8]| {
        row(&[("i", &i.to_le_bytes()), ("f", &f.to_le_bytes()), ("b", &[b]), ("u", &u.to_le_bytes()), ("t", t)])
    };
    assert_eq!(rows, [one(-5, 0.25, 1, 65535, b"1"), one(7, 1000.0, 0, 0, b"x")]);
    for (line, words) in [
        ("x,1,1,1,", "field \"i\" is \"x\", which is no i64"),
        (",1,1,1,", "field \"i\" is \"\", which is no i64"),
        // A value may have a gigabyte.
        (
            "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy,1,1,1,",
            "field \"i\" is \"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy...\", which is no i64",
        ),
        ("1,1,2,1,", "field \"b\" is \"2\", which is no bool"),
        ("1,1,1,65536,", "field \"u\" is \"65536\", which is no u16"),
        ("1,1,1,1", "a row has 4 fields, and the header has 5"),
        ("1,1,1,1,1,1", "a row has 6 fields, and the header has 5"),
    ] {
        let bytes = ["i,f,b,u,t\n", line, "\n1,1,1,1,1"].concat();
        let place = folder(&[("a.csv", bytes.as_bytes())]);
        let lines = dataset::open(&[place.path()], &options).unwrap();
        assert!(sample(&*lines, 1).is_ok(), "{line}");
        let error = sample(&*lines, 0).unwrap_err();
        assert!(error.offset().is_some_and(|offset| (10..20).contains(&offset)), "{error}");
        assert_error(Err::<(), _>(error), ErrorKind::Corrupt, &["a.csv", words]);
    }
}

/// A table of genes has hundreds of thousands of columns.
#[test]
fn tables_have_many_columns() {
    many_columns(20_000);
}

/// No name of a column is held against all others.
#[test]
#[ignore = "slow: measures time"]
fn many_columns_take_little_time() {
    let start = std::time::Instant::now();
    many_columns(200_000);
    // Two minutes and more on an idle machine, if it is. Slack for a busy one.
    assert!(start.elapsed() < std::time::Duration::from_secs(90), "{:?}", start.elapsed());
}

fn many_columns(count: usize) {
    // The table is large on purpose.
    let _large = crate::formats::memory::Limit::new(64 << 20);
    let line = |what: &str| (0..count).map(|number| format!("{what}{number}")).collect::<Vec<_>>().join(",");
    let text = [line("gene"), line(""), line("1")].join("\n");
    let place = folder(&[("a.csv", text.as_bytes())]);
    let all = dataset::open(&[place.path()], &quiet("csv")).unwrap();
    assert_eq!((all.len(), all.schema().fields.len()), (2, count));
    let asked: Vec<String> = (0..count).rev().map(|number| format!("gene{number}:i64")).collect();
    let backwards = dataset::open(&[place.path()], &quiet("csv").set("columns", asked)).unwrap();
    let sample = sample(&*backwards, 0).unwrap();
    assert_eq!((sample["gene0"].as_slice(), sample["gene7"].as_slice()), (&[0; 8][..], &7_i64.to_le_bytes()[..]));
}

#[test]
fn delimiters_by_name_and_by_option() {
    let tsv = folder(&[("a.tsv", b"a\tb,c\n1\t\"2\t3\"\n")]);
    let lines = dataset::open(&[tsv.path()], &quiet("csv")).unwrap();
    assert_eq!(sample(&*lines, 0).unwrap(), row(&[("a", b"1"), ("b,c", b"2\t3")]));
    for (delimiter, text) in [(";", "a;b\n1,5;2"), ("|", "a|b\n1,5|2"), ("tab", "a\tb\n1,5\t2")] {
        let options = quiet("csv").set("delimiter", delimiter);
        assert_eq!(open(text.as_bytes(), &options).unwrap()[0].as_ref().unwrap(), &row(&[("a", b"1,5"), ("b", b"2")]));
    }
    fs::write(tsv.path().join("b.csv"), "a\tb,c\n").unwrap();
    let mixed = dataset::open(&[tsv.path()], &quiet("csv"));
    assert_error(mixed, ErrorKind::InvalidArgument, &["some have commas, some tabs", "b.csv"]);
}

#[test]
fn headers_are_the_same_and_make_sense() {
    let open = |files: &[(&str, &[u8])]| {
        let place = folder(files);
        dataset::open(&[place.path()], &quiet("csv")).map(|lines| (lines.len(), lines.shards().to_vec()))
    };
    let files: [(&str, &[u8]); 4] =
        [("a.csv", b"x,y\n"), ("b.csv", b""), ("c.csv", b"\"x\",y\n1,2\n"), ("d.csv", b"x,y\n3,4")];
    assert_eq!(open(&files).unwrap(), (2, vec![0, 0, 1, 2]));
    let other = open(&[("a.csv", b"x,y\n1,2"), ("b.csv", b"y,x\n1,2")]);
    assert_error(other, ErrorKind::InvalidArgument, &["other columns", "b.csv"]);
    assert_error(
        open(&[("a.csv", b"x,x\n1,2")]),
        ErrorKind::InvalidArgument,
        &["two columns are called \"x\"", "a.csv"],
    );
    assert_error(open(&[("a.csv", b"x,\xff\n1,2")]), ErrorKind::InvalidArgument, &["not UTF-8", "a.csv"]);
    assert_error(open(&[("a.csv", b"x,y\n")]), ErrorKind::Empty, &["no file has a line"]);
}

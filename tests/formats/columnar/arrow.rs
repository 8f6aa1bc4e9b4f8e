//! Arrow IPC files and streams.

use super::*;
use std::sync::Arc;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, DType, Dataset, Options, SampleId, Shape};

fn open(name: &str, options: &Options) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[data(name)], &options.clone().format("arrow"))
}

fn all(name: &str) -> Arc<dyn Dataset> {
    open(name, &Options::new()).expect("a dataset")
}

#[test]
fn every_type_in_files_and_streams_of_every_codec() {
    let expected = expected("arrow");
    for kind in ["file", "stream"] {
        for codec in ["none", "lz4", "zstd"] {
            let name = format!("types-{kind}-{codec}.arrow");
            let arrow = all(&name);
            assert_eq!(arrow.shards(), [4, 8, 10], "{name}");
            assert_rows(&*arrow, &expected, &name);
        }
    }
}

#[test]
fn columns_have_the_types_of_the_file() {
    let arrow = all("types-file-zstd.arrow");
    let of = |name| typed(&*arrow, name);
    let scalar = Shape::Fixed(Vec::new());
    assert_eq!(of("u16"), (DType::U16, scalar.clone()));
    assert_eq!(of("f16"), (DType::F16, scalar.clone()));
    assert_eq!(of("number_label"), (DType::I64, scalar));
    assert_eq!(of("decimal_30"), (DType::U8, Shape::Fixed(vec![16])));
    assert_eq!(of("fixed_list"), (DType::F32, Shape::Fixed(vec![3])));
    assert_eq!(of("large_list"), (DType::F32, Shape::Ragged));
    assert_eq!(of("label"), (DType::U8, Shape::Ragged));
    assert_eq!(arrow.index().encodings[0].words, "int8, may be null: file, ZSTD");
    let mut key = Vec::new();
    arrow.key(SampleId(9), &mut key);
    assert_eq!(String::from_utf8(key).unwrap(), "types-file-zstd.arrow#9");
}

#[test]
fn what_is_projected_is_read_and_nothing_else() {
    let wanted = ["string", "i16", "string_view", "label"];
    for name in ["types-file-lz4.arrow", "types-stream-none.arrow"] {
        let arrow = open(name, &of(&wanted)).unwrap();
        assert_eq!(names(&*arrow), wanted);
        assert_columns(&*arrow, &expected("arrow"), name);
        let every = all(name);
        for unit in 0..3 {
            let (few, many) = (stored(&*arrow, unit), stored(&*every, unit));
            assert!(few.iter().all(|span| many.contains(span)));
        }
        assert!(arrow.bytes() * 3 < every.bytes(), "{} {}", arrow.bytes(), every.bytes());
    }
}

#[test]
fn dictionaries_grow_and_are_replaced() {
    let arrow = all("dictionaries.arrow");
    assert_eq!(texts(&*arrow, "word"), ["a", "bb", "a", "bb", "ccc", "a", "dddd", "e"]);
}

#[test]
fn decoding_takes_no_more_memory_than_was_told() {
    for codec in ["lz4", "zstd"] {
        let name = format!("large-{codec}.arrow");
        for columns in [&["text"][..], &["words"], &["number", "words", "text"]] {
            let arrow = open(&name, &of(columns)).unwrap();
            let scratch = assert_scratch(&*arrow, &name);
            assert!(scratch > 100_000, "{name} {columns:?}: {scratch}");
            let decompressor = if codec == "lz4" { 9 << 20 } else { 0 };
            let most = 2 * arrow.units().unwrap().largest_decoded() + decompressor;
            assert!(scratch < most, "{name} {columns:?}: {scratch}");
        }
    }
}

#[test]
fn several_files_are_one_dataset() {
    let arrow = dataset::open(&[data("split-arrow")], &Options::new().format("arrow")).unwrap();
    assert_eq!(arrow.shards(), [4, 6, 10]);
    assert_columns(&*arrow, &expected("arrow"), "split-arrow");
    let paths = [data("split-arrow/a.arrow"), data("other.arrow")];
    let error = dataset::open(&paths, &Options::new().format("arrow")).unwrap_err();
    assert_eq!(error.path(), Some(&*data("other.arrow")), "{error}");
    assert!(error.to_string().contains("the file has no column \"i32\", which the first file has"), "{error}");
    // A stream and a file, whose columns stand at other places.
    let both = dataset::open(&paths, &of(&["string"]).format("arrow")).unwrap();
    assert_eq!(both.len(), 16);
    assert_eq!(texts(&*both, "string")[6], texts(&*both, "string")[0]);
}

#[test]
fn nulls_are_errors_of_their_samples_or_empty() {
    assert_nulls_stand(|options| open("nulls.arrow", options), "record batch");
}

/// The remedies that the error of a null names.
#[test]
fn nulls_of_numbers_are_nan_or_zero_or_told_by_a_mask() {
    let name = "numbers.arrow";
    assert_nulls(&|nulls| open(name, &Options::new().set("nulls", nulls)));
    let floats = of(&["f16", "f32", "f64", "floats", "pair"]).set("nulls", "nan");
    assert_nan(&*open(name, &floats).unwrap());
}

#[test]
fn what_has_no_form_is_left_out_unless_it_is_wanted() {
    let odd = all("odd.arrow");
    assert_eq!(texts(&*odd, "text"), ["a", "b"]);
    let two = ("columns of types that cannot be read", 2, "nothing<odd.arrow".to_owned());
    assert_eq!(left_out(&*odd), [two]);
    for (column, doing) in [("union", "is a union"), ("nothing", "is always null")] {
        let error = open("odd.arrow", &of(&[column])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(&format!("column {column:?} {doing}")), "{error}");
        assert!(error.to_string().contains("choose from the columns id, text"), "{error}");
    }
    assert_eq!(open("odd.arrow", &of(&["id"])).unwrap().len(), 2);
    // What lies behind a column that is left out is found nevertheless, whatever nodes and buffers that has.
    let nested = all("nested-odd.arrow");
    assert_eq!(texts(&*nested, "text"), ["a", "b"]);
    let five = ("columns of types that cannot be read", 5, "runs<nested-odd.arrow".to_owned());
    assert_eq!(left_out(&*nested), [five]);
    for (column, doing) in [
        ("words", "is nested, with a dictionary inside"),
        ("views", "is a list of views"),
        ("union", "is a union"),
        ("unions", "is a union"),
        ("runs", "is run-end encoded"),
    ] {
        let error = open("nested-odd.arrow", &of(&[column])).unwrap_err();
        assert!(error.to_string().contains(&format!("column {column:?} {doing}")), "{error}");
    }
    assert_eq!(open("empty.arrow", &of(&["id"])).unwrap_err().kind(), ErrorKind::Empty);
}

#[test]
fn lists_of_one_length_are_tensors() {
    assert_tensors(&|options| open("tensors.arrow", options));
}

#[test]
fn nested_columns_are_json_text() {
    for name in ["nested-none.arrow", "nested-lz4.arrow", "nested-zstd.arrow"] {
        assert_nested(&|name, column| open(name, &of(&[column])), name);
    }
    let views = open("nested-views.arrow", &Options::new().set("nulls", "empty")).unwrap();
    assert_eq!(texts(&*views, "words"), ["[\"short\",\"longer than twelve bytes\"]", "[]", ""]);
}

#[test]
fn columns_are_found_by_name_in_every_file() {
    assert_order("arrow");
}

#[test]
fn a_stream_without_its_end_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.arrow");
    let bytes = std::fs::read(data("types-stream-none.arrow")).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    let error = dataset::open(&[&path], &Options::new().format("arrow")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert!(error.to_string().contains("batches may be lost"), "{error}");
}

#[test]
fn files_are_told_by_their_beginning_and_name() {
    let shown = |name| detect(&[data(name)], &Options::new()).map_or("nothing", |format| format.name);
    assert_eq!(["split-arrow", "nulls.arrow"].map(shown), ["arrow"; 2]);
    assert_eq!(["", "plain.parquet"].map(|name| shown(name) == "arrow"), [false; 2]);
    let error = open("plain.parquet", &Options::new()).unwrap_err();
    assert!(error.to_string().contains("neither a file nor a stream of Arrow"), "{error}");
}

#[test]
fn cut_and_changed_files_are_errors_or_rows() {
    cut_and_changed(Every::Eleventh);
}

#[test]
#[ignore = "slow: cuts at every byte"]
fn files_cut_and_changed_anywhere_are_errors_or_rows() {
    cut_and_changed(Every::All);
}

fn cut_and_changed(every: Every) {
    let open = |path: &Path| dataset::open(&[path], &of(&[]).set("nulls", "empty").format("arrow"));
    for name in ["dictionaries.arrow", "other.arrow", "split-arrow/a.arrow"] {
        survives(&std::fs::read(data(name)).unwrap(), "arrow", &open, every);
    }
    // Of what is compressed and of every type, some changes; it is cut by the other tests.
    let open = |path: &Path| dataset::open(&[path], &Options::new().format("arrow"));
    for name in
        ["types-stream-lz4.arrow", "types-stream-zstd.arrow", "tensors.arrow", "nested-none.arrow", "nested-lz4.arrow"]
    {
        changes_are_survived(&std::fs::read(data(name)).unwrap(), "arrow", &open, every);
    }
}

//! Parquet files.

use super::*;
use std::sync::Arc;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, DType, Dataset, Options, SampleId, Shape};

const CODECS: [&str; 6] = ["none", "snappy", "gzip", "zstd", "brotli", "lz4"];

/// How columns are stored.
fn words(parquet: &dyn Dataset) -> Vec<String> {
    parquet.index().encodings.iter().map(|encoding| encoding.words.clone()).collect()
}

fn open(name: &str, options: &Options) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[data(name)], &options.clone().format("parquet"))
}

fn all(name: &str) -> Arc<dyn Dataset> {
    open(name, &Options::new()).expect("a dataset")
}

#[test]
fn every_type_of_every_codec_and_page_version() {
    let expected = expected("parquet");
    for codec in CODECS {
        for version in [1, 2] {
            let name = format!("types-{codec}-v{version}.parquet");
            let parquet = all(&name);
            assert_eq!(parquet.shards(), [4, 8, 10], "{name}");
            assert_rows(&*parquet, &expected, &name);
        }
    }
}

#[test]
fn columns_have_the_types_of_the_file() {
    let parquet = all("types-none-v1.parquet");
    let of = |name| typed(&*parquet, name);
    let scalar = Shape::Fixed(Vec::new());
    assert_eq!(of("u16"), (DType::U16, scalar.clone()));
    assert_eq!(of("f16"), (DType::F16, scalar.clone()));
    assert_eq!(of("bool"), (DType::Bool, scalar.clone()));
    assert_eq!(of("timestamp"), (DType::I64, scalar.clone()));
    assert_eq!(of("decimal_10"), (DType::I64, scalar));
    assert_eq!(of("decimal_30"), (DType::U8, Shape::Fixed(vec![16])));
    assert_eq!(of("fixed_binary"), (DType::U8, Shape::Fixed(vec![3])));
    assert_eq!(of("list"), (DType::I32, Shape::Ragged));
    assert_eq!(of("fixed_list"), (DType::F32, Shape::Fixed(vec![3])));
    assert_eq!(of("image"), (DType::U8, Shape::Ragged));
    let encodings = words(&*parquet);
    assert_eq!(encodings.len(), parquet.schema().fields.len());
    assert!(
        encodings[0].contains("INT32") && encodings[0].contains("may be null: not compressed, PLAIN"),
        "{encodings:?}"
    );
    let mut key = Vec::new();
    parquet.key(SampleId(5), &mut key);
    assert_eq!(String::from_utf8(key).unwrap(), "types-none-v1.parquet#5");
}

#[test]
fn what_is_projected_is_read_and_nothing_else() {
    let name = "types-zstd-v2.parquet";
    let parquet = open(name, &of(&["string", "i16"])).unwrap();
    assert_eq!(names(&*parquet), ["string", "i16"]);
    assert_columns(&*parquet, &expected("parquet"), name);
    let every = all(name);
    for unit in 0..3 {
        let (few, many) = (stored(&*parquet, unit), stored(&*every, unit));
        assert_eq!(few.len(), 2);
        assert_eq!(many.len(), every.schema().fields.len());
        assert!(few.iter().all(|span| many.contains(span)));
        // No chunk is part of another.
        assert!(
            many.iter()
                .all(|a| many.iter().all(|b| a == b || a.offset + a.len <= b.offset || b.offset + b.len <= a.offset))
        );
    }
    assert!(parquet.bytes() < every.bytes() / 8);
    assert!(parquet.units().unwrap().largest_decoded() < every.units().unwrap().largest_decoded() / 8);
    // What lies elsewhere may be anything.
    let mut bytes = std::fs::read(data(name)).unwrap();
    let kept: Vec<Span> = (0..3).flat_map(|unit| stored(&*parquet, unit)).collect();
    let data_end = (0..3).flat_map(|unit| stored(&*every, unit)).map(|span| span.offset + span.len).max().unwrap();
    for at in 4..data_end {
        if !kept.iter().any(|span| (span.offset..span.offset + span.len).contains(&at)) {
            bytes[at as usize] = 0xee;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    std::fs::write(&path, bytes).unwrap();
    let changed = dataset::open(&[&path], &of(&["string", "i16"]).format("parquet")).unwrap();
    assert_eq!(rows(&*changed), rows(&*parquet));
    let changed = dataset::open(&[&path], &of(&["i32"]).format("parquet")).unwrap();
    assert!(samples(&*changed).iter().all(Result::is_err));
}

#[test]
fn a_file_in_a_struct_is_its_bytes_and_names_are_checked() {
    for (names, wanted) in [(&["image"][..], &["image"][..]), (&["image", "image.path"], &["image", "image.path"])] {
        let parquet = open("types-none-v1.parquet", &of(names)).unwrap();
        assert_eq!(rows(&*parquet)[3].keys().collect::<Vec<_>>(), wanted);
        assert!(wanted.len() == 1 || rows(&*parquet)[3]["image.path"] == b"3.jpg");
    }
    let left_out = &all("types-none-v1.parquet").index().left_out.clone();
    assert!(left_out[0].what.contains("paths beside the bytes") && left_out[0].count == 1, "{left_out:?}");
    let error = open("types-none-v1.parquet", &of(&["picture"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("the file has no column \"picture\"\n"), "{error}");
    assert!(error.to_string().contains("choose from the columns i8, u8, i16"), "{error}");
}

#[test]
fn every_encoding() {
    let expected = expected("parquet");
    for (name, encodings) in [
        ("plain.parquet", &["PLAIN"][..]),
        ("delta_byte_array.parquet", &["DELTA_BYTE_ARRAY"]),
        ("delta_length_byte_array.parquet", &["DELTA_LENGTH_BYTE_ARRAY"]),
        ("delta_integers.parquet", &["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]),
    ] {
        let parquet = all(name);
        let told = words(&*parquet);
        assert_eq!(told.len(), encodings.len(), "{name}: {told:?}");
        assert!(told.iter().zip(encodings).all(|(told, encoding)| told.contains(encoding)), "{name}: {told:?}");
        assert_columns(&*parquet, &expected, name);
    }
}

/// A dictionary that became too large, by a writer that tells how long its strings are and by one that does not.
#[test]
fn memory_is_bounded_whatever_a_dictionary_repeats() {
    let mut bounds = Vec::new();
    for name in ["overflow.parquet", "legacy-overflow.parquet"] {
        let parquet = all(name);
        let texts = texts(&*parquet, "text");
        assert_eq!(texts.len(), 100);
        assert!(texts.iter().all(|text| text.len() == 120), "{name}");
        assert!(texts[60..].iter().all(|text| *text == texts[39]), "{name}");
        bounds.push(parquet.units().unwrap().largest_decoded());
    }
    assert!(bounds.iter().all(|&bound| (12_000..40_000).contains(&bound)), "{bounds:?}");
    // 1000 rows of three strings that are stored as references.
    let parquet = all("legacy-labels.parquet");
    assert_eq!(texts(&*parquet, "label")[..3], ["cat", "dog", "a longer label"]);
    let of_labels = 1000 / 3 * (3 + 3 + 14);
    let bound = parquet.units().unwrap().largest_decoded();
    assert!((of_labels..of_labels + 10_000).contains(&bound), "{bound}");
    assert!(stored(&*parquet, 0)[0].len < 1000);
}

/// Old files of images, which no footer tells the length of: they are not read to be opened.
#[test]
fn dictionaries_in_which_nothing_repeats_are_not_read() {
    let name = "legacy-images.parquet";
    let parquet = all(name);
    let images = rows(&*parquet);
    assert!(images.iter().enumerate().all(|(row, image)| image["image"] == [row as u8; 100_000]));
    let bound = parquet.units().unwrap().largest_decoded();
    assert!((2_000_000..2_100_000).contains(&bound), "{bound}");
    let span = stored(&*parquet, 0)[0];
    let (_folder, path) = changed(name, |bytes| bytes[(span.offset + span.len / 2) as usize] ^= 1);
    let parquet = dataset::open(&[&path], &Options::new().format("parquet")).unwrap();
    assert!(samples(&*parquet).iter().any(Result::is_err));
}

/// Of files that are small when they are compressed, what decoding takes is much more than any list.
#[test]
fn decoding_takes_no_more_memory_than_was_told() {
    for codec in ["none", "zstd", "snappy"] {
        let name = format!("large-{codec}.parquet");
        for columns in [&["text"][..], &["words"], &["label"], &["number", "words", "text"]] {
            let parquet = open(&name, &of(columns)).unwrap();
            let scratch = assert_scratch(&*parquet, &name);
            assert!(codec == "none" || columns == ["label"] || scratch > 100_000, "{name} {columns:?}: {scratch}");
            assert!(scratch < 2 * parquet.units().unwrap().largest_decoded(), "{name} {columns:?}: {scratch}");
        }
    }
}

#[test]
fn several_files_are_one_dataset() {
    let parquet = dataset::open(&[data("split")], &Options::new().format("parquet")).unwrap();
    assert_eq!(parquet.shards(), [4, 6, 10]);
    assert_columns(&*parquet, &expected("parquet"), "split");
    let mut key = Vec::new();
    parquet.key(SampleId(5), &mut key);
    parquet.key(SampleId(6), &mut key);
    assert_eq!(String::from_utf8(key).unwrap(), "a.parquet#5b.parquet#0");
    let error = dataset::open(&[data("split/a.parquet"), data("other.parquet")], &Options::new().format("parquet"))
        .unwrap_err();
    assert_eq!(error.path(), Some(&*data("other.parquet")), "{error}");
    assert!(error.to_string().contains("the file has no column \"i32\", which the first file has"), "{error}");
    // One column more than the first has.
    let paths = [data("delta_byte_array.parquet"), data("with_one_more.parquet")];
    let more = dataset::open(&paths, &of(&[]).format("parquet")).unwrap();
    assert_eq!((more.len(), more.schema().fields.len(), left_out(&*more)[0].1), (20, 1, 1));
    assert_eq!(dataset::open(&paths, &of(&["string"]).format("parquet")).unwrap().len(), 20);
    // Both have what they have in common.
    let both =
        dataset::open(&[data("split/a.parquet"), data("other.parquet")], &of(&["string"]).format("parquet")).unwrap();
    assert_eq!(both.len(), 16);
    assert_ne!(both.fingerprint(), parquet.fingerprint());
}

#[test]
fn nulls_are_errors_of_their_samples_or_empty() {
    assert_nulls_stand(|options| open("nulls.parquet", options), "row group");
    let required = all("required.parquet");
    assert!(words(&*required).iter().all(|encoding| !encoding.contains("null")));
    assert_eq!(texts(&*required, "text"), ["a", "b"]);
}

/// The remedies that the error of a null names.
#[test]
fn nulls_of_numbers_are_nan_or_zero_or_told_by_a_mask() {
    let name = "numbers.parquet";
    assert_nulls(&|nulls| open(name, &Options::new().set("nulls", nulls)));
    let floats = of(&["f16", "f32", "f64", "floats", "pair"]).set("nulls", "nan");
    assert_nan(&*open(name, &floats).unwrap());
}

#[test]
fn what_has_no_form_is_left_out_unless_it_is_wanted() {
    let odd = all("odd.parquet");
    assert_eq!(texts(&*odd, "text"), ["a", "b"]);
    assert_eq!(names(&*odd), ["id", "text"]);
    let keys = ("columns of types that cannot be read", 1, "keys<odd.parquet".to_owned());
    assert_eq!(left_out(&*odd), [keys]);
    let error = open("odd.parquet", &of(&["keys"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("column \"keys\" is a map whose keys are no single values"), "{error}");
    assert!(error.to_string().contains("choose from the columns id, text"), "{error}");
    assert_eq!(open("odd.parquet", &of(&["id"])).unwrap().len(), 2);
    assert_eq!(open("empty.parquet", &of(&["id"])).unwrap_err().kind(), ErrorKind::Empty);
}

#[test]
fn lists_of_one_length_are_tensors() {
    assert_tensors(&|options| open("tensors.parquet", options));
}

/// The Arrow schema in a footer with a byte that is no digit, and with a length that the rows do not have.
#[test]
fn an_arrow_schema_that_is_broken_or_wrong_is_named() {
    let (start, states) = {
        let bytes = std::fs::read(data("tensors.parquet")).unwrap();
        let key = bytes.windows(12).position(|window| window == b"ARROW:schema").unwrap();
        (key + 20, open("tensors.parquet", &of(&["state"])).unwrap())
    };
    assert_eq!(typed(&*states, "state").1, Shape::Fixed(vec![3]));
    let (_folder, path) = changed("tensors.parquet", |bytes| bytes[start] = b'!');
    let error = dataset::open(&[&path], &Options::new()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*path)), "{error}");
    assert!(error.to_string().contains("the Arrow schema in the footer is broken: byte "), "{error}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("store_schema=False")), "{error}");
}

#[test]
fn nested_columns_are_json_text() {
    for name in ["nested-none.parquet", "nested-zstd.parquet", "nested-snappy.parquet"] {
        assert_nested(&|name, column| open(name, &of(&[column])), name);
    }
}

#[test]
fn columns_are_found_by_name_in_every_file() {
    assert_order("parquet");
}

fn changed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut bytes = std::fs::read(data(name)).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn wrong_bytes_of_a_page_are_found_by_its_checksum() {
    let name = "types-none-v1.parquet";
    let span = stored(&*open(name, &of(&["i64"])).unwrap(), 1)[0];
    // The last byte of the chunk is one of a value.
    let (_folder, path) = changed(name, |bytes| bytes[(span.offset + span.len) as usize - 1] ^= 1);
    let parquet = dataset::open(&[&path], &of(&["i64"]).format("parquet")).unwrap();
    let results = samples(&*parquet);
    assert!(results[..4].iter().chain(&results[8..]).all(Result::is_ok));
    let error = results[4].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(span.offset)), "{error}");
    assert!(error.to_string().contains("cannot decode column \"i64\" of row group 1: "), "{error}");
    assert!(error.to_string().contains("CRC"), "{error}");
}

#[test]
fn hostile_ends_are_refused_by_name() {
    let error_of = |change: fn(&mut Vec<u8>)| {
        let (_folder, path) = changed("required.parquet", change);
        dataset::open(&[&path], &Options::new().format("parquet")).unwrap_err()
    };
    let error = error_of(|bytes| {
        let end = bytes.len();
        bytes[end - 1] = b'E';
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("the footer is encrypted"), "{error}");
    let error = error_of(|bytes| {
        let end = bytes.len();
        bytes[end - 8..end - 4].copy_from_slice(&u32::MAX.to_le_bytes());
    });
    assert!(error.to_string().contains("the footer says that it has 4294967295 bytes"), "{error}");
    let error = error_of(|bytes| bytes.truncate(100));
    assert!(error.to_string().contains("the end is not that of a Parquet file"), "{error}");
    assert_eq!(error_of(|bytes| bytes.truncate(7)).kind(), ErrorKind::Truncated);
    assert_eq!(error_of(|bytes| bytes.truncate(0)).kind(), ErrorKind::Truncated);
}

#[test]
fn files_are_told_by_their_beginning_and_name() {
    let shown = |name| detect(&[data(name)], &Options::new()).map_or("nothing", |format| format.name);
    assert_eq!(["split", "plain.parquet"].map(shown), ["parquet"; 2]);
    assert_eq!(["", "nulls.arrow", "rows.json"].map(|name| shown(name) == "parquet"), [false; 3]);
    let parquet = dataset::open(&[data("split")], &Options::new().format("parquet")).unwrap();
    assert!(parquet.index().left_out.is_empty());
    let error = dataset::open(&[data("split-arrow")], &Options::new().format("parquet")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
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
    let open = |path: &Path| dataset::open(&[path], &Options::new().set("nulls", "empty").format("parquet"));
    for name in ["required.parquet", "legacy-labels.parquet", "delta_byte_array.parquet"] {
        survives(&std::fs::read(data(name)).unwrap(), "parquet", &open, every);
    }
    // Of every type, encoding and version of pages, some changes.
    for name in [
        "delta_integers.parquet",
        "delta_length_byte_array.parquet",
        "plain.parquet",
        "nulls.parquet",
        "tensors.parquet",
        "nested-none.parquet",
        "nested-zstd.parquet",
        "types-none-v1.parquet",
        "types-none-v2.parquet",
        "types-brotli-v1.parquet",
    ] {
        changes_are_survived(&std::fs::read(data(name)).unwrap(), "parquet", &open, every);
    }
}

//! A crate outside of the workspace that depends on uringload by path, as a user's program does. `.ci/run library`
//! runs it without features and with the default ones, counts what it depends on, and looks at its lock file.
#![forbid(unsafe_code)]
#![cfg(test)]

use std::path::PathBuf;
use uringload::dataset::{self, Options};
use uringload::{Error, ErrorKind, Loader};

/// A file of the repository.
fn data(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

/// Nothing is written beside the files of the repository.
fn unindexed() -> Options {
    Options::new().sidecars(false)
}

/// A folder of this test alone, empty.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uringload-embedder-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// What opening says; `None` if the format is built in.
fn refusal(name: &str, options: &Options) -> Option<Error> {
    dataset::open(&[data(name)], options).err()
}

/// An error that names the feature, the file and the remedy.
fn names_its_feature(error: &Error, feature: &str, what: &str) {
    let told = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {told}");
    assert!(told.contains("was built without"), "{what}: {told}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains(&format!("`{feature}`"))), "{what}: {told}");
}

/// Files of the tests, what they need, and whether the default features have it.
const FILES: [(&str, &str, bool); 13] = [
    ("tests/data/tar/pax.tar.zst", "zstd", true),
    ("tests/data/tar/gnu.tar.bz2", "bzip2", false),
    ("tests/data/lines/unicode.jsonl.zst", "zstd", true),
    ("tests/data/lines/unix.csv.bz2", "bzip2", false),
    ("tests/data/mds-zip/zstd", "zstd", true),
    ("tests/data/mds-zip/br", "brotli", false),
    ("tests/data/mds-zip/bz2", "bzip2", false),
    ("tests/data/mds-zip/snappy", "snappy", false),
    ("tests/data/litdata-zip/batch", "zstd", true),
    ("tests/data/litdata-zip/sample", "zstd", true),
    ("tests/data/array_record/default.array_record", "array-record", false),
    ("tests/data/columnar/plain.parquet", "parquet", false),
    ("tests/data/columnar/numbers.arrow", "parquet", false),
];

#[test]
fn a_file_that_needs_what_is_not_built_in_is_refused_when_it_is_opened() {
    for (name, feature, by_default) in FILES {
        match refusal(name, &unindexed()) {
            Some(error) => {
                assert!(!(by_default && cfg!(feature = "default")), "{name}: {error}");
                names_its_feature(&error, feature, name);
                assert!(error.path().is_some(), "{name}: {error}");
            }
            None => assert!(by_default && cfg!(feature = "default"), "{name} opens without the feature {feature}"),
        }
    }
}

#[test]
fn what_needs_no_feature_is_read() {
    for name in ["tests/data/tar/pax.tar.gz", "tests/data/mds-zip/gz", "tests/data/lines/ascii.jsonl.gz"] {
        let dataset = dataset::open(&[data(name)], &unindexed()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let loader = Loader::builder(dataset).batch_size(2).build().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(loader.map(|batch| batch.expect("a batch").len()).sum::<usize>() > 0, "{name}");
    }
}

#[test]
fn filters_of_hdf5_name_their_features() {
    for (column, feature) in [("lz4", "lz4"), ("bzip2", "bzip2")] {
        let options = unindexed().format("hdf5").set("tensors", [column]);
        let error = refusal("tests/data/hdf5/layouts-latest.h5", &options).expect("a filter that is not built in");
        names_its_feature(&error, feature, column);
    }
}

#[test]
fn an_image_of_a_format_that_is_not_built_in_is_an_error_of_its_sample() {
    for (name, feature) in [("alpha.webp", "webp"), ("still.gif", "gif"), ("bits.tif", "tiff")] {
        let folder = folder(feature);
        std::fs::copy(data("images/tests/data").join(name), folder.join(name)).expect("a copy");
        let dataset = dataset::open(&[&folder], &unindexed()).expect("a dataset");
        let chain = "center_crop(2)".parse().expect("a chain");
        let mut loader = Loader::builder(dataset).batch_size(1).transform("data", chain).build().expect("a loader");
        let error = loader.next().expect("an answer").expect_err("no decoder");
        names_its_feature(&error, feature, name);
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }
}

//! ArrayRecord: files that the reference writer wrote (tests/data/make_array_record.py), record for record, and files
//! that are broken anywhere.

use crate::common::direct::samples;
use crate::formats::memory::assert_small;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Dataset, Options, SampleId};
use uringload::{Error, ErrorKind};

/// As in the script.
const LENGTHS: [usize; 11] = [0, 1, 2, 100, 65_536, 0, 7, 70_000, 3, 65_511, 12];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/array_record").join(format!("{name}.array_record"))
}

fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[path], &Options::new().format("array_record"))
}

fn record(number: usize) -> Vec<u8> {
    vec![number as u8; LENGTHS[number]]
}

#[test]
fn every_record_of_every_way() {
    for (name, units, shards) in [
        ("plain", 11, vec![11]),
        ("default", 11, vec![11]),
        ("groups", 3, vec![4, 8, 11]),
        ("zstd", 4, vec![3, 6, 9, 11]),
        ("brotli", 4, vec![3, 6, 9, 11]),
        ("snappy", 3, vec![4, 8, 11]),
        ("padded", 3, vec![5, 10, 11]),
    ] {
        let path = data(name);
        assert_eq!(detect(&[&path], &Options::new()).unwrap().name, "array_record");
        let dataset = open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((dataset.len(), dataset.units().unwrap().count()), (11, units), "{name}");
        assert_eq!((dataset.shards(), dataset.bytes()), (&shards[..], LENGTHS.iter().sum::<usize>() as u64), "{name}");
        for (number, row) in samples(&*dataset).into_iter().enumerate() {
            let row = row.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(row["record"] == record(number), "{name}: record {number}");
        }
        let known = (units == 11).then_some(65_536);
        assert_eq!((dataset.length(SampleId(4), 0), dataset.largest(3)), (known, 0), "{name}");
    }
}

#[test]
fn several_files_are_one_behind_the_other() {
    let place = tempfile::tempdir().unwrap();
    for (number, name) in ["plain", "empty", "zstd"].into_iter().enumerate() {
        let to = place.path().join(format!("a-train.array_record-{number:05}-of-00003"));
        fs::copy(data(name), to).unwrap();
    }
    assert_eq!(detect(&[place.path()], &Options::new()).unwrap().name, "array_record");
    let dataset = open(place.path()).unwrap();
    assert_eq!(dataset.len(), 22);
    for (number, row) in samples(&*dataset).into_iter().enumerate() {
        assert!(row.unwrap()["record"] == record(number % 11), "record {number}");
    }
    assert_ne!(dataset.fingerprint(), open(data("plain")).unwrap().fingerprint());
    let error = open(data("empty")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty, "{error}");
    // The name alone is not enough.
    fs::write(place.path().join("b.array_record"), "something else").unwrap();
    assert_eq!(open(place.path().join("b.array_record")).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn transposed_chunks_are_refused() {
    let refused = open(data("transposed")).unwrap_err();
    assert_eq!((refused.kind(), refused.offset()), (ErrorKind::Unavailable, Some(64)), "{refused}");
    assert!(refused.to_string().contains("transpose:false"), "{refused}");
}

/// A change of any byte that means something is told, because every chunk has hashes.
#[test]
fn a_changed_byte_is_told_and_a_cut_file_is_refused() {
    changed_or_cut(5);
}

#[test]
#[ignore = "slow: changes every byte of heads"]
fn any_changed_byte_is_told() {
    changed_or_cut(1);
}

fn changed_or_cut(every: usize) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x.array_record");
    for name in ["plain", "zstd"] {
        let whole = fs::read(data(name)).unwrap();
        let whole_records: Vec<Vec<u8>> = (0..LENGTHS.len()).map(record).collect();
        let mut told = 0;
        for at in (0..1200).chain((1200..whole.len()).step_by(4099)).step_by(every) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            fs::write(&path, &bytes).unwrap();
            let rows = open(&path).map(|dataset| samples(&*dataset));
            let Ok(rows) = rows else {
                told += 1;
                continue;
            };
            assert_eq!(rows.len(), LENGTHS.len(), "{name}: {at}");
            for (row, wanted) in rows.into_iter().zip(&whole_records) {
                match row {
                    Ok(row) => assert!(row["record"] == *wanted, "{name}: byte {at}"),
                    Err(error) => {
                        told += 1;
                        assert!(error.path() == Some(&*path) && error.offset().is_some(), "{error}");
                    }
                }
            }
        }
        assert!(told > 300 / every, "{name}: {told}");
        for len in (1..whole.len()).step_by(4097).chain([whole.len() - 1, whole.len() - 65_536]) {
            fs::write(&path, &whole[..len]).unwrap();
            let refused = open(&path).unwrap_err();
            let kinds = [ErrorKind::Corrupt, ErrorKind::Truncated];
            assert!(
                kinds.contains(&refused.kind()) && refused.path() == Some(&*path),
                "{name} cut to {len}: {refused}"
            );
        }
    }
    assert_small();
}

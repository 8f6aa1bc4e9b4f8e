//! Files that are cut or changed at every byte, and headers that claim what is not there.

use super::writer::{features, file, frame, gzip, header, integers, strings, zlib};
use super::{assert_error, assert_small, bytes, folder, payloads, put, quiet};
use crate::common::direct::{Row, samples};
use std::io::Write;
use uringload::dataset::{self, Dataset, Options, SampleId};
use uringload::{Error, ErrorKind};

fn keep(options: Options) -> Options {
    options.set("keep_damaged", true)
}

fn three() -> Vec<Vec<u8>> {
    let record = |number: i64| features(&[("n", integers(&[number])), ("s", strings(&[&[number as u8; 9]]))]);
    (1..4).map(record).collect()
}

/// A cut at a border of records leaves fewer; any other is an error of the file, or leaves those in front of it.
#[test]
fn a_cut_at_every_byte() {
    let records = three();
    let whole = file(&records);
    let borders: Vec<usize> = (0..4).map(|count| file(&records[..count]).len()).collect();
    let folder = folder(&[("a.tfrecord", &whole)]);
    let path = folder.path().join("a.tfrecord");
    for len in 0..whole.len() {
        put(&path, &whole[..len]);
        let count = borders.iter().filter(|&&border| border <= len).count() - 1;
        let strict = dataset::open(&[&path], &bytes());
        match (borders.contains(&len), strict) {
            (true, Ok(dataset)) => {
                assert_eq!((dataset.len() as usize, dataset.index().damage.len()), (count, 0), "{len}")
            }
            (true, Err(error)) => assert_eq!((error.kind(), len), (ErrorKind::Empty, 0), "{error}"),
            (false, strict) => {
                let error = assert_error(strict, ErrorKind::Truncated, &["a.tfrecord", "copy it again"]);
                assert_eq!(error.offset(), Some(borders[count] as u64), "{len}: {error}");
            }
        }
        match dataset::open(&[&path], &keep(bytes())) {
            Ok(dataset) => {
                let read: Vec<Vec<u8>> = payloads(&*dataset).into_iter().map(Result::unwrap).collect();
                assert_eq!(read, records[..count], "{len}");
                assert_eq!(dataset.index().damage.len(), usize::from(!borders.contains(&len)), "{len}");
            }
            Err(error) => assert_eq!(count, 0, "{len}: {error}"),
        }
    }
    assert_small();
}

/// The same of compressed files, which are never whole when they are cut.
#[test]
fn a_cut_at_every_byte_of_a_compressed_file() {
    let records = three();
    for (whole, name) in [(gzip(&file(&records)), "gz"), (zlib(&file(&records)), "zlib")] {
        let folder = folder(&[("a.tfrecord", &whole)]);
        let path = folder.path().join("a.tfrecord");
        for len in 1..whole.len() {
            put(&path, &whole[..len]);
            let error = dataset::open(&[&path], &quiet()).expect_err("it is cut");
            assert!(matches!(error.kind(), ErrorKind::Truncated | ErrorKind::Corrupt), "{name} {len}: {error}");
            if let Ok(dataset) = dataset::open(&[&path], &keep(bytes())) {
                let read: Vec<Vec<u8>> = payloads(&*dataset).into_iter().map(Result::unwrap).collect();
                assert!(records.starts_with(&read) && !read.is_empty(), "{name} {len}");
                assert_eq!(dataset.index().damage.len(), 1, "{name} {len}");
            }
        }
        put(&path, &[&whole[..], b"something behind it"].concat());
        assert_error(dataset::open(&[&path], &quiet()), ErrorKind::Corrupt, &["a.tfrecord"]);
    }
    assert_small();
}

/// Every bit of every byte is under a checksum: what is delivered is what was written, all else is an error.
#[test]
fn a_change_of_every_byte() {
    let records = three();
    let rows = |dataset: &dyn Dataset| -> Vec<Result<Row, Error>> { samples(dataset) };
    for (compressed, whole) in [(false, file(&records)), (true, gzip(&file(&records))), (true, zlib(&file(&records)))] {
        let folder = folder(&[("a.tfrecord", &whole)]);
        let path = folder.path().join("a.tfrecord");
        let wanted: Vec<Row> =
            rows(&*dataset::open(&[&path], &quiet()).unwrap()).into_iter().map(Result::unwrap).collect();
        for at in 0..whole.len() {
            for flip in [0x01, 0x10, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= flip;
                put(&path, &changed);
                let mut failed = 0;
                match dataset::open(&[&path], &keep(quiet())) {
                    Ok(dataset) => {
                        failed += dataset.index().damage.len();
                        for (number, row) in rows(&*dataset).into_iter().enumerate() {
                            match row {
                                Ok(row) => assert_eq!(row, wanted[number], "byte {at} ^ {flip:#x}"),
                                Err(error) => {
                                    failed += 1;
                                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                                    assert!(error.path().is_some(), "{error}");
                                }
                            }
                        }
                    }
                    Err(error) => {
                        failed += 1;
                        assert!(error.path().is_some(), "byte {at} ^ {flip:#x}: {error}");
                    }
                }
                // Of a compressed file the header's time, and bits that decoders do not look at, may change.
                assert!(failed == 1 || compressed, "byte {at} ^ {flip:#x}: {failed} failures");
            }
        }
    }
    assert_small();
}

/// All of 2^60 bytes, and what overflows when it is added to an offset.
#[test]
fn lengths_that_no_file_has() {
    for len in [13, 1 << 20, 1 << 33, 1 << 60, i64::MAX as u64, u64::MAX - 16, u64::MAX - 4, u64::MAX] {
        let claims = [frame(b"good"), header(len), b"twelve bytes".to_vec()].concat();
        for bytes_ in [claims.clone(), gzip(&claims), zlib(&claims)] {
            let folder = folder(&[("a.tfrecord", &bytes_)]);
            let error = dataset::open(&[folder.path()], &bytes());
            assert_error(error, ErrorKind::Truncated, &["record 1", &format!("claims {len} bytes")]);
            let kept = dataset::open(&[folder.path()], &keep(bytes())).unwrap();
            assert_eq!(payloads(&*kept)[0].as_ref().unwrap(), b"good");
            assert_eq!((kept.len(), kept.index().left_out[0].what), (1, "rests of damaged shards"));
        }
    }
    assert_small();
}

#[test]
fn a_good_file_beside_a_bad_one_is_read() {
    let good = file(&[b"good"]);
    for bad in [&b"no records at all"[..], b"\x1f\x8b and no stream", b"short", b"\x78\x9c and no stream"] {
        let folder = folder(&[("0.tfrecord", &good), ("1.tfrecord", bad), ("2.tfrecord", &good)]);
        let error = dataset::open(&[folder.path()], &bytes()).unwrap_err();
        assert!(error.path().is_some_and(|file| file.ends_with("1.tfrecord")), "{error}");
        let with_sidecars = keep(bytes()).sidecars(true);
        for _ in 0..2 {
            let dataset = dataset::open(&[folder.path()], &with_sidecars).unwrap();
            let read: Vec<Vec<u8>> = payloads(&*dataset).into_iter().map(Result::unwrap).collect();
            assert_eq!((read, dataset.shards()), (vec![b"good".to_vec(); 2], &[1, 1, 2][..]));
            assert_eq!(dataset.index().damage[0].to_string(), error.to_string());
            assert!(!folder.path().join("1.tfrecord.uidx").exists(), "no index of a damaged file is kept");
        }
    }
    let folder = folder(&[("a.tfrecord", b"no records at all")]);
    let error = dataset::open(&[folder.path()], &quiet());
    let error = assert_error(error, ErrorKind::Corrupt, &["no TFRecord file", "and should have"]);
    assert_eq!(error.offset(), Some(0));
}

/// A record as long as memory: its file is indexed in little, and columns are not learned from it.
#[test]
fn a_record_of_any_length_is_indexed_in_little_memory() {
    const PIECE: usize = 4 << 20;
    let len = 80 << 20;
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(&header(len)).unwrap();
    (0..len / PIECE as u64).for_each(|_| writer.write_all(&[0; PIECE]).unwrap());
    writer.write_all(&[0; 4]).unwrap();
    let folder = folder(&[("a.tfrecord.gz", &writer.finish().unwrap())]);
    let records = dataset::open(&[folder.path()], &bytes()).unwrap();
    assert_eq!((records.len(), records.length(SampleId(0), 0)), (1, Some(len)));
    let options = Options::new().format("tfrecord").sidecars(false);
    let error = dataset::open(&[folder.path()], &options).unwrap_err();
    assert!(error.to_string().contains("more than 64 MiB") && error.to_string().contains("whole_records"), "{error}");
    assert_small();
}

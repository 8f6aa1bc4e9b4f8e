//! Files cut off at every byte, and files with any byte changed: an error or values, never a panic, a hang, or an
//! allocation of what a header claims.

use super::*;
use crate::common::within;
use crate::formats::memory::assert_small;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use uringload::dataset::SampleId;

/// Opens a file and reads the first rows of all that it has; whether all was well.
fn drained(path: &Path) -> Result<(), Error> {
    let dataset = open(path, &[])?;
    dataset.fingerprint();
    assert!(dataset.largest(1) <= dataset.bytes());
    let size = fs::metadata(path).unwrap().len();
    let mut spans = Vec::new();
    for id in (0..dataset.len().min(3)).chain(dataset.len().saturating_sub(2)..dataset.len()) {
        spans.clear();
        dataset.spans(SampleId(id), &mut spans);
        let mut has_room = true;
        if let Some(units) = dataset.units() {
            let mut of = Vec::new();
            units.of(SampleId(id), &mut of);
            of.iter().for_each(|&unit| units.stored(unit, &mut spans));
            // Memory for what is decoded is taken by a loader, within its limit.
            has_room = of.iter().all(|&unit| units.decoded_bytes(unit) < 1 << 20);
        }
        for span in &spans {
            assert!(span.offset.checked_add(span.len).is_some_and(|end| end <= size), "{span:?} of {size} bytes");
        }
        if has_room {
            direct::sample(&*dataset, id)?;
        }
    }
    Ok(())
}

/// Runs on a thread of its own, with a bound of time for all of it.
fn bounded(work: impl FnOnce(&Path) + Send + 'static) {
    within(Duration::from_secs(1200), move || {
        let folder = tempfile::tempdir().unwrap();
        work(&folder.path().join("x.h5"));
    });
    assert_small();
}

#[test]
fn a_file_cut_off_is_an_error() {
    cut_off(7);
}

#[test]
#[ignore = "slow: cuts at every byte"]
fn a_file_cut_off_anywhere_is_an_error() {
    cut_off(1);
}

/// Cuts at multiples of a number of bytes.
fn cut_off(every: usize) {
    bounded(move |path| {
        for name in ["small-earliest", "small-latest", "compact-latest", "filled-latest", "user_block-latest"] {
            fs::copy(data(&format!("{name}.h5")), path).unwrap();
            drained(path).unwrap();
            let file = OpenOptions::new().write(true).open(path).unwrap();
            for len in (0..file.metadata().unwrap().len()).rev().step_by(every) {
                file.set_len(len).unwrap();
                let error = drained(path).unwrap_err();
                let kinds = [ErrorKind::Truncated, ErrorKind::Corrupt];
                assert!(kinds.contains(&error.kind()) && error.path() == Some(path), "{name} at {len}: {error:?}");
            }
        }
        for name in ["layouts-latest", "indices-earliest", "groups-latest"] {
            fs::copy(data(&format!("{name}.h5")), path).unwrap();
            let file = OpenOptions::new().write(true).open(path).unwrap();
            for len in (0..file.metadata().unwrap().len()).rev().step_by(77 * every) {
                file.set_len(len).unwrap();
                assert!(drained(path).is_err(), "{name} at {len}");
            }
        }
    });
}

const VALUES: [fn(u8) -> u8; 5] = [|byte| byte ^ 1, |byte| byte ^ 0x80, |byte| byte.wrapping_add(1), |_| 0, |_| 0xff];

/// Changes one byte at a time, each `step`th of them, to so many others of [`VALUES`], in turn.
fn changed(name: &'static str, step: usize, others: usize) {
    bounded(move |path| {
        let bytes = fs::read(data(&format!("{name}.h5"))).unwrap();
        fs::write(path, &bytes).unwrap();
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let mut errors = 0;
        for (number, at) in (0..bytes.len()).step_by(step).enumerate() {
            for value in VALUES.iter().cycle().skip(number % VALUES.len()).take(others) {
                file.write_all_at(&[value(bytes[at])], at as u64).unwrap();
                if let Err(error) = drained(path) {
                    errors += 1;
                    assert!(error.to_string().lines().count() == 1 + usize::from(error.remedy().is_some()), "{error}");
                }
            }
            file.write_all_at(&bytes[at..=at], at as u64).unwrap();
        }
        drained(path).unwrap();
        assert!(errors > 0, "no byte of {name} counts");
    });
}

#[test]
fn any_byte_may_be_any_other() {
    some_bytes(11);
}

#[test]
#[ignore = "slow: changes many bytes"]
fn any_of_many_bytes_may_be_any_other() {
    some_bytes(1);
}

/// Changes of every form, at some of the places of the slow test.
fn some_bytes(every: usize) {
    changed("small-earliest", every, 1);
    changed("small-latest", every, 3);
    changed("named_type-earliest", every, 1);
    changed("filled-latest", every, 1);
    changed("groups-latest", 67 * every, 1);
    changed("indices-latest", 13 * every, 1);
    changed("texts-earliest", 11 * every, 1);
    changed("texts-latest", 5 * every, 1);
    changed("tables-earliest", 17 * every, 1);
    changed("tables-latest", 7 * every, 1);
    changed("scaled-latest", 17 * every, 1);
}

#[test]
#[ignore = "slow: changes every byte of many files"]
fn every_byte_of_every_form_may_be_any_other() {
    for form in ["earliest", "latest"] {
        for name in ["small", "named_type", "compact", "filled", "user_block"] {
            changed(format!("{name}-{form}").leak(), 1, VALUES.len());
        }
        for name in ["indices", "layouts", "types"] {
            changed(format!("{name}-{form}").leak(), 1, 1);
        }
    }
    changed("groups-latest", 3, 2);
    changed("groups-earliest", 3, 2);
    changed("many-latest", 97, 2);
}

/// Structures with checksums are whole or refused: a change of any byte of metadata is an error, or the same values.
#[test]
fn checksums_of_the_latest_form_are_compared() {
    bounded(|path| {
        let bytes = fs::read(data("small-newest.h5")).unwrap();
        let whole: Vec<_> = direct::samples(&*open(data("small-newest.h5"), &[]).unwrap());
        fs::write(path, &bytes).unwrap();
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let mut others = 0;
        for at in 0..bytes.len() {
            file.write_all_at(&[bytes[at] ^ 0x10], at as u64).unwrap();
            if drained(path).is_ok() {
                let read = open(path, &["x"]).and_then(|dataset| {
                    (0..dataset.len()).map(|id| direct::sample(&*dataset, id)).collect::<Result<Vec<_>, _>>()
                });
                let same = |(read, whole): (&direct::Row, &Result<direct::Row, Error>)| {
                    read["x"] == whole.as_ref().unwrap()["x"]
                };
                assert!(read.unwrap().iter().zip(&whole).all(same), "byte {at}");
                others += 1;
            }
            file.write_all_at(&bytes[at..=at], at as u64).unwrap();
        }
        // Nothing checks "y", unused parts of blocks, and what lies between them.
        assert!(others >= 5 && others < bytes.len() * 2 / 3, "{others} of {}", bytes.len());
    });
}

/// Each chunk of "x" ends in its checksum, and is named by its place.
#[test]
fn a_wrong_fletcher32_names_the_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.h5");
    for form in ["earliest", "latest"] {
        fs::copy(data(&format!("layouts-{form}.h5")), &path).unwrap();
        let dataset = open(&path, &["checked"]).unwrap();
        let mut spans = Vec::new();
        dataset.units().unwrap().stored(UnitId(1), &mut spans);
        let [chunk] = spans[..] else { panic!("{spans:?}") };
        // Without other filters the chunk and its checksum are as they are.
        assert_eq!(chunk.len, 4 * 96 + 4);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, chunk.offset + 17).unwrap();
        file.write_all_at(&[byte[0] ^ 4], chunk.offset + 17).unwrap();
        for id in 0..dataset.len() {
            let row = direct::sample(&*dataset, id);
            if !(4..8).contains(&id) {
                assert_eq!(row.unwrap()["checked"], elements(DType::I32, id * 24, 24));
                continue;
            }
            let error = row.unwrap_err();
            assert_eq!(
                (error.kind(), error.path(), error.offset()),
                (ErrorKind::Corrupt, Some(&*path), Some(chunk.offset))
            );
            let text = error.to_string();
            assert!(text.contains("rows 4 to 7") && text.contains("its checksum is"), "{text}");
        }
    }
}

/// A file that is small and claims to be large.
#[test]
fn claims_are_not_believed() {
    bounded(|path| {
        let bytes = fs::read(data("compact-earliest.h5")).unwrap();
        // The two dimensions of the dataset, 4 and 2, and how large they may become.
        let at = bytes.windows(16).position(|window| *window == [4_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat());
        let at = at.unwrap();
        for claim in [5, 1 << 20, 1 << 40, 1 << 60, u64::MAX - 1, u64::MAX] {
            for place in [at, at + 8] {
                let mut bytes = bytes.clone();
                bytes[place..place + 8].copy_from_slice(&claim.to_le_bytes());
                bytes[place + 16..place + 24].copy_from_slice(&claim.to_le_bytes());
                fs::write(path, &bytes).unwrap();
                assert_eq!(drained(path).unwrap_err().kind(), ErrorKind::Corrupt, "{claim} at {place}");
            }
        }
    });
}

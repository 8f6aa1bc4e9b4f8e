//! What is sound and cannot be delivered: each by its name, with what to do about it.

use super::*;

#[test]
fn each_by_its_name() {
    let file = data("refused-latest.h5");
    let refused = [
        ("compound", ErrorKind::Unavailable, "compounds"),
        ("references", ErrorKind::Unavailable, "references"),
        // A class of its own in the newest form, a compound before.
        ("complex", ErrorKind::Unavailable, "which no column can hold"),
        ("scalar", ErrorKind::InvalidArgument, "scalar"),
        ("blosc", ErrorKind::Unavailable, "filter 32001 (blosc)"),
        ("external", ErrorKind::Unavailable, "external"),
        ("virtual", ErrorKind::Unavailable, "virtual"),
    ];
    for (name, kind, word) in refused {
        let error = open(&file, &[name]).unwrap_err();
        let text = error.to_string();
        assert!(error.kind() == kind && text.contains(word), "{name}: {error:?}");
        assert!(text.contains("refused-latest.h5") && text.contains(name), "{name}: {error:?}");
        assert!(error.remedy().is_some() || kind == ErrorKind::InvalidArgument, "{name}: {error:?}");
    }
    // Without a name, all readable datasets are columns.
    let all = open(&file, &[]).unwrap();
    let names: Vec<_> = all.schema().fields.iter().map(|field| &*field.name).collect();
    let wanted = ["big_endian", "complex/r", "complex/i", "compound/a", "compound/b"];
    assert_eq!(names, [&wanted[..], &["fixed_strings", "never", "ragged", "scaled", "strings"]].concat());
    let left_out: Vec<_> = all.index().left_out.iter().map(|skipped| (skipped.what, skipped.count)).collect();
    assert_eq!(left_out, [("datasets with another number of rows", 2), ("datasets that cannot be read", 4)]);
    let error = open(&file, &["five", "scaled"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn datasets_that_do_not_fit_together() {
    let error = open(data("types-latest.h5"), &["numbers/i4", "other/short"]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\"other/short\" has 4 rows, and \"numbers/i4\" has 5"), "{text}");
    let error = open(data("types-latest.h5"), &["numbers/i4", "/numbers/i4/"]).unwrap_err();
    assert!(error.to_string().contains("named twice"), "{error}");
}

#[test]
fn files_that_are_no_hdf5() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.h5");
    for content in [&b""[..], b"\x89HDF\r\n\x1a", &[0; 5000]] {
        fs::write(&path, content).unwrap();
        let error = open(&path, &[]).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("no HDF5 superblock"), "{error:?}");
    }
    // A version that is not known yet, and one that a writer has not closed.
    let mut bytes = fs::read(data("small-latest.h5")).unwrap();
    bytes[8] = 9;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(open(&path, &[]).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// What is shorter than its superblock says, whatever it is that is not there.
#[test]
fn a_file_cut_short_is_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.h5");
    let bytes = fs::read(data("layouts-latest.h5")).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = open(&path, &["labels"]).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Truncated, Some(bytes.len() as u64 - 1)), "{error}");
}

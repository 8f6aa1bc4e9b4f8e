//! HDF5: found by what files are, described by `inspect`, listed byte for byte.

use super::*;

fn data(name: &str) -> String {
    format!("{}/../tests/data/hdf5/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn datasets_are_found_and_described() {
    let file = data("layouts-latest.h5");
    let found = json(&expect(&mut uringload(&format!("inspect {file} --json --tensors all --tensors labels")), 0).0);
    assert_eq!((&found["format"], &found["samples"], &found["shards"]), (&"hdf5".into(), &11.into(), &3.into()));
    let column = &found["columns"][0];
    assert_eq!((&column["name"], &column["dtype"], &column["shape"]), (&"all".into(), &"i32".into(), &json("[6, 4]")));
    assert_eq!(column["encoding"], "chunks of [4, 3, 4], shuffle, gzip, fletcher32");
    assert_eq!(found["columns"][1]["encoding"], "contiguous");
    let (text, _) = expect(&mut uringload(&format!("inspect {}", data("types-latest.h5"))), 0);
    assert!(text.contains("numbers/f4: f32 [3] (contiguous)"), "{text}");
    assert!(text.contains("2 datasets with another number of rows, the first"), "{text}");
}

#[test]
fn rows_are_listed() {
    let list = |datasets: &str| {
        let arguments = format!("list {} {datasets} --digest sha256", data("layouts-latest.h5"));
        let (out, _) = expect(&mut uringload(&arguments), 0);
        out.lines().map(json).collect::<Vec<_>>()
    };
    let rows = list("--tensors contiguous --tensors chunked");
    assert_eq!(rows.len(), 11);
    for row in &rows {
        let columns = &row["columns"];
        assert!(columns["chunked"]["sha256"].is_string(), "{row}");
        assert_eq!(columns["chunked"]["sha256"], columns["contiguous"]["sha256"], "{row}");
    }
}

#[test]
fn what_cannot_be_had_is_said() {
    let refused = [
        (format!("{} --tensors blosc", data("refused-latest.h5")), 1, "filter 32001 (blosc)"),
        (format!("{} --tensors absent", data("small-latest.h5")), 2, "the file has no dataset \"absent\""),
        (format!("{} --format folder --tensors x", data("small-latest.h5")), 2, "hdf5"),
        (format!("{} --format hdf5", data("../arrays/golden.npy")), 1, "no HDF5 superblock"),
    ];
    for (arguments, code, word) in refused {
        let (_, err) = expect(&mut uringload(&format!("inspect {arguments}")), code);
        assert!(err.contains(word), "{arguments}: {err}");
    }
}

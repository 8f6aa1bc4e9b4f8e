//! Arrays and tokens: found by what files show, described by `inspect`, listed byte for byte.

use super::*;
use sha2::{Digest, Sha256};

fn data(name: &str) -> String {
    format!("{}/../tests/data/arrays/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn inspected(arguments: &str) -> serde_json::Value {
    json(&expect(&mut uringload(&format!("inspect {arguments} --json")), 0).0)
}

fn lines(arguments: &str) -> Vec<serde_json::Value> {
    expect(&mut uringload(&format!("list {arguments} --digest sha256")), 0).0.lines().map(json).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn formats_are_found_and_described() {
    let golden = inspected(&data("golden.npy"));
    assert_eq!((&golden["format"], &golden["samples"]), (&"npy".into(), &1.into()));
    let column = &golden["columns"][0];
    assert_eq!((&column["name"], &column["dtype"], &column["shape"]), (&"data".into(), &"i32".into(), &json("[3]")));
    let stored = inspected(&format!("{} --rows", data("stored.npz")));
    assert_eq!((&stored["format"], &stored["samples"], &stored["bytes"]), (&"npz".into(), &6.into(), &120.into()));
    assert_eq!((&stored["columns"][1]["name"], &stored["columns"][1]["dtype"]), (&"y".into(), &"i64".into()));
    let tensors = inspected(&format!("{} --tensors a --tensors c", data("tensors.safetensors")));
    assert_eq!((&tensors["format"], &tensors["samples"]), (&"safetensors".into(), &1.into()));
    assert_eq!(tensors["columns"][0]["shape"], json("[2, 3]"));
    let tokens = inspected(&format!("{} --window-tokens 4 --documents", data("megatron_u2.idx")));
    assert_eq!((&tokens["format"], &tokens["samples"]), (&"tokens".into(), &6.into()));
    assert_eq!((&tokens["columns"][0]["dtype"], &tokens["columns"][0]["shape"]), (&"u16".into(), &json("[4]")));
    assert_eq!((&tokens["dropped_tokens"], &tokens["left_out"][0]["count"]), (&4.into(), &3.into()));
    let raw = inspected(&format!("{} --token-dtype u32 --window-tokens 2", data("megatron_i4.bin")));
    assert_eq!((&raw["samples"], &raw["columns"][0]["dtype"]), (&23.into(), &"u32".into()));
    let (text, _) = expect(&mut uringload(&format!("inspect {}", data("golden.npy"))), 0);
    assert!(text.contains("data: i32 [3]"), "{text}");
}

#[test]
fn rows_and_windows_are_slices_of_their_files() {
    let whole = fs::read(data("plain_f4.npy")).unwrap();
    let rows = lines(&format!("{} --rows", data("plain_f4.npy")));
    assert_eq!(rows.len(), 3);
    for (row, bytes) in rows.iter().zip(whole[128..].chunks(16)) {
        assert_eq!(row["columns"]["data"]["sha256"], sha256(bytes), "{row}");
    }
    let whole = fs::read(data("megatron_u1.bin")).unwrap();
    let windows = lines(&format!("{} --window-tokens 5 --stride 2", data("megatron_u1")));
    assert_eq!(windows.len(), 10);
    for (window, bytes) in windows.iter().zip(whole.windows(5).step_by(2)) {
        assert_eq!(window["columns"]["tokens"]["sha256"], sha256(bytes), "{window}");
    }
}

#[test]
fn what_cannot_be_asked_for_is_an_error_of_usage() {
    let npy = data("golden.npy");
    let refused = [
        format!("{npy} --record-bytes 4 --format npy"),
        format!("{npy} --format folder --rows"),
        format!("{npy} --format folder --tensors a"),
        format!("{npy} --window-tokens 4"),
        format!("{npy} --header-bytes 4"),
        format!("{npy} --tensors absent"),
        format!("{} --documents", data("megatron_u2.bin")),
        data("megatron_u2.bin"),
    ];
    for arguments in refused {
        let (_, err) = expect(&mut uringload(&format!("inspect {arguments}")), 2);
        assert!(!err.is_empty(), "{arguments}");
    }
    let (_, err) = expect(&mut uringload(&format!("inspect {}", data("bad_object.npy"))), 1);
    assert!(err.contains("pickle") && err.contains("bad_object.npy"), "{err}");
}

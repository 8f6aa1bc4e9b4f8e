//! Shared by the tests: the files that make.py wrote.

#![allow(dead_code, reason = "each test is a program of its own, and uses some of it")]

use std::path::PathBuf;
use uringload_images::{Decoding, Image, decode};

/// The bytes of a file of tests/data.
pub fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a text of tests/data.
pub fn lines(name: &str) -> Vec<String> {
    String::from_utf8(file(name)).expect("text").lines().map(str::to_owned).collect()
}

/// A photograph.
pub fn photo(name: &str) -> Image {
    decode(&file(name), &Decoding::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Greatest and mean difference of levels.
pub fn difference(one: &[u8], other: &[u8]) -> (u8, f64) {
    assert_eq!(one.len(), other.len());
    let differences = one.iter().zip(other).map(|(one, other)| one.abs_diff(*other));
    let sum: u64 = differences.clone().map(u64::from).sum();
    (differences.max().unwrap_or(0), sum as f64 / one.len().max(1) as f64)
}

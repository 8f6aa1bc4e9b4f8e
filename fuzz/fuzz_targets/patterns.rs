//! Braces and wildcards, as a user may type them.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

/// Longer patterns find nothing new.
const PATTERN_BYTES_MAX: usize = 200;

fuzz_target!(|data: &[u8]| -> Corpus {
    // Without a dot no pattern leaves the folder. One dot is not safe either: braces can turn it into two.
    if data.contains(&b'.') && !is_range(data) || data.len() > PATTERN_BYTES_MAX || data.starts_with(b"/") {
        return Corpus::Reject;
    }
    let folder = files(&[("a", b"1"), ("b0", b"2"), ("b1", b"3"), ("ab", b"4"), ("[", b"5"), ("{a,b}", b"6")]);
    walk(dataset::open(&[folder.join(OsStr::from_bytes(data))], &Options::new().format("folder")));
    Corpus::Keep
});

/// Whether all dots come in pairs between digits, letters or signs of a range such as `{1..9}`, without a comma that
/// could separate a pair.
fn is_range(data: &[u8]) -> bool {
    let mut rest = data;
    while let Some(at) = rest.iter().position(|&byte| byte == b'.') {
        let before = at.checked_sub(1).map(|before| rest[before]);
        let after = rest.get(at + 2);
        let is_dots = rest.get(at + 1) == Some(&b'.');
        if !is_dots || !before.is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            return false;
        }
        if !after.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            return false;
        }
        rest = &rest[at + 2..];
    }
    true
}

//! What is opened from a listing's file is what was listed, and a million names of it open at once.

use crate::find::names::drawn_names;
use crate::{FileId, Options, list_objects, open};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload_core::store::{Failure, Interrupt, Known, ListOptions, Listed, Object, Page, Read, Store, Version};

/// A store of objects with these keys, which ascend. It gives no bytes.
#[derive(Debug)]
struct Keys(Vec<Vec<u8>>);

/// Size and version of the object with this number.
fn known(number: usize) -> (u64, Version) {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (mixed >> 47, Version::new(Known::Etag, mixed))
}

impl Store for Keys {
    fn shown(&self, key: &[u8]) -> PathBuf {
        format!("s3://keys/{}", key.escape_ascii()).into()
    }

    fn read(&self, _: &[u8], _: u64, _: &mut [u8], _: Option<Version>, _: &Interrupt) -> Result<Read, Failure> {
        unreachable!("a name and a size are all that opening looks at")
    }

    fn lists(&self) -> bool {
        true
    }

    fn list(
        &self,
        prefix: &[u8],
        _: &ListOptions,
        _: &Interrupt,
        take: &mut dyn FnMut(Page) -> ControlFlow<()>,
    ) -> Result<Listed, Failure> {
        assert!(prefix.is_empty(), "all are listed");
        let object = |(number, key): (usize, &Vec<u8>)| {
            let (size, version) = known(number);
            Object { key: key.clone(), size, version: Some(version) }
        };
        let objects = self.0.iter().enumerate().map(object).collect();
        let _ = take(Page { number: 1, objects, folders: Vec::new() });
        Ok(Listed { pages: 1, objects: self.0.len() as u64, ..Listed::default() })
    }
}

fn listed(keys: Vec<Vec<u8>>) -> (tempfile::TempDir, PathBuf, Options) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.uls");
    let options = Options::new().store("s3://keys/", Arc::new(Keys(keys)));
    list_objects("s3://keys/", &file, &options).unwrap();
    (folder, file, options)
}

#[test]
fn names_sizes_and_versions_are_those_that_were_listed() {
    let long = "long".repeat(50);
    // So long that they are several segments.
    let mut keys = drawn_names(4, &["a", "b/c", "/.h", ".", "..", "jpg", &long, &long, &long]);
    keys.retain(|key| !key.is_empty());
    keys.sort();
    keys.dedup();
    let is_seen = |key: &Vec<u8>| {
        let mut parts = key.split(|&byte| byte == b'/');
        parts.all(|part| !part.starts_with(b".") || part == b"." || part == b"..")
    };
    let seen: Vec<usize> = (0..keys.len()).filter(|&number| is_seen(&keys[number])).collect();
    let (_folder, file, options) = listed(keys.clone());
    let dataset = open(&[&file], &options.format("folder")).unwrap();
    let (files, hidden) = (dataset.files(), &dataset.index().left_out);
    assert_eq!((files.len(), hidden[0].count, hidden.len()), (seen.len(), (keys.len() - seen.len()) as u64, 1));
    assert!(seen.len() > 10_000 && hidden[0].count > 1000 && keys.concat().len() > 64 * keys.len());
    for (id, number) in seen.into_iter().enumerate() {
        let file = FileId(id as u32);
        let (size, version) = known(number);
        let far = files.far(file).unwrap();
        assert_eq!((far.key, files.size(file), far.version), (keys[number].clone(), size, Some(version)));
    }
}

/// Five times the target, so that a busy machine does not fail the test.
#[test]
#[ignore = "slow: measures time"]
fn a_million_names_open_at_once() {
    let key = |number: u64| format!("{:07}/{number:010}.jpg", number / 100).into_bytes();
    let (_folder, file, options) = listed((0..1_000_000).map(key).collect());
    for (what, options) in [("as a folder", options.clone().format("folder")), ("of any format", options)] {
        let opened = || {
            let start = Instant::now();
            let dataset = open(&[&file], &options).unwrap();
            let took = start.elapsed();
            assert_eq!((dataset.len(), dataset.index().classes.len()), (1_000_000, 10_000));
            took
        };
        let least = (0..9).map(|_| opened()).min().unwrap_or_default();
        assert!(least <= Duration::from_millis(5 * 50), "{what}: {least:?}");
    }
}

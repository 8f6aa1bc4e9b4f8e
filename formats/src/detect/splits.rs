//! The splits of a dataset: files for training, for validation, for tests, distinguished by the names of folders or
//! files.

use super::nearest::nearest;
use crate::dataset::FileId;
use crate::find::names::base_of;
use crate::find::paths::FoundFiles;
use crate::place::Place;
use memchr::memchr_iter;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use uringload_core::{Error, ErrorKind, Result};

/// Words for splits: the first of each line is what the others mean.
const WORDS: [&[&str]; 4] = [
    &["train", "training", "trn"],
    &["validation", "valid", "val", "dev"],
    &["test", "testing", "t10k", "eval", "evaluation", "holdout"],
    &["unlabeled", "unsupervised"],
];

/// What all splits together are called.
pub(super) const ALL: &str = "all";
/// What the files of no split are called, where others are of one.
const OTHERS: &str = "other";
/// Deepest folder that may be a split, counted from 0.
const DEPTH_MAX: usize = 4;

/// What distinguishes the splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The folder at this depth.
    Folder(usize),
    /// A word in the file's name.
    Name,
}

/// Two splits or more.
#[derive(Debug)]
pub(super) struct Splits {
    by: By,
    /// Files of each.
    counts: BTreeMap<String, u64>,
}

/// What stays when a split was chosen.
pub(super) enum Chosen {
    /// These folders.
    Folders(Vec<Place>),
    /// Of the files that were looked at, those for which this is true.
    Files(Vec<bool>),
}

impl Splits {
    /// The splits of these files, if they have any. Files that a user named are left out: who names files has chosen.
    /// Names of files are believed only where `by_names`.
    pub(super) fn find(found: &FoundFiles, files: &[FileId], by_names: bool) -> Option<Splits> {
        let files: Vec<FileId> = files.iter().copied().filter(|&file| !found.is_single(file)).collect();
        let mut by_folder = None;
        for depth in 0..=DEPTH_MAX {
            let mut counts = BTreeMap::new();
            let mut last: (Vec<u8>, u64) = Default::default();
            for &file in &files {
                let path = found.name_in_pattern(file);
                let Some(folder) = folder_at(&path, depth) else { continue };
                // Files come sorted: few are in another folder than the one before.
                if folder != last.0 {
                    add(&mut counts, &last);
                    last = (folder.to_vec(), 0);
                }
                last.1 += 1;
            }
            add(&mut counts, &last);
            let splits = counts.keys().filter(|name| word_of(name).is_some()).count();
            if counts.is_empty() {
                break;
            }
            if splits >= 2 && splits * 2 >= counts.len() {
                by_folder = Some(Splits { by: By::Folder(depth), counts });
                break;
            }
        }
        if by_folder.is_some() || !by_names {
            return by_folder;
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for &file in &files {
            *counts.entry(named(found.files.name(file))).or_default() += 1;
        }
        let counts: BTreeMap<String, u64> = counts.into_iter().map(|(name, files)| (name.into(), files)).collect();
        // Files for a test beside others, too: those are for training.
        let is_told = |name: &&String| *name != OTHERS && *name != WORDS[0][0];
        let is_split = counts.len() >= 2 && counts.keys().any(|name| is_told(&name));
        is_split.then_some(Splits { by: By::Name, counts })
    }

    /// The error that lists them.
    pub(super) fn ask(&self, place: &std::path::Path) -> Error {
        let error = Error::new(ErrorKind::InvalidArgument, format!("there are several splits: {}", self.listed()));
        let names: Vec<&str> = self.counts.keys().map(String::as_str).collect();
        error.with_path(place).with_remedy(format!(
            "choose one by split (--split, split=): {}, or {ALL} for all together",
            names.join(", ")
        ))
    }

    fn listed(&self) -> String {
        let listed = self.counts.iter().map(|(name, &files)| {
            let noun = if files == 1 { "file" } else { "files" };
            format!("{name:?} with {files} {noun}")
        });
        listed.collect::<Vec<_>>().join(", ")
    }

    /// The files of one split. In folders below `columns`, single files are chosen, so that these stay.
    ///
    /// # Errors
    /// `InvalidArgument` for a split that is not there.
    pub(super) fn choose(&self, wanted: &str, found: &FoundFiles, columns: bool) -> Result<Chosen> {
        let means = |name: &str| word_of(name).is_some() && word_of(name) == word_of(wanted);
        let alike: Vec<&String> = self.counts.keys().filter(|name| means(name)).collect();
        let name = match (self.counts.get_key_value(wanted), &alike[..]) {
            (Some((name, _)), _) => name,
            (None, [name]) => *name,
            _ => {
                let what = format!("there is no split {wanted:?}, but {}", self.listed());
                let names: Vec<&str> = self.counts.keys().map(String::as_str).collect();
                let error = Error::new(ErrorKind::InvalidArgument, what);
                return Err(error.with_remedy(nearest(wanted, &names)));
            }
        };
        let all = (0..found.files.len() as u32).map(FileId);
        match self.by {
            By::Name => {
                let is_of = |file| named(found.files.name(file)) == *name;
                Ok(Chosen::Files(all.map(is_of).collect()))
            }
            By::Folder(depth) if depth > 0 && columns => {
                let is_of = |file| {
                    let path = found.name_in_pattern(file);
                    folder_at(&path, depth).is_some_and(|folder| String::from_utf8_lossy(folder) == **name)
                };
                Ok(Chosen::Files(all.map(is_of).collect()))
            }
            By::Folder(depth) => {
                let mut folders: Vec<Place> = Vec::new();
                for file in all.filter(|&file| !found.is_single(file)) {
                    let path = found.name_in_pattern(file);
                    if folder_at(&path, depth).is_none_or(|folder| String::from_utf8_lossy(folder) != **name) {
                        continue;
                    }
                    let folder = prefix(found, file, &path, depth);
                    if folders.last() != Some(&folder) && !folders.contains(&folder) {
                        folders.push(folder);
                    }
                }
                Ok(Chosen::Folders(folders))
            }
        }
    }
}

/// The folder of a file that is its split.
fn prefix(found: &FoundFiles, file: FileId, path: &[u8], depth: usize) -> Place {
    let end = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').nth(depth).map_or(path.len(), |(at, _)| at);
    found.pattern_root(file).join(OsStr::from_bytes(&path[..end]))
}

fn add(counts: &mut BTreeMap<String, u64>, (name, files): &(Vec<u8>, u64)) {
    if *files > 0 {
        *counts.entry(String::from_utf8_lossy(name).into_owned()).or_default() += files;
    }
}

/// The folder at a depth, if the file is below it.
fn folder_at(path: &[u8], depth: usize) -> Option<&[u8]> {
    let (mut slashes, mut start) = (memchr_iter(b'/', path), 0);
    if depth > 0 {
        start = slashes.nth(depth - 1)? + 1;
    }
    slashes.next().map(|end| &path[start..end])
}

/// The split that a folder's name means: a word for one, or such a word before a number or a second word, as in
/// `train2017`, `test-images` and `val_256`.
fn word_of(name: &str) -> Option<usize> {
    words(name.as_bytes()).next().and_then(of_word)
}

fn words(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.split(|byte| !byte.is_ascii_alphanumeric())
}

fn of_word(word: &[u8]) -> Option<usize> {
    // Most words begin with another letter than all of these.
    if !word.first().is_some_and(|first| b"tvdehu".contains(&first.to_ascii_lowercase())) {
        return None;
    }
    let of = |word: &[u8]| {
        let is_one = |known: &&str| known.as_bytes().eq_ignore_ascii_case(word);
        WORDS.iter().position(|words| words.iter().any(is_one))
    };
    let letters = word.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |last| last + 1);
    of(word).or_else(|| of(&word[..letters]))
}

/// What the split is called that a file's name contains as a word: `train-00000-of-00005.parquet`,
/// `c4-validation.00001.json`; or what others are called.
fn named(name: &[u8]) -> &'static str {
    words(base_of(name)).find_map(of_word).map_or(OTHERS, |split| WORDS[split][0])
}

/// Whether a table has more than a word for a split in its names: for tests.
#[cfg(test)]
fn splits_of(names: &[&str]) -> Option<BTreeMap<String, u64>> {
    let mut files = crate::dataset::FileTable::new();
    files.push_root("/data");
    let ids: Vec<FileId> = names.iter().map(|name| files.push(name.as_bytes(), 1).expect("room")).collect();
    let found = FoundFiles { files, ..FoundFiles::default() };
    Splits::find(&found, &ids, true).map(|splits| splits.counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::names::drawn_names;

    #[test]
    fn a_word_is_a_split_whatever_is_around_it() {
        let parts: Vec<&str> =
            WORDS.iter().flat_map(|words| words.iter().copied()).chain(["data", "2017", "v"]).collect();
        for name in drawn_names(3, &parts) {
            let lower = String::from_utf8_lossy(base_of(&name)).to_ascii_lowercase();
            let split = |word: &str| {
                let of = |word: &str| WORDS.iter().find(|words| words.contains(&word)).map(|words| words[0]);
                of(word).or_else(|| of(word.trim_end_matches(|letter: char| letter.is_ascii_digit())))
            };
            let wanted = lower.split(|letter: char| !letter.is_ascii_alphanumeric()).find_map(split);
            assert_eq!(named(&name), wanted.unwrap_or(OTHERS), "{name:?}");
            for depth in 0..3 {
                let parts: Vec<&[u8]> = name.split(|&byte| byte == b'/').collect();
                let folder = parts.get(depth).copied().filter(|_| depth + 1 < parts.len());
                assert_eq!(folder_at(&name, depth), folder, "{name:?} {depth}");
            }
        }
    }

    #[test]
    fn folders_and_names_are_splits_where_they_are_words_for_them() {
        let of = |names: &[&str]| {
            let found = splits_of(names)?;
            Some(found.into_iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", "))
        };
        for (names, wanted) in [
            (&["train/a", "train/b", "val/c"][..], "train 2, val 1"),
            (&["data/Train/a", "data/Test/c", "data/extra/d"], "Test 1, Train 1, extra 1"),
            (&["train2017/1.jpg", "val2017/2.jpg"], "train2017 1, val2017 1"),
            (&["data/train-0.parquet", "data/validation-0.parquet"], "train 1, validation 1"),
            (&["a.jsonl", "a_test.jsonl"], "other 1, test 1"),
            (&["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"], "other 2, test 1"),
            (&["t10k-images-idx3-ubyte", "train-images-idx3-ubyte"], "test 1, train 1"),
        ] {
            assert_eq!(of(names).as_deref(), Some(wanted), "{names:?}");
        }
        for names in [
            &["train/a", "train/b"][..],
            &["train/a", "car/b", "bus/c", "test/d", "boat/e"],
            &["train-0.parquet", "train-1.parquet"],
            &["trainer-0.parquet", "contest.parquet"],
            &["year=2024/part-0.parquet", "year=2025/part-0.parquet"],
        ] {
            assert_eq!(of(names), None, "{names:?}");
        }
    }
}

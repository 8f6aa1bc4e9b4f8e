//! Whether the checksums and hashes that formats store beside their data match.

#[cfg(feature = "hashes")]
mod hashes;

use crate::dataset::{Check, Dataset, FileId, FileTable};
use crate::find::paths::thread_count;
use crate::index::headers::Source;
use crate::parallel::in_parallel;
use std::cell::Cell;
use std::path::PathBuf;
use uringload_core::{Error, Result};

/// The outcome of a check.
#[derive(Debug)]
enum Outcome {
    Right,
    Wrong(Error),
    /// The algorithm is not supported.
    Unknown,
}

/// The results of checking some files.
#[derive(Debug, Default)]
pub struct Checked {
    /// Number of checks done.
    pub done: u64,
    /// Bytes read for them.
    pub bytes: u64,
    /// The failures, in file order.
    pub wrong: Vec<Error>,
    /// Unsupported algorithms: the name, how often it occurs, and the first file with it.
    pub unknown: Vec<(String, u64, PathBuf)>,
    /// Whether checking was stopped early.
    pub is_cut: bool,
}

/// Runs the checks that a dataset declares for all its files, several files in parallel. `passed` is called, on any
/// thread, with the number of bytes that were read or need no reading; if it returns false, checking stops.
pub fn check_all(dataset: &dyn Dataset, passed: &(dyn Fn(u64) -> bool + Sync)) -> Checked {
    let (files, threads) = (dataset.files().len(), thread_count(0));
    // A few large files are handed out one by one; millions of small ones in groups, to bound the number of results.
    let step = (files / (threads * SHARES)).clamp(1, FILES_AT_ONCE);
    let starts: Vec<usize> = (0..files).step_by(step).collect();
    let of_some = |&start: &usize| {
        let mut checked = Checked::default();
        // Fits: a table has fewer than 2^32 files.
        (start..files.min(start + step)).for_each(|file| checked.file(dataset, FileId(file as u32), passed));
        checked
    };
    in_parallel(&starts, threads, of_some).into_iter().fold(Checked::default(), Checked::and)
}

/// Groups per thread, if there are many files.
const SHARES: usize = 64;
/// Most files in a group.
const FILES_AT_ONCE: usize = 4096;

impl Checked {
    /// Runs the checks of a file. Bytes that several checks cover are read once.
    fn file(&mut self, dataset: &dyn Dataset, file: FileId, passed: &dyn Fn(u64) -> bool) {
        if self.is_cut {
            return;
        }
        let (files, mut checks) = (dataset.files(), Vec::new());
        if let Err(error) = dataset.checks(file, &mut checks) {
            self.wrong.push(error);
        }
        let read = Cell::new(0);
        let counted = |bytes: u64| {
            read.set(read.get() + bytes);
            passed(bytes)
        };
        for group in checks.chunk_by(|a, b| a.span == b.span) {
            match Source::open(files, file).and_then(|source| run(&source, group, &counted)) {
                Ok(Some(outcomes)) => {
                    group.iter().zip(outcomes).for_each(|(check, outcome)| self.add(check, outcome, files));
                }
                Ok(None) => self.is_cut = true,
                Err(error) => self.wrong.push(error),
            }
        }
        self.bytes += read.get();
        self.is_cut |= !passed(files.size(file).saturating_sub(read.get()));
    }

    fn add(&mut self, check: &Check, outcome: Outcome, files: &FileTable) {
        self.done += u64::from(!matches!(outcome, Outcome::Unknown));
        match outcome {
            Outcome::Right => {}
            Outcome::Wrong(error) => self.wrong.push(error),
            Outcome::Unknown => self.add_unknown(check.algorithm.to_string(), 1, files.path(check.span.file)),
        }
    }

    fn add_unknown(&mut self, algorithm: String, count: u64, path: PathBuf) {
        match self.unknown.iter_mut().find(|known| known.0 == algorithm) {
            Some(known) => known.1 += count,
            None => self.unknown.push((algorithm, count, path)),
        }
    }

    fn and(mut self, other: Checked) -> Checked {
        self.done += other.done;
        self.bytes += other.bytes;
        self.wrong.extend(other.wrong);
        other.unknown.into_iter().for_each(|(algorithm, count, path)| self.add_unknown(algorithm, count, path));
        self.is_cut |= other.is_cut;
        self
    }
}

/// Runs checks of the same bytes; `None` if `passed` stopped it.
fn run(source: &Source, checks: &[Check], passed: &dyn Fn(u64) -> bool) -> Result<Option<Vec<Outcome>>> {
    let Some(Check { span, what, .. }) = checks.first() else { return Ok(Some(Vec::new())) };
    let mut hashers: Vec<Option<Box<dyn Hasher>>> = checks.iter().map(|check| hasher(&check.algorithm)).collect();
    if hashers.iter().any(Option::is_some) {
        let end = span.offset.checked_add(span.len).ok_or_else(|| source.truncated(what))?;
        let is_whole = source.pass(span.offset..end, what, |bytes| {
            hashers.iter_mut().flatten().for_each(|hasher| hasher.update(bytes));
            passed(bytes.len() as u64)
        })?;
        if !is_whole {
            return Ok(None);
        }
    }
    let outcome = |(check, hasher): (&Check, Option<Box<dyn Hasher>>)| match hasher.map(Hasher::finish) {
        None => Outcome::Unknown,
        Some(found) if found.eq_ignore_ascii_case(&check.expected) => Outcome::Right,
        Some(found) => {
            let Check { algorithm, what, expected, .. } = check;
            let what = format!("the {algorithm} of {what} is {found}, and should be {expected:?}");
            Outcome::Wrong(source.corrupt(span.offset, what).with_remedy("fetch or write the file again"))
        }
    };
    Ok(Some(checks.iter().zip(hashers).map(outcome).collect()))
}

/// Runs checks of a whole file at once.
///
/// # Errors
/// That of the first check that fails; `Unavailable` for an unsupported algorithm.
pub(crate) fn require(source: &Source, checks: &[Check]) -> Result<()> {
    let outcomes = run(source, checks, &|_| true)?.unwrap_or_default();
    checks.iter().zip(outcomes).try_for_each(|(check, outcome)| match outcome {
        Outcome::Right => Ok(()),
        Outcome::Wrong(error) => Err(error),
        Outcome::Unknown => {
            let what = format!("the {} of {} cannot be computed here", check.algorithm, check.what);
            Err(source.unavailable(check.span.offset, what).with_remedy(UNKNOWN_REMEDY))
        }
    })
}

#[cfg(feature = "hashes")]
const UNKNOWN_REMEDY: &str = "write the dataset with another hash, or do not ask for hashes";
#[cfg(not(feature = "hashes"))]
const UNKNOWN_REMEDY: &str = "build with the feature `hashes`, or do not ask for hashes";

/// An incremental checksum or hash.
trait Hasher {
    fn update(&mut self, bytes: &[u8]);

    /// In hexadecimal digits.
    fn finish(self: Box<Self>) -> String;
}

fn hasher(algorithm: &str) -> Option<Box<dyn Hasher>> {
    match algorithm {
        "crc32" => Some(Box::new(Crc32(flate2::Crc::new()))),
        "crc32c" => Some(Box::new(Crc32c(0))),
        #[cfg(feature = "hashes")]
        other => hashes::hasher(other),
        #[cfg(not(feature = "hashes"))]
        _ => None,
    }
}

/// The CRC of zip and gzip.
struct Crc32(flate2::Crc);

impl Hasher for Crc32 {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self: Box<Self>) -> String {
        format!("{:08x}", self.0.sum())
    }
}

/// Castagnoli's CRC.
struct Crc32c(u32);

impl Hasher for Crc32c {
    fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    fn finish(self: Box<Self>) -> String {
        format!("{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of the bytes 0 to 255, three times over, fed in pieces.
    pub(crate) fn of_bytes(algorithm: &str) -> Option<String> {
        let bytes: Vec<u8> = (0..3).flat_map(|_| 0..=255).collect();
        let mut hasher = hasher(algorithm)?;
        bytes.chunks(100).for_each(|piece| hasher.update(piece));
        Some(hasher.finish())
    }

    #[test]
    fn sums_are_those_of_zlib_and_of_castagnoli() {
        let sum = |algorithm, bytes: &[u8]| {
            let mut hasher = hasher(algorithm).unwrap();
            bytes.chunks(4).for_each(|piece| hasher.update(piece));
            hasher.finish()
        };
        // The check values of the CRC catalogue.
        assert_eq!((sum("crc32", b"123456789"), sum("crc32c", b"123456789")), ("cbf43926".into(), "e3069283".into()));
        assert!(hasher("crc64").is_none() && hasher("").is_none() && hasher("SHA1").is_none());
    }
}

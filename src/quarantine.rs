//! The list of samples that could not be read: written while a loader runs ([`Builder::quarantine`](crate::Builder)),
//! and read back to exclude them.
//!
//! The format is JSON Lines. A line has these fields:
//!
//! - `dataset`, `id`: the dataset's fingerprint (hexadecimal), and the sample's number there;
//! - `key`: the dataset's name for it;
//! - `file`, `offset`, `length`: the part of the sample that could not be read, in bytes;
//! - `kind`, `reason`: the error's [`ErrorKind`] by its name here, and the error in one line;
//! - `error`: the parts of the error: `kind`, `what`, `file`, `offset`, `cause` and `remedy`;
//! - `epoch`, `position`: where the loader that wrote the line first came across it;
//! - `replaced_by`: number of the sample that took its place, if one did (in the dataset `replaced_by_dataset`, where
//!   that is another one);
//! - `key_hex`, `file_hex`: all bytes of a name that is not Unicode, which `key` and `file` then cannot hold.

use crate::batch::FailedSample;
use crate::dataset::inspect::open_regular;
use crate::dataset::{Dataset, SampleId, Span};
use crate::guard;
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many other datasets to name when a list has no line for the requested one.
const NAMED_DATASETS: usize = 3;

/// A list that is being written. Several processes may write to the same one.
#[derive(Debug)]
pub(crate) struct Quarantine {
    file: File,
    path: PathBuf,
    /// Samples written by this instance.
    written: HashSet<SampleId>,
    /// Whether the last write ended in the middle of a line.
    torn: bool,
    /// Whether a write failure was already reported.
    told: bool,
}

impl Quarantine {
    /// Opens the file for appending, creating it if necessary.
    ///
    /// # Errors
    /// Why the file cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Quarantine> {
        let file = uringload_sys::file::append(path).map_err(|source| {
            Error::io("cannot open the quarantine file", source)
                .with_path(path)
                .with_remedy("name a file in a folder that this process may write to")
        })?;
        Ok(Quarantine { file, path: path.to_owned(), written: HashSet::new(), torn: false, told: false })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line for a failed sample of `dataset`, unless this sample already has one. A line is one `write(2)` to
    /// the end of the file, so that the lines of several writers do not mix.
    ///
    /// # Errors
    /// The system's error (such as a full disk), once: later failures are not news. The sample is tried again when it
    /// fails again.
    pub fn add(&mut self, dataset: &dyn Dataset, epoch: u64, failed: &FailedSample) -> Result<()> {
        if self.written.contains(&failed.id) {
            return Ok(());
        }
        let written = serde_json::to_vec(&Line::new(dataset, epoch, failed)).map_err(io::Error::from);
        match written.and_then(|line| self.write(line)) {
            Ok(()) => {
                self.written.insert(failed.id);
                Ok(())
            }
            Err(_) if self.told => Ok(()),
            Err(source) => {
                self.told = true;
                Err(Error::io("cannot write: the quarantine file lacks samples from here on", source)
                    .with_path(&self.path)
                    .with_remedy("make room on its disk; samples that fail again are tried again"))
            }
        }
    }

    fn write(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        if self.torn {
            // The partial line must not spoil this one too.
            line.insert(0, b'\n');
        }
        line.push(b'\n');
        loop {
            match self.file.write(&line) {
                Ok(bytes) if bytes == line.len() => {
                    self.torn = false;
                    return Ok(());
                }
                Ok(bytes) => {
                    self.torn |= bytes > 0;
                    return Err(io::ErrorKind::WriteZero.into());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The line of a sample.
#[derive(Serialize)]
struct Line<'a> {
    dataset: String,
    id: u64,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_hex: Option<String>,
    offset: u64,
    length: u64,
    kind: String,
    reason: String,
    error: &'a Error,
    epoch: u64,
    position: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by_dataset: Option<String>,
}

impl Line<'_> {
    fn new<'a>(dataset: &dyn Dataset, epoch: u64, failed: &'a FailedSample) -> Line<'a> {
        let FailedSample { id, position, error, replaced_by } = failed;
        let origin = |id| guard::named(dataset, "origin", || dataset.origin(id));
        let (origin, replacement) = (origin(*id), replaced_by.map(origin));
        let mut key = Vec::new();
        guard::named(dataset, "key", || dataset.key(*id, &mut key));
        let (key, key_hex) = text(&key);
        let span = failing_span(dataset, *id, error);
        let path = span.map(|span| dataset.files().path(span.file)).or_else(|| error.path().map(Path::to_owned));
        let (file, file_hex) = text(path.unwrap_or_default().as_os_str().as_bytes());
        let other_dataset = replacement.filter(|replacement| replacement.fingerprint != origin.fingerprint);
        Line {
            dataset: fingerprint(origin.fingerprint),
            id: origin.id.0,
            key,
            key_hex,
            file,
            file_hex,
            offset: span.map_or(0, |span| span.offset),
            length: span.map_or(0, |span| span.len),
            kind: format!("{:?}", error.kind()),
            reason: error.headline().to_string(),
            error,
            epoch,
            position: *position,
            replaced_by: replacement.map(|replacement| replacement.id.0),
            replaced_by_dataset: other_dataset.map(|replacement| fingerprint(replacement.fingerprint)),
        }
    }
}

/// The span of a sample that its error is about, or else its first span.
fn failing_span(dataset: &dyn Dataset, id: SampleId, error: &Error) -> Option<Span> {
    let mut spans = Vec::new();
    guard::spans(dataset, id, u64::MAX, &mut spans).ok()?;
    let (file, offset) = (error.path()?, error.offset().unwrap_or(0));
    let is_hit = |span: &&Span| offset < span.offset + span.len && dataset.files().path(span.file) == file;
    spans.iter().find(is_hit).or(spans.first()).copied()
}

/// A name as text and, if text cannot hold all of its bytes, also in hexadecimal.
fn text(name: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(name) {
        Ok(name) => (name.to_owned(), None),
        Err(_) => {
            let hex = name.iter().map(|byte| format!("{byte:02x}")).collect();
            (String::from_utf8_lossy(name).into_owned(), Some(hex))
        }
    }
}

fn fingerprint(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}

/// The fields that are read back. The others are for people.
#[derive(Deserialize)]
struct Read {
    dataset: String,
    id: u64,
}

/// Reads a list of samples: those on lines that belong to `dataset` (by fingerprint), sorted and without duplicates. A
/// plain list works too and belongs to any dataset: one number per line, ignoring blank lines and anything after a `#`.
///
/// # Errors
/// The system's error if the file cannot be read. `Corrupt` for a line that is neither JSON nor a number, or that was
/// cut off. `InvalidArgument` for a sample that `dataset` does not have, and if there are lines but none for `dataset`.
/// All name the file, the line and its offset.
pub fn read(path: &Path, dataset: &dyn Dataset) -> Result<Vec<SampleId>> {
    let cannot = |source| Error::io("cannot read the list of samples", source).with_path(path);
    let mut list = BufReader::new(open_regular(path, "cannot read the list of samples")?);
    let own = fingerprint(dataset.fingerprint());
    let (mut ids, mut others) = (BTreeSet::new(), BTreeSet::new());
    let (mut line, mut number, mut offset) = (Vec::new(), 0_u64, 0);
    loop {
        line.clear();
        let bytes = list.read_until(b'\n', &mut line).map_err(cannot)?;
        if bytes == 0 {
            break;
        }
        number += 1;
        let at = |error: Error| error.with_path(path).with_offset(offset);
        match read_line(&line).map_err(|why| at(unreadable(number, &why, &line)))? {
            None => {}
            Some((Some(other), _)) if other != own => drop(others.insert(other)),
            Some((_, id)) if id < dataset.len() => drop(ids.insert(SampleId(id))),
            Some((_, id)) => {
                let what = format!("line {number} names sample {id}, and the dataset has {} samples", dataset.len());
                let error = Error::new(ErrorKind::InvalidArgument, what);
                return Err(at(error.with_remedy(
                    "check that the list belongs to this dataset, and that the dataset has not changed",
                )));
            }
        }
        offset += bytes as u64;
    }
    if ids.is_empty() && !others.is_empty() {
        let named: Vec<&str> = others.iter().take(NAMED_DATASETS).map(String::as_str).collect();
        let more = if others.len() > NAMED_DATASETS { " and others" } else { "" };
        let what = format!("no line is of dataset {own}; the lines are of {}{more}", named.join(", "));
        return Err(Error::new(ErrorKind::InvalidArgument, what)
            .with_path(path)
            .with_remedy("open the dataset as it was when the list was written, with the same options"));
    }
    Ok(ids.into_iter().collect())
}

/// The samples that any of these lists names, ascending, each once, as numbers: [`View`](crate::dataset::View) takes
/// these.
///
/// # Errors
/// As [`read`].
pub fn read_all<P: AsRef<Path>>(lists: &[P], dataset: &dyn Dataset) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    for list in lists {
        ids.extend(read(list.as_ref(), dataset)?.into_iter().map(|id| id.0));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The dataset, if the line names one, and the sample. `None` for a line without a sample.
fn read_line(line: &[u8]) -> Result<Option<(Option<String>, u64)>, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?.trim();
    if text.starts_with('{') {
        let Read { dataset, id } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        return Ok(Some((Some(dataset), id)));
    }
    let text = text.split('#').next().unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(|id| Some((None, id))).map_err(|_| "it is neither JSON nor a number".into())
}

fn unreadable(number: u64, why: &str, line: &[u8]) -> Error {
    if line.ends_with(b"\n") {
        let error = Error::new(ErrorKind::Corrupt, format!("line {number} names no sample ({why})"));
        error.with_remedy("correct or remove the line")
    } else {
        let error = Error::new(ErrorKind::Corrupt, format!("line {number}, the last, was cut off ({why})"));
        error.with_remedy("remove the line")
    }
}

#[cfg(test)]
mod tests;

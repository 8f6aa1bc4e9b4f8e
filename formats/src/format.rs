//! A format: how its files show it, its options, and how it is opened.

use crate::dataset::{Dataset, FileId, SkipReason};
use crate::find::names::has_extension;
use crate::find::paths::{FoundFiles, index, thread_count};
use crate::options::{OptionSpec, Options};
use crate::place::Place;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// A format: how its files show it, what may be asked of it, and how it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Short name: "tar".
    pub name: &'static str,
    /// What makes a sample, in a sentence.
    pub help: &'static str,
    /// What may be asked of it.
    pub options: &'static [OptionSpec],
    /// Whether it keeps indexes beside its files, which `uringload index` makes ahead of time.
    pub has_sidecars: bool,
    pub(crate) shows: Shows,
    pub(crate) open: Open,
}

/// Opens paths as one dataset.
type Open = fn(Paths, &Options) -> Result<Arc<dyn Dataset>>;

/// The places that a user names, and the formats that their files may be of. The files below them are listed once,
/// whether detection or the format needs them first: that is a system call for each file.
pub(crate) struct Paths {
    named: Vec<Place>,
    found: Option<FoundFiles>,
    formats: &'static [Format],
}

impl Paths {
    pub(crate) fn new(named: Vec<Place>, formats: &'static [Format]) -> Paths {
        Paths { named, found: None, formats }
    }

    /// Every format, in the order in which files are held against them.
    pub(crate) fn formats(&self) -> &'static [Format] {
        self.formats
    }

    /// The error, with the first of the paths.
    #[allow(dead_code, reason = "what is built in is not refused")]
    pub(crate) fn at_first(&self, error: Error) -> Error {
        let Some(place) = self.named.first() else { return error };
        error.with_path(place)
    }

    /// The files below the paths.
    pub(crate) fn files(&mut self, threads: usize) -> Result<FoundFiles> {
        match self.found.take() {
            Some(found) => Ok(found),
            None => index(&self.named, thread_count(threads)),
        }
    }

    /// The files below the paths that have one of these extensions, the usual one first. Others are counted as of
    /// another format. If a file was named by itself, all files are taken.
    pub(crate) fn find(&mut self, extensions: &[&str], threads: usize) -> Result<FoundFiles> {
        let found = self.files(threads)?;
        if found.has_single_files {
            return Ok(found);
        }
        let place = found.files.place().to_path_buf();
        let fits = |name: &[u8]| extensions.iter().any(|extension| has_extension(name, extension));
        let found = found.retain(fits, |_| true);
        if found.files.is_empty() {
            let kind = self.named.first().map_or("folder", Place::kind);
            let error = Error::new(ErrorKind::Empty, format!("the {kind} has no .{} file", extensions[0]));
            let left_out = found.skips.describe();
            return Err(error.with_path(place).with_remedy(format!("name the files themselves; left out: {left_out}")));
        }
        Ok(found)
    }

    pub(crate) fn list(&mut self, threads: usize) -> Result<&FoundFiles> {
        let found = self.files(threads)?;
        Ok(self.found.insert(found))
    }

    /// Keeps the files that were listed and for which `keep` is true. The others are counted for the reason given, if
    /// one is.
    pub(crate) fn keep(&mut self, keep: &[bool], reason: impl Fn(FileId) -> Option<SkipReason>) {
        if keep.iter().all(|&keep| keep) {
            return;
        }
        self.found = self.found.take().map(|found| found.keep(keep, reason));
    }

    /// The same with other names for the paths. What was listed is forgotten if any differs.
    pub(crate) fn rename(&mut self, named: Vec<Place>) {
        if named != self.named {
            *self = Paths { named, found: None, ..*self };
        }
    }
}

impl std::ops::Deref for Paths {
    type Target = [Place];

    fn deref(&self) -> &[Place] {
        &self.named
    }
}

/// How files show their format.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shows {
    /// By each place that is named.
    Path(fn(&Place, &Options) -> bool),
    /// By the names of files below the paths, with or without folders in front, and by the first bytes of a few of
    /// them.
    Names { called: fn(&[u8]) -> bool, begins: fn(&Place) -> bool },
    /// Not at all: any file can be read so.
    Any,
}

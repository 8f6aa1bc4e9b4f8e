//! Counts what an index leaves out: nothing is skipped silently.

use std::path::{Path, PathBuf};

/// Why names were left out of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// The name begins with a dot.
    Hidden,
    /// A symbolic link whose target does not exist.
    DanglingLink,
    /// A symbolic link that leads back to a folder it lies in, or to itself.
    LinkLoop,
    /// A FIFO, socket or device.
    Special,
    /// A name that was gone when its size was requested: the folder changes while it is read.
    Vanished,
    /// Bytes at the end of a file that do not make up a whole record.
    IncompleteRecord,
    /// A file without an extension of the format.
    OtherFormat,
    /// Tokens at the end of a file or document that do not make up a whole window.
    IncompleteWindow,
    /// A file that is not a shard by its name.
    NoShard,
    /// A member of an archive that is not a regular file: a folder, a link, a device.
    NoRegularMember,
    /// A member of an archive whose name has no dot to start a field, or begins with one.
    NoField,
    /// A member of an archive whose name begins with `__anything__`.
    Metadata,
    /// Data after the end of an archive that is not another archive.
    TrailingBytes,
    /// The end of an archive is missing: the file may have been cut short between two members.
    MissingEnd,
    /// The part of a shard after damage.
    DamagedShard,
    /// An empty line, in a format where that is not a sample.
    EmptyLine,
    /// A dataset of an HDF5 file with another number of rows than the columns.
    OtherDataset,
}

impl SkipReason {
    /// What was left out, in words: "hidden names", "dangling links".
    pub fn describe(self) -> &'static str {
        match self {
            SkipReason::Hidden => "hidden names",
            SkipReason::DanglingLink => "dangling links",
            SkipReason::LinkLoop => "links in a loop",
            SkipReason::Special => "FIFOs, sockets or devices",
            SkipReason::Vanished => "names that vanished",
            SkipReason::IncompleteRecord => "incomplete last records",
            SkipReason::OtherFormat => "files of other formats",
            SkipReason::IncompleteWindow => "incomplete last windows",
            SkipReason::NoShard => "files that are no shards",
            SkipReason::NoRegularMember => "members that are no regular files",
            SkipReason::NoField => "members without a field in their name",
            SkipReason::Metadata => "members of metadata",
            SkipReason::TrailingBytes => "bytes behind the end of an archive",
            SkipReason::MissingEnd => "ends of archives that are not there (cut short?)",
            SkipReason::DamagedShard => "rests of damaged shards",
            SkipReason::EmptyLine => "empty lines",
            SkipReason::OtherDataset => "datasets with another number of rows",
        }
    }

    /// The code for it in files; codes are never reused.
    pub(super) fn code(self) -> u8 {
        match self {
            SkipReason::Hidden => 1,
            SkipReason::DanglingLink => 2,
            SkipReason::LinkLoop => 3,
            SkipReason::Special => 4,
            SkipReason::Vanished => 5,
            SkipReason::IncompleteRecord => 6,
            SkipReason::NoShard => 7,
            SkipReason::NoRegularMember => 8,
            SkipReason::NoField => 9,
            SkipReason::Metadata => 10,
            SkipReason::TrailingBytes => 11,
            SkipReason::MissingEnd => 12,
            SkipReason::DamagedShard => 13,
            SkipReason::OtherFormat => 14,
            SkipReason::IncompleteWindow => 15,
            SkipReason::EmptyLine => 20,
            SkipReason::OtherDataset => 32,
        }
    }

    /// The reason with this [`code`](SkipReason::code), if it is one that occurs within a shard.
    pub(super) fn of_code(code: u8) -> Option<SkipReason> {
        let in_shards = [
            SkipReason::NoRegularMember,
            SkipReason::NoField,
            SkipReason::Metadata,
            SkipReason::TrailingBytes,
            SkipReason::MissingEnd,
            SkipReason::EmptyLine,
        ];
        in_shards.into_iter().find(|reason| reason.code() == code)
    }
}

/// Names that were left out of an index for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The reason.
    pub reason: SkipReason,
    /// Number of names.
    pub count: u64,
    /// The first of them, by bytes.
    pub first: PathBuf,
}

/// A count for each reason, in the order of [`SkipReason`].
#[derive(Debug, Default)]
pub(super) struct Skips(Vec<Skipped>);

impl Skips {
    /// Counts `path`.
    pub(super) fn add(&mut self, reason: SkipReason, path: &Path) {
        self.merge(reason, 1, path);
    }

    /// Counts `count` things at once; `path` is the first of them.
    pub(super) fn add_many(&mut self, reason: SkipReason, count: u64, path: &Path) {
        self.merge(reason, count, path);
    }

    /// Adds the counts of another thread.
    pub(super) fn append(&mut self, other: Skips) {
        for skipped in other.0 {
            self.merge(skipped.reason, skipped.count, &skipped.first);
        }
    }

    /// The counts.
    pub(super) fn into_vec(self) -> Vec<Skipped> {
        self.0
    }

    /// "3 hidden names, 1 dangling links", or an empty string: for messages.
    pub(super) fn describe(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|s| format!("{} {}", s.count, s.reason.describe())).collect();
        parts.join(", ")
    }

    fn merge(&mut self, reason: SkipReason, count: u64, path: &Path) {
        match self.0.binary_search_by_key(&reason, |skipped| skipped.reason) {
            Ok(index) => {
                let skipped = &mut self.0[index];
                skipped.count += count;
                // The smallest name, not the first one seen, so that the report does not depend on threads. Compared as
                // bytes, to avoid a `PathBuf` for every hidden name.
                if path.as_os_str() < skipped.first.as_os_str() {
                    skipped.first = path.to_path_buf();
                }
            }
            Err(index) => self.0.insert(index, Skipped { reason, count, first: path.to_path_buf() }),
        }
    }
}

//! Counts what an index leaves out: nothing is skipped silently.

use std::path::{Path, PathBuf};

/// Why names were left out of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// The name begins with a dot.
    Hidden,
    /// A symbolic link whose target does not exist.
    DanglingLink,
    /// A symbolic link that leads back to a folder that contains it, or to itself.
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
    /// A file that people or programs put beside data: a README, a checksum, a table of labels.
    Companion,
    /// A file of another split than the one that was asked for.
    OtherSplit,
    /// A dataset of an HDF5 file whose elements no column can hold, or that is in other files.
    UnreadableDataset,
    /// A column of a type that cannot be read. The path is that of its file, with its name.
    #[cfg(feature = "parquet")]
    ColumnType,
    /// A column that the first file does not have, likewise.
    #[cfg(feature = "parquet")]
    OtherColumn,
    /// A column with the paths of files whose bytes are in the column before it, likewise.
    #[cfg(feature = "parquet")]
    FilePath,
}

impl SkipReason {
    /// Its number in files, never given to another; and its description in words.
    const fn facts(self) -> (u8, &'static str) {
        match self {
            SkipReason::Hidden => (1, "hidden names"),
            SkipReason::DanglingLink => (2, "dangling links"),
            SkipReason::LinkLoop => (3, "links in a loop"),
            SkipReason::Special => (4, "FIFOs, sockets or devices"),
            SkipReason::Vanished => (5, "names that vanished"),
            SkipReason::IncompleteRecord => (6, "incomplete last records"),
            SkipReason::OtherFormat => (14, "files of other formats"),
            SkipReason::IncompleteWindow => (15, "incomplete last windows"),
            SkipReason::NoShard => (7, "files that are no shards"),
            SkipReason::NoRegularMember => (8, "members that are no regular files"),
            SkipReason::NoField => (9, "members without a field in their name"),
            SkipReason::Metadata => (10, "members of metadata"),
            SkipReason::TrailingBytes => (11, "bytes after the end of an archive"),
            SkipReason::MissingEnd => (12, "ends of archives that are not there (cut short?)"),
            SkipReason::DamagedShard => (13, "rests of damaged shards"),
            SkipReason::EmptyLine => (20, "empty lines"),
            SkipReason::OtherDataset => (32, "datasets with another number of rows"),
            SkipReason::Companion => (33, "companions of the data"),
            SkipReason::OtherSplit => (34, "files of other splits"),
            SkipReason::UnreadableDataset => (35, "datasets that cannot be read"),
            #[cfg(feature = "parquet")]
            SkipReason::ColumnType => (40, "columns of types that cannot be read"),
            #[cfg(feature = "parquet")]
            SkipReason::OtherColumn => (41, "columns that the first file does not have"),
            #[cfg(feature = "parquet")]
            SkipReason::FilePath => (42, "columns of paths beside the bytes of their files"),
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        self.facts().1
    }

    /// The code for it in files; codes are never reused.
    pub(crate) fn code(self) -> u8 {
        self.facts().0
    }

    /// The reason with this [`code`](SkipReason::code), if it is one that occurs within a shard.
    pub(crate) fn of_code(code: u8) -> Option<SkipReason> {
        use SkipReason::{EmptyLine, Metadata, MissingEnd, NoField, NoRegularMember, TrailingBytes};
        let in_shards = [NoRegularMember, NoField, Metadata, TrailingBytes, MissingEnd, EmptyLine];
        in_shards.into_iter().find(|reason| reason.code() == code)
    }
}

/// What was left out of a dataset's index for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// What was left out, in words: "hidden names", "dangling links".
    pub what: &'static str,
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: PathBuf,
}

/// A count and the first name, by bytes, for each reason, in the order of [`SkipReason`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Skips(Vec<(SkipReason, u64, PathBuf)>);

impl Skips {
    /// Counts `path`.
    pub(crate) fn add(&mut self, reason: SkipReason, path: &Path) {
        self.add_many(reason, 1, path);
    }

    /// Adds the counts of another thread.
    pub(crate) fn append(&mut self, other: Skips) {
        for (reason, count, first) in other.0 {
            self.add_many(reason, count, &first);
        }
    }

    /// The counts.
    pub(crate) fn into_vec(self) -> Vec<Skipped> {
        let skipped = |(reason, count, first): (SkipReason, _, _)| Skipped { what: reason.describe(), count, first };
        self.0.into_iter().map(skipped).collect()
    }

    /// "3 hidden names, 1 dangling links", or an empty string: for messages.
    pub(crate) fn describe(&self) -> String {
        let parts: Vec<String> =
            self.0.iter().map(|(reason, count, _)| format!("{count} {}", reason.describe())).collect();
        parts.join(", ")
    }

    /// Counts `count` things at once, `path` being the first of them.
    pub(crate) fn add_many(&mut self, reason: SkipReason, count: u64, path: &Path) {
        match self.0.binary_search_by_key(&reason, |skipped| skipped.0) {
            Ok(index) => {
                let (_, sum, first) = &mut self.0[index];
                *sum += count;
                // The smallest name, not the first one seen, so that the report does not depend on threads. Compared as
                // bytes, to avoid a `PathBuf` for every hidden name.
                if path.as_os_str() < first.as_os_str() {
                    *first = path.to_path_buf();
                }
            }
            Err(index) => self.0.insert(index, (reason, count, path.to_path_buf())),
        }
    }
}

//! What every dataset knows about itself, whatever its format: plain data, made once when it is opened.

use super::files::FileTable;
use super::report::IndexReport;
use super::sample::{FileId, SampleId, Schema, locate};
use super::skipped::Skipped;
use std::ffi::OsString;
use std::sync::Arc;
use uringload_core::{Error, Fallback};

/// What every dataset knows about itself.
///
/// A format makes it when it opens its files, with [`Index::new`], and then sets the fields whose defaults do not fit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Index {
    /// Short name of the format: "folder", "tar".
    pub format: &'static str,
    /// The files that spans refer to.
    pub files: Arc<FileTable>,
    /// The columns.
    pub schema: Schema,
    /// Number of samples.
    pub samples: u64,
    /// Bytes of all samples. For samples that are cut from units, an estimate by the index.
    pub bytes: u64,
    /// Where each shard ends, in samples, ascending; the last ends at `samples`. A shuffle of shards permutes these.
    /// Empty if samples are not stored in shards.
    pub shards: Vec<u64>,
    /// The field whose value is exactly the sample's spans, end to end, while all other fields come from the index. A
    /// part of such a sample can be read without the rest: `parse` then gets that part and makes it the value.
    pub plain_field: Option<usize>,
    /// Whether `parse` looks at the bytes of samples. If it does not, each value is a slice of what was read or a
    /// number from the index, so the bytes may be where only a device can see them.
    pub parse_reads_bytes: bool,
    /// Whether each value is a slice of what was read for its batch, or memory of its own: then the holder of the batch
    /// may write to it. False if values of several batches may share memory.
    pub owns_values: bool,
    /// How each column is stored, in the order of the schema, or empty.
    pub encodings: Vec<Encoding>,
    /// Names of the classes, if there are labels: a label is a position in this list.
    pub classes: Vec<OsString>,
    /// How many samples lack each field, in the order of the schema. Empty if none lacks any.
    pub lacking: Vec<u64>,
    /// Elements that are in no sample, because they come after the last whole sample of their file or document.
    pub dropped_elements: u64,
    /// What was left out, by reason.
    pub left_out: Vec<Skipped>,
    /// What did not go as asked: indexes that could not be written beside their files, or not be trusted.
    pub fallbacks: Vec<Fallback>,
    /// Why files cannot be read to their end, if damaged files were kept.
    pub damage: Vec<Error>,
    /// Where the indexes of the files came from, for formats whose files are scanned once.
    pub report: Option<IndexReport>,
}

/// How a column is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encoding {
    /// For people, in the words of the format: "int", "jpeg; zstd shards, decoded as a whole".
    pub words: String,
    /// For programs: what the bytes are.
    pub role: Role,
}

/// What the bytes of a value are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Numbers, or bytes of an unknown kind.
    Raw,
    /// Text in UTF-8.
    Text,
    /// Encoded in this way: "jpeg", "png", "pil", "npy".
    Encoded(String),
}

impl Index {
    /// Of a format of that name, with these files, columns and number of samples; the samples have 0 bytes together
    /// until `bytes` is set.
    pub fn new(format: &'static str, mut files: FileTable, schema: Schema, samples: u64) -> Index {
        let mut fallbacks = files.notes();
        fallbacks.extend(files.take_fallback());
        Index {
            format,
            files: Arc::new(files),
            schema,
            samples,
            bytes: 0,
            shards: Vec::new(),
            plain_field: None,
            parse_reads_bytes: true,
            owns_values: true,
            encodings: Vec::new(),
            classes: Vec::new(),
            lacking: Vec::new(),
            dropped_elements: 0,
            left_out: Vec::new(),
            fallbacks,
            damage: Vec::new(),
            report: None,
        }
    }

    /// The file of a sample, if every file is a shard, and its number there.
    pub(crate) fn locate(&self, id: SampleId) -> (FileId, u64) {
        let (file, number) = locate(&self.shards, id.0);
        // Fits: a table has fewer than 2^32 files.
        (FileId(file as u32), number)
    }
}

impl Encoding {
    /// Numbers, or bytes of an unknown kind.
    pub fn raw(words: impl Into<String>) -> Encoding {
        Encoding { words: words.into(), role: Role::Raw }
    }

    /// Text in UTF-8.
    pub fn text(words: impl Into<String>) -> Encoding {
        Encoding { words: words.into(), role: Role::Text }
    }

    /// Bytes that are encoded as `name`.
    pub fn encoded(words: impl Into<String>, name: impl Into<String>) -> Encoding {
        Encoding { words: words.into(), role: Role::Encoded(name.into()) }
    }

    /// What a file extension says: text (also webdataset's `cls` and `transcript`), encoded for images, arrays and the
    /// like, raw for unknown extensions.
    pub fn of_extension(extension: &str) -> Encoding {
        // A field of a tar may have several: `seg.png`.
        let last = extension.rsplit('.').next().unwrap_or(extension);
        let role = match last {
            "txt" | "text" | "transcript" | "json" | "jsn" | "cls" => Role::Text,
            "jpg" | "jpeg" => Role::Encoded("jpeg".into()),
            "png" | "webp" | "gif" | "bmp" | "ppm" | "pgm" | "tiff" | "npy" | "npz" | "pth" | "mp4" | "flac"
            | "wav" | "mp3" | "ogg" | "msgpack" | "cbor" => Role::Encoded(last.into()),
            _ => Role::Raw,
        };
        Encoding { words: extension.into(), role }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_say_what_the_bytes_are() {
        assert_eq!(Encoding::of_extension("cls"), Encoding::text("cls"));
        assert_eq!(Encoding::of_extension("JPG").role, Role::Raw);
        assert_eq!(Encoding::of_extension("seg.png"), Encoding::encoded("seg.png", "png"));
        assert_eq!(Encoding::of_extension("jpg").role, Role::Encoded("jpeg".into()));
        assert_eq!(Encoding::of_extension("bin"), Encoding::raw("bin"));
    }
}

//! Finds the samples of a dataset: which there are, the place of each, and how it is parsed.
//!
//! [`open`] turns paths into a [`Dataset`], in any of 19 formats. A dataset is an [`Index`], which names the byte
//! ranges of every sample, and a parser for the bytes that were read. This crate never reads samples itself; the crate
//! `uringload` does.
//!
//! ```
//! use uringload_formats::{Dataset, Options, SampleId, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("frames.bin"), [7; 48])?;
//!
//! let options = Options::new().format("records").set("record_bytes", 16).set("header_bytes", 16);
//! let dataset = open(&[folder.path()], &options)?;
//! assert_eq!(dataset.len(), 2);
//! let mut spans = Vec::new();
//! for id in 0..dataset.len() {
//!     spans.clear();
//!     dataset.spans(SampleId(id), &mut spans);
//!     for span in &spans {
//!         let path = dataset.files().path(span.file);
//!         println!("sample {id}: {} bytes at {} of {}", span.len, span.offset, path.display());
//!     }
//! }
//! # assert_eq!((spans[0].offset, spans[0].len), (32, 16));
//! # Ok(())
//! # }
//! ```
//!
//! [`Concat`] puts datasets end to end; [`View`] takes some of a dataset's samples. A format of your own implements
//! [`Dataset`]. `docs/formats.md` says what each format takes for a sample.
#![forbid(unsafe_code)]
#![expect(
    clippy::mutable_key_type,
    reason = "a place is compared by its name, and what changes is what is known of its store"
)]

// In floor order: a floor imports only from those above it in this list.
// Gives up where storage does not answer.
mod watched;
// Work on many files by several threads.
mod parallel;
// A place where data is: whether something is there, and what is below it.
mod place;
// The compressions, whatever they are found in.
mod compression;
// What a dataset is: the trait, samples, files, the index that every format fills.
mod dataset;
// From what a user names to a table of files.
mod find;
// What may be asked of formats, each option declared once.
mod options;
// URLs and paths as places.
mod named;
// Looks into files: headers, and the indexes of those that are scanned.
mod index;
// What a store has, as a file that stands for its URL.
mod listings;
// What a format is: how its files show it, and how it is opened.
mod format;
// Which of the formats files are of, and which files are data.
mod detect;
// Datasets made of others, and the layers on top of one.
mod compose;
// One file and folder for each format.
mod formats;
// All of them in a table, and the door to it.
mod registry;

pub use compose::{Concat, KnownColumn, Labels, Ranges, Unlabelled, View, WithColumns};
pub use dataset::sizes::sum_of_largest as largest_of;
pub use dataset::{
    Check, DType, Dataset, Encoding, FarFile, Field, FileId, FileTable, Fingerprint, Index, IndexProgress, IndexReport,
    Origin, Role, SHARD_SAMPLES, Sample, SampleId, Schema, Shape, Skipped, Span, UnitId, Units, Value,
};
pub use listings::{ChangedObjects, ListedObjects, ListingChanges, list_objects, update_listing};
pub use options::{OptionValue, Options};
pub use registry::open;

/// What looks at formats and files themselves, and reads no samples: the table of formats and their options, detection
/// without an index, digests of content, and the parsers that tests compare with other readers.
pub mod inspect {
    /// What the metadata of Arrow and Parquet says, which tests/oracles holds against that of other readers.
    #[cfg(feature = "parquet")]
    pub use crate::{
        formats::arrow::tables as arrow_tables,
        formats::parquet::{metadata as parquet_metadata, types as parquet_types},
    };

    pub use crate::compose::Numbers;
    pub use crate::detect::nearest;
    pub use crate::find::names::{MANIFEST_NAME, split_name, url_scheme};
    pub use crate::format::Format;
    pub use crate::formats::arrays::npy::array_of as npy_array_of;
    pub use crate::formats::mds::array_shape;
    pub use crate::index::changes::names;
    pub use crate::index::checks::{Checked, check_all};
    pub use crate::index::content::{
        CONTENT_FILES_MAX, CONTENT_GROUPS, content_files, content_group, content_of_file, content_of_group,
    };
    pub use crate::index::opened::open_regular;
    pub use crate::index::sidecar::{COLUMNS_MAX, KEY_BYTES_MAX};
    pub use crate::named::{store_at, store_options};
    pub use crate::options::{OptionKind, OptionSpec};
    pub use crate::parallel::try_in_parallel;
    pub use crate::registry::{FORMATS, all_options, detect, formats_with, of_files};
    pub use crate::watched::REMEDY as NO_ANSWER;
}

/// The program of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

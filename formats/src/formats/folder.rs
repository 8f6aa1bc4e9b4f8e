//! Folders in which every file is a sample.

mod classes;
mod coco;
mod description;
mod objects;
mod pairs;
mod yolo;

use crate::compose::{Labels, Unlabelled};
use crate::dataset::sizes::sum_of_largest;
use crate::dataset::{
    DType, Dataset, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape, SkipReason, Skipped,
    Span, Value,
};
use crate::detect::is_beside_data;
use crate::find::names::has_extension;
use crate::find::paths::{FoundFiles, looking_threads};
use crate::format::{Format, Paths, Shows};
use crate::index::sidecar;
use crate::options::{FormatOptions, Missing, Options, options};
use crate::parallel::in_parallel;
use crate::place::Place;
use bytes::Bytes;
use classes::Classes;
use pairs::{Pairing, Pairs, without_companions};
use std::ffi::OsStr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// Options of folders.
    pub struct FolderOptions {
        /// Whether the folders of files are their classes: true, and a file outside a folder is an error; false; or not
        /// given: they are, if every file is in a subfolder of its root, and none was named by itself.
        labels: Option<bool>,
        /// Type of the elements that every file consists of.
        dtype: DType,
        /// What is known of each file: a table with a row "name,label", with tabs in a .tsv; annotations of COCO
        /// (.json); the data.yaml of YOLO, or its folder of labels.
        label_file: Option<PathBuf>,
        /// What happens to files without a label, and labels without a file: "error" or "skip".
        unlabelled: Unlabelled,
        /// Files of one stem are one sample, with a column for each "extension" (a.jpg, a.json) or each "folder"
        /// (images/a.jpg, masks/a.png).
        pairs: Option<Pairing>,
        /// Fields of a sample to read, in this order; all by default.
        fields: Vec<String>,
        /// What happens to a sample that lacks a field: "error" or "empty".
        missing: Missing,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: "folder",
    help: "Every file is a sample; folders of folders give labels.",
    options: FolderOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Any,
    open: |paths, options| open(paths, &options.typed()?, options),
};

/// Opens folders, files and patterns; errors are those of [`open`](crate::open).
fn open(mut paths: Paths, options: &FolderOptions, given: &Options) -> Result<Arc<dyn Dataset>> {
    let mut found = without_indexes(paths.files(options.common.threads)?, looking_threads(options.common.threads));
    let table = options.label_file.as_ref().map(|file| options.common.namer.place(file)).transpose()?;
    let Some(by) = options.pairs else {
        for idle in ["fields", "missing"] {
            if given.is_set(idle) {
                return Err(of_no_use(idle, "pairs"));
            }
        }
        let Some(table) = &table else {
            if given.is_set("unlabelled") {
                return Err(of_no_use("unlabelled", "label_file"));
            }
            return Ok(Arc::new(Folder::from_index(found, options)?));
        };
        // The table itself may be among the files.
        found = found.without(table);
        let labels = Some(options.labels.unwrap_or(false)).filter(|labels| !labels);
        if labels.is_none() {
            let error = Error::new(ErrorKind::InvalidArgument, "labels come from folders and from a table");
            return Err(error.with_path(table).with_remedy("give one of labels and label_file"));
        }
        if !is_table(table) {
            // Labels of YOLO lie among the files.
            found = found.keep_by(|name| !is_beside_data(name, paths.formats()), SkipReason::Companion);
        }
        let folder = Folder::from_index(found, &FolderOptions { labels, ..options.clone() })?;
        return annotated(table, Arc::new(folder), options);
    };
    if let Some(idle) = ["labels", "dtype"].into_iter().find(|idle| given.is_set(idle)) {
        let error = Error::new(ErrorKind::InvalidArgument, format!("{idle} is of no use to pairs of files"));
        return Err(error.with_remedy("leave it out"));
    }
    if let Some(table) = &table {
        found = found.without(table);
    }
    if by == Pairing::Folder {
        found = without_companions(found, paths.formats());
    }
    let pairs = Arc::new(Pairs::new(found, by, &options.fields, options.missing)?);
    match &table {
        Some(table) => Labels::at(table)?.onto(pairs, options.unlabelled),
        None => Ok(pairs),
    }
}

/// Whether a file is a table of names and labels, and has no objects of images.
fn is_table(place: &Place) -> bool {
    let is_called = |extension: &&str| has_extension(place.bytes(), extension);
    !["json", "yaml", "yml"].iter().any(is_called) && !place.is_folder()
}

/// Adds what `table` knows of each file to a folder.
fn annotated(table: &Place, folder: Arc<dyn Dataset>, options: &FolderOptions) -> Result<Arc<dyn Dataset>> {
    if is_table(table) {
        return Labels::at(table)?.onto(folder, options.unlabelled);
    }
    if has_extension(table.bytes(), "json") {
        return coco::onto(table, folder, options.unlabelled);
    }
    yolo::onto(table, folder, options.unlabelled, options.common.threads)
}

/// Leaves out the indexes of other formats among the files, unless they were named by themselves.
fn without_indexes(found: FoundFiles, threads: usize) -> FoundFiles {
    let is_index = |number: u32| {
        let file = FileId(number);
        has_extension(found.files.name(file), sidecar::EXTENSION)
            && !found.is_single(file)
            && sidecar::is_sidecar(&found.files.at(file))
    };
    let has_index = |range: &Range<u32>| range.clone().any(is_index);
    if !in_parallel(&found.files.ranges(), threads, has_index).contains(&true) {
        return found;
    }
    // Fits: a table has fewer than 2^32 files.
    let keep: Vec<bool> = (0..found.files.len() as u32).map(|number| !is_index(number)).collect();
    found.keep(&keep, |_| Some(SkipReason::Companion))
}

fn of_no_use(idle: &str, wanted: &str) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, format!("{idle} is of no use without {wanted}"));
    error.with_remedy(format!("give {wanted}, or leave out {idle}"))
}

/// Folders in which every file is a sample, in the order of the bytes of its path.
///
/// What is left out is counted in [`Index::left_out`]. A folder that cannot be listed is an error, because it is
/// unknown what is missing.
#[derive(Debug)]
pub struct Folder {
    index: Index,
    classes: Option<Classes>,
    fingerprint: OnceLock<u64>,
}

impl Folder {
    pub(crate) fn from_index(index: FoundFiles, options: &FolderOptions) -> Result<Folder> {
        let (labels, dtype) = (options.labels, options.dtype);
        // A division for each file costs as much as all else here.
        let odd = |size: &u64| !size.is_multiple_of(dtype.size());
        if dtype.size() > 1
            && let Some(odd) = index.files.sizes().iter().position(odd)
        {
            let file = FileId(odd as u32);
            let (bytes, size) = (index.files.size(file), dtype.size());
            let what =
                format!("the file has {bytes} bytes, not a multiple of the {size} bytes of an element ({dtype})");
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_path(index.files.path(file))
                .with_remedy("check the element type, or leave this file out"));
        }
        let find = || Classes::find(&index.files, looking_threads(options.common.threads));
        let classes = match labels {
            Some(false) => None,
            None if index.has_single_files => None,
            None => find().ok(),
            Some(true) => Some(find().map_err(|file| {
                Error::new(ErrorKind::InvalidArgument, "labels are required, and the file is in no class folder")
                    .with_path(index.files.path(file))
                    .with_remedy("move it into a class folder, or go without labels")
            })?),
        };
        Ok(Folder::new(index.files, classes, dtype, index.skips.into_vec()))
    }

    fn new(files: FileTable, classes: Option<Classes>, dtype: DType, left_out: Vec<Skipped>) -> Folder {
        let mut fields = vec![Field { name: "data".into(), dtype, shape: Shape::Ragged }];
        if classes.is_some() {
            fields.push(Field { name: "label".into(), dtype: DType::I64, shape: Shape::Fixed(Vec::new()) });
        }
        let samples = files.len() as u64;
        let mut index = Index::new("folder", files, Schema { fields }, samples);
        index.bytes = saturating_sum(index.files.sizes());
        index.plain_field = Some(0);
        index.parse_reads_bytes = false;
        index.classes = classes.as_ref().map_or_else(Vec::new, |classes| classes.names().to_vec());
        index.left_out = left_out;
        Folder { index, classes, fingerprint: OnceLock::new() }
    }
}

impl Dataset for Folder {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let file = file_of(id);
        out.push(Span { file, offset: 0, len: self.files().size(file) });
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.push(Value::Bytes(raw[0].clone()));
        out.values.extend(self.label(id).map(|(label, _)| Value::I64(label)));
        Ok(())
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        out.extend_from_slice(self.files().name(file_of(id)));
    }

    fn largest(&self, count: u64) -> u64 {
        if count >= self.len() { self.bytes() } else { sum_of_largest(self.files().sizes().iter().copied(), count) }
    }

    /// FNV-1a over "folder", whether there are labels, and the names and sizes of all files in order; then the type of
    /// the elements, unless they are bytes.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("folder");
            fingerprint.number(self.classes.is_some().into());
            fingerprint.files(self.files());
            let dtype = self.schema().fields[0].dtype;
            if dtype != DType::U8 {
                fingerprint.bytes(dtype.name().as_bytes());
            }
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        Some(if field == 0 { self.files().size(file_of(id)) / self.schema().fields[0].dtype.size() } else { 1 })
    }

    fn label(&self, id: SampleId) -> Option<(i64, &OsStr)> {
        let label = self.classes.as_ref()?.label(file_of(id));
        Some((label.into(), &self.index.classes[label as usize]))
    }
}

/// Sparse files may be of any size, so that a sum of sizes may not fit.
fn saturating_sum(sizes: &[u64]) -> u64 {
    sizes.iter().fold(0, |sum, &size| sum.saturating_add(size))
}

/// Every sample is a file, and a table holds fewer than 2^32 of them.
fn file_of(id: SampleId) -> FileId {
    FileId(id.0 as u32)
}

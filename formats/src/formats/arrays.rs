//! Arrays of numbers in files of NumPy's and safetensors' formats: whole files, single arrays or rows as samples.

mod listing;
pub(crate) mod npy;
mod npz;
mod order;
mod safetensors;
mod table;
mod units;

use crate::dataset::{Check, Dataset, FileId, Fingerprint, Index, Sample, SampleId, Schema, Span, Units, Value};
use crate::find::names::has_extension;
use crate::find::paths::{FoundFiles, header_thread_count};
use crate::format::{Format, Shows};
use crate::formats::{endian, zip::directory};
use crate::index::headers::{Source, head, map_files};
use crate::options::{FormatOptions, options, words};
use bytes::Bytes;
pub(crate) use listing::array_bytes;
use listing::{Found, Listing};
use std::collections::HashSet;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use table::{At, Stored, Table};
use uringload_core::{Error, ErrorKind, Result};

/// Files whose headers are held at once, before they go into the table.
const FILES_AT_ONCE: u32 = 1 << 16;

/// The container of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArrayFormat {
    /// `.npy`: one array a file, as `numpy.save` writes it.
    Npy,
    /// `.npz`: a zip archive of named `.npy` arrays, as `numpy.savez` and `numpy.savez_compressed` write it.
    Npz,
    /// `.safetensors`: named tensors after a header of JSON.
    Safetensors,
}

impl ArrayFormat {
    /// The name, which is the extension of its files too: "npy".
    pub const fn name(self) -> &'static str {
        match self {
            ArrayFormat::Npy => "npy",
            ArrayFormat::Npz => "npz",
            ArrayFormat::Safetensors => "safetensors",
        }
    }

    fn begins(self, head: &[u8]) -> bool {
        match self {
            ArrayFormat::Npy => head.starts_with(npy::MAGIC),
            // An archive without a member begins with its end.
            ArrayFormat::Npz => head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06"),
            ArrayFormat::Safetensors => head.get(8) == Some(&b'{'),
        }
    }

    fn find(self, source: &Source, names: &[String]) -> Result<Listing> {
        match self {
            ArrayFormat::Npy => {
                let array = npy::read(source, 0..source.size())?;
                Ok(Listing { found: vec![Found { name: DATA.to_owned(), array }], others: Vec::new() })
            }
            ArrayFormat::Npz => npz::find(source, names),
            ArrayFormat::Safetensors => safetensors::find(source, names),
        }
    }
}

/// Name of the column where arrays have no names of their own, or are samples each.
const DATA: &str = "data";

/// What is a sample of [`Arrays`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArraySamples {
    /// A file: a column for each array in it. All files have the same arrays.
    #[default]
    Files,
    /// A row: `array[i]` for each array of a file, a column each. The arrays of a file have the same number of rows.
    Rows,
    /// An array: a single column "data", whatever the arrays are called. All arrays have one type.
    Arrays,
}

words!(ArraySamples { "files" => Files, "rows" => Rows, "arrays" => Arrays, });

options! {
    /// Options of npy, npz and safetensors.
    pub struct ArrayOptions {
        /// Take the rows of arrays as samples, instead of files (npy, npz) or tensors (safetensors).
        rows: bool,
        /// The arrays, tensors or datasets that are wanted, by name, a column each; not given: all, and of HDF5's
        /// datasets those with as many rows as most of them.
        tensors: Vec<String>,
        /// What is a sample, where the format's own choice is not wanted.
        samples: Option<ArraySamples>,
    }
}

impl ArrayOptions {
    /// What is a sample of files of that format.
    fn samples_of(&self, format: ArrayFormat) -> ArraySamples {
        match (self.samples, self.rows, format) {
            (Some(samples), ..) => samples,
            (None, true, _) => ArraySamples::Rows,
            // A user who names tensors wants a column of each.
            (None, false, ArrayFormat::Safetensors) if self.tensors.is_empty() => ArraySamples::Arrays,
            _ => ArraySamples::Files,
        }
    }
}

/// The entry of one of these formats.
macro_rules! entry {
    ($format:expr, $help:literal) => {
        Format {
            name: $format.name(),
            help: $help,
            options: ArrayOptions::SPECS,
            has_sidecars: false,
            shows: Shows::Names {
                called: |name| has_extension(name, $format.name()),
                begins: |place| $format.begins(&head(place)),
            },
            open: |mut paths, options| {
                let typed: ArrayOptions = options.typed()?;
                let found = paths.find(&[$format.name()], typed.common.threads)?;
                // Tensors of several types are not samples of one column: by default, the file is then the sample. To
                // verify them, files can be read as a whole in any case.
                let is_free = typed.samples.is_none() && typed.samples_of($format) == ArraySamples::Arrays;
                let again = (is_free || typed.common.verifying).then(|| found.clone());
                let opened = Arrays::open($format, found, &typed);
                if is_free && options.format_name().is_none() {
                    opened.as_ref().map_or(Ok(()), Arrays::refuse_weights)?;
                }
                match (opened, again) {
                    (Err(error), Some(found)) if error.kind() == ErrorKind::InvalidArgument => {
                        let whole = ArrayOptions { samples: Some(ArraySamples::Files), ..typed };
                        Ok(Arc::new(Arrays::open($format, found, &whole)?))
                    }
                    (opened, _) => Ok(Arc::new(opened?)),
                }
            },
        }
    };
}

pub(crate) const NPY: Format = entry!(ArrayFormat::Npy, "Arrays that numpy.save wrote.");
pub(crate) const NPZ: Format = entry!(ArrayFormat::Npz, "Archives that numpy.savez or numpy.savez_compressed wrote.");
pub(crate) const SAFETENSORS: Format = entry!(ArrayFormat::Safetensors, "Files of tensors.");

/// Tensors whose names are looked at, to see whether they are the weights of a model.
const TENSORS_LOOKED_AT: u64 = 64;

/// Arrays of numbers in `.npy`, `.npz` or `.safetensors` files.
///
/// Opening reads the header of every file, by several threads, and checks all that the reference readers check.
/// Checksums of stored zip members are compared by `verify` alone, those of deflated members when they are inflated.
///
/// Memory beside the table of files: 12 bytes a file and column where files or rows are samples (8 more a file for
/// rows); 12 bytes and the name for each array where arrays are samples; 40 bytes more for each deflated array.
#[derive(Debug)]
pub struct Arrays {
    index: Index,
    format: ArrayFormat,
    samples: ArraySamples,
    table: Table,
    fingerprint: OnceLock<u64>,
    /// The arrays that are wanted; all, where none is named.
    names: Vec<String>,
}

impl Arrays {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(format: ArrayFormat, found: FoundFiles, options: &ArrayOptions) -> Result<Arrays> {
        let FoundFiles { files, skips, .. } = found;
        let samples = options.samples_of(format);
        let mut names = HashSet::new();
        if let Some(twice) = options.tensors.iter().find(|name| !names.insert(*name)) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("array {twice:?} is named twice")));
        }
        let threads = header_thread_count(options.common.threads);
        let mut table = Table::new(samples);
        let end = files.len() as u32;
        for start in (0..end).step_by(FILES_AT_ONCE as usize) {
            let range = start..end.min(start.saturating_add(FILES_AT_ONCE));
            let listings =
                map_files(range.clone(), threads, |file| format.find(&Source::open(&files, file)?, &options.tensors))?;
            for (file, listing) in range.zip(listings) {
                let added = table.add(file, listing, &options.tensors);
                added.map_err(|error| error.with_path(files.path(FileId(file))))?;
            }
        }
        if table.len() == 0 {
            let place = files.place();
            return Err(Error::new(ErrorKind::Empty, format!("no .{} file has a sample", format.name()))
                .with_path(place)
                .with_remedy(if options.tensors.is_empty() {
                    "check the shapes of the arrays".into()
                } else {
                    format!("check the shapes of the arrays and the names {:?}", options.tensors)
                }));
        }
        table.finish();
        let schema = Schema { fields: table.fields().collect() };
        let mut index = Index::new(format.name(), files, schema, table.len());
        index.bytes = table.bytes();
        // Every file is a shard, where it holds more than one sample by its nature.
        index.shards = table.ends().to_vec();
        index.left_out = skips.into_vec();
        // A value that is in the file as it is delivered is a slice of it.
        let is_plain = !table.has_units() && !table.has_turned();
        index.parse_reads_bytes = !is_plain;
        index.plain_field = (index.schema.fields.len() == 1 && is_plain).then_some(0);
        let (fingerprint, names) = (OnceLock::new(), options.tensors.clone());
        Ok(Arrays { index, format, samples, table, fingerprint, names })
    }

    /// Refuses the weights of a model, which are no data: each tensor would be a sample.
    fn refuse_weights(&self) -> Result<()> {
        let names = (0..self.table.len().min(TENSORS_LOOKED_AT)).map(|id| self.table.name_of(id));
        let Some(name) = names.into_iter().find(|name| name.ends_with(".weight") || name.ends_with(".bias")) else {
            return Ok(());
        };
        let what = format!("these are the weights of a model: a tensor is called {name:?}");
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(self.files().place());
        Err(error.with_remedy("name the format, safetensors (--format, format=), for a sample of each tensor"))
    }

    /// The file of a sample, and its number there, from 0.
    fn locate(&self, id: SampleId) -> (FileId, u64) {
        let (file, number) = self.table.locate(id.0);
        // Fits: the table has no more files than the file table.
        (FileId(file as u32), number)
    }
}

impl Dataset for Arrays {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, _) = self.locate(id);
        out.extend(self.table.places(id.0).filter_map(|value| match value.at {
            At::File(offset) => Some(Span { file, offset, len: value.len }),
            At::Unit(..) => None,
        }));
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        if !self.index.parse_reads_bytes {
            out.values.extend(raw.iter().cloned().map(Value::Bytes));
            return Ok(());
        }
        let is_span = |value: &Stored| matches!(value.at, At::File(_));
        let (spans, units) = raw.split_at(self.table.places(id.0).filter(is_span).count().min(raw.len()));
        let (mut spans, mut units) = (spans.iter(), units.iter());
        for Stored { at, len, turned } in self.table.places(id.0) {
            let value = match at {
                At::File(_) if turned > 1 => spans.next().map(|span| endian::little(span, turned)),
                At::File(_) => spans.next().cloned(),
                // Fits, because it is in the unit.
                At::Unit(_, at) => units
                    .next()
                    .filter(|unit| at + len <= unit.len() as u64)
                    .map(|unit| unit.slice(at as usize..(at + len) as usize)),
            };
            let value = value.ok_or_else(|| {
                let file = self.files().path(self.locate(id).0);
                Error::new(ErrorKind::Corrupt, "an array is shorter than its header says").with_path(file)
            })?;
            out.values.push(Value::Bytes(value));
        }
        Ok(())
    }

    fn shape(&self, id: SampleId, field: usize) -> Option<&[u64]> {
        Some(self.table.shape_of(id.0, field))
    }

    /// Arrays that are in the file as they are delivered.
    fn span_of(&self, id: SampleId, field: usize) -> Option<usize> {
        let is_span = |value: &Stored| matches!(value.at, At::File(_));
        self.table.places(id.0).nth(field).filter(|value| is_span(value) && value.turned == 1)?;
        Some(self.table.places(id.0).take(field).filter(is_span).count())
    }

    fn units(&self) -> Option<&dyn Units> {
        self.table.has_units().then_some(self)
    }

    /// The file, and after a "#" the row or the array's name.
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, number) = self.locate(id);
        out.extend_from_slice(self.files().name(file));
        let written = match self.samples {
            ArraySamples::Files => Ok(()),
            ArraySamples::Rows => write!(out, "#{number}"),
            ArraySamples::Arrays => write!(out, "#{}", self.table.name_of(id.0)),
        };
        written.expect("a Vec takes everything");
    }

    fn largest(&self, count: u64) -> u64 {
        self.table.largest(count)
    }

    /// FNV-1a over the format, what is a sample, names, types and places of all columns, and names and sizes of all
    /// files in order.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new(self.format.name());
            fingerprint.number(match self.samples {
                ArraySamples::Files => 0,
                ArraySamples::Rows => 1,
                ArraySamples::Arrays => 2,
            });
            self.table.fingerprint(&mut fingerprint);
            fingerprint.files(self.files());
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        Some(self.table.elements(id.0, field))
    }

    /// The CRC-32 of every member of a zip archive, also of those that are not wanted.
    fn checks(&self, file: FileId, out: &mut Vec<Check>) -> Result<()> {
        match self.format {
            ArrayFormat::Npz => {
                let name_of = |member: &str| member.strip_suffix(npz::SUFFIX).unwrap_or(member).to_owned();
                let wanted = |member: &str| self.names.is_empty() || self.names.contains(&name_of(member));
                directory::checks(&Source::open(self.files(), file)?, file, wanted, out)
            }
            ArrayFormat::Npy | ArrayFormat::Safetensors => Ok(()),
        }
    }
}

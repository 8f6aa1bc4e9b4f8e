//! FFCV's .beton, version 2: one file of pages, with a table of the place of each field of each sample.
//!
//! Source: libffcv/ffcv 1.0, `ffcv/{types,writer,memory_allocator}.py`, `ffcv/fields/*.py`.

mod fields;
mod table;

use crate::dataset::{Dataset, FileId, Fingerprint, Index, Sample, SampleId, Shape, Span, Value, sizes};
use crate::find::names::has_extension;
use crate::find::paths::{FoundFiles, thread_count};
use crate::format::{Format, Paths, Shows};
use crate::index::headers::{Source, u16_at, u64_at};
use crate::options::{FormatOptions, options};
use crate::parallel::in_parallel;
use crate::place::Place;
use bytes::Bytes;
use fields::{Descriptor, Descriptors, Kind};
use std::sync::Arc;
use table::Table;
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// Options of beton.
    pub struct BetonOptions {}
}

pub(crate) const FORMAT: Format = Format {
    name: "beton",
    help: "Files of FFCV (.beton).",
    options: BetonOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Names { called: |name| has_extension(name, "beton"), begins: is_beton },
    open: |paths, options| Ok(Arc::new(Beton::open(paths, &options.typed()?)?)),
};

/// A dataset written by FFCV's `DatasetWriter`.
///
/// The file's table of samples stays in memory: 8 bytes for a number or an array, 13 for an image, 16 for bytes.
/// Numbers and arrays are aligned to 8, and so is a record that has any. Plus 4 for each image if some are JPEGs.
#[derive(Debug)]
pub struct Beton {
    /// Every file is a shard.
    index: Index,
    tables: Vec<Table>,
    fields: Descriptors,
    /// For each image field: height and width, if all images are raw and of one size.
    uniform: Vec<Option<(u16, u16)>>,
    fingerprint: u64,
}

impl Beton {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(mut paths: Paths, options: &BetonOptions) -> Result<Beton> {
        let threads = thread_count(options.common.threads);
        let FoundFiles { files, skips, .. } = paths.files(options.common.threads)?;
        let numbers: Vec<FileId> = (0..files.len() as u32).map(FileId).collect();
        let opened = in_parallel(&numbers, threads, |&file| {
            let file = Source::open(&files, file)?;
            let head = Head::read(&file)?;
            let fields = Descriptors::read(&file, head.fields)?;
            let table = Table::read(&file, &head, &fields)?;
            Ok((fields, table))
        });
        let (mut tables, mut ends) = (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        let (mut common, mut end): (Option<Descriptors>, u64) = (None, 0);
        for (opened, &file) in opened.into_iter().zip(&numbers) {
            let (fields, table): (Descriptors, Table) = opened?;
            let first = common.get_or_insert_with(|| fields.clone());
            if *first != fields {
                let error = Error::new(ErrorKind::Corrupt, "the fields are not those of the first file");
                return Err(error
                    .with_path(files.path(file))
                    .with_remedy("open datasets with different fields one by one"));
            }
            // Fits: each sample takes at least a byte of its file, or there is none.
            end += table.len();
            ends.push(end);
            tables.push(table);
        }
        let Some(fields) = common.filter(|_| end > 0) else {
            let place = files.place();
            return Err(Error::new(ErrorKind::Empty, "no file has a sample").with_path(place));
        };
        let uniform = fields.all.iter().map(|field| uniform_size(field, &tables)).collect::<Vec<_>>();
        let mut fingerprint = Fingerprint::new("beton");
        fields.fingerprint(&mut fingerprint);
        fingerprint.files(&files);
        ends.iter().for_each(|&end| fingerprint.number(end));
        let mut index = Index::new("beton", files, fields.schema(&uniform), end);
        index.shards = ends;
        index.encodings = fields.encodings(&uniform);
        index.plain_field = fields.only_plain();
        index.left_out = skips.into_vec();
        let mut dataset = Beton { index, tables, fields, uniform, fingerprint: fingerprint.finish() };
        dataset.index.bytes = (0..end).fold(0, |sum, id| sum + dataset.sample_bytes(SampleId(id)));
        Ok(dataset)
    }

    /// The file of a sample, and its number in that file.
    fn locate(&self, id: SampleId) -> (usize, usize) {
        let (file, number) = crate::dataset::locate(&self.index.shards, id.0);
        (file, number as usize)
    }

    /// Bytes of all spans of a sample.
    fn sample_bytes(&self, id: SampleId) -> u64 {
        let (file, number) = self.locate(id);
        let table = &self.tables[file];
        self.fields.all.iter().filter_map(|field| table.place(field, number)).map(|place| place.1).sum()
    }
}

/// Whether a file has a valid header.
fn is_beton(place: &Place) -> bool {
    place.open().is_ok_and(|file| Head::read(&file).is_ok())
}

/// Height and width of a field's images, if all are raw and of one size.
fn uniform_size(field: &Descriptor, tables: &[Table]) -> Option<(u16, u16)> {
    if field.kind != Kind::Image {
        return None;
    }
    let mut sizes = tables.iter().flat_map(|table| (0..table.len() as usize).map(|number| table.image(field, number)));
    let first = sizes.next().filter(|image| image.is_raw)?;
    sizes.all(|image| image == first).then_some((first.height, first.width))
}

/// The header: the first 24 bytes of a file.
#[derive(Clone, Copy, Debug)]
struct Head {
    fields: u16,
    page_bytes: u64,
    samples: u64,
    /// Where the table of allocations begins. It extends to the end of the file.
    allocations_at: u64,
}

/// Bytes of a [`Head`] in the file.
const HEAD_BYTES: u64 = 24;

/// The only version that FFCV writes.
const VERSION: u16 = 2;

/// Smallest page, in bytes (`MIN_PAGE_SIZE`).
const PAGE_BYTES_MIN: u64 = 1 << 21;

impl Head {
    fn read(file: &Source) -> Result<Head> {
        let mut bytes = [0; HEAD_BYTES as usize];
        file.read(0, &mut bytes, "the head")?;
        let version = u16_at(&bytes, 0);
        if version != VERSION {
            let what = format!("the format has version {version}, and only version {VERSION} can be read");
            return Err(file
                .unavailable(0, what)
                .with_remedy("check that it is a .beton file; if so, write it again with ffcv 1.0"));
        }
        let head = Head {
            fields: u16_at(&bytes, 2),
            page_bytes: u64_at(&bytes, 4) & u64::from(u32::MAX),
            samples: u64_at(&bytes, 8),
            allocations_at: u64_at(&bytes, 16),
        };
        if !head.page_bytes.is_power_of_two() || head.page_bytes < PAGE_BYTES_MIN {
            return Err(file.corrupt(4, format!("pages cannot have {} bytes", head.page_bytes)));
        }
        if head.fields == 0 {
            return Err(file.corrupt(2, "there are no fields"));
        }
        if head.allocations_at > file.size() {
            let what = format!("the table of allocations begins at {}, past the end of the file", head.allocations_at);
            return Err(Error::new(ErrorKind::Truncated, what)
                .with_path(file.path())
                .with_offset(16)
                .with_remedy("copy the file again; if it was being written, wait for the end"));
        }
        Ok(head)
    }
}

impl Dataset for Beton {
    fn index(&self) -> &Index {
        &self.index
    }

    /// One span for each field that is not a number, in field order.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, number) = self.locate(id);
        let table = &self.tables[file];
        let places = self.fields.all.iter().filter_map(|field| table.place(field, number));
        // A table has at most 2^32 files.
        out.extend(places.map(|(offset, len)| Span { file: FileId(file as u32), offset, len }));
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let (file, number) = self.locate(id);
        let table = &self.tables[file];
        let mut raw = raw.iter();
        for (field, uniform) in self.fields.all.iter().zip(&self.uniform) {
            let next = match field.kind {
                Kind::Int => {
                    out.values.push(Value::I64(table.int(field, number)));
                    continue;
                }
                Kind::Float => {
                    out.values.push(Value::Bytes(table.scalar(field, number)));
                    continue;
                }
                _ => raw.next().cloned().unwrap_or_default(),
            };
            match field.kind {
                Kind::Json => match next.split_last() {
                    Some((0, text)) => out.values.push(Value::Bytes(next.slice(..text.len()))),
                    _ => {
                        let at = table.place(field, number).map_or(0, |(offset, len)| offset + len);
                        let what = format!("field {:?} of sample {number} does not end in a NUL", field.name);
                        let error =
                            Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(FileId(file as u32)));
                        return Err(error.with_offset(at.saturating_sub(1)));
                    }
                },
                _ => out.values.push(Value::Bytes(next)),
            }
            if field.kind == Kind::Image && uniform.is_none() {
                let image = table.image(field, number);
                let numbers = [i64::from(image.height), i64::from(image.width), i64::from(image.is_raw)];
                out.values.extend(numbers.map(Value::I64));
            }
        }
        Ok(())
    }

    fn largest(&self, count: u64) -> u64 {
        if count >= self.len() {
            return self.bytes();
        }
        sizes::sum_of_largest((0..self.len()).map(|id| self.sample_bytes(SampleId(id))), count)
    }

    /// FNV-1a over "beton", the fields, and the name, size and number of samples of each file.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        if let Shape::Fixed(shape) = &self.schema().fields[field].shape {
            return Some(shape.iter().product());
        }
        let (file, number) = self.locate(id);
        let descriptor = &self.fields.all[self.fields.of_column(field, &self.uniform)?];
        let (_, len) = self.tables[file].place(descriptor, number)?;
        Some(if descriptor.kind == Kind::Json { len.saturating_sub(1) } else { len })
    }
}

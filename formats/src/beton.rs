//! FFCV's .beton, version 2: one file of pages, with a table of what each sample has in which place.
//!
//! Source: libffcv/ffcv 1.0, `ffcv/{types,writer,memory_allocator}.py`, `ffcv/fields/*.py`.

mod fields;
mod table;

use crate::fingerprint::Fingerprint;
use crate::headers::{Source, u16_at, u64_at};
use crate::parallel::in_parallel;
use crate::paths::{index, thread_count};
use crate::shards::stands_for;
use crate::sizes::Largest;
use crate::{Dataset, FileId, FileTable, Sample, SampleId, Schema, Shape, Span, Value};
use bytes::Bytes;
use fields::{Descriptor, Descriptors, Kind};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use table::Table;
use uringload_core::{Error, ErrorKind, Result};

/// How [`Beton`] is opened.
#[derive(Clone, Debug, Default)]
pub struct BetonOptions {
    /// Threads that look for files and open them; 0 chooses by the machine.
    pub threads: usize,
}

/// A dataset that FFCV's `DatasetWriter` wrote.
///
/// # What may be given
/// Files, folders whose every file is one, and patterns. Several are read one behind the other, in the order in which
/// [`Folder`](super::Folder) has them, and have the same fields; each counts for a shuffle of shards.
///
/// # Columns
/// Those of the dataset, in its order:
///
/// | field | column |
/// |---|---|
/// | `IntField`, `FloatField` | an `I64`, an `F64`; from the index |
/// | `NDArrayField`, `TorchTensorField` | a tensor of their type and shape |
/// | `BytesField` | bytes of any number |
/// | `JSONField` | UTF-8, without the NUL that ends it in the file |
/// | `RGBImageField` | bytes: a JPEG, or pixels of 3 bytes row by row; and see below |
///
/// Where all images of a field are raw and of one size, the column is a tensor of height, width and 3. Else there are
/// three columns beside it, `NAME.height`, `NAME.width` and `NAME.mode` (0: a JPEG, 1: raw), from the index.
///
/// Fields of the user's own are refused, since only their Python class knows what they hold.
///
/// # Memory
/// The file's table of samples is kept: 8 bytes for a number or an array, 13 for an image, 16 for bytes, each of them
/// rounded up to 8 behind all but bytes and images; and 4 for each image where some are JPEGs.
#[derive(Debug)]
pub struct Beton {
    files: FileTable,
    tables: Vec<Table>,
    /// Samples in the files up to and with each.
    ends: Vec<u64>,
    fields: Descriptors,
    /// Of the fields that are images: height and width, where all are raw and of one size.
    uniform: Vec<Option<(u16, u16)>>,
    schema: Schema,
    bytes: u64,
    fingerprint: OnceLock<u64>,
}

impl Beton {
    /// Opens files.
    ///
    /// # Errors
    /// As [`Folder::open`](super::Folder::open); `Truncated` or `Corrupt` for a file whose head, table of samples or
    /// table of allocations breaks the format or points outside of its pages; `Unavailable` for other versions, fields
    /// of the user's own and types that cannot be read.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &BetonOptions) -> Result<Beton> {
        let files = index(paths, thread_count(options.threads))?.files;
        let numbers: Vec<FileId> = (0..files.len() as u32).map(FileId).collect();
        let opened = in_parallel(&numbers, thread_count(options.threads), |&file| {
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
                let error = Error::new(ErrorKind::Corrupt, "the fields are not those of the first file:");
                return Err(error
                    .with_file(files.path(file))
                    .with_remedy("read datasets of different fields one by one"));
            }
            // Fits: each sample takes a byte of its file or more, or there is none.
            end += table.len();
            ends.push(end);
            tables.push(table);
        }
        let Some(fields) = common.filter(|_| end > 0) else {
            let place = files.roots().first().map_or(Path::new("."), |root| &root.path);
            return Err(Error::new(ErrorKind::Empty, "no file holds a sample in").with_file(place));
        };
        let uniform = fields.all.iter().map(|field| uniform_size(field, &tables)).collect::<Vec<_>>();
        let mut dataset = Beton {
            schema: fields.schema(&uniform),
            files,
            tables,
            ends,
            fields,
            uniform,
            bytes: 0,
            fingerprint: OnceLock::new(),
        };
        dataset.bytes = (0..end).fold(0, |sum, id| sum + dataset.sample_bytes(SampleId(id)));
        Ok(dataset)
    }

    /// Whether `path` is a file that is named `.beton` and begins as one, a folder of nothing but files named so, or a
    /// pattern of them.
    pub fn detect(path: impl AsRef<Path>) -> bool {
        let is_named = |path: &Path| path.extension().is_some_and(|extension| extension == "beton");
        let is_file = |path: &Path| Source::open_path(path.to_path_buf()).is_ok_and(|file| Head::read(&file).is_ok());
        stands_for(path.as_ref(), |path| match std::fs::read_dir(path) {
            Err(_) => is_named(path) && is_file(path),
            Ok(entries) => {
                let mut entries = entries.map(|entry| entry.is_ok_and(|entry| is_named(&entry.path()))).peekable();
                entries.peek().is_some() && entries.all(|is_named| is_named)
            }
        })
    }

    /// How each column of the schema is stored, in the words of the format.
    pub fn encodings(&self) -> Vec<String> {
        self.fields.encodings(&self.uniform)
    }

    /// The file of a sample, and the sample's number there.
    fn locate(&self, id: SampleId) -> (usize, usize) {
        let (file, number) = super::locate(&self.ends, id.0);
        (file, number as usize)
    }

    /// Bytes of all spans of a sample.
    fn sample_bytes(&self, id: SampleId) -> u64 {
        let (file, number) = self.locate(id);
        let table = &self.tables[file];
        self.fields.all.iter().filter_map(|field| table.place(field, number)).map(|place| place.1).sum()
    }
}

/// Height and width of the images of a field, where all are raw and of one size.
fn uniform_size(field: &Descriptor, tables: &[Table]) -> Option<(u16, u16)> {
    if field.kind != Kind::Image {
        return None;
    }
    let mut sizes = tables.iter().flat_map(|table| (0..table.len() as usize).map(|number| table.image(field, number)));
    let first = sizes.next().filter(|image| image.is_raw)?;
    sizes.all(|image| image == first).then_some((first.height, first.width))
}

/// The first 24 bytes of a file.
#[derive(Clone, Copy, Debug)]
struct Head {
    fields: u16,
    page_bytes: u64,
    samples: u64,
    /// Where the table of allocations begins, which ends with the file.
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
            let doing = format!("version {version} of the format, of which {VERSION} is known, of");
            return Err(file
                .unavailable(0, doing)
                .with_remedy("is it a .beton file? if so, write it again with ffcv 1.0"));
        }
        let head = Head {
            fields: u16_at(&bytes, 2),
            page_bytes: u64_at(&bytes, 4) & u64::from(u32::MAX),
            samples: u64_at(&bytes, 8),
            allocations_at: u64_at(&bytes, 16),
        };
        if !head.page_bytes.is_power_of_two() || head.page_bytes < PAGE_BYTES_MIN {
            return Err(file.corrupt(4, format!("pages of {} bytes in", head.page_bytes)));
        }
        if head.fields == 0 {
            return Err(file.corrupt(2, "there are no fields in"));
        }
        if head.allocations_at > file.size() {
            let doing = format!("the table of allocations begins at {}, behind the end of", head.allocations_at);
            return Err(Error::new(ErrorKind::Truncated, doing)
                .with_file(file.path())
                .with_offset(16)
                .with_remedy("copy the file again; if it was being written, wait for the end"));
        }
        Ok(head)
    }
}

impl Dataset for Beton {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn format(&self) -> &'static str {
        "beton"
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// One for each field that is not a number, in the order of the fields.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, number) = self.locate(id);
        let table = &self.tables[file];
        let places = self.fields.all.iter().filter_map(|field| table.place(field, number));
        // A table has 2^32 files at most.
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
                        let doing = format!("field {:?} of sample {number} does not end in a NUL, in", field.name);
                        let error =
                            Error::new(ErrorKind::Corrupt, doing).with_file(self.files.path(FileId(file as u32)));
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

    /// The name of the file and the number of the sample in it: "train.beton#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, number) = self.locate(id);
        out.extend_from_slice(self.files.name(FileId(file as u32)));
        write!(out, "#{number}").expect("a Vec takes everything");
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn largest(&self, count: u64) -> u64 {
        if count >= self.len() {
            return self.bytes;
        }
        let mut largest = Largest::new(count);
        (0..self.len()).for_each(|id| largest.add(self.sample_bytes(SampleId(id)), 1));
        largest.sum()
    }

    /// FNV-1a over "beton", the fields, and names, sizes and numbers of samples of all files.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("beton");
            self.fields.fingerprint(&mut fingerprint);
            fingerprint.files(&self.files);
            self.ends.iter().for_each(|&end| fingerprint.number(end));
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        if let Shape::Fixed(shape) = &self.schema.fields[field].shape {
            return Some(shape.iter().product());
        }
        let (file, number) = self.locate(id);
        let descriptor = &self.fields.all[self.fields.of_column(field, &self.uniform)?];
        let (_, len) = self.tables[file].place(descriptor, number)?;
        Some(if descriptor.kind == Kind::Json { len.saturating_sub(1) } else { len })
    }

    /// The only field that is not a number, unless it is JSON, whose last byte is no part of the value.
    fn plain_field(&self) -> Option<usize> {
        let mut pointers = self.fields.all.iter().enumerate().filter(|(_, field)| field.kind.is_pointer());
        let (number, field) = pointers.next().filter(|(_, field)| field.kind != Kind::Json)?;
        debug_assert!(field.kind.is_pointer());
        // No field before it has more than one column.
        pointers.next().is_none().then_some(number)
    }

    /// Every file is a shard.
    fn shards(&self) -> &[u64] {
        &self.ends
    }
}

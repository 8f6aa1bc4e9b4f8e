//! Samples that the program's own index names: a file, an offset and a length for each.

use crate::dataset::{
    DType, Dataset, Field, FileId, Fingerprint, Index, Sample, SampleId, Schema, Shape, Span, Value, sizes,
};
use crate::find::absent::advised;
use crate::find::paths::{named_files, thread_count};
use bytes::Bytes;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use uringload_core::{Error, ErrorKind, Result};

/// Samples that the program's own index names: each is a range of bytes of a file, or a whole file.
///
/// ```
/// use std::sync::Arc;
/// use uringload_formats::{Dataset, KnownColumn, Ranges, WithColumns};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let blob = folder.path().join("all.blob");
/// std::fs::write(&blob, "catdogs")?;
/// let words = Ranges::new(&[&blob], vec![0, 0], vec![0, 3], vec![3, 4])?;
/// assert_eq!((words.len(), words.bytes()), (2, 7));
/// // With columns that the program has in memory.
/// let labelled = WithColumns::new(Arc::new(words), vec![KnownColumn::of_numbers("label", vec![0, 1])])?;
/// assert_eq!(labelled.schema().fields[1].name, "label");
///
/// let error = Ranges::new(&[&blob], vec![0], vec![5], vec![3]).unwrap_err();
/// assert!(error.to_string().contains("sample 0 ends at byte 8 of a file of 7 bytes"));
/// # Ok(())
/// # }
/// ```
///
/// It has one column, `data`: the bytes of the range. A sample's key is the name of its file, followed by the range if
/// it is not the whole file. Takes 20 bytes a sample, or none where each is a whole file.
#[derive(Debug)]
pub struct Ranges {
    index: Index,
    /// None: every file is a sample.
    places: Option<Places>,
    fingerprint: OnceLock<u64>,
}

#[derive(Debug)]
struct Places {
    files: Vec<u32>,
    offsets: Vec<u64>,
    lengths: Vec<u64>,
}

impl Ranges {
    /// Sample i is `lengths[i]` bytes at `offsets[i]` of file number `which[i]` of `files`. All ranges are compared
    /// with the sizes of their files here.
    ///
    /// # Errors
    /// - `Truncated`, with the sample, its file and its offset, for a range that leads outside its file.
    /// - `InvalidArgument` for a file number that `files` does not have, and for lists of different lengths.
    /// - `NotFound`, `PermissionDenied`, `WrongFileType` for a file that is not there or is none.
    /// - `Empty` without samples.
    pub fn new<P: AsRef<Path>>(files: &[P], which: Vec<u32>, offsets: Vec<u64>, lengths: Vec<u64>) -> Result<Ranges> {
        let samples = which.len();
        if offsets.len() != samples || lengths.len() != samples {
            let (offsets, lengths) = (offsets.len(), lengths.len());
            let what = format!("{samples} samples have files, {offsets} have offsets and {lengths} have lengths");
            return Err(refused(what, "give each sample a file, an offset and a length"));
        }
        let ranges = Ranges::of_files(files, samples as u64)?;
        let table = &ranges.index.files;
        let mut bytes = 0_u64;
        for (sample, ((&file, &offset), &length)) in which.iter().zip(&offsets).zip(&lengths).enumerate() {
            if file as usize >= table.len() {
                let what = format!("sample {sample} is in file {file}, and there are {}", table.len());
                return Err(refused(what, "count files from 0"));
            }
            let (file, end) = (FileId(file), offset.checked_add(length));
            if end.is_none_or(|end| end > table.size(file)) {
                let end = end.map_or("2^64 or more".into(), |end| end.to_string());
                let what = format!("sample {sample} ends at byte {end} of a file of {} bytes", table.size(file));
                return Err(Error::new(ErrorKind::Truncated, what)
                    .with_path(table.path(file))
                    .with_offset(offset)
                    .with_remedy("check offset and length of this sample, or fetch the file again"));
            }
            bytes = bytes.saturating_add(length);
        }
        let mut index = ranges.index;
        index.bytes = bytes;
        let places = Some(Places { files: which, offsets, lengths });
        Ok(Ranges { index, places, fingerprint: OnceLock::new() })
    }

    /// Every file is a sample, in this order. A file may come several times.
    ///
    /// # Errors
    /// As [`new`](Ranges::new).
    pub fn whole<P: AsRef<Path>>(files: &[P]) -> Result<Ranges> {
        Ranges::of_files(files, files.len() as u64)
    }

    fn of_files<P: AsRef<Path>>(files: &[P], samples: u64) -> Result<Ranges> {
        if samples == 0 {
            let error = Error::new(ErrorKind::Empty, "the index has no sample");
            return Err(error.with_remedy("give at least one sample"));
        }
        let files = named_files(files, thread_count(0)).map_err(advised)?;
        let field = Field { name: "data".into(), dtype: DType::U8, shape: Shape::Ragged };
        let mut index = Index::new("ranges", files, Schema { fields: vec![field] }, samples);
        index.bytes = sizes::sum(index.files.sizes().iter().copied());
        index.plain_field = Some(0);
        index.parse_reads_bytes = false;
        Ok(Ranges { index, places: None, fingerprint: OnceLock::new() })
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// `InvalidArgument`, with the sample's file and offset, for a length that is no multiple of the element's size.
    pub fn with_dtype(mut self, dtype: DType) -> Result<Ranges> {
        let odd =
            (0..self.len()).map(|id| (id, self.place(SampleId(id)))).find(|(_, span)| span.len % dtype.size() != 0);
        if let Some((sample, span)) = odd {
            let what = format!(
                "sample {sample} has {} bytes, not a multiple of the {} bytes of an element ({dtype})",
                span.len,
                dtype.size()
            );
            let error = refused(what, "check the element type and the lengths");
            return Err(error.with_path(self.index.files.path(span.file)).with_offset(span.offset));
        }
        self.index.schema.fields[0].dtype = dtype;
        Ok(self)
    }

    fn place(&self, id: SampleId) -> Span {
        // Fits: the lists are in memory, and a table has fewer than 2^32 files.
        let at = id.0 as usize;
        match &self.places {
            Some(Places { files, offsets, lengths }) => {
                Span { file: FileId(files[at]), offset: offsets[at], len: lengths[at] }
            }
            None => Span { file: FileId(at as u32), offset: 0, len: self.index.files.sizes()[at] },
        }
    }
}

impl Dataset for Ranges {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        out.push(self.place(id));
    }

    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.push(Value::Bytes(raw[0].clone()));
        Ok(())
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let Span { file, offset, len } = self.place(id);
        out.extend_from_slice(self.files().name(file));
        if self.places.is_some() && len != self.files().size(file) {
            out.extend_from_slice(format!("@{offset}+{len}").as_bytes());
        }
    }

    /// FNV-1a over "ranges", names and sizes of the files, each sample's file, offset and length unless every file is a
    /// sample, and the type of the elements.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("ranges");
            fingerprint.files(self.files());
            if let Some(Places { files, offsets, lengths }) = &self.places {
                for ((&file, &offset), &length) in files.iter().zip(offsets).zip(lengths) {
                    [file.into(), offset, length].into_iter().for_each(|number| fingerprint.number(number));
                }
            }
            fingerprint.bytes(self.schema().fields[0].dtype.name().as_bytes());
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, _field: usize) -> Option<u64> {
        Some(self.place(id).len / self.schema().fields[0].dtype.size())
    }
}

/// Samples without a byte or a column: what a program that makes its samples itself needs an order of.
#[derive(Debug)]
pub struct Numbers {
    index: Index,
    name: String,
}

impl Numbers {
    /// `samples` of them; `name` distinguishes one such dataset from another.
    ///
    /// # Errors
    /// `Empty` without samples.
    pub fn new(samples: u64, name: &str) -> Result<Arc<Numbers>> {
        if samples == 0 {
            let error = Error::new(ErrorKind::Empty, format!("{name} has no sample"));
            return Err(error.with_remedy("give a dataset with at least one sample"));
        }
        let index = Index::new("numbers", crate::dataset::FileTable::new(), Schema { fields: Vec::new() }, samples);
        Ok(Arc::new(Numbers { index, name: name.to_owned() }))
    }
}

impl Dataset for Numbers {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}

    fn parse(&self, _id: SampleId, _raw: &[Bytes], _out: &mut Sample) -> Result<()> {
        Ok(())
    }

    /// The sample's number.
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        out.extend_from_slice(id.0.to_string().as_bytes());
    }

    fn largest(&self, _count: u64) -> u64 {
        0
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new("numbers");
        fingerprint.bytes(self.name.as_bytes());
        fingerprint.number(self.index.samples);
        fingerprint.finish()
    }
}

fn refused(what: String, remedy: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}

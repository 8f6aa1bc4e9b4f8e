//! IDX, the format of MNIST: one array of numbers a file, and labels in a file beside it.
//!
//! Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "The IDX file format".

use crate::dataset::{
    DType, Dataset, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape, Span, Value,
};
use crate::find::paths::header_thread_count;
use crate::format::{Format, Paths, Shows};
use crate::formats::endian;
use crate::index::headers::{Source, head, map_files};
use crate::place::Place;
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

pub(crate) const FORMAT: Format = Format {
    name: "idx",
    help: "Arrays in MNIST's IDX format (NAME-images-idx3-ubyte), with the labels beside them.",
    options: &[],
    has_sidecars: false,
    shows: Shows::Names { called: has_idx_name, begins: is_idx },
    open: |paths, options| Ok(Arc::new(Idx::open(paths, options.common().threads)?)),
};

/// Bytes before the dimensions: two zeros, the type, the number of dimensions.
const MAGIC_BYTES: usize = 4;
/// Most dimensions of an array. The magic has room for 255; no writer uses more than 4.
const DIMENSIONS_MAX: u8 = 8;
/// What the name of a file of samples contains, and what the name of its labels has instead.
const LABELS_OF: [(&str, &str); 2] = [("images-idx3", "labels-idx1"), ("images.idx3", "labels.idx1")];
/// How names end: the number of dimensions comes before it.
const TYPE_NAMES: [&str; 6] = ["ubyte", "byte", "short", "int", "float", "double"];

/// Files of one array each; a row of the first dimension is a sample.
///
/// The column `data` has the type and the other dimensions of the arrays, which all files share. Numbers of several
/// bytes are big endian in the file and little endian in the sample.
///
/// If `NAME-labels-idx1-ubyte` accompanies `NAME-images-idx3-ubyte`, there is a column `label` of `I64`. Labels are
/// read when the dataset is opened: 8 bytes of memory a sample.
#[derive(Debug)]
struct Idx {
    /// Every file is a shard.
    index: Index,
    /// Offset of the first sample of each file.
    starts: Vec<u64>,
    sample_bytes: u64,
    labels: Option<Vec<i64>>,
    fingerprint: u64,
}

/// What a file says of its array.
#[derive(Debug)]
struct Header {
    dtype: DType,
    shape: Vec<u64>,
    /// Offset of the first number.
    start: u64,
}

impl Idx {
    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// `Empty` where there is no sample; `Corrupt` for a file that is not IDX; `Truncated` for one that is shorter
    /// than its header says; `InvalidArgument` where files differ in type or shape, or only some have labels.
    fn open(mut paths: Paths, threads: usize) -> Result<Idx> {
        let found = paths.files(threads)?;
        let threads = header_thread_count(threads);
        let labels: HashSet<Vec<u8>> = names(&found.files).filter_map(labels_of).collect();
        let found = found.only_shards(&paths, has_idx_name, |_| false, "no file has a name of IDX")?;
        let found = found.retain(|name| !labels.contains(name), |_| false);
        let files = found.files;
        let opened = map_files(0..files.len() as u32, threads, |file| {
            let source = Source::open(&files, file)?;
            Ok((Header::read(&source)?, read_labels(source.place())?))
        })?;
        let (mut starts, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
        let (mut all_labels, mut fingerprint) = (Vec::new(), Fingerprint::new("idx"));
        let Some((first, first_labels)) = opened.first() else {
            return Err(Error::new(ErrorKind::Empty, "no file has a sample").with_path(files.place()));
        };
        for ((header, labels), file) in opened.iter().zip(0..) {
            let refused = |what| {
                let error = Error::new(ErrorKind::InvalidArgument, what).with_path(files.path(FileId(file)));
                Err(error.with_remedy("name the files of one dataset, such as train-*"))
            };
            if (header.dtype, &header.shape[1..]) != (first.dtype, &first.shape[1..]) {
                return refused("the array has another type or shape than that of the first file");
            }
            match labels {
                Some(labels) if labels.len() as u64 != header.shape[0] => {
                    return refused("the file of labels has another number of them than there are samples");
                }
                _ if labels.is_some() != first_labels.is_some() => return refused("only some files have labels"),
                _ => all_labels.extend(labels.iter().flatten()),
            }
            // Fits: a sample has at least a byte of its file, and all files together have fewer than 2^64.
            end += header.shape[0];
            starts.push(header.start);
            ends.push(end);
        }
        if end == 0 {
            return Err(Error::new(ErrorKind::Empty, "no file has a sample").with_path(files.path(FileId(0))));
        }
        fingerprint.files(&files);
        all_labels.iter().for_each(|&label: &i64| fingerprint.number(label as u64));
        let (dtype, shape) = (first.dtype, first.shape[1..].to_vec());
        // Fits: the file has them.
        let sample_bytes = shape.iter().product::<u64>() * dtype.size();
        let mut fields = vec![Field { name: "data".into(), dtype, shape: Shape::Fixed(shape) }];
        if first_labels.is_some() {
            fields.push(Field { name: "label".into(), dtype: DType::I64, shape: Shape::Fixed(Vec::new()) });
        }
        let mut index = Index::new(FORMAT.name, files, Schema { fields }, end);
        index.bytes = end * sample_bytes;
        index.shards = ends;
        index.left_out = found.skips.into_vec();
        index.parse_reads_bytes = dtype.size() > 1;
        index.plain_field = (dtype.size() == 1).then_some(0);
        let labels = first_labels.is_some().then_some(all_labels);
        Ok(Idx { index, starts, sample_bytes, labels, fingerprint: fingerprint.finish() })
    }
}

impl Header {
    fn read(source: &Source) -> Result<Header> {
        let magic = source.bytes(0, MAGIC_BYTES, "the magic")?;
        let dtype = match magic[..] {
            [0, 0, 8, _] => DType::U8,
            [0, 0, 9, _] => DType::I8,
            [0, 0, 11, _] => DType::I16,
            [0, 0, 12, _] => DType::I32,
            [0, 0, 13, _] => DType::F32,
            [0, 0, 14, _] => DType::F64,
            _ => return Err(source.corrupt(0, format!("{magic:02x?} is no magic of IDX"))),
        };
        if !(1..=DIMENSIONS_MAX).contains(&magic[3]) {
            return Err(source.corrupt(3, format!("an array has 1 to {DIMENSIONS_MAX} dimensions, not {}", magic[3])));
        }
        let dimensions = source.bytes(MAGIC_BYTES as u64, 4 * usize::from(magic[3]), "the dimensions")?;
        let start = (MAGIC_BYTES + dimensions.len()) as u64;
        let shape: Vec<u64> = dimensions.as_chunks().0.iter().map(|&it| u32::from_be_bytes(it).into()).collect();
        let end = shape.iter().try_fold(dtype.size(), |bytes, &it| bytes.checked_mul(it));
        let Some(end) = end.and_then(|bytes| bytes.checked_add(start)).filter(|&end| end <= source.size()) else {
            return Err(source.truncated("the array"));
        };
        if shape[1..].contains(&0) {
            return Err(source.corrupt(MAGIC_BYTES as u64, format!("samples of shape {:?} are empty", &shape[1..])));
        }
        if end < source.size() {
            return Err(source.corrupt(end, format!("{} bytes follow the array", source.size() - end)));
        }
        Ok(Header { dtype, shape, start })
    }
}

fn names(files: &FileTable) -> impl Iterator<Item = &[u8]> {
    (0..files.len() as u32).map(|file| files.name(FileId(file)))
}

/// Whether a name ends as those of IDX: `idx3-ubyte`.
fn has_idx_name(name: &[u8]) -> bool {
    let Some(dash) = name.iter().rposition(|&byte| byte == b'-') else { return false };
    let is_type = TYPE_NAMES.iter().any(|known| known.as_bytes() == &name[dash + 1..]);
    is_type && matches!(name[..dash], [.., b'i', b'd', b'x', b'1'..=b'8'])
}

/// Whether a file is IDX by its first bytes.
fn is_idx(place: &Place) -> bool {
    matches!(head(place)[..], [0, 0, 8 | 9 | 11..=14, 1..=DIMENSIONS_MAX, ..])
}

/// The name of the file with the labels of samples in a file of this name.
fn labels_of(name: &[u8]) -> Option<Vec<u8>> {
    LABELS_OF.iter().find_map(|(samples, labels)| {
        let at = name.windows(samples.len()).rposition(|part| part == samples.as_bytes())?;
        Some([&name[..at], labels.as_bytes(), &name[at + samples.len()..]].concat())
    })
}

/// The labels that accompany a file of samples; `None` without any.
fn read_labels(samples: &Place) -> Result<Option<Vec<i64>>> {
    let labels = labels_of(samples.name()).map(|name| samples.beside(&name));
    let Some(labels) = labels.filter(Place::is_there) else { return Ok(None) };
    let source = labels.open()?;
    let header = Header::read(&source)?;
    if header.shape.len() != 1 || header.dtype != DType::U8 {
        let what = format!("labels are u8 of one dimension, and these are {} of {:?}", header.dtype, header.shape);
        return Err(source.corrupt(0, what));
    }
    // Fits: the header was held against the file's size.
    let bytes = source.bytes(header.start, header.shape[0] as usize, "the labels")?;
    Ok(Some(bytes.into_iter().map(i64::from).collect()))
}

impl Dataset for Idx {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, number) = crate::dataset::locate(&self.index.shards, id.0);
        let offset = self.starts[file] + number * self.sample_bytes;
        // Fits: a table has fewer than 2^32 files.
        out.push(Span { file: FileId(file as u32), offset, len: self.sample_bytes });
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let width = self.index.schema.fields[0].dtype.size() as usize;
        let data = if width == 1 { raw[0].clone() } else { endian::little(&raw[0], width) };
        out.values.push(Value::Bytes(data));
        out.values.extend(self.labels.iter().map(|labels| Value::I64(labels[id.0 as usize])));
        Ok(())
    }

    fn largest(&self, count: u64) -> u64 {
        count.min(self.index.samples).saturating_mul(self.sample_bytes)
    }

    /// FNV-1a over "idx", the names and sizes of the files of samples in order, and all labels.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

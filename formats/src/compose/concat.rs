//! Several datasets end to end as one.

use crate::dataset::{
    Check, DType, Dataset, Field, FileId, FileTable, Fingerprint, Index, Origin, SHARD_SAMPLES, Sample, SampleId,
    Schema, Shape, Span, UnitId, Units, Value, bytes_of_each, sizes,
};
use bytes::Bytes;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::{Arc, OnceLock};
use uringload_core::{Error, ErrorKind, Result};

/// Several datasets end to end: what a mixture is made of.
///
/// ```
/// use uringload_formats::{Concat, Dataset, Options, SampleId, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("web.txt"), "a\nb\nc\n")?;
/// std::fs::write(folder.path().join("books.txt"), "d\n")?;
/// let text = |name| open(&[folder.path().join(name)], &Options::new().format("text"));
/// let both = Concat::new(vec![text("web.txt")?, text("books.txt")?])?;
/// assert_eq!(both.len(), 4);
/// assert_eq!(both.locate(SampleId(3)), (1, SampleId(0)));
/// # Ok(())
/// # }
/// ```
///
/// All datasets must have columns of the same names and element types, in the same order. A column whose shapes differ
/// is ragged; but a scalar of integers and a vector cannot be one column.
///
/// Values are those of each dataset: label 0 of one folder and label 0 of another are two classes. To merge them, open
/// the folders together, which merges classes by name, and mix [`View`](super::View)s of the result.
///
/// A `Concat` copies the tables of files. It finds the dataset of a sample by binary search.
pub struct Concat {
    parts: Vec<Arc<dyn Dataset>>,
    /// Samples up to and with each part.
    ends: Vec<u64>,
    /// What number the first file of each part has here.
    first_files: Vec<u32>,
    /// What number the first unit of each part has here, and how many units there are.
    first_units: Vec<u32>,
    index: Index,
    fingerprint: OnceLock<u64>,
}

impl Concat {
    /// Puts the datasets end to end, in this order.
    ///
    /// # Errors
    /// `Empty` if they have no sample; `InvalidArgument` if their columns differ, or if they have more than 2^32 files
    /// or 2^64 samples together.
    pub fn new(parts: Vec<Arc<dyn Dataset>>) -> Result<Concat> {
        let schema = merged(&parts)?;
        let mut files = FileTable::new();
        files.reserve_exact(parts.iter().map(|part| part.files().len()).sum());
        let (mut ends, mut first_files) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        let mut end = 0_u64;
        for part in &parts {
            let root = || part.files().place();
            first_files.push(files.append(part.files()).ok_or_else(|| crate::dataset::too_many_files(root()))?);
            end = end.checked_add(part.len()).ok_or_else(|| {
                Error::new(ErrorKind::InvalidArgument, "the datasets have more than 2^64 samples").with_path(root())
            })?;
            ends.push(end);
        }
        if end == 0 {
            let what = format!("none of the {} datasets has a sample", parts.len());
            return Err(Error::new(ErrorKind::Empty, what).with_remedy("give at least one dataset with samples"));
        }
        let first_units = first_units(&parts)?;
        let first = parts[0].index();
        let format = if parts.iter().all(|part| part.format() == first.format) { first.format } else { "concat" };
        let mut index = Index::new(format, files, schema, end);
        index.bytes = sizes::sum(parts.iter().map(|part| part.bytes()));
        index.shards = shards(&parts);
        index.plain_field =
            first.plain_field.filter(|_| parts.iter().all(|part| part.index().plain_field == first.plain_field));
        // A column of numbers, which one dataset may know from its index, is read to find out.
        index.parse_reads_bytes = index.plain_field.is_none_or(|plain| is_index(&index.schema.fields[plain]))
            || parts.iter().any(|part| part.index().parse_reads_bytes);
        index.owns_values = parts.iter().all(|part| part.index().owns_values);
        // What all say of a column is true of it.
        if parts.iter().all(|part| part.index().encodings == first.encodings) {
            index.encodings.clone_from(&first.encodings);
        }
        let each = || parts.iter().map(|part| part.index());
        index.left_out = each().flat_map(|part| part.left_out.clone()).collect();
        index.fallbacks = each().flat_map(|part| part.fallbacks.clone()).collect();
        index.damage = each().flat_map(|part| part.damage.clone()).collect();
        Ok(Concat { parts, ends, first_files, first_units, index, fingerprint: OnceLock::new() })
    }

    /// The datasets.
    pub fn parts(&self) -> &[Arc<dyn Dataset>] {
        &self.parts
    }

    /// Where each dataset ends, in samples.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// Which dataset has the sample (an index into [`parts`](Concat::parts)), and the sample's number there.
    pub fn locate(&self, id: SampleId) -> (usize, SampleId) {
        let (part, number) = crate::dataset::locate(&self.ends, id.0);
        (part, SampleId(number))
    }

    /// The dataset that has the sample, and its number there.
    fn inner(&self, id: SampleId) -> (&dyn Dataset, SampleId) {
        let (part, id) = self.locate(id);
        (&*self.parts[part], id)
    }
}

/// The number of the first unit of each part, and the number of all units.
fn first_units(parts: &[Arc<dyn Dataset>]) -> Result<Vec<u32>> {
    let mut firsts = vec![0_u32];
    for part in parts {
        let count = part.units().map_or(0, Units::count);
        let end = firsts.last().and_then(|first| first.checked_add(count)).ok_or_else(|| {
            let what = "the datasets have more than 4294967295 units";
            Error::new(ErrorKind::InvalidArgument, what).with_remedy("mix fewer datasets")
        })?;
        firsts.push(end);
    }
    Ok(firsts)
}

/// The columns of all parts, which must agree. Paths within HDF5 files may differ in their groups.
fn merged(parts: &[Arc<dyn Dataset>]) -> Result<Schema> {
    let Some(first) = parts.first() else {
        let error = Error::new(ErrorKind::Empty, "no dataset was given");
        return Err(error.with_remedy("give at least one dataset with samples"));
    };
    let mut schema = first.schema().clone();
    for (number, part) in parts.iter().enumerate().skip(1) {
        let fields = &part.schema().fields;
        if fields.len() != schema.fields.len() {
            let what =
                format!("dataset 0 has the columns {}, and dataset {number} {}", names(&schema.fields), names(fields));
            return Err(differ(what));
        }
        for (field, other) in schema.fields.iter_mut().zip(fields) {
            let name = if field.name == other.name { None } else { joined(&field.name, &other.name) };
            let has_name = field.name == other.name || name.is_some();
            if !has_name || field.dtype != other.dtype || is_index(field) != is_index(other) {
                let what =
                    format!("dataset 0 has the column {}, and dataset {number} has {}", words(field), words(other));
                return Err(differ(what));
            }
            if let Some(name) = name {
                field.name = name;
            }
            if field.shape != other.shape {
                field.shape = Shape::Ragged;
            }
        }
    }
    let mut seen = HashSet::new();
    if let Some(twice) = schema.fields.iter().find(|field| !seen.insert(&*field.name)) {
        return Err(differ(format!("the datasets have several columns of the form {}", words(twice))));
    }
    Ok(schema)
}

/// What two names of columns have in common that are paths in HDF5 and differ in their groups alone: "data/*/actions".
fn joined(one: &str, other: &str) -> Option<String> {
    let (one, other): (Vec<&str>, Vec<&str>) = (one.split('/').collect(), other.split('/').collect());
    let is_form = one.len() == other.len() && one.len() > 1 && one.last() == other.last();
    let parts = one.iter().zip(&other).map(|(one, other)| if one == other { *one } else { "*" });
    is_form.then(|| parts.collect::<Vec<_>>().join("/"))
}

/// Whether values may come from the index: those are numbers and no bytes.
fn is_index(field: &Field) -> bool {
    field.dtype == DType::I64 && field.shape == Shape::Fixed(Vec::new())
}

fn differ(what: String) -> Error {
    let remedy = "combine datasets with the same columns; a folder's labels can be turned off";
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}

fn names(fields: &[Field]) -> String {
    let names: Vec<String> = fields.iter().map(|field| format!("{:?}", field.name)).collect();
    names.join(", ")
}

fn words(field: &Field) -> String {
    let shape = match &field.shape {
        Shape::Fixed(shape) => format!("of shape {shape:?}"),
        Shape::Ragged => "of any length".into(),
    };
    format!("{:?} of {} {shape}", field.name, field.dtype)
}

/// The shards of all parts; a part without is cut into pieces, unless none has any.
fn shards(parts: &[Arc<dyn Dataset>]) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut start = 0;
    if parts.iter().any(|part| !part.shards().is_empty()) {
        for part in parts {
            let len = part.len();
            match part.shards() {
                [] => ends.extend((0..len.div_ceil(SHARD_SAMPLES)).map(|n| start + len.min((n + 1) * SHARD_SAMPLES))),
                shards => ends.extend(shards.iter().map(|end| start + end)),
            }
            start += len;
        }
    }
    ends
}

impl Dataset for Concat {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (part, id) = self.locate(id);
        let first = out.len();
        self.parts[part].spans(id, out);
        for span in &mut out[first..] {
            span.file = FileId(self.first_files[part] + span.file.0);
        }
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let (dataset, id) = self.inner(id);
        dataset.parse(id, raw, out)?;
        // One dataset may know a number from its index and another one read it: a column is of one kind.
        for (value, field) in out.values.iter_mut().zip(&self.schema().fields) {
            if let Value::Bytes(bytes) = value
                && is_index(field)
                && let Ok(number) = bytes[..].try_into()
            {
                *value = Value::I64(i64::from_le_bytes(number));
            }
        }
        Ok(())
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (dataset, id) = self.inner(id);
        dataset.key(id, out);
    }

    fn units(&self) -> Option<&dyn Units> {
        self.parts.iter().any(|part| part.units().is_some()).then_some(self)
    }

    /// Exact. Unless all samples have as many bytes, it takes a look at each: what the datasets themselves say would be
    /// as much for each as if there were no other.
    fn largest(&self, count: u64) -> u64 {
        if count <= 1 {
            return self.parts.iter().map(|part| part.largest(count)).max().unwrap_or(0);
        }
        match bytes_of_each(self) {
            Some(each) => each.saturating_mul(count.min(self.len())),
            None if count >= self.len() => self.bytes(),
            None => {
                let of_parts =
                    self.parts.iter().flat_map(|part| sizes::bytes_of(|id, out| part.spans(id, out), 0..part.len()));
                sizes::sum_of_largest(of_parts, count)
            }
        }
    }

    /// FNV-1a over "concat", the number of datasets, and the number of samples and the fingerprint of each, in order.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("concat");
            fingerprint.number(self.parts.len() as u64);
            for part in &self.parts {
                fingerprint.number(part.len());
                fingerprint.number(part.fingerprint());
            }
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        let (dataset, id) = self.inner(id);
        dataset.length(id, field)
    }

    fn shape(&self, id: SampleId, field: usize) -> Option<&[u64]> {
        let (dataset, id) = self.inner(id);
        dataset.shape(id, field)
    }

    fn span_of(&self, id: SampleId, field: usize) -> Option<usize> {
        let (dataset, id) = self.inner(id);
        dataset.span_of(id, field)
    }

    fn is_plain(&self) -> bool {
        self.parts.iter().all(|part| part.is_plain())
    }

    fn has_field(&self, id: SampleId, field: usize) -> bool {
        let (dataset, id) = self.inner(id);
        dataset.has_field(id, field)
    }

    /// That of the dataset that has the sample, among its own classes.
    fn label(&self, id: SampleId) -> Option<(i64, &OsStr)> {
        let (dataset, id) = self.inner(id);
        dataset.label(id)
    }

    fn widening(&self, field: usize) -> u64 {
        self.parts.iter().map(|part| part.widening(field)).max().unwrap_or(1)
    }

    fn checks(&self, file: FileId, out: &mut Vec<Check>) -> Result<()> {
        let part = self.first_files.partition_point(|&first| first <= file.0) - 1;
        let (first, own) = (self.first_files[part], out.len());
        self.parts[part].checks(FileId(file.0 - first), out)?;
        out[own..].iter_mut().for_each(|check| check.span.file.0 += first);
        Ok(())
    }

    fn faults(&self) -> Vec<Error> {
        self.parts.iter().flat_map(|part| part.faults()).collect()
    }

    fn origin(&self, id: SampleId) -> Origin {
        let (dataset, id) = self.inner(id);
        dataset.origin(id)
    }
}

impl Concat {
    /// The units of the dataset that has the unit, and its number there.
    fn inner_unit(&self, unit: UnitId) -> (usize, &dyn Units, UnitId) {
        let part = self.first_units.partition_point(|&first| first <= unit.0) - 1;
        let units = self.parts[part].units().expect("numbers of units were given to parts that have some");
        (part, units, UnitId(unit.0 - self.first_units[part]))
    }

    fn all_units(&self) -> impl Iterator<Item = &dyn Units> {
        self.parts.iter().filter_map(|part| part.units())
    }
}

impl Units for Concat {
    fn count(&self) -> u32 {
        self.first_units.last().copied().unwrap_or(0)
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        let (part, id) = self.locate(id);
        let Some(units) = self.parts[part].units() else { return };
        let first = out.len();
        units.of(id, out);
        out[first..].iter_mut().for_each(|unit| unit.0 += self.first_units[part]);
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let (part, units, unit) = self.inner_unit(unit);
        let first = out.len();
        units.stored(unit, out);
        out[first..].iter_mut().for_each(|span| span.file.0 += self.first_files[part]);
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        let (_, units, unit) = self.inner_unit(unit);
        units.decoded_bytes(unit)
    }

    fn largest_decoded(&self) -> u64 {
        self.all_units().map(Units::largest_decoded).max().unwrap_or(0)
    }

    fn largest_stored(&self) -> u64 {
        self.all_units().map(Units::largest_stored).max().unwrap_or(0)
    }

    fn largest_scratch(&self) -> u64 {
        self.all_units().map(Units::largest_scratch).max().unwrap_or(0)
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let (_, units, unit) = self.inner_unit(unit);
        units.decode(unit, stored, out)
    }
}

impl std::fmt::Debug for Concat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Concat").field("format", &self.index.format).field("ends", &self.ends).finish_non_exhaustive()
    }
}

//! Columns that the program has in memory, in addition to those that are read: labels, captions, boxes.

use crate::dataset::{
    Check, DType, Dataset, Encoding, Field, FileId, Fingerprint, Index, Origin, Sample, SampleId, Shape, Span, Units,
    Value,
};
use bytes::Bytes;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, OnceLock};
use uringload_core::{Error, ErrorKind, Result};

/// A column in memory: one value for each sample of a dataset.
///
/// See [`WithColumns`].
#[derive(Clone, Debug)]
pub struct KnownColumn {
    field: Field,
    encoding: Encoding,
    values: Values,
    /// Names of the classes, if the values are labels.
    classes: Vec<OsString>,
}

#[derive(Clone, Debug)]
enum Values {
    Numbers(Vec<i64>),
    /// Values of this many bytes each, end to end.
    Fixed(Bytes, u64),
    /// Values end to end, and where each ends.
    Ragged(Bytes, Vec<u64>),
}

impl KnownColumn {
    /// One 64-bit integer a sample.
    pub fn of_numbers(name: impl Into<String>, numbers: Vec<i64>) -> KnownColumn {
        let field = Field { name: name.into(), dtype: DType::I64, shape: Shape::Fixed(Vec::new()) };
        KnownColumn { field, encoding: Encoding::raw("int"), values: Values::Numbers(numbers), classes: Vec::new() }
    }

    /// One class a sample: 64-bit integers that are positions in `classes`.
    ///
    /// # Errors
    /// `InvalidArgument` for a label that is no position in `classes`.
    pub fn of_classes(name: impl Into<String>, labels: Vec<i64>, classes: Vec<OsString>) -> Result<KnownColumn> {
        let name = name.into();
        let odd = |label: &i64| usize::try_from(*label).map_or(true, |label| label >= classes.len());
        if let Some(sample) = labels.iter().position(odd) {
            let what =
                format!("sample {sample} has {name} {}, and there are {} classes", labels[sample], classes.len());
            return Err(refused(what, "give labels from 0 on, or name all classes"));
        }
        Ok(KnownColumn { classes, ..KnownColumn::of_numbers(name, labels) })
    }

    /// Values of one type and shape, end to end in little endian.
    ///
    /// # Errors
    /// `InvalidArgument` where `bytes` are no whole number of values.
    pub fn of_bytes(name: impl Into<String>, dtype: DType, shape: Vec<u64>, bytes: Bytes) -> Result<KnownColumn> {
        let name = name.into();
        let each = shape.iter().try_fold(dtype.size(), |size, &dimension| size.checked_mul(dimension));
        let Some(each) = each.filter(|&each| each > 0 && (bytes.len() as u64).is_multiple_of(each)) else {
            let what =
                format!("column {name:?} has {} bytes, no whole number of {dtype} of shape {shape:?}", bytes.len());
            return Err(refused(what, "give one value of this type and shape for each sample"));
        };
        if dtype == DType::I64 && shape.is_empty() {
            let numbers = bytes.as_chunks().0.iter().map(|&number| i64::from_le_bytes(number)).collect();
            return Ok(KnownColumn::of_numbers(name, numbers));
        }
        let field = Field { name, dtype, shape: Shape::Fixed(shape) };
        let encoding = Encoding::raw(dtype.name());
        Ok(KnownColumn { field, encoding, values: Values::Fixed(bytes, each), classes: Vec::new() })
    }

    /// One text a sample.
    pub fn of_texts<T: AsRef<str>>(name: impl Into<String>, texts: impl IntoIterator<Item = T>) -> KnownColumn {
        let (mut values, mut ends) = (Vec::new(), Vec::new());
        for text in texts {
            values.extend_from_slice(text.as_ref().as_bytes());
            ends.push(values.len() as u64);
        }
        let field = Field { name: name.into(), dtype: DType::U8, shape: Shape::Ragged };
        let values = Values::Ragged(values.into(), ends);
        KnownColumn { field, encoding: Encoding::text("text"), values, classes: Vec::new() }
    }

    /// A vector of its own length a sample: `lengths` has the number of elements of each, and `bytes` the elements of
    /// all, end to end in little endian.
    ///
    /// # Errors
    /// `InvalidArgument` where `bytes` are more or fewer elements than `lengths` says.
    pub fn of_vectors(name: impl Into<String>, dtype: DType, lengths: &[u64], bytes: Bytes) -> Result<KnownColumn> {
        let name = name.into();
        let ends = lengths.iter().scan(0_u64, |end, &length| {
            *end = end.saturating_add(length.saturating_mul(dtype.size()));
            Some(*end)
        });
        let ends: Vec<u64> = ends.collect();
        if ends.last().copied().unwrap_or_default() != bytes.len() as u64 {
            let what = format!("column {name:?} has {} bytes, and not as many {dtype} as its lengths say", bytes.len());
            return Err(refused(what, "give the elements of all samples"));
        }
        let field = Field { name, dtype, shape: Shape::Ragged };
        let encoding = Encoding::raw(dtype.name());
        Ok(KnownColumn { field, encoding, values: Values::Ragged(bytes, ends), classes: Vec::new() })
    }

    /// The same column, whose numbers are positions in these classes.
    pub(crate) fn with_classes(self, classes: Vec<OsString>) -> KnownColumn {
        KnownColumn { classes, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.field.name
    }

    fn samples(&self) -> u64 {
        match &self.values {
            Values::Numbers(numbers) => numbers.len() as u64,
            Values::Fixed(bytes, each) => bytes.len() as u64 / each,
            Values::Ragged(_, ends) => ends.len() as u64,
        }
    }

    /// The place of a sample's bytes; none for numbers.
    fn bytes(&self, id: SampleId) -> &[u8] {
        // Fits: all of it is in memory.
        let at = id.0 as usize;
        match &self.values {
            Values::Numbers(_) => &[],
            Values::Fixed(bytes, each) => &bytes[at * *each as usize..(at + 1) * *each as usize],
            Values::Ragged(bytes, ends) => {
                let start = if at == 0 { 0 } else { ends[at - 1] };
                &bytes[start as usize..ends[at] as usize]
            }
        }
    }

    fn value(&self, id: SampleId) -> Value {
        match &self.values {
            Values::Numbers(numbers) => Value::I64(numbers[id.0 as usize]),
            // A copy, so that the holder of the batch may write to it.
            _ => Value::Bytes(Bytes::copy_from_slice(self.bytes(id))),
        }
    }

    fn add_to(&self, fingerprint: &mut Fingerprint) {
        fingerprint.bytes(self.field.name.as_bytes());
        fingerprint.bytes(self.field.dtype.name().as_bytes());
        match &self.values {
            Values::Numbers(numbers) => numbers.iter().for_each(|&number| fingerprint.number(number.cast_unsigned())),
            Values::Fixed(bytes, each) => {
                fingerprint.number(*each);
                fingerprint.bytes(bytes);
            }
            Values::Ragged(bytes, ends) => {
                ends.iter().for_each(|&end| fingerprint.number(end));
                fingerprint.bytes(bytes);
            }
        }
    }
}

/// A dataset with more columns, whose values the program has in memory.
///
/// ```
/// use uringload_formats::{Dataset, KnownColumn, Options, WithColumns, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// (0..3).for_each(|n| std::fs::write(folder.path().join(format!("{n}.jpg")), "a photo").unwrap());
/// let photos = open(&[folder.path()], &Options::new())?;
/// let scores = KnownColumn::of_numbers("score", vec![5, 3, 4]);
/// let captions = KnownColumn::of_texts("caption", ["a cat", "a dog", "rain"]);
/// let captioned = WithColumns::new(photos, vec![scores, captions])?;
/// assert_eq!(captioned.schema().fields.len(), 3);
/// # Ok(())
/// # }
/// ```
pub struct WithColumns {
    dataset: Arc<dyn Dataset>,
    columns: Vec<KnownColumn>,
    index: Index,
    fingerprint: OnceLock<u64>,
}

impl WithColumns {
    /// Adds the columns after those of the dataset. If one has classes, they become those of the dataset.
    ///
    /// # Errors
    /// `InvalidArgument` for a column with more or fewer values than the dataset has samples, and for a name that is
    /// taken.
    pub fn new(dataset: Arc<dyn Dataset>, columns: Vec<KnownColumn>) -> Result<WithColumns> {
        let mut index = dataset.index().clone();
        if index.encodings.is_empty() {
            index.encodings = index.schema.fields.iter().map(|field| Encoding::raw(field.dtype.name())).collect();
        }
        for column in &columns {
            let (name, values) = (column.name(), column.samples());
            if values != index.samples {
                let what =
                    format!("column {name:?} has {values} values, and the dataset has {} samples", index.samples);
                return Err(refused(what, "give one value for each sample"));
            }
            if index.schema.fields.iter().any(|field| field.name == name) {
                return Err(refused(format!("there is a column {name:?} already"), "give it another name"));
            }
            index.schema.fields.push(column.field.clone());
            index.encodings.push(column.encoding.clone());
            if !index.lacking.is_empty() {
                index.lacking.push(0);
            }
            if !column.classes.is_empty() {
                index.classes.clone_from(&column.classes);
            }
            if !matches!(column.values, Values::Numbers(_)) {
                // Their bytes are in no block that was read, so they are gathered like those of any table.
                index.plain_field = None;
                index.parse_reads_bytes = true;
            }
        }
        Ok(WithColumns { dataset, columns, index, fingerprint: OnceLock::new() })
    }

    /// Counts what was left out on the way here.
    pub(crate) fn leaving_out(mut self, left_out: Vec<crate::dataset::Skipped>) -> WithColumns {
        self.index.left_out.extend(left_out);
        self
    }

    /// The column of field number `field`, unless it is one of the dataset's own.
    fn known(&self, field: usize) -> Option<&KnownColumn> {
        field.checked_sub(self.dataset.schema().fields.len()).map(|column| &self.columns[column])
    }
}

impl Dataset for WithColumns {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        self.dataset.spans(id, out);
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        self.dataset.parse(id, raw, out)?;
        out.values.extend(self.columns.iter().map(|column| column.value(id)));
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.dataset.bytes()
    }

    fn units(&self) -> Option<&dyn Units> {
        self.dataset.units()
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        self.dataset.key(id, out);
    }

    fn largest(&self, count: u64) -> u64 {
        self.dataset.largest(count)
    }

    /// FNV-1a over "columns", the dataset's fingerprint, and name, type and values of each column.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("columns");
            fingerprint.number(self.dataset.fingerprint());
            self.columns.iter().for_each(|column| column.add_to(&mut fingerprint));
            fingerprint.finish()
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        let Some(column) = self.known(field) else { return self.dataset.length(id, field) };
        Some(match &column.field.shape {
            Shape::Fixed(shape) => shape.iter().product(),
            Shape::Ragged => column.bytes(id).len() as u64 / column.field.dtype.size(),
        })
    }

    fn shape(&self, id: SampleId, field: usize) -> Option<&[u64]> {
        match self.known(field) {
            None => self.dataset.shape(id, field),
            Some(column) => match &column.field.shape {
                Shape::Fixed(shape) => Some(shape),
                Shape::Ragged => None,
            },
        }
    }

    fn span_of(&self, id: SampleId, field: usize) -> Option<usize> {
        if self.known(field).is_some() { None } else { self.dataset.span_of(id, field) }
    }

    fn widening(&self, field: usize) -> u64 {
        if self.known(field).is_some() { 1 } else { self.dataset.widening(field) }
    }

    fn has_field(&self, id: SampleId, field: usize) -> bool {
        self.known(field).is_some() || self.dataset.has_field(id, field)
    }

    fn label(&self, id: SampleId) -> Option<(i64, &OsStr)> {
        match self.columns.iter().rfind(|column| !column.classes.is_empty()) {
            None => self.dataset.label(id),
            Some(KnownColumn { values: Values::Numbers(numbers), classes, .. }) => {
                let label = numbers[id.0 as usize];
                Some((label, &classes[usize::try_from(label).ok()?]))
            }
            Some(_) => None,
        }
    }

    fn checks(&self, file: FileId, out: &mut Vec<Check>) -> Result<()> {
        self.dataset.checks(file, out)
    }

    fn faults(&self) -> Vec<Error> {
        self.dataset.faults()
    }

    fn origin(&self, id: SampleId) -> Origin {
        self.dataset.origin(id)
    }
}

impl std::fmt::Debug for WithColumns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(KnownColumn::name).collect();
        f.debug_struct("WithColumns").field("format", &self.format()).field("columns", &names).finish_non_exhaustive()
    }
}

fn refused(what: String, remedy: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}

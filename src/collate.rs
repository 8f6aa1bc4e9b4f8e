//! The form of each column. A configuration requests a [`Collate`] for some or all columns. Once checked against the
//! dataset's schema it becomes a [`Collation`], which also knows how much memory the columns take.

mod pad;

use crate::config::{Batching, Collate, Config, Packing, Padding};
use crate::dataset::{Dataset, Field, SampleId, Shape, Span};
use crate::sampler::row_field;
use crate::transform::Map;
use crate::{Error, ErrorKind, Result};
use std::collections::HashSet;

pub use pad::Pad;

/// Alignment of gathered columns: a cache line, which is more than any vector instruction needs.
pub const COLUMN_ALIGNMENT: u64 = 64;

/// Name of the key column.
pub const KEY_COLUMN: &str = "key";

/// Name of the column of dataset indices.
pub const INDEX_COLUMN: &str = "index";

/// The form of every column of a batch. The default is for a dataset whose columns are all views.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collation {
    /// One per field of the schema.
    forms: Vec<Form>,
    plain_field: Option<usize>,
    key: bool,
    index: bool,
    /// Values are assembled elsewhere, on a device.
    deferred: bool,
    /// The fields that the loader's threads turn into something else, and the results.
    mapped: Vec<(usize, Field)>,
}

/// The form of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One slice per sample.
    Views,
    /// Values of `value_bytes` bytes each, end to end.
    Dense { value_bytes: u64 },
    /// Values end to end, with offsets.
    Ragged { element_bytes: u64 },
    /// Values padded to one length.
    Padded(Padded),
    /// Pieces, end to end in rows.
    Packed { seq_len: u64, pad: Pad },
    /// Values that the loader's threads make, of up to `value_bytes` bytes each: dense if all have that many, ragged
    /// otherwise.
    Mapped { value_bytes: u64, is_dense: bool },
}

/// How to pad values of different lengths to one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Padded {
    pub(crate) pad: Pad,
    /// Longest value, in elements.
    pub(crate) max_length: u64,
    multiple_of: u64,
}

impl Padded {
    /// The padded length, in elements, if the longest value has `longest`.
    pub(crate) fn length(&self, longest: u64) -> u64 {
        longest.min(self.max_length).checked_next_multiple_of(self.multiple_of).unwrap_or(u64::MAX)
    }

    /// Bytes of a value padded to that length.
    fn bytes(&self, longest: u64) -> u64 {
        self.length(longest).saturating_mul(self.pad.size())
    }
}

/// Where the values of a batch end up end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Nowhere: every value stays where it was read.
    Nowhere,
    /// In the block that they are read into, in batch order.
    InPlace,
    /// In a block of their own.
    Target,
}

impl Collation {
    /// Checks what `config` requests against `dataset`.
    ///
    /// A form requested for all columns applies to those that it fits: columns of one shape have neither lengths nor
    /// padding, so they are dense if all columns should be ragged or padded. A form requested for one column by name
    /// applies or is refused. Columns whose values come from the index ([`Value::I64`](crate::dataset::Value::I64)) are
    /// integers in any form.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that does not exist or is named twice, a form that its shape does not allow, a
    /// padding value that its type cannot hold, a length or a multiple of 0, and a key or index column whose name the
    /// dataset already uses.
    pub fn new(config: &Config, dataset: &dyn Dataset) -> Result<Collation> {
        Collation::with_maps(config, dataset, &[])
    }

    /// As [`new`](Collation::new), if the loader's threads turn the columns of `maps` into something else.
    ///
    /// # Errors
    /// As `new`. Also for a column of `maps` that does not exist, is named twice or is packed, and for a form that its
    /// result cannot have.
    pub(crate) fn with_maps(config: &Config, dataset: &dyn Dataset, maps: &[(String, Map)]) -> Result<Collation> {
        let fields = &dataset.schema().fields;
        check_names(config, fields)?;
        // Bytes cut from a unit are shared with other batches and must not be moved.
        let plain_field = dataset.index().plain_field.filter(|_| dataset.units().is_none());
        let packing = match &config.batching {
            Batching::Packed(packing) => Some((packed_field(dataset)?, packing)),
            _ => None,
        };
        let mut forms = Vec::with_capacity(fields.len());
        for (index, field) in fields.iter().enumerate() {
            let named =
                config.collate_columns.iter().find(|(name, _)| *name == field.name).map(|(_, collate)| *collate);
            forms.push(match packing {
                Some((packed, packing)) if packed == index => packed_form(field, named, packing, config.batch_size)?,
                // Its stored form is not a column.
                _ if maps.iter().any(|(name, _)| *name == field.name) => Form::Views,
                _ => form(field, named, config.collate)?,
            });
        }
        if config.index && i64::try_from(dataset.len()).is_err() {
            return Err(refused("the dataset has more samples than an index column can number", "go without it"));
        }
        let (key, index) = (config.key, config.index);
        let collation = Collation { forms, plain_field, key, index, deferred: false, mapped: Vec::new() };
        collation.mapped(config, fields, maps)
    }

    /// Gives the columns of `maps` the form of their results.
    fn mapped(mut self, config: &Config, fields: &[Field], maps: &[(String, Map)]) -> Result<Collation> {
        for (name, map) in maps {
            let Some(index) = fields.iter().position(|field| field.name == *name) else {
                return Err(no_column("a transform", name, fields));
            };
            if self.mapped.iter().any(|(other, _)| *other == index) {
                return Err(refused(format!("column {name:?} is given two transforms"), "give one"));
            }
            if matches!(self.forms[index], Form::Packed { .. }) {
                let what = format!("column {name:?} is packed and cannot be transformed");
                return Err(refused(what, "leave it out, or batch by samples"));
            }
            let field = map.output().field(name);
            let named = config.collate_columns.iter().find(|(other, _)| other == name).map(|(_, collate)| *collate);
            let is_dense = matches!(field.shape, Shape::Fixed(_));
            let fits = match named {
                None | Some(Collate::Auto) => true,
                Some(Collate::Dense) => is_dense,
                Some(Collate::Ragged) => !is_dense,
                Some(Collate::Padded(_) | Collate::Views) => false,
            };
            if !fits {
                let form = if is_dense { "dense" } else { "ragged" };
                let what = format!("what column {name:?} is transformed to is {form} and cannot have another form");
                return Err(refused(what, "leave the form out"));
            }
            self.forms[index] = Form::Mapped { value_bytes: map.output().bytes(), is_dense };
            self.mapped.push((index, field));
        }
        self.mapped.sort_unstable_by_key(|(index, _)| *index);
        Ok(self)
    }

    /// The fields that the loader's threads turn into something else, in the order of the schema, and the results.
    pub(crate) fn mapped_fields(&self) -> &[(usize, Field)] {
        &self.mapped
    }

    /// The result for a column of the schema.
    pub(crate) fn made_of<'a>(&'a self, index: usize, field: &'a Field) -> &'a Field {
        self.mapped.iter().find(|(other, _)| *other == index).map_or(field, |(_, made)| made)
    }

    /// The same forms, for columns whose values are assembled elsewhere: only results of the loader's threads are
    /// gathered on the host.
    #[must_use]
    pub(crate) fn deferred(self) -> Collation {
        Collation { deferred: true, ..self }
    }

    /// Whether values are assembled elsewhere.
    pub(crate) fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// Whether any column has views of what was read.
    pub(crate) fn keeps_views(&self) -> bool {
        self.forms.contains(&Form::Views)
    }

    /// One form per field of the schema.
    pub(crate) fn forms(&self) -> &[Form] {
        &self.forms
    }

    /// The field that rows are made of, if sequences are packed.
    pub(crate) fn packed_field(&self) -> Option<usize> {
        self.forms.iter().position(|form| matches!(form, Form::Packed { .. }))
    }

    /// Whether there is a key column.
    pub(crate) fn has_key(&self) -> bool {
        self.key
    }

    /// Whether there is a column of dataset indices.
    pub(crate) fn has_index(&self) -> bool {
        self.index
    }

    /// Where values are brought end to end. In place works if the bytes that are read are the values of one column and
    /// nothing else, and are read in batch order. Coalescing over a gap does not keep that order.
    pub fn gather(&self, coalesce_gap: u64) -> Gather {
        let form = |field: usize| self.forms.get(field).copied().unwrap_or(Form::Views);
        match self.plain_field.map(form) {
            // Results of the loader's threads are on the host first.
            _ if !self.mapped.is_empty() => Gather::Target,
            _ if self.deferred => Gather::Nowhere,
            Some(Form::Views) => Gather::Nowhere,
            Some(Form::Dense { .. } | Form::Ragged { .. }) if coalesce_gap == 0 => Gather::InPlace,
            None if self.forms.iter().all(|form| *form == Form::Views) => Gather::Nowhere,
            _ => Gather::Target,
        }
    }

    /// Bytes of a sample's value, if a batch is one column of values of one length, and each value is exactly its
    /// sample's bytes, so that nothing needs to be parsed.
    pub(crate) fn plain_value_bytes(&self, dataset: &dyn Dataset) -> Option<u64> {
        match (self.plain_field, &self.forms[..]) {
            (Some(0), [Form::Dense { value_bytes }]) if !self.deferred && dataset.is_plain() => Some(*value_bytes),
            _ => None,
        }
    }

    /// Whether values that are read one after another, in multiples of `sector` bytes, already form a tensor.
    pub(crate) fn lies_end_to_end(&self, sector: u64) -> bool {
        match self.plain_field.and_then(|field| self.forms.get(field)) {
            // For a device's copy it does not matter where they are.
            _ if self.deferred => false,
            Some(Form::Dense { value_bytes }) => value_bytes.is_multiple_of(sector),
            _ => false,
        }
    }

    /// Bytes of a batch's gathered columns. Its samples `ids` have `spans` (those of sample i end at `ends[i]`), in
    /// `rows` rows. Excludes what a value has beyond its spans or beyond the length in the index. Also excludes values
    /// of varying length if samples are cut from units, since they may be as long as a unit.
    pub(crate) fn target_bytes(
        &self,
        dataset: &dyn Dataset,
        ids: &[SampleId],
        spans: &[Span],
        ends: &[u32],
        rows: u64,
    ) -> u64 {
        let samples = ids.len() as u64;
        let has_units = dataset.units().is_some();
        let span_bytes = |index: usize| {
            let start = if index == 0 { 0 } else { ends[index - 1] as usize };
            spans[start..ends[index] as usize].iter().fold(0, |sum: u64, span| sum.saturating_add(span.len))
        };
        let elements = |field: usize, size: u64| {
            ids.iter().enumerate().map(move |(index, &id)| {
                let most = span_bytes(index) / size;
                dataset.length(id, field).map_or(most, |length| length.min(most))
            })
        };
        let column = |(field, form): (usize, &Form)| match *form {
            Form::Views => 0,
            Form::Mapped { value_bytes, .. } => samples.saturating_mul(value_bytes),
            _ if self.deferred => 0,
            Form::Dense { value_bytes } => samples.saturating_mul(value_bytes),
            Form::Ragged { .. } | Form::Padded(_) if has_units => 0,
            Form::Ragged { element_bytes } => elements(field, element_bytes)
                .fold(0, |sum: u64, length| sum.saturating_add(length.saturating_mul(element_bytes))),
            Form::Padded(padded) => {
                let longest = elements(field, padded.pad.size()).max().unwrap_or(0);
                samples.saturating_mul(padded.bytes(longest))
            }
            Form::Packed { seq_len, pad } => rows.saturating_mul(seq_len.saturating_mul(pad.size())),
        };
        aligned_sum(self.forms.iter().enumerate().map(column))
    }

    /// An upper bound of [`target_bytes`](Collation::target_bytes) for any `samples` samples in `rows` rows. 0 if
    /// nothing is gathered into a block of its own.
    pub(crate) fn target_bound(&self, dataset: &dyn Dataset, coalesce_gap: u64, samples: u64, rows: u64) -> u64 {
        if self.gather(coalesce_gap) != Gather::Target {
            return 0;
        }
        let has_units = dataset.units().is_some();
        let column = |form: &Form| match *form {
            Form::Views => 0,
            Form::Mapped { value_bytes, .. } => samples.saturating_mul(value_bytes),
            _ if self.deferred => 0,
            Form::Dense { value_bytes } => samples.saturating_mul(value_bytes),
            Form::Ragged { .. } | Form::Padded(_) if has_units => 0,
            Form::Ragged { .. } => dataset.largest(samples),
            Form::Padded(padded) => samples.saturating_mul(padded.bytes(dataset.largest(1) / padded.pad.size())),
            Form::Packed { seq_len, pad } => rows.saturating_mul(seq_len.saturating_mul(pad.size())),
        };
        aligned_sum(self.forms.iter().map(column))
    }

    /// Upper bound of the bytes of each field's column in a batch of `samples` samples in `rows` rows; 0 for views.
    /// Excludes ragged values that are cut from units.
    pub(crate) fn column_bounds(&self, dataset: &dyn Dataset, samples: u64, rows: u64) -> Vec<u64> {
        let column = |(field, form): (usize, &Form)| match *form {
            Form::Views => 0,
            Form::Dense { value_bytes } | Form::Mapped { value_bytes, .. } => samples.saturating_mul(value_bytes),
            Form::Ragged { .. } => dataset.largest(samples).saturating_mul(dataset.widening(field)),
            Form::Padded(padded) => {
                samples.saturating_mul(padded.bytes(longest_value(dataset, field) / padded.pad.size()))
            }
            Form::Packed { seq_len, pad } => rows.saturating_mul(seq_len.saturating_mul(pad.size())),
        };
        self.forms.iter().enumerate().map(column).collect()
    }

    /// Whether a column may be as long as the longest value of the dataset, so that a limit would save memory.
    pub(crate) fn is_padded_without_bound(&self) -> bool {
        self.forms.iter().any(|form| matches!(form, Form::Padded(padded) if padded.max_length == u64::MAX))
    }
}

/// Upper bound of the bytes of a field's longest value.
pub(crate) fn longest_value(dataset: &dyn Dataset, field: usize) -> u64 {
    let decoded = dataset.units().map_or(0, |units| units.largest_decoded());
    dataset.largest(1).max(decoded).saturating_mul(dataset.widening(field))
}

/// Total bytes of columns with these sizes, each of them aligned.
fn aligned_sum(columns: impl Iterator<Item = u64>) -> u64 {
    let aligned = |bytes: u64| bytes.checked_next_multiple_of(COLUMN_ALIGNMENT).unwrap_or(u64::MAX);
    columns.fold(0, |sum: u64, bytes| sum.saturating_add(aligned(bytes)))
}

fn packed_field(dataset: &dyn Dataset) -> Result<usize> {
    row_field(dataset).ok_or_else(|| {
        refused("there is no column of sequences to pack: all columns have one shape", "batch by samples")
    })
}

fn check_names(config: &Config, fields: &[Field]) -> Result<()> {
    let mut names = HashSet::new();
    if let Some(field) = fields.iter().find(|field| !names.insert(&*field.name)) {
        let what = format!("the dataset has two columns {:?}, and a batch finds its columns by name", field.name);
        return Err(refused(what, "give each a name of its own"));
    }
    for (index, (name, _)) in config.collate_columns.iter().enumerate() {
        if !fields.iter().any(|field| field.name == *name) {
            return Err(no_column("a form", name, fields));
        }
        if config.collate_columns[..index].iter().any(|(other, _)| other == name) {
            return Err(refused(format!("column {name:?} is given two forms"), "name it once"));
        }
    }
    for (asked, name) in [(config.key, KEY_COLUMN), (config.index, INDEX_COLUMN)] {
        if asked && fields.iter().any(|field| field.name == name) {
            let what = format!("cannot add a column {name:?}: the dataset has one of that name");
            return Err(refused(what, format!("go without {name}_column: `Batch::ids` has the samples' numbers")));
        }
    }
    Ok(())
}

fn no_column(what: &str, name: &str, fields: &[Field]) -> Error {
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let remedy = format!("choose from the columns {}", names.join(", "));
    refused(format!("{what} is given for {name:?}, which is no column"), remedy)
}

/// The form of a column: `named` if requested by name, otherwise `default` as for all others.
fn form(field: &Field, named: Option<Collate>, default: Collate) -> Result<Form> {
    let collate = named.unwrap_or(default);
    let element_bytes = field.dtype.size();
    match (&field.shape, collate) {
        (_, Collate::Views) | (Shape::Ragged, Collate::Auto) => Ok(Form::Views),
        (Shape::Ragged, Collate::Ragged) => Ok(Form::Ragged { element_bytes }),
        (Shape::Ragged, Collate::Padded(padding)) => padded_form(field, padding),
        (Shape::Ragged, Collate::Dense) => {
            let what = format!(
                "column {:?} cannot be dense: its type does not say that all values have one length",
                field.name
            );
            Err(refused(
                what,
                "ask for padded, where values of one length need no padding; or for ragged, views or auto",
            ))
        }
        (Shape::Fixed(_), Collate::Ragged | Collate::Padded(_)) if named.is_some() => {
            let what = format!("column {:?} has neither lengths nor padding: its values are of one shape", field.name);
            Err(refused(what, "ask for dense: it has the values end to end"))
        }
        (Shape::Fixed(shape), _) => {
            let value_bytes = shape.iter().try_fold(element_bytes, |bytes, &dimension| bytes.checked_mul(dimension));
            let value_bytes = value_bytes.ok_or_else(|| {
                let what =
                    format!("a value of column {:?} has more than 2^64 bytes: its shape is {shape:?}", field.name);
                refused(what, "check the dataset's schema")
            })?;
            Ok(Form::Dense { value_bytes })
        }
    }
}

fn padded_form(field: &Field, padding: Padding) -> Result<Form> {
    let Padding { value, max_length, multiple_of } = padding;
    if multiple_of == 0 || max_length == Some(0) {
        let what = format!("column {:?} cannot be padded to a multiple or a length of 0", field.name);
        return Err(refused(what, "give at least 1; max_length may be left out"));
    }
    let max_length = max_length.unwrap_or(u64::MAX);
    Ok(Form::Padded(Padded { pad: Pad::new(value, field)?, max_length, multiple_of }))
}

fn packed_form(field: &Field, named: Option<Collate>, packing: &Packing, rows: u64) -> Result<Form> {
    let Packing { seq_len, pad, .. } = *packing;
    if !matches!(named, None | Some(Collate::Auto)) {
        let what = format!("column {:?} is packed and cannot have another form", field.name);
        return Err(refused(what, "leave it out, or batch by samples"));
    }
    // What `Packed` gives to a GPU counts in `i32`, as its users do.
    let elements = rows.checked_mul(seq_len).filter(|&elements| i32::try_from(elements).is_ok());
    if seq_len == 0 || elements.is_none() {
        let what = format!("cannot pack {rows} rows of {seq_len} elements");
        return Err(refused(what, "rows have at least 1 element, and all of a batch at most 2147483647"));
    }
    Ok(Form::Packed { seq_len, pad: Pad::new(pad, field)? })
}

fn refused(
    what: impl Into<std::borrow::Cow<'static, str>>,
    remedy: impl Into<std::borrow::Cow<'static, str>>,
) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}

#[cfg(test)]
mod tests;

//! `tf.train.Example`: learns columns from the first records, and turns a record into values.
//!
//! Source: tensorflow `core/example/{example,feature}.proto`: `Example{1: Features{1: map<string, Feature>}}`,
//! `Feature{1: BytesList{1: repeated bytes} | 2: FloatList{1: packed float} | 3: Int64List{1: packed int64}}`.

use super::protobuf::{Fault, Fields, Wire};
use crate::dataset::{DType, Encoding, Field, Fingerprint, Sample, Schema, Shape, Value};
use crate::options::Missing;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use uringload_core::ErrorKind;

/// The kind of list in a feature. The values are the field numbers in a `Feature`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes = 1,
    Floats = 2,
    Integers = 3,
}

impl Kind {
    fn of(number: u32) -> Option<Kind> {
        [Kind::Bytes, Kind::Floats, Kind::Integers].into_iter().find(|kind| *kind as u32 == number)
    }

    /// The format's name for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Bytes => "bytes_list",
            Kind::Floats => "float_list",
            Kind::Integers => "int64_list",
        }
    }

    fn dtype(self) -> DType {
        match self {
            Kind::Bytes => DType::U8,
            Kind::Floats => DType::F32,
            Kind::Integers => DType::I64,
        }
    }
}

/// The place of a feature's list: in one piece, as every writer stores it, or in several that belong together.
#[derive(Clone, Debug, Default)]
struct Pieces {
    first: Option<Range<usize>>,
    more: Vec<Range<usize>>,
}

impl Pieces {
    fn push(&mut self, range: Range<usize>) {
        match self.first {
            None => self.first = Some(range),
            Some(_) => self.more.push(range),
        }
    }

    fn clear(&mut self) {
        self.first = None;
        self.more.clear();
    }

    fn iter(&self) -> impl Iterator<Item = &Range<usize>> {
        self.first.iter().chain(&self.more)
    }
}

/// The kind of list in a feature, and its place; `None` if the feature holds no list at all.
type Feature = Option<(Kind, Pieces)>;

/// Calls `each` with every feature of a record: the place of its name, and the feature. If a name occurs twice, the
/// last one counts; the caller must take care of that.
///
/// # Errors
/// Those of `each`, or what is wrong with the message.
fn each_feature(record: &[u8], mut each: impl FnMut(Range<usize>, &Pieces) -> Result<(), Fault>) -> Result<(), Fault> {
    let mut example = Fields::new(record, 0..record.len());
    while let Some((number, wire)) = example.next()? {
        match (number, wire) {
            (1, Wire::Bytes(features)) => {
                let mut features = Fields::new(record, features);
                while let Some((number, wire)) = features.next()? {
                    let (1, Wire::Bytes(entry)) = (number, wire) else { continue };
                    let (mut name, mut value) = (entry.start..entry.start, Pieces::default());
                    let mut entry = Fields::new(record, entry);
                    while let Some((number, wire)) = entry.next()? {
                        match (number, wire) {
                            (1, Wire::Bytes(range)) => name = range,
                            (2, Wire::Bytes(range)) => value.push(range),
                            _ => {}
                        }
                    }
                    each(name, &value)?;
                }
            }
            (2, Wire::Bytes(lists)) => return Err(Fault::new(SEQUENCE, lists.start)),
            _ => {}
        }
    }
    Ok(())
}

/// The error for a `SequenceExample`, which has feature lists where an `Example` has nothing.
pub(super) const SEQUENCE: &str = "it is a SequenceExample, whose feature lists cannot be columns";

/// Whether a record can only be a `SequenceExample`: it has features, and named lists of them.
pub(super) fn is_sequence(record: &[u8]) -> bool {
    let mut top = Fields::new(record, 0..record.len());
    let is_text = |range: Range<usize>| std::str::from_utf8(&record[range]).is_ok();
    let is_map = |range: Range<usize>| {
        let mut entries = Fields::new(record, range);
        loop {
            match entries.next() {
                Ok(None) => return true,
                Ok(Some((1, Wire::Bytes(entry)))) => match Fields::new(record, entry).next() {
                    Ok(Some((1, Wire::Bytes(name)))) if is_text(name.clone()) => {}
                    _ => return false,
                },
                _ => return false,
            }
        }
    };
    loop {
        match top.next() {
            Ok(None) => return true,
            Ok(Some((1 | 2, Wire::Bytes(map)))) if is_map(map.clone()) => {}
            _ => return false,
        }
    }
}

/// Parses a feature in these pieces.
fn feature(record: &[u8], value: &Pieces) -> Result<Feature, Fault> {
    let mut feature: Feature = None;
    for piece in value.iter() {
        let mut fields = Fields::new(record, piece.clone());
        while let Some((number, wire)) = fields.next()? {
            let (Some(kind), Wire::Bytes(range)) = (Kind::of(number), wire) else { continue };
            let (known, pieces) = feature.get_or_insert_with(|| (kind, Pieces::default()));
            // If there are two kinds of list, the last one counts and inherits nothing from the other.
            if *known != kind {
                *known = kind;
                pieces.clear();
            }
            pieces.push(range);
        }
    }
    Ok(feature)
}

/// Calls `each` with every field of the lists that is one of their values.
fn each_value(record: &[u8], lists: &Pieces, mut each: impl FnMut(Wire) -> Result<(), Fault>) -> Result<(), Fault> {
    for list in lists.iter() {
        let mut fields = Fields::new(record, list.clone());
        while let Some((number, wire)) = fields.next()? {
            if number == 1 {
                each(wire)?;
            }
        }
    }
    Ok(())
}

/// The number of byte strings, and the place of the last of them.
fn strings(record: &[u8], lists: &Pieces) -> Result<(u64, Range<usize>), Fault> {
    let (mut count, mut last) = (0, 0..0);
    each_value(record, lists, |wire| {
        if let Wire::Bytes(range) = wire {
            (count, last) = (count + 1, range);
        }
        Ok(())
    })?;
    Ok((count, last))
}

/// The floats: in place if they are in one piece, as every writer stores them, or else a copy.
fn floats(record: &Bytes, lists: &Pieces) -> Result<Bytes, Fault> {
    let (mut run, mut copy): (Option<Range<usize>>, Vec<u8>) = (None, Vec::new());
    each_value(record, lists, |wire| {
        let range = match wire {
            Wire::Bytes(range) if range.len().is_multiple_of(4) => range,
            Wire::Fixed32(range) => range,
            Wire::Bytes(range) => {
                return Err(Fault::new(
                    format!("{} bytes are not a multiple of the 4 bytes of a float", range.len()),
                    range.start,
                ));
            }
            _ => return Ok(()),
        };
        match run.take() {
            None if copy.is_empty() => run = Some(range),
            None => copy.extend_from_slice(&record[range]),
            Some(first) => {
                copy.extend_from_slice(&record[first]);
                copy.extend_from_slice(&record[range]);
            }
        }
        Ok(())
    })?;
    Ok(match run {
        Some(range) => record.slice(range),
        None => Bytes::from(copy),
    })
}

/// Calls `each` with every integer.
fn each_integer(record: &[u8], lists: &Pieces, mut each: impl FnMut(i64)) -> Result<(), Fault> {
    each_value(record, lists, |wire| {
        match wire {
            Wire::Varint(number) => each(number.cast_signed()),
            Wire::Bytes(range) => {
                let mut numbers = Fields::new(record, range);
                while let Some(number) = numbers.packed()? {
                    each(number.cast_signed());
                }
            }
            _ => {}
        }
        Ok(())
    })
}

/// What the first records show.
#[derive(Debug, Default)]
pub(super) struct Learned {
    features: BTreeMap<String, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    kind: Kind,
    /// The number of byte strings, if a record has more than one.
    several: Option<u64>,
}

impl Known {
    /// Learns a feature; also checks that its values are valid.
    fn of(record: &Bytes, kind: Kind, lists: &Pieces) -> Result<Known, Fault> {
        let several = match kind {
            Kind::Bytes => Some(strings(record, lists)?.0).filter(|&count| count > 1),
            Kind::Floats => floats(record, lists).map(|_| None)?,
            Kind::Integers => each_integer(record, lists, |_| ()).map(|()| None)?,
        };
        Ok(Known { kind, several })
    }
}

impl Learned {
    /// Adds a record.
    ///
    /// # Errors
    /// Why it is not an `Example`, or not one like those before.
    pub(super) fn add(&mut self, record: &Bytes) -> Result<(), Fault> {
        // If several features have one name, the last one counts.
        let mut found: BTreeMap<&str, (usize, Option<Known>)> = BTreeMap::new();
        each_feature(record, |name, value| {
            let at = name.start;
            let Ok(name) = std::str::from_utf8(&record[name]) else {
                return Err(Fault::new("the name of a feature is not UTF-8", at));
            };
            let known = match feature(record, value)? {
                Some((kind, lists)) => Some(Known::of(record, kind, &lists)?),
                None => None,
            };
            found.insert(name, (at, known));
            Ok(())
        })?;
        for (name, (at, found)) in found {
            let Some(found) = found else { continue };
            let kind = found.kind;
            let known = self.features.entry(name.to_owned()).or_insert(found);
            if known.kind != kind {
                let (kind, known) = (kind.name(), known.kind.name());
                return Err(Fault::new(format!("feature {name:?} is a {kind}, and was a {known} before"), at));
            }
            known.several = known.several.max(found.several);
        }
        Ok(())
    }

    /// Whether no record has a feature.
    pub(super) fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// The columns: those of `fields` in that order, or all sorted by name if `fields` is empty.
    ///
    /// # Errors
    /// Which column is not available.
    pub(super) fn columns(
        self,
        fields: &[String],
        fixed: &[(String, Vec<u64>)],
        missing: Missing,
    ) -> Result<Columns, Refused> {
        let refused = |what: String, remedy: String| Refused { kind: ErrorKind::InvalidArgument, what, remedy };
        let names: Vec<&String> =
            if fields.is_empty() { self.features.keys().collect() } else { fields.iter().collect() };
        let there = || {
            let names: Vec<&str> = self.features.keys().map(String::as_str).collect();
            format!("choose from the features {}", names.join(", "))
        };
        let mut columns = Columns { all: Vec::with_capacity(names.len()), sorted: Vec::new(), missing };
        for name in names {
            let Some(known) = self.features.get(name) else {
                return Err(refused(format!("the first records have no feature {name:?}"), there()));
            };
            if columns.all.iter().any(|column| column.name == *name) {
                return Err(refused(format!("feature {name:?} is named twice"), "name it once".into()));
            }
            if let Some(count) = known.several {
                let (what, remedy) = (several(name, count), SEVERAL_REMEDY.into());
                return Err(Refused { kind: ErrorKind::Unavailable, what, remedy });
            }
            columns.all.push(Column { name: name.clone(), kind: known.kind, fixed: None });
        }
        for (name, shape) in fixed {
            let Some(column) = columns.all.iter_mut().find(|column| column.name == *name) else {
                return Err(refused(format!("a shape is given for {name:?}, which is no column"), there()));
            };
            if column.kind == Kind::Bytes {
                return Err(refused(
                    format!("a shape is given for column {name:?}, which is bytes"),
                    "leave the shape out".into(),
                ));
            }
            let count = shape.iter().try_fold(8_u64, |count, &length| count.checked_mul(length));
            let Some(count) = count.map(|bytes| bytes / 8) else {
                return Err(refused(
                    format!("the shape of {name:?} has more than 2^61 elements"),
                    "give a smaller one".into(),
                ));
            };
            column.fixed = Some((shape.clone(), count));
        }
        columns.sorted = (0..columns.all.len()).collect();
        columns.sorted.sort_unstable_by(|&a, &b| columns.all[a].name.cmp(&columns.all[b].name));
        Ok(columns)
    }
}

fn several(name: &str, count: u64) -> String {
    format!("feature {name:?} is a list of {count} byte strings, and a column holds one")
}

/// What to do about lists of byte strings.
const SEVERAL_REMEDY: &str = "name the other features as fields, or take the records as bytes (whole_records)";

/// Columns that are not available, and what to do about it.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) kind: ErrorKind,
    pub(super) what: String,
    pub(super) remedy: String,
}

/// Columns of features.
#[derive(Debug)]
pub(super) struct Columns {
    all: Vec<Column>,
    /// Column numbers, sorted by column name.
    sorted: Vec<usize>,
    missing: Missing,
}

#[derive(Debug)]
struct Column {
    name: String,
    kind: Kind,
    /// The shape of every value, and its number of elements.
    fixed: Option<(Vec<u64>, u64)>,
}

impl Columns {
    pub(super) fn schema(&self) -> Schema {
        let field = |column: &Column| Field {
            name: column.name.clone(),
            dtype: column.kind.dtype(),
            shape: column.fixed.as_ref().map_or(Shape::Ragged, |(shape, _)| Shape::Fixed(shape.clone())),
        };
        Schema { fields: self.all.iter().map(field).collect() }
    }

    pub(super) fn encodings(&self) -> Vec<Encoding> {
        self.all.iter().map(|column| Encoding::raw(column.kind.name())).collect()
    }

    pub(super) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        for column in &self.all {
            fingerprint.bytes(column.name.as_bytes());
            fingerprint.number(column.kind as u64);
            // The number of dimensions plus one, or 0 if there is no shape.
            let shape = column.fixed.as_ref().map(|(shape, _)| shape);
            fingerprint.number(shape.map_or(0, |shape| shape.len() as u64 + 1));
            shape.into_iter().flatten().for_each(|&length| fingerprint.number(length));
        }
    }

    /// Puts the values of a record into `out`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn split(&self, record: &Bytes, out: &mut Sample) -> Result<(), Fault> {
        out.values.clear();
        out.values.extend(self.all.iter().map(Column::nothing));
        // A value that does not fit does no harm if another feature of the same name follows.
        let mut unfit: Vec<(usize, Fault)> = Vec::new();
        each_feature(record, |name, value| {
            let Some(number) = self.find(&record[name]) else { return Ok(()) };
            let column = &self.all[number];
            let fits = match feature(record, value)? {
                Some((kind, lists)) => column.value(record, kind, &lists)?,
                None => Ok(column.nothing()),
            };
            unfit.retain(|(other, _)| *other != number);
            match fits {
                Ok(value) => out.values[number] = value,
                Err(fault) => unfit.push((number, fault)),
            }
            Ok(())
        })?;
        if let Some((_, fault)) = unfit.into_iter().next() {
            return Err(fault);
        }
        for (column, value) in self.all.iter().zip(&mut out.values) {
            if *value == column.nothing() {
                if self.missing == Missing::Error || column.fixed.is_some() {
                    return Err(Fault::new(format!("it has no feature {:?}", column.name), 0));
                }
                *value = Value::Bytes(Bytes::new());
            }
        }
        Ok(())
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        let place = self.sorted.binary_search_by(|&number| self.all[number].name.as_bytes().cmp(name));
        place.ok().map(|place| self.sorted[place])
    }
}

impl Column {
    /// A placeholder for a missing value, which no value of the column can equal.
    fn nothing(&self) -> Value {
        if self.is_number() { Value::Bytes(Bytes::new()) } else { Value::I64(0) }
    }

    /// Whether a value is one integer.
    fn is_number(&self) -> bool {
        self.kind == Kind::Integers && self.fixed.as_ref().is_some_and(|(shape, _)| shape.is_empty())
    }

    /// The value of a feature; the inner error if it is valid, but not what the column holds.
    fn value(&self, record: &Bytes, kind: Kind, lists: &Pieces) -> Result<Result<Value, Fault>, Fault> {
        let at = lists.first.as_ref().map_or(0, |list| list.start);
        if kind != self.kind {
            let what = format!("feature {:?} is a {}, not a {}", self.name, kind.name(), self.kind.name());
            return Ok(Err(Fault::new(what, at)));
        }
        let (value, count) = match kind {
            Kind::Bytes => {
                let (count, last) = strings(record, lists)?;
                return Ok(match count {
                    0 => Ok(self.nothing()),
                    1 => Ok(Value::Bytes(record.slice(last))),
                    _ => Err(Fault::new(several(&self.name, count), at)),
                });
            }
            Kind::Floats => {
                let floats = floats(record, lists)?;
                let count = floats.len() as u64 / 4;
                (Value::Bytes(floats), count)
            }
            Kind::Integers if self.is_number() => {
                let (mut count, mut last) = (0, 0);
                each_integer(record, lists, |number| (count, last) = (count + 1, number))?;
                (Value::I64(last), count)
            }
            Kind::Integers => {
                // The one copy that the format requires: stored numbers have 1 to 10 bytes, those of a column 8.
                let mut numbers = Vec::new();
                each_integer(record, lists, |number| numbers.extend(number.to_le_bytes()))?;
                let count = numbers.len() as u64 / 8;
                (Value::Bytes(Bytes::from(numbers)), count)
            }
        };
        match &self.fixed {
            Some((shape, wanted)) if *wanted != count => {
                let what = format!("feature {:?} has {count} values, which do not make the shape {shape:?}", self.name);
                Ok(Err(Fault::new(what, at)))
            }
            _ => Ok(Ok(value)),
        }
    }
}

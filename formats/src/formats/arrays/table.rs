//! The place of every value. Each sample or run of rows has a group (a file, or an array); a group has one place per
//! column.

use super::listing::{Array, Deflated, Found, Listing, NAMES_TOLD};
use super::{ArraySamples, DATA};
use crate::dataset::{DType, Field, FileId, Fingerprint, Shape, UnitId};
use std::collections::{HashMap, HashSet};
use uringload_core::{Error, ErrorKind, Result};

/// Most columns of a sample. A model checkpoint with a column for each weight is a mistake.
const COLUMNS_MAX: usize = 4096;

/// The place of every value.
#[derive(Debug)]
pub(super) struct Table {
    samples: ArraySamples,
    columns: Vec<Column>,
    /// Each group has one place per column.
    places: Vec<PackedPlace>,
    units: Vec<Unit>,
    /// Bytes of the largest unit, inflated and as stored.
    shapes: Shapes,
    /// Total samples up to and including each file; empty if each file is one sample.
    ends: Vec<u64>,
    /// Names of the groups, if arrays are samples.
    names: Vec<Box<str>>,
    bytes: u64,
    /// Bytes of the values that are stored uncompressed in files.
    span_bytes: u64,
}

#[derive(Debug)]
struct Column {
    name: String,
    dtype: DType,
    shape: ColumnShape,
}

/// The shapes that the values of a column have.
#[derive(Clone, Copy, Debug)]
enum ColumnShape {
    /// No value yet.
    Unknown,
    One(u32),
    Many,
}

/// Where a value begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// At this offset of its file.
    File(u64),
    /// At this offset of a unit.
    Unit(UnitId, u64),
}

impl At {
    fn plus(self, bytes: u64) -> At {
        // Fits: the value ends at or before the end of the file or unit.
        match self {
            At::File(at) => At::File(at + bytes),
            At::Unit(unit, at) => At::Unit(unit, at + bytes),
        }
    }
}

/// A value, or the first of a run of rows. Packed into 12 bytes: there may be many millions.
#[derive(Clone, Copy, Debug)]
struct PackedPlace {
    /// The low and the high half of a file offset; or a unit and, marked with [`IN_UNIT`], an offset in it.
    offset: [u32; 2],
    /// Shape of the value, or of one row.
    shape: u32,
}

/// The marks fit: file offsets stay below 2^62, and offsets in units are at most the length of a `.npy` header.
const IN_UNIT: u32 = 1 << 31;
/// Marks what is big endian in its file.
const TURNED: u32 = 1 << 30;

impl PackedPlace {
    fn new(at: At, is_big_endian: bool, shape: u32) -> PackedPlace {
        let mark = if is_big_endian { TURNED } else { 0 };
        let offset = match at {
            At::File(offset) => [offset as u32, (offset >> 32) as u32 | mark],
            At::Unit(unit, offset) => [unit.0, offset as u32 | IN_UNIT],
        };
        PackedPlace { offset, shape }
    }

    fn at(self) -> At {
        let [low, high] = self.offset;
        match high & IN_UNIT {
            0 => At::File(u64::from(low) | u64::from(high & !TURNED) << 32),
            _ => At::Unit(UnitId(low), u64::from(high & !IN_UNIT)),
        }
    }

    /// Units are turned when they are decoded.
    fn is_turned(self) -> bool {
        self.offset[1] & (IN_UNIT | TURNED) == TURNED
    }
}

/// An array that is made plain as a whole, and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) file: FileId,
    /// Of an array that is not deflated, its elements alone.
    pub(super) packed: Deflated,
    pub(super) is_deflated: bool,
    pub(super) is_fortran: bool,
    pub(super) is_big_endian: bool,
    /// Bytes in front of the elements, in what it is inflated to.
    pub(super) header: u64,
    /// Bytes of the elements.
    pub(super) array_bytes: u64,
    pub(super) element_bytes: usize,
    /// Shape of the array.
    shape: u32,
    /// Index of its place, which leads to its name.
    place: usize,
}

/// The place of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) at: At,
    pub(super) len: u64,
    /// Bytes of an element that is big endian in its file; else 1.
    pub(super) turned: usize,
}

/// The distinct shapes.
#[derive(Debug, Default)]
struct Shapes {
    known: Vec<(Vec<u64>, u64)>,
    numbers: HashMap<Vec<u64>, u32>,
}

impl Shapes {
    fn number(&mut self, shape: &[u64]) -> Option<u32> {
        if let Some(&number) = self.numbers.get(shape) {
            return Some(number);
        }
        let number = u32::try_from(self.known.len()).ok()?;
        self.known.push((shape.to_vec(), shape.iter().product()));
        self.numbers.insert(shape.to_vec(), number);
        Some(number)
    }

    fn elements(&self, place: PackedPlace) -> u64 {
        self.known[place.shape as usize].1
    }
}

impl Table {
    pub(super) fn new(samples: ArraySamples) -> Table {
        Table {
            samples,
            columns: Vec::new(),
            places: Vec::new(),
            units: Vec::new(),
            shapes: Shapes::default(),
            ends: Vec::new(),
            names: Vec::new(),
            bytes: 0,
            span_bytes: 0,
        }
    }

    /// Adds the arrays of the next file.
    pub(super) fn add(&mut self, file: u32, listing: Listing, wanted: &[String]) -> Result<()> {
        if self.samples == ArraySamples::Arrays {
            return self.add_arrays(file, listing.found);
        }
        if self.columns.is_empty() {
            self.begin(&listing, wanted)?;
        }
        let found = self.in_order(listing)?;
        let mut rows: Option<u64> = None;
        for (column, Found { name, array }) in found.into_iter().enumerate() {
            let value_shape = match (self.samples, array.shape.split_first()) {
                (ArraySamples::Rows, Some((&len, row))) => {
                    if rows.replace(len).is_some_and(|rows| rows != len) {
                        return Err(unfit(format!(
                            "array {name:?} has {len} rows and other arrays have another number"
                        ))
                        .with_remedy("name arrays with the same number of rows"));
                    }
                    // Such rows would take no space: a header of 100 bytes could claim 2^62 of them.
                    if len > 0 && row.contains(&0) {
                        return Err(unfit(format!("the rows of array {name:?} have no elements")));
                    }
                    row
                }
                (ArraySamples::Rows, None) => {
                    return Err(unfit(format!("array {name:?} is a single number and has no rows"))
                        .with_remedy("make each file a sample, or name another array"));
                }
                _ => &array.shape[..],
            };
            self.push(file, column, &array, value_shape, rows != Some(0))?;
        }
        let rows = rows.unwrap_or(1);
        self.count(self.places.len() / self.columns.len() - 1, rows);
        if self.samples == ArraySamples::Rows {
            self.end_file(rows)?;
        }
        Ok(())
    }

    /// Adds the bytes of a group with this many samples.
    fn count(&mut self, group: usize, samples: u64) {
        let bytes = self.group_bytes(group, |_| true).saturating_mul(samples);
        self.bytes = self.bytes.saturating_add(bytes);
        self.span_bytes = self.span_bytes.saturating_add(self.group_bytes(group, is_in_file).saturating_mul(samples));
    }

    fn add_arrays(&mut self, file: u32, found: Vec<Found>) -> Result<()> {
        let count = found.len() as u64;
        for Found { name, array } in found {
            if self.columns.is_empty() {
                self.columns.push(Column { name: DATA.to_owned(), dtype: array.dtype, shape: ColumnShape::Unknown });
            }
            let dtype = self.columns[0].dtype;
            if array.dtype != dtype {
                let first = &self.names[0];
                let what =
                    format!("array {name:?} holds {} and {first:?} {dtype}, but a column has one type", array.dtype);
                return Err(unfit(what).with_remedy("name arrays of one type, or make each file a sample"));
            }
            self.push(file, 0, &array, &array.shape, true)?;
            self.names.push(name.into());
            self.count(self.places.len() - 1, 1);
        }
        self.end_file(count)
    }

    /// Creates the columns from the first file.
    fn begin(&mut self, listing: &Listing, wanted: &[String]) -> Result<()> {
        let found = &listing.found;
        let column =
            |found: &Found| Column { name: found.name.clone(), dtype: found.array.dtype, shape: ColumnShape::Unknown };
        if wanted.is_empty() {
            self.columns = found.iter().map(column).collect();
        } else {
            for name in wanted {
                let found = found.iter().find(|found| found.name == *name).ok_or_else(|| lacks(name, listing))?;
                self.columns.push(column(found));
            }
        }
        if self.columns.is_empty() {
            return Err(unfit("the file has no array").with_remedy("leave the file out"));
        }
        if self.columns.len() > COLUMNS_MAX {
            let what = format!("a sample would have {} columns; the limit is {COLUMNS_MAX}", self.columns.len());
            return Err(unfit(what).with_remedy("name the arrays to read, or make each array a sample"));
        }
        Ok(())
    }

    /// The arrays of a file in column order.
    fn in_order(&self, listing: Listing) -> Result<Vec<Found>> {
        let found = &listing.found;
        let is_in_order = found.len() == self.columns.len()
            && found.iter().zip(&self.columns).all(|(found, column)| found.name == column.name);
        let found = if is_in_order {
            listing.found
        } else {
            let names: HashSet<&str> = found.iter().map(|found| found.name.as_str()).collect();
            if let Some(column) = self.columns.iter().find(|column| !names.contains(column.name.as_str())) {
                return Err(lacks(&column.name, &listing));
            }
            let mut named: HashMap<String, Found> =
                listing.found.into_iter().map(|found| (found.name.clone(), found)).collect();
            let ordered = self.columns.iter().filter_map(|column| named.remove(&column.name)).collect();
            if let Some(name) = named.into_keys().min() {
                let what = format!("array {name:?} is not in the files before this one");
                return Err(unfit(what).with_remedy("name the arrays to read"));
            }
            ordered
        };
        let other = found.iter().zip(&self.columns).find(|(found, column)| found.array.dtype != column.dtype);
        if let Some((Found { name, array }, column)) = other {
            let what =
                format!("array {name:?} holds {}, and {} in the files before this one", array.dtype, column.dtype);
            return Err(unfit(what).with_remedy("write all files with one type, or name another array"));
        }
        Ok(found)
    }

    /// Adds a value, or a run of rows, of the shape `shape`. `counts` is false only for a run without rows.
    fn push(&mut self, file: u32, column: usize, array: &Array, shape: &[u64], counts: bool) -> Result<()> {
        let number =
            self.shapes.number(shape).ok_or_else(|| unfit("the arrays have more than 2^32 different shapes"))?;
        let at = if array.deflated.is_some() || array.is_fortran {
            let unit = u32::try_from(self.units.len());
            let unit =
                unit.map_err(|_| unfit("there are more than 2^32 arrays that are deflated or in Fortran order"))?;
            let added = self.unit(file, array)?;
            self.units.push(added);
            // What was put in order has nothing in front.
            At::Unit(UnitId(unit), if array.is_fortran { 0 } else { array.offset })
        } else {
            At::File(array.offset)
        };
        self.places.push(PackedPlace::new(at, array.is_big_endian, number));
        let shape = &mut self.columns[column].shape;
        match *shape {
            // A file without rows has no value whose shape could differ.
            _ if !counts => {}
            ColumnShape::Unknown => *shape = ColumnShape::One(number),
            ColumnShape::One(other) if other != number => *shape = ColumnShape::Many,
            _ => {}
        }
        Ok(())
    }

    /// The array as a unit; its place comes next.
    fn unit(&mut self, file: u32, array: &Array) -> Result<Unit> {
        let shape = self.shapes.number(&array.shape);
        let shape = shape.ok_or_else(|| unfit("the arrays have more than 2^32 different shapes"))?;
        // Fits: `array_bytes` has checked it.
        let array_bytes = array.shape.iter().product::<u64>() * array.dtype.size();
        let plain = Deflated { start: array.offset, stored: array_bytes, bytes: array_bytes, crc: 0 };
        Ok(Unit {
            file: FileId(file),
            packed: array.deflated.unwrap_or(plain),
            is_deflated: array.deflated.is_some(),
            is_fortran: array.is_fortran,
            is_big_endian: array.is_big_endian,
            header: if array.deflated.is_some() { array.offset } else { 0 },
            array_bytes,
            element_bytes: array.dtype.size() as usize,
            shape,
            place: self.places.len(),
        })
    }

    fn end_file(&mut self, samples: u64) -> Result<()> {
        let end = self.ends.last().copied().unwrap_or(0).checked_add(samples);
        self.ends.push(end.ok_or_else(|| unfit("the files have more than 2^64 samples"))?);
        Ok(())
    }

    /// Frees what is only needed while files are added.
    pub(super) fn finish(&mut self) {
        self.shapes.numbers = HashMap::new();
        self.shapes.known.shrink_to_fit();
        self.places.shrink_to_fit();
        self.units.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    /// Number of samples.
    pub(super) fn len(&self) -> u64 {
        match self.samples {
            ArraySamples::Files => (self.places.len() / self.columns.len().max(1)) as u64,
            _ => self.ends.last().copied().unwrap_or(0),
        }
    }

    /// The columns; their shapes are known once there is a sample.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field> {
        self.columns.iter().map(|column| {
            let shape = match column.shape {
                ColumnShape::One(number) => Shape::Fixed(self.shapes.known[number as usize].0.clone()),
                ColumnShape::Unknown | ColumnShape::Many => Shape::Ragged,
            };
            Field { name: column.name.clone(), dtype: column.dtype, shape }
        })
    }

    pub(super) fn ends(&self) -> &[u64] {
        &self.ends
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file number of a sample, and its number in that file.
    pub(super) fn locate(&self, id: u64) -> (usize, u64) {
        if self.samples == ArraySamples::Files {
            return (id as usize, 0);
        }
        crate::dataset::locate(&self.ends, id)
    }

    /// The places of a sample's values: the start and the length of each column's value.
    pub(super) fn places(&self, id: u64) -> impl Iterator<Item = Stored> {
        let (group, row) = self.group(id);
        self.group_places(group).iter().zip(&self.columns).map(move |(&place, column)| {
            let len = self.value_bytes(place, column);
            let turned = if place.is_turned() { column.dtype.size() as usize } else { 1 };
            Stored { at: place.at().plus(row * len), len, turned }
        })
    }

    pub(super) fn shape_of(&self, id: u64, column: usize) -> &[u64] {
        let place = self.group_places(self.group(id).0)[column];
        &self.shapes.known[place.shape as usize].0
    }

    pub(super) fn elements(&self, id: u64, column: usize) -> u64 {
        self.shapes.elements(self.group_places(self.group(id).0)[column])
    }

    pub(super) fn name_of(&self, id: u64) -> &str {
        &self.names[id as usize]
    }

    pub(super) fn has_units(&self) -> bool {
        !self.units.is_empty()
    }

    /// Whether a value is big endian in the file.
    pub(super) fn has_turned(&self) -> bool {
        self.places.iter().any(|place| place.is_turned())
    }

    /// The shape of the array that is this unit.
    pub(super) fn unit_shape(&self, unit: &Unit) -> &[u64] {
        &self.shapes.known[unit.shape as usize].0
    }

    /// The units, in numeric order.
    pub(super) fn units(&self) -> &[Unit] {
        &self.units
    }

    /// The name of the array that is this unit.
    pub(super) fn unit_name(&self, unit: &Unit) -> &str {
        match self.samples {
            ArraySamples::Arrays => &self.names[unit.place],
            _ => &self.columns[unit.place % self.columns.len()].name,
        }
    }

    /// Total bytes in files of the `count` largest samples.
    pub(super) fn largest(&self, count: u64) -> u64 {
        if count >= self.len() {
            return self.span_bytes;
        }
        if self.units.is_empty() && self.columns.iter().all(|column| matches!(column.shape, ColumnShape::One(_))) {
            return count.saturating_mul(self.places(0).map(|value| value.len).sum());
        }
        // Bytes of a sample, and the number of such samples.
        let group = |group: usize| match self.samples {
            ArraySamples::Rows => (self.group_bytes(group, is_in_file), self.rows(group)),
            _ => (self.group_bytes(group, is_in_file), 1),
        };
        let mut groups: Vec<(u64, u64)> = (0..self.places.len() / self.columns.len()).map(group).collect();
        groups.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = count;
        let mut sum: u64 = 0;
        for (bytes, samples) in groups {
            let taken = samples.min(left);
            sum = sum.saturating_add(bytes.saturating_mul(taken));
            left -= taken;
        }
        sum
    }

    pub(super) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.number(self.columns.len() as u64);
        for column in &self.columns {
            fingerprint.bytes(column.name.as_bytes());
            fingerprint.bytes(column.dtype.name().as_bytes());
        }
        fingerprint.number(self.ends.len() as u64);
        self.ends.iter().for_each(|&end| fingerprint.number(end));
        for place in &self.places {
            match place.at() {
                At::File(offset) => fingerprint.number(offset),
                At::Unit(unit, offset) => {
                    let Deflated { start, stored, bytes, crc } = self.units[unit.0 as usize].packed;
                    [offset, start, stored, bytes, crc.into()].into_iter().for_each(|part| fingerprint.number(part));
                }
            }
            let shape = &self.shapes.known[place.shape as usize].0;
            fingerprint.number(shape.len() as u64);
            shape.iter().for_each(|&len| fingerprint.number(len));
        }
        self.names.iter().for_each(|name| fingerprint.bytes(name.as_bytes()));
    }

    /// The group of a sample, and its row in that group.
    fn group(&self, id: u64) -> (usize, u64) {
        match self.samples {
            ArraySamples::Rows => self.locate(id),
            _ => (id as usize, 0),
        }
    }

    fn rows(&self, file: usize) -> u64 {
        self.ends[file] - if file == 0 { 0 } else { self.ends[file - 1] }
    }

    fn group_places(&self, group: usize) -> &[PackedPlace] {
        &self.places[group * self.columns.len()..][..self.columns.len()]
    }

    /// Bytes of one sample of a group, counting only the values whose places are wanted.
    fn group_bytes(&self, group: usize, is_wanted: impl Fn(&PackedPlace) -> bool) -> u64 {
        let values = self.group_places(group).iter().zip(&self.columns).filter(|(place, _)| is_wanted(place));
        values.fold(0, |sum: u64, (&place, column)| sum.saturating_add(self.value_bytes(place, column)))
    }

    fn value_bytes(&self, place: PackedPlace, column: &Column) -> u64 {
        // Fits: `array_bytes` has checked the whole array.
        self.shapes.elements(place) * column.dtype.size()
    }
}

fn is_in_file(place: &PackedPlace) -> bool {
    matches!(place.at(), At::File(_))
}

/// The error for arrays that cannot be samples of one dataset. The caller adds the file.
fn unfit(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}

fn lacks(name: &str, listing: &Listing) -> Error {
    let found = listing.found.iter().map(|found| &found.name);
    let names: Vec<&str> = found.chain(&listing.others).take(NAMES_TOLD).map(String::as_str).collect();
    unfit(format!("the file has no array {name:?}")).with_remedy(format!("choose one of {}", names.join(", ")))
}

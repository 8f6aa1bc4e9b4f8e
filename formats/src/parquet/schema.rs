//! Turns a Parquet schema into columns: which can be read, and in which form.

use super::nested::{Kind as Tangle, Repeated, Tree};
use crate::columnar::Kind;
use crate::columnar::json::{self, Scalar};
use crate::{DType, Shape};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor, SchemaDescriptor, Type};
use uringload_core::{Error, ErrorKind, Result};

/// How values of a physical type become elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    /// A 32-bit integer of which only this many bytes count; the others repeat its sign.
    Int32(u64),
    Int64,
    /// An old timestamp of 12 bytes: nanoseconds of the day, and the Julian day.
    Int96,
    Float,
    Double,
    /// Unchanged bytes of any length.
    Bytes,
    /// Unchanged bytes, all of the same length.
    FixedBytes,
    /// A big endian integer of any length, which becomes a little endian one of this many bytes.
    Decimal(usize),
}

/// Where the values of a column come from.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The leaves of the schema that it has: one, unless it is nested.
    pub(super) stems: Box<[Stem]>,
    pub(super) build: Build,
}

/// How a column is put together.
#[derive(Clone, Debug)]
pub(super) enum Build {
    /// A value a row.
    Values,
    /// A list of numbers a row.
    Numbers,
    /// Anything else, as JSON text.
    Nested(Tree),
}

/// A leaf of the schema.
#[derive(Clone, Debug)]
pub(super) struct Stem {
    /// Its number in the file.
    pub(super) number: usize,
    pub(super) descriptor: ColumnDescPtr,
    pub(super) form: Form,
    /// Bytes of a number.
    pub(super) bytes: u64,
    /// What it is inside a nested column.
    pub(super) scalar: Scalar,
    /// How many bytes of text an entry of a nested column takes beside its value.
    pub(super) words: u64,
}

/// A column of a file, or why it cannot be read.
pub(super) type Found = (String, Result<(Kind, Leaf)>);

/// Returns the columns of a schema: structs stand for their fields; anything that repeats is one column.
pub(super) fn columns_of(schema: &SchemaDescriptor) -> Vec<Found> {
    let mut reader = Reader { schema, first: 0, next: 0, found: Vec::new() };
    schema.root_schema().get_fields().iter().for_each(|field| reader.columns(field, "", 0));
    reader.found
}

/// Walks a schema, leaf by leaf. The depth of schemas is bounded when the footer is read.
struct Reader<'a> {
    schema: &'a SchemaDescriptor,
    /// The number of the column's first leaf, and that of the next leaf.
    first: usize,
    next: usize,
    found: Vec<Found>,
}

impl Reader<'_> {
    /// Appends the columns of a field. `definition` is the level from which on its parent is there.
    fn columns(&mut self, field: &Type, prefix: &str, definition: u32) {
        let name = format!("{prefix}{}", field.name());
        if field.is_group() && repeats(field) != Repetition::REPEATED && !is_list(field) && !is_map(field) {
            let definition = definition + u32::from(repeats(field) == Repetition::OPTIONAL);
            let prefix = format!("{name}.");
            return field.get_fields().iter().for_each(|field| self.columns(field, &prefix, definition));
        }
        self.first = self.next;
        let column = self.field(field, definition, 0).and_then(|tree| self.column(tree)).map_err(|what| {
            Error::new(ErrorKind::Unavailable, format!("column {name:?} is {what}, which cannot be read"))
        });
        // A tree that cannot be read may have been left early.
        self.next = self.first + leaves_of(field);
        self.found.push((name, column));
    }

    fn column(&self, tree: Tree) -> Result<(Kind, Leaf), String> {
        let descriptors: Vec<ColumnDescPtr> =
            tree.stems.clone().map(|stem| self.schema.column(self.first + stem)).collect();
        let kinds = descriptors.iter().map(|leaf| kind_of(leaf)).collect::<Result<Vec<_>, String>>()?;
        let own = &kinds[0].0;
        let (mut kind, build) = match &tree.kind {
            Tangle::Value => (own.clone(), Build::Values),
            Tangle::List(_, element) if matches!(element.kind, Tangle::Value) && own.is_plain() => {
                let described = format!("list of {}", own.described);
                (Kind { shape: Shape::Ragged, described, ..own.clone() }, Build::Numbers)
            }
            _ => (Kind::text(format!("JSON of {}", described(&tree, &kinds))), Build::Nested(tree.clone())),
        };
        // An element may be null, too.
        kind.is_nullable = tree.definition > 0 || matches!(build, Build::Numbers);
        let mut words = vec![0; kinds.len()];
        tree.add_words(0, &mut words);
        let mut stems = Vec::with_capacity(kinds.len());
        for ((descriptor, (kind, form)), words) in descriptors.into_iter().zip(kinds).zip(words) {
            let (number, scalar) = (self.first + stems.len(), scalar_of(&descriptor, &kind));
            stems.push(Stem { number, descriptor, form, bytes: kind.dtype.size(), scalar, words });
        }
        let stems = stems.into();
        Ok((kind, Leaf { stems, build }))
    }

    /// The tree of a field, whose parent is there from level `definition` on, inside `repetition` lists.
    fn field(&mut self, field: &Type, definition: u32, repetition: u32) -> Result<Tree, String> {
        match repeats(field) {
            Repetition::REQUIRED => self.inside(field, definition, repetition),
            Repetition::OPTIONAL => self.inside(field, definition + 1, repetition),
            Repetition::REPEATED => {
                // A list without a group around it, which is never null.
                let start = self.next - self.first;
                let of = Repeated { definition: definition + 1, repetition: repetition + 1 };
                let element = self.inside(field, of.definition, of.repetition)?;
                let kind = Tangle::List(of, Box::new(element));
                Ok(Tree { definition, stems: start..self.next - self.first, kind })
            }
        }
    }

    /// The tree of a field that is there from level `definition` on.
    fn inside(&mut self, field: &Type, definition: u32, repetition: u32) -> Result<Tree, String> {
        let start = self.next - self.first;
        let of = Repeated { definition: definition + 1, repetition: repetition + 1 };
        let kind = if field.is_primitive() {
            self.next += 1;
            Tangle::Value
        } else if is_list(field) {
            let [child] = field.get_fields() else { return Err("a list without one element type".into()) };
            if repeats(child) != Repetition::REPEATED {
                return Err("a list that does not repeat".into());
            }
            let is_element = child.is_primitive()
                || child.get_fields().len() != 1
                || child.name() == "array"
                || child.name() == format!("{}_tuple", field.name());
            let element = if is_element {
                self.inside(child, of.definition, of.repetition)?
            } else {
                self.field(&child.get_fields()[0], of.definition, of.repetition)?
            };
            Tangle::List(of, Box::new(element))
        } else if is_map(field) {
            let [pair] = field.get_fields() else { return Err("a map without one type of pairs".into()) };
            let (Repetition::REPEATED, true) = (repeats(pair), pair.is_group()) else {
                return Err("a map that does not repeat".into());
            };
            let [key, value] = pair.get_fields() else { return Err("a map without keys and values".into()) };
            let key = self.field(key, of.definition, of.repetition)?;
            if !matches!(key.kind, Tangle::Value) {
                return Err("a map whose keys are no single values".into());
            }
            Tangle::Map(of, Box::new([key, self.field(value, of.definition, of.repetition)?]))
        } else {
            let mut fields = Vec::new();
            for field in field.get_fields() {
                fields.push((json::name(field.name()), self.field(field, definition, repetition)?));
            }
            Tangle::Struct(fields)
        };
        let stems = start..self.next - self.first;
        if stems.is_empty() { Err("a struct without fields".into()) } else { Ok(Tree { definition, stems, kind }) }
    }
}

fn leaves_of(field: &Type) -> usize {
    if field.is_primitive() { 1 } else { field.get_fields().iter().map(|field| leaves_of(field)).sum() }
}

fn repeats(field: &Type) -> Repetition {
    let info = field.get_basic_info();
    if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED }
}

fn is_list(field: &Type) -> bool {
    let info = field.get_basic_info();
    field.is_group()
        && (info.converted_type() == ConvertedType::LIST || info.logical_type_ref() == Some(&LogicalType::List))
}

fn is_map(field: &Type) -> bool {
    let info = field.get_basic_info();
    field.is_group()
        && (matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE)
            || info.logical_type_ref() == Some(&LogicalType::Map))
}

/// A nested type, in words.
fn described(tree: &Tree, kinds: &[(Kind, Form)]) -> String {
    match &tree.kind {
        Tangle::Value => kinds[tree.stems.start].0.described.clone(),
        Tangle::List(_, element) => format!("list<{}>", described(element, kinds)),
        Tangle::Map(_, pair) => format!("map<{}, {}>", described(&pair[0], kinds), described(&pair[1], kinds)),
        Tangle::Struct(fields) => {
            let field = |(name, field): &(Box<[u8]>, Tree)| {
                format!("{} {}", String::from_utf8_lossy(name), described(field, kinds))
            };
            format!("struct<{}>", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

/// What a leaf is inside a nested column.
fn scalar_of(leaf: &ColumnDescriptor, kind: &Kind) -> Scalar {
    if is_decimal(leaf) {
        return Scalar::Decimal(leaf.type_scale().clamp(0, DIGITS[2]));
    }
    Scalar::of(kind)
}

fn is_decimal(leaf: &ColumnDescriptor) -> bool {
    matches!(leaf.logical_type_ref(), Some(LogicalType::Decimal(_))) || leaf.converted_type() == ConvertedType::DECIMAL
}

fn kind_of(leaf: &ColumnDescriptor) -> Result<(Kind, Form), String> {
    let physical = leaf.physical_type();
    let logical = leaf.logical_type_ref();
    let described = match (logical, leaf.converted_type()) {
        (Some(logical), _) => format!("{physical} {logical:?}"),
        (None, ConvertedType::NONE) => physical.to_string(),
        (None, converted) => format!("{physical} {converted}"),
    };
    let scalar = |dtype, form| Ok((Kind::scalar(dtype, described.clone()), form));
    let is_decimal = is_decimal(leaf);
    let integer = match (logical, leaf.converted_type()) {
        (Some(LogicalType::Integer(int)), _) => {
            DType::named(&format!("{}{}", if int.is_signed { 'i' } else { 'u' }, int.bit_width))
        }
        (_, ConvertedType::INT_8) => Some(DType::I8),
        (_, ConvertedType::UINT_8) => Some(DType::U8),
        (_, ConvertedType::INT_16) => Some(DType::I16),
        (_, ConvertedType::UINT_16) => Some(DType::U16),
        (_, ConvertedType::UINT_32) => Some(DType::U32),
        (_, ConvertedType::UINT_64) => Some(DType::U64),
        _ => None,
    };
    match physical {
        Physical::BOOLEAN => scalar(DType::Bool, Form::Bool),
        Physical::INT32 => {
            let dtype = integer.filter(|dtype| dtype.size() <= 4).unwrap_or(DType::I32);
            scalar(dtype, Form::Int32(dtype.size()))
        }
        Physical::INT64 => scalar(integer.filter(|dtype| dtype.size() == 8).unwrap_or(DType::I64), Form::Int64),
        Physical::INT96 => Ok((Kind::fixed_bytes(12, described), Form::Int96)),
        Physical::FLOAT => scalar(DType::F32, Form::Float),
        Physical::DOUBLE => scalar(DType::F64, Form::Double),
        Physical::BYTE_ARRAY if is_decimal => {
            decimal(DIGITS.iter().position(|&digits| leaf.type_precision() <= digits), described)
        }
        Physical::BYTE_ARRAY => {
            let is_text = matches!(logical, Some(LogicalType::String | LogicalType::Json | LogicalType::Enum))
                || matches!(leaf.converted_type(), ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM);
            Ok((if is_text { Kind::text(described) } else { Kind::bytes(described) }, Form::Bytes))
        }
        Physical::FIXED_LEN_BYTE_ARRAY => {
            let len = u64::try_from(leaf.type_length()).ok().filter(|&len| len > 0);
            let Some(len) = len else { return Err(format!("of {} bytes a value", leaf.type_length())) };
            if logical == Some(&LogicalType::Float16) && len == 2 {
                return scalar(DType::F16, Form::FixedBytes);
            }
            if is_decimal {
                return decimal(WIDTHS.iter().position(|&width| len <= width), described);
            }
            Ok((Kind::fixed_bytes(len, described), Form::FixedBytes))
        }
    }
}

/// Bytes of the integers that decimals become.
const WIDTHS: [u64; 3] = [8, 16, 32];
/// The most digits that these hold.
const DIGITS: [i32; 3] = [18, 38, 76];

/// A decimal of up to 8 bytes becomes a number. A longer one stays bytes, because there is no longer type.
fn decimal(size: Option<usize>, described: String) -> Result<(Kind, Form), String> {
    match size {
        Some(0) => Ok((Kind::scalar(DType::I64, described), Form::Decimal(8))),
        Some(size) => Ok((Kind::fixed_bytes(WIDTHS[size], described), Form::Decimal(WIDTHS[size] as usize))),
        None => Err(format!("{described}, of more than {} digits", DIGITS[2])),
    }
}

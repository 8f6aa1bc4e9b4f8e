//! Turns a Parquet schema into columns: which can be read, and in which form.

use super::lengths;
use super::metadata::Node;
use super::nested::{Kind as Tangle, Repeated, Tree};
use super::types::{Converted, Logical, Physical, Primitive, Repetition};
use crate::dataset::{DType, Shape};
use crate::formats::arrow::tables::{Field, Type};
use crate::formats::columnar::json::{self, Scalar};
use crate::formats::columnar::{Kind, name_file};
use uringload_core::{Error, ErrorKind, Result};

/// How values of a physical type become elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    /// A 32-bit integer with only this many significant bytes; the others repeat its sign.
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
    /// A list of numbers a row, by its levels.
    Numbers(Repeated),
    /// Lists of numbers within each other, or one, all of the same lengths: their levels and lengths, from the outside
    /// in.
    Tensors(Box<[(Repeated, u64)]>),
    /// Anything else, as JSON text.
    Nested(Tree),
}

/// A leaf of the schema.
#[derive(Clone, Debug)]
pub(super) struct Stem {
    /// Its number in the file.
    pub(super) number: usize,
    pub(super) leaf: Primitive,
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

/// Returns the columns of a schema: the fields of structs; anything that repeats is one column. `note` is Arrow's
/// schema of them.
pub(super) fn columns_of(schema: &[Node], note: Option<&[Field<'_>]>) -> Vec<Found> {
    let mut leaves = Vec::new();
    schema.iter().for_each(|field| field.leaves(&mut leaves));
    let mut reader = LeafWalk { leaves, first: 0, next: 0, found: Vec::new() };
    reader.all(schema, note, "", 0);
    reader.found
}

impl Leaf {
    /// Takes the length that the first file says lists have, or that it says none: a writer may have left out the note.
    /// Rows are compared with it as they are decoded. `kind` is this file's.
    pub(super) fn like(&mut self, kind: &mut Kind, first: &Kind) {
        if (&kind.described, kind.dtype) != (&first.described, first.dtype) {
            return;
        }
        self.build = match (&self.build, &first.shape) {
            (Build::Numbers(of), Shape::Fixed(lengths)) if lengths.len() == 1 => {
                Build::Tensors([(*of, lengths[0])].into())
            }
            (Build::Tensors(lists), Shape::Ragged) if lists.len() == 1 => Build::Numbers(lists[0].0),
            _ => return,
        };
        kind.shape.clone_from(&first.shape);
    }
}

/// Walks a schema, leaf by leaf. The depth of schemas is bounded when the footer is read.
struct LeafWalk<'a> {
    leaves: Vec<(&'a Node, Primitive)>,
    /// The number of the column's first leaf, and that of the next leaf.
    first: usize,
    next: usize,
    found: Vec<Found>,
}

impl LeafWalk<'_> {
    /// Appends the columns of some fields. `definition` is the level from which on their parent is there.
    fn all(&mut self, fields: &[Node], note: Option<&[Field<'_>]>, prefix: &str, definition: u32) {
        for (field, note) in fields.iter().zip(lengths::of_each(fields, note)) {
            self.columns(field, note, prefix, definition);
        }
    }

    fn columns(&mut self, field: &Node, note: Option<&Field<'_>>, prefix: &str, definition: u32) {
        let name = format!("{prefix}{}", field.name);
        if field.is_group() && field.repetition != Repetition::Repeated && !is_list(field) && !is_map(field) {
            let definition = definition + u32::from(field.repetition == Repetition::Optional);
            let prefix = format!("{name}.");
            let first = self.found.len();
            let note = note.filter(|note| note.kind == Type::Struct).map(|note| &note.children[..]);
            self.all(field.fields(), note, &prefix, definition);
            return name_file(&name, &mut self.found[first..]);
        }
        self.first = self.next;
        let column = self.field(field, definition, 0).and_then(|tree| self.column(tree, note)).map_err(|what| {
            Error::new(ErrorKind::Unavailable, format!("column {name:?} is {what}, which cannot be read"))
        });
        // A tree that cannot be read may have been left early.
        self.next = self.first + leaves_of(field);
        self.found.push((name, column));
    }

    fn column(&self, tree: Tree, note: Option<&Field<'_>>) -> Result<(Kind, Leaf), String> {
        let leaves = &self.leaves[self.first..][tree.stems.clone()];
        let kinds = leaves.iter().map(|(node, leaf)| kind_of(node, leaf)).collect::<Result<Vec<_>, String>>()?;
        let own = &kinds[0].0;
        let lists = if own.is_plain() { lists_of(&tree, note)? } else { Vec::new() };
        let (mut kind, build) = match &tree.kind {
            Tangle::Value => (own.clone(), Build::Values),
            _ if !lists.is_empty() => {
                let lengths = lists.iter().map(|(_, length)| *length).collect();
                (own.clone().in_lists(lengths)?, Build::Tensors(lists.into()))
            }
            Tangle::List(of, element) if matches!(element.kind, Tangle::Value) && own.is_plain() => {
                let described = format!("list of {}", own.described);
                (Kind { shape: Shape::Ragged, described, ..own.clone() }, Build::Numbers(*of))
            }
            _ => (Kind::text(format!("JSON of {}", described(&tree, &kinds))), Build::Nested(tree.clone())),
        };
        // An element may be null, too.
        kind.is_nullable = tree.definition > 0 || matches!(build, Build::Numbers(_) | Build::Tensors(_));
        let mut words = vec![0; kinds.len()];
        tree.add_words(0, &mut words);
        let mut stems = Vec::with_capacity(kinds.len());
        for ((&(node, leaf), (kind, form)), words) in leaves.iter().zip(kinds).zip(words) {
            let (number, scalar) = (self.first + stems.len(), scalar_of(node, &leaf, &kind));
            stems.push(Stem { number, leaf, form, bytes: kind.dtype.size(), scalar, words });
        }
        let stems = stems.into();
        Ok((kind, Leaf { stems, build }))
    }

    /// The tree of a field, whose parent is there from level `definition` on, inside `repetition` lists.
    fn field(&mut self, field: &Node, definition: u32, repetition: u32) -> Result<Tree, String> {
        match field.repetition {
            Repetition::Required => self.inside(field, definition, repetition),
            Repetition::Optional => self.inside(field, definition + 1, repetition),
            Repetition::Repeated => {
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
    fn inside(&mut self, field: &Node, definition: u32, repetition: u32) -> Result<Tree, String> {
        let start = self.next - self.first;
        let of = Repeated { definition: definition + 1, repetition: repetition + 1 };
        let kind = if !field.is_group() {
            self.next += 1;
            Tangle::Value
        } else if is_list(field) {
            let [child] = field.fields() else { return Err("a list without one element type".into()) };
            if child.repetition != Repetition::Repeated {
                return Err("a list that does not repeat".into());
            }
            let is_element = !child.is_group()
                || child.fields().len() != 1
                || child.name == "array"
                || child.name == format!("{}_tuple", field.name);
            let element = if is_element {
                self.inside(child, of.definition, of.repetition)?
            } else {
                self.field(&child.fields()[0], of.definition, of.repetition)?
            };
            Tangle::List(of, Box::new(element))
        } else if is_map(field) {
            let [pair] = field.fields() else { return Err("a map without one type of pairs".into()) };
            let (Repetition::Repeated, true) = (pair.repetition, pair.is_group()) else {
                return Err("a map that does not repeat".into());
            };
            let [key, value] = pair.fields() else { return Err("a map without keys and values".into()) };
            let key = self.field(key, of.definition, of.repetition)?;
            if !matches!(key.kind, Tangle::Value) {
                return Err("a map whose keys are no single values".into());
            }
            Tangle::Map(of, Box::new([key, self.field(value, of.definition, of.repetition)?]))
        } else {
            let mut fields = Vec::new();
            for field in field.fields() {
                fields.push((json::name(&field.name), self.field(field, definition, repetition)?));
            }
            Tangle::Struct(fields)
        };
        let stems = start..self.next - self.first;
        if stems.is_empty() { Err("a struct without fields".into()) } else { Ok(Tree { definition, stems, kind }) }
    }
}

/// The levels and lengths of lists within each other, from the outside in, which all have one length by the note, and
/// hold single values at last. None for all other lists.
///
/// # Errors
/// A length below 0.
fn lists_of(tree: &Tree, note: Option<&Field<'_>>) -> Result<Vec<(Repeated, u64)>, String> {
    let (mut found, mut tree, mut note) = (Vec::new(), tree, note);
    while let Tangle::List(of, element) = &tree.kind {
        let Some(Field { kind: Type::FixedSizeList { count }, children, .. }) = note else { return Ok(Vec::new()) };
        found.push((*of, u64::try_from(*count).map_err(|_| "a list of negative length".to_owned())?));
        tree = element;
        note = children.first();
    }
    let is_single = matches!(tree.kind, Tangle::Value) && note.is_some_and(|note| note.children.is_empty());
    // Lists of empty lists have no tensor.
    let is_tensor = is_single && (found.len() == 1 || found.iter().all(|(_, length)| *length > 0));
    Ok(if is_tensor { found } else { Vec::new() })
}

fn leaves_of(field: &Node) -> usize {
    if field.is_group() { field.fields().iter().map(leaves_of).sum() } else { 1 }
}

fn is_list(field: &Node) -> bool {
    field.is_group() && (field.converted == Some(Converted::List) || field.logical == Some(Logical::List))
}

fn is_map(field: &Node) -> bool {
    let is_old = matches!(field.converted, Some(Converted::Map | Converted::MapKeyValue));
    field.is_group() && (is_old || field.logical == Some(Logical::Map))
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
fn scalar_of(node: &Node, leaf: &Primitive, kind: &Kind) -> Scalar {
    if is_decimal(node) {
        return Scalar::Decimal(leaf.scale.clamp(0, DIGITS[2]));
    }
    Scalar::of(kind)
}

fn is_decimal(node: &Node) -> bool {
    matches!(node.logical, Some(Logical::Decimal { .. })) || node.converted == Some(Converted::Decimal)
}

fn kind_of(node: &Node, leaf: &Primitive) -> Result<(Kind, Form), String> {
    let physical = leaf.physical;
    let logical = node.logical.as_ref();
    let described = match (logical, node.converted) {
        (Some(logical), _) => format!("{physical} {logical}"),
        (None, Some(converted)) => format!("{physical} {converted}"),
        (None, None) => physical.to_string(),
    };
    let scalar = |dtype, form| Ok((Kind::scalar(dtype, described.clone()), form));
    let is_decimal = is_decimal(node);
    let integer = match (logical, node.converted) {
        (Some(Logical::Integer { bits, is_signed }), _) => {
            DType::named(&format!("{}{bits}", if *is_signed { 'i' } else { 'u' }))
        }
        (_, Some(Converted::Int8)) => Some(DType::I8),
        (_, Some(Converted::UInt8)) => Some(DType::U8),
        (_, Some(Converted::Int16)) => Some(DType::I16),
        (_, Some(Converted::UInt16)) => Some(DType::U16),
        (_, Some(Converted::UInt32)) => Some(DType::U32),
        (_, Some(Converted::UInt64)) => Some(DType::U64),
        _ => None,
    };
    match physical {
        Physical::Boolean => scalar(DType::Bool, Form::Bool),
        Physical::Int32 => {
            let dtype = integer.filter(|dtype| dtype.size() <= 4).unwrap_or(DType::I32);
            scalar(dtype, Form::Int32(dtype.size()))
        }
        Physical::Int64 => scalar(integer.filter(|dtype| dtype.size() == 8).unwrap_or(DType::I64), Form::Int64),
        Physical::Int96 => Ok((Kind::fixed_bytes(12, described), Form::Int96)),
        Physical::Float => scalar(DType::F32, Form::Float),
        Physical::Double => scalar(DType::F64, Form::Double),
        Physical::ByteArray if is_decimal => {
            decimal(DIGITS.iter().position(|&digits| leaf.precision <= digits), described)
        }
        Physical::ByteArray => {
            let is_text = matches!(logical, Some(Logical::String | Logical::Json | Logical::Enum))
                || matches!(node.converted, Some(Converted::Utf8 | Converted::Json | Converted::Enum));
            Ok((if is_text { Kind::text(described) } else { Kind::bytes(described) }, Form::Bytes))
        }
        Physical::FixedLenByteArray => {
            let len = u64::try_from(leaf.len).ok().filter(|&len| len > 0);
            let Some(len) = len else { return Err(format!("of {} bytes a value", leaf.len)) };
            if logical == Some(&Logical::Float16) && len == 2 {
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

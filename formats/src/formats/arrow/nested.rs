//! Lists of anything but numbers, and maps: their arrays become JSON text, row by row.

use super::decode::{Ends, bit, corrupt, elements_of, too_short, viewed};
use super::schema::{Storage, values_of};
use super::tables::{Field, Type};
use crate::formats::columnar::Kind;
use crate::formats::columnar::json::{self, Scalar, Text};
use bytes::Bytes;
use std::ops::Range;
use uringload_core::Result;

/// A nested type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Always null: what lists are of where all that a writer saw were empty.
    Null,
    Value(Storage, Scalar),
    List {
        is_wide: bool,
        of: Box<Tree>,
    },
    /// This many elements a row.
    Every {
        count: u64,
        of: Box<Tree>,
    },
    /// Names, as text with a colon.
    Struct(Vec<(Box<[u8]>, Tree)>),
    /// Keys and values, within a struct of their own.
    Map(Box<[Tree; 2]>),
}

/// A node of a batch: how many elements it has, and how many buffers.
pub(super) type Node = (u64, usize);

/// How many decimals a decimal may have: more than a type holds would only be zeros.
const SCALE_MAX: u32 = 76;

/// Null, or the brackets and what separates one element from the next.
const AROUND: u64 = 5;

impl Tree {
    /// The type of a field, and how it is called.
    pub(super) fn of(field: &Field<'_>) -> Result<(Tree, String), String> {
        if field.dictionary.is_some() {
            return Err("nested, with a dictionary inside".into());
        }
        let one = || match &field.children[..] {
            [child] => Ok(child),
            _ => Err("a list without one element type".to_owned()),
        };
        let list = |is_wide| {
            let (of, described) = Tree::of(one()?)?;
            Ok((Tree::List { is_wide, of: Box::new(of) }, format!("list<{described}>")))
        };
        match field.kind {
            Type::Null => Ok((Tree::Null, "null".into())),
            Type::List => list(false),
            Type::LargeList => list(true),
            Type::FixedSizeList { count } => {
                let count = u64::try_from(count).map_err(|_| "a list of negative length".to_owned())?;
                let (of, described) = Tree::of(one()?)?;
                Ok((Tree::Every { count, of: Box::new(of) }, format!("list<{described}, {count}>")))
            }
            Type::Struct => {
                let (mut fields, mut all) = (Vec::new(), Vec::new());
                for child in &field.children {
                    let (tree, described) = Tree::of(child)?;
                    fields.push((json::name(child.name), tree));
                    all.push(format!("{:?}: {described}", child.name));
                }
                if fields.is_empty() {
                    return Err("a struct without fields".into());
                }
                Ok((Tree::Struct(fields), format!("struct<{}>", all.join(", "))))
            }
            Type::Map => {
                let entries = one()?;
                let [key, value] = &entries.children[..] else {
                    return Err("a map without keys and values".into());
                };
                let ((key, of_key), (value, of_value)) = (Tree::of(key)?, Tree::of(value)?);
                if !matches!(key, Tree::Value(..)) {
                    return Err("a map whose keys are no single values".into());
                }
                Ok((Tree::Map(Box::new([key, value])), format!("map<{of_key}, {of_value}>")))
            }
            _ => {
                let (kind, storage) = values_of(field)?;
                let scalar = scalar_of(field, &kind)?;
                Ok((Tree::Value(storage, scalar), kind.described))
            }
        }
    }

    /// How many nodes a batch has of it.
    pub(super) fn nodes(&self) -> usize {
        match self {
            Tree::Null | Tree::Value(..) => 1,
            Tree::List { of, .. } | Tree::Every { of, .. } => 1 + of.nodes(),
            Tree::Struct(fields) => fields.iter().fold(1, |sum, (_, field)| sum + field.nodes()),
            // The struct around keys and values is another.
            Tree::Map(pair) => pair.iter().fold(2, |sum, part| sum + part.nodes()),
        }
    }

    pub(super) fn has_views(&self) -> bool {
        match self {
            Tree::Null => false,
            Tree::Value(storage, _) => *storage == Storage::View,
            Tree::List { of, .. } | Tree::Every { of, .. } => of.has_views(),
            Tree::Struct(fields) => fields.iter().any(|(_, field)| field.has_views()),
            Tree::Map(pair) => pair.iter().any(Tree::has_views),
        }
    }

    /// Returns the most bytes of text that `nodes` take, and goes past them. `strings` returns the length of the
    /// strings of a node that begins with that buffer. `None` for more than 2^64, and for missing nodes.
    pub(super) fn room(
        &self,
        nodes: &mut &[Node],
        buffer: &mut usize,
        words: u64,
        strings: &mut dyn FnMut(&Storage, u64, usize) -> Result<u64>,
    ) -> Result<Option<u64>> {
        let mut next = |buffer: &mut usize| {
            let (&(len, buffers), rest) = nodes.split_first()?;
            *nodes = rest;
            let first = *buffer;
            *buffer += buffers;
            Some((len, first))
        };
        let Some((len, first)) = next(buffer) else { return Ok(None) };
        let mut sum = len.checked_mul(words + AROUND);
        let parts: Vec<(u64, &Tree)> = match self {
            Tree::Null => Vec::new(),
            Tree::Value(storage, scalar) => {
                let is_string = matches!(scalar, Scalar::Text | Scalar::Bytes);
                let bytes = if is_string { json::text_room(strings(storage, len, first)?) } else { 0 };
                let values = len.checked_mul(scalar.room()).and_then(|values| values.checked_add(bytes));
                sum = sum.zip(values).and_then(|(a, b)| a.checked_add(b));
                Vec::new()
            }
            Tree::List { of, .. } | Tree::Every { of, .. } => vec![(0, of)],
            Tree::Struct(fields) => fields.iter().map(|(name, field)| (name.len() as u64, field)).collect(),
            Tree::Map(pair) => {
                let _ = next(buffer);
                // A colon, and the quotes of keys that are numbers.
                pair.iter().map(|part| (3, part)).collect()
            }
        };
        for (words, part) in parts {
            let room = part.room(nodes, buffer, words, strings)?;
            sum = sum.zip(room).and_then(|(a, b)| a.checked_add(b));
        }
        Ok(sum)
    }
}

/// What a value is inside a nested column.
fn scalar_of(field: &Field<'_>, kind: &Kind) -> Result<Scalar, String> {
    if let Type::Decimal { scale, .. } = field.kind {
        return if scale.unsigned_abs() <= SCALE_MAX {
            Ok(Scalar::Decimal(scale))
        } else {
            Err("a decimal of too many digits".into())
        };
    }
    Ok(Scalar::of(kind))
}

/// An array of a batch: what its buffers hold.
pub(super) struct Array<'a> {
    tree: &'a Tree,
    /// A bit for each element that has a value. Empty means all.
    valid: &'a [u8],
    len: usize,
    data: Data<'a>,
}

enum Data<'a> {
    /// Nothing: no element has a value.
    Null,
    /// Elements, and the bytes of each.
    Fixed(Bytes, usize),
    Binary(Ends<'a>, &'a [u8]),
    View(&'a [u8], &'a [Bytes]),
    List(Ends<'a>, Box<Array<'a>>),
    Struct(Vec<Array<'a>>),
    Map(Ends<'a>, Box<[Array<'a>; 2]>),
}

impl<'a> Array<'a> {
    /// Takes the nodes and buffers of an array with at least `least` elements.
    ///
    /// # Errors
    /// `Corrupt` for buffers that are missing or too short.
    pub(super) fn take(
        tree: &'a Tree,
        least: usize,
        nodes: &mut &[Node],
        buffers: &mut &'a [Bytes],
    ) -> Result<Array<'a>> {
        let (len, own) = next(nodes, buffers)?;
        if len < least {
            return Err(too_short());
        }
        let buffer = |number: usize| own.get(number).ok_or_else(too_short);
        let valid = if matches!(tree, Tree::Null) { &[][..] } else { &buffer(0)?[..] };
        if !valid.is_empty() && valid.len() < len.div_ceil(8) {
            return Err(too_short());
        }
        let data = match tree {
            Tree::Null => Data::Null,
            Tree::Value(Storage::Fixed(element), _) => {
                let width = usize::try_from(element.width()).map_err(|_| too_short())?;
                Data::Fixed(elements_of(*element, buffer(1)?, len)?, width)
            }
            Tree::Value(Storage::Binary { is_wide }, _) => {
                Data::Binary(Ends::new(*is_wide, buffer(1)?, len)?, buffer(2)?)
            }
            Tree::Value(Storage::View, _) => Data::View(buffer(1)?, own.get(2..).unwrap_or_default()),
            Tree::Value(..) => return Err(corrupt("a nested value is stored in no form of its own")),
            Tree::List { is_wide, of } => {
                let ends = Ends::new(*is_wide, buffer(1)?, len)?;
                Data::List(ends, Box::new(Array::take(of, 0, nodes, buffers)?))
            }
            Tree::Every { count, of } => {
                let count = usize::try_from(*count).map_err(|_| too_short())?;
                let least = len.checked_mul(count).ok_or_else(too_short)?;
                Data::List(Ends::Every(count), Box::new(Array::take(of, least, nodes, buffers)?))
            }
            Tree::Struct(fields) => {
                let field = |(_, field): &'a (Box<[u8]>, Tree)| Array::take(field, len, nodes, buffers);
                Data::Struct(fields.iter().map(field).collect::<Result<_>>()?)
            }
            Tree::Map(pair) => {
                let ends = Ends::new(false, buffer(1)?, len)?;
                let (entries, _) = next(nodes, buffers)?;
                let [key, value] = &**pair;
                let key = Array::take(key, entries, nodes, buffers)?;
                Data::Map(ends, Box::new([key, Array::take(value, entries, nodes, buffers)?]))
            }
        };
        Ok(Array { tree, valid, len, data })
    }

    /// Whether there is a value.
    pub(super) fn is_valid(&self, row: usize) -> bool {
        !matches!(self.data, Data::Null) && (self.valid.is_empty() || bit(self.valid, row))
    }

    /// Writes an element. `row` is below the number of elements.
    pub(super) fn write(&self, row: usize, out: &mut Text<'_, '_>) -> Result<()> {
        if !self.is_valid(row) {
            return out.raw(b"null");
        }
        match &self.data {
            Data::Null => out.raw(b"null"),
            Data::Fixed(bytes, width) => self.value(&bytes[row * width..][..*width], out),
            Data::Binary(ends, bytes) => {
                let (start, end) = ends.row(row, bytes.len())?;
                self.value(&bytes[start..end], out)
            }
            Data::View(views, strings) => self.value(viewed(views, strings, row)?, out),
            Data::Struct(arrays) => {
                let Tree::Struct(fields) = self.tree else { return Err(too_short()) };
                for (number, ((name, _), array)) in fields.iter().zip(arrays).enumerate() {
                    out.raw(if number == 0 { b"{" } else { b"," })?;
                    out.raw(name)?;
                    array.write(row, out)?;
                }
                out.raw(b"}")
            }
            Data::List(ends, of) => {
                let (start, end) = ends.row(row, of.len)?;
                out.raw(b"[")?;
                of.write_all(start..end, out)?;
                out.raw(b"]")
            }
            Data::Map(ends, pair) => {
                let [key, value] = &**pair;
                let (start, end) = ends.row(row, key.len.min(value.len))?;
                out.raw(b"{")?;
                for element in start..end {
                    if element > start {
                        out.raw(b",")?;
                    }
                    key.write_key(element, out)?;
                    out.raw(b":")?;
                    value.write(element, out)?;
                }
                out.raw(b"}")
            }
        }
    }

    /// Writes elements with commas between them. What they are is asked once for all of them.
    fn write_all(&self, elements: Range<usize>, out: &mut Text<'_, '_>) -> Result<()> {
        let first = elements.start;
        let separate = |element: usize, out: &mut Text<'_, '_>| {
            if element > first { out.raw(b",") } else { Ok(()) }
        };
        match (&self.data, self.tree) {
            (Data::Fixed(bytes, width), Tree::Value(_, scalar)) if self.valid.is_empty() => {
                for element in elements {
                    separate(element, out)?;
                    scalar.write(&bytes[element * width..][..*width], out)?;
                }
            }
            (Data::Binary(ends, bytes), Tree::Value(_, scalar)) if self.valid.is_empty() => {
                for element in elements {
                    separate(element, out)?;
                    let (start, end) = ends.row(element, bytes.len())?;
                    scalar.write(&bytes[start..end], out)?;
                }
            }
            _ => {
                for element in elements {
                    separate(element, out)?;
                    self.write(element, out)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a key, which is text in JSON whatever it is.
    fn write_key(&self, row: usize, out: &mut Text<'_, '_>) -> Result<()> {
        if !self.is_valid(row) {
            return Err(corrupt("a key of a map is null"));
        }
        if matches!(self.tree, Tree::Value(_, Scalar::Text | Scalar::Bytes)) {
            return self.write(row, out);
        }
        out.raw(b"\"")?;
        self.write(row, out)?;
        out.raw(b"\"")
    }

    fn value(&self, bytes: &[u8], out: &mut Text<'_, '_>) -> Result<()> {
        let Tree::Value(_, scalar) = self.tree else { return Err(too_short()) };
        scalar.write(bytes, out)
    }
}

/// Takes the next node: how many elements it has, and its buffers.
fn next<'a>(nodes: &mut &[Node], buffers: &mut &'a [Bytes]) -> Result<(usize, &'a [Bytes])> {
    let (&(len, count), rest) = nodes.split_first().ok_or_else(too_short)?;
    let (own, others) = buffers.split_at_checked(count).ok_or_else(too_short)?;
    (*nodes, *buffers) = (rest, others);
    Ok((usize::try_from(len).map_err(|_| too_short())?, own))
}

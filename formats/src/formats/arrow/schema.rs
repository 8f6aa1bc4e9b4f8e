//! Turns Arrow's schema into columns: which can be read, which buffers of a batch they have, and how they are stored.

use super::nested::Tree;
use super::tables::{Field, Schema, Type};
use crate::dataset::{DType, Shape};
use crate::formats::columnar::{Kind, name_file};
use uringload_core::{Error, ErrorKind, Result};

/// How the values of a field are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// Elements, one after another.
    Fixed(Element),
    /// Bytes, and offsets of 8 bytes if they are wide, else of 4.
    Binary { is_wide: bool },
    /// Views of 16 bytes, which hold short strings and lead to long ones.
    View,
    /// Offsets, and elements in a child field.
    List { is_wide: bool, element: Element },
    /// Elements in a child field, or in a child of that and so on: a row has lists of these lengths, from the outside
    /// in.
    FixedList { counts: Box<[u64]>, element: Element },
    /// Numbers of values in the dictionary `id`.
    Dictionary { index_bytes: u64, id: i64, values: Box<Storage> },
    /// Arrays within arrays.
    Nested(Box<Tree>),
    /// Lists that hold nothing but nulls, where other files have elements of `width` bytes.
    Nulls { is_wide: bool, width: u64 },
    /// Nowhere: the file does not have the column, and all its rows are null.
    Absent,
}

/// How a number, or an element of a list, is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Bit,
    Bytes(u64),
}

impl Element {
    /// How many bytes are delivered for it.
    pub(super) fn width(self) -> u64 {
        match self {
            Element::Bit => 1,
            Element::Bytes(bytes) => bytes,
        }
    }
}

impl Storage {
    /// The number of buffers of a field and of its elements. Batches may have more for views.
    pub(super) fn buffers(&self) -> usize {
        match self {
            Storage::Fixed(_) | Storage::View | Storage::Dictionary { .. } => 2,
            Storage::Binary { .. } => 3,
            Storage::FixedList { counts, .. } => counts.len() + 2,
            Storage::List { .. } => 4,
            // The first node has one at least; `Array::take` looks for the others.
            Storage::Nested(_) => 1,
            Storage::Nulls { .. } => 2,
            Storage::Absent => 0,
        }
    }
}

/// A field, in the order in which a batch lists nodes and buffers: structs come before their fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// How many buffers it has in every batch.
    pub(super) buffers: usize,
    /// Whether a batch says how many more it has.
    pub(super) is_view: bool,
    /// Whether it has one more in a batch whose unions say which of their values are there.
    pub(super) is_union: bool,
}

/// A column of a file.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub(super) storage: Storage,
    /// Its node. The next one holds the elements of a list.
    pub(super) node: usize,
    /// The nodes of the structs around it.
    pub(super) parents: Vec<usize>,
}

/// Columns by name, or why they cannot be read.
pub(super) type Columns = Vec<(String, Result<(Kind, Leaf)>)>;

/// What a schema says.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Node>,
    pub(super) columns: Columns,
    /// The columns of those that are null in every row, and of no type.
    pub(super) nulls: Vec<String>,
    /// The length of all names.
    name_bytes: usize,
}

/// The most bytes that the names of all columns have, each with the names of the structs around it.
const NAME_BYTES_MAX: usize = 64 << 20;

/// Turns a schema into columns. Its depth and the number of its fields were bounded when it was read.
///
/// # Errors
/// `Unavailable` for big endian numbers; `Corrupt` for names that are too long.
pub(super) fn read(schema: &Schema<'_>) -> Result<Layout> {
    if !schema.is_little_endian {
        return Err(Error::new(ErrorKind::Unavailable, "numbers are big endian").with_remedy("write the file again"));
    }
    let mut layout = Layout::default();
    schema.fields.iter().try_for_each(|field| layout.add(field, "", &[], false))?;
    Ok(layout)
}

impl Layout {
    fn add(&mut self, field: &Field<'_>, prefix: &str, parents: &[usize], is_nullable: bool) -> Result<()> {
        let name = format!("{prefix}{}", field.name);
        self.name_bytes += name.len();
        if self.name_bytes > NAME_BYTES_MAX {
            return Err(Error::new(ErrorKind::Corrupt, "the schema is broken"));
        }
        let is_nullable = is_nullable || field.is_nullable;
        let node = self.nodes.len();
        // Fields of structs are columns of their own.
        if field.kind == Type::Struct && field.dictionary.is_none() {
            self.nodes.push(Node { buffers: 1, is_view: false, is_union: false });
            let (prefix, parents) = (format!("{name}."), [parents, &[node]].concat());
            let first = self.columns.len();
            field.children.iter().try_for_each(|child| self.add(child, &prefix, &parents, is_nullable))?;
            name_file(&name, &mut self.columns[first..]);
            return Ok(());
        }
        self.pass(field);
        if field.kind == Type::Null {
            self.nulls.push(name.clone());
        }
        let column = match column_of(field) {
            Ok((mut kind, storage)) => {
                let inside = match &storage {
                    Storage::List { .. } => has_nullable(field, 1),
                    Storage::FixedList { counts, .. } => has_nullable(field, counts.len()),
                    _ => false,
                };
                kind.is_nullable = is_nullable || inside;
                Ok((kind, Leaf { storage, node, parents: parents.to_vec() }))
            }
            Err(what) => {
                Err(Error::new(ErrorKind::Unavailable, format!("column {name:?} is {what}, which cannot be read")))
            }
        };
        self.columns.push((name, column));
        Ok(())
    }

    /// Appends the nodes of a field and of all fields below it.
    fn pass(&mut self, field: &Field<'_>) {
        if field.dictionary.is_some() {
            return self.nodes.push(Node { buffers: 2, is_view: false, is_union: false });
        }
        let is_view = matches!(field.kind, Type::BinaryView | Type::Utf8View);
        let buffers = match field.kind {
            Type::Null | Type::RunEndEncoded => 0,
            Type::Struct | Type::FixedSizeList { .. } => 1,
            // A dense one has offsets, too.
            Type::Union { mode } => 1 + usize::from(mode == 1),
            Type::Binary | Type::Utf8 | Type::LargeBinary | Type::LargeUtf8 | Type::ListView | Type::LargeListView => 3,
            _ => 2,
        };
        self.nodes.push(Node { buffers, is_view, is_union: matches!(field.kind, Type::Union { .. }) });
        field.children.iter().for_each(|child| self.pass(child));
    }
}

/// Whether an element of a list may be null, or of a list within it, down to this depth.
fn has_nullable(field: &Field<'_>, depth: usize) -> bool {
    depth > 0 && field.children.iter().any(|element| element.is_nullable || has_nullable(element, depth - 1))
}

/// Returns what a field holds and how, or why it cannot be read.
fn column_of(field: &Field<'_>) -> Result<(Kind, Storage), String> {
    let is_list = matches!(field.kind, Type::List | Type::LargeList | Type::FixedSizeList { .. } | Type::Map);
    let (kind, storage) = match values_of(field) {
        Err(_) if is_list => {
            let (tree, described) = Tree::of(field)?;
            (Kind::text(format!("JSON of {described}")), Storage::Nested(Box::new(tree)))
        }
        found => found?,
    };
    let Some(dictionary) = field.dictionary else { return Ok((kind, storage)) };
    if matches!(storage, Storage::List { .. } | Storage::FixedList { .. } | Storage::Nested(_)) {
        return Err("a dictionary of lists".into());
    }
    let index_bytes = match dictionary.index_bits {
        bits @ (8 | 16 | 32 | 64) => bits as u64 / 8,
        _ => return Err("a dictionary whose indices have an unknown size".into()),
    };
    let kind = Kind { described: format!("dictionary of {}", kind.described), ..kind };
    Ok((kind, Storage::Dictionary { index_bytes, id: dictionary.id, values: Box::new(storage) }))
}

pub(super) fn values_of(field: &Field<'_>) -> Result<(Kind, Storage), String> {
    let scalar =
        |dtype: DType, name: &str| Ok((Kind::scalar(dtype, name), Storage::Fixed(Element::Bytes(dtype.size()))));
    let bytes = |len: u64, name: &str| Ok((Kind::fixed_bytes(len, name), Storage::Fixed(Element::Bytes(len))));
    let binary = |kind: Kind, is_wide: bool| Ok((kind, Storage::Binary { is_wide }));
    match field.kind {
        Type::Null => Err("always null".into()),
        Type::Bool => Ok((Kind::scalar(DType::Bool, "bool"), Storage::Fixed(Element::Bit))),
        Type::Int { bits, is_signed } => {
            let sign = if is_signed { "int" } else { "uint" };
            match DType::named(&format!("{}{bits}", &sign[..1])) {
                Some(dtype) => scalar(dtype, &format!("{sign}{bits}")),
                None => Err(format!("an integer of {bits} bits")),
            }
        }
        Type::Float { precision: 0 } => scalar(DType::F16, "float16"),
        Type::Float { precision: 1 } => scalar(DType::F32, "float32"),
        Type::Float { precision: 2 } => scalar(DType::F64, "float64"),
        Type::Float { precision } => Err(format!("a float of precision {precision}")),
        Type::Binary => binary(Kind::bytes("binary"), false),
        Type::Utf8 => binary(Kind::text("utf8"), false),
        Type::LargeBinary => binary(Kind::bytes("large binary"), true),
        Type::LargeUtf8 => binary(Kind::text("large utf8"), true),
        Type::BinaryView => Ok((Kind::bytes("binary view"), Storage::View)),
        Type::Utf8View => Ok((Kind::text("utf8 view"), Storage::View)),
        Type::Decimal { precision, scale, bits } => {
            let name = format!("decimal({precision}, {scale})");
            match bits {
                32 => scalar(DType::I32, &name),
                64 => scalar(DType::I64, &name),
                128 => bytes(16, &name),
                256 => bytes(32, &name),
                bits => Err(format!("a decimal of {bits} bits")),
            }
        }
        Type::Date { unit: 0 } => scalar(DType::I32, "date in days"),
        Type::Date { .. } => scalar(DType::I64, "date in ms"),
        Type::Time { unit, bits } => {
            let dtype = if bits == 64 { DType::I64 } else { DType::I32 };
            scalar(dtype, &format!("time in {}", name_of(unit)))
        }
        Type::Timestamp { unit } => scalar(DType::I64, &format!("timestamp in {}", name_of(unit))),
        Type::Duration { unit } => scalar(DType::I64, &format!("duration in {}", name_of(unit))),
        Type::Interval { unit: 0 } => scalar(DType::I32, "interval in months"),
        Type::Interval { unit: 1 } => bytes(8, "interval in days and ms"),
        Type::Interval { .. } => bytes(16, "interval in months, days and ns"),
        Type::FixedSizeBinary { len } if len > 0 => bytes(len as u64, &format!("binary of {len} bytes")),
        Type::FixedSizeBinary { .. } => Err("binary of 0 bytes".into()),
        Type::List => list(field, |element| Storage::List { is_wide: false, element }),
        Type::LargeList => list(field, |element| Storage::List { is_wide: true, element }),
        Type::FixedSizeList { count } => {
            fixed_list(field, u64::try_from(count).map_err(|_| "a list of negative length".to_owned())?)
        }
        Type::Struct => Err("a struct".into()),
        Type::Union { .. } => Err("a union".into()),
        Type::Map => Err("a map".into()),
        Type::RunEndEncoded => Err("run-end encoded".into()),
        Type::ListView | Type::LargeListView => Err("a list of views".into()),
        Type::Other(number) => Err(format!("of the unknown type {number}")),
    }
}

fn name_of(unit: i16) -> &'static str {
    match unit {
        0 => "s",
        1 => "ms",
        2 => "us",
        3 => "ns",
        _ => "?",
    }
}

fn list(field: &Field<'_>, storage: impl FnOnce(Element) -> Storage) -> Result<(Kind, Storage), String> {
    let (kind, element) = number_of(element_of(field)?)?;
    let described = format!("list of {}", kind.described);
    Ok((Kind { shape: Shape::Ragged, described, ..kind }, storage(element)))
}

/// Lists of one length, also within each other.
fn fixed_list(field: &Field<'_>, count: u64) -> Result<(Kind, Storage), String> {
    let (mut counts, mut child) = (vec![count], element_of(field)?);
    while let Type::FixedSizeList { count } = child.kind {
        counts.push(u64::try_from(count).map_err(|_| "a list of negative length".to_owned())?);
        child = element_of(child)?;
    }
    if counts.len() > 1 && counts.contains(&0) {
        return Err("a list of empty lists".into());
    }
    let (kind, element) = number_of(child)?;
    Ok((kind.in_lists(counts.clone())?, Storage::FixedList { counts: counts.into(), element }))
}

fn element_of<'a, 'b>(field: &'b Field<'a>) -> Result<&'b Field<'a>, String> {
    match &field.children[..] {
        [child] if child.dictionary.is_some() => Err("a list of a dictionary's values".into()),
        [child] => Ok(child),
        _ => Err("a list without one element type".into()),
    }
}

fn number_of(field: &Field<'_>) -> Result<(Kind, Element), String> {
    match values_of(field).map_err(|what| format!("a list of {what}"))? {
        (kind, Storage::Fixed(element)) if kind.is_plain() => Ok((kind, element)),
        (kind, _) => Err(format!("a list of {}, not of numbers", kind.described)),
    }
}

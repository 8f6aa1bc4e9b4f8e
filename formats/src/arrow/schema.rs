//! From Arrow's schema to columns: which can be had, where their buffers stand in a batch, and how they are stored.

use super::flat::Table;
use crate::columnar::{Column, Kind};
use crate::{DType, Shape};
use uringload_core::{Error, ErrorKind, Result};

/// How the values of a field are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// A bit each.
    Bits,
    /// So many bytes each.
    Fixed(u64),
    /// Offsets, of 8 bytes where they are wide and else of 4, and bytes.
    Binary { is_wide: bool },
    /// 16 bytes each, which hold short strings and lead to long ones.
    View,
    /// Offsets, and elements in a field of their own.
    List { is_wide: bool, element: Element },
    /// So many elements each, in a field of their own.
    FixedList { count: u64, element: Element },
    /// Numbers of so many bytes, of values in the dictionary of that name.
    Dictionary { index_bytes: u64, id: i64, values: Box<Storage> },
}

/// How an element of a list is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Bit,
    Bytes(u64),
}

impl Element {
    /// Bytes that it is delivered as.
    pub(super) fn width(self) -> u64 {
        match self {
            Element::Bit => 1,
            Element::Bytes(bytes) => bytes,
        }
    }
}

impl Storage {
    /// Buffers of the field itself and of its elements; of views, those that every batch has.
    pub(super) fn buffers(&self) -> usize {
        match self {
            Storage::Bits | Storage::Fixed(_) | Storage::View | Storage::Dictionary { .. } => 2,
            Storage::Binary { .. } | Storage::FixedList { .. } => 3,
            Storage::List { .. } => 4,
        }
    }
}

/// A field in the order in which a batch has its nodes and buffers: structs before their fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Buffers that it has in every batch.
    pub(super) buffers: usize,
    /// Whether a batch tells how many more it has.
    pub(super) is_view: bool,
}

/// A column of a file.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) storage: Storage,
    /// Its node; elements of a list are the next.
    pub(super) node: usize,
    /// Nodes of the structs that it lies in.
    pub(super) parents: Vec<usize>,
}

/// What a schema tells.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Node>,
    pub(super) names: Vec<(String, Result<()>)>,
    /// For each name, where it can be had.
    pub(super) columns: Vec<Option<(Column, Leaf)>>,
}

/// Fields within each other.
const DEPTH_MAX: usize = 64;

const SCHEMA_ENDIANNESS: u16 = 0;
const SCHEMA_FIELDS: u16 = 1;
const FIELD_NAME: u16 = 0;
const FIELD_NULLABLE: u16 = 1;
const FIELD_TYPE: u16 = 2;
const FIELD_TYPE_TABLE: u16 = 3;
const FIELD_DICTIONARY: u16 = 4;
const FIELD_CHILDREN: u16 = 5;

/// Reads a schema.
///
/// # Errors
/// `Unavailable` for big endian numbers; `Corrupt` for what is no schema.
pub(super) fn read(schema: Table<'_>) -> Result<Layout> {
    if schema.i16(SCHEMA_ENDIANNESS).unwrap_or(0) != 0 {
        return Err(Error::new(ErrorKind::Unavailable, "numbers are big endian").with_remedy("write the file again"));
    }
    let mut layout = Layout::default();
    for field in schema.tables(SCHEMA_FIELDS).ok_or_else(broken)? {
        layout.add(field, "", &[], false)?;
    }
    Ok(layout)
}

fn broken() -> Error {
    Error::new(ErrorKind::Corrupt, "the schema is broken")
}

impl Layout {
    fn add(&mut self, field: Table<'_>, prefix: &str, parents: &[usize], is_nullable: bool) -> Result<()> {
        if parents.len() > DEPTH_MAX {
            return Err(broken());
        }
        let name = format!("{prefix}{}", field.text(FIELD_NAME).unwrap_or_default());
        let is_nullable = is_nullable || field.bool(FIELD_NULLABLE);
        let node = self.nodes.len();
        let kind = field.u8(FIELD_TYPE).unwrap_or(0);
        if kind == types::STRUCT && field.table(FIELD_DICTIONARY).is_none() {
            self.nodes.push(Node { buffers: 1, is_view: false });
            let parents = [parents, &[node]].concat();
            for child in field.tables(FIELD_CHILDREN).ok_or_else(broken)? {
                self.add(child, &format!("{name}."), &parents, is_nullable)?;
            }
            return Ok(());
        }
        let column = column_of(field);
        self.pass(field, 0)?;
        match column {
            Ok((mut kind, storage)) => {
                kind.is_nullable = is_nullable;
                self.names.push((name.clone(), Ok(())));
                self.columns.push(Some((Column { name, kind }, Leaf { storage, node, parents: parents.to_vec() })));
            }
            Err(what) => {
                let error =
                    Error::new(ErrorKind::Unavailable, format!("column {name:?} is {what}, which cannot be read"));
                self.names.push((name, Err(error)));
                self.columns.push(None);
            }
        }
        Ok(())
    }

    /// Counts the nodes of a field and of all below it.
    fn pass(&mut self, field: Table<'_>, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(broken());
        }
        if field.table(FIELD_DICTIONARY).is_some() {
            self.nodes.push(Node { buffers: 2, is_view: false });
            return Ok(());
        }
        let kind = field.u8(FIELD_TYPE).unwrap_or(0);
        let is_view = matches!(kind, types::BINARY_VIEW | types::UTF8_VIEW);
        let is_dense = || field.table(FIELD_TYPE_TABLE).and_then(|table| table.i16(0)) == Some(1);
        let buffers = match kind {
            types::NULL | types::RUN_END_ENCODED => 0,
            types::STRUCT | types::FIXED_SIZE_LIST => 1,
            types::UNION => 1 + usize::from(is_dense()),
            types::BINARY | types::UTF8 | types::LARGE_BINARY | types::LARGE_UTF8 => 3,
            types::LIST_VIEW | types::LARGE_LIST_VIEW => 3,
            _ => 2,
        };
        self.nodes.push(Node { buffers, is_view });
        for child in field.tables(FIELD_CHILDREN).ok_or_else(broken)? {
            self.pass(child, depth + 1)?;
        }
        Ok(())
    }
}

/// Numbers of the types (`union Type` of `Schema.fbs`).
mod types {
    pub(super) const NULL: u8 = 1;
    pub(super) const INT: u8 = 2;
    pub(super) const FLOATING_POINT: u8 = 3;
    pub(super) const BINARY: u8 = 4;
    pub(super) const UTF8: u8 = 5;
    pub(super) const BOOL: u8 = 6;
    pub(super) const DECIMAL: u8 = 7;
    pub(super) const DATE: u8 = 8;
    pub(super) const TIME: u8 = 9;
    pub(super) const TIMESTAMP: u8 = 10;
    pub(super) const INTERVAL: u8 = 11;
    pub(super) const LIST: u8 = 12;
    pub(super) const STRUCT: u8 = 13;
    pub(super) const UNION: u8 = 14;
    pub(super) const FIXED_SIZE_BINARY: u8 = 15;
    pub(super) const FIXED_SIZE_LIST: u8 = 16;
    pub(super) const MAP: u8 = 17;
    pub(super) const DURATION: u8 = 18;
    pub(super) const LARGE_BINARY: u8 = 19;
    pub(super) const LARGE_UTF8: u8 = 20;
    pub(super) const LARGE_LIST: u8 = 21;
    pub(super) const RUN_END_ENCODED: u8 = 22;
    pub(super) const BINARY_VIEW: u8 = 23;
    pub(super) const UTF8_VIEW: u8 = 24;
    pub(super) const LIST_VIEW: u8 = 25;
    pub(super) const LARGE_LIST_VIEW: u8 = 26;
}

/// What a field is, or why it cannot be had.
fn column_of(field: Table<'_>) -> Result<(Kind, Storage), String> {
    let (kind, storage) = values_of(field)?;
    let Some(dictionary) = field.table(FIELD_DICTIONARY) else { return Ok((kind, storage)) };
    if matches!(storage, Storage::List { .. } | Storage::FixedList { .. }) {
        return Err("a dictionary of lists".into());
    }
    let index_bytes = dictionary.table(1).map_or(4, |index| bytes_of_bits(index.i32(0).unwrap_or(32)));
    if ![1, 2, 4, 8].contains(&index_bytes) {
        return Err("a dictionary whose indices have an unknown size".into());
    }
    let id = dictionary.i64(0).unwrap_or(0);
    let kind = Kind { described: format!("dictionary of {}", kind.described), ..kind };
    Ok((kind, Storage::Dictionary { index_bytes, id, values: Box::new(storage) }))
}

fn bytes_of_bits(bits: i32) -> u64 {
    u64::try_from(bits).map_or(0, |bits| if bits % 8 == 0 { bits / 8 } else { 0 })
}

fn values_of(field: Table<'_>) -> Result<(Kind, Storage), String> {
    let table = field.table(FIELD_TYPE_TABLE);
    let number = |number: u16, default: i32| table.and_then(|table| table.i32(number)).unwrap_or(default);
    let unit = |default: i16| table.and_then(|table| table.i16(0)).unwrap_or(default);
    let scalar = |dtype: DType, name: &str| Ok((Kind::scalar(dtype, name), Storage::Fixed(dtype.size())));
    let bytes = |len: u64, name: String| Ok((Kind::fixed_bytes(len, name), Storage::Fixed(len)));
    let units = ["s", "ms", "us", "ns"];
    let unit_name = |default: i16| usize::try_from(unit(default)).ok().and_then(|unit| units.get(unit)).unwrap_or(&"?");
    match field.u8(FIELD_TYPE).unwrap_or(0) {
        types::INT => {
            let is_signed = table.is_some_and(|table| table.bool(1));
            let dtype = match (number(0, 0), is_signed) {
                (8, true) => DType::I8,
                (8, false) => DType::U8,
                (16, true) => DType::I16,
                (16, false) => DType::U16,
                (32, true) => DType::I32,
                (32, false) => DType::U32,
                (64, true) => DType::I64,
                (64, false) => DType::U64,
                (bits, _) => return Err(format!("an integer of {bits} bits")),
            };
            let sign = if is_signed { "int" } else { "uint" };
            scalar(dtype, &format!("{sign}{}", dtype.size() * 8))
        }
        types::FLOATING_POINT => match unit(0) {
            0 => scalar(DType::F16, "float16"),
            1 => scalar(DType::F32, "float32"),
            2 => scalar(DType::F64, "float64"),
            other => Err(format!("a float of precision {other}")),
        },
        types::BOOL => Ok((Kind::scalar(DType::Bool, "bool"), Storage::Bits)),
        types::BINARY => Ok((Kind::bytes("binary"), Storage::Binary { is_wide: false })),
        types::UTF8 => Ok((Kind::text("utf8"), Storage::Binary { is_wide: false })),
        types::LARGE_BINARY => Ok((Kind::bytes("large binary"), Storage::Binary { is_wide: true })),
        types::LARGE_UTF8 => Ok((Kind::text("large utf8"), Storage::Binary { is_wide: true })),
        types::BINARY_VIEW => Ok((Kind::bytes("binary view"), Storage::View)),
        types::UTF8_VIEW => Ok((Kind::text("utf8 view"), Storage::View)),
        types::DECIMAL => {
            let (precision, scale, bits) = (number(0, 0), number(1, 0), number(2, 128));
            let name = format!("decimal({precision}, {scale})");
            match bits {
                32 => scalar(DType::I32, &name),
                64 => scalar(DType::I64, &name),
                128 | 256 => bytes(bytes_of_bits(bits), name),
                _ => Err(format!("a decimal of {bits} bits")),
            }
        }
        types::DATE if unit(1) == 0 => scalar(DType::I32, "date in days"),
        types::DATE => scalar(DType::I64, "date in ms"),
        types::TIME if number(1, 32) == 64 => scalar(DType::I64, &format!("time in {}", unit_name(1))),
        types::TIME => scalar(DType::I32, &format!("time in {}", unit_name(1))),
        types::TIMESTAMP => scalar(DType::I64, &format!("timestamp in {}", unit_name(0))),
        types::DURATION => scalar(DType::I64, &format!("duration in {}", unit_name(1))),
        types::INTERVAL => match unit(0) {
            0 => scalar(DType::I32, "interval in months"),
            1 => bytes(8, "interval in days and ms".into()),
            _ => bytes(16, "interval in months, days and ns".into()),
        },
        types::FIXED_SIZE_BINARY => match u64::try_from(number(0, 0)).ok().filter(|&len| len > 0) {
            Some(len) => bytes(len, format!("binary of {len} bytes")),
            None => Err("binary of 0 bytes".into()),
        },
        types::LIST => list(field, |element| Storage::List { is_wide: false, element }),
        types::LARGE_LIST => list(field, |element| Storage::List { is_wide: true, element }),
        types::FIXED_SIZE_LIST => {
            let count = u64::try_from(number(0, 0)).map_err(|_| "a list of negative length".to_owned())?;
            let (kind, storage) = list(field, |element| Storage::FixedList { count, element })?;
            Ok((Kind { shape: Shape::Fixed(vec![count]), ..kind }, storage))
        }
        types::NULL => Err("always null".into()),
        types::STRUCT => Err("a struct".into()),
        types::UNION => Err("a union".into()),
        types::MAP => Err("a map".into()),
        types::RUN_END_ENCODED => Err("run-end encoded".into()),
        types::LIST_VIEW | types::LARGE_LIST_VIEW => Err("a list of views".into()),
        other => Err(format!("of the unknown type {other}")),
    }
}

fn list(field: Table<'_>, storage: impl FnOnce(Element) -> Storage) -> Result<(Kind, Storage), String> {
    let children = field.tables(FIELD_CHILDREN).unwrap_or_default();
    let [child] = children[..] else { return Err("a list without one element type".into()) };
    if child.table(FIELD_DICTIONARY).is_some() {
        return Err("a list of a dictionary's values".into());
    }
    let (kind, element) = match values_of(child).map_err(|what| format!("a list of {what}"))? {
        (kind, Storage::Bits) => (kind, Element::Bit),
        (kind, Storage::Fixed(bytes)) if kind.shape == Shape::Fixed(Vec::new()) => (kind, Element::Bytes(bytes)),
        (kind, _) => return Err(format!("a list of {}, not of numbers", kind.described)),
    };
    let described = format!("list of {}", kind.described);
    Ok((Kind { shape: Shape::Ragged, described, ..kind }, storage(element)))
}

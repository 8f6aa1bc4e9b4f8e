//! Turns the leaves of a Parquet schema into columns: which can be read, and in which form.

use crate::columnar::{Column, Kind};
use crate::{DType, Shape};
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
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
    pub(super) descriptor: ColumnDescPtr,
    pub(super) form: Form,
    pub(super) dtype: DType,
    pub(super) is_list: bool,
}

/// Returns the name of a leaf's column, and an error if it cannot be read.
pub(super) fn name_of(leaf: &ColumnDescriptor, schema: &SchemaDescriptor) -> (String, Result<()>) {
    let parts = leaf.path().parts();
    if leaf.max_rep_level() == 0 {
        return (parts.join("."), Ok(()));
    }
    match list_depth(schema.root_schema(), parts) {
        Some(depth) => (parts[..depth].join("."), Ok(())),
        None => {
            let name = parts.join(".");
            let what = format!("column {name:?} is a map, a list of lists, or a list of structs, which cannot be read");
            let error = Error::new(ErrorKind::Unavailable, what);
            (name, Err(error))
        }
    }
}

/// Returns how many parts of a path name a list of single values: all but "list.element", whatever writers call them.
fn list_depth(root: &Type, path: &[String]) -> Option<usize> {
    let mut node = root;
    for depth in 0..path.len() {
        let annotated = node.get_basic_info();
        let is_list = annotated.converted_type() == ConvertedType::LIST
            || annotated.logical_type_ref() == Some(&LogicalType::List);
        node = node.get_fields().iter().find(|field| field.name() == path[depth])?;
        let info = node.get_basic_info();
        if !info.has_repetition() || info.repetition() != parquet::basic::Repetition::REPEATED {
            continue;
        }
        let left = path.len() - depth - 1;
        return match (is_list, left) {
            // `repeated int32 values`, and a list of two levels.
            (false, 0) => Some(depth + 1),
            (true, 0) => Some(depth),
            (true, 1) if node.get_fields().len() == 1 && repeats_once(node) => Some(depth),
            _ => None,
        };
    }
    None
}

fn repeats_once(list: &Type) -> bool {
    let info = list.get_fields()[0].get_basic_info();
    !info.has_repetition() || info.repetition() != parquet::basic::Repetition::REPEATED
}

/// Returns the column of a leaf.
///
/// # Errors
/// `Unavailable` for types that cannot be read.
pub(super) fn column_of(name: String, descriptor: ColumnDescPtr) -> Result<(Column, Leaf)> {
    let (mut kind, form) = kind_of(&descriptor).map_err(|what| {
        Error::new(ErrorKind::Unavailable, format!("column {name:?} is {what}, which cannot be read"))
            .with_remedy("choose other columns")
    })?;
    let is_list = descriptor.max_rep_level() > 0;
    if is_list {
        let is_plain = kind.shape == Shape::Fixed(Vec::new());
        if !is_plain {
            let what = format!("column {name:?} is a list of {}; only lists of numbers can be read", kind.described);
            return Err(Error::new(ErrorKind::Unavailable, what).with_remedy("choose other columns"));
        }
        kind.shape = Shape::Ragged;
        kind.described = format!("list of {}", kind.described);
    }
    kind.is_nullable = descriptor.max_def_level() > 0;
    let dtype = kind.dtype;
    Ok((Column { name, kind }, Leaf { descriptor, form, dtype, is_list }))
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
    let is_decimal =
        matches!(logical, Some(LogicalType::Decimal(_))) || leaf.converted_type() == ConvertedType::DECIMAL;
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

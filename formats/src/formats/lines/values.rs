//! Converts text of lines to values: column types, number parsing, and memory for values that are not delivered as they
//! lie in the file.

use crate::dataset::{DType, Field, Shape, Value};
use bytes::{Bytes, BytesMut};
use std::ops::Range;
use std::str::FromStr;

/// The kind of values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text: a JSON string without its escapes, a field of a row without its quotes.
    Text,
    /// The JSON text of an object, a `null`, or an array of anything but numbers.
    Json,
    /// A JSON string without its escapes; of everything else the text.
    Any,
    /// A number.
    Number(DType),
    /// Any number of numbers.
    Numbers(DType),
    /// True or false.
    Bool,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

impl Column {
    pub(super) fn field(&self) -> Field {
        let (dtype, shape) = match self.kind {
            Kind::Text | Kind::Json | Kind::Any => (DType::U8, Shape::Ragged),
            Kind::Number(dtype) => (dtype, Shape::Fixed(Vec::new())),
            Kind::Numbers(dtype) => (dtype, Shape::Ragged),
            Kind::Bool => (DType::Bool, Shape::Fixed(Vec::new())),
        };
        Field { name: self.name.clone(), dtype, shape }
    }
}

/// What is wrong with a line.
#[derive(Debug)]
pub(super) struct Wrong {
    /// As a statement.
    pub(super) what: String,
    /// The byte of the line at which it is wrong.
    pub(super) at: usize,
    pub(super) remedy: &'static str,
}

/// The types that can be requested for numbers in text. Bytes are not among them: a column of `U8` is text.
pub(super) const NUMBERS: [DType; 9] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U16, DType::U32, DType::U64, DType::F32, DType::F64];

/// Appends the number in `text`, little endian; false if it is not of that type.
pub(super) fn put_number(text: &str, dtype: DType, out: &mut BytesMut) -> bool {
    match dtype {
        DType::I8 => put(text, i8::to_le_bytes, out),
        DType::I16 => put(text, i16::to_le_bytes, out),
        DType::I32 => put(text, i32::to_le_bytes, out),
        DType::I64 => put(text, i64::to_le_bytes, out),
        DType::U16 => put(text, u16::to_le_bytes, out),
        DType::U32 => put(text, u32::to_le_bytes, out),
        DType::U64 => put(text, u64::to_le_bytes, out),
        DType::F32 => put(text, f32::to_le_bytes, out),
        DType::F64 => put(text, f64::to_le_bytes, out),
        _ => false,
    }
}

fn put<T: FromStr, const BYTES: usize>(text: &str, bytes: fn(T) -> [u8; BYTES], out: &mut BytesMut) -> bool {
    text.parse().map(|number| out.extend_from_slice(&bytes(number))).is_ok()
}

/// The first of the types `I64`, `U64` and `F64` that holds all of these numbers without loss, apart from digits beyond
/// the precision of a float.
pub(super) fn type_of<'a>(numbers: impl Iterator<Item = &'a str> + Clone) -> DType {
    if numbers.clone().all(|text| text.parse::<i64>().is_ok()) {
        return DType::I64;
    }
    if numbers.clone().all(|text| text.parse::<u64>().is_ok()) {
        return DType::U64;
    }
    DType::F64
}

/// The value of a scalar column of numbers; `None` if `text` is not of that type.
pub(super) fn number(text: &str, dtype: DType, room: &mut Room) -> Option<Value> {
    match dtype {
        // Needs no allocation.
        DType::I64 => text.parse().ok().map(Value::I64),
        _ => room.value(|out| if put_number(text, dtype, out) { Ok(()) } else { Err(()) }).ok().map(Value::Bytes),
    }
}

/// The value of a scalar column of `Bool`.
pub(super) fn truth(is_true: bool) -> Value {
    Value::Bytes(Bytes::from_static(if is_true { &[1] } else { &[0] }))
}

/// Bytes per allocation; otherwise every value of every sample would be one.
const ROOM_BYTES: usize = 64 << 10;

/// Memory for values, shared by those of many samples. It is not part of the loader's memory limit, but proportional to
/// the lines that are held: at most four times their bytes, if they consist of nothing but short numbers.
#[derive(Debug, Default)]
pub(super) struct Room(BytesMut);

impl Room {
    /// The bytes that `write` appends.
    ///
    /// # Errors
    /// That of `write`; nothing that it appended is kept.
    pub(super) fn value<E>(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<Bytes, E> {
        if self.0.capacity() < size_of::<u64>() {
            self.0.reserve(ROOM_BYTES);
        }
        let written = write(&mut self.0);
        let bytes = self.0.split().freeze();
        written.map(|()| bytes)
    }
}

/// Buffers for parsing, reused from sample to sample.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) room: Room,
    /// The place of each column's value in the line.
    pub(super) places: Vec<Option<Range<usize>>>,
}

/// Shortens text for a message: a value may be as long as a line.
pub(super) fn shortened(text: &str) -> String {
    const CHARS_TOLD: usize = 40;
    match text.char_indices().nth(CHARS_TOLD) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

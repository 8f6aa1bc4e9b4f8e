//! What a value of a line becomes: types of columns, numbers from their text, and memory for values that do not lie in
//! the file as they are delivered.

use crate::{DType, Field, Shape, Value};
use bytes::{Bytes, BytesMut};
use std::ops::Range;
use std::str::FromStr;

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text: a string of JSON without its escapes, a field of a row without its quotes.
    Text,
    /// The text that an object, a `null` or an array of anything but numbers is in JSON.
    Json,
    /// A string of JSON without its escapes, and of everything else its text.
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
    /// At which of its bytes.
    pub(super) at: usize,
    pub(super) remedy: &'static str,
}

/// Types that numbers in text can be asked as. Bytes are not among them: a column of `U8` is text.
pub(super) const NUMBERS: [DType; 9] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U16, DType::U32, DType::U64, DType::F32, DType::F64];

/// Appends the number that `text` is, little endian; false where it is none of that type.
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

/// The least of the types `I64`, `U64` and `F64` that all of these numbers are of without loss, but for the digits that
/// a float has not.
pub(super) fn type_of<'a>(numbers: impl Iterator<Item = &'a str> + Clone) -> DType {
    if numbers.clone().all(|text| text.parse::<i64>().is_ok()) {
        return DType::I64;
    }
    if numbers.clone().all(|text| text.parse::<u64>().is_ok()) {
        return DType::U64;
    }
    DType::F64
}

/// The value of a scalar of numbers; `None` where `text` is none of that type.
pub(super) fn number(text: &str, dtype: DType, room: &mut Room) -> Option<Value> {
    match dtype {
        // Needs no memory.
        DType::I64 => text.parse().ok().map(Value::I64),
        _ => room.value(|out| if put_number(text, dtype, out) { Ok(()) } else { Err(()) }).ok().map(Value::Bytes),
    }
}

/// The value of a scalar of `Bool`.
pub(super) fn truth(is_true: bool) -> Value {
    Value::Bytes(Bytes::from_static(if is_true { &[1] } else { &[0] }))
}

/// Memory is taken so many bytes at a time: for a value by itself it would be taken for each sample.
const ROOM_BYTES: usize = 64 << 10;

/// Memory for values, shared by those of many samples. What it takes beside the loader's memory limit is in proportion
/// to the lines that are held: at most four times their bytes, where they are nothing but short numbers.
#[derive(Debug, Default)]
pub(super) struct Room(BytesMut);

impl Room {
    /// What `write` appends.
    ///
    /// # Errors
    /// That of `write`, and nothing is kept of what it appended.
    pub(super) fn value<E>(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<Bytes, E> {
        if self.0.capacity() < size_of::<u64>() {
            self.0.reserve(ROOM_BYTES);
        }
        let written = write(&mut self.0);
        let bytes = self.0.split().freeze();
        written.map(|()| bytes)
    }
}

/// What parsing needs and is reused from sample to sample.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) room: Room,
    /// Where each column's value lies in the line.
    pub(super) places: Vec<Option<Range<usize>>>,
}

/// Text for a message: a value may have as many bytes as a line.
pub(super) fn shortened(text: &str) -> String {
    const CHARS_TOLD: usize = 40;
    match text.char_indices().nth(CHARS_TOLD) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

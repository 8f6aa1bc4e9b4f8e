//! Numbers in JSON and MessagePack: labels, boxes and scores that are stored beside images as messages.

use super::twin::{bf16_bits, f16_bits};
use super::{MapOutput, refused};
use crate::dataset::DType;
use crate::{Error, ErrorKind, Result};
use serde_json::{Map as Object, Number, Value};
use std::str::FromStr;

/// The forms of the text.
const FORMS: &str = "write json(label, i64), json(bbox, f32, 4), json(objects.*.bbox, f32, most=1024), or msgpack(..)";

/// Maximum depth of a message, as serde_json has it for JSON.
const DEPTH_MAX: u32 = 128;

/// The part of a message to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    is_json: bool,
    /// Names, indices in lists, and "*" for each element of a list. Empty: the whole message.
    path: Vec<String>,
    output: MapOutput,
}

impl Numbers {
    /// The output.
    pub(crate) fn output(&self) -> MapOutput {
        self.output.clone()
    }

    /// Writes the numbers of a message to the beginning of `out`, and returns their length in bytes.
    ///
    /// # Errors
    /// `Corrupt` for a message that cannot be read, has no such numbers, or not as many as declared.
    pub(crate) fn run(&self, message: &[u8], out: &mut [u8]) -> Result<usize> {
        let value = if self.is_json {
            serde_json::from_slice::<Value>(message)
                .map_err(|error| corrupt(format!("the JSON cannot be read: {error}")))?
        } else {
            let mut rest = message;
            let value = unpacked(&mut rest, 0);
            let at = message.len() - rest.len();
            let whole = value.filter(|_| rest.is_empty());
            whole.ok_or_else(|| corrupt(format!("the MessagePack breaks off or goes wrong at byte {at}")))?
        };
        let mut to = Writer { out, written: 0, dtype: self.output.dtype };
        self.walk(&value, &self.path, &mut to)?;
        let (written, all) = (to.written, to.out.len());
        if self.output.is_fixed() && written != all {
            let size = self.output.dtype.size() as usize;
            let what = format!("{} has {} numbers, and {} are to be taken", self.name(), written / size, all / size);
            return Err(corrupt(what));
        }
        Ok(written)
    }

    fn name(&self) -> String {
        if self.path.is_empty() { "the message".into() } else { self.path.join(".") }
    }

    fn walk(&self, value: &Value, path: &[String], to: &mut Writer<'_>) -> Result<()> {
        let Some((step, rest)) = path.split_first() else { return self.take(value, to) };
        let missing = || corrupt(format!("the message has no {}: {step:?} is not there", self.name()));
        match value {
            Value::Array(list) if step == "*" => list.iter().try_for_each(|value| self.walk(value, rest, to)),
            Value::Array(list) => {
                let found = step.parse::<usize>().ok().and_then(|place| list.get(place));
                self.walk(found.ok_or_else(missing)?, rest, to)
            }
            Value::Object(object) => self.walk(object.get(step).ok_or_else(missing)?, rest, to),
            _ => Err(missing()),
        }
    }

    /// A number, or all of a list.
    fn take(&self, value: &Value, to: &mut Writer<'_>) -> Result<()> {
        let dtype = self.output.dtype;
        let taken = match value {
            Value::Array(list) => return list.iter().try_for_each(|value| self.take(value, to)),
            Value::Number(number) => to.write(number),
            Value::Bool(value) => to.write(&Number::from(u8::from(*value))),
            Value::Null | Value::String(_) | Value::Object(_) => Some(false),
        };
        match taken {
            Some(true) => Ok(()),
            Some(false) => Err(corrupt(format!("{} has {value}, which is no {dtype}", self.name()))),
            None => Err(corrupt(format!("{} has more than {} numbers", self.name(), to.written as u64 / dtype.size()))),
        }
    }
}

fn corrupt(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what)
        .with_remedy("compare the message with its neighbours, or take other numbers of it")
}

/// Numbers, one after the other.
struct Writer<'a> {
    out: &'a mut [u8],
    written: usize,
    dtype: DType,
}

impl Writer<'_> {
    /// Whether the type can hold the number; `None` if there is no room for it.
    fn write(&mut self, number: &Number) -> Option<bool> {
        let room = self.out.get_mut(self.written..self.written + self.dtype.size() as usize)?;
        let float = number.as_f64();
        // An integer may be written as 5.0.
        let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        let whole =
            whole.or_else(|| float.filter(|float| float.fract() == 0.0 && float.abs() < 9e15).map(|f| f as i128));
        macro_rules! integer {
            ($type:ty) => {
                whole
                    .and_then(|whole| <$type>::try_from(whole).ok())
                    .map(|number| room.copy_from_slice(&number.to_le_bytes()))
            };
        }
        let done = match self.dtype {
            DType::U8 => integer!(u8),
            DType::I8 => integer!(i8),
            DType::U16 => integer!(u16),
            DType::I16 => integer!(i16),
            DType::U32 => integer!(u32),
            DType::I32 => integer!(i32),
            DType::U64 => integer!(u64),
            DType::I64 => integer!(i64),
            DType::Bool => whole.filter(|whole| (0..=1).contains(whole)).map(|whole| room[0] = whole as u8),
            DType::F64 => float.map(|float| room.copy_from_slice(&float.to_le_bytes())),
            DType::F32 => float.map(|float| room.copy_from_slice(&(float as f32).to_le_bytes())),
            DType::F16 => float.map(|float| room.copy_from_slice(&f16_bits(float as f32).to_le_bytes())),
            DType::BF16 => float.map(|float| room.copy_from_slice(&bf16_bits(float as f32).to_le_bytes())),
            // 8-bit floats, which no message has; parsing refuses them.
            _ => None,
        };
        if done.is_some() {
            self.written += self.dtype.size() as usize;
        }
        Some(done.is_some())
    }
}

/// The next value of a MessagePack message, as JSON; bytes and extensions, which JSON lacks, are null. `None` if the
/// message is cut off or invalid.
fn unpacked(rest: &mut &[u8], depth: u32) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    let first = bytes(rest, 1)?[0];
    Some(match first {
        0..=0x7f => Value::from(first),
        0x80..=0x8f => object(rest, u64::from(first & 15), depth)?,
        0x90..=0x9f => list(rest, u64::from(first & 15), depth)?,
        0xa0..=0xbf => text(rest, u64::from(first & 31))?,
        0xc0 => Value::Null,
        0xc2 | 0xc3 => Value::Bool(first == 0xc3),
        0xc4..=0xc6 => skipped(rest, 1 << (first - 0xc4), 0)?,
        0xc7..=0xc9 => skipped(rest, 1 << (first - 0xc7), 1)?,
        0xca => Value::from(f64::from(f32::from_bits(unsigned(rest, 4)? as u32))),
        0xcb => Value::from(f64::from_bits(unsigned(rest, 8)?)),
        0xcc..=0xcf => Value::from(unsigned(rest, 1 << (first - 0xcc))?),
        0xd0..=0xd3 => {
            let size: usize = 1 << (first - 0xd0);
            let unused = 64 - 8 * size as u32;
            Value::from((unsigned(rest, size)? << unused).cast_signed() >> unused)
        }
        0xd4..=0xd8 => bytes(rest, 1 + (1 << (first - 0xd4))).map(|_| Value::Null)?,
        0xd9..=0xdb => {
            let length = unsigned(rest, 1 << (first - 0xd9))?;
            text(rest, length)?
        }
        0xdc | 0xdd => {
            let count = unsigned(rest, 2 << (first - 0xdc))?;
            list(rest, count, depth)?
        }
        0xde | 0xdf => {
            let count = unsigned(rest, 2 << (first - 0xde))?;
            object(rest, count, depth)?
        }
        0xe0..=0xff => Value::from(first.cast_signed()),
        0xc1 => return None,
    })
}

fn bytes<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    Some(taken)
}

/// An unsigned number of up to 8 bytes.
fn unsigned(rest: &mut &[u8], size: usize) -> Option<u64> {
    Some(bytes(rest, size)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// Skips bytes whose count is written in `size` bytes, and `more` before them.
fn skipped(rest: &mut &[u8], size: usize, more: usize) -> Option<Value> {
    let count = usize::try_from(unsigned(rest, size)?).ok()?.checked_add(more)?;
    bytes(rest, count).map(|_| Value::Null)
}

fn text(rest: &mut &[u8], length: u64) -> Option<Value> {
    let text = bytes(rest, usize::try_from(length).ok()?)?;
    Some(Value::String(String::from_utf8_lossy(text).into_owned()))
}

fn list(rest: &mut &[u8], count: u64, depth: u32) -> Option<Value> {
    (0..count).map(|_| unpacked(rest, depth + 1)).collect::<Option<Vec<Value>>>().map(Value::Array)
}

fn object(rest: &mut &[u8], count: u64, depth: u32) -> Option<Value> {
    let mut object = Object::new();
    for _ in 0..count {
        let name = match unpacked(rest, depth + 1)? {
            Value::String(name) => name,
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        object.insert(name, unpacked(rest, depth + 1)?);
    }
    Some(Value::Object(object))
}

impl FromStr for Numbers {
    type Err = Error;

    fn from_str(given: &str) -> Result<Numbers> {
        let wrong = |what: &str| refused(format!("{given:?} {what}"), FORMS);
        let call = given.trim().split_once('(').and_then(|(name, rest)| Some((name.trim(), rest.strip_suffix(')')?)));
        let is_json = match call {
            Some(("json", _)) => true,
            Some(("msgpack", _)) => false,
            _ => return Err(wrong("does not say which numbers to take from messages")),
        };
        let mut parts = call.map_or("", |(_, parts)| parts).split(',').map(str::trim);
        let path = parts.next().unwrap_or_default();
        let path = if path == "." { Vec::new() } else { path.split('.').map(str::to_owned).collect() };
        if path.iter().any(String::is_empty) {
            return Err(wrong("has no name, or an empty one, in front of the type"));
        }
        let dtype = parts.next().and_then(DType::named);
        let known = dtype.filter(|dtype| !matches!(dtype, DType::F8E4M3 | DType::F8E5M2));
        let dtype = known.ok_or_else(|| wrong("has no type of numbers after the name"))?;
        let output = match parts.next() {
            None => MapOutput::fixed(dtype, []),
            Some(length) => match length.strip_prefix("most") {
                Some(most) => {
                    let most = most.trim().strip_prefix('=').and_then(|most| most.trim().parse::<u64>().ok());
                    MapOutput::varying(dtype, most.ok_or_else(|| wrong("does not say how many numbers there are"))?)
                }
                None => {
                    let sides = length.split('x').map(|side| side.trim().parse::<u64>().ok());
                    let sides = sides.collect::<Option<Vec<u64>>>();
                    MapOutput::fixed(dtype, sides.ok_or_else(|| wrong("does not say how many numbers there are"))?)
                }
            },
        };
        if parts.next().is_some() {
            return Err(wrong("goes on after the numbers to take"));
        }
        Ok(Numbers { is_json, path, output })
    }
}

#[cfg(test)]
mod tests;

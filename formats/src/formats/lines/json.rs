//! Turns the fields of a JSON line into values. The parser is serde_json's; only requested fields are parsed. `NaN`,
//! `Infinity` and `-Infinity`, which are no JSON, are numbers, because Python's `json` writes them.

use super::nonfinite::{masked, reparsed};
use super::values::{Column, Kind, Room, Scratch, Wrong, number, put_number, shortened, truth, type_of};
use crate::dataset::{DType, Value};
use bytes::{Bytes, BytesMut};
use memchr::memchr;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// The kind of a field with this text, unless a type is requested.
pub(super) fn kind_of(raw: &str, asked: Option<DType>) -> Kind {
    let text = masked(raw.as_bytes()).and_then(|text| String::from_utf8(text).ok());
    let elements = || serde_json::from_str::<Vec<&RawValue>>(text.as_deref().unwrap_or(raw)).unwrap_or_default();
    let is_number = |text: &str| text.as_bytes().first().is_some_and(|&first| begins_number(first));
    match (asked, raw.as_bytes().first()) {
        (Some(DType::U8), _) => Kind::Any,
        (Some(DType::Bool), _) => Kind::Bool,
        (Some(dtype), Some(b'[')) => Kind::Numbers(dtype),
        (Some(dtype), _) => Kind::Number(dtype),
        (None, Some(b'"')) => Kind::Text,
        (None, Some(b't' | b'f')) => Kind::Bool,
        (None, Some(b'[')) if elements().iter().all(|element| is_number(element.get())) => match text {
            // The word for such a number is a float, too.
            Some(_) => Kind::Numbers(DType::F64),
            None => Kind::Numbers(type_of(elements().iter().map(|element| element.get()))),
        },
        (None, _) if is_number(raw) => Kind::Number(type_of(std::iter::once(raw))),
        (None, _) => Kind::Json,
    }
}

/// Whether a value that begins like this is a number.
fn begins_number(first: u8) -> bool {
    matches!(first, b'-' | b'0'..=b'9' | b'N' | b'I')
}

/// The names of wanted fields. A line may have thousands of fields and as many may be wanted, so no name is held
/// against all others.
#[derive(Debug)]
pub(super) struct Names {
    all: Vec<String>,
    by_name: HashMap<String, usize>,
}

impl Names {
    pub(super) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Names {
        let all: Vec<String> = names.map(str::to_owned).collect();
        let by_name = all.iter().cloned().zip(0..).collect();
        Names { all, by_name }
    }

    /// The number of the name `key`. Fields of most files come in one order, so that `next` is tried first.
    fn position(&self, key: &str, next: usize) -> Option<usize> {
        match self.all.get(next) {
            Some(name) if name == key => Some(next),
            _ => self.by_name.get(key).copied(),
        }
    }
}

/// Finds the fields of these names in a line. Of several fields with one name, the last counts. `places` gets one entry
/// for each name.
pub(super) fn find(line: &[u8], names: &Names, places: &mut Vec<Option<Range<usize>>>) -> Result<(), Wrong> {
    places.clear();
    places.resize(names.all.len(), None);
    let found = reparsed(line, |line| {
        let mut parser = serde_json::Deserializer::from_slice(line);
        parser.deserialize_map(Fields { line, names, places }).and_then(|()| parser.end())
    });
    found.map_err(|error| {
        let text = error.to_string();
        // The error reports the offset in the file instead.
        let reason = text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason);
        let at = error.column().saturating_sub(1).min(line.len());
        let remedy = "write the line again, or choose no columns: then lines are delivered as they are";
        Wrong { what: format!("a line is no JSON object ({reason})"), at, remedy }
    })
}

/// Appends the values of the columns.
pub(super) fn values(
    line: &Bytes,
    columns: &[Column],
    names: &Names,
    scratch: &mut Scratch,
    out: &mut Vec<Value>,
) -> Result<(), Wrong> {
    find(line, names, &mut scratch.places)?;
    for (column, place) in columns.iter().zip(&scratch.places) {
        let Some(place) = place.clone() else {
            let what = format!("a line has no field {:?}", column.name);
            return Err(Wrong { what, at: 0, remedy: "choose fields that all lines have" });
        };
        let at = place.start;
        out.push(value(line, place, column.kind, &mut scratch.room).map_err(|wrong| {
            let what = format!("field {:?} {wrong}", column.name);
            Wrong { what, at, remedy: "choose a type that fits all lines; as u8 any field is text" }
        })?);
    }
    Ok(())
}

/// The value of the field at `place`.
fn value(line: &Bytes, place: Range<usize>, kind: Kind, room: &mut Room) -> Result<Value, String> {
    let raw = &line[place.clone()];
    // The parser returned it as a `str`.
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let first = raw.first().copied().unwrap_or_default();
    match (kind, first) {
        (Kind::Text | Kind::Any, b'"') => match memchr(b'\\', raw) {
            None => Ok(Value::Bytes(line.slice(place.start + 1..place.end - 1))),
            Some(_) => room.value(|out| unescape(text, out)).map(Value::Bytes),
        },
        (Kind::Any, _) | (Kind::Json, b'{' | b'[' | b'n') => Ok(Value::Bytes(line.slice(place))),
        (Kind::Bool, b't' | b'f') => Ok(truth(first == b't')),
        (Kind::Number(dtype), _) if begins_number(first) => {
            number(text, dtype, room).ok_or_else(|| format!("is {}, which is no {dtype}", shortened(text)))
        }
        (Kind::Numbers(dtype), b'[') => room.value(|out| numbers(text, dtype, out)).map(Value::Bytes),
        _ => Err(format!("is {}, and should be {}", described(first), wanted(kind))),
    }
}

fn described(first: u8) -> &'static str {
    match first {
        b'"' => "a string",
        b'{' => "an object",
        b'[' => "an array",
        b'n' => "null",
        b't' | b'f' => "true or false",
        _ => "a number",
    }
}

fn wanted(kind: Kind) -> String {
    match kind {
        Kind::Text => "a string".into(),
        Kind::Json => "an object, an array or null".into(),
        Kind::Any => "anything".into(),
        Kind::Number(dtype) => format!("a number ({dtype})"),
        Kind::Numbers(dtype) => format!("an array of numbers ({dtype})"),
        Kind::Bool => "true or false".into(),
    }
}

fn unescape(text: &str, out: &mut BytesMut) -> Result<(), String> {
    let parsed = serde_json::Deserializer::from_str(text).deserialize_str(Unescaped(out));
    // Half of a surrogate pair is not text, although JSON can escape it.
    parsed.map_err(|_| "is a string that is not Unicode".to_owned())
}

fn numbers(text: &str, dtype: DType, out: &mut BytesMut) -> Result<(), String> {
    // Bounded by the text: numbers are separated by commas.
    out.reserve((memchr::memchr_iter(b',', text.as_bytes()).count() + 1) * dtype.size() as usize);
    let before = out.len();
    let parsed = reparsed(text.as_bytes(), |parsed| {
        out.truncate(before);
        serde_json::Deserializer::from_slice(parsed).deserialize_seq(Numbers { text, parsed, dtype, out })
    });
    parsed.map_err(|error| error.to_string()).and_then(|wrong| wrong.map_or(Ok(()), Err))
}

/// Records the places of a line's fields.
struct Fields<'a> {
    line: &'a [u8],
    names: &'a Names,
    places: &'a mut [Option<Range<usize>>],
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut next = 0;
        while let Some(field) = map.next_key_seed(Name(self.names, next))? {
            let Some(field) = field else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let raw = map.next_value::<&RawValue>()?.get();
            // Borrowed from the line; it cannot be anything else.
            let start = raw.as_ptr().addr() - self.line.as_ptr().addr();
            self.places[field] = Some(start..start + raw.len());
            next = field + 1;
        }
        Ok(())
    }
}

/// Finds which of the names a key is.
struct Name<'a>(&'a Names, usize);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(self, key: D) -> Result<Option<usize>, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.0.position(key, self.1))
    }
}

/// Appends a string without its escapes.
struct Unescaped<'a>(&'a mut BytesMut);

impl Visitor<'_> for Unescaped<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends the numbers of an array; returns what is wrong with the first element that is not one.
struct Numbers<'a> {
    /// As it is in the line.
    text: &'a str,
    /// As the parser has it, byte for byte.
    parsed: &'a [u8],
    dtype: DType,
    out: &'a mut BytesMut,
}

impl<'de> Visitor<'de> for Numbers<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<String>, A::Error> {
        let mut wrong = None;
        let mut index = 0;
        while let Some(element) = array.next_element::<&RawValue>()? {
            // Borrowed from what is parsed; it cannot be anything else.
            let start = element.get().as_ptr().addr() - self.parsed.as_ptr().addr();
            let element = &self.text[start..start + element.get().len()];
            if wrong.is_none() && !put_number(element, self.dtype, self.out) {
                wrong = Some(format!("has {} at index {index}, which is no {}", shortened(element), self.dtype));
            }
            index += 1;
        }
        Ok(wrong)
    }
}

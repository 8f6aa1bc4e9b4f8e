//! safetensors: from the header of JSON to the place, type and shape of each tensor.
//!
//! Source: huggingface/safetensors, `safetensors/src/tensor.rs` 0.8. The crate itself reads a header only together with
//! all the data, and takes the last of two tensors with one name; a test compares this reader with it.

use super::listing::{Array, Found, Listing, array_bytes};
use crate::dataset::DType;
use crate::index::headers::{Source, u64_at};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::{HashMap, HashSet};
use std::fmt;
use uringload_core::{Error, Result};

/// Longest header, in bytes: the limit of the reference reader.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The header's length comes first.
const LENGTH_BYTES: u64 = 8;
/// The name that is no tensor's.
const METADATA: &str = "__metadata__";

/// The tensors of a file that are `wanted` (all, if none is named), in their order in the file.
///
/// # Errors
/// `Truncated` where the file ends before its tensors do; `Corrupt` where it breaks the format in any way;
/// `Unavailable` for a wanted tensor of a type without a [`DType`].
pub(super) fn find(source: &Source, wanted: &[String]) -> Result<Listing> {
    let length = source.bytes(0, LENGTH_BYTES as usize, "the length of the safetensors header")?;
    let length = u64_at(&length, 0);
    if length > HEADER_BYTES_MAX {
        let what = format!("the safetensors header has {length} bytes; the limit is {HEADER_BYTES_MAX}");
        return Err(source.corrupt(0, what).with_remedy("check that this is a .safetensors file"));
    }
    let data = LENGTH_BYTES + length;
    if data > source.size() {
        return Err(source.truncated("the safetensors header"));
    }
    // Before any memory is taken: what begins otherwise is some other file.
    let mut first = [0];
    if length == 0 || source.read(LENGTH_BYTES, &mut first, "the header").is_ok() && first[0] != b'{' {
        return Err(source.corrupt(LENGTH_BYTES, "the safetensors header does not begin with a brace"));
    }
    let text = source.bytes(LENGTH_BYTES, length as usize, "the safetensors header")?;
    let Header(tensors) = serde_json::from_slice(&text).map_err(|error| not_a_header(source, &text, &error))?;
    check(source, tensors, data, wanted)
}

/// Checks that the tensors tile the data, and takes those that are wanted.
fn check(source: &Source, mut tensors: Vec<(String, Tensor)>, data: u64, wanted: &[String]) -> Result<Listing> {
    let mut names = HashSet::with_capacity(tensors.len());
    if let Some((twice, _)) = tensors.iter().find(|(name, _)| !names.insert(name.as_str())) {
        return Err(source.corrupt(LENGTH_BYTES, format!("two tensors are called {twice:?}")));
    }
    tensors.sort_by_key(|(_, tensor)| tensor.data_offsets);
    let mut listing = Listing::default();
    let mut end = 0;
    for (name, Tensor { dtype, shape, data_offsets: (first, last) }) in tensors {
        if first != end || last < first {
            let what =
                format!("tensor {name:?} has the bytes from {first} to {last}, and the tensors before it end at {end}");
            return Err(source
                .corrupt(LENGTH_BYTES, what)
                .with_remedy("write the file again: tensors must neither overlap nor leave holes"));
        }
        end = last;
        let bytes = dtype.bytes(&shape).ok_or_else(|| {
            let what =
                format!("tensor {name:?} of {} {shape:?} is larger than any file, or ends within a byte", dtype.0);
            source.corrupt(LENGTH_BYTES, what)
        })?;
        if last - first != bytes {
            let what =
                format!("tensor {name:?} of {} {shape:?} takes {bytes} bytes, and has {}", dtype.0, last - first);
            return Err(source.corrupt(LENGTH_BYTES, what));
        }
        // Does not overflow where it is used: the file holds as much, or the check below fails.
        let offset = data.saturating_add(first);
        if listing.takes(&name, wanted) {
            let dtype = dtype.supported().ok_or_else(|| {
                let what = format!("tensor {name:?} holds {}, which no column can hold", dtype.0);
                source.unavailable(offset, what).with_remedy("name the tensors to read")
            })?;
            let array = Array { dtype, shape, offset, deflated: None, is_fortran: false, is_big_endian: false };
            listing.found.push(Found { name, array });
        }
    }
    match data.checked_add(end) {
        Some(end) if end == source.size() => Ok(listing),
        Some(end) if end < source.size() => {
            Err(source.corrupt(end, format!("{} bytes follow the last tensor", source.size() - end)))
        }
        _ => Err(source.truncated("the tensors")),
    }
}

/// A header that is no JSON, or JSON of another form.
fn not_a_header(source: &Source, text: &[u8], error: &serde_json::Error) -> Error {
    // Lines and columns count from 1, and columns in bytes; a column of 0 is the end of the line before.
    let lines = text.split_inclusive(|&byte| byte == b'\n').take(error.line().saturating_sub(1));
    let at = lines.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1);
    // The message ends with line and column, which the offset says in a form that fits the file.
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    source.corrupt(LENGTH_BYTES + at as u64, format!("the safetensors header is broken ({message})"))
}

/// A tensor as the header has it. Other keys are ignored, as by the reference reader.
#[derive(Debug, Deserialize)]
struct Tensor {
    dtype: Type,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The name of a type that the format knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Type(&'static str);

/// Names, bits of an element, and our own type where there is one.
const TYPES: [(&str, u64, Option<DType>); 22] = [
    ("BOOL", 8, Some(DType::Bool)),
    ("F4", 4, None),
    ("F6_E2M3", 6, None),
    ("F6_E3M2", 6, None),
    ("U8", 8, Some(DType::U8)),
    ("I8", 8, Some(DType::I8)),
    ("F8_E5M2", 8, Some(DType::F8E5M2)),
    ("F8_E4M3", 8, Some(DType::F8E4M3)),
    ("F8_E8M0", 8, None),
    ("F8_E4M3FNUZ", 8, None),
    ("F8_E5M2FNUZ", 8, None),
    ("I16", 16, Some(DType::I16)),
    ("U16", 16, Some(DType::U16)),
    ("F16", 16, Some(DType::F16)),
    ("BF16", 16, Some(DType::BF16)),
    ("I32", 32, Some(DType::I32)),
    ("U32", 32, Some(DType::U32)),
    ("F32", 32, Some(DType::F32)),
    ("C64", 64, None),
    ("F64", 64, Some(DType::F64)),
    ("I64", 64, Some(DType::I64)),
    ("U64", 64, Some(DType::U64)),
];

impl Type {
    fn row(self) -> (&'static str, u64, Option<DType>) {
        *TYPES.iter().find(|(name, ..)| *name == self.0).expect("a type is made of a name in the table")
    }

    fn supported(self) -> Option<DType> {
        self.row().2
    }

    /// Bytes of a tensor; `None` if they are no whole number, or more than a file can have.
    fn bytes(self, shape: &[u64]) -> Option<u64> {
        let (_, bits, dtype) = self.row();
        if let Some(dtype) = dtype {
            return array_bytes(dtype, shape);
        }
        // Elements of a byte have as many bytes as there are elements.
        let bits = array_bytes(DType::U8, shape)?.checked_mul(bits)?;
        (bits % 8 == 0).then_some(bits / 8)
    }
}

impl<'de> Deserialize<'de> for Type {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Type, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = TYPES.iter().find(|(known, ..)| *known == name);
        known.map(|(name, ..)| Type(name)).ok_or_else(|| D::Error::custom(format_args!("unknown dtype {name:?}")))
    }
}

/// All tensors in the order of the text, with names that may repeat.
struct Header(Vec<(String, Tensor)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from names to tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut tensors = Vec::new();
        let mut has_metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            if name != METADATA {
                tensors.push((name, map.next_value()?));
                continue;
            }
            if std::mem::replace(&mut has_metadata, true) {
                return Err(A::Error::custom("__metadata__ occurs twice"));
            }
            // Nothing reads it; what it may be is part of the format.
            map.next_value::<Option<HashMap<String, String>>>()?;
        }
        Ok(Header(tensors))
    }
}

//! NumPy's `.npy`, versions 1.0, 2.0 and 3.0: from the header to the place, type and shape of the array.
//!
//! Source: numpy `lib/_format_impl.py`. The header is the text of a Python dictionary. What is read here is the part
//! of that language that `numpy.save` writes for plain types, and nothing is evaluated.

use crate::DType;
use crate::arrays::{Array, DIMENSIONS_MAX, array_bytes};
use crate::headers::{Source, u16_at, u32_at};
use std::ops::Range;
use uringload_core::{Error, Result};

/// What every file begins with.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest text of a header, in bytes: the limit of `numpy.load`.
const TEXT_BYTES_MAX: usize = 10_000;
/// Magic, version and the longer form of the length.
const PREFIX_BYTES: usize = 12;
/// What is read at first: all that comes before the elements of nearly every array, because the header of a short shape
/// is filled up to a multiple of 64 bytes. Of ten thousand files, a second read of each costs a tenth of opening them.
const HEAD_BYTES: usize = 128;

/// What an array fills: a file, or a member of an archive.
pub(super) trait Holder {
    /// Bytes that there are.
    fn len(&self) -> u64;

    /// The `len` bytes from `at` on, which are there. Each call asks for bytes behind those of the one before.
    fn bytes(&mut self, at: u64, len: usize) -> Result<Vec<u8>>;

    /// The content breaks the format at `at`.
    fn corrupt(&self, at: u64, what: String) -> Error;

    /// The content is sound and nothing that can be delivered.
    fn unavailable(&self, at: u64, what: String) -> Error;

    /// The array is longer than what it should fill.
    fn ends_early(&self) -> Error;
}

/// A part of a file that holds an array as it is.
pub(super) struct Part<'a> {
    pub(super) source: &'a Source,
    pub(super) place: Range<u64>,
}

impl Holder for Part<'_> {
    fn len(&self) -> u64 {
        self.place.end - self.place.start
    }

    fn bytes(&mut self, at: u64, len: usize) -> Result<Vec<u8>> {
        self.source.bytes(self.place.start + at, len, "the .npy header")
    }

    fn corrupt(&self, at: u64, what: String) -> Error {
        self.source.corrupt(self.place.start + at, what)
    }

    fn unavailable(&self, at: u64, what: String) -> Error {
        self.source.unavailable(self.place.start + at, what)
    }

    fn ends_early(&self) -> Error {
        match self.place.end == self.source.size() {
            true => self.source.truncated("the .npy array"),
            false => {
                let what = "the array is longer than the archive's member that holds it";
                self.source.corrupt(self.place.end, what)
            }
        }
    }
}

/// Reads the header of the array that fills `place` of a file, and checks that it fills it to the byte.
///
/// # Errors
/// As [`read_from`].
pub(super) fn read(source: &Source, place: Range<u64>) -> Result<Array> {
    let start = place.start;
    let array = read_from(&mut Part { source, place })?;
    Ok(Array { offset: start + array.offset, ..array })
}

/// Reads the header of the array in `holder`, and checks that it fills it to the byte; the offset is one in `holder`.
///
/// # Errors
/// `Truncated` where the file, or what of it is the array's, ends before the array does; `Corrupt` where it breaks the
/// format; `Unavailable` for arrays of objects (pickle), of structures, of types without a [`DType`], in Fortran order
/// and of big endian numbers.
pub(super) fn read_from(holder: &mut impl Holder) -> Result<Array> {
    let room = usize::try_from(holder.len()).unwrap_or(usize::MAX);
    let mut head = holder.bytes(0, HEAD_BYTES.min(room))?;
    if !MAGIC.starts_with(&head[..MAGIC.len().min(head.len())]) {
        return Err(holder.corrupt(0, "this is no .npy array (its first bytes are not \\x93NUMPY)".into()));
    }
    if head.len() < PREFIX_BYTES {
        return Err(holder.ends_early());
    }
    let (text_at, text_bytes) = match (head[6], head[7]) {
        (1, 0) => (10, usize::from(u16_at(&head, 8))),
        (2 | 3, 0) => (12, u32_at(&head, 8) as usize),
        (major, minor) => {
            let what = format!("the array has version {major}.{minor} of .npy, and only 1.0, 2.0 and 3.0 can be read");
            return Err(holder.unavailable(6, what));
        }
    };
    if text_bytes > TEXT_BYTES_MAX {
        let what = format!("the .npy header has {text_bytes} bytes; the limit is {TEXT_BYTES_MAX}");
        return Err(holder.corrupt(8, what));
    }
    let offset = (text_at + text_bytes) as u64;
    if offset > holder.len() {
        return Err(holder.ends_early());
    }
    let end = text_at + text_bytes;
    if let Some(missing) = end.checked_sub(head.len()).filter(|&missing| missing > 0) {
        head.extend(holder.bytes(head.len() as u64, missing)?);
    }
    let (text, text_at) = (&head[text_at..end], text_at as u64);
    let Header { dtype, shape } = Header::parse(text).map_err(|flaw| flaw.into_error(holder, text_at))?;
    let Some(bytes) = array_bytes(dtype, &shape) else {
        let what = format!("an array of shape {shape:?} is larger than any file");
        return Err(holder.corrupt(text_at, what));
    };
    match offset.checked_add(bytes) {
        Some(end) if end == holder.len() => Ok(Array { dtype, shape, offset, deflated: None }),
        Some(end) if end < holder.len() => {
            let what = format!("{} bytes follow the array of shape {shape:?}", holder.len() - end);
            Err(holder.corrupt(end, what).with_remedy("write one array to each file, with one numpy.save"))
        }
        _ => Err(holder.ends_early()),
    }
}

/// What a header says of an array that can be delivered.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    dtype: DType,
    shape: Vec<u64>,
}

/// Why a header is no use.
#[derive(Debug, PartialEq, Eq)]
struct Flaw {
    /// Where in the text.
    at: usize,
    what: String,
    /// For headers that are sound and describe what cannot be delivered.
    remedy: Option<&'static str>,
}

impl Flaw {
    fn into_error(self, holder: &impl Holder, text_at: u64) -> Error {
        let at = text_at + self.at as u64;
        match self.remedy {
            None => holder.corrupt(at, format!("the .npy header {}", self.what)),
            Some(remedy) => holder.unavailable(at, format!("the array {}", self.what)).with_remedy(remedy),
        }
    }
}

impl Header {
    fn parse(text: &[u8]) -> Result<Header, Flaw> {
        let mut text = Text { text, at: 0 };
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        text.expect(b'{')?;
        while !text.take(b'}') {
            let at = text.skip_blanks();
            let key = text.string()?;
            text.expect(b':')?;
            text.skip_blanks();
            let is_second = match key {
                b"descr" => descr.replace((text.at, text.descr()?)).is_some(),
                b"fortran_order" => is_fortran.replace((text.at, text.boolean()?)).is_some(),
                b"shape" => shape.replace(text.shape()?).is_some(),
                _ => return Err(text.flaw(at, "has a key other than descr, fortran_order and shape")),
            };
            if is_second {
                return Err(text.flaw(at, "has a key twice"));
            }
            if !text.take(b',') {
                text.expect(b'}')?;
                break;
            }
        }
        let end = text.skip_blanks();
        if end < text.text.len() {
            return Err(text.flaw(end, "goes on behind its dictionary"));
        }
        let (Some((descr_at, descr)), Some((order_at, is_fortran)), Some(shape)) = (descr, is_fortran, shape) else {
            return Err(text.flaw(0, "lacks descr, fortran_order or shape"));
        };
        let dtype = dtype_of(descr).map_err(|flaw| Flaw { at: descr_at + flaw.at, ..flaw })?;
        // With one dimension that counts, or no element, both orders are the same.
        if is_fortran && shape.iter().filter(|&&len| len > 1).count() > 1 && !shape.contains(&0) {
            return Err(Flaw {
                at: order_at,
                what: "lies in Fortran order".into(),
                remedy: Some("save it again by numpy.save(path, numpy.ascontiguousarray(array))"),
            });
        }
        Ok(Header { dtype, shape })
    }
}

/// The type that a `descr` names.
fn dtype_of(descr: &[u8]) -> Result<DType, Flaw> {
    let name = String::from_utf8_lossy(descr).into_owned();
    let refusal = |what: String, remedy| Err(Flaw { at: 0, what, remedy: Some(remedy) });
    let (is_big, kind) = match descr {
        [b'>', kind @ ..] => (true, kind),
        [b'<' | b'|' | b'=', kind @ ..] => (false, kind),
        kind => (false, kind),
    };
    let dtype = match kind {
        b"b1" | b"?" => DType::Bool,
        b"i1" => DType::I8,
        b"i2" => DType::I16,
        b"i4" => DType::I32,
        b"i8" => DType::I64,
        b"u1" => DType::U8,
        b"u2" => DType::U16,
        b"u4" => DType::U32,
        b"u8" => DType::U64,
        b"f2" => DType::F16,
        b"f4" => DType::F32,
        b"f8" => DType::F64,
        [b'O', ..] => {
            return refusal(
                "holds Python objects (pickle, which can run any program)".into(),
                "pickle is never read; save arrays of numbers",
            );
        }
        [b'V', ..] => {
            return refusal(
                format!("has elements of raw bytes ({name:?})"),
                "save it with a plain type, such as array.view(numpy.uint16) of bfloat16",
            );
        }
        [b'c' | b'S' | b'a' | b'U' | b'M' | b'm' | b'f' | b'i' | b'u', ..] => {
            return refusal(
                format!("has elements of type {name:?}, which no column can hold"),
                "save it with a plain type of at most 8 bytes, such as array.astype(numpy.float32)",
            );
        }
        _ => return Err(Flaw { at: 0, what: format!("names the unknown type {name:?}"), remedy: None }),
    };
    if is_big && dtype.size() > 1 {
        let remedy = "save it again with array.astype(array.dtype.newbyteorder('<'))";
        return refusal(format!("holds big endian numbers ({name:?})"), remedy);
    }
    Ok(dtype)
}

/// Python source that is read from left to right.
struct Text<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn flaw(&self, at: usize, what: impl Into<String>) -> Flaw {
        Flaw { at, what: what.into(), remedy: None }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Where the next thing is.
    fn skip_blanks(&mut self) -> usize {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.at
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, byte: u8) -> Result<(), Flaw> {
        if self.take(byte) {
            return Ok(());
        }
        Err(self.flaw(self.at, format!("lacks a {:?}", char::from(byte))))
    }

    fn string(&mut self) -> Result<&'a [u8], Flaw> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else {
            return Err(self.flaw(self.at, "lacks a string"));
        };
        let text: &'a [u8] = &self.text[self.at + 1..];
        let len = text.iter().position(|&byte| byte == quote || byte == b'\\');
        match len {
            Some(len) if text[len] == quote => {
                self.at += len + 2;
                Ok(&text[..len])
            }
            _ => Err(self.flaw(self.at, "has a string without an end, or with a backslash")),
        }
    }

    fn descr(&mut self) -> Result<&'a [u8], Flaw> {
        match self.peek() {
            Some(b'[' | b'(') => Err(Flaw {
                at: self.at,
                what: "has structures as elements".into(),
                remedy: Some("save each field as an array of its own"),
            }),
            _ => self.string(),
        }
    }

    fn boolean(&mut self) -> Result<bool, Flaw> {
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.flaw(self.at, "lacks True or False"))
    }

    fn shape(&mut self) -> Result<Vec<u64>, Flaw> {
        self.expect(b'(')?;
        let mut shape = Vec::new();
        while !self.take(b')') {
            if shape.len() == DIMENSIONS_MAX {
                return Err(self.flaw(self.at, format!("has a shape of more than {DIMENSIONS_MAX} dimensions")));
            }
            shape.push(self.number()?);
            let has_comma = self.take(b',');
            if !has_comma {
                self.expect(b')')?;
                // In Python (3) is a number and (3,) is a tuple.
                if shape.len() == 1 {
                    return Err(self.flaw(self.at, "has a shape that is not a tuple"));
                }
                break;
            }
        }
        Ok(shape)
    }

    fn number(&mut self) -> Result<u64, Flaw> {
        let start = self.skip_blanks();
        let mut number: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let next = number.checked_mul(10).and_then(|number| number.checked_add(u64::from(digit - b'0')));
            number = next.ok_or_else(|| self.flaw(start, "has a length of more than 2^64"))?;
            self.at += 1;
        }
        if self.at == start {
            return Err(self.flaw(start, "has a length that is not a whole number"));
        }
        // Python 2 wrote long integers as 3L.
        self.at += usize::from(self.peek() == Some(b'L'));
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Header, Flaw> {
        Header::parse(text.as_bytes())
    }

    fn header(descr: &str, order: &str, shape: &str) -> String {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}   \n")
    }

    #[test]
    fn what_numpy_writes_is_read() {
        let plain = parse(&header("'<f4'", "False", "(3, 4)")).unwrap();
        assert_eq!(plain, Header { dtype: DType::F32, shape: vec![3, 4] });
        for (descr, dtype) in [("|u1", DType::U8), ("|b1", DType::Bool), (">i1", DType::I8), ("<f2", DType::F16)] {
            assert_eq!(parse(&header(&format!("'{descr}'"), "False", "()")).unwrap(), Header { dtype, shape: vec![] });
        }
        let odd = "{\"shape\":(7L,),\"fortran_order\":True,\"descr\":\"<u2\"}";
        assert_eq!(parse(odd).unwrap(), Header { dtype: DType::U16, shape: vec![7] });
        assert_eq!(parse(&header("'<i8'", "True", "(1, 9, 1)")).unwrap().shape, [1, 9, 1], "both orders are the same");
    }

    #[test]
    fn what_cannot_be_delivered_is_refused_with_a_remedy() {
        let refused = [
            ("'|O'", "False", "pickle"),
            ("'<c8'", "False", "<c8"),
            ("'<U5'", "False", "<U5"),
            ("'<M8[ns]'", "False", "<M8[ns]"),
            ("'|V2'", "False", "|V2"),
            ("'>f4'", "False", "big endian"),
            ("'<f16'", "False", "<f16"),
            ("[('a', '<i4'), ('b', '|O')]", "False", "structures"),
            ("('<i4', (2,))", "False", "structures"),
            ("'<f4'", "True", "Fortran"),
        ];
        for (descr, order, word) in refused {
            let flaw = parse(&header(descr, order, "(2, 3)")).unwrap_err();
            assert!(flaw.remedy.is_some() && flaw.what.contains(word), "{descr} {order}: {flaw:?}");
        }
    }

    #[test]
    fn what_breaks_the_format_is_named_with_its_place() {
        let broken = [
            ("", 0),
            ("[]", 0),
            ("{}", 0),
            ("{'descr': '<f4', 'fortran_order': False}", 0),
            ("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 17),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}", 54),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", 34),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", 53),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 51),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 51),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}", 53),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} or True", 56),
            ("{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (1,)}", 10),
            ("{'descr': 'zz', 'fortran_order': False, 'shape': (1,)}", 10),
            ("{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 16),
            ("{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}", 10),
        ];
        for (text, at) in broken {
            let flaw = parse(text).unwrap_err();
            assert!(flaw.remedy.is_none() && flaw.at == at, "{text}: {flaw:?}");
        }
        let deep = header("'<f4'", "False", &format!("({})", "1, ".repeat(DIMENSIONS_MAX + 1)));
        assert!(parse(&deep).unwrap_err().what.contains("dimensions"));
    }
}

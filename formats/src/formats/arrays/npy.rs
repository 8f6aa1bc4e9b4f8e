//! NumPy's `.npy`, versions 1.0, 2.0 and 3.0: from the header to the place, type and shape of the array.
//!
//! Source: numpy `lib/_format_impl.py`. The header is a Python dictionary of three keys, written by `repr`. It is read
//! token by token, each key with its own kind of value; nothing is evaluated.

use super::listing::{Array, DIMENSIONS_MAX, array_bytes};
use crate::dataset::DType;
use crate::index::headers::{Source, u16_at, u32_at};
use std::num::IntErrorKind;
use std::ops::Range;
use uringload_core::{Error, ErrorKind, Result};

/// The first bytes of every file.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest text of a header, in bytes: the limit of `numpy.load`.
const TEXT_BYTES_MAX: usize = 10_000;
/// Magic, version and the longer form of the length.
const PREFIX_BYTES: usize = 12;
/// How much is read at first. The header of nearly every array fits, because that of a short shape is padded to a
/// multiple of 64 bytes. With ten thousand files, a second read of each would be a tenth of the time to open them.
const HEAD_BYTES: usize = 128;

/// What holds an array: a file, or a member of an archive.
pub(super) trait Holder {
    /// Its length in bytes.
    fn len(&self) -> u64;

    /// Reads the `len` bytes at `at`, which exist. Each call reads after the one before.
    fn bytes(&mut self, at: u64, len: usize) -> Result<Vec<u8>>;

    /// The content breaks the format at `at`.
    fn corrupt(&self, at: u64, what: String) -> Error;

    /// The content is sound, but cannot be delivered.
    fn unavailable(&self, at: u64, what: String) -> Error;

    /// The array is longer than what holds it.
    fn ends_early(&self) -> Error;
}

/// A part of a file that holds an array as it is.
pub(super) struct Extent<'a> {
    pub(super) source: &'a Source,
    pub(super) place: Range<u64>,
}

impl Holder for Extent<'_> {
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
        if self.place.end == self.source.size() {
            return self.source.truncated("the .npy array");
        }
        self.source.corrupt(self.place.end, "the array is longer than the archive's member that holds it")
    }
}

/// The array of an `.npy` file in memory: its type, its shape, and its elements, little endian and row by row.
///
/// # Errors
/// As `read_from`, with offsets in `file`; `Unavailable` for elements in another order.
pub fn array_of(file: &[u8]) -> Result<(DType, Vec<u64>, &[u8])> {
    let Array { dtype, shape, offset, is_fortran, is_big_endian, .. } = read_from(&mut InMemory(file))?;
    if is_fortran || is_big_endian && dtype.size() > 1 {
        let what = if is_fortran { "is stored column by column" } else { "is big endian" };
        let error = Error::new(ErrorKind::Unavailable, format!("the array {what}"));
        return Err(error.with_remedy("save numpy.ascontiguousarray of it, little endian"));
    }
    // It fills the file from there on, as was checked.
    Ok((dtype, shape, &file[usize::try_from(offset).unwrap_or(usize::MAX).min(file.len())..]))
}

/// A file in memory.
struct InMemory<'a>(&'a [u8]);

impl Holder for InMemory<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn bytes(&mut self, at: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = usize::try_from(at).ok().and_then(|at| self.0.get(at..at.checked_add(len)?));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| self.ends_early())
    }

    fn corrupt(&self, at: u64, what: String) -> Error {
        Error::new(ErrorKind::Corrupt, what).with_offset(at)
    }

    fn unavailable(&self, at: u64, what: String) -> Error {
        Error::new(ErrorKind::Unavailable, what).with_offset(at)
    }

    fn ends_early(&self) -> Error {
        Error::new(ErrorKind::Truncated, "the bytes end before the .npy array does")
    }
}

/// Reads the header of the array at `place` of a file, and checks that the array fills it exactly.
///
/// # Errors
/// As [`read_from`].
pub(super) fn read(source: &Source, place: Range<u64>) -> Result<Array> {
    let start = place.start;
    let array = read_from(&mut Extent { source, place })?;
    Ok(Array { offset: start + array.offset, ..array })
}

/// Reads the header of the array in `holder`, and checks that the array fills it exactly. The offset is relative to
/// `holder`.
///
/// # Errors
/// `Truncated` if the holder ends before the array does; `Corrupt` if it breaks the format; `Unavailable` for arrays of
/// objects (pickle), of structures, and of types without a [`DType`].
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
    let Header { dtype, shape, is_fortran, is_big_endian } =
        Header::parse(text).map_err(|flaw| flaw.into_error(holder, text_at))?;
    let Some(bytes) = array_bytes(dtype, &shape) else {
        let what = format!("an array of shape {shape:?} is larger than any file");
        return Err(holder.corrupt(text_at, what));
    };
    match offset.checked_add(bytes) {
        Some(end) if end == holder.len() => {
            Ok(Array { dtype, shape, offset, deflated: None, is_fortran, is_big_endian })
        }
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
    /// Only where it makes a difference.
    is_fortran: bool,
    is_big_endian: bool,
}

/// Why a header cannot be used.
#[derive(Debug, PartialEq, Eq)]
struct Flaw {
    /// Where in the text.
    at: usize,
    what: String,
    /// Set if the header is sound, but describes what cannot be delivered.
    remedy: Option<&'static str>,
}

/// The header breaks the format at `at`.
fn flaw<T>(at: usize, what: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw { at, what: what.into(), remedy: None })
}

fn refusal<T>(at: usize, what: impl Into<String>, remedy: &'static str) -> Result<T, Flaw> {
    Err(Flaw { at, what: what.into(), remedy: Some(remedy) })
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
        let mut text = Tokens { text, at: text.len() - text.trim_ascii_start().len() };
        let (mut dtype, mut is_fortran, mut shape) = (None, None, None);
        text.items(b"{", b"}", |text| {
            let key_at = text.at;
            let key = text.string()?;
            text.expect(b":")?;
            let is_second = match key {
                b"descr" => dtype.replace(text.dtype()?).is_some(),
                b"fortran_order" => is_fortran.replace(text.boolean()?).is_some(),
                b"shape" => shape.replace(text.shape()?).is_some(),
                _ => return flaw(key_at, "has a key other than descr, fortran_order and shape"),
            };
            if is_second { flaw(key_at, "has a key twice") } else { Ok(()) }
        })?;
        if text.at < text.text.len() {
            return flaw(text.at, "goes on after its dictionary");
        }
        let (Some((dtype, is_big_endian)), Some(is_fortran), Some(shape)) = (dtype, is_fortran, shape) else {
            return flaw(0, "lacks descr, fortran_order or shape");
        };
        // Both orders are the same if no more than one dimension is longer than 1, or if there are no elements.
        let is_fortran = is_fortran && shape.iter().filter(|&&len| len > 1).count() > 1 && !shape.contains(&0);
        Ok(Header { dtype, shape, is_fortran, is_big_endian })
    }
}

/// Python source, token by token.
struct Tokens<'a> {
    text: &'a [u8],
    /// Where the next token begins.
    at: usize,
}

impl<'a> Tokens<'a> {
    /// Returns the next token: a string with its quotes, a word, or any other byte. It is empty at the end.
    fn peek(&self) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let len = match rest.first() {
            Some(quote @ (b'\'' | b'"')) => rest[1..].iter().position(|byte| byte == quote).map_or(1, |len| len + 2),
            Some(byte) if is_word(byte) => rest.iter().take_while(|byte| is_word(byte)).count(),
            first => usize::from(first.is_some()),
        };
        &rest[..len]
    }

    fn next(&mut self) -> &'a [u8] {
        let token = self.peek();
        self.at += token.len();
        self.at = self.text.len() - self.text[self.at..].trim_ascii_start().len();
        token
    }

    fn take(&mut self, token: &[u8]) -> bool {
        let is_there = self.peek() == token;
        if is_there {
            self.next();
        }
        is_there
    }

    fn expect(&mut self, token: &[u8]) -> Result<(), Flaw> {
        if self.take(token) { Ok(()) } else { flaw(self.at, format!("lacks a {:?}", char::from(token[0]))) }
    }

    /// Reads items with commas between them. Returns whether a comma follows the last.
    fn items(
        &mut self,
        open: &[u8],
        close: &[u8],
        mut item: impl FnMut(&mut Self) -> Result<(), Flaw>,
    ) -> Result<bool, Flaw> {
        self.expect(open)?;
        while !self.take(close) {
            item(self)?;
            if !self.take(b",") {
                self.expect(close)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn string(&mut self) -> Result<&'a [u8], Flaw> {
        match self.peek() {
            [b'\'' | b'"', string @ .., b'\'' | b'"'] if !string.contains(&b'\\') => {
                self.next();
                Ok(string)
            }
            [b'\'' | b'"', ..] => flaw(self.at, "has a string without an end, or with a backslash"),
            _ => flaw(self.at, "lacks a string"),
        }
    }

    fn boolean(&mut self) -> Result<bool, Flaw> {
        let at = self.at;
        match self.next() {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => flaw(at, "lacks True or False"),
        }
    }

    fn shape(&mut self) -> Result<Vec<u64>, Flaw> {
        let mut shape = Vec::new();
        let has_comma = self.items(b"(", b")", |text| {
            let (at, token) = (text.at, String::from_utf8_lossy(text.next()));
            if shape.len() == DIMENSIONS_MAX {
                return flaw(at, format!("has a shape of more than {DIMENSIONS_MAX} dimensions"));
            }
            // Python 2 wrote long integers as 3L.
            match token.strip_suffix('L').unwrap_or(&token).parse::<u64>() {
                Ok(len) => shape.push(len),
                Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
                    return flaw(at, "has a length of more than 2^64");
                }
                Err(_) => return flaw(at, "has a length that is not a whole number"),
            }
            Ok(())
        })?;
        // In Python (3) is a number and (3,) is a tuple.
        if shape.len() == 1 && !has_comma { flaw(self.at, "has a shape that is not a tuple") } else { Ok(shape) }
    }

    /// Reads the value of `descr`: the type, and whether it is big endian.
    fn dtype(&mut self) -> Result<(DType, bool), Flaw> {
        let at = self.at;
        if let b"[" | b"(" = self.peek() {
            return refusal(at, "has structures as elements", "save each field as an array of its own");
        }
        let descr = self.string()?;
        let name = String::from_utf8_lossy(descr);
        let kind = descr.strip_prefix(b"<").or(descr.strip_prefix(b">")).or(descr.strip_prefix(b"|"));
        let kind = kind.or(descr.strip_prefix(b"=")).unwrap_or(descr);
        // The types that NumPy lacks are saved under the name of another, which comes first.
        let is_called = |dtype: &DType| dtype.numpy().as_bytes()[1..] == *kind || *dtype == DType::Bool && kind == b"?";
        match (DType::ALL.into_iter().find(is_called), kind) {
            (Some(dtype), _) => Ok((dtype, descr.starts_with(b">") && dtype.size() > 1)),
            (None, [b'O', ..]) => {
                let remedy = "pickle is never read; save arrays of numbers";
                refusal(at, "holds Python objects (pickle, which can run any program)", remedy)
            }
            (None, [b'V', ..]) => {
                let remedy = "save it with a plain type, such as array.view(numpy.uint16) of bfloat16";
                refusal(at, format!("has elements of raw bytes ({name:?})"), remedy)
            }
            (None, [b'c' | b'S' | b'a' | b'U' | b'M' | b'm' | b'f' | b'i' | b'u', ..]) => {
                let remedy = "save it with a plain type of at most 8 bytes, such as array.astype(numpy.float32)";
                refusal(at, format!("has elements of type {name:?}, which no column can hold"), remedy)
            }
            _ => flaw(at, format!("names the unknown type {name:?}")),
        }
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
        let of = |dtype, shape| Header { dtype, shape, is_fortran: false, is_big_endian: false };
        assert_eq!(plain, of(DType::F32, vec![3, 4]));
        for (descr, dtype) in [("|u1", DType::U8), ("|b1", DType::Bool), (">i1", DType::I8), ("<f2", DType::F16)] {
            assert_eq!(parse(&header(&format!("'{descr}'"), "False", "()")).unwrap(), of(dtype, vec![]));
        }
        let odd = "{\"shape\":(7L,),\"fortran_order\":True,\"descr\":\"<u2\"}";
        assert_eq!(parse(odd).unwrap(), of(DType::U16, vec![7]));
        assert_eq!(
            parse(&header("'<i8'", "True", "(1, 9, 1)")).unwrap(),
            of(DType::I64, vec![1, 9, 1]),
            "both orders are the same"
        );
        let other = parse(&header("'>i8'", "True", "(2, 9)")).unwrap();
        assert_eq!(other, Header { is_fortran: true, is_big_endian: true, ..of(DType::I64, vec![2, 9]) });
    }

    #[test]
    fn what_cannot_be_delivered_is_refused_with_a_remedy() {
        let refused = [
            ("'|O'", "False", "pickle"),
            ("'<c8'", "False", "<c8"),
            ("'<U5'", "False", "<U5"),
            ("'<M8[ns]'", "False", "<M8[ns]"),
            ("'|V2'", "False", "|V2"),
            ("'<f16'", "False", "<f16"),
            ("[('a', '<i4'), ('b', '|O')]", "False", "structures"),
            ("('<i4', (2,))", "False", "structures"),
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

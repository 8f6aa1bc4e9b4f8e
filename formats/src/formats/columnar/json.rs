//! Nested values as JSON text, for lists of text, lists of lists and of structs, and maps.
//!
//! Numbers and text are what `json.loads` of Python reads back; bytes, which JSON does not have, are text in base64.
//! Floats that are no numbers are `NaN`, `Infinity` and `-Infinity`, as the `json` module writes them.

use super::column::Kind;
use super::layout::ColumnWriter;
use crate::dataset::DType;
use std::io::Write;
use uringload_core::{Error, ErrorKind, Result};

/// What a value inside a nested column is. Its bytes are little endian, as they would be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool,
    Signed,
    Unsigned,
    F16,
    F32,
    F64,
    /// A signed integer with that many digits after the point.
    Decimal(i32),
    Text,
    Bytes,
}

/// The most bytes of a number as text: that of 256 bits, with its sign, its point and a zero before that.
const DECIMAL_BYTES: u64 = 81;

impl Scalar {
    /// What values of this kind are, unless they are decimals.
    pub(crate) fn of(kind: &Kind) -> Scalar {
        match kind.dtype {
            _ if !kind.is_plain() && kind.is_text => Scalar::Text,
            _ if !kind.is_plain() => Scalar::Bytes,
            DType::Bool => Scalar::Bool,
            DType::F16 => Scalar::F16,
            DType::F32 => Scalar::F32,
            DType::F64 => Scalar::F64,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Scalar::Unsigned,
            _ => Scalar::Signed,
        }
    }

    /// The most bytes that a value takes as text. Those of text and bytes are counted by [`text_room`].
    pub(crate) fn room(self) -> u64 {
        match self {
            Scalar::Bool => 5,
            Scalar::Signed | Scalar::Unsigned => 20,
            Scalar::F16 | Scalar::F32 => 16,
            Scalar::F64 => 25,
            Scalar::Decimal(scale) => DECIMAL_BYTES + u64::from(scale.unsigned_abs()),
            Scalar::Text => 2,
            // What is left of three bytes takes four.
            Scalar::Bytes => 6,
        }
    }

    /// Writes a value.
    ///
    /// # Errors
    /// `Corrupt` for text that is not UTF-8, and where the unit is full.
    #[inline]
    pub(crate) fn write(self, value: &[u8], out: &mut Text<'_, '_>) -> Result<()> {
        match self {
            Scalar::Text => out.text(value),
            Scalar::Bytes => out.base64(value),
            Scalar::Bool => out.raw(if value.first() == Some(&0) { b"false" } else { b"true" }),
            Scalar::Signed if value.len() <= 8 => out.raw(itoa::Buffer::new().format(signed(value)).as_bytes()),
            Scalar::Unsigned if value.len() <= 8 => out.raw(itoa::Buffer::new().format(unsigned(value)).as_bytes()),
            Scalar::Signed | Scalar::Unsigned => out.raw(decimal(value, 0).as_bytes()),
            Scalar::Decimal(scale) => out.raw(decimal(value, scale).as_bytes()),
            Scalar::F16 => {
                let bits = value.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
                out.float(half(bits).into(), format_args!("{:?}", half(bits)))
            }
            Scalar::F32 => {
                let number = value.first_chunk().map_or(0.0, |bytes| f32::from_le_bytes(*bytes));
                out.float(number.into(), format_args!("{number:?}"))
            }
            Scalar::F64 => {
                let number = value.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes));
                out.float(number, format_args!("{number:?}"))
            }
        }
    }
}

/// The most bytes that text or bytes of this length take together. Quotes, backslashes and line ends take two; other
/// control characters take six, but not in what people call text.
pub(crate) fn text_room(bytes: u64) -> u64 {
    bytes.saturating_mul(2)
}

/// A row that is being written.
pub(crate) struct Text<'a, 'b> {
    writer: &'a mut ColumnWriter<'b>,
    /// Room for a number.
    scratch: Vec<u8>,
}

impl<'a, 'b> Text<'a, 'b> {
    pub(crate) fn new(writer: &'a mut ColumnWriter<'b>) -> Text<'a, 'b> {
        Text { writer, scratch: Vec::new() }
    }

    pub(crate) fn writer(&mut self) -> &mut ColumnWriter<'b> {
        self.writer
    }

    #[inline]
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Appends this many bytes, which the caller writes.
    #[inline]
    fn room(&mut self, len: usize) -> Result<&mut [u8]> {
        self.writer.room(len).map_err(grown)
    }

    fn shown(&mut self, shown: std::fmt::Arguments<'_>) -> Result<()> {
        self.scratch.clear();
        // Memory takes it.
        let _ = self.scratch.write_fmt(shown);
        self.writer.elements(&self.scratch)
    }

    fn float(&mut self, number: f64, shown: std::fmt::Arguments<'_>) -> Result<()> {
        if number.is_nan() {
            return self.raw(b"NaN");
        }
        if number.is_infinite() {
            return self.raw(if number > 0.0 { b"Infinity" } else { b"-Infinity" });
        }
        self.shown(shown)
    }

    fn text(&mut self, value: &[u8]) -> Result<()> {
        if is_plain(value) {
            let room = self.room(value.len() + 2)?;
            room[1..=value.len()].copy_from_slice(value);
            (room[0], room[value.len() + 1]) = (b'"', b'"');
            return Ok(());
        }
        if std::str::from_utf8(value).is_err() {
            return Err(Error::new(ErrorKind::Corrupt, "text is not UTF-8"));
        }
        self.raw(b"\"")?;
        let mut rest = value;
        while let Some(at) = first_special(rest) {
            self.raw(&rest[..at])?;
            match rest[at] {
                b'\n' => self.raw(b"\\n")?,
                b'\r' => self.raw(b"\\r")?,
                b'\t' => self.raw(b"\\t")?,
                8 => self.raw(b"\\b")?,
                12 => self.raw(b"\\f")?,
                byte @ (b'"' | b'\\') => self.raw(&[b'\\', byte])?,
                byte => {
                    let digit = |number: u8| b"0123456789abcdef"[usize::from(number)];
                    self.raw(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)])?;
                }
            }
            rest = &rest[at + 1..];
        }
        self.raw(rest)?;
        self.raw(b"\"")
    }

    fn base64(&mut self, value: &[u8]) -> Result<()> {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        self.raw(b"\"")?;
        let mut digits = Vec::with_capacity(BASE64_AT_ONCE / 3 * 4);
        for part in value.chunks(BASE64_AT_ONCE) {
            digits.clear();
            for three in part.chunks(3) {
                let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
                let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
                for digit in 0..4 {
                    let is_had = digit <= three.len();
                    digits.push(if is_had { DIGITS[(bits >> (18 - 6 * digit) & 63) as usize] } else { b'=' });
                }
            }
            self.raw(&digits)?;
        }
        self.raw(b"\"")
    }
}

#[cold]
fn grown(error: Error) -> Error {
    error.with_remedy("or the column's text has so many control characters that it grows by more than twice")
}

/// Whether text is in JSON what it is: ASCII, without what must be escaped. Most is, and is looked at just once.
fn is_plain(text: &[u8]) -> bool {
    let is_odd = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\') | (byte >= 0x80);
    // Without a branch in the loops, many bytes are compared at once.
    let (chunks, rest) = text.as_chunks::<SCANNED_AT_ONCE>();
    let has_odd = |bytes: &[u8]| bytes.iter().fold(false, |found, &byte| found | is_odd(byte));
    if chunks.iter().any(|chunk| has_odd(chunk)) {
        return false;
    }
    let (eights, rest) = rest.as_chunks::<8>();
    !eights.iter().fold(false, |found, eight| found | has_odd(eight)) & !has_odd(rest)
}

/// The first byte that text cannot have in JSON as it is.
fn first_special(text: &[u8]) -> Option<usize> {
    let is_special = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
    let (chunks, _) = text.as_chunks::<SCANNED_AT_ONCE>();
    // Without a branch in the loop, many bytes are compared at once.
    let has_one = |chunk: &[u8; SCANNED_AT_ONCE]| chunk.iter().fold(false, |found, &byte| found | is_special(byte));
    let clean = chunks.iter().position(has_one).unwrap_or(chunks.len()) * SCANNED_AT_ONCE;
    text[clean..].iter().position(|&byte| is_special(byte)).map(|at| clean + at)
}

/// How many bytes are compared at once, which suits any processor's vectors.
const SCANNED_AT_ONCE: usize = 32;

/// How many bytes become base64 at once: a multiple of three.
const BASE64_AT_ONCE: usize = 3 << 10;

/// The name of a field as text, followed by the colon.
pub(crate) fn name(name: &str) -> Box<[u8]> {
    let mut text = serde_json::Value::from(name).to_string().into_bytes();
    text.push(b':');
    text.into()
}

/// Of up to 8 bytes.
fn unsigned(value: &[u8]) -> u64 {
    match *value {
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => value.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)),
    }
}

fn signed(value: &[u8]) -> i64 {
    let unused = 64 - 8 * value.len().clamp(1, 8) as u32;
    (unsigned(value) << unused) as i64 >> unused
}

/// A float of 16 bits, exactly.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        exponent => (1024.0 + fraction) * 2_f32.powi(exponent - 25),
    };
    if sign == 1 { -size } else { size }
}

/// A signed little endian integer of any length with `scale` digits after the point.
fn decimal(value: &[u8], scale: i32) -> String {
    let is_negative = value.last().is_some_and(|&byte| byte & 0x80 != 0);
    let mut digits: Vec<u8> = value.to_vec();
    if is_negative {
        let mut carry = true;
        for byte in &mut digits {
            (*byte, carry) = (!*byte).overflowing_add(carry.into());
        }
    }
    let mut text = Vec::new();
    while digits.iter().any(|&byte| byte != 0) {
        let mut rest = 0;
        for byte in digits.iter_mut().rev() {
            let number = rest << 8 | u32::from(*byte);
            // Below 256, since `rest` is below 10.
            (*byte, rest) = ((number / 10) as u8, number % 10);
        }
        text.push(b'0' + rest as u8);
    }
    let behind = usize::try_from(scale).unwrap_or(0);
    while text.len() <= behind {
        text.push(b'0');
    }
    if scale < 0 && text != b"0" {
        text.splice(0..0, std::iter::repeat_n(b'0', scale.unsigned_abs() as usize));
    }
    if behind > 0 {
        text.insert(behind, b'.');
    }
    if is_negative {
        text.push(b'-');
    }
    text.iter().rev().map(|&byte| char::from(byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Fill;
    use super::super::layout::{State, Writer, value};
    use super::*;

    fn written(scalar: Scalar, bytes: &[u8]) -> Result<String> {
        let mut out = vec![0; 1 << 16];
        let mut writer = Writer::new(&mut out, 1, 1)?;
        let mut column = writer.column(true, None, Fill::ZERO)?;
        let mut text = Text::new(&mut column);
        scalar.write(bytes, &mut text)?;
        text.writer().end_row(State::Valid)?;
        column.finish()?;
        writer.finish();
        let (text, _) = value(&out.into(), 0, 0, None).expect("a value");
        assert!(text.len() as u64 <= scalar.room() + text_room(bytes.len() as u64), "{text:?}");
        Ok(String::from_utf8(text.to_vec()).expect("text"))
    }

    #[test]
    fn numbers_are_what_they_were() {
        let of = |scalar, bytes: &[u8]| written(scalar, bytes).unwrap();
        assert_eq!([of(Scalar::Bool, &[0]), of(Scalar::Bool, &[1])], ["false", "true"]);
        assert_eq!([of(Scalar::Signed, &[0xff]), of(Scalar::Unsigned, &[0xff])], ["-1", "255"]);
        assert_eq!(of(Scalar::Signed, &i64::MIN.to_le_bytes()), i64::MIN.to_string());
        assert_eq!(of(Scalar::Unsigned, &u64::MAX.to_le_bytes()), u64::MAX.to_string());
        assert_eq!(of(Scalar::F64, &(1.0_f64 / 3.0).to_le_bytes()), "0.3333333333333333");
        assert_eq!(of(Scalar::F64, &f64::MIN_POSITIVE.to_le_bytes()).parse(), Ok(f64::MIN_POSITIVE));
        assert_eq!(of(Scalar::F64, &f64::MIN.to_le_bytes()).parse(), Ok(f64::MIN));
        assert_eq!(of(Scalar::F32, &0.1_f32.to_le_bytes()), "0.1");
        assert_eq!(of(Scalar::F32, &f32::NAN.to_le_bytes()), "NaN");
        assert_eq!(of(Scalar::F32, &f32::NEG_INFINITY.to_le_bytes()), "-Infinity");
        for (bits, text) in [(0x3c00, "1.0"), (0xc100, "-2.5"), (0x0001, "5.9604645e-8"), (0x7bff, "65504.0")] {
            assert_eq!(of(Scalar::F16, &u16::to_le_bytes(bits)), text);
        }
        assert_eq!(of(Scalar::F16, &[0, 0x7c]), "Infinity");
    }

    #[test]
    fn decimals_have_their_point() {
        let of = |number: i128, scale| written(Scalar::Decimal(scale), &number.to_le_bytes()).unwrap();
        assert_eq!([of(12345, 2), of(-5, 3), of(0, 2), of(7, 0)], ["123.45", "-0.005", "0.00", "7"]);
        assert_eq!([of(7, -3), of(0, -3)], ["7000", "0"]);
        assert_eq!(of(i128::MIN, 0), i128::MIN.to_string());
        let mut least = [0; 32];
        least[31] = 0x80;
        let text = written(Scalar::Decimal(1), &least).unwrap();
        assert_eq!(text, "-5789604461865809771178549250434395392663499233282028201972879200395656481996.8");
    }

    #[test]
    fn text_is_escaped_and_bytes_are_base64() {
        let of = |scalar, bytes: &[u8]| written(scalar, bytes).unwrap();
        for text in ["", "plain", "ü \"quoted\" \\ \n\r\t\u{8}\u{c}", "\u{1b}[1m and a few more characters"] {
            let told = of(Scalar::Text, text.as_bytes());
            assert_eq!(serde_json::from_str::<String>(&told).unwrap(), text, "{told}");
        }
        let long = "x".repeat(100) + "\"" + &"y".repeat(SCANNED_AT_ONCE) + "\n";
        for start in 0..long.len() {
            let told = of(Scalar::Text, &long.as_bytes()[start..]);
            assert_eq!(serde_json::from_str::<String>(&told).unwrap(), long[start..]);
        }
        assert!(written(Scalar::Text, &[0xff]).unwrap_err().to_string().contains("not UTF-8"));
        for (bytes, text) in [("", "\"\""), ("f", "\"Zg==\""), ("fo", "\"Zm8=\""), ("foobar", "\"Zm9vYmFy\"")] {
            assert_eq!(of(Scalar::Bytes, bytes.as_bytes()), text);
        }
        assert_eq!(of(Scalar::Bytes, &[0xff; 3]), "\"////\"");
        assert_eq!(of(Scalar::Bytes, &[0; BASE64_AT_ONCE + 1]).len(), BASE64_AT_ONCE / 3 * 4 + 6);
        assert_eq!(&*name("a\"b"), b"\"a\\\"b\":");
    }
}

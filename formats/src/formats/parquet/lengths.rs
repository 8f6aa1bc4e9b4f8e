//! The lengths of lists that all have the same one. Parquet keeps none, but Arrow's writers keep their own schema in
//! the footer, as text, and so do those who write through them, such as Hugging Face and LeRobot.
//!
//! That schema is a note: the one of Parquet says what is stored. Where the two differ, as after another writer has
//! copied the note, it does not count, as with Arrow's own readers. A note that cannot be read is damage, as to them.
//!
//! Source: apache/arrow `cpp/src/parquet/arrow/schema.cc`, `GetOriginSchema`, `ApplyOriginalMetadata`.

use super::metadata::Node;
use crate::formats::arrow::tables::Field;

/// The field of the note for each field of a schema, if the note is of that schema.
pub(super) fn of_each<'a>(
    schema: &[Node],
    note: Option<&'a [Field<'a>]>,
) -> impl Iterator<Item = Option<&'a Field<'a>>> {
    let note = note.filter(|note| note.len() == schema.len());
    schema
        .iter()
        .enumerate()
        .map(move |(number, node)| note.map(|note| &note[number]).filter(|it| it.name == node.name))
}

/// Turns base64 into bytes (RFC 4648), with or without padding.
pub(super) fn decoded(text: &[u8]) -> Result<Vec<u8>, String> {
    let digits = text.trim_ascii_end();
    let digits = digits.strip_suffix(b"==").or(digits.strip_suffix(b"=")).unwrap_or(digits);
    let (mut bytes, mut bits) = (Vec::with_capacity(digits.len() / 4 * 3 + 2), 0_u32);
    for (number, digit) in digits.iter().enumerate() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(format!("byte {number} of it is no digit of base64")),
        };
        bits = bits << 6 | u32::from(value);
        // Every digit but the first of four ends a byte.
        if number % 4 > 0 {
            bytes.push((bits >> (6 - 2 * (number % 4))) as u8);
        }
    }
    if digits.len() % 4 == 1 { Err("it is cut short".into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_the_standard_has_it() {
        for (text, bytes) in [
            ("", Some("")),
            ("Zg==", Some("f")),
            ("Zg", Some("f")),
            ("Zm8=", Some("fo")),
            ("Zm9v\n", Some("foo")),
            ("Zm9vYmFy", Some("foobar")),
            ("Zm9vY", None),
            ("Zm-v", None),
            ("Zg==Zg==", None),
        ] {
            assert_eq!(decoded(text.as_bytes()).ok().as_deref(), bytes.map(str::as_bytes), "{text:?}");
        }
        assert_eq!(decoded(b"+//+").unwrap(), [0xfb, 0xff, 0xfe]);
    }
}

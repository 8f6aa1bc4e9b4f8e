//! The elements of a JSON array, found in one pass without parsing them: only strings and brackets count.

use super::scan::Sink;
use uringload_core::{Error, ErrorKind, Result};

/// Where the first element may begin, if a text begins as an array of objects.
pub(super) fn array_of_objects(text: &[u8]) -> Option<usize> {
    let inside = text.trim_ascii_start().strip_prefix(b"[")?;
    let first = inside.trim_ascii_start().first()?;
    matches!(first, b'{' | b']').then_some(text.len() - inside.len())
}

/// A pass over the elements of an array, piece by piece.
#[derive(Debug, Default)]
pub(super) struct Elements {
    /// Brackets that are open in the element.
    depth: u64,
    in_string: bool,
    /// Whether the byte before was a backslash in a string.
    is_escaped: bool,
    /// Where the element begins, once it has.
    start: Option<u64>,
    /// The end of its last byte that is not blank.
    end: u64,
    /// Whether a comma came before: another element must follow.
    is_owed: bool,
    is_closed: bool,
}

impl Elements {
    /// Scans the next piece, which begins at `at`. Returns where the current element may begin, if one has ended.
    pub(super) fn feed(&mut self, piece: &[u8], at: u64, sink: &mut impl Sink) -> Result<Option<u64>> {
        let mut start = None;
        for (&byte, at) in piece.iter().zip(at..) {
            if self.in_string {
                self.in_string = self.is_escaped || byte != b'"';
                self.is_escaped = byte == b'\\' && !self.is_escaped;
                self.end = at + 1;
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                _ if self.is_closed => return Err(corrupt("bytes follow the array", at)),
                b',' if self.depth == 0 => {
                    self.end_element(at, sink)?;
                    self.is_owed = true;
                    start = Some(at + 1);
                    continue;
                }
                b']' if self.depth == 0 => {
                    if self.start.is_some() || self.is_owed {
                        self.end_element(at, sink)?;
                    }
                    self.is_closed = true;
                    start = Some(at + 1);
                    continue;
                }
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or_else(|| corrupt("a bracket was never opened", at))?;
                }
                _ => {}
            }
            self.start.get_or_insert(at);
            self.end = at + 1;
        }
        Ok(start)
    }

    /// Ends the file.
    pub(super) fn finish(self, at: u64) -> Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Truncated, "the file ends within its array").with_offset(at);
        Err(error.with_remedy("the file was cut short: copy it again"))
    }

    fn end_element(&mut self, at: u64, sink: &mut impl Sink) -> Result<()> {
        let start = self.start.take().ok_or_else(|| corrupt("an element of the array is missing", at))?;
        sink.line(start, self.end - start);
        Ok(())
    }
}

fn corrupt(what: &'static str, at: u64) -> Error {
    let error = Error::new(ErrorKind::Corrupt, what).with_offset(at);
    error.with_remedy("check the file with jq, or write a line for each sample, in a .jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen(Vec<(u64, u64)>);

    impl Sink for Seen {
        fn line(&mut self, offset: u64, len: u64) {
            self.0.push((offset, len));
        }

        fn empty(&mut self) {}
    }

    fn elements(text: &[u8], step: usize) -> Result<Vec<&[u8]>> {
        let first = array_of_objects(text).expect("an array of objects");
        let (mut seen, mut elements) = (Seen::default(), Elements::default());
        for (number, piece) in text[first..].chunks(step).enumerate() {
            elements.feed(piece, (first + number * step) as u64, &mut seen)?;
        }
        elements.finish(text.len() as u64)?;
        Ok(seen.0.into_iter().map(|(at, len)| &text[at as usize..(at + len) as usize]).collect())
    }

    proptest! {
        /// Pieces of any length give the elements that serde_json finds. Where it finds none, either an element is no
        /// JSON, which its sample says, or the array is refused.
        #[test]
        fn elements_are_those_of_serde_json(
            words in vec(prop::sample::select(&[
                "{}", "{\"a\": [1, 2]}", "{\"a\":\"]}\\\"\\\\\"}", "3", "\"x, ]\"", "null",
                ",", ",", ",", "]", "[", "{", "\"", "\\", " ", "\n",
            ][..]), 0..12),
            step in 1..9_usize,
        ) {
            let text = format!("[{{}}{}]", words.concat());
            let found = elements(text.as_bytes(), step);
            match serde_json::from_str::<Vec<&RawValue>>(&text) {
                Ok(wanted) => {
                    let wanted: Vec<&[u8]> = wanted.iter().map(|element| element.get().as_bytes()).collect();
                    prop_assert_eq!(found.unwrap(), wanted);
                }
                Err(_) => {
                    let is_json = |element: &&[u8]| serde_json::from_slice::<&RawValue>(element).is_ok();
                    prop_assert!(found.is_err() || !found.unwrap().iter().all(is_json));
                }
            }
        }
    }

    #[test]
    fn arrays_that_are_none() {
        assert_eq!(array_of_objects(b" [1]"), None);
        assert_eq!(elements(b"[]", 1).unwrap(), [b""; 0]);
        for (text, kind, offset) in [
            (&b"[{},,{}]"[..], ErrorKind::Corrupt, 4),
            (b"[{},]", ErrorKind::Corrupt, 4),
            (b"[{}] {}", ErrorKind::Corrupt, 5),
            (b"[{}}]", ErrorKind::Corrupt, 3),
            (b"[{\"a\": \"]", ErrorKind::Truncated, 9),
        ] {
            let error = elements(text, 2).unwrap_err();
            assert_eq!((error.kind(), error.offset()), (kind, Some(offset)), "{error}");
        }
    }
}

//! `NaN`, `Infinity` and `-Infinity`: not JSON, but Python's `json` writes and reads them.

use memchr::memchr2;
use serde_json::Error;

/// Each word and a number of the same length, which the parser takes in its place.
const WORDS: [(&[u8], &[u8]); 2] = [(b"NaN", b"0e0"), (b"Infinity", b"0.000000")];

/// The result of `parse` for a text; if it fails, the result for the same text with numbers in place of these words.
/// All else is at the same bytes.
pub(super) fn reparsed<T>(text: &[u8], mut parse: impl FnMut(&[u8]) -> Result<T, Error>) -> Result<T, Error> {
    // Most lines have no such word, and are not looked through for one.
    parse(text).or_else(|error| match masked(text) {
        Some(masked) => parse(&masked),
        None => Err(error),
    })
}

/// The text with numbers in place of these words; `None` where it has none outside of its strings.
pub(super) fn masked(text: &[u8]) -> Option<Vec<u8>> {
    let mut masked: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte == b'"' {
            at = string_end(text, at + 1);
            continue;
        }
        let word = WORDS.iter().find(|(word, _)| text[at..].starts_with(word) && is_alone(text, at, word));
        if let Some((word, number)) = word {
            masked.get_or_insert_with(|| text.to_vec())[at..at + word.len()].copy_from_slice(number);
            at += word.len();
        } else {
            at += 1;
        }
    }
    masked
}

/// The end of the string whose first byte is at `at`.
fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(place) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += place;
        if text[at] == b'"' {
            return at + 1;
        }
        // Whatever is escaped ends nothing.
        at += 2;
    }
    text.len()
}

/// Whether the word at `at` is a value of its own, and no part of another.
fn is_alone(text: &[u8], at: usize, word: &[u8]) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(|byte| b" \t\r\n,:[]{}".contains(byte));
    let before = match text[..at].last() {
        Some(b'-') if word == b"Infinity" => at.checked_sub(2).and_then(|before| text.get(before)),
        before => before,
    };
    ends(before) && ends(text.get(at + word.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_outside_of_strings_are_numbers() {
        let masked = |text: &str| masked(text.as_bytes()).map(|text| String::from_utf8(text).expect("text"));
        assert_eq!(masked("[NaN,-Infinity , Infinity]").as_deref(), Some("[0e0,-0.000000 , 0.000000]"));
        assert_eq!(masked("{\"NaN\\\"NaN\":NaN}").as_deref(), Some("{\"NaN\\\"NaN\":0e0}"));
        assert_eq!(masked("NaN").as_deref(), Some("0e0"));
        let others = [
            "\"NaN\"",
            "\"\\\\\\\"NaN",
            "1NaN",
            "NaN1",
            "-NaN",
            "+Infinity",
            "1-Infinity",
            "nan",
            "\"NaN",
            "\\",
            "\"\\",
        ];
        others.iter().for_each(|text| assert_eq!(masked(text), None, "{text}"));
    }
}

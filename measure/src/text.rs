//! Sizes and times for people to read, and text without what controls a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// "2.10 GB", "110 KB", "17 B": three significant digits, decimal units.
pub fn bytes(bytes: f64) -> String {
    let (value, unit) = match bytes {
        b if b >= 0.9995e12 => (b / 1e12, "TB"),
        b if b >= 0.9995e9 => (b / 1e9, "GB"),
        b if b >= 0.9995e6 => (b / 1e6, "MB"),
        b if b >= 0.9995e3 => (b / 1e3, "KB"),
        b => return format!("{b:.0} B"),
    };
    format!("{} {unit}", significant(value))
}

/// "256 MiB": for memory and for powers of two.
pub fn binary(bytes: u64) -> String {
    match bytes {
        b if b >= 10 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", (b + (1 << 19)) >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// "19 123".
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// "850 µs", "1.20 ms", "3.00 s".
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s >= 0.9995 => format!("{} s", significant(s)),
        s if s >= 0.9995e-3 => format!("{} ms", significant(s * 1e3)),
        s => format!("{:.0} µs", s * 1e6),
    }
}

fn significant(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The text without characters that control a terminal or turn text around: names of files, columns and keys come from
/// whoever made the data. They are written as JSON writes them, so that JSON stays what it says. Lines and tabs are the
/// program's own; [`one_line`] is for values.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |letter| !matches!(letter, '\n' | '\t'))
}

/// The same for a value that must stay on its line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escape(text, |_| true)
}

fn escape(text: &str, is_meant: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |letter: char| {
        let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (letter.is_control() || turns) && is_meant(letter)
    };
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_escaped(letter) {
            // Writing to a String cannot fail. No such letter has more than four digits.
            let _ = write!(escaped, "\\u{:04x}", u32::from(letter));
        } else {
            escaped.push(letter);
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_has_three_digits() {
        assert_eq!(bytes(2.1e9), "2.10 GB");
        assert_eq!(
            (bytes(17.0), bytes(999_600.0), bytes(110_000.0)),
            ("17 B".into(), "1.00 MB".into(), "110 KB".into())
        );
        assert_eq!((count(7), count(1_234_567)), ("7".into(), "1 234 567".into()));
        assert_eq!(time(Duration::from_micros(850)), "850 µs");
        assert_eq!(time(Duration::from_micros(1_200)), "1.20 ms");
        assert_eq!(
            (binary(256 << 20), binary(512), binary(64 << 30)),
            ("256 MiB".into(), "512 B".into(), "64 GiB".into())
        );
    }

    #[test]
    fn nothing_that_is_printed_controls_a_terminal() {
        let hostile = "a\u{1b}[31m\u{7}\u{9b}2J\u{202e}\u{7f}\r\tb\nc";
        assert_eq!(printable(hostile), "a\\u001b[31m\\u0007\\u009b2J\\u202e\\u007f\\u000d\tb\nc");
        assert_eq!(one_line("a\n\tb"), "a\\u000a\\u0009b");
        assert!(matches!(printable("häß 🦀\n"), Cow::Borrowed(_)));
        let text = serde_json::to_string(hostile).unwrap();
        assert_eq!(serde_json::from_str::<String>(&printable(&text)).unwrap(), hostile, "JSON stays what it says");
    }
}

//! Sizes and times as humans write and read them.

use std::time::Duration;
use uringload::config::split_unit;

pub use uringload::config::parse_bytes;

/// Like `parse_bytes`, for a length in memory.
pub fn parse_len(text: &str) -> Result<usize, String> {
    usize::try_from(parse_bytes(text)?).map_err(|_| "it is too large".into())
}

/// A gap between samples: "auto" is the library's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap(pub Option<u64>);

/// Like `parse_bytes`, or "auto".
pub fn parse_gap(text: &str) -> Result<Gap, String> {
    if text == "auto" { Ok(Gap(None)) } else { parse_bytes(text).map(|bytes| Gap(Some(bytes))) }
}

/// A time from "10", "10s", "1.5s", "500ms", "2m" or "1h"; seconds if no unit is given.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    parse_time(text, 1.0)
}

/// A time as `parse_seconds`, but milliseconds if no unit is given.
pub fn parse_millis(text: &str) -> Result<Duration, String> {
    parse_time(text, 1e-3)
}

fn parse_time(text: &str, bare: f64) -> Result<Duration, String> {
    let (number, unit) = split_unit(text)?;
    let scale = match unit {
        "" => bare,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is no unit of time: use us, ms, s, m or h")),
    };
    let seconds = number.parse::<f64>().map_err(|error| error.to_string())? * scale;
    // A century is longer than any run, and far below where an Instant overflows.
    if !(seconds > 0.0 && seconds < 3.2e9) {
        return Err("it must be more than nothing and less than a century".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_all_spellings() {
        assert_eq!(parse_seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_seconds("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_millis("0.35"), Ok(Duration::from_micros(350)));
        assert_eq!(parse_millis("45ms"), Ok(Duration::from_millis(45)));
        for text in ["", "0", "-3", "1 fortnight", "inf", "nan", "1e99", "99999999999999"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

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
}

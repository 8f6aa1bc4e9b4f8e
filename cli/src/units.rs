//! Sizes and times as people write them.

use std::time::Duration;
use uringload::config::split_unit;

pub use uringload::config::parse_bytes;

/// Like `parse_bytes`, for a length in memory.
pub fn parse_len(text: &str) -> Result<usize, String> {
    usize::try_from(parse_bytes(text)?).map_err(|_| "it is too large".into())
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
}

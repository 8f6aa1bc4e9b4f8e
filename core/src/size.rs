//! Sizes in bytes as people write them.

/// Bytes from "4096", "512KiB", "8 GB": decimal and binary units, with a fraction if the result is whole. A bare `k`,
/// `m`, `g` or `t` is binary.
///
/// # Errors
/// What is wrong with the text, as a clause.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000_u64.pow(2),
        "gb" => 1000_u64.pow(3),
        "tb" => 1000_u64.pow(4),
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(format!("{unit:?} is no unit of size: use B, KB, KiB, MB, MiB, GB, GiB, TB or TiB")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| "it is too large".into());
    }
    let bytes = number.parse::<f64>().map_err(|error| error.to_string())? * scale as f64;
    if bytes.fract() != 0.0 || !(0.0..9e15).contains(&bytes) {
        return Err("it is no whole number of bytes".into());
    }
    Ok(bytes as u64)
}

/// A number and the unit after it: "1.5 KiB" as "1.5" and "KiB".
///
/// # Errors
/// Where the text does not begin with a number.
pub fn split_unit(text: &str) -> Result<(&str, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() || number.contains('_') {
        return Err("it must start with a number".into());
    }
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_all_spellings() {
        for (text, bytes) in [
            ("0", 0),
            ("150528", 150_528),
            ("512MiB", 512 << 20),
            ("8GB", 8_000_000_000),
            (" 1.5 KiB ", 1536),
            ("4k", 4096),
            ("2TB", 2_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "x", "-1", "1.5", "0.3KB7", "8 GBit", "1e3", "99999999999999999999", "16777216TiB", "1_000", "."]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}

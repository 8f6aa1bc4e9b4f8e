//! Options of `compare`.

use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// Options of `compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// What to compare with: a file that `bench --json` wrote.
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    pub first: PathBuf,
    /// What is compared with it.
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    pub second: PathBuf,
    /// Exit with 1 if B gives fewer samples per second by more than this share of A's ("5%"). Where both have several
    /// rounds, a loss that may be chance does not count.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub fail_below: Option<f64>,
    /// How to print it.
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub output: TableForm,
}

/// How a table is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableForm {
    /// Aligned columns.
    Text,
    /// A table of Markdown, for a comment on a pull request.
    Markdown,
    /// Comma-separated values.
    Csv,
    /// All that was computed.
    Json,
}

/// "5%" or "0.05", of 1 at most.
fn parse_share(text: &str) -> Result<f64, String> {
    let wanted = || format!("{text:?} is no share: write 5% or 0.05");
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wanted());
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(wanted()) }
}

#[cfg(test)]
mod tests {
    use super::parse_share;

    #[test]
    fn shares_are_percent_or_parts_of_one() {
        assert_eq!((parse_share("5%"), parse_share("0.05"), parse_share("0")), (Ok(0.05), Ok(0.05), Ok(0.0)));
        for wrong in ["", "%", "5", "-1%", "200%", "NaN", "inf", "five"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
    }
}

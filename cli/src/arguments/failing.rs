//! Options for samples that cannot be read.

use super::help;
use crate::units::parse_seconds;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use uringload::config::Config;
use uringload::config::{MaxFailures, OnError};

/// What to do about samples that fail.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Errors")]
pub struct Failing {
    #[arg(long, default_value = "raise", help = help("on_error", ""))]
    pub on_error: OnErrorName,
    #[arg(long, value_name = "N|SHARE", value_parser = parse_max_failures, help = help("max_failures", "no limit"))]
    pub max_failures: Option<MaxFailures>,
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help = help("quarantine", ""))]
    pub quarantine: Option<PathBuf>,
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help = help("timeout", "wait"))]
    pub timeout: Option<Duration>,
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "300",
          help = help("outage_timeout", ""))]
    pub outage_timeout: Duration,
}

impl Failing {
    /// What to do with a sample that cannot be read.
    pub fn on_error(&self) -> OnError {
        match self.on_error {
            OnErrorName::Raise => OnError::Raise,
            OnErrorName::Warn => OnError::Warn,
            OnErrorName::Skip => OnError::Skip,
            OnErrorName::Replace => OnError::Replace,
        }
    }

    /// Applies the arguments to a configuration.
    pub fn apply(&self, config: &mut Config) {
        config.on_error = self.on_error();
        config.max_failures = self.max_failures;
        config.quarantine = self.quarantine.clone();
        config.timeout = self.timeout;
        config.outage_timeout = Some(self.outage_timeout);
    }
}

/// Names of the ways to treat a bad sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnErrorName {
    /// End the command.
    Raise,
    /// Leave it out, count it, and name it on stderr.
    Warn,
    /// Leave it out and count it.
    Skip,
    /// Put another sample in its place.
    Replace,
}

/// "100" is a count; "0.5%" and "0.005" are shares.
fn parse_max_failures(text: &str) -> Result<MaxFailures, String> {
    if let Ok(count) = text.parse::<u64>() {
        return Ok(MaxFailures::Count(count));
    }
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>().map(|number| number / scale) {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(MaxFailures::Fraction(share)),
        Ok(_) => Err("a share is between 0 and 1, or 0% and 100%".into()),
        Err(_) => Err("it must be a number of samples, or a share such as 0.1%".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_shares_are_told_apart() {
        assert_eq!(parse_max_failures("100"), Ok(MaxFailures::Count(100)));
        assert_eq!(parse_max_failures("0"), Ok(MaxFailures::Count(0)));
        assert_eq!(parse_max_failures("0.25"), Ok(MaxFailures::Fraction(0.25)));
        assert_eq!(parse_max_failures("50%"), Ok(MaxFailures::Fraction(0.5)));
        for wrong in ["-1", "1.5", "120%", "nan", "many", ""] {
            assert!(parse_max_failures(wrong).is_err(), "{wrong}");
        }
    }
}

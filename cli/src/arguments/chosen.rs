//! Options for which samples are read, and in what proportions.

use clap::{Args, ValueHint};
use std::path::PathBuf;
use uringload::config::Shuffle;
use uringload::inspect::SHARD_SAMPLES;
use uringload::sampler::Stopping;

/// Which samples are read, and in what shares.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Choice")]
pub struct Chosen {
    /// Mix the DIRs as separate datasets in these shares: one number for each.
    #[arg(long, value_name = "W,W,..", value_delimiter = ',')]
    pub weights: Vec<f64>,
    /// When an epoch of a mixture ends: first_exhausted, all_exhausted, all_exhausted_without_replacement or after:N.
    #[arg(long, value_name = "NAME", requires = "weights", default_value_t = Stopping::default(),
          value_parser = |name: &str| name.parse::<Stopping>().map_err(|error| error.to_string()))]
    pub stopping: Stopping,
    /// Leave out the samples in this list: a quarantine file, or numbers, one per line. May be given several times.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "weights")]
    pub exclude: Vec<PathBuf>,
    /// Read only the samples in this list: numbers, one per line, or a quarantine file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["exclude", "weights"])]
    pub only: Option<PathBuf>,
}

impl Chosen {
    /// Whether a sample may occur more than once per epoch.
    pub fn repeats(&self) -> bool {
        !self.weights.is_empty() && matches!(self.stopping, Stopping::AllExhausted | Stopping::After(_))
    }
}

/// "auto", "full", "window:N", "shards" (one at a time), "shards:N" (N mixed) or "pieces:SAMPLES:N" (N mixed).
pub fn parse_shuffle(text: &str) -> Result<Shuffle, String> {
    let number = |text: &str| match text.parse::<u64>() {
        Ok(0) | Err(_) => Err(format!("{text:?} is no number from 1 on")),
        Ok(number) => Ok(number),
    };
    match text.split_once(':') {
        None if text == "auto" => Ok(Shuffle::Auto),
        None if text == "full" => Ok(Shuffle::Full),
        None if text == "window" => Ok(Shuffle::Window(SHARD_SAMPLES)),
        None if text == "shards" => Ok(Shuffle::Shards { mixed: 1 }),
        Some(("window", samples)) => number(samples).map(Shuffle::Window),
        Some(("shards", mixed)) => number(mixed).map(|mixed| Shuffle::Shards { mixed }),
        Some(("pieces", both)) if both.contains(':') => {
            let (samples, mixed) = both.split_once(':').unwrap_or_default();
            Ok(Shuffle::Pieces { samples: number(samples)?, mixed: number(mixed)? })
        }
        _ => Err("it is auto, full, window:SAMPLES, shards:MIXED or pieces:SAMPLES:MIXED".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_have_names() {
        assert_eq!(parse_shuffle("auto"), Ok(Shuffle::Auto));
        assert_eq!(parse_shuffle("full"), Ok(Shuffle::Full));
        assert_eq!(parse_shuffle("window:100"), Ok(Shuffle::Window(100)));
        assert_eq!(parse_shuffle("shards"), Ok(Shuffle::Shards { mixed: 1 }));
        assert_eq!(parse_shuffle("shards:4"), Ok(Shuffle::Shards { mixed: 4 }));
        assert_eq!(parse_shuffle("pieces:128:16"), Ok(Shuffle::Pieces { samples: 128, mixed: 16 }));
        for wrong in [
            "",
            "none",
            "pieces",
            "pieces:4",
            "pieces:0:1",
            "pieces:1:x",
            "window:0",
            "window:x",
            "shards:-1",
            "full:3",
        ] {
            assert!(parse_shuffle(wrong).is_err(), "{wrong}");
        }
    }
}

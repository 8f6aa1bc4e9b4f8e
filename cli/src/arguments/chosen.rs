//! Options for which samples are read, and in what proportions.

use clap::{Args, ValueHint};
use std::path::PathBuf;
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

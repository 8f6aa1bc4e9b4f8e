//! Arguments of `tune`.

use super::{Images, Means, Rows, Source};
use crate::units::{parse_millis, parse_seconds};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use uringload_measure::Tune as Measurement;

/// Options of `tune`.
#[derive(Debug, Args)]
pub struct Tune {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub means: Means,
    #[command(flatten)]
    pub rows: Rows,
    #[command(flatten)]
    pub images: Images,
    /// Where to write the profile; "-" writes none.
    #[arg(long, value_name = "FILE", default_value = ".uringload.toml", value_hint = ValueHint::FilePath,
          help_heading = "Measuring")]
    pub out: PathBuf,
    /// Emulate a training step of MS milliseconds after each batch: the search stops when it is fast enough for that.
    #[arg(long, value_name = "MS", value_parser = parse_millis, help_heading = "Measuring")]
    pub emulate_step: Option<Duration>,
    /// Empty the page cache before each measurement: all of it if that is permitted, else only the dataset's files.
    #[arg(long, help_heading = "Measuring")]
    pub cold: bool,
    /// The longest time to measure for.
    #[arg(long, value_name = "TIME", default_value = format!("{}s", Measurement::LIMIT.as_secs()),
          value_parser = parse_seconds, help_heading = "Measuring")]
    pub limit: Duration,
    /// Where to pack a sample of the dataset, on its device [default: beside it]; it is deleted at the end.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Measuring")]
    pub scratch: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

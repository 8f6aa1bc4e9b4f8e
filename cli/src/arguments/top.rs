//! Arguments of `top`.

use crate::units::parse_seconds;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// Options of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// The process whose loaders to show [default: all that share their statistics].
    #[arg(value_name = "PID")]
    pub pid: Option<u32>,
    /// Where loaders share their statistics.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", value_hint = ValueHint::DirPath)]
    pub at: PathBuf,
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_seconds)]
    pub every: Duration,
    /// Look once, and end.
    #[arg(long)]
    pub once: bool,
    /// Print JSON: a line for each loader, each time.
    #[arg(long)]
    pub json: bool,
}

//! Options of `show`.

use super::{Images, Source};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Options of `show`.
#[derive(Debug, Args)]
#[command(mut_arg("decode", |arg| arg.hide(true)))]
pub struct Sheet {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub images: Images,
    /// The PNG to write.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

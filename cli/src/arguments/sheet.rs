//! Options of `show`.

use super::{Chosen, Failing, Format, Images, Order};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Options of `show`.
#[derive(Debug, Args)]
#[command(mut_arg("decode", |arg| arg.hide(true)))]
pub struct Sheet {
    /// Folders, files or patterns; several make one dataset.
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub order: Order,
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub failing: Failing,
    #[command(flatten)]
    pub images: Images,
    /// The PNG to write.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
}

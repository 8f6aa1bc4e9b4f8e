//! What is read and in which order: the same options for every command that reads as training does.

use super::{Chosen, Failing, Format, Order};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// The dataset, its order, and the handling of samples that cannot be read.
#[derive(Debug, Args)]
pub struct Source {
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
}

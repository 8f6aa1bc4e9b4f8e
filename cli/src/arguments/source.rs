//! What is read and in which order: the same options for every command that reads as training does.

use super::super::data::Data;
use super::super::failure::Failure;
use super::{Chosen, Failing, Format, Order};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// The dataset, its order, and what becomes of samples that cannot be read.
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

impl Source {
    /// Opens the dataset.
    ///
    /// # Errors
    /// As [`Data::choose`].
    pub fn open(&self) -> Result<Data, Failure> {
        Data::choose(&self.paths, &self.format.under(&self.failing), &self.chosen)
    }
}

//! Options of `list-objects`.

use super::Access;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Options of `list-objects`.
#[derive(Debug, Args)]
#[command(mut_arg("split", |arg| arg.hide(true)))]
pub struct ListObjects {
    /// The URL of a folder in a store.
    #[arg(value_name = "URL", required_unless_present = "update", value_hint = ValueHint::Url)]
    pub url: Option<PathBuf>,
    /// The file to write: FILE.uls.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "update")]
    pub out: Option<PathBuf>,
    /// List the objects of this file again, write them there, and say what has changed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["url", "out"])]
    pub update: Option<PathBuf>,
    #[command(flatten)]
    pub access: Access,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

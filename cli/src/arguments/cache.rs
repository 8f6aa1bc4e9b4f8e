//! The arguments of `cache`.

use super::Format;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;
use uringload::config::DiskCache;

/// Commands about caches on a disk.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Says what the caches in a folder hold, by dataset, and what is not used any more.
    Stat(CacheFolder),
    /// Reads a dataset of objects once, so that what fits of it is in the cache before a training begins.
    Fill(CacheFill),
    /// Reads all entries from the disk, compares their checksums, and prints a line for each that is damaged.
    Verify(CacheFolder),
    /// Removes everything, one dataset, or what is not used any more; not while a loader uses the cache.
    Clear(CacheClear),
}

/// Options of `cache stat` and `cache verify`.
#[derive(Debug, Args)]
pub struct CacheFolder {
    /// The folder that loaders were given as the place of their cache.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `cache clear`.
#[derive(Debug, Args)]
pub struct CacheClear {
    #[command(flatten)]
    pub folder: CacheFolder,
    /// The dataset to remove, as `cache stat` names it [default: all].
    #[arg(value_name = "URL", value_hint = ValueHint::AnyPath)]
    pub dataset: Option<String>,
    /// Remove what is not used any more: of older versions of datasets, and what is there twice.
    #[arg(long, conflicts_with = "dataset")]
    pub stale: bool,
}

/// Options of `cache fill`.
#[derive(Debug, Args)]
pub struct CacheFill {
    /// URLs; several make one dataset.
    #[arg(value_name = "URL", required = true, value_hint = ValueHint::Url)]
    pub paths: Vec<PathBuf>,
    /// The cache, as loaders are given it.
    #[arg(long, value_name = "DIR:BYTES", required = true, value_parser = super::parse_cache_disk)]
    pub cache_disk: DiskCache,
    #[command(flatten)]
    pub format: Format,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

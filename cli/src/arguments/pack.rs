//! Options of `pack`.

use super::super::units::parse_bytes;
use super::{Failing, Format, Means, positive};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;
use uringload::config::Part;
use uringload::internal::Config;
use uringload::pack::{Keys, PackOptions};

/// Options of `pack`.
#[derive(Debug, Args)]
#[command(mut_arg("missing", |arg| arg.hide(true)))]
pub struct Pack {
    /// Folders, files or patterns; several make one dataset.
    #[arg(value_name = "SRC", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// The folder that shards go to: empty, new, or one of an earlier pack, which is gone on with.
    #[arg(value_name = "DST", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    #[command(flatten)]
    pub shards: Shards,
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub means: Means,
    #[command(flatten)]
    pub failing: Failing,
    /// Print a summary as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What shards are like.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Shards")]
pub struct Shards {
    /// Bytes of a shard at most [default: 1GB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub shard_size: Option<u64>,
    /// Samples of a shard at most [default: as many as fit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub shard_samples: Option<u64>,
    /// What names of shards begin with: PREFIX-000000.tar.
    #[arg(long, value_name = "PREFIX", default_value = "shard")]
    pub prefix: String,
    /// Values of 4096 bytes and more begin at multiples of so many bytes; 512 takes no padding.
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub align: AlignName,
    /// What samples are called.
    #[arg(long, default_value = "source")]
    pub keys: KeysName,
    /// Shards that are written at once [default: two for each processor, at most 4].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
    /// Write the shards I, I + N, I + 2 N ... only, from 0: job I of N that run at once (Ray, a SLURM array). All are
    /// given the same source, folder and options.
    #[arg(long, value_name = "I/N", conflicts_with = "overwrite")]
    pub part: Option<Part>,
    /// Replace the shards of another pack.
    #[arg(long)]
    pub overwrite: bool,
}

impl Pack {
    /// By which means the source is read, and what becomes of what cannot be had.
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        self.means.apply(&mut config);
        self.failing.apply(&mut config);
        config
    }

    /// The library's options.
    pub fn options(&self) -> PackOptions {
        let Shards { shard_size, shard_samples, prefix, align, keys, threads, part, overwrite } = &self.shards;
        let options = PackOptions::default()
            .prefix(prefix.clone())
            .align(match align {
                AlignName::Unit => 4096,
                AlignName::Block => 512,
            })
            .shard_samples(*shard_samples)
            .keys(match keys {
                KeysName::Source => Keys::Source,
                KeysName::Numbers => Keys::Numbers,
            })
            .threads(*threads)
            .part(part.unwrap_or_default())
            .overwrite(*overwrite);
        match shard_size {
            Some(bytes) => options.shard_bytes(*bytes),
            None => options,
        }
    }
}

/// Names of alignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlignName {
    /// What reads past the page cache are aligned to.
    #[value(name = "4096")]
    Unit,
    /// What everything in a tar is aligned to.
    #[value(name = "512")]
    Block,
}

/// Names of ways to call samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeysName {
    /// As their source does, where it is a folder or tar archives; by number otherwise.
    Source,
    /// By number, from 0.
    Numbers,
}

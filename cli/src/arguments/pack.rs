//! Options of `pack`.

use super::images::parse_chain;
use super::{Failing, Format, Means, positive};
use crate::launchers;
use crate::units::parse_bytes;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;
use uringload::Result;
use uringload::config::{Config, Part};
use uringload::pack::{Keys, PackImages, PackLayout, PackOptions};
use uringload::transform::Chain;

/// Options of `pack`.
#[derive(Debug, Args)]
#[command(mut_arg("missing", |arg| arg.hide(true)))]
pub struct Pack {
    /// Folders, files or patterns; several make one dataset.
    #[arg(value_name = "SRC", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// The folder for the shards: empty, new, or that of an earlier pack, which is continued. Also one of a store:
    /// s3://BUCKET/FOLDER.
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub folder: PathBuf,
    #[command(flatten)]
    pub shards: Shards,
    #[command(flatten)]
    pub images: PackedImages,
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

/// The layout of shards.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Shards")]
pub struct Shards {
    /// Maximum bytes per shard [default: 1GB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub shard_size: Option<u64>,
    /// Maximum samples per shard [default: as many as fit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub shard_samples: Option<u64>,
    /// The start of shard names: PREFIX-000000.tar.
    #[arg(long, value_name = "PREFIX", default_value = "shard")]
    pub prefix: String,
    /// What shards are: archives (tar), or samples side by side (mds). auto is mds where archives would take more than
    /// 1.3 times the bytes of the samples.
    #[arg(long, default_value = "auto")]
    pub layout: LayoutName,
    /// Start values of 4096 bytes and more at multiples of this many bytes; 512 needs no padding.
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub align: AlignName,
    /// How to name samples.
    #[arg(long, default_value = "source")]
    pub keys: KeysName,
    /// Shards to write at once [default: two per processor, at most 4].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
    /// Write only the shards I, I + N, I + 2 N ..., from 0: job I of N that run at once. auto takes both from the
    /// variables of SLURM arrays, srun, MPI, AWS Batch or Cloud Run, auto/N takes I (Kubernetes). Give all jobs the
    /// same source, folder and options.
    #[arg(long, value_name = "I/N", conflicts_with = "overwrite")]
    pub part: Option<launchers::AskedPart>,
    /// Write no shard: prove from the indexes of the shards, once all jobs have ended, that each sample is there once.
    #[arg(long, conflicts_with_all = ["part", "overwrite", "threads"])]
    pub finish: bool,
    /// Write nothing: say what there is to read and to write, and how many requests to stores that takes.
    #[arg(long, conflicts_with = "finish")]
    pub dry_run: bool,
    /// The folder that shards for a store are made in before they are sent [default: that for temporary files].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub staging: Option<PathBuf>,
    /// Replace the shards of another pack.
    #[arg(long)]
    pub overwrite: bool,
}

/// What happens to images on their way into shards.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Images")]
pub struct PackedImages {
    /// Decode images once, and store them smaller: the shorter side of larger ones becomes this many pixels long.
    #[arg(long, value_name = "PIXELS", conflicts_with = "transform")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub resize: Option<u32>,
    /// Do this to images once, such as "resize(256), center_crop(256)": no random operations.
    #[arg(long, value_name = "CHAIN", value_parser = parse_chain)]
    pub transform: Option<Chain>,
    /// The quality of the JPEGs that are stored [default: 90].
    #[arg(long, value_name = "1..100", conflicts_with = "pixels")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    pub quality: Option<u8>,
    /// Store pixels (uncompressed BMP) instead of JPEGs.
    #[arg(long)]
    pub pixels: bool,
    /// The column that has the images [default: the only one that has some in the first sample].
    #[arg(long, value_name = "NAME")]
    pub image_column: Option<String>,
}

impl PackedImages {
    /// The library's options; `None` if images stay as they are.
    fn options(&self) -> Result<Option<PackImages>> {
        let PackedImages { resize, transform, quality, pixels, image_column } = self;
        let mut images = match (resize, transform) {
            (Some(shorter), _) => PackImages::resize(*shorter),
            (None, Some(chain)) => PackImages::transform(chain.clone())?,
            (None, None) if quality.is_some() || *pixels => PackImages::transform(Chain::new())?,
            (None, None) => return Ok(None),
        };
        if let Some(quality) = quality {
            images = images.quality(*quality);
        }
        if *pixels {
            images = images.pixels();
        }
        Ok(Some(match image_column {
            Some(column) => images.column(column),
            None => images,
        }))
    }
}

impl Pack {
    /// How the source is read, and how failed samples are handled.
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        self.means.apply(&mut config);
        self.failing.apply(&mut config);
        config
    }

    /// The library's options.
    ///
    /// # Errors
    /// A chain that cannot be packed.
    pub fn options(&self) -> Result<PackOptions> {
        let Shards { shard_size, shard_samples, prefix, layout, align, keys, threads, part, overwrite, .. } =
            &self.shards;
        let options = PackOptions::default()
            .prefix(prefix.clone())
            .align(match align {
                AlignName::Unit => 4096,
                AlignName::Block => 512,
            })
            .shard_samples(*shard_samples)
            .layout(match layout {
                LayoutName::Auto => PackLayout::Auto,
                LayoutName::Tar => PackLayout::Tar,
                LayoutName::Mds => PackLayout::Mds,
            })
            .keys(match keys {
                KeysName::Source => Keys::Source,
                KeysName::Numbers => Keys::Numbers,
            })
            .threads(*threads)
            .part(part.map_or(Ok(Part::WHOLE), launchers::AskedPart::part)?)
            .overwrite(*overwrite)
            .stores(&self.format.0)
            .staging(self.shards.staging.clone().unwrap_or_else(std::env::temp_dir))
            .images(self.images.options()?);
        Ok(match shard_size {
            Some(bytes) => options.shard_bytes(*bytes),
            None => options,
        })
    }
}

/// Names of the layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutName {
    /// Mds where archives would be mostly headers, else tar.
    Auto,
    /// WebDataset archives.
    Tar,
    /// Shards of mosaicml-streaming, with an index.json.
    Mds,
}

/// Names of alignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlignName {
    /// The alignment of reads past the page cache.
    #[value(name = "4096")]
    Unit,
    /// The alignment of everything in a tar.
    #[value(name = "512")]
    Block,
}

/// Names of the ways to name samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeysName {
    /// As in the source, if it is a folder or tar archives; else by number.
    Source,
    /// By number, from 0.
    Numbers,
}

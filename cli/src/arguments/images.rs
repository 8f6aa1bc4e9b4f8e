//! Options for columns of encoded images.

use super::{help, parse_bytes};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::sync::Arc;
use uringload::config::ImageCache;
use uringload::dataset::{DType, Dataset};
use uringload::inspect::Samples;
use uringload::transform::Chain;
use uringload::{Builder, Error, ErrorKind, Result};

/// How encoded images are transformed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Images")]
pub struct Images {
    /// Decode the images, and make tensors of them: operations between commas, such as "random_resized_crop(224),
    /// hflip, normalize(imagenet)".
    #[arg(long, value_name = "CHAIN", value_parser = parse_chain)]
    pub transform: Option<Chain>,
    /// Decode the images and do nothing else.
    #[arg(long, conflicts_with = "transform")]
    pub decode: bool,
    /// The element type of the tensors [default: f32, or what the chain says].
    #[arg(long, value_name = "TYPE", requires = "transform")]
    pub image_dtype: Option<DTypeName>,
    /// The layout of the tensors [default: nchw, or what the chain says].
    #[arg(long, value_name = "LAYOUT", requires = "transform")]
    pub image_layout: Option<LayoutName>,
    #[arg(long, requires = "transform", conflicts_with = "cache_images", help = help("fast_images", ""))]
    pub fast_images: bool,
    /// Keep this many bytes of decoded images from epoch to epoch, as they are before the first random operation: in
    /// memory, or in the folder that --cache-images-dir names.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "transform")]
    pub cache_images: Option<u64>,
    /// Keep them in files below this folder, where other processes and later runs find them: they share the bytes.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "cache_images")]
    pub cache_images_dir: Option<PathBuf>,
    /// Transform a column (repeat): a chain as of --transform, or for columns that follow images "mask(jpg)",
    /// "boxes(jpg)", "labels(boxes)", for labels "mix(jpg, classes=1000, cutmix=1)", for arrays of numbers
    /// "array(random_crop(64x64), cast(bf16))", or for messages "json(label, i64)".
    #[arg(long, value_name = "COLUMN=TEXT", value_parser = parse_column, conflicts_with = "decode")]
    pub transform_column: Vec<(String, String)>,
    /// The column that has the images [default: the only one that has some in the first sample].
    #[arg(long, value_name = "NAME")]
    pub image_column: Option<String>,
}

/// Element types of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DTypeName {
    /// 0 to 255, not normalized.
    U8,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
}

/// Layouts of a batch of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutName {
    /// Samples, channels, rows, columns.
    Nchw,
    /// Samples, rows, columns, channels.
    Nhwc,
}

impl Images {
    /// Whether images are decoded.
    pub fn is_any(&self) -> bool {
        self.decode || self.transform.is_some() || !self.transform_column.is_empty()
    }

    /// The chain, with type and layout.
    pub fn chain(&self) -> Result<Option<Chain>> {
        let Some(chain) = self.transform.clone() else { return Ok(None) };
        let chain = match self.image_dtype {
            None => chain,
            Some(DTypeName::U8) => chain.dtype(DType::U8)?,
            Some(DTypeName::F16) => chain.dtype(DType::F16)?,
            Some(DTypeName::Bf16) => chain.dtype(DType::BF16)?,
            Some(DTypeName::F32) => chain.dtype(DType::F32)?,
        };
        Ok(Some(match self.image_layout {
            None => chain,
            Some(layout) => chain.channels_last(layout == LayoutName::Nhwc),
        }))
    }

    /// The column that has the images.
    pub fn column(&self, dataset: &Arc<dyn Dataset>) -> Result<String> {
        if let Some(column) = &self.image_column {
            return Ok(column.clone());
        }
        let named = |error: Error| match error.kind() {
            ErrorKind::InvalidArgument => error.with_remedy("name the column of the images with --image-column"),
            _ => error,
        };
        Samples::new(Arc::clone(dataset))?.image_column().map_err(named)
    }

    /// Applies that to images of `dataset`.
    pub fn apply(&self, builder: Builder, dataset: &Arc<dyn Dataset>) -> Result<Builder> {
        let builder = self.of_image_column(builder, dataset)?;
        self.transform_column.iter().try_fold(builder, |builder, (column, text)| builder.transform_by(column, text))
    }

    fn of_image_column(&self, builder: Builder, dataset: &Arc<dyn Dataset>) -> Result<Builder> {
        if !self.decode && self.transform.is_none() {
            return Ok(builder);
        }
        let column = self.column(dataset)?;
        let cache = self.cache_images.map(|bytes| match &self.cache_images_dir {
            None => ImageCache::memory(bytes),
            Some(folder) => ImageCache::disk(folder, bytes),
        });
        Ok(match self.chain()? {
            Some(chain) => builder.transform(column, chain).cache_images(cache).fast_images(self.fast_images),
            None => builder.decode(column),
        })
    }
}

fn parse_column(text: &str) -> std::result::Result<(String, String), String> {
    let (column, steps) = text
        .split_once('=')
        .filter(|(column, _)| !column.trim().is_empty())
        .ok_or_else(|| format!("{text:?} names no column; write COLUMN=TEXT, such as png=\"mask(jpg)\""))?;
    Ok((column.trim().to_owned(), steps.trim().to_owned()))
}

pub(super) fn parse_chain(text: &str) -> std::result::Result<Chain, String> {
    text.parse().map_err(|error: Error| match error.remedy() {
        Some(remedy) => format!("{}; {remedy}", error.what()),
        None => error.what().to_owned(),
    })
}

//! Converts Python's options for a loader to the library's configuration. Python has checked types and names; the
//! library checks values.

use crate::allocator::Allocator;
use crate::errors::{invalid, raised};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;
use uringload::config::Batching;
use uringload::config::Config;
use uringload::config::{
    Buckets, Cache, Collate, Device, ImageCache, MaxFailures, PackMethod, Packing, PadValue, Padding, Profile,
};
use uringload::dataset::{DType, Dataset, Shape};
use uringload::inspect::Transform;
use uringload::transform::{Crop, Images, Tokens};
use uringload::{Builder, Error, Result};

/// The settings of a profile: the loader's argument, and its value as text.
#[pyfunction]
pub(crate) fn profile(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(&'static str, String)>> {
    Profile::load(path).map(|profile| profile.settings()).map_err(|error| raised(py, &error))
}

/// The form of columns: "auto", "views", "dense", "ragged" or "padded".
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Form {
    form: String,
    value: i64,
    max_length: Option<u64>,
    multiple_of: u64,
}

/// Sequences packed into rows.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Packed {
    method: String,
    seq_len: u64,
    window: u64,
    value: i64,
}

/// Samples grouped by length.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Bucketed {
    boundaries: Vec<u64>,
    batch_sizes: Vec<u64>,
    window: u64,
}

/// A number of samples, or a fraction of them.
#[derive(Clone, Debug, FromPyObject)]
pub(crate) enum Failures {
    Count(u64),
    Fraction(f64),
}

impl Failures {
    pub(crate) fn limit(&self) -> MaxFailures {
        match self {
            Failures::Count(count) => MaxFailures::Count(*count),
            Failures::Fraction(share) => MaxFailures::Fraction(*share),
        }
    }
}

/// How a column is transformed.
#[derive(Clone, Debug, FromPyObject)]
pub(crate) enum Transformed {
    #[pyo3(transparent)]
    Images(ImageOptions),
    #[pyo3(transparent)]
    Tokens(TokenOptions),
}

/// `uringload.Images`.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ImageOptions {
    size: Option<(u32, u32)>,
    crop: String,
    scale: (f32, f32),
    ratio: (f32, f32),
    flip: f32,
    mean: Vec<f32>,
    std: Vec<f32>,
    dtype: String,
    channels_last: bool,
}

/// `uringload.Tokens`.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TokenOptions {
    labels: bool,
    pad_id: i64,
    ignore_index: i64,
    seq_len: Option<u64>,
}

/// All options of a loader. In Python, a dictionary with exactly these keys.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    batch_size: u64,
    shuffle: String,
    seed: u64,
    rank: u64,
    world_size: u64,
    drop_last: bool,
    engine: String,
    io: String,
    queue_depth: Option<usize>,
    read_size: Option<usize>,
    io_threads: Option<usize>,
    num_threads: Option<usize>,
    memory_limit: Option<u64>,
    coalesce_gap: Option<u64>,
    cache: Option<String>,
    /// The folder in which others find the loader's statistics.
    share_stats: Option<PathBuf>,
    cache_images: Option<u64>,
    cache_images_dir: Option<PathBuf>,
    fast_images: bool,
    orient: bool,
    on_error: String,
    max_failures: Option<Failures>,
    quarantine: Option<PathBuf>,
    timeout: Option<f64>,
    outage_timeout: Option<f64>,
    starved_after: f64,
    /// The file that tells what threads do when.
    trace: Option<PathBuf>,
    collate: Form,
    collate_columns: Vec<(String, Form)>,
    packing: Option<Packed>,
    buckets: Option<Bucketed>,
    key: bool,
    index: bool,
    devices: Vec<String>,
    /// The GPU for which batches on the host are pinned.
    pin: Option<String>,
    device_memory: Option<u64>,
    /// Where the devices' memory comes from, if not from the driver.
    device_allocator: Option<Allocator>,
    cuda_library: Option<PathBuf>,
    /// The share of the JPEGs that the GPUs decode.
    nvjpeg: f64,
    /// Where to look for nvJPEG beside where the system does.
    nvjpeg_places: Vec<PathBuf>,
    transforms: Vec<(String, Transformed)>,
    /// What is done to encoded images, by column.
    chains: Vec<(String, String)>,
    /// Columns of images on which something works behind the chains, what that is, and whether it may move pixels.
    apart: Vec<(String, String, bool)>,
}

impl Options {
    /// Where batches should end up; if empty, where they are read.
    pub(crate) fn devices(&self) -> Result<Vec<Device>> {
        let named = |name: &String| {
            let device = self.device(name)?.nvjpeg(self.nvjpeg).nvjpeg_places(self.nvjpeg_places.clone());
            let device = match self.device_memory {
                Some(bytes) => device.memory_limit(bytes),
                None => device,
            };
            Ok(match &self.device_allocator {
                Some(allocator) => device.allocator(allocator.shared()),
                None => device,
            })
        };
        self.devices.iter().map(named).collect()
    }

    /// The GPU for which batches on the host should be pinned.
    pub(crate) fn pin(&self) -> Result<Option<Device>> {
        self.pin.as_ref().map(|name| self.device(name)).transpose()
    }

    fn device(&self, name: &str) -> Result<Device> {
        let device: Device = name.parse().map_err(|error| invalid(error, "give a device such as \"cuda:0\""))?;
        Ok(match &self.cuda_library {
            Some(library) => device.library(library),
            None => device,
        })
    }

    /// How columns are transformed.
    pub(crate) fn transforms(&self) -> Result<Vec<(String, Transform)>> {
        self.transforms.iter().map(|(name, options)| Ok((name.clone(), options.transform()?))).collect()
    }

    /// What is done to encoded images, and to what follows them, by column, as text.
    pub(crate) fn chains(&self) -> &[(String, String)] {
        &self.chains
    }

    /// Refuses columns that belong to images on which something works behind the chains.
    pub(crate) fn check_apart(&self, builder: &Builder) -> Result<()> {
        for (images, step, moves) in &self.apart {
            let (mixed, followed) = builder.belonging(images);
            let (column, does) = match (mixed, followed) {
                (Some(labels), _) => (labels, "mixes"),
                (None, Some(column)) if *moves => (column, "follows"),
                _ => continue,
            };
            let what = format!(
                "column {column:?} {does} the images of {images:?}, and {step} works on these behind that, where \
                 nothing goes along with them"
            );
            return Err(invalid(
                what,
                "write the steps as a chain or leave that one out, or give images and what belongs to them to one \
                 function: transform= or batch_transform=",
            ));
        }
        Ok(())
    }

    /// The library's configuration for `dataset`, for an endless run of epochs. `views` names columns whose values do
    /// not become tensors.
    pub(crate) fn config(&self, dataset: &dyn Dataset, views: &[String]) -> Result<Config> {
        let mut config = Config {
            batch_size: self.batch_size,
            batching: self.batching()?,
            epochs: None,
            shuffle: self.shuffle.parse()?,
            seed: self.seed,
            rank: self.rank,
            world_size: self.world_size,
            drop_last: self.drop_last,
            engine: self.engine.parse()?,
            io: self.io.parse()?,
            queue_depth: self.queue_depth,
            read_size: self.read_size,
            io_threads: self.io_threads,
            num_threads: self.num_threads,
            memory_limit: self.memory_limit,
            coalesce_gap: self.coalesce_gap,
            cache: self.cache.as_ref().map_or(Cache::Off, |_| Cache::Memory),
            share_stats: self.share_stats.clone(),
            cache_images: self.cache_images.map(|bytes| match &self.cache_images_dir {
                None => ImageCache::memory(bytes),
                Some(folder) => ImageCache::disk(folder, bytes),
            }),
            fast_images: self.fast_images,
            orient: self.orient,
            on_error: self.on_error.parse()?,
            max_failures: self.max_failures.as_ref().map(Failures::limit),
            quarantine: self.quarantine.clone(),
            timeout: self.timeout.map(|timeout| seconds("timeout", timeout)).transpose()?,
            outage_timeout: self.outage_timeout.map(|timeout| seconds("outage_timeout", timeout)).transpose()?,
            starved_after: seconds("starved_after", self.starved_after)?,
            trace: self.trace.clone(),
            collate: self.collate.collate()?,
            key: self.key,
            index: self.index,
            ..Config::default()
        };
        for (name, form) in &self.collate_columns {
            config.collate_columns.push((name.clone(), form.collate()?));
        }
        if self.collate.form == "auto" {
            self.stack(dataset, &mut config);
        }
        if !self.devices.is_empty() {
            // Without this, columns that go to a device become tensors, even columns of text.
            for field in dataset.schema().fields.iter().filter(|field| views.contains(&field.name)) {
                if !config.collate_columns.iter().any(|(name, _)| *name == field.name) {
                    config.collate_columns.push((field.name.clone(), Collate::Views));
                }
            }
        }
        Ok(config)
    }

    /// Makes columns of one shape tensors, even if that takes a copy: a list of numbers is of no use to a trainer.
    fn stack(&self, dataset: &dyn Dataset, config: &mut Config) {
        for field in &dataset.schema().fields {
            // A transform has a form of its own.
            let is_named = self.collate_columns.iter().any(|(name, _)| *name == field.name)
                || self.transforms.iter().any(|(name, _)| *name == field.name)
                || self.chains.iter().any(|(name, _)| *name == field.name);
            if matches!(field.shape, Shape::Fixed(_)) && !is_named {
                config.collate_columns.push((field.name.clone(), Collate::Dense));
            }
        }
    }

    fn batching(&self) -> Result<Batching> {
        if let Some(Packed { method, seq_len, window, value }) = &self.packing {
            let method = match method.as_str() {
                "first_fit" => PackMethod::FirstFit,
                "best_fit" => PackMethod::BestFit,
                "concat" => PackMethod::Concat,
                _ => return Err(unknown("packing", method, "first_fit, best_fit, concat")),
            };
            let pad = PadValue::Int(*value);
            return Ok(Batching::Packed(Packing::new(*seq_len).method(method).window(*window).pad(pad)));
        }
        Ok(self.buckets.clone().map_or(Batching::Samples, |Bucketed { boundaries, batch_sizes, window }| {
            Batching::Buckets(Buckets::new(boundaries, batch_sizes).window(window))
        }))
    }
}

impl Transformed {
    fn transform(&self) -> Result<Transform> {
        Ok(match self {
            Transformed::Images(options) => Images::default()
                .size(options.size)
                .crop(match options.crop.as_str() {
                    "none" => Crop::None,
                    "center" => Crop::Center,
                    "random" => Crop::Random,
                    "resized" => Crop::RandomResized { scale: options.scale, ratio: options.ratio },
                    other => return Err(unknown("crop", other, "none, center, random, resized")),
                })
                .flip(options.flip)
                .mean(options.mean.clone())
                .std(options.std.clone())
                .dtype(
                    DType::named(&options.dtype)
                        .ok_or_else(|| unknown("dtype", &options.dtype, "f32, f16, bf16, u8"))?,
                )
                .channels_last(options.channels_last)
                .into(),
            Transformed::Tokens(options) => {
                let TokenOptions { labels, pad_id, ignore_index, seq_len } = *options;
                Tokens::default().labels(labels).pad_id(pad_id).ignore_index(ignore_index).seq_len(seq_len).into()
            }
        })
    }
}

impl Form {
    fn collate(&self) -> Result<Collate> {
        Ok(match self.form.as_str() {
            "auto" => Collate::Auto,
            "views" => Collate::Views,
            "dense" => Collate::Dense,
            "ragged" => Collate::Ragged,
            "padded" => Collate::Padded(
                Padding::default()
                    .value(PadValue::Int(self.value))
                    .max_length(self.max_length)
                    .multiple_of(self.multiple_of),
            ),
            other => return Err(unknown("collate", other, "auto, views, dense, ragged, padded")),
        })
    }
}

pub(crate) fn seconds(argument: &str, seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| invalid(format!("{argument} cannot be {seconds} seconds: {error}"), "give a number above 0"))
}

fn unknown(argument: &str, given: &str, known: &str) -> Error {
    Error::new(uringload::ErrorKind::InvalidArgument, format!("{argument} cannot be {given:?}"))
        .with_remedy(format!("give one of {known}"))
}

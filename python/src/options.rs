//! Converts Python's options for a loader to the library's configuration. Python has checked types and names; the
//! library checks values. What its table of settings has is set by name.

use crate::allocator::Allocator;
use crate::errors::{invalid, raised};
use pyo3::prelude::*;
use std::path::PathBuf;
use uringload::config::{
    Batching, Buckets, Collate, Config, Device, ImageCache, PackMethod, Packing, PadValue, Padding, Profile, Setting,
    Value,
};
use uringload::dataset::{DType, Dataset};
use uringload::transform::OnDevice;
use uringload::transform::{Crop, Images, Tokens};
use uringload::{Builder, Error, Result};

/// The value of a setting, by its Python type.
#[derive(Clone, Debug, FromPyObject, IntoPyObject)]
pub(crate) enum Given {
    Flag(bool),
    Whole(u64),
    Real(f64),
    Text(String),
    Path(PathBuf),
}

impl From<Given> for Value {
    fn from(given: Given) -> Value {
        match given {
            Given::Flag(flag) => flag.into(),
            Given::Whole(number) => number.into(),
            Given::Real(number) => number.into(),
            Given::Text(text) => Value::Text(text),
            Given::Path(path) => Value::Path(path),
        }
    }
}

/// The value as Python has it; None is null.
fn shown(value: Value) -> Option<Given> {
    Some(match value {
        Value::Flag(flag) => Given::Flag(flag),
        Value::Whole(number) => Given::Whole(number),
        Value::Real(number) => Given::Real(number),
        Value::Text(text) => Given::Text(text),
        Value::Path(path) => Given::Path(path),
        _ => return None,
    })
}

/// A value that Python gives; None is null.
pub(crate) fn value(given: Option<Given>) -> Value {
    given.map_or(Value::Null, Value::from)
}

/// The table of settings: of each its name, what it takes, whether that may be None, and its default.
#[pyfunction]
pub(crate) fn settings() -> Vec<(&'static str, String, bool, Option<Given>)> {
    let row = |setting: &Setting| {
        let kind = format!("{:?}", setting.kind).to_lowercase();
        let takes_none = Config::default().set(setting.name, &Value::Null).is_ok();
        (setting.name, kind, takes_none, shown(setting.default()))
    };
    Builder::settings().iter().map(row).collect()
}

/// Raises the error of a setting that cannot have its value.
#[pyfunction]
pub(crate) fn check_settings(_settings: Settings) {}

/// A size in bytes: a number, or text such as "8GiB".
#[pyfunction]
pub(crate) fn size(py: Python<'_>, name: &str, given: Given) -> PyResult<u64> {
    Value::from(given).bytes(name).map_err(|error| raised(py, &error))
}

/// The settings of a profile.
#[pyfunction]
pub(crate) fn profile(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(&'static str, Option<Given>)>> {
    let profile = Profile::load(path).map_err(|error| raised(py, &error))?;
    let mut config = Config::default();
    profile.fill(&mut config);
    let names = profile.settings().into_iter().map(|(name, _)| name);
    Ok(names.map(|name| (name, config.get(name).and_then(shown))).collect())
}

/// The settings of the table that a dictionary has, by their names.
#[derive(Clone, Debug)]
pub(crate) struct Settings(pub(crate) Config);

impl<'py> FromPyObject<'_, 'py> for Settings {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Settings> {
        let mut config = Config::default();
        for Setting { name, .. } in Builder::settings() {
            if given.contains(name)? {
                let value = value(given.get_item(name)?.extract()?);
                config.set(name, &value).map_err(|error| raised(given.py(), &error))?;
            }
        }
        Ok(Settings(config))
    }
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

/// All options of a loader. In Python, a dictionary with the keys of both.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    settings: Settings,
    beside: Beside,
}

impl<'py> FromPyObject<'_, 'py> for Options {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Options> {
        Ok(Options { settings: given.extract()?, beside: given.extract()? })
    }
}

/// What no setting of the table says: objects, and what several keys say together.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
struct Beside {
    /// The folder in which others find the loader's statistics.
    share_stats: Option<PathBuf>,
    cache_images: Option<u64>,
    cache_images_dir: Option<PathBuf>,
    collate: Form,
    collate_columns: Vec<(String, Form)>,
    packing: Option<Packed>,
    buckets: Option<Bucketed>,
    devices: Vec<String>,
    /// The GPU for which batches on the host are pinned.
    pin: Option<String>,
    device_memory: Option<u64>,
    /// Where the devices' memory comes from, if not from the driver.
    device_allocator: Option<Allocator>,
    cuda_library: Option<PathBuf>,
    /// Whether files are read straight into a GPU's memory.
    gds: String,
    /// The share of the JPEGs that the GPUs decode.
    nvjpeg: f64,
    /// Where to look for nvJPEG in addition to the system's places.
    nvjpeg_places: Vec<PathBuf>,
    transforms: Vec<(String, Transformed)>,
    /// The transforms of encoded images, by column.
    chains: Vec<(String, String)>,
    /// Columns of images that another step processes after the chains, which step that is, and whether it may move
    /// pixels.
    apart: Vec<(String, String, bool)>,
}

impl Options {
    /// Where batches should end up; if empty, where they are read.
    pub(crate) fn devices(&self) -> Result<Vec<Device>> {
        let named = |name: &String| {
            let gds = self.beside.gds.parse().map_err(|_| unknown("gds", &self.beside.gds, "auto, on, off"))?;
            let device =
                self.device(name)?.gds(gds).nvjpeg(self.beside.nvjpeg).nvjpeg_places(self.beside.nvjpeg_places.clone());
            let device = match self.beside.device_memory {
                Some(bytes) => device.memory_limit(bytes),
                None => device,
            };
            Ok(match &self.beside.device_allocator {
                Some(allocator) => device.allocator(allocator.shared()),
                None => device,
            })
        };
        self.beside.devices.iter().map(named).collect()
    }

    /// The GPU for which batches on the host should be pinned.
    pub(crate) fn pin(&self) -> Result<Option<Device>> {
        self.beside.pin.as_ref().map(|name| self.device(name)).transpose()
    }

    fn device(&self, name: &str) -> Result<Device> {
        let device: Device = name.parse().map_err(|error| invalid(error, "give a device such as \"cuda:0\""))?;
        Ok(match &self.beside.cuda_library {
            Some(library) => device.library(library),
            None => device,
        })
    }

    /// How columns are transformed.
    pub(crate) fn transforms(&self) -> Result<Vec<(String, OnDevice)>> {
        self.beside.transforms.iter().map(|(name, options)| Ok((name.clone(), options.transform()?))).collect()
    }

    /// The transforms of encoded images, and of the columns that follow them, by column, as text.
    pub(crate) fn chains(&self) -> &[(String, String)] {
        &self.beside.chains
    }

    /// Refuses columns that belong to images that another step processes after the chains.
    pub(crate) fn check_apart(&self, builder: &Builder) -> Result<()> {
        for (images, step, moves) in &self.beside.apart {
            let (mixed, followed) = builder.belonging(images);
            let (column, does) = match (mixed, followed) {
                (Some(labels), _) => (labels, "mixes"),
                (None, Some(column)) if *moves => (column, "follows"),
                _ => continue,
            };
            let what = format!(
                "column {column:?} {does} the images of {images:?}, and {step} works on these after that, where \
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
        let mut config = Config { epochs: None, batching: self.batching()?, ..self.settings.0.clone() };
        config.share_stats.clone_from(&self.beside.share_stats);
        config.cache_images = self.beside.cache_images.map(|bytes| match &self.beside.cache_images_dir {
            None => ImageCache::memory(bytes),
            Some(folder) => ImageCache::disk(folder, bytes),
        });
        config.collate = self.beside.collate.collate()?;
        for (name, form) in &self.beside.collate_columns {
            config.collate_columns.push((name.clone(), form.collate()?));
        }
        // What was asked for as bytes or text becomes no tensor, neither on a device nor where values have one length.
        if self.beside.collate.form == "auto" || !self.beside.devices.is_empty() {
            let has_form = |name: &String| {
                let Beside { collate_columns, transforms, chains, .. } = &self.beside;
                collate_columns.iter().any(|(other, _)| other == name)
                    || transforms.iter().any(|(other, _)| other == name)
                    || chains.iter().any(|(other, _)| other == name)
            };
            let fields = dataset.schema().fields.iter().map(|field| &field.name);
            for name in fields.filter(|name| views.contains(name) && !has_form(name)) {
                config.collate_columns.push((name.clone(), Collate::Views));
            }
        }
        Ok(config)
    }

    fn batching(&self) -> Result<Batching> {
        if let Some(Packed { method, seq_len, window, value }) = &self.beside.packing {
            let method = match method.as_str() {
                "first_fit" => PackMethod::FirstFit,
                "best_fit" => PackMethod::BestFit,
                "concat" => PackMethod::Concat,
                _ => return Err(unknown("packing", method, "first_fit, best_fit, concat")),
            };
            let pad = PadValue::Int(*value);
            return Ok(Batching::Packed(Packing::new(*seq_len).method(method).window(*window).pad(pad)));
        }
        Ok(self.beside.buckets.clone().map_or(Batching::Samples, |Bucketed { boundaries, batch_sizes, window }| {
            Batching::Buckets(Buckets::new(boundaries, batch_sizes).window(window))
        }))
    }
}

impl Transformed {
    fn transform(&self) -> Result<OnDevice> {
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

fn unknown(argument: &str, given: &str, known: &str) -> Error {
    Error::new(uringload::ErrorKind::InvalidArgument, format!("{argument} cannot be {given:?}"))
        .with_remedy(format!("give one of {known}"))
}

//! Options as JSON, by the names of the command line: `{"batch_size": 64, "shuffle": "window:4096"}`.

use crate::choice::{Choice, Only, ul_dataset};
use crate::invalid;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use uringload::config::{
    self, Buckets, Collate, Device, Gds, ImageCache, PackMethod, Packing, PadValue, Padding, Profile,
};
use uringload::config::{Config, WINDOW_SAMPLES};
use uringload::dataset::{DType, Dataset, OptionValue, Options};
use uringload::inspect::Samples;
use uringload::transform::Chain;
use uringload::{Builder, Error, ErrorKind, Loader, ReaderOptions, Result};

/// The folder for `share_stats: true`, as on the command line.
const SHARED_MEMORY: &str = "/dev/shm";

/// The options of a loader beside its settings: objects, and what several of them say together.
const BESIDE: &str = "more_epochs, share_stats, profile, collate, collate_columns, pad_value, max_length, \
    pad_multiple, packing, seq_len, bucket_boundaries, bucket_batch_sizes, row_window, transform, image_column, \
    image_dtype, image_layout, cache_images, cache_images_dir, transform_column, decode, device, device_memory, \
    cuda_library, gds, cufile_library, nvjpeg, nvjpeg_library";

/// Options that are of use with one of some others only.
const NEEDS: [(&str, &[&str]); 18] = [
    ("rank", &["world_size"]),
    ("world_size", &["rank"]),
    ("packing", &["seq_len"]),
    ("seq_len", &["packing"]),
    ("bucket_boundaries", &["bucket_batch_sizes"]),
    ("bucket_batch_sizes", &["bucket_boundaries"]),
    ("row_window", &["packing", "bucket_boundaries"]),
    ("image_dtype", &["transform"]),
    ("image_layout", &["transform"]),
    ("fast_images", &["transform"]),
    ("cache_images", &["transform"]),
    ("cache_images_dir", &["cache_images"]),
    ("device_memory", &["device"]),
    ("cuda_library", &["device"]),
    ("gds", &["device"]),
    ("cufile_library", &["device"]),
    ("nvjpeg", &["device"]),
    ("nvjpeg_library", &["device"]),
];

/// A loader as the options have it.
pub(crate) struct Asked {
    pub(crate) builder: Builder,
    /// Where its batches go; if empty, they stay where they are read.
    pub(crate) devices: Vec<Device>,
}

fn object(json: Option<&str>) -> Result<Map<String, Value>> {
    let Some(json) = json.filter(|json| !json.trim().is_empty()) else { return Ok(Map::new()) };
    let wrong =
        |why: String| invalid(format!("the options are no JSON object: {why}"), r#"such as {"batch_size": 64}"#);
    match serde_json::from_str(json).map_err(|error| wrong(error.to_string()))? {
        Value::Object(object) => Ok(object),
        other => Err(wrong(format!("they are {other}"))),
    }
}

/// A value of a dataset's or a loader's option.
struct Given<'a>(&'a str, Value);

impl Given<'_> {
    fn wrong(&self, wanted: &str) -> Error {
        let Given(name, value) = self;
        Error::new(ErrorKind::InvalidArgument, format!("{name} cannot be {value}"))
            .with_remedy(format!("give {wanted}"))
    }

    /// As a setting of the loader has it.
    fn value(&self) -> Result<config::Value> {
        Ok(match &self.1 {
            Value::Null => config::Value::Null,
            Value::Bool(flag) => (*flag).into(),
            Value::String(text) => text.as_str().into(),
            Value::Number(number) => match number.as_u64() {
                Some(whole) => whole.into(),
                None => number.as_f64().unwrap_or(f64::NAN).into(),
            },
            _ => return Err(self.wrong("a number, a text, true, false or null")),
        })
    }

    fn is_null(&self) -> bool {
        self.1.is_null()
    }

    fn flag(&self) -> Result<bool> {
        self.1.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    fn number(&self) -> Result<u64> {
        self.1.as_u64().ok_or_else(|| self.wrong("a whole number from 0 on"))
    }

    fn count(&self) -> Result<usize> {
        usize::try_from(self.number()?).map_err(|_| self.wrong("a smaller number"))
    }

    fn bytes(&self) -> Result<u64> {
        self.value()?.bytes(self.0)
    }

    fn text(&self) -> Result<&str> {
        self.1.as_str().ok_or_else(|| self.wrong("a text"))
    }

    /// A word, in whose place the command line has one with hyphens.
    fn word(&self) -> Result<String> {
        Ok(self.text()?.replace('-', "_"))
    }

    fn numbers(&self) -> Result<Vec<u64>> {
        let items = self.1.as_array().and_then(|items| items.iter().map(Value::as_u64).collect());
        items.ok_or_else(|| self.wrong("a list of whole numbers"))
    }

    /// A text, or a list of them.
    fn texts(&self) -> Result<Vec<&str>> {
        let items = match &self.1 {
            Value::Array(items) => items.iter().map(Value::as_str).collect(),
            one => one.as_str().map(|text| vec![text]),
        };
        items.ok_or_else(|| self.wrong("a text, or a list of texts"))
    }

    /// A path, or a list of them.
    fn paths(&self, wanted: &str) -> Result<Vec<PathBuf>> {
        let texts = self.texts().map_err(|_| self.wrong(wanted))?;
        Ok(texts.into_iter().map(PathBuf::from).collect())
    }

    fn shares(&self) -> Result<Vec<f64>> {
        let items = self.1.as_array().and_then(|items| items.iter().map(Value::as_f64).collect());
        items.ok_or_else(|| self.wrong("a list of numbers, one for each path"))
    }

    /// The texts of columns.
    fn by_column(&self, such_as: &'static str) -> Result<Vec<(&str, &str)>> {
        let items = self
            .1
            .as_object()
            .and_then(|columns| columns.iter().map(|(column, text)| Some((column.as_str(), text.as_str()?))).collect());
        items.ok_or_else(|| self.wrong(such_as))
    }
}

/// The options of a dataset: its format, that format's options, and which of its samples there are.
pub(crate) fn dataset(json: Option<&str>) -> Result<(Options, Choice)> {
    let (mut options, mut choice) = (Options::new(), Choice::default());
    for (name, value) in object(json)? {
        let given = Given(&name, value);
        options = match (&*name, &given.1) {
            ("only" | "exclude" | "weights" | "stopping", _) => {
                choose(&mut choice, &given)?;
                options
            }
            ("format", _) => options.format(given.text()?),
            ("threads", _) => options.threads(given.count()?),
            ("timeout", _) => given.value()?.seconds("timeout")?.into_iter().fold(options, Options::timeout),
            (_, Value::Bool(flag)) => options.set(&name, *flag),
            (_, Value::String(text)) => options.set(&name, &**text),
            (_, Value::Number(_)) => options.set(&name, given.number()?),
            (_, Value::Array(items)) => options.set(&name, list(&given, items)?),
            _ => return Err(given.wrong("a text, a number, true, false, or a list")),
        };
    }
    Ok((options, choice))
}

/// Takes one of the options that choose samples. One that is null is not given.
fn choose(choice: &mut Choice, given: &Given<'_>) -> Result<()> {
    match given.0 {
        _ if given.is_null() => {}
        "stopping" => choice.stopping = Some(given.text()?.parse()?),
        "weights" => choice.weights = Some(given.shares()?),
        "exclude" => choice.exclude = given.paths("a file that lists samples, or a list of such files")?,
        _ => {
            choice.only = Some(match given.numbers() {
                Ok(numbers) => Only::Numbers(numbers),
                Err(_) => {
                    Only::Lists(given.paths("numbers of samples, a file that lists them, or a list of such files")?)
                }
            });
        }
    }
    Ok(())
}

fn list(given: &Given<'_>, items: &[Value]) -> Result<OptionValue> {
    if let Some(numbers) = items.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>() {
        return Ok(numbers.into());
    }
    let texts = items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>();
    Ok(texts.ok_or_else(|| given.wrong("a list of texts or of numbers"))?.into())
}

/// A loader of `dataset` as the options have it.
pub(crate) fn loader(ul_dataset { dataset, mixture }: &ul_dataset, json: Option<&str>) -> Result<Asked> {
    let object = object(json)?;
    let group = Group(&object);
    group.check()?;
    let mut builder = Loader::builder(Arc::clone(dataset));
    let padding = padding(&group)?;
    for (name, value) in object.clone() {
        let given = Given(&name, value);
        builder = match &*name {
            "more_epochs" => builder.more_epochs(given.number()?),
            "share_stats" if given.1 == Value::Bool(false) => builder,
            "share_stats" if given.1 == Value::Bool(true) => builder.share_stats(SHARED_MEMORY),
            "share_stats" => builder.share_stats(given.text()?),
            "collate" => builder.collate(collate(&given, given.text()?, &padding)?),
            "collate_columns" => columns(builder, &given, &padding)?,
            // Groups of options, each of which one function reads, below.
            known if BESIDE.split(", ").any(|name| name == known) => builder,
            known if Builder::settings().iter().any(|setting| setting.name == known) => {
                builder.set(known, given.value()?)?
            }
            _ => {
                let settings: Vec<&str> = Builder::settings().iter().map(|setting| setting.name).collect();
                return Err(Error::new(ErrorKind::InvalidArgument, format!("a loader has no option {name:?}"))
                    .with_remedy(format!("its options are {}, {BESIDE}", settings.join(", "))));
            }
        };
    }
    if let Some(mixture) = mixture {
        let mut config = Config::default();
        for given in ["shuffle", "seed"].into_iter().filter_map(|name| group.get(name)) {
            config.set(given.0, &given.value()?)?;
        }
        builder = builder.sampler(mixture.sampler(config.shuffle, config.seed)?);
    }
    builder = group.rows(builder)?;
    builder = group.images(builder, dataset)?;
    if let Some(given) = group.get("profile") {
        builder = builder.profile(&Profile::load(given.text()?)?);
    }
    Ok(Asked { builder, devices: group.devices()? })
}

/// Options that are read together. One that is null is not given.
struct Group<'a>(&'a Map<String, Value>);

impl Group<'_> {
    fn get(&self, name: &'static str) -> Option<Given<'static>> {
        self.0.get(name).filter(|value| !value.is_null()).map(|value| Given(name, value.clone()))
    }

    fn flag(&self, name: &'static str) -> Result<bool> {
        self.get(name).map_or(Ok(false), |given| given.flag())
    }

    fn check(&self) -> Result<()> {
        for (name, others) in NEEDS {
            if self.get(name).is_some() && others.iter().all(|other| self.get(other).is_none()) {
                let remedy = format!("give {} too, or leave {name} out", others.join(" or "));
                let what = format!("{name} is of no use by itself");
                return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
            }
        }
        if self.get("packing").is_some() && self.get("bucket_boundaries").is_some() {
            return Err(invalid("rows are packed, or samples are bucketed", "leave out packing or bucket_boundaries"));
        }
        Ok(())
    }

    /// What a row of a batch is.
    fn rows(&self, builder: Builder) -> Result<Builder> {
        let window = self.get("row_window").map_or(Ok(WINDOW_SAMPLES), |given| given.number())?;
        if let Some((packing, seq_len)) = self.get("packing").zip(self.get("seq_len")) {
            let method = match &*packing.word()? {
                "first_fit" => PackMethod::FirstFit,
                "best_fit" => PackMethod::BestFit,
                "concat" => PackMethod::Concat,
                _ => return Err(packing.wrong("first_fit, best_fit or concat")),
            };
            let packing = Packing::new(seq_len.number()?).method(method).window(window).pad(pad_value(self)?);
            return Ok(builder.batching(packing));
        }
        let buckets = self.get("bucket_boundaries").zip(self.get("bucket_batch_sizes"));
        let Some((boundaries, batch_sizes)) = buckets else { return Ok(builder) };
        Ok(builder.batching(Buckets::new(boundaries.numbers()?, batch_sizes.numbers()?).window(window)))
    }

    /// The transforms of encoded images, and of the columns that follow them.
    fn images(&self, mut builder: Builder, dataset: &Arc<dyn Dataset>) -> Result<Builder> {
        let (transform, decode) = (self.get("transform"), self.flag("decode")?);
        if let Some(transform) = &transform {
            if decode {
                return Err(invalid("transform decodes too", "leave out decode"));
            }
            let cache = self.get("cache_images").map(|given| given.bytes()).transpose()?;
            let folder = self.get("cache_images_dir");
            let cache = cache.map(|bytes| -> Result<ImageCache> {
                let Some(folder) = &folder else { return Ok(ImageCache::memory(bytes)) };
                Ok(ImageCache::disk(folder.text()?, bytes))
            });
            builder =
                builder.transform(self.image_column(dataset)?, self.chain(transform)?).cache_images(cache.transpose()?);
        } else if decode {
            builder = builder.decode(self.image_column(dataset)?);
        }
        if let Some(given) = self.get("transform_column") {
            for (column, text) in given.by_column("the transform of each column, such as {\"png\": \"mask(jpg)\"}")? {
                builder = builder.transform_by(column, text)?;
            }
        }
        Ok(builder)
    }

    fn chain(&self, transform: &Given<'_>) -> Result<Chain> {
        let mut chain: Chain = transform.text()?.parse()?;
        if let Some(given) = self.get("image_dtype") {
            chain = chain.dtype(DType::named(given.text()?).ok_or_else(|| given.wrong("u8, f16, bf16 or f32"))?)?;
        }
        if let Some(given) = self.get("image_layout") {
            chain = match given.text()? {
                "nchw" => chain.channels_last(false),
                "nhwc" => chain.channels_last(true),
                _ => return Err(given.wrong("nchw or nhwc")),
            };
        }
        Ok(chain)
    }

    /// The column that has the images: the one that is named, or the only one that has some.
    fn image_column(&self, dataset: &Arc<dyn Dataset>) -> Result<String> {
        if let Some(given) = self.get("image_column") {
            return given.text().map(str::to_owned);
        }
        let named = |error: Error| match error.kind() {
            ErrorKind::InvalidArgument => error.with_remedy("name the column of the images: \"image_column\""),
            _ => error,
        };
        Samples::new(Arc::clone(dataset))?.image_column().map_err(named)
    }

    /// Where batches go.
    fn devices(&self) -> Result<Vec<Device>> {
        let Some(names) = self.get("device") else { return Ok(Vec::new()) };
        let gds = match self.get("gds") {
            None => Gds::Auto,
            Some(given) => given.text()?.parse().map_err(|_| given.wrong("auto, on or off"))?,
        };
        let memory = self.get("device_memory").map(|given| given.bytes()).transpose()?;
        let share = self.get("nvjpeg").map(|given| {
            let share = given.1.as_f64().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or_else(|| given.wrong("the share of the JPEGs that the GPU decodes, 0 to 1"))
        });
        let share = share.transpose()?.unwrap_or(0.0);
        let (driver, cufile, nvjpeg) =
            (self.get("cuda_library"), self.get("cufile_library"), self.get("nvjpeg_library"));
        let device = |name: &str| {
            let mut device: Device = name.parse().map_err(|_| names.wrong("auto, host, cuda or cuda:N"))?;
            device = device.gds(gds).nvjpeg(share);
            if let Some(given) = &driver {
                device = device.library(given.text()?);
            }
            if let Some(given) = &cufile {
                device = device.cufile(given.text()?);
            }
            if let Some(given) = &nvjpeg {
                device = device.nvjpeg_library(given.text()?);
            }
            Ok(memory.into_iter().fold(device, Device::memory_limit))
        };
        names.texts()?.into_iter().map(device).collect()
    }
}

fn pad_value(group: &Group<'_>) -> Result<PadValue> {
    let Some(given) = group.get("pad_value") else { return Ok(PadValue::Int(0)) };
    Ok(PadValue::Int(given.1.as_i64().ok_or_else(|| given.wrong("a whole number"))?))
}

fn padding(group: &Group<'_>) -> Result<Padding> {
    let mut padding = Padding::default().value(pad_value(group)?);
    if let Some(given) = group.get("max_length") {
        padding = padding.max_length(given.number()?);
    }
    if let Some(given) = group.get("pad_multiple") {
        padding = padding.multiple_of(given.number()?);
    }
    Ok(padding)
}

fn collate(given: &Given<'_>, word: &str, padding: &Padding) -> Result<Collate> {
    Ok(match word {
        "auto" => Collate::Auto,
        "views" => Collate::Views,
        "dense" => Collate::Dense,
        "ragged" => Collate::Ragged,
        "padded" => Collate::Padded(*padding),
        _ => return Err(given.wrong("auto, views, dense, ragged or padded")),
    })
}

fn columns(mut builder: Builder, given: &Given<'_>, padding: &Padding) -> Result<Builder> {
    let wrong = || given.wrong("the form of each column, such as {\"jpg\": \"views\"}");
    for (column, form) in given.1.as_object().ok_or_else(wrong)? {
        builder = builder.collate_column(column, collate(given, form.as_str().ok_or_else(wrong)?, padding)?);
    }
    Ok(builder)
}

/// What a reader's options say.
pub(crate) fn reader(json: Option<&str>) -> Result<ReaderOptions> {
    object(json)?
        .into_iter()
        .try_fold(ReaderOptions::default(), |options, (name, value)| options.set(&name, Given(&name, value).value()?))
}

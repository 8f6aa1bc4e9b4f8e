//! Options as JSON, by the names of the command line: `{"batch_size": 64, "shuffle": "window:4096"}`.

use crate::invalid;
use serde_json::{Map, Value};
use std::time::Duration;
use uringload::config::{Cache, Collate, MaxFailures, PadValue, Padding};
use uringload::dataset::{OptionValue, Options, Schema, Shape};
use uringload::{Builder, Error, ReaderOptions, Result};

/// The longest time that a JSON number of seconds can mean.
const SECONDS_MAX: f64 = 1e15;

/// What the loader's options are.
const LOADER: &str = "batch_size, epochs, more_epochs, shuffle, seed, rank, world_size, drop_last, engine, io, \
    queue_depth, read_bytes, io_threads, num_threads, memory_limit, coalesce_gap, cache, on_error, max_failures, \
    quarantine, timeout, outage_timeout, starved_after, collate, collate_columns, pad_value, max_length, pad_multiple, \
    key_column, index_column, trace";

const READER: &str = "engine, io, queue_depth, io_threads, memory_limit, timeout, outage_timeout, starved_after";

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
        uringload::Error::new(uringload::ErrorKind::InvalidArgument, format!("{name} cannot be {value}"))
            .with_remedy(format!("give {wanted}"))
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

    /// A number of bytes, or a text such as "4GiB".
    fn bytes(&self) -> Result<u64> {
        match self.1.as_str() {
            Some(text) => uringload::internal::parse_bytes(text).map_err(|_| self.wrong("bytes, or such as \"4GiB\"")),
            None => self.number(),
        }
    }

    fn text(&self) -> Result<&str> {
        self.1.as_str().ok_or_else(|| self.wrong("a text"))
    }

    fn seconds(&self) -> Result<Option<Duration>> {
        if self.is_null() {
            return Ok(None);
        }
        let seconds = self.1.as_f64().filter(|seconds| (0.0..SECONDS_MAX).contains(seconds));
        Ok(Some(Duration::from_secs_f64(seconds.ok_or_else(|| self.wrong("a number of seconds, or null"))?)))
    }
}

/// The options of a dataset: its format, and that format's options.
pub(crate) fn dataset(json: Option<&str>) -> Result<Options> {
    let mut options = Options::new();
    for (name, value) in object(json)? {
        let given = Given(&name, value);
        options = match (&*name, &given.1) {
            ("format", _) => options.format(given.text()?),
            ("threads", _) => options.threads(given.count()?),
            (_, Value::Bool(flag)) => options.set(&name, *flag),
            (_, Value::String(text)) => options.set(&name, &**text),
            (_, Value::Number(_)) => options.set(&name, given.number()?),
            (_, Value::Array(items)) => options.set(&name, list(&given, items)?),
            _ => return Err(given.wrong("a text, a number, true, false, or a list")),
        };
    }
    Ok(options)
}

fn list(given: &Given<'_>, items: &[Value]) -> Result<OptionValue> {
    if let Some(numbers) = items.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>() {
        return Ok(numbers.into());
    }
    let texts = items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>();
    Ok(texts.ok_or_else(|| given.wrong("a list of texts or of numbers"))?.into())
}

/// Sets what the options say.
pub(crate) fn loader(mut builder: Builder, json: Option<&str>, schema: &Schema) -> Result<Builder> {
    let object = object(json)?;
    builder = stacked(builder, &object, schema);
    let padding = padding(&object)?;
    for (name, value) in object {
        let given = Given(&name, value);
        let number_or_none = |given: &Given<'_>| if given.is_null() { Ok(None) } else { given.count().map(Some) };
        builder = match &*name {
            "batch_size" => builder.batch_size(given.number()?),
            "epochs" if given.is_null() => builder.epochs(None),
            "epochs" => builder.epochs(given.number()?),
            "more_epochs" => builder.more_epochs(given.number()?),
            "shuffle" => match &given.1 {
                Value::Bool(shuffle) => builder.shuffle(*shuffle),
                _ => builder.shuffle(given.text()?.parse::<uringload::config::Shuffle>()?),
            },
            "seed" => builder.seed(given.number()?),
            // They are of use together, so the one reads the other.
            "rank" | "world_size" => builder,
            "drop_last" => builder.drop_last(given.flag()?),
            "engine" => builder.engine(given.text()?.parse()?),
            "io" => builder.io(given.text()?.parse()?),
            "queue_depth" => builder.queue_depth(given.count()?),
            "read_bytes" => builder.read_bytes(Some(given.bytes()? as usize)),
            "io_threads" => builder.io_threads(number_or_none(&given)?),
            "num_threads" => builder.num_threads(number_or_none(&given)?),
            "memory_limit" if given.is_null() => builder,
            "memory_limit" => builder.memory_limit(given.bytes()?),
            "coalesce_gap" => builder.coalesce_gap(Some(given.bytes()?)),
            "cache" if given.is_null() => builder,
            "cache" if given.text()? == "memory" => builder.cache(Cache::Memory),
            "cache" => return Err(given.wrong("\"memory\" or null")),
            "on_error" => builder.on_error(given.text()?.parse()?),
            "max_failures" if given.is_null() => builder,
            "max_failures" => builder.max_failures(max_failures(&given)?),
            "quarantine" => builder.quarantine(given.text()?),
            "timeout" => builder.timeout(given.seconds()?),
            "outage_timeout" => builder.outage_timeout(given.seconds()?),
            "starved_after" => builder.starved_after(given.seconds()?.unwrap_or(Duration::MAX)),
            "collate" => builder.collate(collate(&given, given.text()?, &padding)?),
            "collate_columns" => columns(builder, &given, &padding)?,
            "pad_value" | "max_length" | "pad_multiple" => builder,
            "key_column" => builder.key_column(given.flag()?),
            "index_column" => builder.index_column(given.flag()?),
            "trace" => builder.trace(given.text()?),
            _ => return Err(unknown(&name, "a loader", LOADER)),
        };
    }
    Ok(builder)
}

/// Columns of one shape are tensors unless the options say otherwise, even if that takes a copy: separate values are of
/// little use in C.
fn stacked(mut builder: Builder, object: &Map<String, Value>, schema: &Schema) -> Builder {
    let columns = object.get("collate_columns").and_then(Value::as_object);
    let is_named = |name: &str| columns.is_some_and(|columns| columns.contains_key(name));
    for field in schema.fields.iter().filter(|_| !object.contains_key("collate")) {
        if matches!(field.shape, Shape::Fixed(_)) && !is_named(&field.name) {
            builder = builder.collate_column(&field.name, Collate::Dense);
        }
    }
    builder
}

/// Sets which of several equal consumers this is.
pub(crate) fn ranks(builder: Builder, json: Option<&str>) -> Result<Builder> {
    let mut object = object(json)?;
    let mut of = |name: &'static str| object.remove(name).map(|value| Given(name, value).number()).transpose();
    match (of("rank")?, of("world_size")?) {
        (None, None) => Ok(builder),
        (Some(rank), Some(world_size)) => Ok(builder.rank(rank, world_size)),
        _ => Err(invalid("rank and world_size are of use together", "give both or none")),
    }
}

fn padding(object: &Map<String, Value>) -> Result<Padding> {
    let given = |name: &'static str| object.get(name).map(|value| Given(name, value.clone()));
    let mut padding = Padding::default();
    if let Some(given) = given("pad_value") {
        padding = padding.value(PadValue::Int(given.1.as_i64().ok_or_else(|| given.wrong("a whole number"))?));
    }
    if let Some(given) = given("max_length") {
        padding = padding.max_length(given.number()?);
    }
    if let Some(given) = given("pad_multiple") {
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

/// A whole number is a count, a fraction a share of an epoch.
fn max_failures(given: &Given<'_>) -> Result<MaxFailures> {
    let share = || given.1.as_f64().map(MaxFailures::Fraction);
    let told = given.1.as_u64().map(MaxFailures::Count).or_else(share);
    told.ok_or_else(|| given.wrong("a number of samples, or a share of them such as 0.01"))
}

/// What a reader's options say.
pub(crate) fn reader(json: Option<&str>) -> Result<ReaderOptions> {
    let mut options = ReaderOptions::default();
    for (name, value) in object(json)? {
        let given = Given(&name, value);
        options = match &*name {
            "engine" => options.engine(given.text()?.parse()?),
            "io" => options.io(given.text()?.parse()?),
            "queue_depth" => options.queue_depth(given.count()?),
            "io_threads" => options.io_threads(given.count()?),
            "memory_limit" => options.memory_limit(given.bytes()?),
            "timeout" => options.timeout(given.seconds()?),
            "outage_timeout" => options.outage_timeout(given.seconds()?),
            "starved_after" => options.starved_after(given.seconds()?.unwrap_or(Duration::MAX)),
            _ => return Err(unknown(&name, "a reader", READER)),
        };
    }
    Ok(options)
}

fn unknown(name: &str, what: &str, known: &str) -> Error {
    uringload::Error::new(uringload::ErrorKind::InvalidArgument, format!("{what} has no option {name:?}"))
        .with_remedy(format!("its options are {known}"))
}

//! Options of datasets, from the registry of formats; the arguments of `uringload.Dataset` are derived from them.

use crate::errors::raised;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use uringload::dataset::inspect::{FORMATS, OptionKind, OptionSpec, all_options, formats_with};
use uringload::dataset::{self, OptionValue, Options};

/// The value given for an option, by its Python type.
#[derive(FromPyObject)]
enum Value {
    Flag(bool),
    Number(u64),
    Numbers(Vec<u64>),
    Text(String),
    Texts(Vec<String>),
    Path(PathBuf),
}

impl From<Value> for OptionValue {
    fn from(value: Value) -> OptionValue {
        match value {
            Value::Flag(flag) => flag.into(),
            Value::Number(number) => number.into(),
            Value::Numbers(numbers) => numbers.into(),
            Value::Text(text) => text.into(),
            Value::Texts(texts) => texts.into(),
            Value::Path(path) => path.into(),
        }
    }
}

/// Converts a dictionary to options: "format", and the options of formats by name.
pub(crate) fn options(given: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut options = Options::new().stores_from_environment();
    for (name, value) in given {
        let name: String = name.extract()?;
        options = match &*name {
            "format" => options.format(value.extract::<String>()?),
            "timeout" => {
                let timeout = crate::options::value(value.extract()?).seconds("timeout");
                let timeout = timeout.map_err(|error| raised(given.py(), &error))?;
                timeout.into_iter().fold(options, Options::timeout)
            }
            _ => options.set(name, value.extract::<Value>()?),
        };
    }
    Ok(options)
}

/// Of such a dictionary, how stores are reached.
pub(crate) fn of_stores(given: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut options = Options::new().stores_from_environment();
    for spec in all_options().iter().filter(|spec| formats_with(spec.name).len() == FORMATS.len()) {
        if let Some(value) = given.get_item(spec.name)? {
            options = options.set(spec.name, value.extract::<Value>()?);
        }
    }
    Ok(options)
}

/// An option, as Python sees it.
type Declared = (&'static str, &'static str, Vec<&'static str>, &'static str, Vec<&'static str>);

/// Every option of every format: its name, its kind, the words it accepts, its purpose, and the formats that have it.
#[pyfunction]
pub(crate) fn format_options() -> Vec<Declared> {
    let option = |spec: OptionSpec| {
        let (kind, known) = match spec.kind {
            OptionKind::Flag | OptionKind::FlagOn | OptionKind::Choose => ("flag", &[][..]),
            OptionKind::Number if spec.name.ends_with("_bytes") => ("size", &[][..]),
            OptionKind::Number => ("number", &[][..]),
            OptionKind::Numbers => ("numbers", &[][..]),
            OptionKind::Texts => ("texts", &[][..]),
            OptionKind::Path => ("path", &[][..]),
            OptionKind::OneOf(known) => ("text", known),
            _ => ("text", &[][..]),
        };
        (spec.name, kind, known.to_vec(), spec.help.trim(), formats_with(spec.name))
    };
    all_options().into_iter().map(option).collect()
}

/// Opens paths as one dataset.
pub(crate) fn open(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    given: &Bound<'_, PyDict>,
) -> PyResult<std::sync::Arc<dyn dataset::Dataset>> {
    let options = options(given)?;
    let opened = crate::wait::for_work(py, move || dataset::open(&paths, &options))?;
    opened.map_err(|error| raised(py, &error))
}

/// A hash of the names of all files that the paths match.
#[pyfunction]
pub(crate) fn names(py: Python<'_>, paths: Vec<PathBuf>, given: &Bound<'_, PyDict>) -> PyResult<u64> {
    let options = options(given)?;
    let found = crate::wait::for_work(py, move || dataset::inspect::names(&paths, &options))?;
    found.map_err(|error| raised(py, &error))
}

//! Turns errors of the library into exceptions of `uringload.errors`, which has a class for each kind.

use pyo3::prelude::*;
use uringload::{Error, ErrorKind};

/// The exception for `error`, with its kind, file, offset and remedy.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let kind = format!("{:?}", error.kind());
    let arguments = (error.to_string(), kind, error.path(), error.offset(), error.remedy());
    py.import("uringload.errors")?.getattr("of_kind")?.call1(arguments)
}

/// The exception for an invalid argument.
pub(crate) fn refused(py: Python<'_>, what: String, remedy: &'static str) -> PyErr {
    raised(py, &invalid(what, remedy))
}

/// The error for an invalid argument.
pub(crate) fn invalid(what: String, remedy: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}

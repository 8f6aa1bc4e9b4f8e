//! The command line, for the script `uringload` that the wheel installs.

use crate::outside::outside;
use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command line with these arguments (the first is the program's name) and returns its exit code.
#[pyfunction]
pub fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    outside(py, || uringload_cli::run(arguments))
}

/// The variables of rank and world size that launchers set, in the order in which they are tried.
#[pyfunction]
pub fn rank_variables() -> Vec<(&'static str, Option<&'static str>)> {
    uringload_cli::RANK_VARIABLES.to_vec()
}

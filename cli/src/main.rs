//! The binary `uringload`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    uringload_cli::run(std::env::args_os()).into()
}

//! The binary `uringload`. It uses the library like any other program: through its public API.
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod cold;
mod compare;
mod consume;
mod cufile;
mod data;
mod doctor;
mod facts;
mod failure;
mod index;
mod inspect;
mod interrupt;
mod layout;
mod list;
mod output;
mod pack;
mod pages;
mod ranks;
mod state;
mod units;
mod verify;
mod verify_order;

use arguments::{Arguments, Command};
use clap::Parser;
use failure::{Exit, Failure};
use std::process::ExitCode;

/// Parses the arguments, runs the command, and reports errors on stderr, in one line.
fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Bench(options) => bench::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Index(options) => index::run(&options),
        Command::Inspect(options) => inspect::run(&options),
        Command::List(options) => list::run(&options),
        Command::Pack(options) => pack::run(&options),
        Command::State(command) => state::run(&command),
        Command::Verify(options) => verify::run(&options),
        Command::VerifyOrder(options) => verify_order::run(&options),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { out } => pages::man(out.as_deref()),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.report();
            failure.exit()
        }
    }
}

/// What every command returns.
type Done = Result<Exit, Failure>;

//! How a command ends: the documented exit codes.

use crate::output::eprintln_quietly;
use std::io;
use uringload::{Error, ErrorKind};

/// The exit codes, as `--help` and the man page list them.
pub const EXIT_CODES: &str = "Exit codes:
  0    done; doctor: the best route is open
  1    failed; doctor: something is degraded; list: a sample could not be read;
       compare: slower than --fail-below allows;
       verify, cache verify: something is bad
  2    the arguments cannot work
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP); bench prints what it has measured so far
  141  stdout was closed (as by `| head`)";

/// How a successful command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Done, with problems to report.
    Degraded,
    /// Interrupted by a signal.
    Interrupted,
}

impl Exit {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Degraded => 1,
            Exit::Interrupted => INTERRUPTED,
        }
    }
}

/// 128 + SIGINT, as a shell reports it.
pub const INTERRUPTED: u8 = 130;
/// 128 + SIGPIPE, as a shell reports it.
const CLOSED_STDOUT: u8 = 141;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// An error of the library.
    Loader(Error),
    /// Output could not be written.
    Output(io::Error),
}

impl Failure {
    /// Reports on stderr: a line for the error and one for each remedy; nothing if the reader of stdout is gone.
    pub fn report(&self) {
        // If stderr is closed as well, the error cannot be reported.
        match self {
            Failure::Loader(error) => eprintln_quietly(&format!("uringload: {}", told(error))),
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Failure::Output(error) => eprintln_quietly(&format!("uringload: cannot write the output: {error}")),
        }
    }

    /// The exit code.
    pub fn exit(&self) -> u8 {
        match self {
            Failure::Loader(error) if error.kind() == ErrorKind::InvalidArgument => 2,
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => CLOSED_STDOUT,
            _ => 1,
        }
    }
}

/// Formats an error for a terminal: one line, and the remedies below it.
pub fn told(error: &Error) -> String {
    format!("{}{}", error.headline(), help(error))
}

/// The remedies of an error, each on an indented line of its own.
pub fn help(error: &Error) -> String {
    // After the headline only remedies begin a line: no other part of an error can contain a newline.
    error.to_string().lines().skip(1).map(|line| format!("\n  {line}")).collect()
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Loader(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

//! The command `uringload`, as a function: the binary calls it, and so does the script of the Python wheel. It uses the
//! library like any other program: through its public API.
#![forbid(unsafe_code)]

// In layer order: a module uses only modules above it (a test enforces it).
mod layout;
mod output;
mod progress;
mod failure;
mod interrupt;
mod units;
mod launchers;
mod arguments;
mod examples;
mod pages;
mod variables;
mod data;
mod index;
mod inspect;
mod pack;
mod ranks;
mod show;
mod state;
mod bench;
mod cache;
mod compare;
mod doctor;
mod list;
mod list_objects;
mod top;
mod tune;
mod verify;
mod verify_order;

#[doc(hidden)]
pub use launchers::VARIABLES as RANK_VARIABLES;

use arguments::{Arguments, Command};
use clap::{Arg, ArgMatches, ColorChoice, FromArgMatches, ValueHint};
use failure::{Exit, Failure};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use uringload::config::Shuffle;
use uringload::dataset::inspect::url_scheme;
use uringload::{Error, ErrorKind};

/// Parses the arguments (the first is the program's name), runs the command, reports errors on stderr, in one line, and
/// returns the exit code. A process calls it once: the signal handlers of a command stay.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // The main thread's stack may be as small as `ulimit -s` says.
    let thread = thread::Builder::new().name("uringload".into()).stack_size(STACK_BYTES);
    let copy = arguments.clone();
    match thread.spawn(move || run_here(copy)) {
        Ok(thread) => thread.join().unwrap_or(PANICKED),
        // The system cannot start a thread.
        Err(_) => run_here(arguments),
    }
}

/// What Linux gives a main thread by default.
const STACK_BYTES: usize = 8 << 20;

/// The exit code of a program of Rust that has panicked.
const PANICKED: u8 = 101;

fn run_here(arguments: Vec<OsString>) -> u8 {
    // Help is written while arguments are parsed, so this one is looked for before.
    let words: Vec<String> = arguments.iter().filter_map(|word| word.to_str()).map(str::to_owned).collect();
    let mut whole = examples::whole().color(help_color(&words));
    let parsed = whole.try_get_matches_from_mut(arguments).and_then(|mut matches| {
        let sound = apart(&words).and_then(|()| near(&whole, &matches));
        Arguments::from_arg_matches_mut(&mut matches).map(|arguments| (arguments, sound))
    });
    let code = match parsed {
        Ok((arguments, sound)) => {
            output::set_colored(output::is_colored(arguments.color));
            ended(sound.map_err(Failure::from).and_then(|()| command(arguments.command)))
        }
        Err(refused) => {
            // Help goes to stdout, parse errors go to stderr; if that is closed, they are lost.
            let _ = refused.print();
            u8::try_from(refused.exit_code()).unwrap_or(u8::MAX)
        }
    };
    // Rust flushes at the end of its own `main`, which a process of Python does not have.
    let _ = io::stdout().flush();
    code
}

/// The color of help and of parse errors: NO_COLOR and terminals are clap's own business.
fn help_color(words: &[String]) -> ColorChoice {
    let joined = options(words).filter_map(|word| word.strip_prefix("--color="));
    match joined.chain(next_to(words, "--color")).last() {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

/// The words before those that are no options.
fn options(words: &[String]) -> impl Iterator<Item = &str> {
    words.iter().map(String::as_str).take_while(|word| *word != "--")
}

/// The words that follow an option.
fn next_to<'a>(words: &'a [String], option: &'a str) -> impl Iterator<Item = &'a str> {
    options(words).zip(options(words).skip(1)).filter(move |(name, _)| *name == option).map(|(_, value)| value)
}

/// The way to shuffle stands after an equals sign, because `--shuffle DIR` names a folder: a way that stands apart is
/// no folder, and neither is a seed.
fn apart(words: &[String]) -> Result<(), Error> {
    let Some(word) = next_to(words, "--shuffle").find(|word| !Path::new(word).exists()) else { return Ok(()) };
    let error = match word.parse::<Shuffle>() {
        Ok(_) => {
            let error =
                Error::new(ErrorKind::InvalidArgument, format!("there is no {word:?}, nor is it how to shuffle"));
            error.with_remedy(format!("--shuffle={word}"))
        }
        Err(error) if word.parse::<u64>().is_ok() => error,
        Err(_) => return Ok(()),
    };
    Err(error)
}

/// What is a file or a folder by its hint is on this machine: of a URL, a folder such as `s3:` would be made.
fn near(command: &clap::Command, matches: &ArgMatches) -> Result<(), Error> {
    let is_local = |arg: &&Arg| matches!(arg.get_value_hint(), ValueHint::FilePath | ValueHint::DirPath);
    for arg in command.get_arguments().filter(is_local) {
        let paths = matches.try_get_many::<PathBuf>(arg.get_id().as_str()).ok().flatten();
        if paths.into_iter().flatten().any(|path| url_scheme(path).is_some()) {
            let name = arg.get_long().map_or_else(|| arg.to_string(), |long| format!("--{long}"));
            let what = format!("{name} is of this machine, and a URL was given");
            let error = Error::new(ErrorKind::InvalidArgument, what);
            return Err(error.with_remedy("name a path, and copy what is there to or from the store"));
        }
    }
    let inner = matches.subcommand().and_then(|(name, inner)| Some((command.find_subcommand(name)?, inner)));
    inner.map_or(Ok(()), |(command, inner)| near(command, inner))
}

fn command(mut command: Command) -> Done {
    variables::fill(&mut command)?;
    match command {
        Command::Bench(mut options) => {
            options.emulate();
            bench::run(&options)
        }
        Command::Cache(command) => cache::run(&command),
        Command::Compare(options) => compare::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Index(options) => index::run(&options),
        Command::Inspect(options) => inspect::run(&options),
        Command::List(options) => list::run(&options),
        Command::ListObjects(options) => list_objects::run(&options),
        Command::Pack(options) => pack::run(&options),
        Command::Show(options) => show::run(&options),
        Command::State(command) => state::run(&command),
        Command::Top(options) => top::run(&options),
        Command::Tune(options) => tune::run(&options),
        Command::Verify(options) => verify::run(&options),
        Command::VerifyOrder(options) => verify_order::run(&options),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { out } => pages::man(out.as_deref()),
        Command::Licenses => pages::licenses(),
    }
}

fn ended(done: Done) -> u8 {
    match done {
        Ok(exit) => exit.code(),
        Err(failure) => {
            failure.report();
            failure.exit()
        }
    }
}

/// What every command returns.
type Done = Result<Exit, Failure>;

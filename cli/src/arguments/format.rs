//! Options for the format of the files. The formats declare them: a new format gets its arguments here without a line
//! of code.

use super::Failing;
use clap::builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::error::Result;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;
use uringload::config::OnError;
use uringload::config::parse_bytes;
use uringload::dataset::inspect::{self, FORMATS, OptionKind, OptionSpec, all_options, formats_with};
use uringload::dataset::{OptionValue, Options};

/// How to interpret the dataset's files.
#[derive(Clone, Debug)]
pub struct Format(pub Options);

impl Format {
    /// The same; `failing` decides about samples that cannot be read and storage that does not answer.
    pub fn under(&self, failing: &Failing) -> Options {
        self.within(failing.timeout).prefer("keep_damaged", failing.on_error() != OnError::Raise)
    }

    /// The same, with this much time for storage to answer.
    pub fn within(&self, timeout: Option<Duration>) -> Options {
        match timeout {
            Some(timeout) => self.0.clone().timeout(timeout),
            None => self.0.clone(),
        }
    }
}

impl Args for Format {
    fn augment_args(command: Command) -> Command {
        let format = Arg::new("format")
            .long("format")
            .value_name("FORMAT")
            .value_parser(Name(|_| true))
            .help("The format of the files [default: what nearly all of them show]");
        let options = all_options();
        let arguments = std::iter::once(format).chain(options.iter().map(argument));
        command.next_help_heading("Dataset").args(arguments).next_help_heading(None::<&str>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Format::augment_args(command)
    }
}

impl FromArgMatches for Format {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Format> {
        let options = chosen(matches, &all_options());
        Ok(Format(match matches.get_one::<String>("format") {
            Some(format) => options.format(format),
            None => options,
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        *self = Format::from_arg_matches(matches)?;
        Ok(())
    }
}

/// How files of any format are found, and the stores of URLs reached.
#[derive(Clone, Debug)]
pub struct Access(pub Options);

impl Access {
    fn options() -> Vec<OptionSpec> {
        all_options().into_iter().filter(|spec| formats_with(spec.name).len() == FORMATS.len()).collect()
    }
}

impl Args for Access {
    fn augment_args(command: Command) -> Command {
        let arguments = Access::options();
        command.next_help_heading("Dataset").args(arguments.iter().map(argument)).next_help_heading(None::<&str>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Access::augment_args(command)
    }
}

impl FromArgMatches for Access {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Access> {
        Ok(Access(chosen(matches, &Access::options())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        *self = Access::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What is given of these options.
fn chosen(matches: &ArgMatches, specs: &[OptionSpec]) -> Options {
    let given = specs.iter().filter_map(|spec| Some((spec.name, given(matches, spec)?)));
    given.fold(Options::new().stores_from_environment(), |options, (name, value)| options.set(name, value))
}

/// The name of a format. Help and completions have those that fit; the library says what is wrong with another.
#[derive(Clone)]
pub struct Name(pub fn(&inspect::Format) -> bool);

impl TypedValueParser for Name {
    type Value = String;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<String> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let those = FORMATS.iter().filter(|format| (self.0)(format));
        Some(Box::new(those.map(|format| PossibleValue::new(format.name).help(format.help))))
    }
}

/// The argument for an option: `--record-bytes`, and `--no-header` if it is on by default.
fn argument(spec: &OptionSpec) -> Arg {
    let no = if spec.kind == OptionKind::FlagOn { "no-" } else { "" };
    let long = format!("{no}{}", spec.name.replace('_', "-"));
    let formats = formats_with(spec.name);
    let formats = if formats.len() == FORMATS.len() { "all formats".into() } else { formats.join(", ") };
    let help = format!("{} [{formats}]", spec.help.trim().trim_end_matches('.'));
    let argument = Arg::new(spec.name).long(long).help(help);
    match spec.kind {
        OptionKind::Flag | OptionKind::FlagOn => argument.action(ArgAction::SetTrue),
        OptionKind::Choose => argument.value_name("BOOL").value_parser(value_parser!(bool)),
        OptionKind::Number => {
            let unit = if spec.name.ends_with("_bytes") { "BYTES" } else { "N" };
            argument.value_name(unit).value_parser(parse_bytes)
        }
        OptionKind::Numbers => argument.value_name("N").value_delimiter(',').value_parser(value_parser!(u64)),
        OptionKind::Texts => argument.value_name("NAMES").value_delimiter(',').action(ArgAction::Append),
        OptionKind::OneOf(known) => argument.value_name("NAME").value_parser(PossibleValuesParser::new(known)),
        OptionKind::Path => {
            argument.value_name("PATH").value_hint(ValueHint::AnyPath).value_parser(PathBufValueParser::new())
        }
        // Texts, and any kind added later: as text.
        _ => argument.value_name("TEXT"),
    }
}

/// The value given for an option.
fn given(matches: &ArgMatches, spec: &OptionSpec) -> Option<OptionValue> {
    let name = spec.name;
    match spec.kind {
        OptionKind::Flag => matches.get_flag(name).then_some(true.into()),
        OptionKind::FlagOn => matches.get_flag(name).then_some(false.into()),
        OptionKind::Choose => matches.get_one::<bool>(name).map(|&value| value.into()),
        OptionKind::Number => matches.get_one::<u64>(name).map(|&value| value.into()),
        OptionKind::Numbers => matches.get_many::<u64>(name).map(|values| values.copied().collect::<Vec<_>>().into()),
        OptionKind::Texts => matches.get_many::<String>(name).map(|values| values.cloned().collect::<Vec<_>>().into()),
        OptionKind::Path => matches.get_one::<PathBuf>(name).map(|value| value.clone().into()),
        _ => matches.get_one::<String>(name).map(|value| value.clone().into()),
    }
}

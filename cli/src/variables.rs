//! Defaults from the environment, for what arguments leave open. The Python package has the same ones.

use crate::arguments::{Command, Means, parse_profile};
use crate::units::parse_bytes;
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use uringload::config::Profile;
use uringload::{Error, ErrorKind};
use uringload_measure::doctor::{Finding, State};

const THREADS: &str = "URINGLOAD_NUM_THREADS";
const MEMORY: &str = "URINGLOAD_MEMORY_LIMIT";
const PROFILE: &str = "URINGLOAD_PROFILE";
/// Those that Python alone reads.
const PYTHONS: [&str; 2] = ["URINGLOAD_LOG", "URINGLOAD_SHARE_STATS"];

/// What a variable is.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Gives a command that reads a dataset the defaults.
///
/// # Errors
/// `InvalidArgument`, with the name of a variable that cannot be.
pub fn fill(command: &mut Command) -> Result<(), Error> {
    let from: Variable = &|name| env::var_os(name);
    match command {
        Command::Bench(options) => apply(&mut options.means, from),
        Command::List(options) => apply(&mut options.means, from),
        Command::Pack(options) => apply(&mut options.means, from),
        Command::Tune(options) => apply(&mut options.means, from),
        Command::Verify(options) => apply(&mut options.means, from),
        _ => Ok(()),
    }
}

/// What is set, for `doctor`; `None` if nothing is.
pub fn finding() -> Option<Finding> {
    let from: Variable = &|name| env::var_os(name);
    let shown = |name: &str| text(name, from).map(|text| format!("{name}={text}"));
    let found: Vec<String> = [THREADS, MEMORY, PROFILE].into_iter().chain(PYTHONS).filter_map(shown).collect();
    let refused = threads(from).err().or(memory(from).err()).or(profile(from).err());
    (!found.is_empty()).then(|| Finding {
        what: "variables".into(),
        state: if refused.is_some() { State::Degraded } else { State::Info },
        found: found.join(", "),
        means: match &refused {
            Some(error) => error.headline().to_string(),
            None => "defaults of loaders and commands; what these are given comes first".to_owned(),
        },
        remedy: refused.and_then(|error| error.remedy().map(str::to_owned)),
    })
}

fn apply(means: &mut Means, from: Variable) -> Result<(), Error> {
    let (threads, memory, profile) = (threads(from)?, memory(from)?, profile(from)?);
    means.num_threads = means.num_threads.or(threads);
    means.memory_limit = means.memory_limit.or(memory);
    means.profile = means.profile.take().or(profile);
    Ok(())
}

fn threads(from: Variable) -> Result<Option<usize>, Error> {
    value(THREADS, from, |text| text.parse().map_err(|_| "not a whole number from 0 on"))
}

fn memory(from: Variable) -> Result<Option<u64>, Error> {
    value(MEMORY, from, parse_bytes)
}

fn profile(from: Variable) -> Result<Option<Profile>, Error> {
    value(PROFILE, from, parse_profile)
}

/// An empty variable counts as unset: `URINGLOAD_PROFILE= command` leaves one.
fn text(name: &str, from: Variable) -> Option<String> {
    from(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
}

fn value<T, E: Display>(name: &str, from: Variable, parse: impl Fn(&str) -> Result<T, E>) -> Result<Option<T>, Error> {
    let Some(text) = text(name, from) else { return Ok(None) };
    parse(&text).map(Some).map_err(|why| {
        let error = Error::new(ErrorKind::InvalidArgument, format!("the variable {name} is {text:?}: {why}"));
        error.with_remedy("set it to what its option takes, or unset it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser;

    #[test]
    fn what_is_given_comes_first() {
        let of = |arguments: &str, variables: &[(&str, &str)]| {
            let all = format!("uringload list somewhere {arguments}");
            let Command::List(mut list) = Arguments::try_parse_from(all.split_whitespace()).unwrap().command else {
                panic!("list is list")
            };
            let from = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).into());
            apply(&mut list.means, &from).map(|()| (list.means.num_threads, list.means.memory_limit))
        };
        let all = [(THREADS, "3"), (MEMORY, "1MiB")];
        assert_eq!(of("", &[]).unwrap(), (None, None));
        assert_eq!(of("", &[(THREADS, ""), (MEMORY, "")]).unwrap(), (None, None));
        assert_eq!(of("", &all).unwrap(), (Some(3), Some(1 << 20)));
        assert_eq!(of("--num-threads 0 --memory-limit 2MiB", &all).unwrap(), (Some(0), Some(2 << 20)));
    }
}

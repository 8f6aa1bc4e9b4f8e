//! A profile: how the samples of a dataset are read best on a machine, as `uringload tune` found it, in a file.

use super::{Config, Value};
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;
use toml::Spanned;

/// The version that is written, and the only one that is read.
const VERSION: i64 = 1;

/// A profile is some lines. Who names a dataset by mistake is told so before it is in memory.
const MOST_BYTES: u64 = 64 << 10;

/// The settings that a profile may have: none of them decides which samples come when.
const KEYS: [&str; 9] =
    ["engine", "io", "queue_depth", "read_size", "io_threads", "num_threads", "coalesce_gap", "memory_limit", "cache"];

const RENEW: &str = "run `uringload tune DIR` again, which writes a profile of this version";

/// How to read a dataset on a machine, as `uringload tune` writes it: a file of TOML, by convention `.uringload.toml`.
/// It has nothing that decides which samples come when.
///
/// Keys, all but `version` may be missing: `engine` ("uring", "threads"), `io` ("direct", "buffered"), `queue_depth`,
/// `read_size`, `io_threads`, `num_threads`, `coalesce_gap`, `memory_limit`, `cache` ("memory"). Sizes are numbers of
/// bytes, or as "256KiB".
///
/// ```
/// use uringload::config::Profile;
///
/// let profile: Profile = "version = 1\nqueue_depth = 128\nread_size = \"512KiB\"".parse()?;
/// assert_eq!(profile.to_string(), "version = 1\nqueue_depth = 128\nread_size = 524288\n");
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Profile(Vec<(&'static str, Value)>);

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// `InvalidArgument`, with the file and the place in it, for what is not a profile of this version: broken TOML, an
    /// unknown key, a value that cannot be. The system's error for a file that cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Profile> {
        let path = path.as_ref();
        let failed = |source| Error::io("cannot read the profile", source).with_path(path).with_remedy(RENEW);
        let mut text = Vec::new();
        File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut text)).map_err(failed)?;
        let refused = |what: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what).with_path(path));
        if text.len() as u64 > MOST_BYTES {
            return refused("the file is too long for a profile");
        }
        match String::from_utf8(text) {
            Ok(text) => text.parse().map_err(|error: Error| error.with_path(path)),
            Err(_) => refused("the file is no text, so it is no profile"),
        }
    }

    /// Fills in what a configuration leaves to the loader.
    #[doc(hidden)]
    pub fn fill(&self, config: &mut Config) {
        let default = Config::default();
        for (key, value) in &self.0 {
            if config.get(key) == default.get(key) {
                // It was set once, when the profile was made.
                let _ = config.set(key, value);
            }
        }
    }

    /// The profile that fills a configuration as this one is.
    #[doc(hidden)]
    pub fn of(config: &Config) -> Profile {
        let mut made = Config::default();
        let mut chosen = |key: &'static str| {
            let (value, default) = (config.get(key)?, made.get(key));
            // What only programs choose cannot be set.
            (Some(&value) != default.as_ref() && made.set(key, &value).is_ok()).then_some((key, value))
        };
        Profile(KEYS.into_iter().filter_map(&mut chosen).collect())
    }

    /// Its settings: each key, and its value as the command line takes it too.
    #[doc(hidden)]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let text = |value: &Value| match value {
            Value::Text(text) => text.clone(),
            other => other.to_string(),
        };
        self.0.iter().map(|(key, value)| (*key, text(value))).collect()
    }
}

impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Profile> {
        let refused = |at: usize, why: &str| {
            let line = text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1;
            // Some messages of the parser have lines of their own.
            let message = why.replace('\n', "; ");
            Error::new(ErrorKind::InvalidArgument, format!("line {line} of the profile: {message}"))
                .with_offset(at as u64)
                .with_remedy(RENEW)
        };
        let mut table: BTreeMap<Spanned<String>, Spanned<toml::Value>> = toml::from_str(text)
            .map_err(|error| refused(error.span().map_or(0, |span| span.start), error.message()))?;
        // First, so that a profile of another version is not called broken.
        check_version(table.remove("version").map(Spanned::into_inner).as_ref())?;
        let mut config = Config::default();
        for (key, given) in &table {
            let name = key.as_ref().as_str();
            if !KEYS.contains(&name) {
                let known = KEYS.map(|key| format!("`{key}`")).join(", ");
                let why = format!("unknown field `{name}`, expected one of `version`, {known}");
                return Err(refused(key.span().start, &why));
            }
            let at = given.span().start;
            let Some(value) = value(given.as_ref()) else {
                return Err(refused(at, &format!("{name} is neither a number nor a text")));
            };
            config
                .set(name, &value)
                .map_err(|error| refused(at, &format!("{}: {}", error.what(), error.remedy().unwrap_or_default())))?;
        }
        Ok(Profile::of(&config))
    }
}

fn check_version(version: Option<&toml::Value>) -> Result<()> {
    match version {
        Some(toml::Value::Integer(VERSION)) => Ok(()),
        Some(other) => {
            let other = other.as_integer().map_or_else(|| "no number".to_owned(), |number| number.to_string());
            let what = format!("the profile's version is {other}, and this uringload reads version {VERSION}");
            Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(RENEW))
        }
        None => Err(Error::new(ErrorKind::InvalidArgument, "the profile has no version")
            .with_remedy(format!("begin it with `version = {VERSION}`, or write it by `uringload tune DIR`"))),
    }
}

fn value(given: &toml::Value) -> Option<Value> {
    Some(match given {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => u64::try_from(*number).map_or(Value::Real(*number as f64), Value::Whole),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(flag) => (*flag).into(),
        _ => return None,
    })
}

/// As TOML.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version = {VERSION}")?;
        self.0.iter().try_for_each(|(key, value)| writeln!(f, "{key} = {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::IoChoice;
    use super::*;

    const ALL: &str = "version = 1\nengine = \"threads\"\nio = \"buffered\"\nqueue_depth = 7\nread_size = 65536\n\
                       io_threads = 3\nnum_threads = 0\ncoalesce_gap = 0\nmemory_limit = 1073741824\n\
                       cache = \"memory\"\n";

    #[test]
    fn what_is_written_is_read_and_fills_in_what_is_left_open() {
        let profile: Profile = ALL.parse().unwrap();
        assert_eq!(profile.to_string(), ALL);
        let mut config = Config::default();
        profile.fill(&mut config);
        assert_eq!(Profile::of(&config), profile);
        let mut chosen = Config { queue_depth: Some(1), io: IoChoice::Direct, ..Config::default() };
        profile.fill(&mut chosen);
        assert_eq!((chosen.queue_depth, chosen.io), (Some(1), IoChoice::Direct), "what the user says wins");
        assert_eq!((chosen.io_threads, chosen.coalesce_gap), (Some(3), Some(0)));
        let mut untouched = Config::default();
        "version = 1".parse::<Profile>().unwrap().fill(&mut untouched);
        assert_eq!(untouched, Config::default());
    }

    #[test]
    fn what_is_no_profile_is_told_with_its_place() {
        for (text, line, told) in [
            ("version = 1\nqueue_dept = 3\n", Some(2), "unknown field `queue_dept`, expected one of `version`"),
            ("version = 1\nqueue_depth = 0\n", Some(2), "queue_depth cannot be 0: give a whole number from 1 on"),
            ("version = 1\nqueue_depth = \"x\"\n", Some(2), "queue_depth cannot be \"x\""),
            ("version = 1\n\nengine = \"sim\"", Some(3), "There are auto, uring, threads"),
            ("version = 1\nread_size = -1", Some(2), "read_size cannot be -1: give bytes"),
            ("version = 1\nread_size = \"1 fathom\"", Some(2), "no unit of size"),
            ("version = 1\ncache = []", Some(2), "neither a number nor a text"),
            ("version = 1\nio = \"direct\"\nio = \"direct\"", Some(3), "duplicate key"),
            ("version = 1\nthis is no profile", Some(2), ""),
            ("version = 2\nmagic = true", None, "version is 2"),
            ("version = \"1\"", None, "version is no number"),
            ("", None, "no version"),
        ] {
            let error = text.parse::<Profile>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.what().contains(told), "{text:?}: {error}");
            assert!(!error.what().contains('\n'), "{error}");
            assert!(line.is_none_or(|line| error.what().starts_with(&format!("line {line} of"))), "{text:?}: {error}");
            assert!(error.remedy().is_some_and(|remedy| remedy.contains("uringload tune")), "{error}");
        }
    }

    #[test]
    fn files_that_are_none_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        assert_eq!(Profile::load(&path).unwrap_err().kind(), ErrorKind::NotFound);
        for (bytes, told) in [(vec![0xff; 9], "no text"), (vec![b'#'; 70_000], "too long"), (b"x".to_vec(), "line 1")] {
            std::fs::write(&path, bytes).unwrap();
            let error = Profile::load(&path).unwrap_err();
            assert!(error.what().contains(told) && error.path() == Some(&path), "{error}");
        }
        std::fs::write(&path, ALL).unwrap();
        assert_eq!(Profile::load(&path).unwrap(), ALL.parse().unwrap());
    }
}

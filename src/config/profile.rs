//! A profile: how the samples of a dataset are read best on a machine, as `uringload tune` found it, in a file.

use super::{Cache, Config, EngineChoice, IoChoice};
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::str::FromStr;
use uringload_core::parse_bytes;

/// The version that is written, and the only one that is read.
const VERSION: i64 = 1;

/// A profile is some lines. Who names a dataset by mistake is told so before it is in memory.
const MOST_BYTES: u64 = 64 << 10;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile(Settings);

/// The file, as it is parsed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Of the file; looked at before the rest.
    #[serde(rename = "version")]
    _version: i64,
    engine: Option<Engine>,
    io: Option<Io>,
    queue_depth: Option<NonZeroUsize>,
    #[serde(default, deserialize_with = "size")]
    read_size: Option<u64>,
    io_threads: Option<NonZeroUsize>,
    num_threads: Option<usize>,
    #[serde(default, deserialize_with = "size")]
    coalesce_gap: Option<u64>,
    #[serde(default, deserialize_with = "size")]
    memory_limit: Option<u64>,
    cache: Option<Kept>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Uring,
    Threads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Io {
    Direct,
    Buffered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kept {
    Memory,
}

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
        if config.engine == EngineChoice::Auto {
            config.engine = match self.0.engine {
                None => EngineChoice::Auto,
                Some(Engine::Uring) => EngineChoice::Uring,
                Some(Engine::Threads) => EngineChoice::Threads,
            };
        }
        if config.io == IoChoice::Auto {
            config.io = match self.0.io {
                None => IoChoice::Auto,
                Some(Io::Direct) => IoChoice::Direct,
                Some(Io::Buffered) => IoChoice::Buffered,
            };
        }
        if config.cache == Cache::Off && self.0.cache.is_some() {
            config.cache = Cache::Memory;
        }
        config.queue_depth = config.queue_depth.or(self.0.queue_depth.map(NonZeroUsize::get));
        config.read_size = config.read_size.or(self.0.read_size.and_then(|bytes| usize::try_from(bytes).ok()));
        config.io_threads = config.io_threads.or(self.0.io_threads.map(NonZeroUsize::get));
        config.num_threads = config.num_threads.or(self.0.num_threads);
        config.coalesce_gap = config.coalesce_gap.or(self.0.coalesce_gap);
        config.memory_limit = config.memory_limit.or(self.0.memory_limit);
    }

    /// The profile that fills a configuration as this one is.
    #[doc(hidden)]
    pub fn of(config: &Config) -> Profile {
        Profile(Settings {
            _version: VERSION,
            engine: match config.engine {
                EngineChoice::Uring => Some(Engine::Uring),
                EngineChoice::Threads => Some(Engine::Threads),
                EngineChoice::Auto | EngineChoice::Sim => None,
            },
            io: match config.io {
                IoChoice::Auto => None,
                IoChoice::Direct => Some(Io::Direct),
                IoChoice::Buffered => Some(Io::Buffered),
            },
            queue_depth: config.queue_depth.and_then(NonZeroUsize::new),
            read_size: config.read_size.map(|bytes| bytes as u64),
            io_threads: config.io_threads.and_then(NonZeroUsize::new),
            num_threads: config.num_threads,
            coalesce_gap: config.coalesce_gap,
            memory_limit: config.memory_limit,
            cache: match config.cache {
                Cache::Off => None,
                Cache::Memory => Some(Kept::Memory),
            },
        })
    }

    /// Its settings: each key, and its value as the command line takes it too.
    #[doc(hidden)]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let engine = self.0.engine.map(|engine| match engine {
            Engine::Uring => "uring".to_owned(),
            Engine::Threads => "threads".to_owned(),
        });
        let io = self.0.io.map(|io| match io {
            Io::Direct => "direct".to_owned(),
            Io::Buffered => "buffered".to_owned(),
        });
        let all = [
            ("engine", engine),
            ("io", io),
            ("queue_depth", self.0.queue_depth.map(|number| number.to_string())),
            ("read_size", self.0.read_size.map(|bytes| bytes.to_string())),
            ("io_threads", self.0.io_threads.map(|number| number.to_string())),
            ("num_threads", self.0.num_threads.map(|number| number.to_string())),
            ("coalesce_gap", self.0.coalesce_gap.map(|bytes| bytes.to_string())),
            ("memory_limit", self.0.memory_limit.map(|bytes| bytes.to_string())),
            ("cache", self.0.cache.map(|Kept::Memory| "memory".to_owned())),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Profile> {
        let refused = |error: &toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1;
            // Some of its messages have lines of their own.
            let message = error.message().replace('\n', "; ");
            Error::new(ErrorKind::InvalidArgument, format!("line {line} of the profile: {message}"))
                .with_offset(at as u64)
                .with_remedy(RENEW)
        };
        // By itself, so that a profile of another version is not called broken.
        let table: toml::Table = text.parse().map_err(|error| refused(&error))?;
        match table.get("version") {
            Some(toml::Value::Integer(VERSION)) => {}
            Some(other) => {
                let other = other.as_integer().map_or_else(|| "no number".to_owned(), |number| number.to_string());
                let what = format!("the profile's version is {other}, and this uringload reads version {VERSION}");
                return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(RENEW));
            }
            None => {
                let what = "the profile has no version";
                return Err(Error::new(ErrorKind::InvalidArgument, what)
                    .with_remedy(format!("begin it with `version = {VERSION}`, or write it by `uringload tune DIR`")));
            }
        }
        toml::from_str(text).map(Profile).map_err(|error| refused(&error))
    }
}

/// As TOML.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("version = {VERSION}\n");
        for (key, value) in self.settings() {
            let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { writeln!(text, "{key} = {value}")? } else { writeln!(text, "{key} = {value:?}")? }
        }
        f.write_str(&text)
    }
}

/// A number of bytes, or a text such as "256KiB".
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<u64>, D::Error> {
    struct Size;

    impl serde::de::Visitor<'_> for Size {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of bytes, or a text such as \"256KiB\"")
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> std::result::Result<u64, E> {
            u64::try_from(number).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<u64, E> {
            parse_bytes(text).map_err(E::custom)
        }
    }

    deserializer.deserialize_any(Size).map(Some)
}

#[cfg(test)]
mod tests {
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
            ("version = 1\nqueue_depth = 0\n", Some(2), "nonzero"),
            ("version = 1\nqueue_depth = \"x\"\n", Some(2), "invalid type"),
            ("version = 1\n\nengine = \"sim\"", Some(3), "`uring` or `threads`"),
            ("version = 1\nread_size = -1", Some(2), "a number of bytes"),
            ("version = 1\nread_size = \"1 fathom\"", Some(2), "no unit of size"),
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

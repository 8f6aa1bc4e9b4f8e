//! Choices by their names, as the command line, Python and C spell them.

use super::{EngineChoice, IoChoice, OnError, Shuffle};
use crate::{Error, ErrorKind};
use std::str::FromStr;

/// How many samples a window has, where only "window" is said: as many as a shard.
const WINDOW: u64 = uringload_formats::SHARD_SAMPLES;

fn unknown(what: &str, given: &str, known: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{what} cannot be {given:?}"))
        .with_remedy(format!("give one of {known}"))
}

impl FromStr for EngineChoice {
    type Err = Error;

    /// "auto", "uring" or "threads".
    fn from_str(text: &str) -> Result<EngineChoice, Error> {
        Ok(match text {
            "auto" => EngineChoice::Auto,
            "uring" => EngineChoice::Uring,
            "threads" => EngineChoice::Threads,
            _ => return Err(unknown("engine", text, "auto, uring, threads")),
        })
    }
}

impl FromStr for IoChoice {
    type Err = Error;

    /// "auto", "direct" or "buffered".
    fn from_str(text: &str) -> Result<IoChoice, Error> {
        Ok(match text {
            "auto" => IoChoice::Auto,
            "direct" => IoChoice::Direct,
            "buffered" => IoChoice::Buffered,
            _ => return Err(unknown("io", text, "auto, direct, buffered")),
        })
    }
}

impl FromStr for OnError {
    type Err = Error;

    /// "raise", "warn", "skip" or "replace".
    fn from_str(text: &str) -> Result<OnError, Error> {
        Ok(match text {
            "raise" => OnError::Raise,
            "warn" => OnError::Warn,
            "skip" => OnError::Skip,
            "replace" => OnError::Replace,
            _ => return Err(unknown("on_error", text, "raise, warn, skip, replace")),
        })
    }
}

impl FromStr for Shuffle {
    type Err = Error;

    /// "off", "auto", "full", "window", "window:SAMPLES", "shards", "shards:MIXED" or "pieces:SAMPLES:MIXED".
    fn from_str(text: &str) -> Result<Shuffle, Error> {
        let refuse =
            || unknown("shuffle", text, "off, auto, full, window[:SAMPLES], shards[:MIXED], pieces:SAMPLES:MIXED");
        let number = |text: &str| text.parse::<u64>().ok().filter(|&number| number > 0).ok_or_else(refuse);
        Ok(match text.split_once(':') {
            None => match text {
                "off" => Shuffle::Off,
                "auto" => Shuffle::Auto,
                "full" => Shuffle::Full,
                "window" => Shuffle::Window(WINDOW),
                "shards" => Shuffle::Shards { mixed: 1 },
                _ => return Err(refuse()),
            },
            Some(("window", samples)) => Shuffle::Window(number(samples)?),
            Some(("shards", mixed)) => Shuffle::Shards { mixed: number(mixed)? },
            Some(("pieces", both)) => {
                let (samples, mixed) = both.split_once(':').ok_or_else(refuse)?;
                Shuffle::Pieces { samples: number(samples)?, mixed: number(mixed)? }
            }
            Some(_) => return Err(refuse()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_have_names() {
        assert_eq!(["auto", "uring", "threads"].map(|name| name.parse().ok()), {
            [EngineChoice::Auto, EngineChoice::Uring, EngineChoice::Threads].map(Some)
        });
        assert_eq!("window:100".parse::<Shuffle>().ok(), Some(Shuffle::Window(100)));
        assert_eq!("shards".parse::<Shuffle>().ok(), Some(Shuffle::Shards { mixed: 1 }));
        assert_eq!("pieces:128:16".parse::<Shuffle>().ok(), Some(Shuffle::Pieces { samples: 128, mixed: 16 }));
        for wrong in [
            "",
            "steam",
            "pieces",
            "pieces:128",
            "pieces:0:1",
            "pieces:1:0",
            "window:",
            "window:0",
            "shards:x",
            "full:1",
            "Auto",
        ] {
            assert!(wrong.parse::<Shuffle>().is_err() && wrong.parse::<EngineChoice>().is_err(), "{wrong}");
            let error = wrong.parse::<OnError>().unwrap_err();
            assert!(error.remedy().is_some_and(|remedy| remedy.contains("raise, warn")), "{error}");
            assert!(wrong.parse::<IoChoice>().is_err());
        }
    }
}

//! Choices by their names, as the command line, Python and C spell them.

use super::value::{Kind, Settable, Value, text};
use super::{EngineChoice, IoChoice, OnError, Shuffle};
use crate::{Error, ErrorKind, Result};
use std::str::FromStr;
use uringload_formats::inspect::nearest;

/// How many samples a window has, where only "window" is said: as many as a shard.
const WINDOW: u64 = uringload_formats::SHARD_SAMPLES;

fn unknown(what: &str, given: &str, known: &[&str]) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{what} cannot be {given:?}")).with_remedy(nearest(given, known))
}

/// A number where a way to shuffle stands.
fn a_seed(seed: u64) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, format!("shuffle cannot be {seed}, which is a seed"));
    error.with_remedy(format!("give the seed by its own name: --shuffle --seed {seed}, or shuffle=True, seed={seed}"))
}

/// Choices of one word: what they are for, and the words. What has a word behind `programs` is no choice of people.
macro_rules! words {
    (
        $( $what:literal $type:ident: $( $word:literal $variant:ident ),+ $(; programs: $own:literal $hidden:ident)?; )+
    ) => { $(
        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<$type> {
                match text {
                    $( $word => Ok($type::$variant), )+
                    _ => Err(unknown($what, text, &[$( $word ),+])),
                }
            }
        }

        impl Settable for $type {
            fn of(name: &str, kind: Kind, value: &Value) -> Result<$type> {
                text(name, kind, value)?.parse()
            }

            fn value(&self) -> Value {
                match self {
                    $( $type::$variant => $word.into(), )+
                    $( $type::$hidden => $own.into(), )?
                }
            }
        }
    )+ };
}

words! {
    "engine" EngineChoice: "auto" Auto, "uring" Uring, "threads" Threads; programs: "sim" Sim;
    "io" IoChoice: "auto" Auto, "direct" Direct, "buffered" Buffered;
    "on_error" OnError: "raise" Raise, "warn" Warn, "skip" Skip, "replace" Replace;
}

impl Settable for Shuffle {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<Shuffle> {
        match value {
            Value::Flag(shuffle) => Ok((*shuffle).into()),
            Value::Whole(seed) => Err(a_seed(*seed)),
            _ => text(name, kind, value)?.parse(),
        }
    }

    fn value(&self) -> Value {
        match self {
            Shuffle::Off => "off".into(),
            Shuffle::Auto => "auto".into(),
            Shuffle::Full => "full".into(),
            Shuffle::Window(samples) => Value::Text(format!("window:{samples}")),
            Shuffle::Shards { mixed } => Value::Text(format!("shards:{mixed}")),
            Shuffle::Pieces { samples, mixed } => Value::Text(format!("pieces:{samples}:{mixed}")),
        }
    }
}

impl FromStr for Shuffle {
    type Err = Error;

    /// "off", "auto", "full", "window", "window:SAMPLES", "shards", "shards:MIXED" or "pieces:SAMPLES:MIXED".
    fn from_str(text: &str) -> Result<Shuffle> {
        let known = ["off", "auto", "full", "window[:SAMPLES]", "shards[:MIXED]", "pieces:SAMPLES:MIXED"];
        let refuse = || unknown("shuffle", text, &known);
        let number = |part: &str| {
            let no_number = || {
                let what = format!("shuffle cannot be {text:?}: {part:?} is no number from 1 on");
                Error::new(ErrorKind::InvalidArgument, what).with_remedy(nearest(text, &known))
            };
            part.parse::<u64>().ok().filter(|&number| number > 0).ok_or_else(no_number)
        };
        Ok(match text.split_once(':') {
            None => match text {
                "off" => Shuffle::Off,
                "auto" => Shuffle::Auto,
                "full" => Shuffle::Full,
                "window" => Shuffle::Window(WINDOW),
                "shards" => Shuffle::Shards { mixed: 1 },
                _ => return Err(text.parse().map_or_else(|_| refuse(), a_seed)),
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

    #[test]
    fn a_number_is_a_seed() {
        let whole = Shuffle::of("shuffle", Kind::Word, &Value::Whole(42)).unwrap_err();
        for error in [whole, "42".parse::<Shuffle>().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let remedy = error.remedy().unwrap();
            assert!(remedy.contains("--shuffle --seed 42") && remedy.contains("shuffle=True, seed=42"), "{error}");
        }
    }
}

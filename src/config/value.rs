//! Values of settings, as the faces pass them by name: which kinds there are, and what each type takes.

use super::{Cache, EngineChoice, IoChoice, MaxFailures, OnError, Shuffle};
use crate::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::time::Duration;
use uringload_core::parse_bytes;

/// The longest time that a number of seconds can mean.
const SECONDS_MAX: f64 = 1e15;

/// A setting's value, as JSON, Python or a command line has it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// None: the loader chooses.
    Null,
    /// True or false.
    Flag(bool),
    /// A whole number.
    Whole(u64),
    /// Another number.
    Real(f64),
    /// Text: a word, a path, or bytes such as "4GiB".
    Text(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Flag(flag) => flag.fmt(f),
            Value::Whole(number) => number.fmt(f),
            Value::Real(number) => number.fmt(f),
            Value::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Whole(number)
    }
}

impl From<i32> for Value {
    /// A negative number is no whole number from 0 on.
    fn from(number: i32) -> Value {
        u64::try_from(number).map_or(Value::Real(number.into()), Value::Whole)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Real(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// What values a setting takes, and in which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// True or false.
    Flag,
    /// A whole number.
    Whole,
    /// A number of bytes, or a text such as "4GiB".
    Bytes,
    /// A number of seconds.
    Seconds,
    /// A word of a few.
    Word,
    /// A path.
    Path,
    /// A number of samples, or a share of them.
    Failures,
}

impl Kind {
    /// What to give, for messages.
    fn wanted(self) -> &'static str {
        match self {
            Kind::Flag => "true or false",
            Kind::Whole => "a whole number from 0 on",
            Kind::Bytes => "bytes, or such as \"4GiB\"",
            Kind::Seconds => "a number of seconds, or null",
            Kind::Word | Kind::Path => "a text",
            Kind::Failures => "a number of samples, or a share of them such as 0.01",
        }
    }
}

/// A setting by its name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The name that every face uses.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it does.
    pub help: &'static str,
}

/// A type that settings have.
pub(super) trait Settable: Sized {
    /// The value of a setting of this name and kind.
    ///
    /// # Errors
    /// `InvalidArgument` for what it cannot be.
    fn of(name: &str, kind: Kind, value: &Value) -> Result<Self>;
}

/// The error for a value that a setting cannot have.
fn wrong(name: &str, value: &Value, wanted: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{name} cannot be {value}")).with_remedy(format!("give {wanted}"))
}

impl Settable for bool {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<bool> {
        let Value::Flag(flag) = value else { return Err(wrong(name, value, kind.wanted())) };
        Ok(*flag)
    }
}

impl Settable for u64 {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<u64> {
        match value {
            Value::Whole(number) => Ok(*number),
            Value::Text(text) if kind == Kind::Bytes => {
                parse_bytes(text).map_err(|_| wrong(name, value, kind.wanted()))
            }
            _ => Err(wrong(name, value, kind.wanted())),
        }
    }
}

impl Settable for usize {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<usize> {
        usize::try_from(u64::of(name, kind, value)?).map_err(|_| wrong(name, value, "a smaller number"))
    }
}

impl Settable for Duration {
    /// As long as it takes, if it is null.
    fn of(name: &str, kind: Kind, value: &Value) -> Result<Duration> {
        let seconds = match value {
            Value::Null => return Ok(Duration::MAX),
            Value::Whole(seconds) => *seconds as f64,
            Value::Real(seconds) => *seconds,
            _ => return Err(wrong(name, value, kind.wanted())),
        };
        let is_time = (0.0..SECONDS_MAX).contains(&seconds);
        if is_time { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong(name, value, kind.wanted())) }
    }
}

impl Settable for String {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<String> {
        let Value::Text(text) = value else { return Err(wrong(name, value, kind.wanted())) };
        Ok(text.clone())
    }
}

impl Settable for PathBuf {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<PathBuf> {
        String::of(name, kind, value).map(PathBuf::from)
    }
}

impl<T: Settable> Settable for Option<T> {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<Option<T>> {
        if *value == Value::Null { Ok(None) } else { T::of(name, kind, value).map(Some) }
    }
}

impl Settable for Shuffle {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<Shuffle> {
        match value {
            Value::Flag(shuffle) => Ok((*shuffle).into()),
            _ => String::of(name, kind, value)?.parse(),
        }
    }
}

impl Settable for Cache {
    fn of(name: &str, _kind: Kind, value: &Value) -> Result<Cache> {
        match value {
            Value::Null => Ok(Cache::Off),
            Value::Text(word) if word == "memory" => Ok(Cache::Memory),
            _ => Err(wrong(name, value, "\"memory\" or null")),
        }
    }
}

impl Settable for MaxFailures {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<MaxFailures> {
        match value {
            Value::Whole(count) => Ok(MaxFailures::Count(*count)),
            Value::Real(share) => Ok(MaxFailures::Fraction(*share)),
            _ => Err(wrong(name, value, kind.wanted())),
        }
    }
}

/// Types that are words by themselves.
macro_rules! words {
    ($($type:ty)+) => { $(
        impl Settable for $type {
            fn of(name: &str, kind: Kind, value: &Value) -> Result<$type> {
                String::of(name, kind, value)?.parse()
            }
        }
    )+ };
}

words!(EngineChoice IoChoice OnError);

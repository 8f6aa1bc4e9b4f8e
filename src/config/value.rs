//! Values of settings, as the faces pass them by name: which kinds there are, and what each type takes.

use super::{Cache, MaxFailures};
use crate::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
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
    /// A path, which need not be text.
    Path(PathBuf),
}

impl Value {
    /// As a number of bytes, for what has this name.
    ///
    /// # Errors
    /// `InvalidArgument` for what is none.
    #[doc(hidden)]
    pub fn bytes(&self, name: &str) -> Result<u64> {
        u64::of(name, Kind::Bytes, self)
    }

    /// As a number of seconds, for what has this name. `None`: null.
    ///
    /// # Errors
    /// `InvalidArgument` for what is none.
    #[doc(hidden)]
    pub fn seconds(&self, name: &str) -> Result<Option<Duration>> {
        Option::of(name, Kind::Seconds, self)
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Flag(flag) => flag.fmt(f),
            Value::Whole(number) => number.fmt(f),
            Value::Real(number) => number.fmt(f),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Path(path) => write!(f, "{path:?}"),
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

impl From<&Path> for Value {
    fn from(path: &Path) -> Value {
        Value::Path(path.to_owned())
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
    /// A whole number from 1 on.
    Count,
    /// A number of bytes, or a text such as "4GiB".
    Bytes,
    /// A number of seconds.
    Seconds,
    /// A word of a few.
    Word,
    /// A path.
    Path,
    /// A folder and how many bytes it may hold, such as "/nvme/cache:100GiB".
    Room,
    /// A number of samples, or a share of them.
    Failures,
}

impl Kind {
    /// What to give, for messages.
    pub(super) fn wanted(self) -> &'static str {
        match self {
            Kind::Flag => "true or false",
            Kind::Whole => "a whole number from 0 on",
            Kind::Count => "a whole number from 1 on",
            Kind::Bytes => "bytes, or such as \"4GiB\"",
            Kind::Seconds => "a number of seconds, or null",
            Kind::Word | Kind::Path => "a text",
            Kind::Room => "a folder of a local disk and bytes, such as \"/nvme/cache:100GiB\"",
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
    /// What a setting of this name and kind is by a value.
    ///
    /// # Errors
    /// `InvalidArgument` for what it cannot be.
    fn of(name: &str, kind: Kind, value: &Value) -> Result<Self>;

    /// The value by which it is set.
    fn value(&self) -> Value;
}

/// The error for a value that a setting cannot have.
pub(super) fn wrong(name: &str, value: &Value, wanted: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{name} cannot be {value}")).with_remedy(format!("give {wanted}"))
}

/// The text of a value.
pub(super) fn text<'a>(name: &str, kind: Kind, value: &'a Value) -> Result<&'a str> {
    let Value::Text(text) = value else { return Err(wrong(name, value, kind.wanted())) };
    Ok(text)
}

impl Settable for bool {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<bool> {
        let Value::Flag(flag) = value else { return Err(wrong(name, value, kind.wanted())) };
        Ok(*flag)
    }

    fn value(&self) -> Value {
        Value::Flag(*self)
    }
}

impl Settable for u64 {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<u64> {
        match value {
            Value::Whole(number) if kind != Kind::Count || *number > 0 => Ok(*number),
            Value::Text(text) if kind == Kind::Bytes => {
                parse_bytes(text).map_err(|why| wrong(name, value, &format!("{}: {why}", kind.wanted())))
            }
            _ => Err(wrong(name, value, kind.wanted())),
        }
    }

    fn value(&self) -> Value {
        Value::Whole(*self)
    }
}

impl Settable for usize {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<usize> {
        usize::try_from(u64::of(name, kind, value)?).map_err(|_| wrong(name, value, "a smaller number"))
    }

    fn value(&self) -> Value {
        Value::Whole(*self as u64)
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

    fn value(&self) -> Value {
        if *self == Duration::MAX { Value::Null } else { Value::Real(self.as_secs_f64()) }
    }
}

impl Settable for PathBuf {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<PathBuf> {
        match value {
            Value::Path(path) => Ok(path.clone()),
            _ => text(name, kind, value).map(PathBuf::from),
        }
    }

    fn value(&self) -> Value {
        Value::Path(self.clone())
    }
}

impl<T: Settable> Settable for Option<T> {
    fn of(name: &str, kind: Kind, value: &Value) -> Result<Option<T>> {
        if *value == Value::Null { Ok(None) } else { T::of(name, kind, value).map(Some) }
    }

    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Null, Settable::value)
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

    fn value(&self) -> Value {
        match self {
            Cache::Off => Value::Null,
            Cache::Memory => "memory".into(),
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

    fn value(&self) -> Value {
        match self {
            MaxFailures::Count(count) => Value::Whole(*count),
            MaxFailures::Fraction(share) => Value::Real(*share),
        }
    }
}

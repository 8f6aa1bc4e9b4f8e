//! Why a request gave nothing: a class for whoever decides whether to ask again, a sentence and a remedy for people.

use crate::{Error, ErrorKind};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What a failure says about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The server asks for fewer requests, or cannot answer now: 408, 429, 500, 502, 503, 504. It says nothing about
    /// the object.
    Throttled,
    /// The way to the server broke: refused, reset, no progress, a name that is not resolved.
    Storage,
    /// What answers is no server of objects: it does not speak HTTP, sends in a circle, or is a proxy with a page for
    /// people. That seldom passes by itself.
    Foreign,
    /// The credentials have expired, and no newer ones are there yet.
    Expired,
    /// There is no such object.
    Missing,
    /// There is no such bucket, so that no object of it can be read.
    NoBucket,
    /// The server knows the object, and does not give it to these credentials.
    Refused,
    /// The object is another one than when it was listed.
    Changed,
    /// The answer contradicts the question or itself.
    Corrupt,
    /// The certificate of the server is not trusted, or it speaks no TLS: no object can be read there.
    Untrusted,
    /// The server lacks what is needed, such as ranges.
    Unavailable,
    /// The question cannot be asked as it is.
    Invalid,
    /// The reader itself ended the request.
    Interrupted,
}

/// Why a request gave nothing. Its text names no secret: neither user, query nor fragment of a URL.
#[derive(Clone, Debug)]
pub struct Failure {
    class: Class,
    what: Cow<'static, str>,
    remedy: Option<Cow<'static, str>>,
    code: Option<Box<str>>,
    after: Option<Duration>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Failure {
    /// A failure of `class`; `what` is a statement without the name of the object.
    pub fn new(class: Class, what: impl Into<Cow<'static, str>>) -> Failure {
        Failure { class, what: what.into(), remedy: None, code: None, after: None, source: None }
    }

    /// The way to the server broke in a call of the system. If `source` carries a failure, this is that.
    pub fn io(what: impl Into<Cow<'static, str>>, source: io::Error) -> Failure {
        if let Some(carried) = source.get_ref().and_then(|carried| carried.downcast_ref::<Failure>()) {
            return carried.clone();
        }
        Failure::new(Class::Storage, what).with_source(source)
    }

    /// Adds what a user can do about it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }

    /// Adds the server's own word for it.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Failure {
        self.code = (!code.is_empty()).then(|| code.into());
        self
    }

    /// Adds how long the server asks to wait.
    #[must_use]
    pub fn with_after(mut self, after: Option<Duration>) -> Failure {
        self.after = after;
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Failure {
        self.source = Some(Arc::new(source));
        self
    }

    /// Says in front where it happened.
    #[must_use]
    pub fn within(mut self, place: &str) -> Failure {
        self.what = format!("{place}: {}", self.what).into();
        self
    }

    /// What it says about the next attempt.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The server's own word for it, such as `AccessDenied`.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// How long the server asks to wait before the next attempt (`Retry-After`).
    pub fn after(&self) -> Option<Duration> {
        self.after
    }

    /// The library's error of the object or folder that `path` names.
    pub fn into_error(self, path: &Path) -> Error {
        self.into_placeless_error().with_path(path)
    }

    /// The library's error of what belongs to no object.
    pub fn into_placeless_error(self) -> Error {
        let kind = match self.class {
            Class::Throttled | Class::Storage | Class::Foreign => ErrorKind::Io,
            Class::Expired | Class::Refused => ErrorKind::PermissionDenied,
            Class::Missing | Class::NoBucket => ErrorKind::NotFound,
            Class::Changed => ErrorKind::Changed,
            Class::Corrupt => ErrorKind::Corrupt,
            Class::Untrusted | Class::Unavailable => ErrorKind::Unavailable,
            Class::Invalid => ErrorKind::InvalidArgument,
            Class::Interrupted => ErrorKind::Timeout,
        };
        let mut error = Error::new(kind, self.what.clone());
        if let Some(remedy) = self.remedy.clone() {
            error = error.with_remedy(remedy);
        }
        match self.source {
            Some(source) => error.with_source(Shared(source)),
            None => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

// The text has the cause already, so `source` gives none: as `Error` of the core crate does.
impl std::error::Error for Failure {}

/// A cause that several errors share.
#[derive(Debug)]
struct Shared(Arc<dyn std::error::Error + Send + Sync>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Shared {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_all_that_the_failure_knew() {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        let failure = Failure::io("the body broke off", broken).with_remedy("look at the server");
        assert_eq!(failure.to_string(), "the body broke off: connection reset");
        let error = failure.into_error(Path::new("s3://b/k"));
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.to_string(), "s3://b/k: the body broke off: connection reset\nhelp: look at the server");
    }

    #[test]
    fn it_travels_in_an_error_of_the_system() {
        let failure = Failure::new(Class::Throttled, "slow down").with_after(Some(Duration::from_secs(3)));
        let carried = io::Error::other(failure);
        let found = carried.get_ref().and_then(|inner| inner.downcast_ref::<Failure>()).unwrap();
        assert_eq!((found.class(), found.after()), (Class::Throttled, Some(Duration::from_secs(3))));
    }
}

//! What went wrong: a kind for programs; for people a sentence, the file, the byte, the cause and a remedy.

use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The stable part of an error, for programs to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or a combination of arguments that cannot work.
    InvalidArgument,
    /// A file or folder does not exist, or no longer does.
    NotFound,
    /// The process has no permission to read a file or folder.
    PermissionDenied,
    /// There are no samples where some were expected.
    Empty,
    /// A path is not the kind of file or folder that it should be.
    WrongFileType,
    /// A file is shorter than its index says, or its last record is incomplete.
    Truncated,
    /// A file's content violates its format.
    Corrupt,
    /// A file is no longer the one that was indexed: it was replaced, or written to.
    Changed,
    /// One batch cannot fit in the memory limit.
    MemoryLimit,
    /// The consumer holds too many batches: no memory is left for the next one.
    Starved,
    /// An engine, mode or device that was chosen by name is not available here.
    Unavailable,
    /// A read, or a later step, took longer than the timeout allows.
    Timeout,
    /// More samples failed than `max_failures` allows.
    TooManyFailures,
    /// A saved state does not belong to this dataset or this order.
    StateMismatch,
    /// The disk or the file system reported an error.
    Io,
    /// A GPU or its driver failed.
    Device,
    /// The user's own code could not use a sample that was read.
    Transform,
    /// A bug of this library, such as a thread that ended unexpectedly, or of another program's dataset, such as a
    /// panic in its parser. The message says whose.
    Internal,
}

/// An error of this library.
///
/// `Display` is `PATH:OFFSET: what: cause`, without the parts that are not known, then a line `help: remedy` for each
/// remedy. Control characters are escaped, so no part can add a line or control a terminal.
/// [`headline`](Error::headline) is the first line alone.
///
/// The text includes the cause, so `std::error::Error::source` returns none: a reporter that walks the chain would
/// print it twice. Programs get it from [`cause`](Error::cause).
///
/// An error whose cause is another [`Error`] takes the path, the offset and the remedy that it lacks from that cause.
///
/// Cheap to clone: a failed read may be the error of several samples.
#[derive(Clone, thiserror::Error)]
#[error("{}{}", self.headline(), Help(self))]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    what: Cow<'static, str>,
    path: Option<PathBuf>,
    offset: Option<u64>,
    remedy: Option<Cow<'static, str>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// Whether it is delivered in addition to the batches of a loader, in place of none of them.
    beside: bool,
}

/// The error of something that this build lacks, because `feature` of the crates is off.
pub fn not_built_in(what: &str, feature: &str) -> Error {
    let error = Error::new(ErrorKind::Unavailable, format!("this uringload was built without {what}"));
    // `full` is without the many crates that stores take.
    let (full, who) = match feature {
        "remote" => ("", "wheels and released binaries have it"),
        _ => (", or with `full`", "the command line, the Python package and the C library have it"),
    };
    error.with_remedy(format!(
        "build it with the feature `{feature}`{full}: uringload = {{ version = \"{}\", features = \
         [\"{feature}\"] }}; {who}",
        env!("CARGO_PKG_VERSION")
    ))
}

impl Error {
    /// An error of `kind`. `what` is a statement without a file name, such as "the header is cut short".
    pub fn new(kind: ErrorKind, what: impl Into<Cow<'static, str>>) -> Error {
        let what = what.into();
        Error(Arc::new(Inner { kind, what, path: None, offset: None, remedy: None, source: None, beside: false }))
    }

    /// An error of the system. Its kind follows from `source`. If that carries an [`Error`], this is that error.
    pub fn io(what: impl Into<Cow<'static, str>>, source: std::io::Error) -> Error {
        if let Some(carried) = source.get_ref().and_then(|carried| carried.downcast_ref::<Error>()) {
            return carried.clone();
        }
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::IsADirectory => ErrorKind::WrongFileType,
            std::io::ErrorKind::OutOfMemory => ErrorKind::MemoryLimit,
            _ => ErrorKind::Io,
        };
        Error::new(kind, what).with_source(source)
    }

    /// Adds the file or folder.
    #[must_use]
    pub fn with_path(mut self, path: impl AsRef<Path>) -> Error {
        Arc::make_mut(&mut self.0).path = Some(path.as_ref().to_path_buf());
        self
    }

    /// Adds the byte offset in the file.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Error {
        Arc::make_mut(&mut self.0).offset = Some(offset);
        self
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Error {
        Arc::make_mut(&mut self.0).remedy = Some(remedy.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// Marks an error that is delivered in addition to the batches of a loader, in place of none of them.
    #[doc(hidden)]
    #[must_use]
    pub fn beside_batches(mut self) -> Error {
        Arc::make_mut(&mut self.0).beside = true;
        self
    }

    /// Whether it is delivered in addition to the batches of a loader, in place of none of them.
    #[doc(hidden)]
    pub fn is_beside_batches(&self) -> bool {
        self.0.beside
    }

    /// The kind, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What went wrong, as a sentence without the path, the offset, the cause and the remedy.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The file or folder.
    pub fn path(&self) -> Option<&Path> {
        self.place().0
    }

    /// The byte offset in the file.
    pub fn offset(&self) -> Option<u64> {
        self.place().1
    }

    /// What the user can do about it.
    pub fn remedy(&self) -> Option<&str> {
        self.remedies().next()
    }

    /// The cause.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }

    /// The error in one line, without the remedy: for tables, lists and logs.
    pub fn headline(&self) -> Headline<'_> {
        Headline { error: self, above: Place::default() }
    }

    /// The cause, where it is an error of this library too.
    fn inner(&self) -> Option<&Error> {
        self.0.source.as_deref()?.downcast_ref()
    }

    fn place(&self) -> Place<'_> {
        let cause = self.inner().map(Error::place).unwrap_or_default();
        match (self.0.path.as_deref(), self.0.offset) {
            (None, offset) => (cause.0, offset.or(cause.1)),
            (Some(path), None) if cause.0.is_none_or(|of_cause| of_cause == path) => (Some(path), cause.1),
            own => own,
        }
    }

    /// Its own remedy, then those of its causes.
    fn remedies(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self), |error| error.inner()).filter_map(|error| error.0.remedy.as_deref())
    }
}

/// The path and the offset, where they are known.
type Place<'a> = (Option<&'a Path>, Option<u64>);

/// An [`Error`] in one line, without the remedy.
pub struct Headline<'a> {
    error: &'a Error,
    /// The place, in the text before it.
    above: Place<'a>,
}

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (error, place) = (self.error, self.error.place());
        let (path, offset) = self.above;
        if place.1 != offset || place.0.is_some_and(|of_cause| Some(of_cause) != path) {
            write_place(f, place)?;
        }
        OneLine(f).write_str(error.what())?;
        match (error.inner(), error.cause()) {
            (Some(error), _) => write!(f, ": {}", Headline { error, above: place }),
            (None, Some(cause)) => write!(OneLine(f), ": {cause}"),
            (None, None) => Ok(()),
        }
    }
}

fn write_place(f: &mut fmt::Formatter<'_>, (path, offset): Place<'_>) -> fmt::Result {
    let Some(path) = path else {
        return offset.map_or(Ok(()), |offset| write!(f, "byte {offset}: "));
    };
    if path.as_os_str().is_empty() {
        f.write_str("\"\"")?;
    }
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        OneLine(f).write_str(chunk.valid())?;
        chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
    }
    offset.map_or(Ok(()), |offset| write!(f, ":{offset}"))?;
    f.write_str(": ")
}

/// A line for each remedy, or nothing.
struct Help<'a>(&'a Error);

impl fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.remedies().try_for_each(|remedy| {
            f.write_str("\nhelp: ")?;
            OneLine(f).write_str(remedy)
        })
    }
}

/// Escapes newlines and everything else that controls a terminal: a message repeats names that a file made up.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(steers) {
            let (plain, tail) = rest.split_at(at);
            let mut chars = tail.chars();
            self.0.write_str(plain)?;
            for part in chars.next().into_iter().flat_map(char::escape_debug) {
                self.0.write_char(part)?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Control characters, ends of lines, and characters that turn the direction of the text around them.
fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An object with `kind`, `what`, `file`, `offset`, `cause` and `remedy`, each null if it is not known.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let cause = match (self.inner(), self.cause()) {
            (Some(error), _) => Some(error.headline().to_string()),
            (None, cause) => cause.map(ToString::to_string),
        };
        let mut object = serializer.serialize_struct("Error", 6)?;
        object.serialize_field("kind", &format_args!("{:?}", self.kind()))?;
        object.serialize_field("what", self.what())?;
        object.serialize_field("file", &self.path().map(Path::to_string_lossy))?;
        object.serialize_field("offset", &self.offset())?;
        object.serialize_field("cause", &cause)?;
        object.serialize_field("remedy", &self.remedy())?;
        object.end()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

/// An error as an element of a set: two errors of one kind at one place are the same. Where no byte is known, the text
/// distinguishes errors at that place.
#[derive(Clone, Debug)]
pub struct Distinct(pub Error);

impl Distinct {
    fn key(&self) -> (ErrorKind, Place<'_>, Option<&str>) {
        let place = self.0.place();
        (self.0.kind(), place, place.1.is_none().then(|| self.0.what()))
    }
}

impl PartialEq for Distinct {
    fn eq(&self, other: &Distinct) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Distinct {}

impl Hash for Distinct {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[cfg(test)]
mod tests;

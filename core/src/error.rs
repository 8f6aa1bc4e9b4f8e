//! What went wrong: what was being done, to which file, at which byte, what to do about it, and the cause.

use std::borrow::Cow;
use std::fmt::{self, Write};
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
    /// A file or folder is not there (any more).
    NotFound,
    /// The system refuses to let this process read a file or folder.
    PermissionDenied,
    /// There is no sample where samples were expected.
    Empty,
    /// A path that is neither a file nor a folder of the kind that is wanted.
    WrongFileType,
    /// A file is shorter than its index says, or its last record is incomplete.
    Truncated,
    /// A file's content breaks its format.
    Corrupt,
    /// One batch cannot fit in the memory limit.
    MemoryLimit,
    /// The consumer holds so many batches that no memory is left to read the next one into.
    Starved,
    /// An engine or mode that was asked for by name cannot be had here.
    Unavailable,
    /// A read, or what comes behind it, took longer than the timeout allows.
    Timeout,
    /// More samples failed than `max_failures` allows.
    TooManyFailures,
    /// A saved state does not belong to this dataset or this order.
    StateMismatch,
    /// The system failed to read: what the disk or the file system reported.
    Io,
    /// A GPU failed, or its driver did.
    Device,
    /// A thread of the loader ended without being asked to: a bug of this library.
    Internal,
}

/// An error of this library. Its `Display` is one line: what was being done, the file, the offset, the cause, the
/// remedy.
///
/// Cheap to clone: a failed read may be the error of several samples.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    doing: Cow<'static, str>,
    file: Option<PathBuf>,
    offset: Option<u64>,
    remedy: Option<Cow<'static, str>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// Whether it stands beside the batches of a loader, and in the place of none.
    beside: bool,
}

impl Error {
    /// An error of `kind` that arose while `doing` (a phrase such as "cannot open the folder").
    pub fn new(kind: ErrorKind, doing: impl Into<Cow<'static, str>>) -> Error {
        let doing = doing.into();
        Error(Arc::new(Inner { kind, doing, file: None, offset: None, remedy: None, source: None, beside: false }))
    }

    /// An error of the system; the kind is told from the cause.
    pub fn io(doing: impl Into<Cow<'static, str>>, source: std::io::Error) -> Error {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::IsADirectory => ErrorKind::WrongFileType,
            std::io::ErrorKind::OutOfMemory => ErrorKind::MemoryLimit,
            _ => ErrorKind::Io,
        };
        Error::new(kind, doing).with_source(source)
    }

    /// Names the file or folder.
    #[must_use]
    pub fn with_file(mut self, file: impl AsRef<Path>) -> Error {
        Arc::make_mut(&mut self.0).file = Some(file.as_ref().to_path_buf());
        self
    }

    /// Names the byte offset in the file.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Error {
        Arc::make_mut(&mut self.0).offset = Some(offset);
        self
    }

    /// Says what the user can do about it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Error {
        Arc::make_mut(&mut self.0).remedy = Some(remedy.into());
        self
    }

    /// Carries the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// Marks it as one that stands beside the batches of a loader, and in the place of none.
    #[doc(hidden)]
    #[must_use]
    pub fn beside_batches(mut self) -> Error {
        Arc::make_mut(&mut self.0).beside = true;
        self
    }

    /// Whether it stands beside the batches of a loader, and in the place of none.
    #[doc(hidden)]
    pub fn is_beside_batches(&self) -> bool {
        self.0.beside
    }

    /// The kind, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file or folder it is about.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The byte offset in the file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// What went wrong and its cause, without file, offset and remedy: for those who say these elsewhere. The file is
    /// called "it".
    pub fn what(&self) -> String {
        let inner = &*self.0;
        let whole = inner.doing.strip_suffix(':').or_else(|| inner.doing.strip_suffix(", in"));
        let mut what = match (whole, &inner.file) {
            (Some(doing), _) => doing.to_owned(),
            (None, Some(_)) => format!("{} it", inner.doing),
            (None, None) => inner.doing.clone().into_owned(),
        };
        if let Some(source) = &inner.source {
            what = format!("{what}: {source}");
        }
        what
    }

    /// What the user can do about it.
    pub fn remedy(&self) -> Option<&str> {
        self.0.remedy.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        let mut line = OneLine(f);
        line.write_str(&inner.doing)?;
        if let Some(file) = &inner.file {
            // Debug escapes bytes that are not UTF-8 too.
            write!(line, " {file:?}")?;
        }
        if let Some(offset) = inner.offset {
            write!(line, " at byte {offset}")?;
        }
        if let Some(source) = &inner.source {
            write!(line, ": {source}")?;
        }
        if let Some(remedy) = &inner.remedy {
            write!(line, " ({remedy})")?;
        }
        Ok(())
    }
}

/// Escapes newlines and all else that steers a terminal: names of columns in a message are whatever a file says.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The cause is part of the message above, so a reporter that walks the chain goes on behind it.
        self.0.source.as_deref().and_then(std::error::Error::source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_file_made_up_steer_no_terminal() {
        let cause = std::io::Error::other("in\r\x1b[2Jside");
        let error = Error::new(ErrorKind::Corrupt, "no column \"a\nb\" in").with_source(cause);
        let error = error.with_remedy("there are: \n, \u{85}, ü\t");
        let line = "no column \"a\\nb\" in: in\\r\\u{1b}[2Jside (there are: \\n, \\u{85}, ü\\t)";
        assert_eq!(error.to_string(), line);
        assert_eq!(format!("{error:?}"), format!("Corrupt: {line}"));
    }

    #[test]
    fn message_names_everything_on_one_line() {
        let error = Error::io("cannot read", std::io::Error::from_raw_os_error(5))
            .with_file("a\nb")
            .with_offset(4096)
            .with_remedy("check the disk");
        assert_eq!(
            error.to_string(),
            "cannot read \"a\\nb\" at byte 4096: Input/output error (os error 5) (check the disk)"
        );
        assert_eq!(error.what(), "cannot read it: Input/output error (os error 5)");
        assert_eq!(
            Error::new(ErrorKind::Corrupt, "no index of this format:").with_file("a").what(),
            "no index of this format"
        );
        assert_eq!(Error::new(ErrorKind::Corrupt, "a hash is wrong, in").with_file("a").what(), "a hash is wrong");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.clone().offset(), Some(4096));
    }
}

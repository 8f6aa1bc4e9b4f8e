//! libjpeg-turbo: its TurboJPEG API of version 3, loaded at run time (or linked, with the feature
//! `turbojpeg-vendored`), behind types that never let it read or write outside its memory.
//!
//! [`Library::open`] finds it. A [`Jpeg`] gives its pixels: all of them or a rectangle, whole or at a half, a quarter
//! or an eighth of the size. An [`Encoder`] makes a JPEG of pixels.
//!
//! The API of version 2 has no rectangles, no limit of scans and no limit of pixels, so a library without `tj3Init` is
//! refused, with its version.

mod abi;
mod decoder;
mod encoder;
mod table;

pub use decoder::{Header, Jpeg, Pixels, Rectangle, Request, Scale, Subsampling};
pub use encoder::Encoder;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use table::Table;

/// libjpeg-turbo, of version 3 or later. Clones share it. It is never unloaded.
#[derive(Clone)]
pub struct Library {
    table: Arc<Table>,
}

impl Library {
    /// Loads the first library that has the API of version 3: under the names that the system's loader knows, then at
    /// `places`, each a library or a folder that holds one. As for a driver, name no library that you would not link.
    ///
    /// # Errors
    /// `Absent` where there is none, `TooOld` where there is only one without that API.
    pub fn open(places: &[PathBuf]) -> Result<Library, OpenError> {
        Table::load(places).map(|table| Library { table: Arc::new(table) })
    }

    /// Its version, such as "3.1.0", or "3" where the file does not say more.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.table.version
    }

    /// The file that it was loaded from. `None` if it is linked.
    #[must_use]
    pub fn path(&self) -> Option<&std::path::Path> {
        self.table.path.as_deref()
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("version", &self.version()).field("path", &self.path()).finish()
    }
}

/// Why there is no library.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The loader finds none. What it said last.
    Absent(String),
    /// The library that was found has the API of version 2.
    TooOld {
        /// The file.
        path: PathBuf,
        /// Its version, where the file says it.
        version: Option<String>,
    },
    /// One was found that lacks a function of version 3.
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The function.
        function: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Absent(said) => write!(f, "the loader finds no libturbojpeg: {said}"),
            OpenError::TooOld { path, version } => {
                let version = version.as_deref().unwrap_or("older than 3.0");
                write!(f, "{} is libjpeg-turbo {version}, and 3.0 is the first with what is needed", path.display())
            }
            OpenError::Incomplete { path, function } => write!(f, "{} has no {function}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

/// What libjpeg-turbo says about a JPEG, or about an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurboError {
    message: String,
}

impl TurboError {
    fn new(message: impl Into<String>) -> TurboError {
        TurboError { message: message.into() }
    }
}

impl fmt::Display for TurboError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TurboError {}

#[cfg(test)]
mod tests;

//! Parquet and Arrow, which are there where they were built in.

use super::arguments::{Format, FormatName};
use super::failure::Failure;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::dataset::{Dataset, Skipped};

/// A dataset of a format of columns, with what only its own type knows.
pub struct Columnar {
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    /// How each column is stored.
    pub encodings: Vec<String>,
    /// What was left out.
    pub skipped: Vec<Skipped>,
}

#[cfg(feature = "parquet")]
mod built {
    use super::{Arc, Columnar, Failure, Format, FormatName, Path, PathBuf};
    use uringload::dataset::{ArrowIpc, ColumnarOptions, Parquet};

    pub fn open(name: FormatName, paths: &[PathBuf], format: &Format) -> Result<Columnar, Failure> {
        let options = ColumnarOptions { columns: format.lines.names()?, ..ColumnarOptions::default() };
        Ok(if name == FormatName::Parquet {
            let parquet = Parquet::open(paths, &options)?;
            let (encodings, skipped) = (parquet.encodings(), parquet.skipped().to_vec());
            Columnar { dataset: Arc::new(parquet), encodings, skipped }
        } else {
            let arrow = ArrowIpc::open(paths, &options)?;
            let (encodings, skipped) = (arrow.encodings(), arrow.skipped().to_vec());
            Columnar { dataset: Arc::new(arrow), encodings, skipped }
        })
    }

    pub fn is_parquet(path: &Path) -> bool {
        Parquet::detect(path)
    }

    pub fn is_arrow(path: &Path) -> bool {
        ArrowIpc::detect(path)
    }
}

#[cfg(not(feature = "parquet"))]
mod built {
    use super::{Columnar, Failure, Format, FormatName, Path, PathBuf};
    use uringload::{Error, ErrorKind};

    pub fn open(_name: FormatName, _paths: &[PathBuf], _format: &Format) -> Result<Columnar, Failure> {
        let error = Error::new(ErrorKind::Unavailable, "this uringload was built without Parquet and Arrow");
        Err(error.with_remedy("build it again with `--features parquet`, or name another --format").into())
    }

    // By their names alone: a file of a table must not be taken for a sample of a folder.

    pub fn is_parquet(path: &Path) -> bool {
        is_called(path, "parquet")
    }

    pub fn is_arrow(path: &Path) -> bool {
        is_called(path, "arrow")
    }

    fn is_called(path: &Path, extension: &str) -> bool {
        let is_one = |path: &Path| path.extension().is_some_and(|its| its == extension);
        if !path.is_dir() {
            return path.is_file() && is_one(path);
        }
        let Ok(entries) = path.read_dir() else { return false };
        let mut paths = entries.flatten().map(|entry| entry.path()).peekable();
        paths.peek().is_some() && paths.all(|path| is_one(&path))
    }
}

pub use built::{is_arrow, is_parquet, open};

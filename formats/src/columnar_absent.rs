//! Stands in for Parquet and Arrow if they are not built in. They are known by name, so that a table is not taken for a
//! sample in a folder, and refused with a remedy.

use crate::Dataset;
use crate::options::Options;
use crate::registry::{Format, Paths, Shows};
use std::path::Path;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

pub(crate) const PARQUET: Format = absent("parquet", |path, _| is_called(path, "parquet"));
pub(crate) const ARROW: Format = absent("arrow", |path, _| is_called(path, "arrow"));

const fn absent(name: &'static str, shows: fn(&Path, &Options) -> bool) -> Format {
    Format {
        name,
        help: "Not built in: it needs the feature parquet.",
        options: &[],
        has_sidecars: false,
        shows: Shows::Path(shows),
        open: refuse,
    }
}

fn refuse(_paths: Paths, _options: &Options) -> Result<Arc<dyn Dataset>> {
    let error = Error::new(ErrorKind::Unavailable, "this uringload was built without Parquet and Arrow");
    Err(error.with_remedy("build it again with `--features parquet`, or name another format"))
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

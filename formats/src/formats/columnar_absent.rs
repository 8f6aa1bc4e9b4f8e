//! Replaces Parquet and Arrow if they are not built in. They are known by name, so a table is refused with a remedy,
//! and not taken for a sample in a folder.

use crate::dataset::Dataset;
use crate::find::names::has_extension;
use crate::format::{Format, Paths, Shows};
use crate::options::Options;
use std::sync::Arc;
use uringload_core::Result;
use uringload_core::not_built_in;

pub(crate) const PARQUET: Format = absent("parquet", |name| has_extension(name, "parquet"));
pub(crate) const ARROW: Format = absent("arrow", |name| has_extension(name, "arrow"));

const fn absent(name: &'static str, called: fn(&[u8]) -> bool) -> Format {
    Format {
        name,
        help: "Not built in: it needs the feature parquet.",
        options: &[],
        has_sidecars: false,
        shows: Shows::Names { called, begins: |_| true },
        open: refuse,
    }
}

fn refuse(paths: Paths, _options: &Options) -> Result<Arc<dyn Dataset>> {
    Err(paths.at_first(not_built_in("Parquet and Arrow", "parquet")))
}

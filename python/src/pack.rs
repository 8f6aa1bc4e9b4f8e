//! Datasets as shards, and the transforms of their images. The function that Python's users call is in
//! `lib/uringload/_pack.py`.

use crate::dataset::Dataset;
use crate::errors::{invalid, raised};
use crate::formats;
use crate::options::Settings;
use crate::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use uringload::config::Part;
use uringload::pack::{Keys, PackImages, PackOptions, PackPrediction, PackProgress, PackReport};
use uringload::transform::Chain;
use uringload::{Loader, Result};

/// All options but settings of the table. In Python, a dictionary with these keys.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    resize: Option<u32>,
    transform: Option<String>,
    quality: Option<u8>,
    pixels: bool,
    image_column: Option<String>,
    shard_bytes: Option<u64>,
    shard_samples: Option<u64>,
    prefix: String,
    align: u64,
    keys: String,
    threads: Option<usize>,
    part: String,
    overwrite: bool,
    finish: bool,
    staging: PathBuf,
}

impl Asked {
    fn images(&self) -> Result<Option<PackImages>> {
        let mut images = match (self.resize, &self.transform) {
            (Some(shorter), _) => PackImages::resize(shorter),
            (None, Some(chain)) => PackImages::transform(chain.parse()?)?,
            (None, None) if self.quality.is_some() || self.pixels => PackImages::transform(Chain::new())?,
            (None, None) => return Ok(None),
        };
        if let Some(quality) = self.quality {
            images = images.quality(quality);
        }
        if self.pixels {
            images = images.pixels();
        }
        Ok(Some(match &self.image_column {
            Some(column) => images.column(column.clone()),
            None => images,
        }))
    }

    fn options(&self) -> Result<PackOptions> {
        let part: Part = self.part.parse().map_err(|error| invalid(format!("part: {error}"), "count parts from 0"))?;
        let options = PackOptions::default()
            .prefix(self.prefix.clone())
            .align(self.align)
            .shard_samples(self.shard_samples)
            .keys(if self.keys == "numbers" { Keys::Numbers } else { Keys::Source })
            .threads(self.threads)
            .part(part)
            .overwrite(self.overwrite)
            .staging(self.staging.clone())
            .images(self.images()?);
        Ok(match self.shard_bytes {
            Some(bytes) => options.shard_bytes(bytes),
            None => options,
        })
    }
}

/// Packs a dataset into shards in `folder`. `progress` is called in this thread, a few times a second, with samples,
/// all samples and bytes; what it raises, and what a signal handler raises, ends the pack, and whole shards stay.
#[pyfunction]
pub(crate) fn pack<'py>(
    py: Python<'py>,
    dataset: PyRef<'_, Dataset>,
    folder: PathBuf,
    asked: Asked,
    stores: &Bound<'py, PyDict>,
    settings: Settings,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let stores = formats::of_stores(stores)?;
    let (source, last, is_ended) =
        (Arc::clone(&dataset.dataset), Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let (told, ends) = (Arc::clone(&last), Arc::clone(&is_ended));
    let packed = move || -> Result<(PackReport, Option<PackPrediction>)> {
        let tell = |progress: PackProgress| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
            if ends.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let pack = Loader::builder(source).config(settings.0).pack(folder, asked.options()?.stores(&stores))?;
        if asked.finish {
            return Ok((pack.finish()?, None));
        }
        let report = pack.run(&tell)?;
        let predicted = if report.is_interrupted { None } else { pack.predict()? };
        Ok((report, predicted))
    };
    let mut seen: Option<PackProgress> = None;
    let look = || {
        let now = *last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = now != std::mem::replace(&mut seen, now);
        match (&progress, now) {
            (Some(progress), Some(now)) if is_new => {
                progress.call1((now.samples, now.samples_total, now.bytes)).map(drop)
            }
            _ => Ok(()),
        }
    };
    // The threads see it with the next batch, and nothing is written after the caller has gone on.
    let stop = || is_ended.store(true, Ordering::Relaxed);
    let (report, predicted) = wait::to_the_end(py, ("uringload-pack", "packing a dataset"), packed, look, stop)?;
    as_dict(py, &report, predicted.as_ref())
}

fn as_dict<'py>(
    py: Python<'py>,
    report: &PackReport,
    predicted: Option<&PackPrediction>,
) -> PyResult<Bound<'py, PyDict>> {
    let errors: Vec<_> = report.errors.iter().map(|error| raised(py, error).into_value(py)).collect();
    let images = report.images.map(|made| (made.images, made.bytes_before, made.bytes_after));
    let predicted = predicted.map(|it| {
        let (before, after) = (it.decode_before.as_secs_f64(), it.decode_after.as_secs_f64());
        (it.images, it.bytes_before, it.bytes_after, before, after, it.processors)
    });
    let told = PyDict::new(py);
    told.set_item("samples", report.samples)?;
    told.set_item("shards", report.shards)?;
    told.set_item("lacking", report.lacking)?;
    told.set_item("failed", report.failed)?;
    told.set_item("errors", errors)?;
    told.set_item("bytes_written", report.bytes_written)?;
    told.set_item("images", images)?;
    told.set_item("predicted", predicted)?;
    Ok(told)
}

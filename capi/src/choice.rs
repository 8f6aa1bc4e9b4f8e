//! Chooses the samples of a dataset and their shares, from `weights`, `stopping`, `only` and `exclude`.

use crate::invalid;
use std::path::PathBuf;
use std::sync::Arc;
use uringload::config::Shuffle;
use uringload::dataset::{self, Concat, Dataset, Options, View};
use uringload::sampler::{Mixed, Sampler, Stopping};
use uringload::{Result, quarantine};

/// Everything, unless options say otherwise.
#[derive(Default)]
pub(crate) struct Choice {
    pub(crate) only: Option<Only>,
    /// Files that list samples.
    pub(crate) exclude: Vec<PathBuf>,
    /// One for each path, which is then a dataset of its own.
    pub(crate) weights: Option<Vec<f64>>,
    pub(crate) stopping: Option<Stopping>,
}

/// The samples to keep.
pub(crate) enum Only {
    /// In this order.
    Numbers(Vec<u64>),
    /// The samples in these files, in ascending order.
    Lists(Vec<PathBuf>),
}

/// An open dataset. Threads may share it, and any number of loaders.
pub struct ul_dataset {
    pub(crate) dataset: Arc<dyn Dataset>,
    /// If it is a mixture: the parts of `dataset`, and how they are mixed.
    pub(crate) mixture: Option<Mixture>,
}

/// Datasets that are interleaved by weight.
pub(crate) struct Mixture {
    concat: Arc<Concat>,
    weights: Vec<f64>,
    stopping: Stopping,
}

impl Choice {
    /// Opens the dataset of the paths.
    pub(crate) fn open(self, paths: &[PathBuf], options: &Options) -> Result<ul_dataset> {
        let Some(weights) = self.weights else {
            if self.stopping.is_some() {
                return Err(invalid("stopping is of no use by itself", "give weights too, or leave stopping out"));
            }
            let mut dataset = dataset::open(paths, options)?;
            if let Some(only) = self.only {
                let ids = match only {
                    Only::Numbers(ids) => ids,
                    Only::Lists(lists) => quarantine::read_all(&lists, &*dataset)?,
                };
                dataset = Arc::new(View::of(dataset, ids)?);
            }
            if !self.exclude.is_empty() {
                let ids = quarantine::read_all(&self.exclude, &*dataset)?;
                dataset = Arc::new(View::without(dataset, ids)?);
            }
            return Ok(ul_dataset { dataset, mixture: None });
        };
        if self.only.is_some() || !self.exclude.is_empty() {
            let what = "only and exclude number the samples of one dataset, and weights mix several";
            return Err(invalid(what, "leave out weights, or only and exclude"));
        }
        if weights.len() != paths.len() {
            let what = format!("{} weights are given for {} datasets", weights.len(), paths.len());
            return Err(invalid(what, "give one number for each path"));
        }
        let parts = paths.iter().map(|path| dataset::open(std::slice::from_ref(path), options));
        let concat = Arc::new(Concat::new(parts.collect::<Result<_>>()?)?);
        let mixture = Mixture { concat, weights, stopping: self.stopping.unwrap_or_default() };
        // Refuses invalid mixtures here, not when they are read.
        mixture.sampler(Shuffle::Off, 0)?;
        Ok(ul_dataset { dataset: Arc::clone(&mixture.concat) as Arc<dyn Dataset>, mixture: Some(mixture) })
    }
}

impl Mixture {
    pub(crate) fn sampler(&self, shuffle: Shuffle, seed: u64) -> Result<Arc<dyn Sampler>> {
        Ok(Arc::new(Mixed::of(&self.concat, shuffle, &self.weights, self.stopping, seed)?))
    }
}

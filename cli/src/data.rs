//! Turns arguments into a dataset.

use crate::arguments::{Chosen, Images, Source};
use crate::failure::{Failure, told};
use crate::output::eprintln_quietly;
use crate::progress::Doing;
use std::path::PathBuf;
use std::sync::Arc;
use uringload::config::Config;
use uringload::dataset::{self, Concat, Dataset, Options, View};
use uringload::quarantine;
use uringload::sampler::{Mixed, Sampler, for_dataset};
use uringload::{Error, ErrorKind};
use uringload_measure::Subject;
use uringload_measure::text;

/// A dataset, and its components if it is a mixture.
pub struct Data {
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    mixture: Option<Arc<Concat>>,
}

impl Data {
    /// Opens a dataset for a command that reads as training does.
    ///
    /// # Errors
    /// As [`choose`](Data::choose).
    pub fn of(source: &Source) -> Result<Data, Failure> {
        Data::choose(&source.paths, &source.format.under(&source.failing), &source.chosen)
    }

    /// Opens the dataset that the user named, without the excluded samples. With weights, each path is a dataset of its
    /// own.
    pub fn choose(paths: &[PathBuf], options: &Options, chosen: &Chosen) -> Result<Data, Failure> {
        if chosen.weights.is_empty() {
            let mut dataset = open(paths, options)?;
            if let Some(only) = &chosen.only {
                let ids = quarantine::read_all(&[only], &*dataset)?;
                dataset = Arc::new(View::of(dataset, ids)?);
            }
            let excluded = quarantine::read_all(&chosen.exclude, &*dataset)?;
            if !excluded.is_empty() {
                dataset = Arc::new(View::without(dataset, excluded)?);
            }
            return Ok(Data { dataset, mixture: None });
        }
        if chosen.weights.len() != paths.len() {
            let (weights, paths) = (chosen.weights.len(), paths.len());
            let what = format!("{weights} weights are given for {paths} datasets");
            let error = Error::new(ErrorKind::InvalidArgument, what);
            return Err(error.with_remedy("give one number for each DIR").into());
        }
        let parts = paths.iter().map(|path| open(std::slice::from_ref(path), options));
        let concat = Arc::new(Concat::new(parts.collect::<Result<_, _>>()?)?);
        Ok(Data { dataset: Arc::clone(&concat) as Arc<dyn Dataset>, mixture: Some(concat) })
    }

    /// What is measured: in the requested order, with the requested transforms.
    pub fn subject<'a>(&'a self, chosen: &'a Chosen, images: &'a Images) -> Subject<'a> {
        Subject {
            dataset: Arc::clone(&self.dataset),
            order: Box::new(|config| self.sampler(config, chosen)),
            prepare: Box::new(|builder, dataset| images.apply(builder, dataset)),
            is_prepared: images.is_any(),
            is_weighted: !chosen.weights.is_empty(),
        }
    }

    /// The requested order.
    pub fn sampler(&self, config: &Config, chosen: &Chosen) -> uringload::Result<Arc<dyn Sampler>> {
        let Config { shuffle, seed, .. } = *config;
        match &self.mixture {
            Some(concat) => Ok(Arc::new(Mixed::of(concat, shuffle, &chosen.weights, chosen.stopping, seed)?)),
            None => Ok(for_dataset(&*self.dataset, shuffle, seed)?),
        }
    }
}

/// Opens the dataset that the user named. Reports deviations from the request on stderr.
pub fn open(paths: &[PathBuf], options: &Options) -> Result<Arc<dyn Dataset>, Failure> {
    let opened = open_quietly(paths, options)?;
    let index = opened.index();
    index.fallbacks.iter().for_each(|fallback| eprintln_quietly(&format!("uringload: {fallback}")));
    if let Some(written) = index.report.as_ref().map(|report| report.written).filter(|&written| written > 0) {
        let noun = if written == 1 { "index" } else { "indexes" };
        let what = format!("uringload: wrote {} {noun} (FILE.uidx) for later starts", text::count(written));
        eprintln_quietly(&format!("{what}; --no-write-index writes none"));
    }
    for error in &index.damage {
        eprintln_quietly(&format!("uringload: left out from there on: {}", told(error)));
    }
    Ok(opened)
}

/// Opens the dataset that the user named, and reports nothing but progress.
pub fn open_quietly(paths: &[PathBuf], options: &Options) -> Result<Arc<dyn Dataset>, Error> {
    let doing = Doing::opening(paths);
    dataset::open(paths, &options.clone().progress(doing.index()))
}

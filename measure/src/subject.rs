//! What is measured.

use std::sync::Arc;
use uringload::config::Config;
use uringload::dataset::Dataset;
use uringload::sampler::{Sampler, for_dataset};
use uringload::{Builder, Result};

/// The order under a configuration.
pub type OrderOf<'a> = dyn Fn(&Config) -> Result<Arc<dyn Sampler>> + 'a;

/// Has a builder do to the samples of a dataset what training does.
pub type Prepare<'a> = dyn Fn(Builder, &Arc<dyn Dataset>) -> Result<Builder> + 'a;

/// A dataset, its order, and what happens to its samples.
pub struct Subject<'a> {
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    /// Its order, under any configuration.
    pub order: Box<OrderOf<'a>>,
    /// Transforms, decoding.
    pub prepare: Box<Prepare<'a>>,
    /// Whether samples are decoded or transformed.
    pub is_prepared: bool,
    /// Whether the order draws datasets at random, so that no cursor resumes it.
    pub is_weighted: bool,
}

impl Subject<'_> {
    /// A dataset in the order that its configuration names, as it is stored.
    pub fn of(dataset: Arc<dyn Dataset>) -> Subject<'static> {
        let ordered = Arc::clone(&dataset);
        Subject {
            dataset,
            order: Box::new(move |config| for_dataset(&*ordered, config.shuffle, config.seed)),
            prepare: Box::new(|builder, _| Ok(builder)),
            is_prepared: false,
            is_weighted: false,
        }
    }
}

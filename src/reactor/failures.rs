//! How many samples could not be had, how many may be, and where they are written down.

use crate::batch::FailedSample;
use crate::config::MaxFailures;
use crate::dataset::Dataset;
use crate::quarantine::Quarantine;
use crate::sampler::{Sampler, Strided};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The books of the samples that could not be had.
pub struct Failures {
    limit: Option<MaxFailures>,
    quarantine: Option<Quarantine>,
    sampler: Arc<dyn Sampler>,
    strided: Strided,
    /// Failures so far.
    total: u64,
    /// Those of them in `epoch`.
    in_epoch: u64,
    epoch: u64,
}

impl Failures {
    /// At most `limit` failures, of the samples that `strided` gives this rank of the epochs of `sampler`; each written
    /// to `quarantine`.
    pub fn new(
        limit: Option<MaxFailures>,
        quarantine: Option<Quarantine>,
        sampler: Arc<dyn Sampler>,
        strided: Strided,
    ) -> Failures {
        Failures { limit, quarantine, sampler, strided, total: 0, in_epoch: 0, epoch: 0 }
    }

    /// Samples that could not be had so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Counts the samples of a batch that could not be had and writes them down. Returns what the consumer is to be
    /// told beside the batch: once, that the quarantine file cannot be written.
    ///
    /// # Errors
    /// `TooManyFailures`, which ends the loader.
    pub(super) fn book(&mut self, dataset: &dyn Dataset, epoch: u64, failed: &[FailedSample]) -> Result<Option<Error>> {
        let Some(last) = failed.last() else { return Ok(None) };
        if epoch != self.epoch {
            (self.epoch, self.in_epoch) = (epoch, 0);
        }
        self.total += failed.len() as u64;
        self.in_epoch += failed.len() as u64;
        let mut beside = None;
        if let Some(quarantine) = &mut self.quarantine {
            for failed in failed {
                beside = quarantine.add(dataset, epoch, failed).err().or(beside);
            }
        }
        match self.exceeded() {
            Some(exceeded) => Err(self.too_many(last, &exceeded, beside)),
            None => Ok(beside.map(Error::beside_batches)),
        }
    }

    /// The limit that is exceeded, in words.
    fn exceeded(&self) -> Option<String> {
        match self.limit? {
            MaxFailures::Count(limit) => {
                let total = self.total;
                (total > limit).then(|| format!("{total} samples failed, max_failures allows {limit}"))
            }
            MaxFailures::Fraction(limit) => {
                let samples = self.strided.share(self.sampler.len_of(self.epoch));
                let (failed, epoch) = (self.in_epoch, self.epoch);
                (failed as f64 > limit * samples as f64).then(|| {
                    format!(
                        "{failed} of the {samples} samples of this rank failed in epoch {epoch}, max_failures allows a \
                         share of {limit}"
                    )
                })
            }
        }
    }

    fn too_many(&self, last: &FailedSample, exceeded: &str, unwritten: Option<Error>) -> Error {
        let list = match (&self.quarantine, unwritten) {
            (Some(quarantine), None) => format!("; they are listed in {:?}", quarantine.path()),
            (_, Some(error)) => format!("; {error}"),
            (None, None) => String::new(),
        };
        let doing = format!("{exceeded}{list}; the last one was sample {} of", last.id.0);
        let mut error = Error::new(ErrorKind::TooManyFailures, doing);
        if let Some(file) = last.error.file() {
            error = error.with_file(file);
        }
        if let Some(offset) = last.error.offset() {
            error = error.with_offset(offset);
        }
        error
            .with_source(last.error.clone())
            .with_remedy("look after the storage, leave these samples out, or allow more")
    }
}

//! Counts failed samples, enforces the limit on them, and records them in the quarantine.

use crate::batch::FailedSample;
use crate::config::MaxFailures;
use crate::dataset::Dataset;
use crate::quarantine::Quarantine;
use crate::sampler::Order;
use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;

/// Remedy for too many failures.
const REMEDY: &str = "check the storage, leave these samples out, or allow more";

/// Accounts for failed samples.
pub struct Failures {
    limit: Option<MaxFailures>,
    quarantine: Option<Quarantine>,
    order: Order,
    /// Failures so far.
    total: u64,
    /// Failures in `epoch`.
    in_epoch: u64,
    epoch: u64,
}

impl Failures {
    /// Allows `limit` failures among the samples of `order`, and writes each one to `quarantine`.
    pub fn new(limit: Option<MaxFailures>, quarantine: Option<Quarantine>, order: Order) -> Failures {
        Failures { limit, quarantine, order, total: 0, in_epoch: 0, epoch: 0 }
    }

    /// Samples that failed so far.
    #[cfg(test)]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Counts the failed samples of a batch and writes them to the quarantine. Returns an error to deliver next to the
    /// batch: once, if the quarantine file cannot be written.
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

    /// Describes the limit that was exceeded, if any.
    fn exceeded(&self) -> Option<String> {
        match self.limit? {
            MaxFailures::Count(limit) => {
                let total = self.total;
                (total > limit).then(|| format!("{total} samples failed, and max_failures allows {limit}"))
            }
            MaxFailures::Fraction(limit) => {
                let samples = self.order.share(self.epoch);
                let (failed, epoch) = (self.in_epoch, self.epoch);
                (failed as f64 > limit * samples as f64).then(|| {
                    format!(
                        "{failed} of the {samples} samples of this rank failed in epoch {epoch}, and max_failures \
                         allows a share of {limit}"
                    )
                })
            }
        }
    }

    fn too_many(&self, last: &FailedSample, exceeded: &str, unwritten: Option<Error>) -> Error {
        let list = match (&self.quarantine, &unwritten) {
            (Some(quarantine), None) => format!("; they are listed in {:?}", quarantine.path()),
            (_, Some(error)) => format!("; {}", error.headline()),
            (None, None) => String::new(),
        };
        let what = format!("{exceeded}{list}; the last was sample {}", last.id.0);
        let remedy = match unwritten.as_ref().and_then(Error::remedy) {
            None => REMEDY.into(),
            Some(of_list) => Cow::from(format!("{REMEDY}; {of_list}")),
        };
        Error::new(ErrorKind::TooManyFailures, what).with_source(last.error.clone()).with_remedy(remedy)
    }
}

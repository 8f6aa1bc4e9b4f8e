//! Counts failed samples, enforces the limit on them, and records them in the quarantine.

use crate::batch::FailedSample;
use crate::config::MaxFailures;
use crate::dataset::Dataset;
use crate::quarantine::Quarantine;
use crate::sampler::Order;
use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Remedy for too many failures.
const REMEDY: &str = "check the storage, leave these samples out, or allow more with max_failures";

/// Accounts for failed samples: the reactor's, which cannot be read, and the consumer's, which its transform cannot
/// use. Both count toward one limit and go to one list.
#[derive(Clone)]
pub struct Failures(Arc<Mutex<Account>>);

struct Account {
    limit: Option<MaxFailures>,
    quarantine: Option<Quarantine>,
    order: Order,
    /// Failures so far.
    total: u64,
    /// Failures by epoch, of the last epochs that had any: the reactor is ahead of the consumer.
    in_epochs: VecDeque<(u64, u64)>,
    recent: Recent,
    /// Samples so far, good or not.
    seen: u64,
    /// Failures that are listed only after the breaker has had time to trip, oldest first: if it trips, most of them
    /// are good samples on storage that is gone.
    held: VecDeque<Held>,
}

/// A failure that is not listed yet.
struct Held {
    /// Samples seen when it came.
    seen: u64,
    epoch: u64,
    failed: FailedSample,
}

/// When more files than this fail, the last failures are held back.
const LISTED_AT_ONCE: usize = 4;
/// Epochs whose failures are counted one by one. Only tiny epochs are read further ahead than this.
const EPOCHS_MAX: usize = 1024;

/// The breaker looks at this many samples, and waits until there are that many.
const RECENT_MAX: u64 = 128;
const RECENT_MIN: u64 = 64;

/// The breaker trips if this share of them could not be read, in at least this many files. One shard that is gone is no
/// reason: all its samples may follow each other.
const RECENT_SHARE: f64 = 0.75;
const RECENT_FILES: usize = 8;

/// The last batches: samples, and the files of those that could not be read.
#[derive(Default)]
struct Recent {
    batches: VecDeque<(u64, Vec<PathBuf>)>,
    samples: u64,
    unread: u64,
}

impl Recent {
    fn add(&mut self, samples: u64, failed: &[FailedSample]) {
        let unread: Vec<PathBuf> = failed.iter().filter_map(|failed| unread_file(&failed.error)).collect();
        self.samples += samples;
        self.unread += unread.len() as u64;
        self.batches.push_back((samples, unread));
        while let Some((first, _)) = self.batches.front()
            && self.samples - first >= RECENT_MAX
        {
            let Some((samples, unread)) = self.batches.pop_front() else { return };
            self.samples -= samples;
            self.unread -= unread.len() as u64;
        }
    }

    /// The number of files that could not be read.
    fn files(&self) -> usize {
        self.batches.iter().flat_map(|(_, files)| files).collect::<HashSet<_>>().len()
    }

    /// Describes the failures if they span too many files for single bad files to explain.
    fn exceeded(&self) -> Option<String> {
        let (samples, unread) = (self.samples, self.unread);
        if samples < RECENT_MIN || (unread as f64) < RECENT_SHARE * samples as f64 {
            return None;
        }
        let files = self.files();
        (files >= RECENT_FILES).then(|| {
            format!(
                "{unread} of the last {samples} samples could not be read, in {files} files: that is no single bad file"
            )
        })
    }
}

/// The file of a sample that could not be read: the file or the storage failed, not the content.
fn unread_file(error: &Error) -> Option<PathBuf> {
    let kinds = [
        ErrorKind::Io,
        ErrorKind::NotFound,
        ErrorKind::PermissionDenied,
        ErrorKind::Timeout,
        ErrorKind::Truncated,
        ErrorKind::WrongFileType,
    ];
    error.path().filter(|_| kinds.contains(&error.kind())).map(Path::to_owned)
}

impl Failures {
    /// Allows `limit` failures among the samples of `order`, and writes each one to `quarantine`.
    pub fn new(limit: Option<MaxFailures>, quarantine: Option<Quarantine>, order: Order) -> Failures {
        let account = Account {
            limit,
            quarantine,
            order,
            total: 0,
            in_epochs: VecDeque::new(),
            recent: Recent::default(),
            seen: 0,
            held: VecDeque::new(),
        };
        Failures(Arc::new(Mutex::new(account)))
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether failed samples are listed.
    pub(super) fn lists(&self) -> bool {
        self.account().quarantine.is_some()
    }

    /// Samples that failed so far.
    #[cfg(test)]
    pub fn total(&self) -> u64 {
        self.account().total
    }

    /// Counts the failed samples of a batch and writes them to the quarantine. Returns an error to deliver next to the
    /// batch: once, if the quarantine file cannot be written.
    ///
    /// # Errors
    /// `TooManyFailures`, which ends the loader.
    pub(super) fn book(
        &self,
        dataset: &dyn Dataset,
        (epoch, samples): (u64, u64),
        failed: &[FailedSample],
    ) -> Result<Option<Error>> {
        let mut account = self.account();
        account.recent.add(samples, failed);
        account.seen += samples;
        account.book(dataset, epoch, failed)
    }

    /// As `book`, for a sample that was read but that the consumer cannot use. It does not count against the storage.
    ///
    /// # Errors
    /// `TooManyFailures`, which ends the loader.
    pub fn report(&self, dataset: &dyn Dataset, epoch: u64, failed: &FailedSample) -> Result<Option<Error>> {
        self.account().book(dataset, epoch, std::slice::from_ref(failed))
    }

    /// Lists what is held back, at the end. Returns an error to deliver if the quarantine file cannot be written.
    pub(super) fn end(&self) -> Option<Error> {
        let mut account = self.account();
        let dataset = Arc::clone(account.order.dataset());
        account.list_held(&*dataset, 0).map(Error::beside_batches)
    }
}

impl Account {
    fn book(&mut self, dataset: &dyn Dataset, epoch: u64, failed: &[FailedSample]) -> Result<Option<Error>> {
        let Some(last) = failed.last() else {
            return Ok(self.list_held(dataset, RECENT_MAX).map(Error::beside_batches));
        };
        self.total += failed.len() as u64;
        self.count_in(epoch, failed.len() as u64);
        let mut beside = None;
        // A limit that the user set applies as it is, and its list is complete.
        let holds = self.limit.is_none() && (!self.held.is_empty() || self.recent.files() > LISTED_AT_ONCE);
        if let Some(quarantine) = &mut self.quarantine {
            for failed in failed {
                if holds && unread_file(&failed.error).is_some() {
                    self.held.push_back(Held { seen: self.seen, epoch, failed: failed.clone() });
                } else {
                    beside = quarantine.add(dataset, epoch, failed).err().or(beside);
                }
            }
        }
        let exceeded = self.exceeded(epoch);
        if exceeded.is_none() {
            beside = self.list_held(dataset, RECENT_MAX).or(beside);
        }
        match exceeded {
            Some(exceeded) => Err(self.too_many(last, &exceeded, beside)),
            None => Ok(beside.map(Error::beside_batches)),
        }
    }

    /// Lists the failures that came at least this many samples ago.
    fn list_held(&mut self, dataset: &dyn Dataset, samples: u64) -> Option<Error> {
        let quarantine = self.quarantine.as_mut()?;
        let mut beside = None;
        while self.held.front().is_some_and(|held| held.seen + samples <= self.seen)
            && let Some(held) = self.held.pop_front()
        {
            beside = quarantine.add(dataset, held.epoch, &held.failed).err().or(beside);
        }
        beside
    }

    fn count_in(&mut self, epoch: u64, failed: u64) {
        if let Some((_, count)) = self.in_epochs.iter_mut().find(|(known, _)| *known == epoch) {
            *count += failed;
            return;
        }
        if self.in_epochs.len() == EPOCHS_MAX {
            self.in_epochs.pop_front();
        }
        self.in_epochs.push_back((epoch, failed));
    }

    /// Describes the limit that was exceeded by the end of `epoch`, if any. Failures in later epochs, which are read
    /// ahead, count when those epochs come.
    fn exceeded(&self, epoch: u64) -> Option<String> {
        let Some(limit) = self.limit else { return self.recent.exceeded() };
        match limit {
            MaxFailures::Count(limit) => {
                let later = self.in_epochs.iter().filter(|(known, _)| *known > epoch);
                let total = self.total - later.map(|(_, failed)| failed).sum::<u64>();
                (total > limit).then(|| format!("{total} samples failed, and max_failures allows {limit}"))
            }
            MaxFailures::Fraction(limit) => {
                let samples = self.order.share(epoch);
                let of_epoch = self.in_epochs.iter().find(|(known, _)| *known == epoch);
                let failed = of_epoch.map_or(0, |(_, failed)| *failed);
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
            (Some(quarantine), None) if !self.held.is_empty() => {
                let held = self.held.len();
                format!("; {:?} lacks the last {held} of them, because most may be good", quarantine.path())
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::SampleId;

    /// Failures of samples in a batch of 8, one for each of these file numbers.
    fn failed(kind: ErrorKind, files: impl Iterator<Item = u64>) -> Vec<FailedSample> {
        let error = |file: u64| Error::new(kind, "made up").with_path(format!("/data/{file}"));
        let failed = |file| FailedSample { id: SampleId(file), position: file, error: error(file), replaced_by: None };
        files.map(failed).collect()
    }

    /// What the breaker reports after 40 batches of 8 samples, with `bad` failures in each, in files `file_of` the
    /// batch.
    fn after(kind: ErrorKind, bad: u64, file_of: fn(u64) -> u64) -> Option<String> {
        let mut recent = Recent::default();
        (0..40).for_each(|batch| recent.add(8, &failed(kind, (0..bad).map(|index| file_of(batch * 8 + index)))));
        assert!(recent.samples <= RECENT_MAX + 8 && recent.batches.len() <= 17);
        recent.exceeded()
    }

    #[test]
    fn the_breaker_breaks_where_most_files_fail_and_not_for_one_of_them() {
        let said = after(ErrorKind::NotFound, 8, |sample| sample).expect("all fail");
        assert!(said.starts_with("128 of the last 128 samples could not be read, in 128 files"), "{said}");
        assert!(after(ErrorKind::Io, 6, |sample| sample).is_some(), "three quarters");
        assert_eq!(after(ErrorKind::Io, 5, |sample| sample), None);
        assert_eq!(after(ErrorKind::Io, 8, |_| 3), None, "one shard that is gone");
        assert_eq!(after(ErrorKind::Corrupt, 8, |sample| sample), None, "what is in the files is another matter");
        let mut recent = Recent::default();
        recent.add(RECENT_MIN - 1, &failed(ErrorKind::Io, 0..RECENT_MIN - 1));
        assert_eq!(recent.exceeded(), None, "too few to tell");
    }
}

//! A mixture of datasets by weight, as a function of the position.

mod course;
#[cfg(test)]
mod tests;
mod weights;

use super::{Cursor, KnownOrder, Mixer, OrderId, Parts, Sampler, for_dataset};
use crate::config::Shuffle;
use crate::dataset::{Concat, SampleId};
use crate::{Error, ErrorKind, Result};
use course::{Course, Start};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use weights::PERIOD;

/// When an epoch of a mixture ends. Names and meanings are those of Hugging Face's `interleave_datasets`, except for
/// `After`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopping {
    /// After the last sample of the first dataset to be exhausted: no sample comes twice.
    #[default]
    FirstExhausted,
    /// After the last sample of the last dataset to be exhausted: every sample of a dataset with a weight comes at
    /// least once. A dataset that is exhausted earlier starts over, in another order.
    AllExhausted,
    /// When every sample of each dataset with a weight has come exactly once. When a dataset is exhausted, the others
    /// continue with weights in the same ratios.
    AllExhaustedWithoutReplacement,
    /// After this many samples. A dataset that is exhausted earlier starts over, in another order.
    After(u64),
}

const FIRST_EXHAUSTED: &str = "first_exhausted";
const ALL_EXHAUSTED: &str = "all_exhausted";
const WITHOUT_REPLACEMENT: &str = "all_exhausted_without_replacement";
const AFTER: &str = "after:";

/// The names that [`FromStr`] takes. States store them.
impl fmt::Display for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopping::FirstExhausted => f.pad(FIRST_EXHAUSTED),
            Stopping::AllExhausted => f.pad(ALL_EXHAUSTED),
            Stopping::AllExhaustedWithoutReplacement => f.pad(WITHOUT_REPLACEMENT),
            Stopping::After(samples) => write!(f, "{AFTER}{samples}"),
        }
    }
}

impl FromStr for Stopping {
    type Err = Error;

    /// "first_exhausted", "all_exhausted", "all_exhausted_without_replacement", or "after:" and a number of samples.
    fn from_str(name: &str) -> Result<Stopping> {
        match name {
            FIRST_EXHAUSTED => Ok(Stopping::FirstExhausted),
            ALL_EXHAUSTED => Ok(Stopping::AllExhausted),
            WITHOUT_REPLACEMENT => Ok(Stopping::AllExhaustedWithoutReplacement),
            _ => name.strip_prefix(AFTER).and_then(|samples| samples.parse().ok()).map(Stopping::After).ok_or_else(
                || {
                    Error::new(ErrorKind::InvalidArgument, format!("{name:?} is no way to end an epoch of a mixture"))
                    .with_remedy(format!(
                        "give {FIRST_EXHAUSTED}, {ALL_EXHAUSTED}, {WITHOUT_REPLACEMENT}, or {AFTER} and a number of \
                         samples"
                    ))
                },
            ),
        }
    }
}

/// Samples of several datasets, mixed by weight.
///
/// ```
/// use std::sync::Arc;
/// use uringload::config::Shuffle;
/// use uringload::dataset::{self, Concat, Options};
/// use uringload::sampler::{Mixed, Stopping};
/// use uringload::Loader;
///
/// # let root = tempfile::tempdir().unwrap();
/// # let (web, code) = (root.path().join("web"), root.path().join("code"));
/// # for folder in [&web, &code] {
/// #     std::fs::create_dir(folder).unwrap();
/// #     (0..10).for_each(|n| std::fs::write(folder.join(format!("{n}.dat")), [n; 100]).unwrap());
/// # }
/// let parts = vec![dataset::open(&[web], &Options::new())?, dataset::open(&[code], &Options::new())?];
/// let data = Arc::new(Concat::new(parts)?);
/// let order = Mixed::of(&data, Shuffle::Full, &[0.75, 0.25], Stopping::AllExhausted, 42)?;
/// let loader = Loader::builder(data).sampler(Arc::new(order)).batch_size(4).build()?;
/// assert!(loader.remaining().is_some_and(|batches| batches >= 5));
/// # Ok::<(), uringload::Error>(())
/// ```
///
/// The samples are those of a [`Concat`], each of whose parts has a sampler of its own. Weights are rounded to 1/65536.
/// Every 64 positions hold the weights almost exactly; the order within them looks random, and repeats after 65536
/// positions. Every dataset starts at its beginning in each epoch.
///
/// Any position is computed directly. A mixture takes 256 KiB, whatever the number of samples; with
/// [`AllExhaustedWithoutReplacement`](Stopping::AllExhaustedWithoutReplacement), as much for each dataset.
///
/// # Changed weights
/// A mixture can resume from a state of one with other weights: from there on it uses its own weights, and each dataset
/// continues where it was. Within a pass through a dataset no sample is lost or duplicated. Later epochs are as if the
/// weights had never changed.
#[derive(Clone, Debug)]
pub struct Mixed {
    parts: Vec<Member>,
    /// Samples of one pass through each part.
    lens: Vec<u64>,
    /// The weights.
    slots: Vec<u32>,
    stopping: Stopping,
    seed: u64,
    usual: Arc<Course>,
    /// The epoch in which weights were changed, and the rest of it.
    changed: Option<(u64, Arc<Course>)>,
}

#[derive(Clone)]
struct Member {
    sampler: Arc<dyn Sampler>,
    /// Number in the concatenation of this part's sample 0.
    first: u64,
    len: u64,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("order", &self.sampler.describe()).field("first", &self.first).finish()
    }
}

/// Passes through a part are epochs of its sampler. Two epochs of the mixture are this far apart, so that their passes
/// never meet.
const PASS: u64 = 1 << 32;

/// Version of the algorithm: see [`OrderId`]. It must go up when the same orders, weights and seed are mixed in another
/// way.
const VERSION: u64 = 1;

impl Mixed {
    /// A mixture of the datasets that end at `ends` in their concatenation ([`Concat::ends`]), each in the order of its
    /// sampler. Weights need not add up to 1. A dataset with weight 0 never comes.
    ///
    /// # Errors
    /// `InvalidArgument` unless there is one sampler and one weight for each dataset and at most 256 of them, the ends
    /// ascend, no sampler has more positions than its dataset has samples or is a mixture itself, weights are finite,
    /// none is negative, one is positive and none of those is of an empty dataset, and an epoch has at least one sample
    /// and fewer than 2^64.
    pub fn new(
        samplers: Vec<Arc<dyn Sampler>>,
        ends: &[u64],
        weights: &[f64],
        stopping: Stopping,
        seed: u64,
    ) -> Result<Mixed> {
        let refuse =
            |what: String, remedy: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
        if samplers.len() != ends.len() || weights.len() != ends.len() {
            let (orders, weights, datasets) = (samplers.len(), weights.len(), ends.len());
            let what = format!("a mixture of {datasets} datasets has {orders} orders and {weights} weights");
            return refuse(what, "give one order and one weight for each dataset");
        }
        if stopping == Stopping::After(0) {
            return refuse("an epoch of the mixture has no samples".into(), "give a number of samples above 0");
        }
        let slots = weights::slots(weights)?;
        let mut parts = Vec::with_capacity(samplers.len());
        let mut first = 0;
        for (number, (sampler, &end)) in samplers.into_iter().zip(ends).enumerate() {
            let len = sampler.len();
            if end.checked_sub(first).is_none_or(|samples| len > samples) {
                let what = format!("dataset {number} has samples {first} to {end}, and its order has {len} positions");
                return refuse(what, "give where each dataset ends, ascending, and an order made for it");
            }
            if sampler.mixer(Cursor::default()).is_some() {
                let what = format!("dataset {number} of the mixture is a mixture itself");
                return refuse(what, "mix all datasets at once: the weights of its parts are the products");
            }
            if len == 0 && slots[number] > 0 {
                let what = format!("dataset {number} of the mixture has a weight and no samples");
                return refuse(what, "leave it out, or give it the weight 0");
            }
            parts.push(Member { sampler, first, len });
            first = end;
        }
        let lens: Vec<u64> = parts.iter().map(|part| part.len).collect();
        let start = Start { since: 0, given: vec![0; lens.len()] };
        let usual = Arc::new(Course::new(start, &slots, &lens, stopping, seed)?);
        Ok(Mixed { parts, lens, slots, stopping, seed, usual, changed: None })
    }

    /// A mixture of the datasets of `concat`, each shuffled like a dataset of its own. The seed of dataset `d` is
    /// `seed + d`, so that two of one length have different orders.
    ///
    /// # Errors
    /// As [`Mixed::new`], and as [`for_dataset`].
    pub fn of(concat: &Concat, shuffle: Shuffle, weights: &[f64], stopping: Stopping, seed: u64) -> Result<Mixed> {
        let parts = concat.parts().iter().zip(0..);
        let samplers = parts.map(|(part, number)| for_dataset(&**part, shuffle, seed.wrapping_add(number)));
        Mixed::new(samplers.collect::<Result<_>>()?, concat.ends(), weights, stopping, seed)
    }

    fn course(&self, epoch: u64) -> &Course {
        match &self.changed {
            Some((changed, course)) if *changed == epoch => course,
            _ => &self.usual,
        }
    }

    /// The course of these datasets at `cursor`, continued from `mixer`.
    fn continued(&self, mixer: &Mixer, cursor: Cursor) -> Result<Course> {
        let refuse = |what: String| {
            let error = Error::new(ErrorKind::StateMismatch, what);
            Err(error.with_remedy("the state is of another mixture, or damaged"))
        };
        let Mixer { slots, epoch, since, given } = mixer;
        let parts = self.parts.len();
        if slots.len() != parts || given.len() != parts {
            let (slots, given) = (slots.len(), given.len());
            return refuse(format!(
                "a state has the weights of {slots} datasets and the samples of {given}; the mixture has {parts}"
            ));
        }
        if slots.iter().map(|&count| u64::from(count)).sum::<u64>() != PERIOD {
            return refuse(format!("the weights of a state do not add up to {PERIOD}"));
        }
        if let Some(part) = (0..parts).find(|&part| self.lens[part] == 0 && (slots[part] > 0 || given[part] > 0)) {
            return refuse(format!("a state has samples of dataset {part}, which is empty"));
        }
        if *epoch != cursor.epoch || *since > cursor.position {
            let Cursor { epoch: at_epoch, position, .. } = cursor;
            return refuse(format!(
                "a state has weights from position {since} of epoch {epoch} on, and is at position {position} of epoch \
                 {at_epoch}"
            ));
        }
        if given.iter().try_fold(0_u64, |sum, &given| sum.checked_add(given)) != Some(*since) {
            return refuse(format!("the samples that the datasets gave do not add up to the state's {since}"));
        }
        let once = matches!(self.stopping, Stopping::FirstExhausted | Stopping::AllExhaustedWithoutReplacement);
        if let Some(part) = (0..parts).find(|&part| once && given[part] > self.lens[part]) {
            let (given, len) = (given[part], self.lens[part]);
            return refuse(format!(
                "a state has {given} samples of dataset {part}, which has {len}, each of them once"
            ));
        }
        let start = Start { since: *since, given: given.clone() };
        let course = Course::new(start, slots, &self.lens, self.stopping, self.seed)?;
        if cursor.position > course.len {
            let (position, len) = (cursor.position, course.len);
            return refuse(format!("a state is at position {position} of an epoch of {len} samples"));
        }
        Ok(course)
    }
}

impl Sampler for Mixed {
    fn len(&self) -> u64 {
        self.usual.len
    }

    fn len_of(&self, epoch: u64) -> u64 {
        self.course(epoch).len
    }

    /// In an epoch with changed weights, the samples before the change are unknown. For those positions, this returns
    /// the samples that this mixture's weights would have given.
    fn at(&self, cursor: Cursor) -> SampleId {
        let Cursor { epoch, position, .. } = cursor;
        let place = self.course(epoch).at(position).or_else(|| self.usual.at(position));
        let (part, number) = place.expect("the usual epoch begins at position 0");
        let Member { sampler, first, len } = &self.parts[part];
        // A division takes as long as all the rest, and is needed only if a part starts over.
        let (pass, position) = if number < *len { (0, number) } else { (number / len, number % len) };
        let epoch = epoch.wrapping_add(pass.wrapping_mul(PASS));
        SampleId(first + sampler.at(Cursor::new(epoch, position)).0)
    }

    /// Excludes the weights, because they may change.
    fn id(&self) -> OrderId {
        let parts = Parts::new(self.parts.iter().map(|part| (part.sampler.id(), part.first, part.len)));
        OrderId(KnownOrder::Mixed { parts, stopping: self.stopping, seed: self.seed, version: VERSION })
    }

    fn mixer(&self, cursor: Cursor) -> Option<Mixer> {
        let Start { since, given } = self.course(cursor.epoch).start().clone();
        Some(Mixer { slots: self.slots.clone(), epoch: cursor.epoch, since, given })
    }

    fn resumed(&self, mixer: &Mixer, cursor: Cursor) -> Result<Option<Arc<dyn Sampler>>> {
        let mut course = self.continued(mixer, cursor)?;
        if mixer.slots != self.slots {
            if cursor.rows > 0 {
                let what = "the weights of a mixture cannot change within a window of packed or bucketed samples";
                let remedy = "go on with the old weights until the cursor's rows are 0, then change them";
                return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
            }
            let start = Start { since: cursor.position, given: course.given_at(cursor.position) };
            course = Course::new(start, &self.slots, &self.lens, self.stopping, self.seed)?;
        }
        Ok(Some(Arc::new(Mixed { changed: Some((cursor.epoch, Arc::new(course))), ..self.clone() })))
    }
}

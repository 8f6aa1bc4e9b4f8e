//! A place in the order of a dataset, to be saved and gone on from: the checkpoint of a loader.

mod file;
mod json;

use crate::config::{Batching, PackMethod};
use crate::dataset::{Dataset, SampleId};
use crate::sampler::{Cursor, Digest, EpochDigest, Mixer, Sampler};
use crate::{Error, ErrorKind, Result};
use std::fmt;

/// The version of the JSON that this library writes, and the only one that it understands. It goes up when a state
/// cannot be read any more, or would mean another place; fields may be added within a version.
pub const VERSION: u64 = 1;

/// Where a loader stands, and everything that must be the same for the place to mean the same samples.
///
/// It is valid at the batch that the consumer holds, whatever was read ahead. All but `delivered` is the same on every
/// rank, so one rank's state serves all of them, and another world size, batch size, engine or number of threads goes
/// on at the same sample. As JSON it takes less than a kilobyte for one dataset, whatever its size.
///
/// ```no_run
/// # fn main() -> uringload::Result<()> {
/// use std::sync::Arc;
/// use uringload::{Loader, State, dataset::Folder};
///
/// let dataset = Arc::new(Folder::open(&["/data/train"])?);
/// let mut loader = Loader::builder(dataset.clone()).shuffle(true).seed(42).build()?;
/// let batch = loader.next();
/// loader.state().write("checkpoint.json")?;
///
/// let state = State::read("checkpoint.json")?;
/// let loader = Loader::builder(dataset).shuffle(true).seed(42).resume(&state).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The dataset that the place is in.
    pub dataset: Identity,
    /// The order, as [`Sampler::describe`] has it.
    pub order: String,
    /// What decides which samples make a row, where a row is not a sample. Matters only within a window of rows.
    pub batching: Option<String>,
    /// The place.
    pub cursor: Cursor,
    /// Positions in the cursor's epoch.
    pub length: u64,
    /// Where a mixture stands whose weights were changed.
    pub mixer: Option<Mixer>,
    /// What the rank that saved this was given, so that all ranks can prove that nothing was lost or doubled. Belongs
    /// to that rank; all else is the same on every rank.
    pub delivered: Option<Delivered>,
}

/// What a dataset is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the format.
    pub format: String,
    /// Hash of the index: [`Dataset::fingerprint`].
    pub fingerprint: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of files.
    pub files: u64,
    /// Bytes of all samples.
    pub bytes: u64,
}

impl Identity {
    /// Of `dataset`. The first time it may take as long as its fingerprint does: about 50 ns for each file.
    pub fn of(dataset: &dyn Dataset) -> Identity {
        Identity {
            format: dataset.format().to_owned(),
            fingerprint: dataset.fingerprint(),
            samples: dataset.len(),
            files: dataset.files().len() as u64,
            bytes: dataset.bytes(),
        }
    }
}

/// What one rank was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The rank.
    pub rank: u64,
    /// Of so many.
    pub world_size: u64,
    /// The samples, from which position on they count, and those that could not be had. Of the epoch that the last
    /// batch belongs to: at the end of an epoch it is that whole epoch's.
    pub digest: EpochDigest,
}

impl State {
    /// The place, to start from.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Whether `dataset` is the one that the state was saved with.
    ///
    /// # Errors
    /// `StateMismatch`, with everything that differs.
    pub fn check_dataset(&self, dataset: &Identity) -> Result<()> {
        let saved = &self.dataset;
        if saved == dataset {
            return Ok(());
        }
        let mut differences = Vec::new();
        if saved.format != dataset.format {
            differences.push(format!("format {:?} in the state, {:?} here", saved.format, dataset.format));
        }
        for (what, then, now) in [
            ("samples", saved.samples, dataset.samples),
            ("files", saved.files, dataset.files),
            ("bytes", saved.bytes, dataset.bytes),
        ] {
            if then != now {
                differences.push(format!("{then} {what} in the state, {now} here"));
            }
        }
        if differences.is_empty() {
            let (then, now) = (saved.fingerprint, dataset.fingerprint);
            differences.push(format!(
                "as many samples, files and bytes, but fingerprint {then:016x} in the state, {now:016x} here: names, \
                 sizes or order of files differ"
            ));
        }
        Err(mismatch(format!("the state is of another dataset: {}", differences.join("; ")))
            .with_remedy("open the dataset that it was saved with; a program may start at the bare cursor, unchecked"))
    }

    /// Whether `sampler` has the order that the state was saved in, and the place that it stands at.
    ///
    /// # Errors
    /// `StateMismatch`, with both orders.
    pub fn check_order(&self, sampler: &dyn Sampler) -> Result<()> {
        let order = sampler.describe();
        if self.order != order {
            return Err(mismatch(format!(
                "the state was saved in another order: {:?} in the state, {order:?} here",
                self.order
            ))
            .with_remedy("give the shuffle and the seed that it was saved with"));
        }
        let Cursor { epoch, position, .. } = self.cursor;
        let length = sampler.len_of(epoch);
        if position > length {
            return Err(mismatch(format!(
                "the state stands at position {position} of epoch {epoch}, which has {length} positions here"
            ))
            .with_remedy("go on with the mixture that it was saved with"));
        }
        Ok(())
    }

    /// Whether rows are made as they were when the state was saved; any way will do unless it stands within a window.
    ///
    /// # Errors
    /// `StateMismatch`, with both ways.
    pub fn check_batching(&self, batching: &Batching) -> Result<()> {
        let batching = describe(batching);
        if self.cursor.rows == 0 || self.batching == batching {
            return Ok(());
        }
        let named = |batching: &Option<String>| batching.clone().unwrap_or_else(|| "samples".into());
        Err(mismatch(format!(
            "the state stands {} rows into a window of other rows: {:?} in the state, {:?} here",
            self.cursor.rows,
            named(&self.batching),
            named(&batching)
        ))
        .with_remedy("pack or bucket as before, or seek the state to its position, which repeats those rows' samples"))
    }
}

/// In words, on one line.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cursor { epoch, position, rows } = self.cursor;
        write!(f, "epoch {epoch}, position {position} of {}", self.length)?;
        if rows > 0 {
            write!(f, " and {rows} rows")?;
        }
        let Identity { format, fingerprint, samples, .. } = &self.dataset;
        // An order may be a caller's text; Debug keeps it on this line.
        write!(f, ", in the order {:?} of {samples} samples ({format:?} {fingerprint:016x})", self.order)
    }
}

fn mismatch(doing: String) -> Error {
    Error::new(ErrorKind::StateMismatch, doing)
}

/// What decides which samples make a row, on a short line; `None` where each sample is one.
pub(crate) fn describe(batching: &Batching) -> Option<String> {
    match batching {
        Batching::Samples => None,
        Batching::Packed(packing) => {
            let method = match packing.method {
                PackMethod::FirstFit => "first fit",
                PackMethod::BestFit => "best fit",
                PackMethod::Concat => "concat",
            };
            Some(format!("packed, {method}, rows of {}, windows of {}", packing.seq_len, packing.window))
        }
        Batching::Buckets(buckets) => {
            // Any number of boundaries must fit, so a digest stands for them.
            let mut digest = Digest::default();
            let boundaries = buckets.boundaries.iter().copied().chain([u64::MAX]);
            for (index, (boundary, &size)) in boundaries.zip(&buckets.batch_sizes).enumerate() {
                digest.add(index as u64, SampleId(boundary), size);
            }
            let (count, window) = (buckets.batch_sizes.len(), buckets.window);
            Some(format!("{count} buckets ({:016x}), windows of {window}", digest.sum))
        }
    }
}

//! A position in the order of a dataset, to save and to resume from: the checkpoint of a loader.

mod content;
mod file;
mod identities;
mod json;

use crate::dataset::Dataset;
use crate::patience::Patience;
use crate::sampler::{
    BatchingId, Cursor, Difference, EpochDigest, Identified, KnownOrder, Mixer, OnLine, OrderId, Sampler,
};
use crate::{Error, ErrorKind, Result};
use content::Content;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use content::{Look, content_hashes};

/// The version of the JSON that this library reads and writes. It increases when a field changes its meaning, or when a
/// new field must not be ignored. Other fields may be added within a version.
pub const VERSION: u64 = 2;

/// A checkpoint: the position of a loader, and the identity of the dataset and the order that the position belongs to.
///
/// It is about the last batch that was delivered, whatever was read ahead. One rank's state serves all ranks, and
/// another world size, batch size, engine or number of threads continues at the same sample; only the digest of what
/// was delivered belongs to the rank. As JSON it takes less than 1 KB for one dataset of any size.
///
/// ```
/// use uringload::{Loader, State, dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # (0..10).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), [n; 100]).unwrap());
/// # let checkpoint = tempfile::tempdir().unwrap();
/// # let checkpoint = checkpoint.path().join("checkpoint.json");
/// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
/// let builder = Loader::builder(dataset).batch_size(4).shuffle(true).seed(42);
/// let mut loader = builder.clone().build()?;
/// let first = loader.next().expect("a first batch")?;
/// loader.state().write(&checkpoint)?;
///
/// let mut loader = builder.resume(&State::read(&checkpoint)?).build()?;
/// let second = loader.next().expect("a second batch")?;
/// assert_eq!(second.cursor, first.next);
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The dataset of the position.
    #[doc(hidden)]
    pub dataset: Identity,
    /// Hashes of its files' content, if they are known.
    pub(crate) content: Option<Content>,
    /// The order.
    #[doc(hidden)]
    pub order: OrderId,
    /// How samples become rows. Matters only within a window of rows.
    #[doc(hidden)]
    pub batching: BatchingId,
    /// The position.
    #[doc(hidden)]
    pub cursor: Cursor,
    /// Positions in the cursor's epoch.
    #[doc(hidden)]
    pub length: u64,
    /// The state of a mixture whose weights were changed.
    #[doc(hidden)]
    pub mixer: Option<Mixer>,
    /// What the rank that saved this received, so that all ranks can prove that nothing was lost or doubled. Belongs to
    /// that rank; everything else is the same on every rank.
    #[doc(hidden)]
    pub delivered: Option<Received>,
}

/// The identity of a dataset.
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
    /// The identity of `dataset`. The first call may take as long as its fingerprint does: about 50 ns per file.
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

/// What one rank received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The rank.
    pub rank: u64,
    /// Total number of ranks.
    pub world_size: u64,
    /// The samples, the position they count from, and those that failed. Covers the epoch of the last batch; at the end
    /// of an epoch, that whole epoch.
    pub digest: EpochDigest,
}

impl State {
    /// The position in the order.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Checks that `dataset` is the one that the state was saved with.
    ///
    /// # Errors
    /// `StateMismatch`, with everything that differs.
    #[doc(hidden)]
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
        Err(mismatch(format!("the state is of another dataset: {}", differences.join("; "))).with_remedy(
            "open the dataset that it was saved with; a program can also start at the cursor alone, which is not \
                 checked",
        ))
    }

    /// Checks that the dataset's files have the same content as when the state was saved: a few blocks of up to 64
    /// files, and one of up to 4096. A file that does not answer is not compared; `timeout` is that of the loader's
    /// reads.
    ///
    /// # Errors
    /// `StateMismatch`, with the first file that differs.
    #[doc(hidden)]
    pub fn check_content(&self, dataset: &Arc<dyn Dataset>, timeout: Option<Duration>) -> Result<()> {
        let patience = Patience::of_timeout(timeout);
        self.content.as_ref().map_or(Ok(()), |content| content.check(dataset, &patience))
    }

    /// Checks that `sampler` has the order that the state was saved in, and that the state's position exists in it.
    ///
    /// # Errors
    /// `StateMismatch`, with both orders and what differs.
    #[doc(hidden)]
    pub fn check_order(&self, sampler: &dyn Sampler) -> Result<()> {
        let here = sampler.id();
        let another = |differing| mismatch(format!("the state was saved in another order: {differing}"));
        if self.order != here {
            let differences = self.order.differences(&here);
            let is_version = matches!(&differences[..], [Difference { name: "version", .. }]);
            let remedy = if is_version { OTHER_VERSION } else { OTHER_ORDER };
            return Err(another(both(&self.order, &here, &differences)).with_remedy(remedy));
        }
        let Cursor { epoch, position, .. } = self.cursor;
        let length = sampler.len_of(epoch);
        if position > length {
            return Err(mismatch(format!(
                "the state is at position {position} of epoch {epoch}, which has {length} positions here"
            ))
            .with_remedy("use the mixture that it was saved with"));
        }
        // Epochs of a mixture whose weights change, and of a caller's order, may differ in length.
        let may_vary = self.mixer.is_some() || matches!(here.0, KnownOrder::Custom { .. });
        if self.length != length && !may_vary {
            return Err(mismatch(format!(
                "the state was saved in another order: epoch {epoch} has {} positions in the state, {length} here",
                self.length
            ))
            .with_remedy("give an order over the samples that it was saved with"));
        }
        Ok(())
    }

    /// Checks that rows are made the same way as when the state was saved. Any way will do unless the position is
    /// within a window.
    ///
    /// # Errors
    /// `StateMismatch`, with both ways and what differs.
    #[doc(hidden)]
    pub fn check_batching(&self, here: &BatchingId) -> Result<()> {
        if self.cursor.rows == 0 || self.batching == *here {
            return Ok(());
        }
        let differing = both(&self.batching, here, &self.batching.differences(here));
        let rows = self.cursor.rows;
        Err(mismatch(format!("the state is {rows} rows into a window of other rows: {differing}")).with_remedy(
            "pack or bucket as before, or seek the state to its position, which repeats those rows' samples",
        ))
    }
}

const OTHER_ORDER: &str = "use the shuffle and the seed that it was saved with";
const OTHER_VERSION: &str =
    "the algorithm of this order has changed: resume with the version of the library or program that saved it";

/// Both identities as text, and each field that differs.
fn both(saved: &impl fmt::Display, here: &impl fmt::Display, differences: &[Difference]) -> String {
    let differences: Vec<String> = differences.iter().map(Difference::to_string).collect();
    let (saved, here) = (saved.to_string(), here.to_string());
    format!("\"{}\" in the state, \"{}\" here ({})", OnLine(&saved), OnLine(&here), differences.join("; "))
}

/// As text, on one line.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cursor { epoch, position, rows } = self.cursor;
        write!(f, "epoch {epoch}, position {position} of {}", self.length)?;
        if rows > 0 {
            write!(f, " and {rows} rows")?;
        }
        let Identity { format, fingerprint, samples, .. } = &self.dataset;
        let order = self.order.to_string();
        write!(f, ", in the order \"{}\" of {samples} samples ({format:?} {fingerprint:016x})", OnLine(&order))
    }
}

fn mismatch(what: String) -> Error {
    Error::new(ErrorKind::StateMismatch, what)
}

//! What becomes of samples that cannot be had.

/// What becomes of a sample that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// Its error takes the place of its batch.
    #[default]
    Raise,
    /// As `Skip`; and the loader's `on_failed` is told of it.
    Warn,
    /// It is left out of its batch, counted, and named with its error in the batch.
    Skip,
    /// Another sample takes its place, so that all ranks keep the same number of samples; it is counted and named as
    /// under `Skip`. Which one is a function of the seed and the sample that is missing.
    Replace,
}

/// How many samples may fail before the loader gives up.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MaxFailures {
    /// So many, in all epochs.
    Count(u64),
    /// This share of the samples that one epoch has on this rank, between 0 and 1; in each epoch.
    Fraction(f64),
}

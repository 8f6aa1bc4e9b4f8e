//! What becomes of samples that cannot be had.

/// What becomes of a sample that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// Its error takes the place of its batch.
    #[default]
    Raise,
    /// As `Skip`; and the loader's `on_failed` is told of it when its batch is handed out.
    Warn,
    /// It is left out of its batch, counted, and named with its error in the batch.
    Skip,
    /// Another sample takes its place, so that all ranks keep the same number of samples; it is counted and named as
    /// under `Skip`. Which one is a function of the seed and the sample that is missing
    /// ([`replacement`](crate::sampler::replacement)), whatever the rank, the epoch and the engine.
    ///
    /// Where that one cannot be had either, up to 16 are tried; if none can, the error of the first sample takes the
    /// place of the batch. Samples that are tried in vain are not counted as failures: they are when their own turn
    /// comes. A replacement comes beside its own turn, so it may be met twice in an epoch; it is in no digest.
    ///
    /// One sample's memory is kept aside for it, and replacements are read one after the other while the consumer may
    /// be waiting: this is for few bad samples. Where rows are packed, a sample of another length would not fit into
    /// the gap: there this is as `Skip`.
    Replace,
}

/// How many samples may fail before the loader gives up.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MaxFailures {
    /// So many, in all epochs: the next one ends the loader.
    Count(u64),
    /// This share of the samples that one epoch has on this rank, between 0 and 1; in each epoch. An epoch that is
    /// entered in its middle counts as a whole one.
    Fraction(f64),
}

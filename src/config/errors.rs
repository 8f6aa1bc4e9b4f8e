//! What happens to samples that cannot be read.

/// What happens to a sample that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// Its error takes the place of its batch.
    #[default]
    Raise,
    /// As `Skip`, and the builder's `on_failed` is called when the batch is handed out.
    Warn,
    /// It is left out of its batch, counted, and listed with its error in
    /// [`Batch::failed`](crate::batch::Batch::failed).
    Skip,
    /// Another sample takes its place, so that all ranks keep the same number of samples. It is counted and listed as
    /// under `Skip`. Which sample replaces it is a function of the seed and the missing sample alone, whatever the
    /// rank, the epoch and the engine.
    ///
    /// If the replacement cannot be read either, up to 16 are tried; if all fail, the error of the first sample takes
    /// the place of the batch. Failed replacements are counted only when their own turn comes. A replacement comes in
    /// addition to its own turn, so a sample may be seen twice in an epoch; replacements are in no digest.
    ///
    /// The memory of one sample is set aside for this, and replacements are read one at a time while the consumer may
    /// be waiting: use it for few bad samples. In packed rows a sample of another length would not fit into the gap,
    /// so there this is the same as `Skip`.
    Replace,
}

/// How many samples may fail before the loader gives up.
///
/// Without a limit a breaker ends it: when three quarters of the last 128 samples could not be read, in eight files or
/// more.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MaxFailures {
    /// This many, over all epochs: the next one ends the loader.
    Count(u64),
    /// This share, 0 to 1, of the samples that an epoch has on this rank, in each epoch. An epoch that is resumed in
    /// its middle counts as a whole one.
    Fraction(f64),
}

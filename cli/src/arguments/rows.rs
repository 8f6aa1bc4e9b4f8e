//! Options of how samples become rows of a batch, and values become columns.

use super::super::units::parse_bytes;
use clap::{Args, ValueEnum};
use uringload::config::{Buckets, Collate, PackMethod, Packing, PadValue, Padding};
use uringload::internal::Batching;
use uringload::internal::{Config, WINDOW_SAMPLES};

/// What a row of a batch is, and the form of columns.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Batches")]
pub struct Rows {
    /// Pack sequences into rows of --seq-len elements; --batch-size counts rows then.
    #[arg(long, value_name = "METHOD", requires = "seq_len")]
    pub pack: Option<PackName>,
    /// Elements in a row.
    #[arg(long, value_name = "N", requires = "pack", value_parser = clap::value_parser!(u64).range(1..))]
    pub seq_len: Option<u64>,
    /// Put samples of about one length into one batch: ascending lengths at which a bucket ends.
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        conflicts_with = "pack",
        requires = "bucket_batch_sizes"
    )]
    pub bucket_boundaries: Vec<u64>,
    /// Samples in a batch of each bucket, one more than boundaries; --batch-size is not used then.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', requires = "bucket_boundaries")]
    pub bucket_batch_sizes: Vec<u64>,
    /// Samples, over all ranks, that are packed or bucketed together.
    #[arg(long, value_name = "N", default_value_t = WINDOW_SAMPLES)]
    pub row_window: u64,
    /// The form of columns.
    #[arg(long, default_value = "auto")]
    pub collate: CollateName,
    /// What fills up padded columns and packed rows.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub pad_value: i64,
    /// Elements to which padded values are cut.
    #[arg(long, value_name = "N")]
    pub max_length: Option<u64>,
    /// Round the length of padded values up to a multiple of this many elements.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_bytes)]
    pub pad_multiple: u64,
}

impl Rows {
    /// Puts what was asked into a configuration.
    pub fn apply(&self, config: &mut Config) {
        let pad = PadValue::Int(self.pad_value);
        config.batching = match (self.pack, self.seq_len) {
            (Some(pack), Some(seq_len)) => {
                Batching::Packed(Packing::new(seq_len).method(pack.into()).window(self.row_window).pad(pad))
            }
            _ if !self.bucket_batch_sizes.is_empty() => Batching::Buckets(
                Buckets::new(self.bucket_boundaries.clone(), self.bucket_batch_sizes.clone()).window(self.row_window),
            ),
            _ => Batching::Samples,
        };
        config.collate = match self.collate {
            CollateName::Auto => Collate::Auto,
            CollateName::Views => Collate::Views,
            CollateName::Dense => Collate::Dense,
            CollateName::Ragged => Collate::Ragged,
            CollateName::Padded => Collate::Padded(
                Padding::default().value(pad).max_length(self.max_length).multiple_of(self.pad_multiple),
            ),
        };
    }
}

/// Names of the ways to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PackName {
    /// The first row that has room, in the order in which sequences come.
    FirstFit,
    /// The row with the least room left, longest sequences first.
    BestFit,
    /// End to end, cut wherever a row is full.
    Concat,
}

impl From<PackName> for PackMethod {
    fn from(name: PackName) -> PackMethod {
        match name {
            PackName::FirstFit => PackMethod::FirstFit,
            PackName::BestFit => PackMethod::BestFit,
            PackName::Concat => PackMethod::Concat,
        }
    }
}

/// Names of the forms of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CollateName {
    /// One array where that costs no copy, else one slice a sample.
    Auto,
    /// One slice a sample.
    Views,
    /// One array; samples must have one size.
    Dense,
    /// All values end to end, with offsets.
    Ragged,
    /// All values at the length of the longest, the rest filled up.
    Padded,
}

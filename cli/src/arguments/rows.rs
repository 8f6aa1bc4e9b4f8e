//! Options for how samples become rows of a batch, and values become columns.

use crate::units::parse_bytes;
use clap::{Args, ValueEnum};
use uringload::config::Batching;
use uringload::config::{Buckets, Collate, PackMethod, Packing, PadValue, Padding};
use uringload::config::{Config, WINDOW_SAMPLES};

/// The rows of a batch, and the form of its columns.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Batches")]
pub struct Rows {
    /// Pack sequences into rows of --seq-len elements; --batch-size then counts rows.
    #[arg(long, value_name = "METHOD", requires = "seq_len")]
    pub packing: Option<PackName>,
    /// Elements per row.
    #[arg(long, value_name = "N", requires = "packing", value_parser = clap::value_parser!(u64).range(1..))]
    pub seq_len: Option<u64>,
    /// Batch samples of about the same length together: ascending lengths at which buckets end.
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        conflicts_with = "packing",
        requires = "bucket_batch_sizes"
    )]
    pub bucket_boundaries: Vec<u64>,
    /// Samples in a batch of each bucket: one number more than there are boundaries; --batch-size is then not used.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', requires = "bucket_boundaries")]
    pub bucket_batch_sizes: Vec<u64>,
    /// Samples, over all ranks, that are packed or bucketed together.
    #[arg(long, value_name = "N", default_value_t = WINDOW_SAMPLES)]
    pub row_window: u64,
    /// The form of columns.
    #[arg(long, default_value = "auto")]
    pub collate: CollateName,
    /// The value that fills up padded columns and packed rows.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub pad_value: i64,
    /// Cut padded values to this many elements.
    #[arg(long, value_name = "N")]
    pub max_length: Option<u64>,
    /// Round the length of padded values up to a multiple of this many elements.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_bytes)]
    pub pad_multiple: u64,
}

impl Rows {
    /// Applies the arguments to a configuration.
    pub fn apply(&self, config: &mut Config) {
        let pad = PadValue::Int(self.pad_value);
        config.batching = match (self.packing, self.seq_len) {
            (Some(packing), Some(seq_len)) => {
                Batching::Packed(Packing::new(seq_len).method(packing.into()).window(self.row_window).pad(pad))
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
    /// The first row that has room, in the order of the sequences.
    FirstFit,
    /// The row with the least room left, longest sequences first.
    BestFit,
    /// End to end, cut where a row is full.
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
    /// One array where samples have one shape, else one slice per sample.
    Auto,
    /// One slice per sample.
    Views,
    /// One array; samples must have the same size.
    Dense,
    /// All values end to end, with offsets.
    Ragged,
    /// All values padded to the length of the longest.
    Padded,
}

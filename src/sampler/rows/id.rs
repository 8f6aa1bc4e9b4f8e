//! Everything that decides which samples make a row, as data.

use crate::config::{Batching, Config, PackMethod, Shuffle};
use crate::dataset::SampleId;
use crate::sampler::Digest;
use crate::sampler::id::{Field, Identified};
use std::fmt;

/// Version of the algorithms that make rows, for packing and for buckets alike. It must go up when the same order and
/// lengths give other rows, or the same rows in another order.
const VERSION: u64 = 1;

/// Everything that decides which samples make a row, besides the order and the lengths of samples, and the order of
/// rows within a window.
///
/// A state stores it as a JSON object that has `kind` and the fields named here. These names never change.
///
/// | variant | `kind` | fields |
/// |---|---|---|
/// | [`Samples`](BatchingId::Samples) | `samples` | |
/// | [`Packed`](BatchingId::Packed) | `packed` | `method`, `seq_len`, `window`, `seed`, `version` |
/// | [`Buckets`](BatchingId::Buckets) | `buckets` | `buckets`, `digest`, `window`, `seed`, `version` |
///
/// `method` is `first_fit`, `best_fit` or `concat`, `digest` is 16 hexadecimal digits, all others are numbers. There is
/// no `seed` if rows are not shuffled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchingId {
    /// Each sample is a row.
    Samples,
    /// Sequences are packed into rows.
    Packed {
        /// Which row a sequence goes to.
        method: PackMethod,
        /// Elements in a row.
        seq_len: u64,
        /// Samples that are packed together.
        window: u64,
        /// The seed of the order of a window's rows; `None` if it is not random.
        seed: Option<u64>,
        /// Version of the algorithm.
        version: u64,
    },
    /// Samples of about one length make a batch.
    Buckets {
        /// Number of buckets.
        buckets: u64,
        /// Digest of the boundaries and batch sizes.
        digest: u64,
        /// Samples that are put into buckets together.
        window: u64,
        /// The seed of the order of a window's batches; `None` if it is not random.
        seed: Option<u64>,
        /// Version of the algorithm.
        version: u64,
    },
}

impl BatchingId {
    /// The identity of the batching in `config`.
    pub fn of(config: &Config) -> BatchingId {
        let seed = (config.shuffle != Shuffle::Off).then_some(config.seed);
        match &config.batching {
            Batching::Samples => BatchingId::Samples,
            Batching::Packed(packing) => BatchingId::Packed {
                method: packing.method,
                seq_len: packing.seq_len,
                window: packing.window,
                // Rows of `Concat` keep their order.
                seed: seed.filter(|_| packing.method != PackMethod::Concat),
                version: VERSION,
            },
            Batching::Buckets(buckets) => {
                let mut digest = Digest::default();
                let boundaries = buckets.boundaries.iter().copied().chain([u64::MAX]);
                for (index, (boundary, &size)) in boundaries.zip(&buckets.batch_sizes).enumerate() {
                    digest.add(index as u64, SampleId(boundary), size);
                }
                let count = buckets.batch_sizes.len() as u64;
                BatchingId::Buckets {
                    buckets: count,
                    digest: digest.sum,
                    window: buckets.window,
                    seed,
                    version: VERSION,
                }
            }
        }
    }
}

/// All methods.
pub(crate) const METHODS: [PackMethod; 3] = [PackMethod::FirstFit, PackMethod::BestFit, PackMethod::Concat];

/// The name of a method in states.
pub(crate) fn method_name(method: PackMethod) -> &'static str {
    match method {
        PackMethod::FirstFit => "first_fit",
        PackMethod::BestFit => "best_fit",
        PackMethod::Concat => "concat",
    }
}

impl Identified for BatchingId {
    fn kind(&self) -> &'static str {
        match self {
            BatchingId::Samples => "samples",
            BatchingId::Packed { .. } => "packed",
            BatchingId::Buckets { .. } => "buckets",
        }
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        use Field::{Digest, Number, Text};
        let (mut fields, seed, version) = match self {
            BatchingId::Samples => return Vec::new(),
            BatchingId::Packed { method, seq_len, window, seed, version } => {
                let method = ("method", Text(method_name(*method).into()));
                (vec![method, ("seq_len", Number(*seq_len)), ("window", Number(*window))], seed, version)
            }
            BatchingId::Buckets { buckets, digest, window, seed, version } => {
                let buckets = ("buckets", Number(*buckets));
                (vec![buckets, ("digest", Digest(*digest)), ("window", Number(*window))], seed, version)
            }
        };
        fields.extend(seed.map(|seed| ("seed", Number(seed))));
        fields.push(("version", Number(*version)));
        fields
    }
}

/// As text on one line, for people. Nothing stores, compares or parses it.
impl fmt::Display for BatchingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = match self {
            BatchingId::Samples => return f.write_str("samples"),
            BatchingId::Packed { method, seq_len, window, seed, .. } => {
                let method = method_name(*method).replace('_', " ");
                write!(f, "packed, {method}, rows of {seq_len}, windows of {window}")?;
                seed
            }
            BatchingId::Buckets { buckets, window, seed, .. } => {
                write!(f, "{buckets} buckets, windows of {window}")?;
                seed
            }
        };
        seed.map_or(Ok(()), |seed| write!(f, ", seed {seed}"))
    }
}

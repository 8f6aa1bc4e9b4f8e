//! Which order samples come in, and what one row of a batch is.

/// How each epoch orders the samples of the dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shuffle {
    /// The order of the dataset.
    #[default]
    Off,
    /// What suits the way in which the dataset is stored, which all ranks see alike, and never what its disk does:
    ///
    /// - [`Shards`](Shuffle::Shards) with 4 shards mixed where samples are cut from units that are decoded as a whole:
    ///   a full shuffle would decode a unit for nearly every sample;
    /// - [`Pieces`](Shuffle::Pieces) where samples lie in two shards or more, 4096 of them or more, of 1 MiB each at
    ///   most: 16 pieces of 16 MiB each, or of 4096 samples if that is less, come from anywhere in the dataset and are
    ///   mixed as one. A disk that does few operations a second then reads at nearly its full rate;
    /// - else [`Full`](Shuffle::Full).
    ///
    /// A state knows which of them it belongs to, and is resumed in that one, whatever would be chosen today.
    Auto,
    /// A permutation of the whole dataset: any sample may come anywhere. Takes no memory, whatever the number of
    /// samples.
    Full,
    /// The dataset is cut into windows of this many neighbouring samples, and each window is permuted by itself. Where
    /// windows begin is random in each epoch. Takes no memory; the reads of a batch stay close together on the disk.
    Window(u64),
    /// Shards come in random order, and each group of `mixed` consecutive shards is permuted as one. Takes 24 bytes of
    /// memory per shard. A dataset without shards is cut into shards of 4096 samples, which take no memory.
    Shards {
        /// Shards that are permuted as one, at least 1.
        mixed: u64,
    },
    /// Pieces of neighbouring samples, cut wherever shards end, come in random order, and each group of `mixed`
    /// consecutive ones is permuted as one. Takes no memory. Finer than shards: more places of the dataset meet in a
    /// group of the same size.
    Pieces {
        /// Samples of a piece, at least 1.
        samples: u64,
        /// Pieces that are permuted as one, at least 1.
        mixed: u64,
    },
}

/// Shards that are permuted as one by [`Shuffle::Auto`].
pub const MIXED_SHARDS: u64 = 4;

impl From<bool> for Shuffle {
    fn from(shuffle: bool) -> Shuffle {
        if shuffle { Shuffle::Auto } else { Shuffle::Off }
    }
}

/// What a row of a batch is, and how many rows make one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batching {
    /// A row is a sample; `batch_size` of them make a batch.
    #[default]
    Samples,
    /// A batch holds samples of about one length; how many, depends on the length. `batch_size` is not used.
    Buckets(Buckets),
    /// A row holds as many sequences as fit into it; `batch_size` of them make a batch.
    Packed(Packing),
}

impl From<Buckets> for Batching {
    fn from(buckets: Buckets) -> Batching {
        Batching::Buckets(buckets)
    }
}

impl From<Packing> for Batching {
    fn from(packing: Packing) -> Batching {
        Batching::Packed(packing)
    }
}

/// Batches of samples of similar length, as `tf.data`'s `bucket_by_sequence_length` makes them.
///
/// Lengths are looked at one window of samples at a time. Within a window, the samples of each bucket form batches in
/// the order in which they come, the rest that does not fill a batch goes to the next longer bucket, and the batches
/// come in an order derived from the seed. At most one batch of a window is not full: the last one, which `drop_last`
/// leaves out.
///
/// The lengths are those of the first column whose values differ in length. The dataset's index must know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Ascending lengths, in elements: bucket `i` holds lengths from `boundaries[i - 1]` on and below `boundaries[i]`;
    /// the last one all that are longer.
    pub(crate) boundaries: Vec<u64>,
    /// Samples in a batch of each bucket: one more than boundaries.
    pub(crate) batch_sizes: Vec<u64>,
    /// Samples, over all ranks, whose lengths are looked at together: from 1 to 2^24.
    pub(crate) window: u64,
}

impl Buckets {
    /// Buckets between ascending `boundaries`, in elements: bucket `i` holds lengths from `boundaries[i - 1]` up to but
    /// not including `boundaries[i]`, and the last bucket holds everything longer. `batch_sizes` has the samples in a
    /// batch of each bucket: one entry more than `boundaries`.
    pub fn new(boundaries: impl Into<Vec<u64>>, batch_sizes: impl Into<Vec<u64>>) -> Buckets {
        Buckets { boundaries: boundaries.into(), batch_sizes: batch_sizes.into(), window: WINDOW_SAMPLES }
    }

    /// Samples, over all ranks, whose lengths are looked at together: 1 to 2^24. Default: 8192.
    #[must_use]
    pub fn window(mut self, samples: u64) -> Buckets {
        self.window = samples;
        self
    }
}

/// Sequences packed into rows of one length. Lengths are looked at one window of samples at a time; no row crosses the
/// end of a window.
///
/// The sequences are the values of the first column whose values differ in length, or else of the only column. The
/// dataset's index must know their lengths. Within a row they keep the order of the samples; an empty sequence goes
/// with the one before it. The rows of a window come in an order derived from the seed, unless nothing is shuffled or
/// the method is `Concat`. A row holds at most `max(64, seq_len / 16)` pieces, whatever room is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Which row a sequence goes to.
    pub(crate) method: PackMethod,
    /// Elements in a row, from 1 to 2^24. A longer sequence is cut into pieces of this length and a rest.
    pub(crate) seq_len: u64,
    /// Samples, over all ranks, that are packed together: from 1 to 2^24. Fewer where they would be cut into more than
    /// eight pieces each.
    pub(crate) window: u64,
    /// What fills the rest of a row.
    pub(crate) pad: super::PadValue,
}

impl Packing {
    /// Rows of `seq_len` elements, 1 to 2^24. A longer sequence is cut into pieces of this length and a rest.
    pub fn new(seq_len: u64) -> Packing {
        Packing { method: PackMethod::BestFit, seq_len, window: WINDOW_SAMPLES, pad: super::PadValue::default() }
    }

    /// Which row a sequence goes to. Default: [`PackMethod::BestFit`].
    #[must_use]
    pub fn method(mut self, method: PackMethod) -> Packing {
        self.method = method;
        self
    }

    /// Samples, over all ranks, that are packed together: 1 to 2^24, but fewer where they would be cut into more than
    /// eight pieces each. Default: 8192.
    #[must_use]
    pub fn window(mut self, samples: u64) -> Packing {
        self.window = samples;
        self
    }

    /// The element that fills the rest of a row. Default: 0.
    #[must_use]
    pub fn pad(mut self, value: super::PadValue) -> Packing {
        self.pad = value;
        self
    }
}

/// Samples that are packed or bucketed together where the caller has no wish: so many that rows are full, so few that
/// resuming within a window takes less than a millisecond.
pub const WINDOW_SAMPLES: u64 = 8192;

/// Which row a sequence goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackMethod {
    /// The first row with enough room, in the order in which sequences come.
    FirstFit,
    /// The row with the least room that still suffices, longest sequences first.
    BestFit,
    /// Sequences are laid end to end and cut where a row is full.
    Concat,
}

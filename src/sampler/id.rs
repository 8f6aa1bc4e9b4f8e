//! Everything that decides an order, as data: states store and compare it. The text about an order is for people only.

use super::digest::hash;
use super::mixed::Stopping;
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

/// Everything that decides an order except the dataset: two orders of one dataset whose identities are equal are the
/// same order. `Display` is for people; states store the identity as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderId(pub(crate) KnownOrder);

impl OrderId {
    /// Whether it is one permutation of the whole dataset.
    #[doc(hidden)]
    pub fn mixes_all(&self) -> bool {
        matches!(self.0, KnownOrder::Shuffled { .. })
    }
}

impl From<KnownOrder> for OrderId {
    fn from(order: KnownOrder) -> OrderId {
        OrderId(order)
    }
}

impl Identified for OrderId {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        self.0.fields()
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The orders that states can store.
///
/// A state stores it as a JSON object that has `kind` and the fields named here. These names never change.
///
/// | variant | `kind` | fields |
/// |---|---|---|
/// | [`Sequential`](KnownOrder::Sequential) | `sequential` | |
/// | [`Shuffled`](KnownOrder::Shuffled) | `shuffled` | `seed`, `version` |
/// | [`Windows`](KnownOrder::Windows) | `windows` | `samples`, `seed`, `version` |
/// | [`Shards`](KnownOrder::Shards) | `shards` | `shards`, `ends`, `mixed`, `seed`, `version` |
/// | [`Pieces`](KnownOrder::Pieces) | `pieces` | `samples`, `mixed`, `seed`, `version` |
/// | [`Mixed`](KnownOrder::Mixed) | `mixed` | `parts`, `orders`, `stopping`, `seed`, `version` |
/// | [`TorchDistributed`](KnownOrder::TorchDistributed) | `torch_distributed` | `ranks`, `seed` (if shuffled),
/// `version` |
/// | [`Custom`](KnownOrder::Custom) | `custom` | `name`, `digest`, `version` |
///
/// `ends`, `orders` and `digest` are 16 hexadecimal digits, `stopping` and `name` are text, all others are numbers.
///
/// `version` is that of the algorithm. It must go up when the same parameters give another permutation, so that a state
/// of the old permutation is refused instead of continued in the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnownOrder {
    /// The order of the dataset.
    Sequential,
    /// A permutation of the whole dataset: [`Shuffled`](super::Shuffled).
    Shuffled {
        /// The seed.
        seed: u64,
        /// Version of the algorithm.
        version: u64,
    },
    /// Windows of neighbours, each permuted by itself: [`Windowed`](super::Windowed).
    Windows {
        /// Samples in a window.
        samples: u64,
        /// The seed.
        seed: u64,
        /// Version of the algorithm.
        version: u64,
    },
    /// Shards in random order: [`Sharded::new`](super::Sharded::new).
    Shards {
        /// Number of shards.
        shards: u64,
        /// Digest of where each shard ends.
        ends: u64,
        /// Shards whose samples are permuted as one.
        mixed: u64,
        /// The seed.
        seed: u64,
        /// Version of the algorithm.
        version: u64,
    },
    /// Pieces of equal length in random order: [`Sharded::pieces`](super::Sharded::pieces).
    Pieces {
        /// Samples in a piece.
        samples: u64,
        /// Pieces whose samples are permuted as one.
        mixed: u64,
        /// The seed.
        seed: u64,
        /// Version of the algorithm.
        version: u64,
    },
    /// Several datasets mixed: [`Mixed`](super::Mixed). The weights are not part of it, because they may change within
    /// an epoch; a state has them in its `mixer`.
    Mixed {
        /// The orders of the datasets.
        parts: Parts,
        /// When an epoch ends.
        stopping: Stopping,
        /// The seed.
        seed: u64,
        /// Version of the algorithm.
        version: u64,
    },
    /// The order of `torch.utils.data.DistributedSampler`.
    TorchDistributed {
        /// The epoch is padded to a multiple of this many ranks.
        ranks: u64,
        /// The seed; `None` if nothing is shuffled.
        seed: Option<u64>,
        /// Version of the algorithm.
        version: u64,
    },
    /// A caller's order; [`OrderId::custom`] makes the digest.
    Custom {
        /// A short name that no other order of the program has.
        name: String,
        /// Digest of the parameters that the order depends on.
        digest: u64,
        /// Version of the algorithm.
        version: u64,
    },
}

/// The orders of a mixture's datasets. Two are equal if their numbers and digests are.
#[derive(Clone, Debug)]
pub struct Parts {
    count: u64,
    digest: u64,
    orders: Arc<[OrderId]>,
}

impl Parts {
    /// Takes for each dataset its order, the number of its first sample in the concatenation, and the length of a pass.
    /// The digest covers these, in turn.
    pub(super) fn new(parts: impl IntoIterator<Item = (OrderId, u64, u64)>) -> Parts {
        let mut orders = Vec::new();
        let mut digest = 0;
        for (order, first, len) in parts {
            digest = [order.digest(), first, len].into_iter().fold(digest, fold);
            orders.push(order);
        }
        Parts { count: orders.len() as u64, digest, orders: orders.into() }
    }

    /// As read from a state.
    pub(crate) fn stored(count: u64, digest: u64) -> Parts {
        Parts { count, digest, orders: Arc::new([]) }
    }

    /// Number of datasets.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Digest of all orders, and of the locations of their samples.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The order of each dataset; empty if this was read from a state, which stores the digest alone.
    pub fn orders(&self) -> &[OrderId] {
        &self.orders
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Parts) -> bool {
        (self.count, self.digest) == (other.count, other.digest)
    }
}

impl Eq for Parts {}

impl OrderId {
    /// The identity of an order of your own: a name, the version of its algorithm, and every other number that decides
    /// it (seeds, sizes, hashes of lists), always in the same order.
    pub fn custom(name: impl Into<String>, version: u64, parameters: &[u64]) -> OrderId {
        OrderId(KnownOrder::Custom { name: name.into(), digest: digest_of(parameters.iter().copied()), version })
    }
}

/// An identity as a kind and named fields. Storing, comparing and hashing use these and nothing else.
pub(crate) trait Identified {
    fn kind(&self) -> &'static str;

    fn fields(&self) -> Vec<(&'static str, Field<'_>)>;

    /// A digest of the identity: of the kind, then of each name and value. A number is folded in by
    /// `sum = hash(sum ^ number)` from 0 on, text as its length and its bytes. States store it, so it never changes.
    fn digest(&self) -> u64 {
        let mut sum = fold_text(0, self.kind());
        for (name, field) in self.fields() {
            sum = fold_text(sum, name);
            sum = match field {
                Field::Number(number) | Field::Digest(number) => fold(sum, number),
                Field::Text(text) => fold_text(sum, &text),
            };
        }
        sum
    }

    /// The fields that differ; if the kind differs, only that.
    fn differences(&self, here: &Self) -> Vec<Difference> {
        if self.kind() != here.kind() {
            return vec![Difference { name: "kind", saved: self.kind().into(), here: here.kind().into() }];
        }
        let (saved, here) = (self.fields(), here.fields());
        let value = |fields: &[(&str, Field<'_>)], name| {
            fields.iter().find(|(other, _)| *other == name).map_or("none".into(), |(_, field)| field.to_string())
        };
        // A field may be absent from either.
        let only_here = here.iter().filter(|(name, _)| !saved.iter().any(|(other, _)| other == name));
        let names = saved.iter().chain(only_here).map(|(name, _)| *name);
        let both = names.map(|name| Difference { name, saved: value(&saved, name), here: value(&here, name) });
        both.filter(|difference| difference.saved != difference.here).collect()
    }
}

/// A field that has one value in a state and another one here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    saved: String,
    here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { name, saved, here } = self;
        write!(f, "{name} {saved} in the state, {here} here")
    }
}

/// A value of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Number(u64),
    Digest(u64),
    Text(Cow<'a, str>),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Number(number) => write!(f, "{number}"),
            Field::Digest(digest) => write!(f, "{digest:016x}"),
            Field::Text(text) => write!(f, "\"{}\"", OnLine(text)),
        }
    }
}

impl Identified for KnownOrder {
    fn kind(&self) -> &'static str {
        match self {
            KnownOrder::Sequential => "sequential",
            KnownOrder::Shuffled { .. } => "shuffled",
            KnownOrder::Windows { .. } => "windows",
            KnownOrder::Shards { .. } => "shards",
            KnownOrder::Pieces { .. } => "pieces",
            KnownOrder::Mixed { .. } => "mixed",
            KnownOrder::TorchDistributed { .. } => "torch_distributed",
            KnownOrder::Custom { .. } => "custom",
        }
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        use Field::{Digest, Number, Text};
        match self {
            KnownOrder::Sequential => Vec::new(),
            KnownOrder::Shuffled { seed, version } => vec![("seed", Number(*seed)), ("version", Number(*version))],
            KnownOrder::Windows { samples, seed, version } => {
                vec![("samples", Number(*samples)), ("seed", Number(*seed)), ("version", Number(*version))]
            }
            KnownOrder::Shards { shards, ends, mixed, seed, version } => vec![
                ("shards", Number(*shards)),
                ("ends", Digest(*ends)),
                ("mixed", Number(*mixed)),
                ("seed", Number(*seed)),
                ("version", Number(*version)),
            ],
            KnownOrder::Pieces { samples, mixed, seed, version } => vec![
                ("samples", Number(*samples)),
                ("mixed", Number(*mixed)),
                ("seed", Number(*seed)),
                ("version", Number(*version)),
            ],
            KnownOrder::Mixed { parts, stopping, seed, version } => vec![
                ("parts", Number(parts.count)),
                ("orders", Digest(parts.digest)),
                ("stopping", Text(stopping.to_string().into())),
                ("seed", Number(*seed)),
                ("version", Number(*version)),
            ],
            KnownOrder::TorchDistributed { ranks, seed, version } => {
                let seed = seed.map(|seed| ("seed", Number(seed)));
                [("ranks", Number(*ranks))].into_iter().chain(seed).chain([("version", Number(*version))]).collect()
            }
            KnownOrder::Custom { name, digest, version } => {
                vec![("name", Text(name.into())), ("digest", Digest(*digest)), ("version", Number(*version))]
            }
        }
    }
}

/// As text on one line, for people. Nothing stores, compares or parses it.
impl fmt::Display for KnownOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnownOrder::Sequential => f.write_str("in the order of the dataset"),
            KnownOrder::Shuffled { seed, .. } => write!(f, "shuffled, seed {seed}"),
            KnownOrder::Windows { samples, seed, .. } => write!(f, "shuffled in windows of {samples}, seed {seed}"),
            KnownOrder::Shards { mixed, seed, .. } => {
                write!(f, "shards in random order, samples of {mixed} shuffled as one, seed {seed}")
            }
            KnownOrder::Pieces { samples, mixed, seed, .. } => {
                write!(f, "pieces of {samples} in random order, samples of {mixed} shuffled as one, seed {seed}")
            }
            KnownOrder::Mixed { parts, stopping, seed, .. } => {
                write!(f, "mixture of {} datasets until {stopping}, seed {seed}{parts}", parts.count)
            }
            KnownOrder::TorchDistributed { ranks, seed, .. } => {
                f.write_str("torch's DistributedSampler, ")?;
                match seed {
                    Some(seed) => write!(f, "shuffled, seed {seed}, ")?,
                    None => f.write_str("not shuffled, ")?,
                }
                write!(f, "for a multiple of {ranks} ranks")
            }
            KnownOrder::Custom { name, .. } => write!(f, "{}", OnLine(name)),
        }
    }
}

/// Follows the text about the mixture: ": " and the first orders.
impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RUNS_MAX: usize = 4;
        let mut before = ": ";
        for (number, run) in self.orders.chunk_by(|a, b| a == b).enumerate() {
            f.write_str(before)?;
            before = "; ";
            match run.len() {
                _ if number == RUNS_MAX => return f.write_str("and others"),
                1 => write!(f, "{}", run[0])?,
                len => write!(f, "{len} times {}", run[0])?,
            }
        }
        Ok(())
    }
}

/// A caller's text within a line: escapes what would break the line, and cuts long text.
pub(crate) struct OnLine<'a>(pub(crate) &'a str);

impl fmt::Display for OnLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARS_MAX: usize = 200;
        for (number, char) in self.0.chars().enumerate() {
            match char {
                _ if number == CHARS_MAX => return f.write_str("..."),
                char if char.is_control() => write!(f, "{}", char.escape_debug())?,
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

/// The digest of a list of numbers, folded in as by [`Identified::digest`]; 0 for an empty one. States store it, so it
/// never changes.
pub(super) fn digest_of(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, fold)
}

fn fold(sum: u64, number: u64) -> u64 {
    hash(sum ^ number)
}

fn fold_text(sum: u64, text: &str) -> u64 {
    text.bytes().fold(fold(sum, text.len() as u64), |sum, byte| fold(sum, byte.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(saved: &KnownOrder, here: &KnownOrder) -> Vec<String> {
        saved.differences(here).iter().map(Difference::to_string).collect()
    }

    #[test]
    fn each_field_that_differs_is_named() {
        let of = |ranks, seed| KnownOrder::TorchDistributed { ranks, seed, version: 1 };
        assert!(differences(&of(2, Some(5)), &of(2, Some(5))).is_empty());
        assert_eq!(
            differences(&of(2, Some(5)), &of(3, None)),
            ["ranks 2 in the state, 3 here", "seed 5 in the state, none here"]
        );
        assert_eq!(differences(&of(2, None), &of(2, Some(7))), ["seed none in the state, 7 here"]);
        assert_eq!(
            differences(&of(2, None), &KnownOrder::Sequential),
            ["kind torch_distributed in the state, sequential here"]
        );
        let custom = |name: &str, parameters: &[u64]| OrderId::custom(name, 1, parameters).0;
        assert_eq!(
            differences(&custom("a\n", &[]), &custom("b", &[1, 2])),
            ["name \"a\\n\" in the state, \"b\" here", "digest 0000000000000000 in the state, bcd9dbb49673066b here"]
        );
    }

    /// The numbers come from an implementation in another language, written from the documentation: states have them.
    #[test]
    fn digests_are_what_they_always_were() {
        assert_eq!(digest_of([3, 5, 9]), 0xfcc1_17d7_70d0_5809);
        assert_eq!(digest_of([1, 2]), 0xbcd9_dbb4_9673_066b);
        assert_ne!(digest_of([0]), digest_of([]));
    }

    #[test]
    fn a_callers_words_stay_on_a_short_line() {
        let long = OrderId::custom("x".repeat(10_000) + "\n", 1, &[]).to_string();
        assert!(long.len() < 300 && long.ends_with("x..."), "{long}");
        assert_eq!(OrderId::custom("a\tb\u{1b}'\"", 1, &[]).to_string(), "a\\tb\\u{1b}'\"");
    }
}

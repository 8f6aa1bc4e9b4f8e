//! A keyed permutation of `0..len` that stores nothing: a Feistel network over pairs of numbers, with cycle walking.
//!
//! A number below `len` is written as `high * 2^low_bits + low`, where `low_bits` is half of the bits of `len - 1` and
//! `high` is below the smallest `heights` that covers all of them. A round adds to one half a hash of the other, the
//! high half modulo `heights` and the low half bit by bit, which can be undone for any hash. There are at most
//! `2^low_bits - 1` more pairs than numbers; a result among those is permuted again until it is below `len` (cycle
//! walking), about `1 / sqrt(len)` times more on average. A network over two halves of bits alone has up to twice as
//! many pairs as numbers (four times, if the halves are equal), and pays for it with a mispredicted branch every other
//! time.
//!
//! All shuffles use it: a change of the permutation raises the versions of `shuffled`, `window` and `shards`.
//!
//! Sources: Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (CT-RSA 2002) for cycle walking and mixed
//! halves; Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014) for SplitMix64.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Rounds of a network. With 4 the differences of successive values repeat measurably too often, and with 6 some
/// neighbours in orders of up to 100 do; with 8 the tests of `shuffled` find nothing above `SMALL_LEN_MAX`.
const ROUNDS: usize = 8;
/// Up to this length the halves have so few values that more rounds are needed before all orders are about equally
/// likely. A position then takes 110 ns instead of 22, which matters little for so few.
const SMALL_LEN_MAX: u64 = 128;
const SMALL_ROUNDS: usize = 24;
/// An odd constant whose product spreads every bit: that of `rrmxmx` (Pelle Evensen, 2018).
const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// The shape of the network for one length. The keys come with the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    len: u64,
    /// Number of values of the high half, at most 2^32.
    heights: u64,
    low_bits: u32,
}

impl Network {
    pub(super) fn new(len: u64) -> Network {
        let last = len.saturating_sub(1);
        let low_bits = (u64::BITS - last.leading_zeros()) / 2;
        Network { len, heights: (last >> low_bits) + 1, low_bits }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The image of `position` (or of another number) in one epoch, with the keys derived on the way. Uses arrays of
    /// two lengths rather than a slice, so that the compiler unrolls both loops and keeps the keys in registers, which
    /// halves the time.
    #[inline]
    pub(super) fn permute_in(&self, seed: SeedKey, epoch: u64, position: u64) -> u64 {
        if self.len <= SMALL_LEN_MAX {
            self.permute(&round_keys::<SMALL_ROUNDS>(seed, epoch), position)
        } else {
            self.permute(&round_keys::<ROUNDS>(seed, epoch), position)
        }
    }

    /// The keys of one epoch.
    pub(super) fn keys(&self, seed: SeedKey, epoch: u64) -> Keys {
        let rounds = if self.len <= SMALL_LEN_MAX { SMALL_ROUNDS } else { ROUNDS };
        // The keys for few rounds are the first ones of those for many.
        Keys { keys: round_keys(seed, epoch), rounds }
    }

    /// The image of `position`, which is below the length.
    #[inline]
    pub(super) fn permute(&self, keys: &[u64], position: u64) -> u64 {
        debug_assert!(position < self.len, "position {position} of {}", self.len);
        let mut value = position;
        loop {
            let (mut high, mut low) = self.split(value);
            for pair in keys.chunks_exact(2) {
                low ^= self.low_hash(high, pair[0]);
                let sum = high + self.high_hash(low, pair[1]);
                // Modulo `heights` without a branch: the difference wraps to a huge number if the sum is below.
                high = sum.min(sum.wrapping_sub(self.heights));
            }
            value = high << self.low_bits | low;
            if value < self.len {
                return value;
            }
        }
    }

    /// The position that maps to `value`, which is below the length.
    pub(super) fn invert(&self, keys: &[u64], value: u64) -> u64 {
        debug_assert!(value < self.len, "value {value} of {}", self.len);
        let mut position = value;
        loop {
            let (mut high, mut low) = self.split(position);
            for pair in keys.rchunks_exact(2) {
                let difference = high.wrapping_sub(self.high_hash(low, pair[1]));
                high = difference.min(difference.wrapping_add(self.heights));
                low ^= self.low_hash(high, pair[0]);
            }
            position = high << self.low_bits | low;
            if position < self.len {
                return position;
            }
        }
    }

    #[inline]
    fn split(&self, value: u64) -> (u64, u64) {
        (value >> self.low_bits, value & self.low_mask())
    }

    #[inline]
    fn low_mask(&self) -> u64 {
        (1 << self.low_bits) - 1
    }

    #[inline]
    fn low_hash(&self, high: u64, key: u64) -> u64 {
        hash(high, key) & self.low_mask()
    }

    /// Below `heights`.
    #[inline]
    fn high_hash(&self, low: u64, key: u64) -> u64 {
        (hash(low, key) * self.heights) >> 32
    }
}

/// 32 bits that depend on all bits of `value` and `key`.
#[inline]
fn hash(value: u64, key: u64) -> u64 {
    let product = (value ^ key).wrapping_mul(MULTIPLIER);
    (product ^ (product >> 32)).wrapping_mul(MULTIPLIER) >> 32
}

/// A seed after mixing, so that seeds 1 and 2 are as far apart as any.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeedKey(u64);

impl SeedKey {
    pub(super) fn new(seed: u64) -> SeedKey {
        SeedKey(SplitMix64::seed_from_u64(seed).next_u64())
    }

    /// For one kind of order, so that two kinds with the same seed share no key.
    pub(super) fn of_kind(seed: u64, kind: &[u8; 8]) -> SeedKey {
        SeedKey::new(SeedKey::new(seed).0 ^ u64::from_le_bytes(*kind))
    }

    /// From a number that is already random.
    pub(super) fn from_random(number: u64) -> SeedKey {
        SeedKey(number)
    }

    /// Numbers for one epoch. Seed and epoch go through the mixer one after the other, so that (1, 0) and (0, 1), or
    /// neighbouring epochs, have nothing in common.
    #[inline]
    pub(super) fn stream(self, epoch: u64) -> SplitMix64 {
        SplitMix64::seed_from_u64(SplitMix64::seed_from_u64(self.0.wrapping_add(epoch)).next_u64())
    }
}

/// A number below `bound`, made of 64 random bits: the upper half of their product with it.
#[inline]
pub(super) fn below(bound: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[inline]
fn round_keys<const ROUNDS: usize>(seed: SeedKey, epoch: u64) -> [u64; ROUNDS] {
    let mut stream = seed.stream(epoch);
    std::array::from_fn(|_| stream.next_u64())
}

/// The keys of all rounds in one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    keys: [u64; SMALL_ROUNDS],
    rounds: usize,
}

impl Keys {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u64] {
        &self.keys[..self.rounds]
    }
}

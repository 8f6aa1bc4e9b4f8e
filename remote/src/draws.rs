//! Draws for tests: the same from the same seed.

use std::ops::RangeInclusive;

/// SplitMix64.
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn flips(&mut self) -> bool {
        self.next() & 1 == 0
    }

    pub fn below(&mut self, range: RangeInclusive<usize>) -> usize {
        range.start() + self.next() as usize % (range.end() - range.start() + 1)
    }

    pub fn bytes(&mut self, lengths: RangeInclusive<usize>) -> Vec<u8> {
        (0..self.below(lengths)).map(|_| self.next() as u8).collect()
    }

    /// Letters, digits and what keys have besides.
    pub fn text(&mut self, lengths: RangeInclusive<usize>) -> String {
        const LETTERS: &[char] =
            &['a', 'Z', '0', '-', '_', '.', '/', ' ', '+', '%', '~', '\u{e4}', '(', '*', '=', '&', '\''];
        (0..self.below(lengths)).map(|_| LETTERS[self.below(0..=LETTERS.len() - 1)]).collect()
    }
}

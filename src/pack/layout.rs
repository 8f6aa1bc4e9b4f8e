//! Computes where the members of a sample are in an archive, and the padding that aligns them.
//!
//! Reads past the page cache are in whole units, mostly of 4096 bytes: data that begins at a boundary needs no extra
//! unit. So members of at least a unit begin at one. Smaller ones need no boundary, but none crosses one. Those before
//! a large one are moved up to its header: they are in the unit before it, and one read gets them all.

use super::header::{self, BLOCK_BYTES};
use bytes::Bytes;

/// A member of an archive in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// Its name.
    pub(super) name: Vec<u8>,
    /// The part of its name after the key, in lower case: members are sorted by it.
    pub(super) field: Vec<u8>,
    /// Whether it is the label of its folder, which gives way to a file.
    pub(super) is_label: bool,
    /// Its sample in the source.
    pub(super) id: u64,
    /// Its column.
    pub(super) column: usize,
    /// Bytes of its content, if the index has them.
    pub(super) len: u64,
    /// Bytes before it beyond the headers that it needs.
    pub(super) padding: u64,
    /// Bytes before the value: the header of an array, or everything if the value is not bytes.
    pub(super) head: Vec<u8>,
    /// The value.
    pub(super) value: Bytes,
}

impl Member {
    fn headers(&self) -> u64 {
        header::least_bytes(&self.name, self.len)
    }

    /// Bytes with headers, without padding.
    fn bytes(&self) -> u64 {
        self.headers().saturating_add(round_up(self.len, BLOCK_BYTES))
    }

    /// Pads so that the byte at `behind` from the beginning of the headers is at a boundary.
    fn pad_to(&mut self, at: u64, behind: u64, align: u64) {
        let end = at.saturating_add(behind);
        let mut padding = round_up(end, align).saturating_sub(end);
        if !header::can_pad(&self.name, self.len, padding) {
            padding += align;
        }
        self.padding = padding;
    }
}

/// Sets the padding of `members`, which follow each other from `at` on; returns where the last one ends.
pub(super) fn arrange(align: u64, mut at: u64, members: &mut [Member]) -> u64 {
    members.iter_mut().for_each(|member| member.padding = 0);
    let mut rest = members;
    // All members are whole blocks, so nothing is padded if only that is requested.
    while align > BLOCK_BYTES && !rest.is_empty() {
        let small = rest.iter().position(|member| member.len >= align).unwrap_or(rest.len());
        let in_front = rest[..small].iter().fold(0, |sum: u64, member| sum.saturating_add(member.bytes()));
        let taken = match rest.get(small).map(|large| in_front.saturating_add(large.headers())) {
            Some(behind) if small == 0 || behind <= align => {
                rest[0].pad_to(at, behind, align);
                small + 1
            }
            _ => {
                let (behind, len) = (rest[0].headers(), rest[0].len);
                if at.saturating_add(behind) % align + len > align {
                    rest[0].pad_to(at, behind, align);
                }
                1
            }
        };
        let (placed, others) = rest.split_at_mut(taken);
        at = end_of(at, placed);
        rest = others;
    }
    end_of(at, rest)
}

fn end_of(at: u64, members: &[Member]) -> u64 {
    members.iter().fold(at, |at, member| at.saturating_add(member.bytes()).saturating_add(member.padding))
}

/// The next multiple, or the largest number if that overflows.
pub(super) fn round_up(number: u64, multiple: u64) -> u64 {
    number.checked_next_multiple_of(multiple).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(lens: &[(usize, u64)]) -> Vec<Member> {
        let member = |&(name, len): &(usize, u64)| Member { name: vec![b'n'; name], len, ..Member::default() };
        lens.iter().map(member).collect()
    }

    /// Where each member's content begins.
    fn places(at: u64, members: &[Member]) -> Vec<u64> {
        let mut at = at;
        let place = |member: &Member| {
            let start = at + member.padding + member.headers();
            at = start + round_up(member.len, BLOCK_BYTES);
            start
        };
        members.iter().map(place).collect()
    }

    #[test]
    fn large_members_begin_at_boundaries_and_small_ones_cross_none() {
        let lens = [0, 1, 511, 512, 513, 2000, 3583, 4095, 4096, 4097, 9000, 100_000, 1 << 40];
        for start in (0..16).map(|blocks| blocks * BLOCK_BYTES) {
            for first in lens {
                for second in lens {
                    for third in lens {
                        for name in [5, 99, 101, 700] {
                            let mut members = members(&[(name, first), (5, second), (name, third)]);
                            let end = arrange(4096, start, &mut members);
                            let places = places(start, &members);
                            let what = format!("{start}: {first} {second} {third} {name}: {places:?}");
                            for (place, len) in places.iter().zip([first, second, third]) {
                                assert!(len < 4096 || place % 4096 == 0, "{what}");
                                assert!(len >= 4096 || place % 4096 + len <= 4096, "{what}");
                            }
                            assert_eq!(end, places[2] + round_up(third, BLOCK_BYTES), "{what}");
                            assert!(members.iter().all(|member| member.padding <= 4096 + 512), "{what}");
                        }
                    }
                }
            }
        }
    }

    /// A label and its image take one read of the image's units and one more.
    #[test]
    fn small_members_lie_in_the_unit_before_a_large_one() {
        for start in (0..8).map(|blocks| blocks * BLOCK_BYTES) {
            let mut members = members(&[(5, 1), (5, 700), (5, 50_000), (5, 300)]);
            arrange(4096, start, &mut members);
            let places = places(start, &members);
            let unit = places[2] / 4096;
            assert_eq!((places[2] % 4096, places[0] / 4096, places[1] / 4096), (0, unit - 1, unit - 1), "{start}");
            assert_eq!(members[1].padding + members[2].padding + members[3].padding, 0);
        }
    }

    #[test]
    fn blocks_alone_take_no_padding() {
        let mut members = members(&[(5, 1), (200, 700), (5, 50_000)]);
        let end = arrange(512, 512, &mut members);
        assert!(members.iter().all(|member| member.padding == 0));
        assert_eq!(end, 512 + 1024 + (512 * 3 + 1024) + (512 + 50_176));
    }

    #[test]
    fn what_is_longer_than_any_file_ends_at_the_last_byte() {
        assert_eq!(arrange(4096, 512, &mut members(&[(5, u64::MAX), (5, u64::MAX), (5, 1)])), u64::MAX);
    }
}

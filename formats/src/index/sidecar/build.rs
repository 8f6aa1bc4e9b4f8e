//! Builds the sidecar of a shard, sample by sample.

use super::layout::{COLUMNS_MAX, Column, Head, KEY_BYTES_MAX, KEYS_PER_GROUP, PADDING_BYTES};
use super::pieces::CHECKED_BYTES;
use super::proof::Proof;
use super::shard::Shard;
use crate::compression::Coding;
use crate::dataset::Fingerprint;
use crate::index::opened::Content;
use std::io;

/// One value of a sample: a range of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Number of its column, as returned by [`Builder::column`].
    pub(crate) column: u16,
    /// First byte; a multiple of the unit.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// A sidecar under construction. Takes some 24 bytes for each value until it is finished.
#[derive(Debug)]
pub(crate) struct Builder {
    unit: u64,
    names: Vec<String>,
    members: Vec<Member>,
    /// Where each sample's members end.
    ends: Vec<u64>,
    groups: Vec<u64>,
    keys: Vec<u8>,
    last_key: Vec<u8>,
    left_out: Vec<(u8, u64, Vec<u8>)>,
    decoded: Option<(Coding, u64)>,
    content: Fingerprint,
}

impl Builder {
    /// For a shard in which every offset is a multiple of `unit`.
    pub(crate) fn new(unit: u32) -> Builder {
        Builder {
            unit: unit.into(),
            names: Vec::new(),
            members: Vec::new(),
            ends: Vec::new(),
            groups: Vec::new(),
            keys: Vec::new(),
            last_key: Vec::new(),
            left_out: Vec::new(),
            decoded: None,
            content: Fingerprint::new("samples"),
        }
    }

    /// The number of the column of this name, created if necessary; `None` if there are [`COLUMNS_MAX`] already.
    pub(crate) fn column(&mut self, name: &str) -> Option<u16> {
        let number = match self.names.iter().position(|known| known == name) {
            Some(number) => number,
            None if self.names.len() == COLUMNS_MAX => return None,
            None => {
                self.names.push(name.to_owned());
                self.names.len() - 1
            }
        };
        // Below COLUMNS_MAX.
        Some(number as u16)
    }

    /// The name of a column.
    pub(crate) fn name(&self, column: u16) -> &str {
        &self.names[usize::from(column)]
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Adds a sample, which has at most one value in each column.
    ///
    /// # Panics
    /// If an offset is not a multiple of the unit, or the key is longer than [`KEY_BYTES_MAX`].
    pub(crate) fn push(&mut self, key: &[u8], members: &mut [Member]) {
        assert!(key.len() <= KEY_BYTES_MAX, "the caller has refused longer keys");
        members.sort_unstable_by_key(|member| member.column);
        self.content.bytes(key);
        self.content.number(members.len() as u64);
        for member in &*members {
            assert!(member.offset.is_multiple_of(self.unit), "offsets are multiples of the unit");
            self.content.bytes(self.names[usize::from(member.column)].as_bytes());
            self.content.number(member.offset);
            self.content.number(member.len);
        }
        self.members.extend_from_slice(members);
        let shared = if self.len().is_multiple_of(KEYS_PER_GROUP) {
            self.groups.push(self.keys.len() as u64);
            0
        } else {
            key.iter().zip(&self.last_key).take_while(|(a, b)| a == b).count()
        };
        // Both fit: a key has at most KEY_BYTES_MAX bytes.
        self.keys.extend((shared as u16).to_le_bytes());
        self.keys.extend(((key.len() - shared) as u16).to_le_bytes());
        self.keys.extend(&key[shared..]);
        self.last_key.clear();
        self.last_key.extend(key);
        self.ends.push(self.members.len() as u64);
    }

    /// Records what the scan left out: a code, a count, and the first of them.
    pub(crate) fn left_out(&mut self, code: u8, count: u64, first: &[u8]) {
        self.left_out.push((code, count, first.to_vec()));
    }

    /// Records how the shard is coded as a whole, and its decoded length; values are in the decoded bytes.
    pub(crate) fn decoded(&mut self, coding: impl Into<Coding>, bytes: u64) {
        self.decoded = Some((coding.into(), bytes));
    }

    /// Some pieces of the shard, by which its index recognizes it: around the starts of samples or, if those are in
    /// decoded bytes, anywhere.
    ///
    /// # Errors
    /// Those of [`Proof::of`].
    pub(crate) fn proof(&self, file: &Content) -> io::Result<Proof> {
        if self.decoded.is_some() || self.ends.is_empty() {
            return Proof::of(file, file.size(), |place| place);
        }
        Proof::of(file, self.len(), |sample| {
            // Fits: it is below the number of samples.
            let sample = sample as usize;
            let first = if sample == 0 { 0 } else { self.ends[sample - 1] };
            self.members.get(first as usize).map_or(0, |member| member.offset)
        })
    }

    /// The complete sidecar of `shard`, which has the pieces of `proof`.
    pub(crate) fn finish(self, shard: &Shard, proof: Proof) -> Vec<u8> {
        let mut head = Head {
            shard_bytes: shard.size,
            unit: self.unit,
            samples: self.len(),
            content: self.content.finish(),
            left_out: self.left_out.clone(),
            decoded: self.decoded,
            proof,
            ..Head::default()
        };
        self.choose_widths(&mut head);
        head.record_bytes = Head::record_bytes_of(head.start_width, &head.columns);
        // The length of the header does not depend on the numbers that are still unknown.
        head.body_at = (head.write(shard, 0).len() as u64).next_multiple_of(CHECKED_BYTES);
        head.records_at = head.body_at;
        head.groups_at = head.records_at + head.samples * head.record_bytes;
        head.keys_at = head.groups_at + 8 * self.groups.len() as u64;
        head.checks_at = head.keys_at + self.keys.len() as u64 + PADDING_BYTES;
        let len = head.checks_at + 4 * head.pieces();
        let mut out = vec![0; head.body_at as usize];
        out.reserve_exact((len - head.body_at) as usize);
        self.put_records(&head, &mut out);
        self.groups.iter().for_each(|group| out.extend(group.to_le_bytes()));
        out.extend(&self.keys);
        out.extend([0; PADDING_BYTES as usize]);
        let pieces = out[head.body_at as usize..].chunks(CHECKED_BYTES as usize);
        let checks: Vec<u8> = pieces.flat_map(|piece| crc32c::crc32c(piece).to_le_bytes()).collect();
        head.checks_check = crc32c::crc32c(&checks);
        out.extend(checks);
        let header = head.write(shard, len);
        out[..header.len()].copy_from_slice(&header);
        out
    }

    fn samples(&self) -> impl Iterator<Item = &[Member]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.members[start as usize..end as usize])
    }

    /// The numbers that go into records: the start, and for each member the gap before it (`None` for the first).
    fn numbers(&self, sample: &[Member], mut each: impl FnMut(&Member, Option<i64>)) -> u64 {
        let start = sample.first().map_or(0, |first| first.offset / self.unit);
        let mut end = start;
        for (index, member) in sample.iter().enumerate() {
            // Both are below 2^63, because they are in a file.
            let gap = (member.offset / self.unit) as i64 - end as i64;
            each(member, (index > 0).then_some(gap));
            end = (member.offset + member.len).div_ceil(self.unit);
        }
        start
    }

    fn choose_widths(&self, head: &mut Head) {
        let columns = self.names.len();
        let (mut gaps, mut lens) = (vec![Range::default(); columns], vec![Range::default(); columns]);
        let mut sizes = vec![Vec::new(); columns];
        let mut starts = Range::default();
        for sample in self.samples() {
            let start = self.numbers(sample, |member, gap| {
                let column = usize::from(member.column);
                gap.into_iter().for_each(|gap| gaps[column].add(gap));
                lens[column].add(member.len as i64);
                sizes[column].push(member.len);
            });
            starts.add(start as i64);
        }
        (head.start_base, head.start_width) = (starts.least as u64, width(starts.spread()));
        for (index, name) in self.names.iter().enumerate() {
            let missing = self.len() - sizes[index].len() as u64;
            head.columns.push(Column {
                name: name.clone(),
                missing,
                bytes: sizes[index].iter().fold(0, |sum, &size| u64::saturating_add(sum, size)),
                steps: steps(std::mem::take(&mut sizes[index])),
                gap_base: gaps[index].least,
                gap_width: width(gaps[index].spread()),
                len_base: lens[index].least as u64,
                // If some samples lack the column, 0 is reserved for that.
                len_width: width(lens[index].spread() + u64::from(missing > 0)),
            });
        }
    }

    fn put_records(&self, head: &Head, out: &mut Vec<u8>) {
        let mut numbers: Vec<(u64, u64)> = Vec::new();
        for sample in self.samples() {
            numbers.clear();
            numbers.resize(head.columns.len(), (0, 0));
            let start = self.numbers(sample, |member, gap| {
                let column = &head.columns[usize::from(member.column)];
                let gap = gap.map_or(0, |gap| gap.wrapping_sub(column.gap_base) as u64);
                let len = member.len - column.len_base + u64::from(column.missing > 0);
                numbers[usize::from(member.column)] = (gap, len);
            });
            put(out, start - head.start_base, head.start_width);
            for (column, &(gap, len)) in head.columns.iter().zip(&numbers) {
                put(out, gap, column.gap_width);
                put(out, len, column.len_width);
            }
        }
    }
}

/// The minimum and the maximum of some numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    least: i64,
    most: i64,
    is_used: bool,
}

impl Range {
    fn add(&mut self, number: i64) {
        if !std::mem::replace(&mut self.is_used, true) {
            (self.least, self.most) = (number, number);
        }
        self.least = self.least.min(number);
        self.most = self.most.max(number);
    }

    fn spread(&self) -> u64 {
        self.most.wrapping_sub(self.least) as u64
    }
}

/// Bytes needed for a number up to `most`.
fn width(most: u64) -> u8 {
    (u64::BITS - most.leading_zeros()).div_ceil(8) as u8
}

fn put(out: &mut Vec<u8>, number: u64, width: u8) {
    out.extend(&number.to_le_bytes()[..usize::from(width)]);
}

/// The largest size, the 2nd, the 4th, the 8th and so on: from these follows an upper bound for any number of sizes.
fn steps(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    (0..64).map_while(|step| sizes.get((1_usize << step) - 1).copied()).collect()
}

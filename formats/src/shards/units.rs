//! The units of shards: which there are, where they are stored, and how they are decoded.

use super::{Frame, OpenFile, Shards, Table};
use crate::{FileId, SampleId, Span, UnitId};
use bytes::Bytes;
use std::collections::BTreeSet;
use uringload_core::{Error, ErrorKind, Result};

impl Shards {
    /// Number of units.
    pub(crate) fn units(&self) -> u32 {
        self.unit_ends.last().copied().unwrap_or(0)
    }

    /// The unit that a sample is cut from.
    pub(crate) fn unit(&self, id: SampleId) -> Option<UnitId> {
        let (shard, number) = self.locate(id);
        let number = match &self.tables[shard] {
            Table::Whole(_) => 0,
            // There are no more than `push_units` counted.
            Table::Frames(frames) => frames.frame(number) as u32,
            Table::Offsets(_) | Table::Blocks { .. } | Table::Bad(_) => return None,
        };
        let before = if shard == 0 { 0 } else { self.unit_ends[shard - 1] };
        Some(UnitId(before + number))
    }

    /// Shard and table of a unit, and its number there.
    fn locate_unit(&self, unit: UnitId) -> (FileId, &Table, usize) {
        let shard = self.unit_ends.partition_point(|&end| end <= unit.0);
        let before = if shard == 0 { 0 } else { self.unit_ends[shard - 1] };
        (FileId(shard as u32), &self.tables[shard], (unit.0 - before) as usize)
    }

    /// Where a unit is stored.
    pub(crate) fn unit_stored(&self, unit: UnitId) -> Span {
        let (file, table, number) = self.locate_unit(unit);
        self.stored_of(table, file, number)
    }

    pub(super) fn stored_of(&self, table: &Table, file: FileId, number: usize) -> Span {
        match table {
            Table::Frames(frames) => {
                let Frame { at, len } = frames.frames[number];
                Span { file, offset: at, len: len.into() }
            }
            _ => Span { file, offset: 0, len: self.files.size(file) },
        }
    }

    /// Bytes that a unit has when it is decoded, at most.
    pub(crate) fn unit_decoded(&self, unit: UnitId) -> u64 {
        let (_, table, number) = self.locate_unit(unit);
        table.decoded(number)
    }

    /// Bytes of the largest unit as it is stored, and as it is decoded.
    pub(crate) fn largest_unit(&self) -> (u64, u64) {
        self.largest_unit
    }

    /// Decodes a unit. `check` gets what a whole shard decodes to, the samples that its head is to tell of, and those
    /// that are cut from it.
    pub(crate) fn decode(
        &self,
        unit: UnitId,
        stored: &[Bytes],
        out: &mut [u8],
        check: impl FnOnce(&OpenFile<'_>, u64, u64) -> Result<Table>,
    ) -> Result<usize> {
        let (file, table, number) = self.locate_unit(unit);
        let path = self.files.path(file);
        match (table, stored) {
            (Table::Frames(frames), [stored]) => frames.decode(number, &path, stored, out),
            (Table::Whole(whole), [stored]) => {
                let len = whole.decode(&path, stored, out)?;
                let shard = file.0 as usize;
                let samples = self.ends[shard] - if shard == 0 { 0 } else { self.ends[shard - 1] };
                check(&OpenFile::decoded(path, &out[..len]), whole.items, samples)?;
                Ok(len)
            }
            _ => Err(Error::new(ErrorKind::Internal, "a unit was decoded without its bytes, of").with_file(path)),
        }
    }

    /// How columns are stored, and for people how shards are: "int; zstd shards, decoded as a whole".
    pub(crate) fn with_packing(&self, mut encodings: Vec<String>) -> Vec<String> {
        if !self.has_units() {
            return encodings;
        }
        let (mut kinds, mut raw) = (BTreeSet::new(), "");
        for table in &self.tables {
            match table {
                Table::Whole(whole) => drop(kinds.insert(whole.packing())),
                Table::Frames(frames) => drop(kinds.insert(format!("zstd frames of {} samples", frames.rows))),
                Table::Offsets(_) | Table::Blocks { .. } => raw = ", beside raw shards",
                Table::Bad(_) => {}
            }
        }
        let packing = format!("; {}, decoded as a whole{raw}", Vec::from_iter(kinds).join(" and "));
        encodings.iter_mut().for_each(|encoding| encoding.push_str(&packing));
        encodings
    }
}

impl Table {
    /// Number of units.
    pub(super) fn units(&self) -> usize {
        match self {
            Table::Whole(_) => 1,
            Table::Frames(frames) => frames.frames.len(),
            Table::Offsets(_) | Table::Blocks { .. } | Table::Bad(_) => 0,
        }
    }

    /// Bytes of a unit when it is decoded, at most.
    pub(super) fn decoded(&self, number: usize) -> u64 {
        match self {
            Table::Whole(whole) => whole.decoded,
            Table::Frames(frames) => frames.decoded(number).end - frames.decoded(number).start,
            Table::Offsets(_) | Table::Blocks { .. } | Table::Bad(_) => 0,
        }
    }
}

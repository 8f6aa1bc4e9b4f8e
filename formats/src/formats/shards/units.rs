//! The units of shards: how many there are, where they are stored, and how they are decoded.

use super::{Frame, Layout, OpenFile, Sharded, Shards, Table};
use crate::dataset::{FileId, SampleId, Span, UnitId, Units};
use bytes::Bytes;
use std::collections::BTreeSet;
use uringload_core::{Error, ErrorKind, Result};

impl<L: Layout> Units for Sharded<L> {
    fn count(&self) -> u32 {
        self.shards.unit_ends.last().copied().unwrap_or(0)
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        let shards = &self.shards;
        let (shard, number) = shards.locate(id);
        let number = match &shards.tables[shard] {
            Table::Whole(_) => 0,
            // Fits: `push_units` counted them.
            Table::Frames(frames) => frames.frame(number) as u32,
            Table::Offsets(_) | Table::Blocks { .. } | Table::Bad(_) => return,
        };
        let before = if shard == 0 { 0 } else { shards.unit_ends[shard - 1] };
        out.push(UnitId(before + number));
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let (file, table, number) = self.shards.locate_unit(unit);
        out.push(self.shards.stored_of(table, file, number));
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        let (_, table, number) = self.shards.locate_unit(unit);
        table.decoded(number)
    }

    /// A decoded whole shard gets the same checks as a raw shard on opening.
    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let (file, table, number) = self.shards.locate_unit(unit);
        let path = self.shards.index.files.path(file);
        match (table, stored) {
            (Table::Frames(frames), [stored]) => frames.decode(number, &path, stored, out),
            (Table::Whole(whole), [stored]) => {
                let len = whole.decode(&path, stored, out)?;
                let (ends, shard) = (&self.shards.index.shards, file.0 as usize);
                let samples = ends[shard] - if shard == 0 { 0 } else { ends[shard - 1] };
                self.layout.read_table(&OpenFile::decoded(path, &out[..len]), whole.items, samples)?;
                Ok(len)
            }
            _ => Err(Error::new(ErrorKind::Internal, "a unit was decoded without its bytes").with_path(path)),
        }
    }
}

impl Shards {
    /// Shard and table of a unit, and its number in the shard.
    fn locate_unit(&self, unit: UnitId) -> (FileId, &Table, usize) {
        let shard = self.unit_ends.partition_point(|&end| end <= unit.0);
        let before = if shard == 0 { 0 } else { self.unit_ends[shard - 1] };
        (FileId(shard as u32), &self.tables[shard], (unit.0 - before) as usize)
    }

    /// Where a unit is stored.
    pub(super) fn stored_of(&self, table: &Table, file: FileId, number: usize) -> Span {
        match table {
            Table::Frames(frames) => {
                let Frame { at, len } = frames.frames[number];
                Span { file, offset: at, len: len.into() }
            }
            _ => Span { file, offset: 0, len: self.index.files.size(file) },
        }
    }

    /// Whether some samples are cut from units.
    pub(super) fn has_units(&self) -> bool {
        !self.unit_ends.is_empty()
    }

    /// Bytes of a sample, if the index gives those of all samples; unknown in a bad shard.
    pub(super) fn sample_bytes(&self, id: SampleId) -> Option<u64> {
        if !self.lengths_known {
            return None;
        }
        let (shard, number) = self.locate(id);
        match &self.tables[shard] {
            Table::Frames(frames) => Some(frames.range(number)).map(|range| range.end - range.start),
            _ => self.span(id).map(|span| span.len),
        }
    }

    /// How shards are stored, for humans: "; zstd shards, decoded as a whole". Empty if all are raw.
    pub(super) fn packing(&self) -> String {
        if !self.has_units() {
            return String::new();
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
        format!("; {}, decoded as a whole{raw}", Vec::from_iter(kinds).join(" and "))
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

    /// Maximum decoded bytes of a unit.
    pub(super) fn decoded(&self, number: usize) -> u64 {
        match self {
            Table::Whole(whole) => whole.decoded,
            Table::Frames(frames) => frames.decoded(number).end - frames.decoded(number).start,
            Table::Offsets(_) | Table::Blocks { .. } | Table::Bad(_) => 0,
        }
    }
}

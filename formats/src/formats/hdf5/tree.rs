//! Version 2 B-trees: records of one length in nodes of one length.

use super::meta::{Block, Meta};
use uringload_core::Result;

/// Bytes of a node apart from its records: signature, version, type and checksum.
const NODE_BYTES_AROUND: u64 = 10;
/// Maximum depth: a node has at least two children, and there are at most 2^64 records.
const DEPTH_MAX: u16 = 64;

/// What a tree holds, by the type in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(pub(super) u8);

/// Links of a group, by name.
pub(super) const LINKS: Kind = Kind(5);
/// Chunks without filters.
pub(super) const CHUNKS: Kind = Kind(10);
/// Chunks with filters.
pub(super) const FILTERED_CHUNKS: Kind = Kind(11);

/// The widths of a node's child pointers, by the level of the children.
struct Level {
    /// Most records in a node of this level.
    records: u64,
    /// Most records in a node of this level and everything below it.
    all: u64,
    /// Bytes of that total in a pointer; 0 for leaves, for which it is not stored.
    all_bytes: usize,
}

struct Tree<'m, 'a> {
    meta: &'m Meta<'a>,
    kind: u8,
    node_bytes: u64,
    record_bytes: usize,
    levels: Vec<Level>,
    /// Bytes of the count of a child's own records.
    count_bytes: usize,
}

/// Shows every record of the tree at an address, in order.
pub(super) fn records<'a>(
    meta: &Meta<'a>,
    address: u64,
    kinds: &[Kind],
    mut show: impl FnMut(Kind, Block<'a>) -> Result<()>,
) -> Result<()> {
    let len = 22 + meta.address_bytes + meta.length_bytes;
    let mut head = meta.signed(address, len as u64, b"BTHD", 0, "the header of a B-tree")?;
    head.check()?;
    let kind = head.u8()?;
    if !kinds.contains(&Kind(kind)) {
        return Err(head.corrupt(format!("a B-tree has the type {kind} and should have another")));
    }
    let (node_bytes, record_bytes, depth) = (u64::from(head.u32()?), head.u16()?, head.u16()?);
    head.skip(2)?;
    let root = meta.address(&mut head)?;
    let count = head.u16()?;
    if record_bytes == 0 || depth > DEPTH_MAX {
        return Err(
            head.corrupt(format!("a B-tree cannot have the depth {depth} with records of {record_bytes} bytes"))
        );
    }
    let mut tree =
        Tree { meta, kind, node_bytes, record_bytes: record_bytes.into(), levels: Vec::new(), count_bytes: 1 };
    for level in 0..=depth {
        let records = tree.most_records(level.into());
        let Some(records) = records.filter(|&records| records > 0) else {
            return Err(head.corrupt(format!("nodes of {node_bytes} bytes cannot hold a record of a B-tree")));
        };
        let below = tree.levels.last().map_or(0, |below| below.all);
        let all = (records + 1).saturating_mul(below).saturating_add(records);
        if level == 0 {
            tree.count_bytes = width(records);
        }
        tree.levels.push(Level { records, all, all_bytes: if level == 0 { 0 } else { width(all) } });
    }
    match root {
        Some(root) => tree.node(root, count.into(), depth.into(), &mut show),
        None => Ok(()),
    }
}

/// Bytes needed for numbers up to this one.
fn width(most: u64) -> usize {
    (most.max(1).ilog2() / 8 + 1) as usize
}

impl<'a> Tree<'_, 'a> {
    /// Most records of a node, once the level of its children is known.
    fn most_records(&self, level: usize) -> Option<u64> {
        let pointer = if level == 0 { 0 } else { self.pointer_bytes(level) };
        let room = self.node_bytes.checked_sub(NODE_BYTES_AROUND + pointer)?;
        Some(room / (self.record_bytes as u64 + pointer))
    }

    /// Bytes of a child pointer in a node above level 0.
    fn pointer_bytes(&self, level: usize) -> u64 {
        (self.meta.address_bytes + self.count_bytes + self.levels[level - 1].all_bytes) as u64
    }

    fn node(
        &self,
        address: u64,
        count: u64,
        level: usize,
        show: &mut impl FnMut(Kind, Block<'a>) -> Result<()>,
    ) -> Result<()> {
        let sign = if level == 0 { b"BTLF" } else { b"BTIN" };
        if count > self.levels[level].records {
            let block = self.meta.read(address, 0, "a node of a B-tree")?;
            return Err(block.corrupt(format!("a node of a B-tree cannot have {count} records")));
        }
        let pointers = if level == 0 { 0 } else { (count + 1) * self.pointer_bytes(level) };
        let len = NODE_BYTES_AROUND + count * self.record_bytes as u64 + pointers;
        let mut block = self.meta.signed(address, len, sign, 0, "a node of a B-tree")?;
        block.check()?;
        if block.u8()? != self.kind {
            return Err(block.corrupt("a node belongs to another B-tree"));
        }
        let mut records = block.part(count as usize * self.record_bytes, "a record of a B-tree")?;
        for number in 0..=count {
            if level > 0 {
                let child = self.meta.address(&mut block)?;
                let of_child = block.number(self.count_bytes)?;
                block.skip(self.levels[level - 1].all_bytes)?;
                let child = child.ok_or_else(|| block.corrupt("a child of a B-tree is missing"))?;
                self.node(child, of_child, level - 1, show)?;
            }
            if number < count {
                show(Kind(self.kind), records.part(self.record_bytes, "a record of a B-tree")?)?;
            }
        }
        Ok(())
    }
}

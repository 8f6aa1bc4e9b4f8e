//! Fractal heaps, which hold the links of large groups in the later format.

use super::meta::{ARE_CHECKED, Block, Meta, lookup3};
use std::collections::{HashMap, HashSet};
use uringload_core::{Error, Result};

const WHAT: &str = "a fractal heap";

/// A heap whose objects are read one by one.
pub(super) struct Heap<'m, 'a> {
    meta: &'m Meta<'a>,
    address: u64,
    /// Blocks per row of an indirect block.
    width: u64,
    /// Bytes of a block in the first two rows. The block size doubles with each further row.
    first_bytes: u64,
    /// Number of rows of direct blocks; the rows after them hold indirect blocks.
    direct_rows: u32,
    offset_bytes: usize,
    len_bytes: usize,
    has_checksums: bool,
    root: Option<u64>,
    /// Rows of the root if it is an indirect block; 0 if it is a direct one.
    root_rows: u32,
    /// Addresses of the direct blocks that were verified.
    verified: HashSet<u64>,
    /// The children of the indirect blocks that were read. Names come in the order of their hashes, so that every
    /// block is asked for again and again.
    children: HashMap<u64, Vec<Option<u64>>>,
}

impl<'m, 'a> Heap<'m, 'a> {
    pub(super) fn open(meta: &'m Meta<'a>, address: u64) -> Result<Heap<'m, 'a>> {
        let len = 26 + 12 * meta.length_bytes + 3 * meta.address_bytes;
        let mut head = meta.signed(address, len as u64, b"FRHP", 0, WHAT)?;
        head.skip(2)?;
        if head.u16()? != 0 {
            let error = head.unavailable("the links of a group are compressed");
            return Err(error.with_remedy("write the file again with h5repack"));
        }
        head.check()?;
        let flags = head.u8()?;
        let managed_max = u64::from(head.u32()?);
        head.skip(10 * meta.length_bytes + 2 * meta.address_bytes)?;
        let width = u64::from(head.u16()?);
        let (first_bytes, direct_max) = (meta.length(&mut head)?, meta.length(&mut head)?);
        let bits = u32::from(head.u16()?);
        head.skip(2)?;
        let root = meta.address(&mut head)?;
        let root_rows = u32::from(head.u16()?);
        let sound = first_bytes.is_power_of_two()
            && direct_max.is_power_of_two()
            && direct_max >= first_bytes
            && width.is_power_of_two()
            && (1..=64).contains(&bits)
            && root_rows <= 64;
        if !sound {
            return Err(head.corrupt("a fractal heap has impossible sizes"));
        }
        // Wide enough for the longest object or any offset in the largest direct block, whichever needs less.
        let len_bytes = (managed_max.max(1).ilog2() / 8 + 1).min(direct_max.ilog2().div_ceil(8)) as usize;
        Ok(Heap {
            meta,
            address,
            width,
            first_bytes,
            direct_rows: direct_max.ilog2() - first_bytes.ilog2() + 2,
            offset_bytes: bits.div_ceil(8) as usize,
            len_bytes,
            has_checksums: flags & 0x02 != 0,
            root,
            root_rows,
            verified: HashSet::new(),
            children: HashMap::new(),
        })
    }

    /// The object with this ID.
    pub(super) fn object(&mut self, id: &mut Block<'a>) -> Result<Block<'a>> {
        let kind = id.u8()?;
        match kind >> 4 & 0x03 {
            _ if kind >> 6 != 0 => return Err(id.corrupt("an object of a fractal heap has another version")),
            0 => {}
            // The object is in its ID, after a length that is stored less one.
            2 => {
                let len = usize::from(kind & 0x0f) + 1;
                return id.part(len, "an object of a fractal heap");
            }
            _ => {
                let error = id.unavailable("a link is too long for its heap");
                return Err(error.with_remedy("write the file again with h5repack"));
            }
        }
        let (offset, len) = (id.number(self.offset_bytes)?, id.number(self.len_bytes)?);
        let Some(root) = self.root else { return Err(id.corrupt("an object is in an empty fractal heap")) };
        let (address, begins, bytes) = match self.root_rows {
            0 => (root, 0, self.first_bytes),
            rows => self.locate(root, rows, 0, offset)?,
        };
        self.verify(address, bytes)?;
        let within =
            offset.checked_sub(begins).filter(|within| within.checked_add(len).is_some_and(|end| end <= bytes));
        let Some(within) = within else {
            return Err(id.corrupt("an object ends past its block of a fractal heap"));
        };
        self.meta.read(address.saturating_add(within), len, "an object of a fractal heap")
    }

    /// The direct block that holds a heap offset: its address, its own offset and its bytes.
    fn locate(&mut self, mut address: u64, mut rows: u32, mut begins: u64, offset: u64) -> Result<(u64, u64, u64)> {
        let first_row = self.width.saturating_mul(self.first_bytes);
        loop {
            let entries = u64::from(rows) * self.width;
            let direct = entries.min(u64::from(self.direct_rows) * self.width);
            let Some(within) = offset.checked_sub(begins) else {
                return Err(self.corrupt(address, "an object begins before its block of a fractal heap"));
            };
            let row = if within < first_row { 0 } else { (within / first_row).ilog2() + 1 };
            // Cannot overflow: the row begins at or before `within`.
            let (row_begins, bytes) = match row {
                0 => (0, self.first_bytes),
                row => (first_row << (row - 1), self.first_bytes << (row - 1)),
            };
            let column = (within - row_begins) / bytes;
            let entry = u64::from(row) * self.width + column;
            let child = usize::try_from(entry).ok().zip(Some(self.children(address, entries)?));
            let Some(child) = child.and_then(|(entry, children)| children.get(entry).copied()) else {
                return Err(self.corrupt(address, "an object is past the end of a fractal heap"));
            };
            let missing = "an object is in a missing block of a fractal heap";
            let child = child.ok_or_else(|| self.corrupt(address, missing))?;
            begins += row_begins + column * bytes;
            if entry < direct {
                return Ok((child, begins, bytes));
            }
            address = child;
            // Fewer than before: a block of this row is larger than the first row, or it would be direct.
            let fewer = (bytes / first_row).max(1).ilog2() + 1;
            if fewer >= rows {
                return Err(self.corrupt(address, "the blocks of a fractal heap form a loop"));
            }
            rows = fewer;
        }
    }

    /// The addresses of the blocks below an indirect block with that many rows.
    fn children(&mut self, address: u64, entries: u64) -> Result<&[Option<u64>]> {
        if !self.children.contains_key(&address) {
            let before = 5 + self.meta.address_bytes + self.offset_bytes;
            let len = before as u64 + entries * self.meta.address_bytes as u64 + 4;
            let mut block = self.meta.signed(address, len, b"FHIB", 0, "an indirect block of a fractal heap")?;
            block.check()?;
            block.skip(before - 5)?;
            let children = (0..entries).map(|_| self.meta.address(&mut block)).collect::<Result<_>>()?;
            self.children.insert(address, children);
        }
        Ok(&self.children[&address])
    }

    fn corrupt(&self, address: u64, what: &'static str) -> Error {
        self.meta.source.corrupt(self.meta.base.saturating_add(address), what)
    }

    /// Reads a direct block and verifies its checksum, if it has one. It is read once.
    fn verify(&mut self, address: u64, bytes: u64) -> Result<()> {
        if self.verified.contains(&address) {
            return Ok(());
        }
        let mut block = self.meta.signed(address, bytes, b"FHDB", 0, "a direct block of a fractal heap")?;
        if self.meta.address(&mut block)? != Some(self.address) {
            return Err(block.corrupt("a direct block belongs to another fractal heap"));
        }
        if self.has_checksums {
            block.skip(self.offset_bytes)?;
            let stored = block.u32()?;
            let at = 5 + self.meta.address_bytes + self.offset_bytes;
            let mut content = block.all().to_vec();
            content[at..at + 4].fill(0);
            if ARE_CHECKED && lookup3(&content) != stored {
                return Err(block.wrong_checksum());
            }
        }
        self.verified.insert(address);
        Ok(())
    }
}

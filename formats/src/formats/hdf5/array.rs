//! Fixed and extensible arrays: chunk indexes by chunk number.

use super::meta::{Block, Meta};
use uringload_core::Result;

/// Called for each chunk that was written: its number in the array, its address and, for filtered datasets, its stored
/// length and a mask of the filters that were skipped.
trait Show: FnMut(u64, u64, Option<(u64, u32)>) -> Result<()> {}
impl<F: FnMut(u64, u64, Option<(u64, u32)>) -> Result<()>> Show for F {}

/// The layout of the elements of an array.
struct Elements<'m, 'a> {
    meta: &'m Meta<'a>,
    /// Whether an element has a length and a filter mask in addition to the address.
    is_filtered: bool,
    bytes: usize,
}

impl<'a> Elements<'_, 'a> {
    /// Takes the client ID, which is the byte after an array's version, and the bytes of an element.
    fn of<'m>(meta: &'m Meta<'a>, block: &Block<'a>, client: u8, bytes: u8) -> Result<Elements<'m, 'a>> {
        let bytes = usize::from(bytes);
        // The length has 1 to 8 bytes.
        let lengths = meta.address_bytes + 5..=meta.address_bytes + 12;
        match client {
            0 if bytes == meta.address_bytes => Ok(Elements { meta, is_filtered: false, bytes }),
            1 if lengths.contains(&bytes) => Ok(Elements { meta, is_filtered: true, bytes }),
            _ => Err(block.corrupt(format!("an array of chunks has entries of type {client} with {bytes} bytes"))),
        }
    }

    /// Shows `count` elements, starting at number `first`.
    fn show(&self, block: &mut Block<'a>, first: u64, count: u64, show: &mut impl Show) -> Result<()> {
        for number in first..first.saturating_add(count) {
            let address = self.meta.address(block)?;
            let stored = if self.is_filtered {
                Some((block.number(self.bytes - self.meta.address_bytes - 4)?, block.u32()?))
            } else {
                None
            };
            if let Some(address) = address {
                show(number, address, stored)?;
            }
        }
        Ok(())
    }

    /// Bytes of this many elements; `None` if the file is shorter than that.
    fn len(&self, count: u64) -> Option<u64> {
        count.checked_mul(self.bytes as u64).filter(|&len| len <= self.meta.source.size())
    }

    /// Pages of elements from an address on, each with a checksum. `is_there` says which pages were written.
    fn pages(
        &self,
        (address, first, count, page): (u64, u64, u64, u64),
        is_there: impl Fn(u64) -> bool,
        show: &mut impl Show,
    ) -> Result<()> {
        const WHAT: &str = "a page of an array of chunks";
        let page_bytes = self.len(page).map(|len| len + 4).ok_or_else(|| self.meta.source.truncated(WHAT))?;
        for number in (0..count.div_ceil(page)).filter(|&number| is_there(number)) {
            let elements = page.min(count - number * page);
            let at = number.checked_mul(page_bytes).and_then(|at| at.checked_add(address));
            let at = at.ok_or_else(|| self.meta.source.truncated(WHAT))?;
            let mut block = self.meta.read(at, elements * self.bytes as u64 + 4, WHAT)?;
            block.check()?;
            self.show(&mut block, first + number * page, elements, show)?;
        }
        Ok(())
    }
}

/// Whether a bit is set in a bit field. The highest bit of each byte comes first.
fn is_set(bits: &[u8], number: u64) -> bool {
    let byte = usize::try_from(number / 8).ok().and_then(|at| bits.get(at));
    byte.is_some_and(|byte| byte & 0x80 >> (number % 8) != 0)
}

/// An array with as many elements as the dataset may ever have chunks.
pub(super) fn fixed<'a>(
    meta: &Meta<'a>,
    address: u64,
    mut show: impl FnMut(u64, u64, Option<(u64, u32)>) -> Result<()>,
) -> Result<()> {
    const WHAT: &str = "a fixed array of chunks";
    let len = 12 + meta.length_bytes + meta.address_bytes;
    let mut head = meta.signed(address, len as u64, b"FAHD", 0, WHAT)?;
    head.check()?;
    let (client, bytes, page_bits) = (head.u8()?, head.u8()?, head.u8()?);
    let elements = Elements::of(meta, &head, client, bytes)?;
    let count = meta.length(&mut head)?;
    let Some(data) = meta.address(&mut head)? else { return Ok(()) };
    let Some(bytes) = elements.len(count).filter(|_| page_bits < 32) else {
        return Err(head.corrupt(format!("a fixed array cannot have {count} chunks")));
    };
    let page = 1 << page_bits;
    let before = 6 + meta.address_bytes as u64;
    if count <= page {
        let mut block = meta.signed(data, before + bytes + 4, b"FADB", 0, WHAT)?;
        block.check()?;
        block.skip(1 + meta.address_bytes)?;
        return elements.show(&mut block, 0, count, &mut show);
    }
    let map_bytes = count.div_ceil(page).div_ceil(8);
    let mut block = meta.signed(data, before + map_bytes + 4, b"FADB", 0, WHAT)?;
    block.check()?;
    block.skip(1 + meta.address_bytes)?;
    let map = block.take(block.left())?.to_vec();
    let pages = (data.saturating_add(before + map_bytes + 4), 0, count, page);
    elements.pages(pages, |number| is_set(&map, number), &mut show)
}

/// An array that grows. Its first elements and blocks are in an index block, the others are reached through super
/// blocks. From one super block to the next, the size and the number of blocks double in turn.
struct Extensible<'m, 'a> {
    elements: Elements<'m, 'a>,
    /// Bytes of an element number within the array.
    offset_bytes: usize,
    /// Elements of the smallest block; a power of two.
    block_elements: u64,
    /// Elements of a page. Larger blocks consist of pages.
    page: u64,
}

const WHAT: &str = "an extensible array of chunks";

/// An array without an upper bound.
pub(super) fn extensible<'a>(
    meta: &Meta<'a>,
    address: u64,
    mut show: impl FnMut(u64, u64, Option<(u64, u32)>) -> Result<()>,
) -> Result<()> {
    let len = 16 + 6 * meta.length_bytes + meta.address_bytes;
    let mut head = meta.signed(address, len as u64, b"EAHD", 0, WHAT)?;
    head.check()?;
    let (client, bytes) = (head.u8()?, head.u8()?);
    let elements = Elements::of(meta, &head, client, bytes)?;
    let (bits, in_index) = (u32::from(head.u8()?), u64::from(head.u8()?));
    let (block_elements, pointers) = (u64::from(head.u8()?), u64::from(head.u8()?));
    let page_bits = head.u8()?;
    head.skip(6 * meta.length_bytes)?;
    let Some(index) = meta.address(&mut head)? else { return Ok(()) };
    let sound = block_elements.is_power_of_two() && pointers.is_power_of_two();
    if !sound || !(1..=64).contains(&bits) || page_bits >= 32 || bits < block_elements.ilog2() {
        return Err(head.corrupt("an extensible array has impossible sizes"));
    }
    let array = Extensible { elements, offset_bytes: bits.div_ceil(8) as usize, block_elements, page: 1 << page_bits };
    // Super blocks are counted from 0. The index block itself lists the blocks of the first ones.
    let all = 1 + bits - block_elements.ilog2();
    let in_place = (2 * pointers.ilog2()).min(all);
    let (blocks, supers) = (2 * (pointers - 1), u64::from(all - in_place));
    let addresses = (blocks + supers) * meta.address_bytes as u64;
    let len = 6 + meta.address_bytes as u64 + in_index * u64::from(bytes) + addresses + 4;
    let mut block = meta.signed(index, len, b"EAIB", 0, WHAT)?;
    block.check()?;
    block.skip(1 + meta.address_bytes)?;
    array.elements.show(&mut block, 0, in_index, &mut show)?;
    let mut first = in_index;
    let mut left = blocks;
    for level in 0..in_place {
        let (count, size) = array.of_level(level);
        for _ in 0..count.min(left) {
            if let Some(address) = meta.address(&mut block)? {
                array.data(address, first, size, None, &mut show)?;
            }
            first = first.saturating_add(size);
        }
        left = left.saturating_sub(count);
    }
    for level in in_place..all {
        let (count, size) = array.of_level(level);
        if let Some(address) = meta.address(&mut block)? {
            array.super_block(address, first, (count, size), &mut show)?;
        }
        first = first.saturating_add(count.saturating_mul(size));
    }
    Ok(())
}

impl<'a> Extensible<'_, 'a> {
    /// Number of blocks in a super block, and elements per block.
    fn of_level(&self, level: u32) -> (u64, u64) {
        // There are at most 64 levels.
        (1 << (level / 2), self.block_elements.saturating_mul(1 << level.div_ceil(2)))
    }

    fn super_block(&self, address: u64, mut first: u64, (count, size): (u64, u64), show: &mut impl Show) -> Result<()> {
        let meta = self.elements.meta;
        let pages = if size > self.page { size / self.page } else { 0 };
        let map_bytes = count.checked_mul(pages.div_ceil(8)).filter(|&len| len <= meta.source.size());
        let addresses = count.checked_mul(meta.address_bytes as u64).filter(|&len| len <= meta.source.size());
        let (Some(map_bytes), Some(addresses)) = (map_bytes, addresses) else {
            return Err(meta.source.truncated(WHAT));
        };
        let before = 6 + (meta.address_bytes + self.offset_bytes) as u64;
        let mut block = meta.signed(address, before + map_bytes + addresses + 4, b"EASB", 0, WHAT)?;
        block.check()?;
        block.skip(1 + meta.address_bytes + self.offset_bytes)?;
        let map = block.take(map_bytes as usize)?.to_vec();
        for number in 0..count {
            if let Some(address) = meta.address(&mut block)? {
                self.data(address, first, size, Some((&map, number * pages)), show)?;
            }
            first = first.saturating_add(size);
        }
        Ok(())
    }

    /// A block of elements. If it consists of pages, `written` holds the bits, from a given one on, that show which
    /// were written.
    fn data(
        &self,
        address: u64,
        first: u64,
        count: u64,
        written: Option<(&[u8], u64)>,
        show: &mut impl Show,
    ) -> Result<()> {
        let meta = self.elements.meta;
        let before = 6 + (meta.address_bytes + self.offset_bytes) as u64;
        let Some(bytes) = self.elements.len(count) else { return Err(meta.source.truncated(WHAT)) };
        if count <= self.page {
            let mut block = meta.signed(address, before + bytes + 4, b"EADB", 0, WHAT)?;
            block.check()?;
            block.skip(1 + meta.address_bytes + self.offset_bytes)?;
            return self.elements.show(&mut block, first, count, show);
        }
        let mut block = meta.signed(address, before + 4, b"EADB", 0, WHAT)?;
        block.check()?;
        let pages = (address.saturating_add(before + 4), first, count, self.page);
        let is_there = |page| written.is_none_or(|(map, bit)| is_set(map, bit + page));
        self.elements.pages(pages, is_there, show)
    }
}

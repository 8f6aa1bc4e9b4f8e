//! A smaller JPEG of a part of a larger one, without decoding it: it copies the codes of the visible blocks and passes
//! over the others, several at a time. Any decoder then has only visible blocks to decode, and makes the same pixels of
//! them.
//!
//! Only for a baseline file of one scan: anything unexpected is declined, and the decoder gets the file unchanged. So
//! this neither reports nor repairs damage.

use crate::Region;

mod huffman;
#[cfg(all(test, feature = "jpeg-encoder"))]
mod tests;

use huffman::{Blocks, LOOKED_AT, Tables};

/// Columns and rows beside a region that are needed to interpolate chroma: one sample of it is up to four columns.
const MARGIN: (u32, u32) = (2, 4);

/// Least columns of a part: with fewer, chroma is repeated instead of interpolated.
const COLUMNS_MIN: u32 = 8;

/// Most blocks of a group that is coded together.
const BLOCKS_MAX: usize = 10;

/// Memory of a thread that cuts one JPEG after the other.
#[derive(Debug, Default)]
pub struct Cutter {
    /// The codes, without the stuffed zeros after bytes of ones and without markers.
    codes: Vec<u8>,
    /// The places of restarts in them.
    restarts: Vec<usize>,
    /// Codes of the part, before such zeros.
    kept: Bits,
    file: Vec<u8>,
    tables: Tables,
}

/// What to cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Pixels of the image.
    pub seen: Region,
    pub has_margin: bool,
    pub gain: Gain,
}

/// The place of a part in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corner {
    pub y: u32,
    pub x: u32,
}

impl Cutter {
    /// The file of the part that [`cut`](Cutter::cut) made last.
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    /// Bytes that are kept for the next file, without tables, which take up to 200 KiB.
    pub fn bytes(&self) -> u64 {
        (self.codes.capacity() + self.kept.bytes.capacity() + self.file.capacity()) as u64
    }

    /// Drops them.
    pub fn shrink(&mut self) {
        let tables = std::mem::take(&mut self.tables);
        *self = Cutter { tables, ..Cutter::default() };
    }

    /// Makes a file of what a rectangle of an image of that size needs, with the neighbours for interpolating chroma if
    /// they are asked for, and returns the rectangle's place in it. `None` for files of another kind, broken ones, and
    /// where there is nothing to gain.
    pub fn cut(&mut self, bytes: &[u8], size: (u32, u32), cut: &Cut) -> Option<Corner> {
        let Cut { seen, has_margin, gain } = *cut;
        let head = Head::read(bytes).filter(|head| (head.height, head.width) == size)?;
        let is_mixed = head.components[..head.count].iter().any(|component| component.factors != 0x11);
        if gain == Gain::OfAll && head.count == 4 && is_mixed {
            // zune-jpeg 0.5.15 makes other pixels of a part than of the whole where four components differ in size.
            return None;
        }
        let groups = head.groups(seen, has_margin);
        let all = match gain {
            Gain::OfAll => u64::from(head.rows()),
            Gain::OfRowsSeen => u64::from(groups.end_row),
        } * u64::from(head.columns());
        if groups.count() * 256 > gain.most() * all {
            return None;
        }
        self.unstuff(&bytes[head.scan..]);
        self.tables.make_room();
        let mut blocks = [Blocks::default(); BLOCKS_MAX];
        let mut count = 0;
        for (index, component) in head.components[..head.count].iter().enumerate() {
            let dc = self.tables.dc(head.huffman(bytes, 0, component.tables >> 4)?)?;
            let ac = self.tables.ac(head.huffman(bytes, 1, component.tables & 15)?)?;
            for _ in 0..component.blocks() {
                blocks[count] = Blocks { component: index as u8, dc, ac };
                count += 1;
            }
        }
        self.kept.clear();
        self.copy(&head, groups, &blocks[..count])?;
        self.write(bytes, &head, groups, &blocks[..count])?;
        let (height, width) = head.group();
        Some(Corner { y: groups.row * height, x: groups.column * width })
    }

    /// The codes as a stream of bits. [`LOOKED_AT`] bytes after its end may be read.
    fn unstuff(&mut self, scan: &[u8]) {
        self.codes.clear();
        self.restarts.clear();
        self.codes.reserve(scan.len() + LOOKED_AT);
        let mut rest = scan;
        loop {
            let found = ones(rest);
            self.codes.extend_from_slice(&rest[..found]);
            match rest.get(found + 1) {
                Some(0) => self.codes.push(0xff),
                Some(marker) if *marker == 0xd0 | (self.restarts.len() & 7) as u8 => {
                    self.restarts.push(self.codes.len())
                }
                _ => break,
            }
            rest = &rest[found + 2..];
        }
        self.codes.extend_from_slice(&[0; LOOKED_AT]);
    }

    /// Copies the codes of these groups.
    fn copy(&mut self, head: &Head, groups: Groups, blocks: &[Blocks]) -> Option<()> {
        let mut reader = huffman::BitReader::new(&self.codes);
        let mut before = [0; 4];
        let mut levels = [0; 4];
        let mut until_restart = head.restart;
        let mut restarts = self.restarts.iter();
        let end = (self.codes.len() - LOOKED_AT) * 8;
        for row in 0..groups.end_row {
            if reader.at() > end {
                return None;
            }
            let is_last = row + 1 == groups.end_row;
            let columns = if is_last { groups.end_column } else { head.columns() };
            let is_seen = row >= groups.row;
            let mut is_copied = false;
            for column in 0..columns {
                if head.restart > 0 {
                    if until_restart == 0 {
                        reader.restart(*restarts.next()?)?;
                        levels = [0; 4];
                        until_restart = head.restart;
                        is_copied = false;
                    }
                    until_restart -= 1;
                }
                if !is_seen || column < groups.column || column >= groups.end_column {
                    for block in blocks {
                        reader.pass(&self.tables, *block, &mut levels)?;
                    }
                    continue;
                }
                let mut start = reader.at();
                if is_copied {
                    for block in blocks {
                        reader.pass(&self.tables, *block, &mut levels)?;
                    }
                } else {
                    // The first levels are coded as differences from those before, which are others now.
                    let mut is_coded = [false; 4];
                    for block in blocks {
                        let component = usize::from(block.component);
                        let code = reader.at();
                        reader.level(&self.tables, *block, &mut levels)?;
                        if !is_coded[component] {
                            is_coded[component] = true;
                            self.kept.copy(&self.codes, start, code);
                            let (bits, count) =
                                self.tables.code(block.dc, levels[component].wrapping_sub(before[component]))?;
                            self.kept.push(bits, count);
                            start = reader.at();
                        }
                        reader.numbers(&self.tables, *block)?;
                    }
                    is_copied = true;
                }
                self.kept.copy(&self.codes, start, reader.at());
                before = levels;
            }
        }
        (reader.at() <= end && restarts.next().is_none_or(|&at| reader.at() <= at * 8)).then_some(())
    }

    /// Writes the file: the segments before the scan that matter for pixels, and the codes.
    fn write(&mut self, bytes: &[u8], head: &Head, groups: Groups, blocks: &[Blocks]) -> Option<()> {
        let (height, width) = head.group();
        let side = |end: u32, start: u32, step: u32, all: u32| ((end * step).min(all) - start * step) as u16;
        let rows = side(groups.end_row, groups.row, height, head.height);
        let columns = side(groups.end_column, groups.column, width, head.width);
        let file = &mut self.file;
        file.clear();
        file.extend_from_slice(&[0xff, 0xd8]);
        for segment in &head.kept[..head.kept_count] {
            file.extend_from_slice(bytes.get(segment.0..segment.1)?);
        }
        let frame = file.len();
        file.extend_from_slice(bytes.get(head.frame.0..head.frame.1)?);
        file[frame + 5..frame + 7].copy_from_slice(&rows.to_be_bytes());
        file[frame + 7..frame + 9].copy_from_slice(&columns.to_be_bytes());
        let mut written = [[false; 4]; 2];
        for block in blocks {
            let tables = head.components[usize::from(block.component)].tables;
            for (class, number, key) in
                [(0, tables >> 4, self.tables.dc_key(block.dc)), (1, tables & 15, self.tables.ac_key(block.ac))]
            {
                if !std::mem::replace(&mut written[class][usize::from(number)], true) {
                    file.extend_from_slice(&[0xff, 0xc4]);
                    file.extend_from_slice(&(3 + key.len() as u16).to_be_bytes());
                    file.push((class as u8) << 4 | number);
                    file.extend_from_slice(key);
                }
            }
        }
        file.extend_from_slice(bytes.get(head.scan_header..head.scan)?);
        let mut rest = self.kept.end();
        loop {
            let found = ones(rest);
            let has_ones = found < rest.len();
            file.extend_from_slice(&rest[..found + usize::from(has_ones)]);
            if !has_ones {
                break;
            }
            file.push(0);
            rest = &rest[found + 1..];
        }
        file.extend_from_slice(&[0xff, 0xd9]);
        Some(())
    }
}

/// The measure for a cut: it is worth it only if the visible groups are a small part of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// Of all: the decoder cannot decode rectangles.
    OfAll,
    /// Of those up to the last visible row: the decoder can decode rectangles, but must read the codes before them.
    OfRowsSeen,
}

impl Gain {
    /// How many of 256 groups may be visible.
    fn most(self) -> u64 {
        match self {
            Gain::OfAll => 200,
            Gain::OfRowsSeen => 128,
        }
    }
}

/// The place of the first byte of ones, or the number of bytes.
fn ones(bytes: &[u8]) -> usize {
    let mut at = 0;
    for eight in bytes.as_chunks::<8>().0 {
        let missing = !u64::from_le_bytes(*eight);
        let zeros = missing.wrapping_sub(0x0101_0101_0101_0101) & !missing & 0x8080_8080_8080_8080;
        if zeros != 0 {
            return at + zeros.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes[at..].iter().position(|&byte| byte == 0xff).unwrap_or(bytes.len() - at)
}

/// Groups of blocks: rows and columns of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Groups {
    row: u32,
    end_row: u32,
    column: u32,
    end_column: u32,
}

impl Groups {
    fn count(self) -> u64 {
        u64::from(self.end_row - self.row) * u64::from(self.end_column - self.column)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Component {
    id: u8,
    factors: u8,
    /// The number of the table of levels, and that of the others.
    tables: u8,
}

impl Component {
    fn blocks(self) -> usize {
        usize::from(self.factors >> 4) * usize::from(self.factors & 15)
    }
}

/// The segments before the scan, as places in the file.
#[derive(Debug, Default)]
struct Head {
    height: u32,
    width: u32,
    components: [Component; 4],
    count: usize,
    /// The greatest factors.
    high: u32,
    wide: u32,
    /// Groups between two restarts; 0 without restarts.
    restart: u32,
    /// Tables of codes: class and number, and where they are.
    huffman: [[Option<(usize, usize)>; 4]; 2],
    frame: (usize, usize),
    /// Segments that are kept as they are.
    kept: [(usize, usize); 8],
    kept_count: usize,
    scan_header: usize,
    scan: usize,
}

impl Head {
    /// `None` for anything but a plain baseline file of one scan.
    fn read(bytes: &[u8]) -> Option<Head> {
        let mut head = Head::default();
        let mut at = 2;
        loop {
            let marker = *bytes.get(at + 1).filter(|_| bytes[at] == 0xff)?;
            let length = usize::from(u16::from_be_bytes(*bytes.get(at + 2..)?.first_chunk()?));
            let end = at + 2 + length;
            let payload = bytes.get(at + 4..end)?;
            match marker {
                0xc0 | 0xc1 if head.count == 0 => {
                    head.frame = (at, end);
                    head.read_frame(payload)?;
                }
                0xc4 => head.read_huffman(payload, at + 4)?,
                0xdd => head.restart = u32::from(u16::from_be_bytes(*payload.first_chunk()?)),
                // Tables of quantization, and the segments that say which colours these are.
                0xdb | 0xe0 | 0xee => {
                    *head.kept.get_mut(head.kept_count)? = (at, end);
                    head.kept_count += 1;
                }
                // Other data of applications, and comments.
                0xe1..=0xed | 0xef | 0xfe => {}
                0xda => {
                    head.scan_header = at;
                    head.scan = end;
                    return head.read_scan(payload).map(|()| head);
                }
                _ => return None,
            }
            at = end;
        }
    }

    fn read_frame(&mut self, payload: &[u8]) -> Option<()> {
        let &[8, h0, h1, w0, w1, count] = payload.first_chunk::<6>()? else { return None };
        self.height = u32::from(u16::from_be_bytes([h0, h1]));
        self.width = u32::from(u16::from_be_bytes([w0, w1]));
        self.count = usize::from(count);
        let is_possible = self.height > 0 && self.width > 0 && (1..=4).contains(&count);
        let components = payload[6..].as_chunks::<3>().0;
        if !is_possible || components.len() != self.count {
            return None;
        }
        for (component, &[id, factors, _]) in self.components.iter_mut().zip(components) {
            // A single component is coded block by block, whatever its factors are.
            let factors = if count == 1 { 0x11 } else { factors };
            *component = Component { id, factors, tables: 0 };
            let (wide, high) = (factors >> 4, factors & 15);
            if !(1..=4).contains(&wide) || !(1..=4).contains(&high) {
                return None;
            }
            self.wide = self.wide.max(wide.into());
            self.high = self.high.max(high.into());
        }
        let blocks = self.components[..self.count].iter().map(|component| component.blocks()).sum::<usize>();
        (blocks <= BLOCKS_MAX).then_some(())
    }

    fn read_huffman(&mut self, payload: &[u8], start: usize) -> Option<()> {
        let mut at = 0;
        while at < payload.len() {
            let (class, number) = (payload[at] >> 4, payload[at] & 15);
            let lengths = payload.get(at + 1..at + 17)?;
            let symbols = lengths.iter().map(|&count| usize::from(count)).sum::<usize>();
            let end = at + 17 + symbols;
            payload.get(..end)?;
            *self.huffman.get_mut(usize::from(class))?.get_mut(usize::from(number))? =
                Some((start + at + 1, start + end));
            at = end;
        }
        Some(())
    }

    fn read_scan(&mut self, payload: &[u8]) -> Option<()> {
        let count = self.count;
        if count == 0 || payload.len() != 1 + 2 * count + 3 || usize::from(payload[0]) != count {
            return None;
        }
        for (component, &[id, tables]) in self.components.iter_mut().zip(payload[1..=2 * count].as_chunks::<2>().0) {
            if component.id != id {
                return None;
            }
            component.tables = tables;
        }
        (payload[1 + 2 * count..] == [0, 63, 0]).then_some(())
    }

    fn huffman<'a>(&self, bytes: &'a [u8], class: usize, number: u8) -> Option<&'a [u8]> {
        let (start, end) = (*self.huffman[class].get(usize::from(number))?)?;
        bytes.get(start..end)
    }

    /// Rows and columns of a group of blocks, in pixels.
    fn group(&self) -> (u32, u32) {
        (8 * self.high, 8 * self.wide)
    }

    fn rows(&self) -> u32 {
        self.height.div_ceil(8 * self.high)
    }

    fn columns(&self) -> u32 {
        self.width.div_ceil(8 * self.wide)
    }

    fn groups(&self, seen: Region, has_margin: bool) -> Groups {
        let (height, width) = self.group();
        let (rows, columns) = if has_margin { MARGIN } else { (0, 0) };
        // Where all have as many rows, none are interpolated.
        let rows = if self.high > 1 { rows } else { 0 };
        let first = |start: u32, margin: u32, step: u32| start.saturating_sub(margin) / step;
        let end = |end: u32, margin: u32, step: u32, all: u32| (end + margin).min(all).div_ceil(step);
        let mut groups = Groups {
            row: first(seen.y, rows, height),
            end_row: end(seen.y + seen.h, rows, height, self.height),
            column: first(seen.x, columns, width),
            end_column: end(seen.x + seen.w, columns, width, self.width),
        };
        let is_narrow = (groups.end_column * width).min(self.width) - groups.column * width < COLUMNS_MIN;
        groups.column -= u32::from(is_narrow && groups.column > 0);
        groups
    }
}

/// Bits that are written one after the other.
#[derive(Debug, Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Those that do not fill a byte yet, from the highest bit on, and their number.
    open: u64,
    count: u32,
}

impl Bits {
    fn clear(&mut self) {
        self.bytes.clear();
        (self.open, self.count) = (0, 0);
    }

    /// At most 32 of them.
    fn push(&mut self, bits: u32, count: u32) {
        debug_assert!(count <= 32 && self.count < 8);
        self.open |= u64::from(bits) << (64 - self.count - count);
        self.count += count;
        let whole = self.count / 8;
        self.bytes.extend_from_slice(&self.open.to_be_bytes()[..whole as usize]);
        self.open <<= 8 * whole;
        self.count %= 8;
    }

    /// Those between two places of `from`.
    fn copy(&mut self, from: &[u8], start: usize, end: usize) {
        let mut at = start;
        while at + 48 <= end {
            let word = huffman::word(from, at) >> 16 << 16;
            let all = self.open | word >> self.count;
            self.bytes.extend_from_slice(&all.to_be_bytes()[..6]);
            self.open = all << 48;
            at += 48;
        }
        while at < end {
            let count = (end - at).min(32);
            self.push((huffman::word(from, at) >> 32 >> (32 - count)) as u32, count as u32);
            at += count;
        }
    }

    /// All bytes; ones fill up the last.
    fn end(&mut self) -> &[u8] {
        if self.count > 0 {
            let ones = 8 - self.count;
            self.push((1 << ones) - 1, ones);
        }
        &self.bytes
    }
}

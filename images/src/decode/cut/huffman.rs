//! Passes over codes: of a block, only the level is read, its first number.

/// Bytes that may be read after the end. No bit of them counts.
pub const LOOKED_AT: usize = 16;

/// Bits for looking up tables: 8 KiB each, so that both fit into the first cache beside the codes.
const BITS: u32 = 12;
const ENTRIES: usize = 1 << BITS;

/// Tables that are kept: most files of a dataset have the same ones.
const KEPT_MAX: usize = 8;

/// Categories of differences of levels, of 8 bits.
const CATEGORIES: u8 = 12;

/// The tables that code a block of a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocks {
    pub component: u8,
    pub dc: u8,
    pub ac: u8,
}

/// The tables of earlier files, for levels and for other numbers.
#[derive(Debug, Default)]
pub struct Tables {
    dc: Vec<Levels>,
    ac: Vec<Numbers>,
}

impl Tables {
    /// Forgets all tables if there is no room for those of a file, which has up to 4 of each kind.
    pub fn make_room(&mut self) {
        if self.dc.len().max(self.ac.len()) > KEPT_MAX - 4 {
            self.dc.clear();
            self.ac.clear();
        }
    }

    /// The number of the table that a file has as `key`: how many codes there are of each length, and their symbols.
    pub fn dc(&mut self, key: &[u8]) -> Option<u8> {
        let found = self.dc.iter().position(|table| table.key == key);
        let index = match found {
            Some(index) => index,
            None => {
                let made = Levels::new(key)?;
                self.dc.push(made);
                self.dc.len() - 1
            }
        };
        Some(index as u8)
    }

    pub fn ac(&mut self, key: &[u8]) -> Option<u8> {
        let found = self.ac.iter().position(|table| table.codes.key == key);
        let index = match found {
            Some(index) => index,
            None => {
                let made = Numbers::new(key)?;
                self.ac.push(made);
                self.ac.len() - 1
            }
        };
        Some(index as u8)
    }

    /// The table as it is written, with a code for each category.
    pub fn dc_key(&self, index: u8) -> &[u8] {
        &self.dc[usize::from(index)].written
    }

    pub fn ac_key(&self, index: u8) -> &[u8] {
        &self.ac[usize::from(index)].codes.key
    }

    /// The code of a difference of levels, and how many bits it has.
    pub fn code(&self, index: u8, difference: i32) -> Option<(u32, u32)> {
        let size = 32 - difference.unsigned_abs().leading_zeros();
        let (code, count) = *self.dc[usize::from(index)].codes_of.get(size as usize)?;
        let number = if difference < 0 { difference - 1 } else { difference } as u32 & ((1 << size) - 1);
        Some((code << size | number, count + size))
    }
}

/// Codes of one table.
#[derive(Debug)]
struct Codes {
    key: Vec<u8>,
    /// For the next bits, the symbol and the length of its code; 0 for longer codes and for none.
    short: Box<[u16; ENTRIES]>,
    /// For each length, the first code after those of that length, in 16 bits, and the difference from a code of that
    /// length to the index of its symbol.
    ends: [u32; 17],
    offsets: [i32; 17],
}

impl Codes {
    /// `None` for invalid codes.
    fn new(key: &[u8]) -> Option<Codes> {
        let (counts, symbols) = key.split_first_chunk::<16>()?;
        let mut short = Box::new([0; ENTRIES]);
        let (mut ends, mut offsets) = ([0; 17], [0; 17]);
        let (mut code, mut index) = (0_u32, 0_usize);
        for length in 1..=16 {
            let count = u32::from(counts[length as usize - 1]);
            offsets[length as usize] = index as i32 - code as i32;
            for _ in 0..count {
                let symbol = *symbols.get(index)?;
                if code >> length != 0 {
                    return None;
                }
                if length <= BITS {
                    let start = (code << (BITS - length)) as usize;
                    short[start..start + (1 << (BITS - length))].fill(u16::from(symbol) << 5 | length as u16);
                }
                code += 1;
                index += 1;
            }
            ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        (index == symbols.len()).then(|| Codes { key: key.to_vec(), short, ends, offsets })
    }

    /// The symbol that the bits start with, and the length of its code.
    fn symbol(&self, bits: u64) -> Option<(u8, u32)> {
        let short = self.short[(bits >> (64 - BITS)) as usize];
        if short != 0 {
            return Some(((short >> 5) as u8, u32::from(short & 31)));
        }
        let sixteen = (bits >> 48) as u32;
        let length = (BITS + 1..=16).find(|&length| sixteen < self.ends[length as usize])?;
        let index = (sixteen >> (16 - length)) as i32 + self.offsets[length as usize];
        Some((*self.key.get(16 + usize::try_from(index).ok()?)?, length))
    }
}

/// Codes of levels.
#[derive(Debug)]
struct Levels {
    key: Vec<u8>,
    codes: Codes,
    /// The table with codes for all categories.
    written: Vec<u8>,
    /// The code of each category in it.
    codes_of: [(u32, u32); CATEGORIES as usize],
}

impl Levels {
    fn new(key: &[u8]) -> Option<Levels> {
        let codes = Codes::new(key)?;
        let mut written = key.to_vec();
        // Encoders leave the code of nothing but ones unused: longer ones that start with it are free.
        let mut length = key[..16].iter().rposition(|&count| count > 0)?;
        for category in 0..CATEGORIES {
            if !key[16..].contains(&category) {
                length += 1;
                *written.get_mut(length).filter(|_| length < 16)? += 1;
                written.push(category);
            }
        }
        let mut codes_of = [(0, 0); CATEGORIES as usize];
        let (mut code, mut index) = (0_u32, 16);
        for length in 0..16 {
            for _ in 0..written[length] {
                if let Some(of) = codes_of.get_mut(usize::from(written[index])) {
                    *of = (code, length as u32 + 1);
                }
                code += 1;
                index += 1;
            }
            if code > 1 << (length + 1) {
                return None;
            }
            code <<= 1;
        }
        Some(Levels { key: key.to_vec(), codes, written, codes_of })
    }
}

/// Codes of the numbers after the level.
#[derive(Debug)]
struct Numbers {
    codes: Codes,
    /// For the next bits, as many whole codes with their numbers as fit: their bits, from [`PASSED`] on how many
    /// numbers are passed, and [`END`] if the block ends with them. 0 if none fits.
    several: Box<[u16; ENTRIES]>,
}

const PASSED: u32 = 5;
const PASSED_MASK: u16 = 63;
const END: u16 = 1 << 15;

/// Numbers of a block.
const NUMBERS: u32 = 64;

/// A symbol's meaning: how many numbers are passed (0: the block ends), and the bits after its code.
fn meaning(symbol: u8) -> Option<(u32, u32)> {
    match (u32::from(symbol >> 4), u32::from(symbol & 15)) {
        (0, 0) => Some((0, 0)),
        (15, 0) => Some((16, 0)),
        (_, 0) => None,
        (zeros, bits) => Some((zeros + 1, bits)),
    }
}

impl Numbers {
    fn new(key: &[u8]) -> Option<Numbers> {
        let codes = Codes::new(key)?;
        let mut several = Box::new([0; ENTRIES]);
        for (start, entry) in several.iter_mut().enumerate() {
            let (mut used, mut passed, mut end) = (0, 0, 0);
            while end == 0 {
                let short = codes.short[(start << used) & (ENTRIES - 1)];
                let Some((numbers, bits)) = meaning((short >> 5) as u8).filter(|_| short != 0) else { break };
                let length = u32::from(short & 31) + bits;
                if used + length > BITS || passed + numbers >= NUMBERS {
                    break;
                }
                used += length;
                passed += numbers;
                end = if numbers == 0 { END } else { 0 };
            }
            *entry = used as u16 | (passed as u16) << PASSED | end;
        }
        Some(Numbers { codes, several })
    }
}

/// 64 bits from one of them on. The last 7 may be zeros instead.
#[inline(always)]
pub fn word(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at / 8..).and_then(|rest| rest.first_chunk()).unwrap_or(&[0; 8]);
    u64::from_be_bytes(*eight) << (at % 8)
}

/// Passes over codes.
pub struct BitReader<'a> {
    codes: &'a [u8],
    /// The next bit.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub fn new(codes: &'a [u8]) -> BitReader<'a> {
        BitReader { codes, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// Goes to a restart, which must be in the next byte.
    pub fn restart(&mut self, byte: usize) -> Option<()> {
        let is_next = self.at.div_ceil(8) == byte;
        self.at = byte * 8;
        is_next.then_some(())
    }

    /// Passes over a block.
    #[inline(always)]
    pub fn pass(&mut self, tables: &Tables, block: Blocks, levels: &mut [i32; 4]) -> Option<()> {
        self.level(tables, block, levels)?;
        self.numbers(tables, block)
    }

    /// Reads the level of a block. After the end, all bits are zeros, so a scan always ends.
    #[inline(always)]
    pub fn level(&mut self, tables: &Tables, block: Blocks, levels: &mut [i32; 4]) -> Option<()> {
        let table = &tables.dc[usize::from(block.dc)];
        let bits = word(self.codes, self.at);
        let (size, length) = table.codes.symbol(bits)?;
        if size >= CATEGORIES {
            return None;
        }
        let size = u32::from(size);
        self.at += (length + size) as usize;
        let behind = bits << length;
        // A number of that many bits; with the first bit 0, a negative one.
        let number = (behind >> 1 >> (63 - size)) as i32;
        let is_negative = (behind >> 63) as i32 ^ 1;
        let level = &mut levels[usize::from(block.component)];
        *level = level.wrapping_add(number - is_negative * ((1 << size) - 1));
        Some(())
    }

    /// Passes over the other numbers of a block.
    #[inline(always)]
    pub fn numbers(&mut self, tables: &Tables, block: Blocks) -> Option<()> {
        let table = &tables.ac[usize::from(block.ac)];
        let mut number = 1;
        loop {
            let mut bits = word(self.codes, self.at);
            // As many as these bits certainly hold.
            for _ in 0..4 {
                let several = table.several[(bits >> (64 - BITS)) as usize];
                let passed = u32::from(several >> PASSED & PASSED_MASK);
                if several == 0 || number + passed >= NUMBERS {
                    let (numbers, length) = {
                        let (symbol, length) = table.codes.symbol(bits)?;
                        let (numbers, behind) = meaning(symbol)?;
                        (numbers, length + behind)
                    };
                    self.at += length as usize;
                    number += numbers;
                    if numbers == 0 || number == NUMBERS {
                        return Some(());
                    }
                    if number > NUMBERS {
                        return None;
                    }
                    break;
                }
                let length = several & 31;
                self.at += usize::from(length);
                if several & END != 0 {
                    return Some(());
                }
                number += passed;
                bits <<= length;
            }
        }
    }
}

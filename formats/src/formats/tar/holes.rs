//! Sparse members: their holes are put back, so that an archive reads as if it had been written without `--sparse`.
//!
//! Sources: GNU tar manual, "Storing Sparse Files" (PAX formats 0.0, 0.1 and 1.0) and "Basic Tar Format" (the old GNU
//! format, whose map is in the header and in blocks after it).

use super::header::{BLOCK_BYTES, Block, Header, Kind, Pax, octal_or_binary, with_size};
use crate::compression::read_full;
use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::io::{self, Read};

/// The most bytes of holes that an archive may have: they are written as zeros, which takes time and memory.
const HOLES_BYTES_MAX: u64 = 16 << 30;
/// The most parts of a member, which are kept in memory.
const PARTS_MAX: usize = 1 << 16;
/// The longest extended header that is looked at; a longer one is passed on, for the scan to refuse.
const PAX_BYTES_MAX: u64 = 1 << 20;

/// An archive with its holes put back: sparse members become regular ones, and all else is passed on as it is. Parts
/// that cannot be understood are passed on too, with everything after them: the reader will report what is wrong.
pub(super) struct Expanded<R> {
    stored: R,
    /// Blocks that are passed on next, from `at` on.
    blocks: Vec<u8>,
    at: usize,
    /// What follows them.
    body: VecDeque<Piece>,
    /// Whether all that follows is passed on as it is.
    is_raw: bool,
    global: Pax,
    next: Option<Pax>,
    /// Bytes of holes so far.
    holes: u64,
}

/// A part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// Bytes as they are stored.
    Data(u64),
    /// Zeros that are not stored.
    Hole(u64),
    /// Padding that is stored and not passed on.
    Left(u64),
}

/// The place of a member's data in the original file: offsets and lengths.
type Map = Vec<(u64, u64)>;

impl<R: Read> Expanded<R> {
    pub(super) fn new(stored: R) -> Expanded<R> {
        let (blocks, body, global) = (Vec::new(), VecDeque::new(), Pax::default());
        Expanded { stored, blocks, at: 0, body, is_raw: false, global, next: None, holes: 0 }
    }

    /// Reads up to the length of `block`; passes on what there is if there is less, and returns false.
    fn block(&mut self, block: &mut [u8]) -> io::Result<bool> {
        let (have, error) = read_full(&mut self.stored, block);
        if let Some(error) = error {
            return Err(error);
        }
        if have < block.len() {
            self.blocks.extend_from_slice(&block[..have]);
            self.is_raw = true;
        }
        Ok(have == block.len())
    }

    /// Puts the next header into `blocks`, and what follows it into `body`.
    fn header(&mut self) -> io::Result<()> {
        self.blocks.clear();
        self.at = 0;
        let mut block: Block = [0; BLOCK_BYTES as usize];
        if !self.block(&mut block)? {
            return Ok(());
        }
        let header = match Header::parse(&block) {
            Ok(Some(header)) => header,
            Ok(None) => {
                self.global = Pax::default();
                self.blocks.extend_from_slice(&block);
                return Ok(());
            }
            Err(_) => return self.give_up(&block),
        };
        let kind = header.kind();
        let Ok(own) = header.size() else { return self.give_up(&block) };
        if matches!(kind, Kind::Extended | Kind::Global) && own <= PAX_BYTES_MAX {
            return self.extended(&block, kind, own);
        }
        if matches!(kind, Kind::Extended | Kind::Global | Kind::LongName | Kind::LongLink) {
            self.blocks.extend_from_slice(&block);
            self.body.push_back(Piece::Data(padded(own)));
            return Ok(());
        }
        let next = self.next.take().unwrap_or_default();
        let stored = match (kind, next.size.or(self.global.size).flatten()) {
            (Kind::Bodiless, _) => 0,
            (_, Some(len)) => len,
            (_, None) => own,
        };
        if kind == Kind::Sparse {
            return self.old(block, stored);
        }
        if kind == Kind::Regular && next.is_sparse {
            return self.sparse(&block, &next, stored);
        }
        self.blocks.extend_from_slice(&block);
        self.body.push_back(Piece::Data(padded(stored)));
        Ok(())
    }

    fn give_up(&mut self, block: &Block) -> io::Result<()> {
        self.blocks.extend_from_slice(block);
        self.is_raw = true;
        Ok(())
    }

    /// An extended header. One that announces a sparse member is replaced by one that only names it.
    fn extended(&mut self, block: &Block, kind: Kind, len: u64) -> io::Result<()> {
        // At most `PAX_BYTES_MAX`.
        let mut text = vec![0; padded(len) as usize];
        let (have, error) = read_full(&mut self.stored, &mut text);
        if let Some(error) = error {
            return Err(error);
        }
        let is_whole = have == text.len();
        text.truncate(have);
        let mut pax = Pax::default();
        if !is_whole || pax.read(&text[..len as usize]).is_err() {
            self.is_raw = true;
        } else if kind == Kind::Global {
            // It has been read once without an error.
            let _ = self.global.read(&text[..len as usize]);
        } else {
            let name = pax.sparse_name.as_ref().or(pax.path.as_ref()).cloned();
            let is_sparse = pax.is_sparse && is_known(&pax);
            // The first of several wins, as in the scan.
            self.next.get_or_insert(pax);
            if is_sparse {
                if let Some(name) = name {
                    let record = record(b"path", &name);
                    self.blocks.extend_from_slice(&with_size(block, record.len() as u64, None));
                    self.blocks.extend_from_slice(&record);
                    self.blocks.resize(self.blocks.len().next_multiple_of(BLOCK_BYTES as usize), 0);
                }
                return Ok(());
            }
        }
        self.blocks.extend_from_slice(block);
        self.blocks.extend_from_slice(&text);
        Ok(())
    }

    /// A member in the old format of GNU tar.
    fn old(&mut self, block: Block, stored: u64) -> io::Result<()> {
        let size = number(&block[OLD_SIZE..][..NUMBER_BYTES])?;
        let mut map = Map::new();
        add_entries(&mut map, &block[OLD_MAP..OLD_MAP + 4 * ENTRY_BYTES])?;
        let mut is_more = block[OLD_MAP + 4 * ENTRY_BYTES] != 0;
        while is_more {
            let mut more: Block = [0; BLOCK_BYTES as usize];
            let (have, error) = read_full(&mut self.stored, &mut more);
            if let Some(error) = error {
                return Err(error);
            }
            if have < more.len() {
                return Err(broken("ends early"));
            }
            add_entries(&mut map, &more[..MORE_ENTRIES * ENTRY_BYTES])?;
            is_more = more[MORE_ENTRIES * ENTRY_BYTES] != 0;
        }
        self.member(&block, &map, size, stored)
    }

    /// A member that PAX records announce.
    fn sparse(&mut self, block: &Block, pax: &Pax, mut stored: u64) -> io::Result<()> {
        if !is_known(pax) {
            self.blocks.extend_from_slice(block);
            self.body.push_back(Piece::Data(padded(stored)));
            return Ok(());
        }
        let size = pax.sparse_size.ok_or_else(|| broken("does not say the size of its file"))?;
        let map = if pax.sparse_version == Some((1, 0)) {
            let (map, read) = self.leading_map(stored)?;
            stored -= read;
            map
        } else {
            pairs(&pax.sparse_map)?
        };
        self.member(block, &map, size, stored)
    }

    /// The map before the data of a member of format 1.0: lines of numbers, padded to whole blocks. Returns the map and
    /// its length.
    fn leading_map(&mut self, stored: u64) -> io::Result<(Map, u64)> {
        let (mut numbers, mut wanted, mut line, mut read) = (Vec::new(), 1_usize, Vec::new(), 0);
        while numbers.len() < wanted {
            let mut block: Block = [0; BLOCK_BYTES as usize];
            let (have, error) = read_full(&mut self.stored, &mut block);
            if let Some(error) = error {
                return Err(error);
            }
            read += BLOCK_BYTES;
            if have < block.len() || read > stored {
                return Err(broken("ends early"));
            }
            for &byte in &block {
                match byte {
                    b'\n' if numbers.len() < wanted => {
                        numbers.push(decimal(&line)?);
                        line.clear();
                        if numbers.len() == 1 {
                            let parts = usize::try_from(numbers[0]).ok().filter(|&parts| parts <= PARTS_MAX);
                            wanted = 1 + 2 * parts.ok_or_else(|| broken("has too many parts"))?;
                        }
                    }
                    // Padding.
                    _ if numbers.len() == wanted => {}
                    byte if line.len() < DIGITS_MAX => line.push(byte),
                    _ => return Err(broken("has a number that is none")),
                }
            }
        }
        Ok((pairs(&numbers[1..])?, read))
    }

    /// Passes a member on as a regular one of `size` bytes; `stored` of them are stored.
    fn member(&mut self, block: &Block, map: &Map, size: u64, stored: u64) -> io::Result<()> {
        self.blocks.extend_from_slice(&with_size(block, size, Some(b'0')));
        let (mut at, mut data, before) = (0_u64, 0_u64, self.holes);
        for &(offset, len) in map {
            let hole = offset.checked_sub(at).ok_or_else(|| broken("goes back, or has parts that overlap"))?;
            at = offset.checked_add(len).filter(|&end| end <= size).ok_or_else(|| broken("leads out of its file"))?;
            data += len;
            self.holes = self.holes.saturating_add(hole);
            self.body.extend([Piece::Hole(hole), Piece::Data(len)]);
        }
        self.holes = self.holes.saturating_add(size - at);
        if data != stored {
            return Err(broken(&format!("has {data} bytes of data, and {stored} are stored")));
        }
        if self.holes > HOLES_BYTES_MAX {
            let what = format!("has {} bytes of holes; an archive may have {HOLES_BYTES_MAX}", self.holes - before);
            return Err(broken(&what));
        }
        let last = [Piece::Hole(size - at + padding(size)), Piece::Left(padding(stored))];
        self.body.extend(last);
        Ok(())
    }

    /// Passes on, or writes, a part of what follows a header; 0 where the archive ends early.
    fn piece(&mut self, piece: Piece, into: &mut [u8]) -> io::Result<usize> {
        let most = |len: u64| usize::try_from(len).unwrap_or(usize::MAX).min(into.len());
        let (passed, left) = match piece {
            Piece::Data(len) => {
                let most = most(len);
                let passed = match self.stored.read(&mut into[..most]) {
                    Ok(passed) => passed,
                    Err(error) => {
                        // It may be asked for again.
                        self.body.push_front(piece);
                        return Err(error);
                    }
                };
                if passed == 0 && len > 0 {
                    self.is_raw = true;
                    return Ok(0);
                }
                (passed, Piece::Data(len - passed as u64))
            }
            Piece::Hole(len) => {
                let passed = most(len);
                into[..passed].fill(0);
                (passed, Piece::Hole(len - passed as u64))
            }
            Piece::Left(len) => {
                // Less than a block.
                io::copy(&mut self.stored.by_ref().take(len), &mut io::sink())?;
                (0, Piece::Left(0))
            }
        };
        match left {
            Piece::Data(0) | Piece::Hole(0) | Piece::Left(0) => {}
            left => self.body.push_front(left),
        }
        Ok(passed)
    }
}

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if self.at < self.blocks.len() {
                let len = into.len().min(self.blocks.len() - self.at);
                into[..len].copy_from_slice(&self.blocks[self.at..][..len]);
                self.at += len;
                return Ok(len);
            }
            if self.is_raw {
                return self.stored.read(into);
            }
            match self.body.pop_front() {
                None => self.header()?,
                Some(piece) => match self.piece(piece, into)? {
                    0 => {}
                    passed => return Ok(passed),
                },
            }
        }
    }
}

/// Where the old format has its map in the header, and the size of the file; the map goes on in blocks of 21 entries.
const OLD_MAP: usize = 386;
const OLD_SIZE: usize = 483;
const MORE_ENTRIES: usize = 21;
/// An entry is two numbers.
const NUMBER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 2 * NUMBER_BYTES;
/// Digits of the largest 64-bit number.
const DIGITS_MAX: usize = 20;

/// Whether a member's map has a format that is known.
fn is_known(pax: &Pax) -> bool {
    matches!(pax.sparse_version, None | Some((0, _)) | Some((1, 0)))
}

/// Adds entries of the old format, up to one that is empty.
fn add_entries(map: &mut Map, bytes: &[u8]) -> io::Result<()> {
    for entry in bytes.chunks_exact(ENTRY_BYTES) {
        let (offset, len) = entry.split_at(NUMBER_BYTES);
        if len[0] == 0 {
            break;
        }
        if map.len() == PARTS_MAX {
            return Err(broken("has too many parts"));
        }
        map.push((number(offset)?, number(len)?));
    }
    Ok(())
}

fn number(field: &[u8]) -> io::Result<u64> {
    octal_or_binary(field).map_err(|_| broken("has a number that is none"))
}

fn decimal(digits: &[u8]) -> io::Result<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number);
    text.and_then(|text| text.parse().ok()).ok_or_else(|| broken("has a number that is none"))
}

fn pairs(numbers: &[u64]) -> io::Result<Map> {
    let (pairs, rest) = numbers.as_chunks::<2>();
    if rest.is_empty() { Ok(pairs.iter().map(|&[offset, len]| (offset, len)).collect()) } else { Err(broken("is odd")) }
}

/// A PAX record, which counts its own length.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len += 1;
    }
    [len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

fn padding(len: u64) -> u64 {
    len.wrapping_neg() % BLOCK_BYTES
}

fn padded(len: u64) -> u64 {
    len.saturating_add(padding(len))
}

/// What is wrong with the map of a sparse member.
#[derive(Debug)]
struct BrokenMap(String);

impl Display for BrokenMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the map of a sparse member {}", self.0)
    }
}

impl std::error::Error for BrokenMap {}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, BrokenMap(what.to_owned()))
}

/// Whether an error is about a map, not about what is stored.
pub(super) fn is_broken_map(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<BrokenMap>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for len in [1, 91, 92, 93, 990, 991, 992] {
            let record = record(b"path", &vec![b'a'; len]);
            let mut pax = Pax::default();
            pax.read(&record).unwrap();
            assert_eq!(pax.path.map(|path| path.len()), Some(len));
        }
    }

    #[test]
    fn padding_fills_blocks() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
        assert_eq!(padded(u64::MAX), u64::MAX);
    }
}

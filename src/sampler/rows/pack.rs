//! Packs sequences into rows of one length.

use super::{Piece, RowPiece, Rows};
use crate::config::{PackMethod, Packing};
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::rand_core::Rng;

/// Longest row, in elements: `BestFit` keeps 4 bytes for each length that a row's room may have.
pub const SEQ_LEN_MAX: u64 = 1 << 24;

/// A row takes at most one piece per this many of its elements: memory for the alignment of each piece must be reserved
/// before lengths are known.
const PIECE_ELEMENTS: u64 = 16;

/// A row takes at least this many, however short it is.
const PIECES_MIN: u64 = 64;

/// No row yet.
const NONE: u32 = u32::MAX;

/// Packs the sequences of a window into rows. It takes memory with the first window and reuses it for the next.
#[derive(Clone, Debug)]
pub struct Packer {
    method: PackMethod,
    seq_len: u32,
    pieces_max: u32,
    /// All pieces, in the order of the window.
    pieces: Vec<RowPiece>,
    /// The row of each.
    row_of: Vec<u32>,
    /// Pieces in each row.
    held: Vec<u32>,
    tree: Tree,
    rooms: Rooms,
    order: Vec<u32>,
    spare: Vec<u32>,
    counts: Vec<u32>,
}

impl Packer {
    /// For rows of `packing.seq_len` elements.
    ///
    /// # Errors
    /// `InvalidArgument` if that is 0 or more than [`SEQ_LEN_MAX`].
    pub fn new(packing: &Packing) -> Result<Packer> {
        let seq_len = packing.seq_len;
        if seq_len == 0 || seq_len > SEQ_LEN_MAX {
            let what = format!("rows of {seq_len} elements cannot be packed");
            let remedy = format!("give a seq_len from 1 to {SEQ_LEN_MAX}");
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
        }
        Ok(Packer {
            method: packing.method,
            // Both are at most 2^24.
            seq_len: seq_len as u32,
            pieces_max: (seq_len / PIECE_ELEMENTS).max(PIECES_MIN) as u32,
            pieces: Vec::new(),
            row_of: Vec::new(),
            held: Vec::new(),
            tree: Tree::default(),
            rooms: Rooms::default(),
            order: Vec::new(),
            spare: Vec::new(),
            counts: Vec::new(),
        })
    }

    /// Elements in a row.
    pub fn seq_len(&self) -> u64 {
        self.seq_len.into()
    }

    /// Most pieces in a row: a sixteenth of its elements, and at least 64. A row with that many takes no more, whatever
    /// room it has.
    pub fn pieces_max(&self) -> u64 {
        self.pieces_max.into()
    }

    /// Minimum number of pieces that a sequence of this length is cut into; `Concat` may cut it once more.
    pub fn pieces_of(&self, length: u64) -> u64 {
        // Division is slow, and most sequences need none.
        if length <= self.seq_len() { 1 } else { length.div_ceil(self.seq_len()) }
    }

    /// Packs the sequences of these `lengths`, in elements, into `rows`, replacing its content.
    ///
    /// Every element of every sequence goes to exactly one row. A sequence longer than a row is cut into pieces of a
    /// row's length and a rest, which is packed as a sequence of its own. An empty sequence goes to the row of the
    /// piece before it. Rows come in the order of their first pieces or, with `random`, in a random one; those of
    /// `Concat` are always in order.
    pub fn pack(&mut self, lengths: &[u64], random: Option<&mut dyn Rng>, rows: &mut Rows) {
        self.pieces.clear();
        self.row_of.clear();
        self.held.clear();
        match self.method {
            PackMethod::FirstFit => {
                self.cut(lengths);
                self.first_fit();
            }
            PackMethod::BestFit => {
                self.cut(lengths);
                self.best_fit();
            }
            PackMethod::Concat => self.concat(lengths),
        }
        self.place_empty();
        let random = random.filter(|_| self.method != PackMethod::Concat);
        rows.arrange(&self.pieces, &self.row_of, self.held.len(), None, random);
    }

    /// Cuts sequences that are longer than a row.
    fn cut(&mut self, lengths: &[u64]) {
        let seq_len = self.seq_len();
        for (index, &length) in lengths.iter().enumerate() {
            let mut start = 0;
            while length - start > seq_len {
                self.pieces.push(RowPiece { index: index as u32, piece: Piece { start, len: seq_len } });
                start += seq_len;
            }
            self.pieces.push(RowPiece { index: index as u32, piece: Piece { start, len: length - start } });
        }
        self.row_of.resize(self.pieces.len(), NONE);
    }

    /// Opens a row with one piece in it, and returns its number.
    fn open(held: &mut Vec<u32>) -> u32 {
        held.push(1);
        held.len() as u32 - 1
    }

    /// In the order of the window: the first row that has room.
    fn first_fit(&mut self) {
        self.tree.clear(self.pieces.len());
        for (piece, row_of) in self.pieces.iter().zip(&mut self.row_of) {
            // No piece is longer than a row.
            let len = piece.piece.len as u32;
            if len == 0 {
                continue;
            }
            let found = if len == self.seq_len { None } else { self.tree.first(len) };
            *row_of = match found {
                Some((row, room)) => {
                    let held = &mut self.held[row as usize];
                    *held += 1;
                    self.tree.set(row, if *held == self.pieces_max { 0 } else { room - len });
                    row
                }
                None => {
                    let row = Self::open(&mut self.held);
                    if len < self.seq_len {
                        self.tree.set(row, self.seq_len - len);
                    }
                    row
                }
            };
        }
    }

    /// Longest first: the row with the least room that suffices; among equals, the one that reached it last.
    fn best_fit(&mut self) {
        self.sort_by_length();
        self.rooms.reserve(self.seq_len as usize);
        for &index in &self.order {
            let len = self.pieces[index as usize].piece.len as u32;
            let (row, room) = match self.rooms.take(len) {
                Some((row, room)) => {
                    self.held[row as usize] += 1;
                    (row, room)
                }
                None => (Self::open(&mut self.held), self.seq_len),
            };
            self.row_of[index as usize] = row;
            if room > len && self.held[row as usize] < self.pieces_max {
                self.rooms.put(row, room - len);
            }
        }
        self.rooms.clear();
    }

    /// The pieces that have elements, longest first, equal ones in the order of the window: a radix sort by the
    /// difference from a row's length, in at most two passes.
    fn sort_by_length(&mut self) {
        const BITS: u32 = 12;
        const DIGITS: usize = 1 << BITS;
        let lack = |piece: &RowPiece| self.seq_len - piece.piece.len as u32;
        self.order.clear();
        self.order.extend((0..self.pieces.len() as u32).filter(|&index| self.pieces[index as usize].piece.len > 0));
        let mut shift = 0;
        while shift == 0 || (self.seq_len - 1) >> shift > 0 {
            let digit = |index: u32| (lack(&self.pieces[index as usize]) >> shift) as usize % DIGITS;
            self.counts.clear();
            self.counts.resize(DIGITS, 0);
            for &index in &self.order {
                self.counts[digit(index)] += 1;
            }
            let mut start = 0;
            for count in &mut self.counts {
                start += std::mem::replace(count, start);
            }
            self.spare.clear();
            self.spare.resize(self.order.len(), 0);
            for &index in &self.order {
                let at = &mut self.counts[digit(index)];
                self.spare[*at as usize] = index;
                *at += 1;
            }
            std::mem::swap(&mut self.order, &mut self.spare);
            shift += BITS;
        }
    }

    /// End to end, cut wherever a row is full.
    fn concat(&mut self, lengths: &[u64]) {
        let mut room = 0;
        for (index, &length) in lengths.iter().enumerate() {
            let index = index as u32;
            if length == 0 {
                self.pieces.push(RowPiece { index, piece: Piece { start: 0, len: 0 } });
                self.row_of.push(NONE);
            }
            let mut start = 0;
            while start < length {
                match self.held.last_mut() {
                    Some(held) if room > 0 && *held < self.pieces_max => *held += 1,
                    _ => {
                        Self::open(&mut self.held);
                        room = self.seq_len();
                    }
                }
                let len = room.min(length - start);
                self.pieces.push(RowPiece { index, piece: Piece { start, len } });
                self.row_of.push(self.held.len() as u32 - 1);
                start += len;
                room -= len;
            }
        }
    }

    /// Empty pieces go to the row of the piece before them, those at the beginning to that of the first piece that is
    /// not empty. If that row is full of pieces, a new one is opened for them.
    fn place_empty(&mut self) {
        let Some(first_empty) = self.row_of.iter().position(|&row| row == NONE) else { return };
        let mut row = match first_empty {
            0 => self.row_of.iter().copied().find(|&row| row != NONE).unwrap_or(NONE),
            index => self.row_of[index - 1],
        };
        for row_of in &mut self.row_of[first_empty..] {
            if *row_of == NONE {
                *row_of = match self.held.get_mut(row as usize) {
                    Some(held) if *held < self.pieces_max => {
                        *held += 1;
                        row
                    }
                    _ => Self::open(&mut self.held),
                };
            }
            row = *row_of;
        }
    }
}

/// The room of each row, and for each inner node the most room below it: finds the first row that has enough.
#[derive(Clone, Debug, Default)]
struct Tree {
    /// Node n has the children 2n and 2n + 1; row r is node `leaves + r`.
    most: Vec<u32>,
    leaves: usize,
}

impl Tree {
    /// For up to `rows` rows, all without room.
    fn clear(&mut self, rows: usize) {
        self.leaves = rows.next_power_of_two();
        self.most.clear();
        self.most.resize(2 * self.leaves, 0);
    }

    /// The first row that has at least `room`, which is not 0, and its room.
    fn first(&self, room: u32) -> Option<(u32, u32)> {
        if self.most[1] < room {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.most[node] < room);
        }
        Some(((node - self.leaves) as u32, self.most[node]))
    }

    fn set(&mut self, row: u32, room: u32) {
        let mut node = self.leaves + row as usize;
        self.most[node] = room;
        while node > 1 {
            let most = self.most[node].max(self.most[node ^ 1]);
            node /= 2;
            if self.most[node] == most {
                break;
            }
            self.most[node] = most;
        }
    }
}

/// Rows by the room that they have left: finds the least that suffices. Has a list of rows for each room, and a tree of
/// bits, 64 to a node, that shows which lists have a row.
#[derive(Clone, Debug, Default)]
struct Rooms {
    /// Bit r of the first level: whether a row has room r. Bit n of each other level: whether word n of the previous
    /// one has a bit.
    levels: Vec<Vec<u64>>,
    /// The row that reached each room last, if its bit is set.
    heads: Vec<u32>,
    /// The row that reached the same room before each row.
    before: Vec<u32>,
}

impl Rooms {
    /// Allocates memory for rooms below `most`, the first time.
    fn reserve(&mut self, most: usize) {
        if self.heads.len() == most {
            return;
        }
        self.heads = vec![NONE; most];
        let mut bits = most;
        while bits > 0 {
            self.levels.push(vec![0; bits.div_ceil(64)]);
            bits = if bits > 64 { bits.div_ceil(64) } else { 0 };
        }
    }

    fn put(&mut self, row: u32, room: u32) {
        let row_at = row as usize;
        if self.before.len() <= row_at {
            self.before.resize(row_at + 1, NONE);
        }
        let mut at = room as usize;
        let is_set = self.levels[0][at / 64] >> (at % 64) & 1 == 1;
        self.before[row_at] = if is_set { self.heads[at] } else { NONE };
        self.heads[at] = row;
        for level in &mut self.levels {
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    /// Removes the row with the least room of at least `room`, and returns its room.
    fn take(&mut self, room: u32) -> Option<(u32, u32)> {
        let found = self.least(room as usize)?;
        let row = self.heads[found];
        let before = self.before[row as usize];
        if before == NONE {
            self.unset(found);
        } else {
            self.heads[found] = before;
        }
        // A room is below 2^24.
        Some((row, found as u32))
    }

    fn unset(&mut self, room: usize) {
        let mut at = room;
        for level in &mut self.levels {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                break;
            }
            at /= 64;
        }
    }

    /// The lowest bit of the first level from `from` on.
    fn least(&self, from: usize) -> Option<usize> {
        let mut at = from;
        let mut height = 0;
        // Up, until there is a bit at or after the place; then down along the lowest ones.
        let mut found = loop {
            let word = *self.levels.get(height)?.get(at / 64)? & (u64::MAX << (at % 64));
            if word != 0 {
                break at / 64 * 64 + word.trailing_zeros() as usize;
            }
            at = at / 64 + 1;
            height += 1;
        };
        for level in self.levels[..height].iter().rev() {
            found = found * 64 + level[found].trailing_zeros() as usize;
        }
        Some(found)
    }

    fn clear(&mut self) {
        while let Some(room) = self.least(0) {
            self.unset(room);
        }
    }
}

//! What an index stores about its shard's content, to distinguish it from another shard of the same name, size and
//! times.

use super::pieces::CHECKED_BYTES;
use crate::index::opened::Content;
use std::io;

/// Pieces of a shard that its index knows by their checksums, at most.
const PIECES_MAX: usize = 16;

/// Bytes of a piece before and after its place: a header comes before the value that it belongs to.
const BEFORE_BYTES: u64 = 512;
const PIECE_BYTES: u64 = 1024;

/// Offset, length in bytes and CRC-32C of some pieces of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proof(pub(super) Vec<(u64, u32, u32)>);

impl Proof {
    /// The proof of a file: pieces around up to 15 of `count` places, spread evenly, and its last
    /// bytes. `place` returns each place.
    ///
    /// # Errors
    /// What the system reports, and `UnexpectedEof` if the file is shorter.
    pub(crate) fn of(file: &Content, count: u64, place: impl Fn(u64) -> u64) -> io::Result<Proof> {
        let size = file.size();
        let spread = count.min(PIECES_MAX as u64 - 1);
        // At most 15 * 2^64, in 128 bits.
        let nth = |number: u64| (u128::from(number) * u128::from(count) / u128::from(spread)) as u64;
        let starts = (0..spread).map(|number| place(nth(number)).saturating_sub(BEFORE_BYTES));
        let mut starts: Vec<u64> = starts.chain([size.saturating_sub(PIECE_BYTES)]).collect();
        starts.sort_unstable();
        starts.dedup();
        let starts = starts.into_iter().filter(|&start| start < size);
        let piece = |start: u64| {
            // Fits: PIECE_BYTES does.
            let len = PIECE_BYTES.min(size - start) as u32;
            Ok((start, len, sum(file, start, len)?))
        };
        Ok(Proof(starts.map(piece).collect::<io::Result<_>>()?))
    }

    /// Whether the file has these pieces.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn holds(&self, file: &Content) -> io::Result<bool> {
        for &(start, len, check) in &self.0 {
            match sum(file, start, len) {
                Ok(found) if found == check => {}
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
                Ok(_) | Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether a reader may believe it: no more pieces than are ever written, and none longer.
    pub(super) fn is_sane(&self) -> bool {
        self.0.len() <= PIECES_MAX && self.0.iter().all(|&(_, len, _)| u64::from(len) <= PIECE_BYTES)
    }
}

fn sum(file: &Content, start: u64, len: u32) -> io::Result<u32> {
    let mut bytes = [0; CHECKED_BYTES as usize];
    let bytes = &mut bytes[..len as usize];
    file.read_exact_at(bytes, start)?;
    Ok(crc32c::crc32c(bytes))
}

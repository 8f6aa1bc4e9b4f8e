//! Small integers as runs: repeated, or packed into bits. Levels, references to a dictionary and booleans are stored
//! so.
//!
//! Source: apache/parquet-format `Encodings.md`, "Run Length Encoding / Bit-Packing Hybrid".

use super::thrift::Thrift;
use bytes::Bytes;

/// Integers that are unpacked at once.
const UNPACKED: usize = 64;

/// Integers of up to 32 bits, in order.
pub(super) struct Hybrid {
    bytes: Bytes,
    /// Where the next run begins.
    at: usize,
    /// Bits of an integer.
    width: usize,
    /// How many are left of the run, without those that are unpacked.
    left: u64,
    /// What is repeated, or the bit at which the next packed integer begins.
    run: Run,
    unpacked: [u32; UNPACKED],
    /// The range of `unpacked` that is still to come.
    ready: (usize, usize),
}

#[derive(Clone, Copy)]
enum Run {
    Repeated(u32),
    Packed(usize),
}

impl Hybrid {
    /// `None` for more than 32 bits.
    pub(super) fn new(bytes: Bytes, width: u8) -> Option<Hybrid> {
        let run = Run::Repeated(0);
        (width <= 32).then(|| Hybrid {
            bytes,
            at: 0,
            width: width.into(),
            left: 0,
            run,
            unpacked: [0; UNPACKED],
            ready: (0, 0),
        })
    }

    /// Integers that are all packed, without the header of a run.
    pub(super) fn packed(bytes: Bytes, width: u8) -> Option<Hybrid> {
        let (at, left) = (bytes.len(), bytes.len() as u64 * 8 / u64::from(width.max(1)));
        Some(Hybrid { at, left, run: Run::Packed(0), ..Hybrid::new(bytes, width)? })
    }

    /// The next integer, and how often it certainly comes: at least once. `None` at the end, and where the runs are
    /// broken.
    pub(super) fn peek(&mut self) -> Option<(u32, u64)> {
        let value = self.first()?;
        let (start, end) = self.ready;
        let ready = &self.unpacked[start..end];
        let count = ready.iter().take_while(|&&other| other == value).count() as u64;
        Some((value, if ready.is_empty() { self.left } else { count }))
    }

    /// The next integer.
    pub(super) fn first(&mut self) -> Option<u32> {
        loop {
            if self.ready.0 < self.ready.1 {
                return Some(self.unpacked[self.ready.0]);
            }
            match self.run {
                Run::Repeated(value) if self.left > 0 => return Some(value),
                Run::Packed(bit) if self.left > 0 => self.unpack(bit),
                _ => self.next_run()?,
            }
        }
    }

    /// Goes past `count` integers, at most as many as `peek` returned.
    pub(super) fn skip(&mut self, count: u64) {
        if self.ready.0 < self.ready.1 {
            // At most as many as are unpacked.
            self.ready.0 += count as usize;
        } else {
            self.left = self.left.saturating_sub(count);
        }
    }

    /// Up to this many adjacent integers, which may differ; empty only at the end.
    pub(super) fn some(&mut self, most: u64) -> &[u32] {
        // To peek may unpack some.
        if self.ready.0 == self.ready.1
            && let Some((value, count)) = self.peek()
            && self.ready.0 == self.ready.1
        {
            let count = count.min(UNPACKED as u64);
            self.unpacked[..count as usize].fill(value);
            self.left -= count;
            self.ready = (0, count as usize);
        }
        let (start, end) = self.ready;
        let end = end.min(start.saturating_add(usize::try_from(most).unwrap_or(usize::MAX)));
        self.ready.0 = end;
        &self.unpacked[start..end]
    }

    fn next_run(&mut self) -> Option<()> {
        let mut left = Thrift(self.bytes.get(self.at..)?);
        let header = left.varint()?;
        let count = header >> 1;
        // Some writers pad pages with zeros.
        if header == 0 {
            return None;
        }
        if header & 1 == 0 {
            let mut value = [0; 4];
            let stored = left.take(self.width.div_ceil(8) as u64)?;
            value[..stored.len()].copy_from_slice(stored);
            let value = u32::from_le_bytes(value);
            if u64::from(value) >> self.width != 0 {
                return None;
            }
            (self.run, self.left) = (Run::Repeated(value), count);
            self.at = self.bytes.len() - left.0.len();
            return Some(());
        }
        // Groups of eight. The last may be cut short.
        let start = self.bytes.len() - left.0.len();
        let stored = count.checked_mul(self.width as u64)?.min(left.0.len() as u64) as usize;
        let held = if self.width == 0 { u64::MAX } else { stored as u64 * 8 / self.width as u64 };
        (self.run, self.left) = (Run::Packed(start * 8), count.checked_mul(8)?.min(held));
        self.at = start + stored;
        Some(())
    }

    /// Unpacks the next integers of a packed run. `next_run` has checked that it has their bits.
    fn unpack(&mut self, bit: usize) {
        // At most `UNPACKED`.
        let count = self.left.min(UNPACKED as u64) as usize;
        let mask = (1_u64 << self.width) - 1;
        for (number, value) in self.unpacked[..count].iter_mut().enumerate() {
            let bit = bit + number * self.width;
            let bytes = &self.bytes[bit / 8..];
            let word = match bytes.first_chunk::<8>() {
                Some(word) => u64::from_le_bytes(*word),
                None => {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                }
            };
            *value = (word >> (bit % 8) & mask) as u32;
        }
        self.left -= count as u64;
        self.run = Run::Packed(bit + count * self.width);
        self.ready = (0, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &'static [u8], width: u8) -> Vec<u32> {
        let mut hybrid = Hybrid::new(Bytes::from_static(bytes), width).unwrap();
        let mut values = Vec::new();
        while let Some((value, count)) = hybrid.peek() {
            values.extend((0..count).map(|_| value));
            hybrid.skip(count);
        }
        values
    }

    #[test]
    fn runs_are_repeated_or_packed() {
        // The example of the specification: 0 to 7 in 3 bits each.
        let packed = [0x03, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(all(&[0x03, 0b1000_1000, 0b1100_0110, 0b1111_1010], 3), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(all(&[0x08, 5, 0x02, 1], 3), [5, 5, 5, 5, 1]);
        assert_eq!(all(&[0x04, 0x34, 0x12, 0x02, 1, 0], 16), [0x1234, 0x1234, 1]);
        assert!(all(&[0x04, 8], 3).is_empty(), "8 has 4 bits");
        assert_eq!(all(&[0x03, 0x88, 0xc6], 3), [0, 1, 2, 3, 4], "cut short");
        assert_eq!(all(&[0x06], 0), [0, 0, 0]);
        assert_eq!(all(&[0x03], 0), [0; 8]);
        assert!(all(&[0xff; 11], 1).is_empty());
        let mut hybrid = Hybrid::new(packed.to_vec().into(), 3).unwrap();
        assert_eq!((hybrid.some(3).to_vec(), hybrid.some(100).to_vec()), (vec![0, 1, 2], vec![3, 4, 5, 6, 7]));
        assert!(hybrid.some(1).is_empty());
        let mut hybrid = Hybrid::packed(Bytes::from_static(&[0b1010_0101]), 1).unwrap();
        assert_eq!(hybrid.some(100), [1, 0, 1, 0, 0, 1, 0, 1]);
        assert!(Hybrid::new(Bytes::new(), 33).is_none());
    }

    /// Runs of 2^62 integers; few of them are asked for.
    #[test]
    fn a_long_run_takes_no_memory() {
        let mut hybrid =
            Hybrid::new(Bytes::from_static(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1]), 1).unwrap();
        assert_eq!(hybrid.peek(), Some((1, (1 << 62) - 1)));
        assert_eq!(hybrid.some(1 << 40), [1; UNPACKED]);
    }
}

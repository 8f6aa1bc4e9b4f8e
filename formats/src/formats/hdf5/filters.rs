//! The filters that were applied to chunks when they were written, and how to undo them.

use super::scaleoffset::ScaleOffset;
use crate::compression::Compression;
use std::io::{self, Read};
use uringload_core::Result;
use uringload_core::not_built_in;

/// One filter. IDs and formats: HDF5's `H5Zpublic.h`, and the list of registered filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// One stream of a compression that other formats use, too.
    Compressed(Compression),
    /// The first bytes of all elements, then all second bytes, and so on. Elements have this many bytes.
    Shuffle(usize),
    /// A checksum of 4 bytes after the content.
    Fletcher32,
    /// h5py's own filter.
    Lzf,
    /// Blocks of raw LZ4.
    Lz4,
    /// Numbers in as few bits as they need.
    ScaleOffset(ScaleOffset),
}

impl Filter {
    /// The filter with this ID and these client values; `None` if it is not supported.
    pub(super) fn of(id: u16, values: &[u32]) -> Option<Filter> {
        Some(match id {
            1 => Filter::Compressed(Compression::Zlib),
            2 => Filter::Shuffle(values.first().copied().unwrap_or(1).max(1) as usize),
            3 => Filter::Fletcher32,
            6 => Filter::ScaleOffset(ScaleOffset::of(values)?),
            307 => Filter::Compressed(Compression::Bzip2),
            32000 => Filter::Lzf,
            32004 => Filter::Lz4,
            32015 => Filter::Compressed(Compression::Zstd),
            _ => return None,
        })
    }

    /// The name of a filter that files may list without a name.
    pub(super) fn name_of(id: u16) -> &'static str {
        match id {
            4 => "szip",
            5 => "nbit",
            6 => "scaleoffset",
            305 => "lzo",
            32001 => "blosc",
            32008 => "bitshuffle",
            32013 => "zfp",
            32026 => "blosc2",
            _ => "without a name",
        }
    }

    /// Refuses what this build cannot undo.
    ///
    /// # Errors
    /// `Unavailable`, without a path.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Filter::Compressed(compression) => compression.check(),
            Filter::Lz4 if !cfg!(feature = "lz4") => Err(not_built_in("LZ4", "lz4")),
            _ => Ok(()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Filter::Compressed(Compression::Zlib) => "gzip",
            Filter::Compressed(compression) => compression.name(),
            Filter::Shuffle(_) => "shuffle",
            Filter::Fletcher32 => "fletcher32",
            Filter::Lzf => "lzf",
            Filter::Lz4 => "lz4",
            Filter::ScaleOffset(_) => "scaleoffset",
        }
    }

    /// How many times longer than the stored bytes the result can be, if the format sets such a bound: 3 bytes of an
    /// LZF match make 264 bytes, one byte of an LZ4 match makes 255.
    fn growth(self) -> usize {
        match self {
            Filter::Shuffle(_) | Filter::Fletcher32 => 1,
            // Numbers that are all the same take no bit.
            Filter::ScaleOffset(_) => usize::MAX,
            _ => 255,
        }
    }

    /// Undoes the filter and returns the number of bytes written to `out`. `out` has room for the expected result, and
    /// may be larger.
    fn undo(self, stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
        match self {
            Filter::Compressed(compression) => compression.decode(stored, out),
            Filter::Shuffle(element_bytes) => {
                let out = out.get_mut(..stored.len()).ok_or_else(too_long)?;
                unshuffle(stored, out, element_bytes);
                Ok(stored.len())
            }
            Filter::Fletcher32 => {
                let (content, checksum) = stored.split_last_chunk::<4>().ok_or_else(cut_off)?;
                let (stored, found) = (u32::from_le_bytes(*checksum), fletcher32(content));
                // HDF5 1.6.2 wrote the bytes of each half in the other order.
                let swapped = (found & 0x00ff_00ff) << 8 | found >> 8 & 0x00ff_00ff;
                if stored != found && stored != swapped {
                    return Err(broken(format!("its checksum is {found:08x}, where it was {stored:08x}")));
                }
                out.get_mut(..content.len()).ok_or_else(too_long)?.copy_from_slice(content);
                Ok(content.len())
            }
            Filter::Lzf => lzf(stored, out),
            Filter::Lz4 => lz4(stored, out),
            Filter::ScaleOffset(filter) => filter.undo(stored, out),
        }
    }
}

/// The filters of a dataset, in the order in which they were applied to a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filters(pub(super) Vec<Filter>);

/// Buffers for decoding, reused from chunk to chunk.
#[derive(Default)]
pub(super) struct Scratch {
    buffers: [Vec<u8>; 2],
}

/// What a filter may add to the bytes of a chunk: checksums, and framing for data that does not compress.
const FILTERED_BYTES_MORE: usize = 64 << 10;

impl Filters {
    /// "shuffle, gzip", or an empty string.
    pub(super) fn names(&self) -> String {
        self.0.iter().map(|filter| filter.name()).collect::<Vec<_>>().join(", ")
    }

    /// Undoes all filters except those whose bit in `mask` is set, last one first. Fills `out` completely.
    pub(super) fn undo(&self, mask: u32, stored: &[u8], out: &mut [u8], scratch: &mut Scratch) -> io::Result<()> {
        let mut passed = self.passed(mask);
        let first = passed.next();
        let stored = unwound(passed.rev(), stored, out.len(), scratch)?;
        let len = match first {
            Some(first) => first.undo(stored, out)?,
            None => {
                out.get_mut(..stored.len()).ok_or_else(too_long)?.copy_from_slice(stored);
                stored.len()
            }
        };
        is_all(len, out.len())
    }

    /// The same, but returns the `len` bytes in scratch memory, which grows with the decoded bytes, not with what the
    /// file claims.
    pub(super) fn undone<'a>(
        &self,
        mask: u32,
        stored: &'a [u8],
        len: usize,
        scratch: &'a mut Scratch,
    ) -> io::Result<&'a [u8]> {
        let undone = unwound(self.passed(mask).rev(), stored, len, scratch)?;
        is_all(undone.len(), len)?;
        Ok(undone)
    }

    /// The filters that were applied to a chunk. Filters after the 32nd have no bit in the mask.
    fn passed(&self, mask: u32) -> impl DoubleEndedIterator<Item = Filter> {
        let passed = move |number: usize| number >= 32 || mask >> number & 1 == 0;
        self.0.iter().enumerate().filter(move |&(number, _)| passed(number)).map(|(_, filter)| *filter)
    }
}

/// Undoes filters one after the other; `len` is the final length of the chunk.
fn unwound<'a>(
    filters: impl Iterator<Item = Filter>,
    stored: &'a [u8],
    len: usize,
    scratch: &'a mut Scratch,
) -> io::Result<&'a [u8]> {
    // Only the writer knows the length between two filters. It is bounded, and memory grows as bytes arrive.
    let most = len.saturating_mul(2).saturating_add(FILTERED_BYTES_MORE);
    let [current, other] = &mut scratch.buffers;
    let mut is_stored = true;
    for filter in filters {
        let from = if is_stored { stored } else { &current[..] };
        other.clear();
        if let Filter::Compressed(compression) = filter {
            compression.reader(from)?.take(most as u64).read_to_end(other)?;
        } else {
            other.resize(from.len().saturating_mul(filter.growth()).min(most.max(from.len())), 0);
            let len = filter.undo(from, other)?;
            other.truncate(len);
        }
        std::mem::swap(current, other);
        is_stored = false;
    }
    Ok(if is_stored { stored } else { current })
}

fn is_all(len: usize, expected: usize) -> io::Result<()> {
    if len == expected { Ok(()) } else { Err(broken(format!("it decodes to {len} bytes instead of {expected}"))) }
}

/// Restores elements from their shuffled bytes. Bytes that do not fill a whole element stay at the end.
fn unshuffle(stored: &[u8], out: &mut [u8], element_bytes: usize) {
    let elements = stored.len() / element_bytes;
    let (whole, rest) = out.split_at_mut(elements * element_bytes);
    rest.copy_from_slice(&stored[elements * element_bytes..]);
    match element_bytes {
        2 => interleave::<2>(stored, whole),
        4 => interleave::<4>(stored, whole),
        8 => interleave::<8>(stored, whole),
        _ => {
            for (number, element) in whole.chunks_exact_mut(element_bytes).enumerate() {
                for (byte, out) in element.iter_mut().enumerate() {
                    *out = stored[byte * elements + number];
                }
            }
        }
    }
}

/// The same for an element length that is known at compile time.
fn interleave<const N: usize>(stored: &[u8], out: &mut [u8]) {
    let elements = out.len() / N;
    let planes: [&[u8]; N] = std::array::from_fn(|byte| &stored[byte * elements..][..elements]);
    for (number, element) in out.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *element = std::array::from_fn(|byte| planes[byte][number]);
    }
}

/// Fletcher's checksum over 2-byte halves, high byte first; an odd last byte counts as a high byte.
///
/// Source: `H5_checksum_fletcher32` (H5checksum.c).
fn fletcher32(bytes: &[u8]) -> u32 {
    /// The sum of this many halves fits into 32 bits.
    const HALVES: usize = 360;
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut low, mut high) = (0_u32, 0_u32);
    let (pairs, odd) = bytes.as_chunks::<2>();
    for run in pairs.chunks(HALVES) {
        for pair in run {
            low += u32::from(u16::from_be_bytes(*pair));
            high += low;
        }
        (low, high) = (fold(low), fold(high));
    }
    if let [last] = odd {
        low += u32::from(*last) << 8;
        high += low;
        (low, high) = (fold(low), fold(high));
    }
    fold(high) << 16 | fold(low)
}

/// LibLZF's format: runs of literals, and matches from up to 8 KiB back.
fn lzf(stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
    let (mut from, mut to) = (0, 0);
    let byte = |at: usize| stored.get(at).map(|&byte| usize::from(byte)).ok_or_else(cut_off);
    while from < stored.len() {
        let control = byte(from)?;
        from += 1;
        if control < 32 {
            let len = control + 1;
            let literals = stored.get(from..from + len).ok_or_else(cut_off)?;
            out.get_mut(to..to + len).ok_or_else(too_long)?.copy_from_slice(literals);
            (from, to) = (from + len, to + len);
            continue;
        }
        let mut len = control >> 5;
        if len == 7 {
            len += byte(from)?;
            from += 1;
        }
        let back = ((control & 0x1f) << 8) + byte(from)? + 1;
        from += 1;
        let start = to.checked_sub(back).ok_or_else(|| broken("it repeats what comes before it".into()))?;
        let end = to + len + 2;
        if end > out.len() {
            return Err(too_long());
        }
        // A match may overlap its own output.
        for at in to..end {
            out[at] = out[at - to + start];
        }
        to = end;
    }
    Ok(to)
}

/// The filter's framing: the total length (8 bytes) and the block length (4 bytes), then blocks, each after its stored
/// length. These numbers are big endian. A block whose stored length equals its own length is not compressed.
///
/// Source: HDFGroup/hdf5_plugins, `LZ4/src/H5Zlz4.c`.
fn lz4(stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
    let (all, rest) = stored.split_first_chunk::<8>().ok_or_else(cut_off)?;
    let (block, mut rest) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
    let all = usize::try_from(u64::from_be_bytes(*all)).map_err(|_| too_long())?;
    let block = u32::from_be_bytes(*block) as usize;
    let out = out.get_mut(..all).ok_or_else(too_long)?;
    if block == 0 && all > 0 {
        return Err(broken("it has blocks of no byte".into()));
    }
    for out in out.chunks_mut(block.max(1)) {
        let (len, from) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
        let len = u32::from_be_bytes(*len) as usize;
        let from_block = from.get(..len).ok_or_else(cut_off)?;
        rest = &from[len..];
        if len == out.len() {
            out.copy_from_slice(from_block);
            continue;
        }
        let decoded = lz4_block(from_block, out)?;
        if decoded != out.len() {
            return Err(broken(format!("a block of it decodes to {decoded} bytes instead of {}", out.len())));
        }
    }
    Ok(all)
}

#[cfg(feature = "lz4")]
fn lz4_block(stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
    lz4_flex::block::decompress_into(stored, out).map_err(io::Error::other)
}

/// It was refused when the file was opened.
#[cfg(not(feature = "lz4"))]
fn lz4_block(_stored: &[u8], _out: &mut [u8]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

fn broken(how: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, how)
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early")
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "it decodes to more than it should")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [u16; 7] = [1, 2, 3, 307, 32000, 32004, 32015];

    fn filters(ids: &[u16], element_bytes: u32) -> Filters {
        Filters(ids.iter().map(|&id| Filter::of(id, &[element_bytes]).unwrap()).collect())
    }

    #[test]
    fn lzf_repeats_what_it_has_just_made() {
        // Two literals; a match of 5 bytes from 2 back; a match of 9 bytes from 1 back, whose length takes an extra
        // byte.
        let stored = [1, b'a', b'b', 3 << 5, 1, 7 << 5, 0, 0];
        let mut out = [0; 16];
        assert_eq!(lzf(&stored, &mut out).unwrap(), 16);
        assert_eq!(&out, b"abababaaaaaaaaaa");
        assert!(lzf(&stored, &mut out[..15]).is_err() && lzf(&stored[..7], &mut out).is_err());
        assert!(lzf(&[0, b'a', 1 << 5, 1], &mut out).is_err(), "from before the beginning");
    }

    #[test]
    fn lz4_has_blocks_of_which_some_are_plain() {
        let text = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaxyz";
        let packed = lz4_flex::block::compress(&text[..32]);
        let mut stored = [&35_u64.to_be_bytes()[..], &32_u32.to_be_bytes()].concat();
        stored.extend([&(packed.len() as u32).to_be_bytes()[..], &packed, &3_u32.to_be_bytes(), b"xyz"].concat());
        let mut out = [0; 35];
        assert_eq!(lz4(&stored, &mut out).unwrap(), 35);
        assert_eq!(&out, text);
        assert!((0..stored.len()).all(|len| lz4(&stored[..len], &mut out).is_err()));
        assert!(lz4(&stored, &mut out[..34]).is_err());
    }

    #[test]
    fn a_filter_that_was_passed_over_is_not_undone() {
        let (filters, mut scratch) = (filters(&[2, 3], 2), Scratch::default());
        let content = [1, 2, 3, 4, 5, 6];
        let mut out = [0; 6];
        filters.undo(0b11, &content, &mut out, &mut scratch).unwrap();
        assert_eq!(out, content);
        filters.undo(0b10, &content, &mut out, &mut scratch).unwrap();
        assert_eq!(out, [1, 4, 2, 5, 3, 6]);
        let checked = [&content[..], &fletcher32(&content).to_le_bytes()].concat();
        filters.undo(0, &checked, &mut out, &mut scratch).unwrap();
        assert_eq!(out, [1, 4, 2, 5, 3, 6]);
        assert_eq!(filters.undone(0, &checked, 6, &mut scratch).unwrap(), [1, 4, 2, 5, 3, 6]);
        assert!(filters.undo(0b10, &checked, &mut out, &mut scratch).is_err(), "too long");
    }

    proptest! {
        #[test]
        fn shuffled_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..100), element_bytes in 1_usize..11) {
            let elements = bytes.len() / element_bytes;
            let mut stored: Vec<u8> = (0..element_bytes)
                .flat_map(|byte| (0..elements).map(move |element| element * element_bytes + byte))
                .map(|at| bytes[at])
                .collect();
            stored.extend(&bytes[elements * element_bytes..]);
            let mut out = vec![0; bytes.len()];
            unshuffle(&stored, &mut out, element_bytes);
            prop_assert_eq!(out, bytes);
        }

        #[test]
        fn any_bytes_are_undone_or_refused(
            stored in prop::collection::vec(any::<u8>(), 0..60),
            which in prop::collection::vec(prop::sample::select(ALL.to_vec()), 1..4),
            element_bytes in 1_u32..10,
            len in 0_usize..200,
        ) {
            let filters = filters(&which, element_bytes);
            let (mut out, mut scratch) = (vec![0; len], Scratch::default());
            let all = filters.undo(0, &stored, &mut out, &mut scratch);
            let taken = filters.undone(0, &stored, len, &mut scratch);
            prop_assert_eq!(all.is_ok(), taken.is_ok());
            prop_assert!(taken.is_err() || taken.unwrap() == out);
        }
    }
}

//! Riegeli: files of chunks of records, in blocks of 64 KiB that each begin with a header of their own.
//!
//! Source: google/riegeli, `doc/riegeli_records_file_format.md`.

use crate::compression::Compression;
use crate::index::headers::u64_at;
#[cfg(feature = "array-record")]
use highway::{HighwayHash, HighwayHasher, Key};
use std::borrow::Cow;
use std::io::Read;

/// Each block begins at a multiple of this.
pub(super) const BLOCK_BYTES: u64 = 64 << 10;
/// The beginning of a block, in the middle of a chunk or not: a hash, and where chunks begin.
const BLOCK_HEADER_BYTES: u64 = 24;
/// Hash of the rest, bytes of the data, their hash, type and number of records, bytes of the records.
pub(super) const CHUNK_HEADER_BYTES: usize = 40;
/// The first bytes of every file: the hash of its first block's header, which a chunk follows.
pub(super) const MAGIC: &[u8] = b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f";
/// Records end to end.
const SIMPLE: u8 = b'r';
const TRANSPOSED: u8 = b't';
/// "Riegeli/records\n", twice.
#[cfg(feature = "array-record")]
const HASH_KEY: [u64; 4] = [0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572, 0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572];
/// Bytes of the longest number in the form of protocol buffers.
const VARINT_BYTES_MAX: u64 = 10;

/// What is wrong with a chunk, in words.
pub(super) type Wrong = Cow<'static, str>;

/// The format's hash. Not compared when fuzzing: a fuzzer would never get past it.
#[cfg(feature = "array-record")]
fn is_hash(stored: u64, bytes: &[u8]) -> bool {
    cfg!(fuzzing) || HighwayHasher::new(Key(HASH_KEY)).hash64(bytes) == stored
}

/// Nothing is read without the hash: the format is refused when it is opened.
#[cfg(not(feature = "array-record"))]
fn is_hash(_stored: u64, _bytes: &[u8]) -> bool {
    false
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHeader {
    /// Bytes of the data after it.
    pub(super) data_bytes: u64,
    data_hash: u64,
    kind: u8,
    pub(super) records: u64,
    /// Bytes of the records.
    pub(super) decoded_bytes: u64,
}

impl ChunkHeader {
    /// Whether its records are split into columns of protocol buffers.
    pub(super) fn is_transposed(&self) -> bool {
        self.kind == TRANSPOSED
    }

    /// Of the first bytes of a chunk.
    pub(super) fn parse(bytes: &[u8]) -> Result<ChunkHeader, Wrong> {
        let header = bytes.get(..CHUNK_HEADER_BYTES).ok_or("the header of a chunk is cut short")?;
        if !is_hash(u64_at(header, 0), &header[8..]) {
            return Err("the hash of a chunk's header is wrong".into());
        }
        let kind_and_records = u64_at(header, 24);
        Ok(ChunkHeader {
            data_bytes: u64_at(header, 8),
            data_hash: u64_at(header, 16),
            kind: kind_and_records as u8,
            records: kind_and_records >> 8,
            decoded_bytes: u64_at(header, 32),
        })
    }
}

/// Bytes in the file that hold `len` bytes of content from `offset` on; `None` where no file has so many.
pub(super) fn stored_bytes(offset: u64, len: u64) -> Option<u64> {
    // Content of the first block, and then of whole ones.
    let first = offset % BLOCK_BYTES;
    let content = |block: u64| BLOCK_BYTES - block.max(BLOCK_HEADER_BYTES);
    let header = BLOCK_HEADER_BYTES.saturating_sub(first);
    let more = len.saturating_sub(content(first)).div_ceil(BLOCK_BYTES - BLOCK_HEADER_BYTES);
    more.checked_mul(BLOCK_HEADER_BYTES)?.checked_add(header)?.checked_add(len)
}

/// The content of bytes of a file that begin at `offset`, without the headers of blocks.
pub(super) fn content(bytes: &[u8], offset: u64) -> Cow<'_, [u8]> {
    // Both fit: they are below the length of a block.
    let in_block = (offset % BLOCK_BYTES) as usize;
    let skip = (BLOCK_HEADER_BYTES as usize).saturating_sub(in_block).min(bytes.len());
    let left = BLOCK_BYTES as usize - in_block;
    if bytes.len() <= left {
        return Cow::Borrowed(&bytes[skip..]);
    }
    let mut content = bytes[skip..left].to_vec();
    for block in bytes[left..].chunks(BLOCK_BYTES as usize) {
        content.extend_from_slice(block.get(BLOCK_HEADER_BYTES as usize..).unwrap_or_default());
    }
    Cow::Owned(content)
}

/// The records of a chunk, whose content is `chunk`: calls `room` for memory of as many bytes as they have together,
/// fills it, and returns their lengths.
pub(super) fn records<'a>(
    chunk: &[u8],
    room: impl FnOnce(&ChunkHeader) -> Result<&'a mut [u8], Wrong>,
) -> Result<Vec<u64>, Wrong> {
    let header = ChunkHeader::parse(chunk)?;
    let data = usize::try_from(header.data_bytes).ok().and_then(|len| chunk[CHUNK_HEADER_BYTES..].get(..len));
    let data = data.ok_or("a chunk is cut short")?;
    if !is_hash(header.data_hash, data) {
        return Err("the hash of a chunk is wrong".into());
    }
    if header.kind != SIMPLE {
        let what = format!("a chunk is of type {:?}, and only plain records (r) are read", char::from(header.kind));
        return Err(what.into());
    }
    let (&compression, mut rest) = data.split_first().ok_or("a chunk has no data")?;
    let compression = match compression {
        0 => None,
        b'b' => Some(Compression::Brotli),
        b'z' => Some(Compression::Zstd),
        b's' => Some(Compression::Snappy),
        other => return Err(format!("a chunk is compressed in the unknown way {other:#04x}").into()),
    };
    let sizes = varint(&mut rest).ok_or("a chunk is cut short")?;
    let sizes = usize::try_from(sizes).ok().and_then(|len| rest.split_at_checked(len));
    let (sizes, values) = sizes.ok_or("a chunk is cut short")?;
    let sizes = unpacked(compression, sizes, header.records.saturating_mul(VARINT_BYTES_MAX))?;
    let mut rest = &sizes[..];
    // Bounded by the bytes that are there.
    let mut lens = Vec::with_capacity(rest.len().min(usize::try_from(header.records).unwrap_or(usize::MAX)));
    for _ in 0..header.records {
        lens.push(varint(&mut rest).ok_or("the lengths of a chunk's records are cut short")?);
    }
    let all = lens.iter().try_fold(0_u64, |sum, &len| sum.checked_add(len));
    if !rest.is_empty() || all != Some(header.decoded_bytes) {
        return Err("the lengths of a chunk's records do not add up".into());
    }
    let out = room(&header)?;
    unpack_into(compression, values, out)?;
    Ok(lens)
}

/// What is packed, of at most `most` bytes. Memory grows with what is there.
fn unpacked(compression: Option<Compression>, mut packed: &[u8], most: u64) -> Result<Vec<u8>, Wrong> {
    let Some(compression) = compression else { return Ok(packed.to_vec()) };
    let len = varint(&mut packed).ok_or("the lengths of a chunk's records are cut short")?;
    let mut out = Vec::new();
    if len > most {
        return Err("the lengths of a chunk's records are longer than they can be".into());
    }
    let read = if compression == Compression::Snappy {
        // Its own header says how much comes, and a byte of it makes at most 64.
        let room = len.min(packed.len() as u64 * 64);
        out.resize(usize::try_from(room).unwrap_or(usize::MAX), 0);
        compression.decode(packed, &mut out)
    } else {
        compression.reader(packed).and_then(|reader| reader.take(len.saturating_add(1)).read_to_end(&mut out))
    };
    match read {
        Ok(read) if read as u64 == len => Ok(out),
        Ok(_) => Err("the lengths of a chunk's records have another length than they should".into()),
        Err(error) => Err(format!("the lengths of a chunk's records cannot be decompressed: {error}").into()),
    }
}

fn unpack_into(compression: Option<Compression>, mut packed: &[u8], out: &mut [u8]) -> Result<(), Wrong> {
    let Some(compression) = compression else {
        if packed.len() != out.len() {
            return Err("a chunk has other bytes than its records".into());
        }
        out.copy_from_slice(packed);
        return Ok(());
    };
    let len = varint(&mut packed).ok_or("a chunk is cut short")?;
    if len != out.len() as u64 {
        return Err("a chunk decompresses to another length than its records have".into());
    }
    match compression.decode(packed, out) {
        Ok(bytes) if bytes == out.len() => Ok(()),
        Ok(_) => Err("a chunk decompresses to less than its records".into()),
        Err(error) => Err(format!("a chunk cannot be decompressed: {error}").into()),
    }
}

/// The next number in the form of protocol buffers.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for (at, &byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX as usize) {
        // Of the tenth byte one bit fits.
        if at == 9 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a file that the reference writer made.
    #[test]
    fn the_hash_is_that_of_the_reference_writer() {
        let block = [&[0_u8; 8][..], &64_u64.to_le_bytes()].concat();
        assert!(is_hash(u64::from_le_bytes(*MAGIC.first_chunk().expect("eight bytes")), &block));
        assert!(!is_hash(1, &block));
    }

    #[test]
    fn headers_of_blocks_are_no_content() {
        let file: Vec<u8> = (0..4 * BLOCK_BYTES).map(|at| u8::from(at % BLOCK_BYTES >= BLOCK_HEADER_BYTES)).collect();
        for offset in [0, 5, 24, 25, 65_000, 65_535, 65_536, 65_560, 70_000] {
            for len in [0, 1, 23, 24, 25, 500, 65_511, 65_512, 65_513, 100_000, 131_024, 131_025] {
                let stored = stored_bytes(offset, len).expect("a few bytes");
                let bytes = &file[offset as usize..(offset + stored) as usize];
                let content = content(bytes, offset);
                assert!(content.len() as u64 == len && content.iter().all(|&byte| byte == 1), "{len} at {offset}");
            }
        }
        assert_eq!(stored_bytes(3, u64::MAX), None);
    }

    #[test]
    fn numbers_have_at_most_64_bits() {
        let of = |mut bytes: &[u8]| varint(&mut bytes).map(|number| (number, bytes.len()));
        assert_eq!((of(&[5, 9]), of(&[0xb5, 2]), of(&[0x80])), (Some((5, 1)), Some((309, 0)), None));
        assert_eq!(of(&[[0xff; 9].as_slice(), &[1]].concat()), Some((u64::MAX, 0)));
        assert_eq!(of(&[[0xff; 9].as_slice(), &[2]].concat()), None);
    }
}

//! Cuts a column chunk into pages and decompresses them. Every number is first compared with the footer's statements
//! about the chunk.

use super::chunk::Chunk;
use super::thrift::PageHeader;
use super::types::{Compression, Primitive};
use super::values::broken;
use crate::compression::{Compression as Codec, fill};
use bytes::{Buf, Bytes};
use std::io;
use uringload_core::Result;

/// Types of pages.
const DATA: i64 = 0;
const INDEX: i64 = 1;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// The encoding of levels.
const RLE: i64 = 3;

/// A page with its content.
#[derive(Debug)]
pub(super) enum Page {
    Dictionary { values: u64, encoding: i64, bytes: Bytes },
    Data(Data),
}

/// A page of values.
#[derive(Debug)]
pub(super) struct Data {
    /// With nulls.
    pub(super) values: u64,
    pub(super) encoding: i64,
    pub(super) repetition: Bytes,
    pub(super) definition: Bytes,
    pub(super) bytes: Bytes,
}

/// The pages of a chunk, in order.
pub(super) struct Pages {
    chunk: Chunk,
    has_repetition: bool,
    has_definition: bool,
    /// The rest of the chunk, and where it begins in the file.
    left: Bytes,
    at: u64,
}

impl Pages {
    /// `stored` is the chunk, or the beginning of it.
    pub(super) fn new(chunk: &Chunk, leaf: &Primitive, stored: Bytes) -> Pages {
        let (has_repetition, has_definition) = (leaf.repetition > 0, leaf.definition > 0);
        Pages { chunk: *chunk, has_repetition, has_definition, left: stored, at: chunk.place.offset }
    }

    /// The next page, and where it begins in the file.
    ///
    /// # Errors
    /// `Corrupt`, with the offset of the page.
    pub(super) fn next(&mut self) -> Result<Option<(Page, u64)>> {
        let at = self.at;
        let page = self.next_page().map_err(|what| broken(what).with_offset(self.at));
        // An index may come before the page.
        Ok(page?.map(|page| (page, at)))
    }

    fn next_page(&mut self) -> std::result::Result<Option<Page>, String> {
        while !self.left.is_empty() {
            let header = PageHeader::read(&self.left).ok_or("there is no page header")?;
            let end = header.len.checked_add(header.stored).filter(|&end| end <= self.left.len() as u64);
            let end = end.ok_or("a page leads out of its column chunk")? as usize;
            if header.decoded > self.chunk.decoded {
                return Err(format!(
                    "a page has {} bytes, and its column chunk {}",
                    header.decoded, self.chunk.decoded
                ));
            }
            let stored = self.left.slice(header.len as usize..end);
            if let Some(expected) = header.numbers[4] {
                let mut crc = flate2::Crc::new();
                crc.update(&stored);
                if crc.sum() != expected as u32 {
                    return Err("the CRC of a page is wrong".to_owned());
                }
            }
            // Indexes are not used.
            let page = if header.numbers[1] == Some(INDEX) { None } else { Some(self.page(&header, stored)?) };
            self.left.advance(end);
            self.at += end as u64;
            if page.is_some() {
                return Ok(page);
            }
        }
        Ok(None)
    }

    fn page(&self, header: &PageHeader, stored: Bytes) -> std::result::Result<Page, String> {
        let number = |field: usize| {
            let number = header.own[field].and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(|| format!("field {field} of a page header is missing or wrong"))
        };
        let kind = header.numbers[1].unwrap_or(-1);
        // In version 2, the levels before the values are not compressed.
        let levels = if kind == DATA_V2 { u64::from(number(5)?) + u64::from(number(6)?) } else { 0 };
        let mut bytes = decompress(self.chunk.compression, header, levels, stored)
            .map_err(|error| format!("a page cannot be decompressed: {error}"))?;
        let values = number(1)?.into();
        if kind != DICTIONARY && values > self.chunk.values {
            return Err(format!("a page has {values} values, and its column chunk {}", self.chunk.values));
        }
        let (mut repetition, mut definition) = (Bytes::new(), Bytes::new());
        let encoding = match kind {
            DICTIONARY => return Ok(Page::Dictionary { values, encoding: number(2)?.into(), bytes }),
            DATA => {
                for (has, levels, field) in
                    [(self.has_repetition, &mut repetition, 4), (self.has_definition, &mut definition, 3)]
                {
                    if !has {
                        continue;
                    }
                    if i64::from(number(field)?) != RLE {
                        return Err("levels are stored in the old form BIT_PACKED, which cannot be read".to_owned());
                    }
                    let len = bytes.try_get_u32_le().map_err(|_| LEVELS_CUT)? as usize;
                    *levels = (len <= bytes.len()).then(|| bytes.split_to(len)).ok_or(LEVELS_CUT)?;
                }
                number(2)?
            }
            DATA_V2 => {
                for (levels, field) in [(&mut repetition, 6), (&mut definition, 5)] {
                    let len = number(field)? as usize;
                    *levels = (len <= bytes.len()).then(|| bytes.split_to(len)).ok_or(LEVELS_CUT)?;
                }
                number(4)?
            }
            kind => return Err(format!("a page has the unknown type {kind}")),
        };
        Ok(Page::Data(Data { values, encoding: encoding.into(), repetition, definition, bytes }))
    }
}

const LEVELS_CUT: &str = "a page ends before its levels";

/// Decompresses a page, whose first `levels` bytes are never compressed.
fn decompress(codec: Compression, header: &PageHeader, levels: u64, stored: Bytes) -> io::Result<Bytes> {
    let levels = usize::try_from(levels).map_err(io::Error::other)?;
    let (plain, values) = stored.split_at_checked(levels).ok_or(io::ErrorKind::UnexpectedEof)?;
    if codec == Compression::Uncompressed || !header.is_compressed {
        return Ok(stored);
    }
    let mut page = vec![0; usize::try_from(header.decoded).map_err(io::Error::other)?];
    let (head, out) = page.split_at_mut_checked(levels).ok_or(io::ErrorKind::UnexpectedEof)?;
    head.copy_from_slice(plain);
    let filled = match codec {
        // Where all values are null, some writers store nothing.
        _ if out.is_empty() => 0,
        Compression::Snappy => Codec::Snappy.decode(values, out)?,
        Compression::Gzip => Codec::Gzip.decode(values, out)?,
        Compression::Brotli => Codec::Brotli.decode(values, out)?,
        Compression::Zstd => Codec::Zstd.decode(values, out)?,
        Compression::Lz4Raw => lz4(values, out)?,
        // The form that Hadoop writes, and two forms of old writers that misread it.
        Compression::Lz4 => hadoop_lz4(values, out)
            .or_else(|_| fill(&mut lz4_flex::frame::FrameDecoder::new(values), out))
            .or_else(|_| lz4(values, out))?,
        Compression::Uncompressed | Compression::Lzo => return Err(io::ErrorKind::Unsupported.into()),
    };
    if filled < out.len() {
        return Err(io::Error::other(format!("it decodes to {filled} bytes, and its header says {}", out.len())));
    }
    Ok(page.into())
}

fn lz4(stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
    lz4_flex::block::decompress_into(stored, out).map_err(io::Error::other)
}

/// Decodes blocks of LZ4, each of which follows its decoded and its stored length, both big endian.
fn hadoop_lz4(mut stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some((lengths, rest)) = stored.split_first_chunk::<8>() {
        let [len, stored_len] = [0, 4].map(|at| u32::from_be_bytes(std::array::from_fn(|byte| lengths[at + byte])));
        let (block, rest) = rest.split_at_checked(stored_len as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
        let room = out[filled..].get_mut(..len as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
        filled += lz4(block, room)?;
        stored = rest;
    }
    if stored.is_empty() { Ok(filled) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::columnar::ByteRange;
    use crate::formats::parquet::types::Physical;
    use std::io::Write;

    /// Fields of 32 bits, one after the other, each a number below 64.
    fn ints(numbers: &[usize]) -> Vec<u8> {
        numbers.iter().flat_map(|&number| [0x15, number as u8 * 2]).collect()
    }

    /// A page of version 1, with plain values and no levels.
    fn page(values: usize, decoded: usize, stored: &[u8]) -> Vec<u8> {
        [&ints(&[0, decoded, stored.len()]), &[0x2c][..], &ints(&[values, 0, 3, 3]), &[0, 0], stored].concat()
    }

    /// The bytes of all pages of a chunk that begins at byte 100 and has 4 values in 16 bytes, or the first error.
    fn read(compression: Compression, stored: Vec<u8>) -> std::result::Result<Vec<Bytes>, String> {
        let (physical, len) = (Physical::Int32, -1);
        let leaf = Primitive { physical, len, precision: -1, scale: -1, definition: 0, repetition: 0, element: 0 };
        let place = ByteRange { offset: 100, len: stored.len() as u64 };
        let chunk = Chunk { place, values: 4, decoded: 16, compression, room: 0, scratch: 0 };
        let mut pages = Pages::new(&chunk, &leaf, stored.into());
        std::iter::from_fn(|| pages.next().transpose())
            .map(|page| match page?.0 {
                Page::Data(data) => Ok(Bytes::from([data.repetition, data.definition, data.bytes].concat())),
                Page::Dictionary { bytes, .. } => Ok(bytes),
            })
            .collect::<uringload_core::Result<_>>()
            .map_err(|error| format!("{error}: {:?}", error.offset()))
    }

    #[test]
    fn what_claims_more_than_its_chunk_is_refused() {
        let plain = Compression::Uncompressed;
        let index = [&ints(&[1, 3, 3]), &[0x3c, 0, 0][..], b"xyz"].concat();
        let sound = [page(1, 4, b"abcd"), index, page(3, 12, b"abcdefghijkl")].concat();
        assert_eq!(read(plain, sound).unwrap(), [&b"abcd"[..], b"abcdefghijkl"], "without the index");
        for (stored, what) in [
            (page(1, 17, b"abcd"), "a page has 17 bytes, and its column chunk 16"),
            (page(5, 4, b"abcd"), "a page has 5 values, and its column chunk 4"),
            (page(1, 4, b"abcd")[..20].to_vec(), "a page leads out of its column chunk"),
            (vec![0xff; 9], "there is no page header"),
            ([&ints(&[0, 4, 4, 7]), &[0x1c][..], &ints(&[1, 0, 3, 3]), &[0, 0], b"abcd"].concat(), "the CRC"),
        ] {
            let error = read(plain, [page(1, 4, b"abcd"), stored].concat()).expect_err(what);
            assert!(error.contains(what) && error.ends_with("Some(121)"), "{error}");
        }
    }

    #[test]
    fn every_codec_fills_what_the_header_says_and_no_more() {
        let text = b"hello hello hel";
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
        frame.write_all(text).unwrap();
        let raw = lz4_flex::block::compress;
        let hadoop = |text: &[u8]| {
            let lengths = [text.len(), raw(text).len()].map(|len| (len as u32).to_be_bytes());
            [&lengths.concat(), &raw(text)[..]].concat()
        };
        let snappy = snap::raw::Encoder::new().compress_vec(text).unwrap();
        for (codec, stored) in [
            (Compression::Snappy, snappy.clone()),
            (Compression::Gzip, gzip.finish().unwrap()),
            (Compression::Zstd, zstd::stream::encode_all(&text[..], 1).unwrap()),
            (Compression::Lz4Raw, raw(text)),
            (Compression::Lz4, [hadoop(&text[..7]), hadoop(&text[7..])].concat()),
            (Compression::Lz4, frame.finish().unwrap()),
            (Compression::Lz4, raw(text)),
        ] {
            assert_eq!(read(codec, page(3, 15, &stored)).unwrap(), [&text[..]], "{codec:?}");
            assert!(read(codec, page(3, 14, &stored)).is_err() && read(codec, page(3, 16, &stored)).is_err());
            assert!(read(codec, page(3, 15, &stored[..stored.len() / 2])).is_err(), "{codec:?}");
        }
        // In version 2, a byte of levels comes first, and a flag may say that nothing is compressed.
        for (flag, values) in [(&[][..], &snappy[..]), (&[0x12], text)] {
            let (sizes, own) = (ints(&[3, 16, values.len() + 1]), ints(&[3, 0, 3, 0, 1, 0]));
            let stored = [&sizes, &[0x5c][..], &own, flag, &[0, 0], b"L", values].concat();
            assert_eq!(read(Compression::Snappy, stored).unwrap(), [&b"Lhello hello hel"[..]]);
        }
    }
}

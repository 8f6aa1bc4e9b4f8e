//! Cuts a column chunk into pages and decompresses them, for the `parquet` crate to decode their values. The crate
//! trusts pages, so every number is first compared with what the footer says of the chunk.

use super::footer::Chunk;
use super::thrift::{PageHeader, Thrift};
use crate::compression::{Compression as Codec, fill};
use bytes::{Buf, Bytes};
use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use std::io;
use uringload_core::{Error, ErrorKind};

/// Types of pages.
const DATA: i64 = 0;
const INDEX: i64 = 1;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// The names of encodings, by number.
const ENCODINGS: &str = "PLAIN - PLAIN_DICTIONARY RLE BIT_PACKED DELTA_BINARY_PACKED DELTA_LENGTH_BYTE_ARRAY \
    DELTA_BYTE_ARRAY RLE_DICTIONARY BYTE_STREAM_SPLIT";

/// The pages of a chunk, in order.
pub(super) struct Pages {
    chunk: Chunk,
    leaf: ColumnDescPtr,
    /// The rest of the chunk, and where it begins in the file.
    left: Bytes,
    at: u64,
}

impl Pages {
    /// `stored` is the chunk, or the beginning of it.
    pub(super) fn new(chunk: &Chunk, leaf: &ColumnDescPtr, stored: Bytes) -> Box<Pages> {
        Box::new(Pages { chunk: *chunk, leaf: leaf.clone(), left: stored, at: chunk.place.offset })
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
        let encoding = |field: usize| {
            let name = ENCODINGS.split(' ').nth(number(field)? as usize).unwrap_or_default();
            name.parse::<Encoding>().map_err(|error| error.to_string())
        };
        let kind = header.numbers[1].unwrap_or(-1);
        // In version 2, the levels before the values are not compressed.
        let levels = if kind == DATA_V2 { u64::from(number(5)?) + u64::from(number(6)?) } else { 0 };
        let buf = decompress(self.chunk.compression, header, levels, stored)
            .map_err(|error| format!("a page cannot be decompressed: {error}"))?;
        let num_values = number(1)?;
        check_values(&self.chunk, &self.leaf, kind, num_values.into(), buf.len() as u64)?;
        let page = match kind {
            DATA => Page::DataPage {
                buf,
                num_values,
                encoding: encoding(2)?,
                def_level_encoding: encoding(3)?,
                rep_level_encoding: encoding(4)?,
                statistics: None,
            },
            DICTIONARY => Page::DictionaryPage { buf, num_values, encoding: encoding(2)?, is_sorted: false },
            DATA_V2 => Page::DataPageV2 {
                buf,
                num_values,
                num_nulls: number(2)?,
                num_rows: number(3)?,
                encoding: encoding(4)?,
                def_levels_byte_len: number(5)?,
                rep_levels_byte_len: number(6)?,
                is_compressed: header.is_compressed,
                statistics: None,
            },
            kind => return Err(format!("a page has the unknown type {kind}")),
        };
        check_lengths(&page, levels, &self.leaf).ok_or("strings have lengths that no page can have")?;
        Ok(page)
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let at = self.at;
        self.next_page().map_err(|what| {
            // The chunk lies in its file.
            ParquetError::External(Box::new(Error::new(ErrorKind::Corrupt, what).with_offset(at)))
        })
    }

    /// The crate asks only to skip rows, which does not happen here.
    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Err(ParquetError::NYI("pages are read in order".to_owned()))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        Err(ParquetError::NYI("pages are read in order".to_owned()))
    }

    /// A page of version 2 begins with a row. One of version 1 may continue a list.
    fn at_record_boundary(&mut self) -> Result<bool> {
        Ok(PageHeader::read(&self.left).is_none_or(|header| header.numbers[1] == Some(DATA_V2)))
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

/// Turns an error of the `parquet` crate into ours. It may be one that [`Pages`] gave to the crate.
pub(super) fn broken(cause: ParquetError) -> Error {
    let cause = match cause {
        ParquetError::External(cause) => match cause.downcast::<Error>() {
            Ok(error) => return *error,
            Err(cause) => ParquetError::External(cause),
        },
        cause => cause,
    };
    Error::new(ErrorKind::Corrupt, "the pages are broken").with_source(cause)
}

/// Decompresses a page, whose first `levels` bytes are never compressed.
fn decompress(codec: Compression, header: &PageHeader, levels: u64, stored: Bytes) -> io::Result<Bytes> {
    let levels = usize::try_from(levels).map_err(io::Error::other)?;
    let (plain, values) = stored.split_at_checked(levels).ok_or(io::ErrorKind::UnexpectedEof)?;
    if codec == Compression::UNCOMPRESSED || !header.is_compressed {
        return Ok(stored);
    }
    let mut page = vec![0; usize::try_from(header.decoded).map_err(io::Error::other)?];
    let (head, out) = page.split_at_mut_checked(levels).ok_or(io::ErrorKind::UnexpectedEof)?;
    head.copy_from_slice(plain);
    let filled = match codec {
        // Where all values are null, some writers store nothing.
        _ if out.is_empty() => 0,
        Compression::SNAPPY => Codec::Snappy.decode(values, out)?,
        Compression::GZIP(_) => Codec::Gzip.decode(values, out)?,
        Compression::BROTLI(_) => Codec::Brotli.decode(values, out)?,
        Compression::ZSTD(_) => Codec::Zstd.decode(values, out)?,
        Compression::LZ4_RAW => lz4(values, out)?,
        // The form that Hadoop writes, and two forms of old writers that misread it.
        Compression::LZ4 => hadoop_lz4(values, out)
            .or_else(|_| fill(&mut lz4_flex::frame::FrameDecoder::new(values), out))
            .or_else(|_| lz4(values, out))?,
        Compression::UNCOMPRESSED | Compression::LZO => return Err(io::ErrorKind::Unsupported.into()),
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

/// Refuses a page with more values than its chunk, and a dictionary with more than fit into its bytes. The crate makes
/// room for all values before it decodes any.
fn check_values(
    chunk: &Chunk,
    leaf: &ColumnDescriptor,
    kind: i64,
    values: u64,
    bytes: u64,
) -> std::result::Result<(), String> {
    let least = match leaf.physical_type() {
        Physical::INT64 | Physical::DOUBLE => 8,
        Physical::INT96 => 12,
        Physical::FIXED_LEN_BYTE_ARRAY => leaf.type_length().max(1) as u64,
        _ => 4,
    };
    if kind == DICTIONARY && values > bytes / least {
        return Err(format!("a dictionary has {values} values in {bytes} bytes"));
    }
    if kind != DICTIONARY && values > chunk.values {
        return Err(format!("a page has {values} values, and its column chunk {}", chunk.values));
    }
    Ok(())
}

/// Checks that a page does not have more lengths of strings than values. The crate decodes all lengths that are stored
/// as differences before the first string. Returns `None` if there are more, or if they end early.
fn check_lengths(page: &Page, levels: u64, leaf: &ColumnDescriptor) -> Option<()> {
    let streams = match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        Encoding::DELTA_BYTE_ARRAY => 2,
        _ => return Some(()),
    };
    let mut at = Thrift(page.buffer());
    at.take(levels)?;
    // In version 1, the length of each kind of levels comes before them.
    if let Page::DataPage { .. } = page {
        for _ in [leaf.max_rep_level(), leaf.max_def_level()].iter().filter(|&&most| most > 0) {
            let len = u32::from_le_bytes(at.take(4)?.try_into().ok()?);
            at.take(len.into())?;
        }
    }
    (0..streams).try_for_each(|_| (differences(&mut at)? <= u64::from(page.num_values())).then_some(()))
}

/// Skips integers that are stored as differences, and counts them.
///
/// Source: apache/parquet-format `Encodings.md`, "Delta Encoding".
fn differences(at: &mut Thrift<'_>) -> Option<u64> {
    let [block, parts, count, _first] = [at.varint()?, at.varint()?, at.varint()?, at.varint()?];
    let each = block.checked_div(parts).filter(|&each| each > 0 && each % 8 == 0)?;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        at.varint()?;
        for &width in at.take(parts)? {
            // Widths after that of the last integer mean nothing.
            if left > 0 {
                at.take((each / 8).checked_mul(width.into())?)?;
                left = left.saturating_sub(each);
            }
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columnar::Place;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;
    use std::io::Write;
    use std::sync::Arc;

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
        let schema = SchemaDescriptor::new(Arc::new(parse_message_type("message a { required int32 a; }").unwrap()));
        let place = Place { offset: 100, len: stored.len() as u64 };
        let chunk = Chunk { place, values: 4, decoded: 16, compression, room: 0 };
        Pages::new(&chunk, &schema.column(0), stored.into())
            .map(|page| page.map(|page| page.buffer().clone()).map_err(broken))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| format!("{error}: {:?}", error.offset()))
    }

    #[test]
    fn what_claims_more_than_its_chunk_is_refused() {
        let plain = Compression::UNCOMPRESSED;
        let index = [&ints(&[1, 3, 3]), &[0x3c, 0, 0][..], b"xyz"].concat();
        let sound = [page(1, 4, b"abcd"), index, page(3, 12, b"abcdefghijkl")].concat();
        assert_eq!(read(plain, sound).unwrap(), [&b"abcd"[..], b"abcdefghijkl"], "without the index");
        for (stored, what) in [
            (page(1, 17, b"abcd"), "a page has 17 bytes, and its column chunk 16"),
            (page(5, 4, b"abcd"), "a page has 5 values, and its column chunk 4"),
            (page(1, 4, b"abcd")[..20].to_vec(), "a page leads out of its column chunk"),
            (vec![0xff; 9], "there is no page header"),
            ([&ints(&[2, 16, 16]), &[0x4c][..], &ints(&[5, 0]), &[0; 18]].concat(), "a dictionary has 5 values in 16"),
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
            (Compression::SNAPPY, snappy.clone()),
            (Compression::GZIP(Default::default()), gzip.finish().unwrap()),
            (Compression::ZSTD(Default::default()), zstd::stream::encode_all(&text[..], 1).unwrap()),
            (Compression::LZ4_RAW, raw(text)),
            (Compression::LZ4, [hadoop(&text[..7]), hadoop(&text[7..])].concat()),
            (Compression::LZ4, frame.finish().unwrap()),
            (Compression::LZ4, raw(text)),
        ] {
            assert_eq!(read(codec, page(3, 15, &stored)).unwrap(), [&text[..]], "{codec:?}");
            assert!(read(codec, page(3, 14, &stored)).is_err() && read(codec, page(3, 16, &stored)).is_err());
            assert!(read(codec, page(3, 15, &stored[..stored.len() / 2])).is_err(), "{codec:?}");
        }
        // In version 2, a byte of levels comes first, and a flag may say that nothing is compressed.
        for (flag, values) in [(&[][..], &snappy[..]), (&[0x12], text)] {
            let (sizes, own) = (ints(&[3, 16, values.len() + 1]), ints(&[3, 0, 3, 0, 1, 0]));
            let stored = [&sizes, &[0x5c][..], &own, flag, &[0, 0], b"L", values].concat();
            assert_eq!(read(Compression::SNAPPY, stored).unwrap(), [&b"Lhello hello hel"[..]]);
        }
    }

    /// The example of the specification: 7, 5, 3, 1, 2, 3, 4, 5, in blocks of 128.
    #[test]
    fn integers_as_differences() {
        let mut bytes = vec![0x80, 0x01, 4, 8, 14, 3, 2, 0, 0, 0];
        bytes.extend([0xc0, 0x3f, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"rest");
        let delta = |bytes: &[u8]| {
            let mut at = Thrift(bytes);
            differences(&mut at).map(|count| (count, bytes.len() - at.0.len()))
        };
        assert_eq!(delta(&bytes), Some((8, 18)));
        assert_eq!(delta(&[0x80, 0x01, 4, 1, 14]), Some((1, 5)));
        assert_eq!(delta(&[0x80, 0x01, 0, 8, 14]), None);
        assert_eq!(delta(&bytes[..14]), None);
    }
}

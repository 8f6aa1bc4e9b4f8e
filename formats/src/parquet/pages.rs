//! Checks pages before the `parquet` crate decodes them: it takes memory by what their headers say.

use super::thrift::page_header;
use bytes::Bytes;
use bytes::buf::{Buf, Reader};
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use parquet::schema::types::ColumnDescriptor;

/// A column chunk that was read; what lies around it in the file is not there.
#[derive(Debug)]
pub(super) struct Slice {
    /// Where it begins in its file.
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Slice {
    fn from(&self, start: u64) -> Result<Bytes> {
        let at = start.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        match at.filter(|&at| at <= self.bytes.len()) {
            Some(at) => Ok(self.bytes.slice(at..)),
            None => Err(ParquetError::EOF(format!("byte {start} lies outside the column chunk"))),
        }
    }
}

impl Length for Slice {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Slice {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Reader<Bytes>> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.from(start)?;
        match length <= bytes.len() {
            true => Ok(bytes.slice(..length)),
            false => Err(ParquetError::EOF(format!("{length} bytes from {start} on reach out of the column chunk"))),
        }
    }
}

/// Looks at the headers of all pages of a chunk. None may be larger than the chunk, of which the footer has told, and
/// no dictionary may have more values than fit into its bytes.
///
/// # Errors
/// What is wrong, and at which byte of the chunk.
pub(super) fn check_headers(chunk: &[u8], decoded: u64, leaf: &ColumnDescriptor) -> Result<(), (String, u64)> {
    let least = match leaf.physical_type() {
        Physical::INT64 | Physical::DOUBLE => 8,
        Physical::INT96 => 12,
        Physical::FIXED_LEN_BYTE_ARRAY => i64::from(leaf.type_length()),
        _ => 4,
    };
    let mut at = 0;
    while at < chunk.len() {
        let broken = |what: &str| (what.to_owned(), at as u64);
        let header = page_header(&chunk[at..]).ok_or_else(|| broken("there is no page header"))?;
        let stored = usize::try_from(header.stored).ok();
        let end = stored.and_then(|stored| at.checked_add(header.header_len)?.checked_add(stored));
        let Some(end) = end.filter(|&end| end <= chunk.len()) else {
            return Err(broken("a page leads out of its column chunk"));
        };
        if u64::try_from(header.decoded).ok().is_none_or(|bytes| bytes > decoded) {
            let what = format!("a page has {} bytes, and its column chunk {decoded}", header.decoded);
            return Err((what, at as u64));
        }
        let room = header.decoded / least;
        if !(0..=room).contains(&header.dictionary_values) {
            let (values, bytes) = (header.dictionary_values, header.decoded);
            return Err((format!("a dictionary has {values} values in {bytes} bytes"), at as u64));
        }
        at = end;
    }
    Ok(())
}

/// Hands pages on whose counts of values are sound.
pub(super) struct Checked<P> {
    pages: P,
    levels: Levels,
}

/// Whether pages have levels before their values.
#[derive(Clone, Copy)]
struct Levels {
    repetition: bool,
    definition: bool,
}

impl<P: PageReader> Checked<P> {
    pub(super) fn new(pages: P, leaf: &ColumnDescriptor) -> Checked<P> {
        let levels = Levels { repetition: leaf.max_rep_level() > 0, definition: leaf.max_def_level() > 0 };
        Checked { pages, levels }
    }
}

impl<P: PageReader> PageReader for Checked<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        check_counts(&page, self.levels)?;
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

impl<P: PageReader> Iterator for Checked<P> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

/// Lengths of strings are counted before they are decoded: no more of them than the page has values.
fn check_counts(page: &Page, levels: Levels) -> Result<()> {
    let is_delta = matches!(page.encoding(), Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY);
    if !is_delta {
        return Ok(());
    }
    let wrong = || ParquetError::General("strings have lengths that no page can have".to_owned());
    let buffer = page.buffer();
    let at = match page {
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            usize::try_from(u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len)).ok()
        }
        // Each is preceded by its length.
        _ => {
            let pass = |at: usize, is_there: bool| match is_there {
                true => {
                    let len = buffer.get(at..at.checked_add(4)?)?;
                    let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]);
                    at.checked_add(4)?.checked_add(usize::try_from(len).ok()?)
                }
                false => Some(at),
            };
            pass(0, levels.repetition).and_then(|at| pass(at, levels.definition))
        }
    };
    let bytes = at.and_then(|at| buffer.get(at..)).ok_or_else(wrong)?;
    let (count, end) = delta(bytes).ok_or_else(wrong)?;
    let mut counts = vec![count];
    if page.encoding() == Encoding::DELTA_BYTE_ARRAY {
        counts.push(delta(&bytes[end..]).ok_or_else(wrong)?.0);
    }
    match counts.iter().all(|&count| count <= u64::from(page.num_values())) {
        true => Ok(()),
        false => Err(wrong()),
    }
}

/// Number of the integers that are encoded as differences at the beginning of `bytes`, and where they end.
///
/// Source: apache/parquet-format `Encodings.md`, "Delta Encoding".
fn delta(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut at = 0;
    let varint = |at: &mut usize| {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.get(*at)?;
            *at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    };
    let block = varint(&mut at)?;
    let parts = varint(&mut at)?;
    let count = varint(&mut at)?;
    varint(&mut at)?;
    let each = block.checked_div(parts).filter(|&each| each > 0 && each % 8 == 0)?;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        varint(&mut at)?;
        let widths_at = at;
        at = at.checked_add(usize::try_from(parts).ok()?)?;
        let widths = bytes.get(widths_at..at)?;
        for &width in widths {
            if left == 0 {
                break;
            }
            at = at.checked_add(usize::try_from((each / 8).checked_mul(width.into())?).ok()?)?;
            left = left.saturating_sub(each);
        }
        if at > bytes.len() {
            return None;
        }
    }
    Some((count, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_read_is_there() {
        let slice = Slice { start: 100, bytes: Bytes::from_static(b"abcdef") };
        assert_eq!(&slice.get_bytes(101, 3).unwrap()[..], b"bcd");
        assert_eq!(slice.len(), 106);
        for (start, length) in [(99, 1), (100, 7), (107, 0), (0, 1), (u64::MAX, 1)] {
            assert!(slice.get_bytes(start, length).is_err(), "{start} {length}");
        }
        assert!(slice.get_read(99).is_err());
    }

    /// The example of the specification: 7, 5, 3, 1, 2, 3, 4, 5, in blocks of 128.
    #[test]
    fn integers_as_differences() {
        let mut bytes = vec![0x80, 0x01, 4, 8, 14, 3, 2, 0, 0, 0];
        bytes.extend([0xc0, 0x3f, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"rest");
        assert_eq!(delta(&bytes), Some((8, 18)));
        assert_eq!(delta(&[0x80, 0x01, 4, 1, 14]), Some((1, 5)));
        assert_eq!(delta(&[0x80, 0x01, 0, 8, 14]), None);
        assert_eq!(delta(&bytes[..14]), None);
    }
}

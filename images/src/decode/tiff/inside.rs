//! JPEGs in a TIFF: each strip or tile is one, and the directory may have their tables.

use super::super::{Color, Decoding, jpeg};
use super::{FORMAT, File, Kind, Page, WHITE_IS_ZERO, YCBCR, converted, corrupt, truncated, wrong};
use crate::Image;
use crate::decode::turbo::JpegBuffers;
use crate::image::memory;
use tiff::tags::Tag;
use uringload_core::Result;

/// The image of parts that are JPEGs, each decoded as a file of its own.
pub fn decode(
    bytes: &[u8],
    file: &mut File<'_>,
    page: &Page,
    how: &Decoding,
    buffers: &mut JpegBuffers,
) -> Result<Image> {
    let wrong = |error| wrong(bytes, &error);
    let is_tiled = page.is_tiled;
    let (offsets, counts) =
        if is_tiled { (Tag::TileOffsets, Tag::TileByteCounts) } else { (Tag::StripOffsets, Tag::StripByteCounts) };
    let offsets = file.get_tag_u64_vec(offsets).map_err(wrong)?;
    let counts = file.get_tag_u64_vec(counts).map_err(wrong)?;
    let tables = file.find_tag(Tag::JPEGTables).map_err(wrong)?;
    let tables = tables.map(|tables| tables.into_u8_vec()).transpose().map_err(wrong)?.unwrap_or_default();
    let (height, width) = page.size;
    let (part_width, part_height) = file.chunk_dimensions();
    let kind = if page.samples == 1 { Kind::Gray } else { Kind::Rgb };
    let color = if kind == Kind::Gray { Color::Gray } else { Color::Rgb };
    let how_part = Decoding { color, orient: false, ..how.clone() };
    let channels = kind.channels();
    let mut pixels = memory(height, width, channels as u32, 0)?;
    let across = width.div_ceil(part_width) as usize;
    for (part, (offset, count)) in offsets.into_iter().zip(counts).enumerate() {
        let end = offset.saturating_add(count);
        let bytes_of = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let part_bytes =
            bytes_of.and_then(|(start, end)| bytes.get(start..end)).ok_or_else(|| truncated(FORMAT, bytes))?;
        let (y, x) = ((part / across) as u64 * u64::from(part_height), (part % across) as u32 * part_width);
        let Some(y) = u32::try_from(y).ok().filter(|&y| y < height) else { break };
        let (rows, columns) = (part_height.min(height - y), part_width.min(width - x));
        let made = jpeg::decode(&alone(part_bytes, &tables, page.photometric), &how_part, buffers)
            .map_err(|error| error.with_offset(offset))?
            .0;
        // A tile is whole even where the image ends within it; a larger one would cost more than the header says.
        let most = if is_tiled { (part_height, part_width) } else { (rows, columns) };
        let size = (made.height(), made.width());
        if size.0 < rows || size.1 < columns || size.0 > most.0 || size.1 > most.1 {
            let what =
                format!("a JPEG within has {} rows of {} pixels, and its part {rows} of {columns}", size.0, size.1);
            return Err(corrupt(FORMAT, what).with_offset(offset));
        }
        for row in 0..rows {
            let at = ((y + row) as usize * width as usize + x as usize) * channels;
            let bytes = columns as usize * channels;
            pixels[at..][..bytes].copy_from_slice(&made.row(row)[..bytes]);
        }
    }
    if page.photometric == WHITE_IS_ZERO {
        pixels.iter_mut().for_each(|level| *level = 255 - *level);
    }
    converted(FORMAT, page.size, kind, pixels, how.color)
}

/// A JPEG with its tables, and with its own statement about colours. In a TIFF, the JPEG's application segments do not
/// count.
fn alone(part: &[u8], tables: &[u8], photometric: u16) -> Vec<u8> {
    let mut file = vec![0xff, 0xd8, 0xff, 0xee, 0, 14];
    file.extend(*b"Adobe\0\x64\0\0\0\0");
    file.push(u8::from(photometric == YCBCR));
    // Both begin with a start marker, and the tables end with an end marker.
    file.extend(tables.get(2..tables.len().saturating_sub(2)).unwrap_or_default());
    let mut rest = part.get(2..).unwrap_or_default();
    while let [0xff, marker @ (0xc0..=0xd7 | 0xdb..=0xfe), high, low, ..] = rest {
        let length = 2 + usize::from(u16::from_be_bytes([*high, *low]));
        if *marker == 0xda || length > rest.len() {
            break;
        }
        let (segment, behind) = rest.split_at(length);
        if !(0xe0..=0xef).contains(marker) {
            file.extend(segment);
        }
        rest = behind;
    }
    file.extend(rest);
    file
}

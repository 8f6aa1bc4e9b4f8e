//! BMP: uncompressed, of 1, 4, 8, 24 and 32 bits. Our own, because `zune-bmp` inverts some images of one bit and takes
//! a file that is cut for a whole one.

use super::pixels::{Kind, converted, of_palette, unpacked};
use super::{Decoding, Format, corrupt, truncated, unsupported};
use crate::Image;
use crate::image::memory;
use uringload_core::Result;

const FORMAT: Format = Format::Bmp;

/// Bytes for a pixel: four of the file's channels, and the three that they become.
const BYTES_A_PIXEL: u64 = 4 + 3;

/// The masks of red, green and blue where each has a byte, in the order of the file's other kinds.
const MASKS: [u32; 3] = [0xff_0000, 0xff00, 0xff];

pub fn decode(bytes: &[u8], how: &Decoding) -> Result<Image> {
    let cut = || truncated(FORMAT, bytes);
    let short = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u16::from_le_bytes(*word));
    let long = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_le_bytes(*word));
    let header = long(14).ok_or_else(cut)?;
    if header < 40 {
        return Err(unsupported(FORMAT, format_args!("a header of {header} bytes")).with_offset(14));
    }
    let (width, height) = (long(18).ok_or_else(cut)?.cast_signed(), long(22).ok_or_else(cut)?.cast_signed());
    let (bits, compression) = (short(28).ok_or_else(cut)?, long(30).ok_or_else(cut)?);
    let (size, is_upward) = ((height.unsigned_abs(), width.unsigned_abs()), height > 0);
    if width < 0 {
        return Err(corrupt(FORMAT, "it has a negative width").with_offset(18));
    }
    how.limits.check(size.0, size.1, BYTES_A_PIXEL)?;
    let has_masks = compression == 3 && bits == 32;
    if has_masks && [long(54), long(58), long(62)] != MASKS.map(Some) || compression != 0 && !has_masks {
        return Err(unsupported(FORMAT, format_args!("compression {compression} of {bits} bits")).with_offset(30));
    }
    if !matches!(bits, 1 | 4 | 8 | 24 | 32) {
        return Err(unsupported(FORMAT, format_args!("{bits} bits a pixel")).with_offset(28));
    }
    // Rows end at multiples of four bytes.
    let row = (u64::from(size.1) * u64::from(bits)).div_ceil(8);
    let (row, stride) = (row as usize, row.next_multiple_of(4) as usize);
    let colors = long(46).ok_or_else(cut)?;
    let colors = if bits > 8 { 0 } else { (if colors == 0 { 1 << bits } else { colors.min(256) }) as usize };
    let head = 14 + header as usize;
    let start = match long(10).ok_or_else(cut)? as usize {
        // Some writers forget the palette, or all of it, as Pillow knows.
        0 => head + 4 * colors + if has_masks && header == 40 { 12 } else { 0 },
        start if start == head => head + 4 * colors,
        start => start,
    };
    // The last row may lack its padding.
    let rows = bytes.get(start..).filter(|rest| rest.len() >= (size.0 as usize - 1) * stride + row).ok_or_else(cut)?;
    let mut pixels = memory(size.0, u32::try_from(row).map_err(|_| corrupt(FORMAT, "its rows are too long"))?, 1, 0)?;
    for (y, to) in pixels.chunks_exact_mut(row).enumerate() {
        let y = if is_upward { size.0 as usize - 1 - y } else { y };
        to.copy_from_slice(&rows[y * stride..][..row]);
    }
    if bits > 8 {
        let channels = usize::from(bits / 8);
        // Blue first; the fourth byte is no alpha that counts.
        pixels.chunks_exact_mut(channels).for_each(|pixel| pixel.swap(0, 2));
        let kind = if channels == 3 { Kind::Rgb } else { Kind::Rgba };
        return converted(FORMAT, size, kind, pixels, how.color);
    }
    let palette = bytes.get(head..).and_then(|rest| rest.get(..4 * colors)).ok_or_else(cut)?;
    let palette: Vec<[u8; 3]> = palette.as_chunks::<4>().0.iter().map(|&[b, g, r, _]| [r, g, b]).collect();
    let indexes = if bits == 8 { pixels } else { unpacked(&pixels, bits.into(), size)? };
    of_palette(size, indexes, &palette, how.color)
}

//! BMP: of 1, 4, 8, 16, 24 and 32 bits, and run lengths of 4 and 8. Our own, because `zune-bmp` inverts some images of
//! one bit and accepts a truncated file as a whole one. Where writers differ, this follows Pillow's reader.

use super::pixels::{Kind, converted, of_palette, unpacked};
use super::{Decoding, Format, corrupt, truncated, unsupported};
use crate::Image;
use crate::image::memory;
use uringload_core::{Error, Result};

const FORMAT: Format = Format::Bmp;

/// Bytes for a pixel: four of the file's channels, and the three that they become.
const BYTES_A_PIXEL: u64 = 4 + 3;

/// What the header says. Source: Microsoft's "Bitmap Header Types".
struct Header {
    /// Height and width.
    size: (u32, u32),
    is_upward: bool,
    bits: u16,
    compression: u32,
    /// Where the palette begins, its colours, and the bytes of each.
    palette: (usize, usize, usize),
    /// Where the pixels begin.
    start: usize,
}

const UNCOMPRESSED: u32 = 0;
const RUNS_OF_8: u32 = 1;
const RUNS_OF_4: u32 = 2;
const MASKED: u32 = 3;

pub fn decode(bytes: &[u8], how: &Decoding) -> Result<Image> {
    let header = header(bytes)?;
    let (size, bits) = (header.size, header.bits);
    how.limits.check(size.0, size.1, BYTES_A_PIXEL)?;
    let (kind, stored) = match (header.compression, bits) {
        (UNCOMPRESSED, 1 | 4 | 8) => (None, rows(bytes, &header)?),
        (RUNS_OF_8, 8) | (RUNS_OF_4, 4) => (None, runs(bytes, &header)?),
        (UNCOMPRESSED | MASKED, 16) => (Some(Kind::Rgb), of_16_bits(&rows(bytes, &header)?, masks(bytes, &header)?)?),
        (UNCOMPRESSED | MASKED, 24 | 32) => of_bytes(rows(bytes, &header)?, bits, masks(bytes, &header)?)?,
        (compression, _) => {
            return Err(unsupported(FORMAT, format_args!("compression {compression} of {bits} bits")).with_offset(30));
        }
    };
    if let Some(kind) = kind {
        return converted(FORMAT, size, kind, stored, how.color);
    }
    let (at, colors, color_bytes) = header.palette;
    // Missing colours are black: small files have fewer than their header says.
    let palette = bytes.get(at..).unwrap_or_default().chunks_exact(color_bytes).take(colors);
    let palette: Vec<[u8; 3]> = palette.map(|color| [color[2], color[1], color[0]]).collect();
    let is_packed = header.compression == UNCOMPRESSED && bits < 8;
    let indexes = if is_packed { unpacked(&stored, bits.into(), size)? } else { stored };
    let mut image = of_palette(size, indexes, &palette, how.color)?;
    if header.compression != UNCOMPRESSED && header.is_upward {
        image.flip_vertically();
    }
    Ok(image)
}

fn header(bytes: &[u8]) -> Result<Header> {
    let cut = || truncated(FORMAT, bytes);
    let short = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u16::from_le_bytes(*word));
    let long = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_le_bytes(*word));
    let len = long(14).ok_or_else(cut)?;
    let head = 14 + len as usize;
    // OS/2's first header has half of each number, and three bytes for a colour.
    let is_old = len == 12;
    let (width, height, bits, compression, colors) = if is_old {
        let [width, height, bits] = [18, 20, 24].map(short);
        let (width, height) = (width.ok_or_else(cut)?, height.ok_or_else(cut)?);
        (width.into(), height.into(), bits.ok_or_else(cut)?, UNCOMPRESSED, 0)
    } else if len >= 40 {
        let [width, height, compression, colors] = [18, 22, 30, 46].map(long);
        let (width, height) = (width.ok_or_else(cut)?.cast_signed(), height.ok_or_else(cut)?.cast_signed());
        (width, height, short(28).ok_or_else(cut)?, compression.ok_or_else(cut)?, colors.ok_or_else(cut)?)
    } else {
        return Err(unsupported(FORMAT, format_args!("a header of {len} bytes")).with_offset(14));
    };
    if width < 0 {
        return Err(corrupt(FORMAT, "it has a negative width").with_offset(18));
    }
    if !matches!(bits, 1 | 4 | 8 | 16 | 24 | 32) {
        return Err(unsupported(FORMAT, format_args!("{bits} bits a pixel")).with_offset(if is_old { 24 } else { 28 }));
    }
    let colors = if bits > 8 { 0 } else { (if colors == 0 { 1 << bits } else { colors.min(256) }) as usize };
    let color_bytes = if is_old { 3 } else { 4 };
    let start = match long(10).ok_or_else(cut)? as usize {
        // Some writers omit a part of the palette, or all of it, as Pillow knows.
        0 => head + color_bytes * colors + if compression == MASKED && len == 40 { 12 } else { 0 },
        start if start == head => head + color_bytes * colors,
        start => start,
    };
    let size = (height.unsigned_abs(), width.unsigned_abs());
    Ok(Header { size, is_upward: height > 0, bits, compression, palette: (head, colors, color_bytes), start })
}

/// The rows as they are stored, from the top down, without their padding.
fn rows(bytes: &[u8], header: &Header) -> Result<Vec<u8>> {
    let (height, width) = header.size;
    // Rows end at multiples of four bytes.
    let row = (u64::from(width) * u64::from(header.bits)).div_ceil(8);
    let (row, stride) = (row as usize, row.next_multiple_of(4) as usize);
    // The last row may lack its padding.
    let is_whole = |rest: &&[u8]| rest.len() >= (height as usize - 1) * stride + row;
    let rows = bytes.get(header.start..).filter(is_whole).ok_or_else(|| truncated(FORMAT, bytes))?;
    let mut stored = memory(height, u32::try_from(row).map_err(|_| corrupt(FORMAT, "its rows are too long"))?, 1, 0)?;
    for (y, to) in stored.chunks_exact_mut(row).enumerate() {
        let y = if header.is_upward { height as usize - 1 - y } else { y };
        to.copy_from_slice(&rows[y * stride..][..row]);
    }
    Ok(stored)
}

/// The masks of red, green and blue.
fn masks(bytes: &[u8], header: &Header) -> Result<[u32; 3]> {
    if header.compression != MASKED {
        return Ok(if header.bits == 16 { OF_5_BITS } else { OF_BYTES });
    }
    let masks = bytes.get(54..66).ok_or_else(|| truncated(FORMAT, bytes))?.as_chunks::<4>().0;
    Ok([0, 1, 2].map(|color| u32::from_le_bytes(masks[color])))
}

const OF_5_BITS: [u32; 3] = [0x7c00, 0x3e0, 0x1f];
const OF_6_BITS: [u32; 3] = [0xf800, 0x7e0, 0x1f];
const OF_BYTES: [u32; 3] = [0xff_0000, 0xff00, 0xff];

fn of_16_bits(stored: &[u8], masks: [u32; 3]) -> Result<Vec<u8>> {
    let green = match masks {
        OF_5_BITS => 31,
        OF_6_BITS => 63,
        masks => return Err(unsupported_masks(masks)),
    };
    let level = |pixel: u16, mask: u32, most: u32| ((u32::from(pixel) & mask) / (mask / most) * 255 / most) as u8;
    let pixels = stored.as_chunks::<2>().0.iter().map(|&pixel| u16::from_le_bytes(pixel));
    Ok(pixels
        .flat_map(|pixel| [level(pixel, masks[0], 31), level(pixel, masks[1], green), level(pixel, masks[2], 31)])
        .collect())
}

/// Pixels of three or four bytes. A fourth byte is not used as alpha.
fn of_bytes(mut stored: Vec<u8>, bits: u16, masks: [u32; 3]) -> Result<(Option<Kind>, Vec<u8>)> {
    let (channels, kind) = if bits == 24 { (3, Kind::Rgb) } else { (4, Kind::Rgba) };
    let place = |mask: u32| (0..channels).find(|byte| mask == 0xff << (8 * byte));
    // Without masks, those of bytes.
    let given = if masks == [0; 3] && bits == 32 { OF_BYTES } else { masks };
    let [Some(red), Some(green), Some(blue)] = given.map(place) else { return Err(unsupported_masks(masks)) };
    for pixel in stored.chunks_exact_mut(channels) {
        let [r, g, b] = [red, green, blue].map(|at| pixel[at]);
        pixel[..3].copy_from_slice(&[r, g, b]);
    }
    Ok((Some(kind), stored))
}

fn unsupported_masks([red, green, blue]: [u32; 3]) -> Error {
    unsupported(FORMAT, format_args!("colours of the masks {red:#x}, {green:#x} and {blue:#x}")).with_offset(54)
}

/// Run lengths as indexes into the palette, the rows as they are stored. Source: Microsoft's "Bitmap Compression";
/// where a file breaks its rules, Pillow's `BmpRleDecoder`.
fn runs(bytes: &[u8], header: &Header) -> Result<Vec<u8>> {
    // What no code covers is 0.
    let mut indexes = memory(header.size.0, header.size.1, 1, 0)?;
    let (width, len) = (header.size.1 as usize, indexes.len());
    let half = |byte: u8, number: usize| if number.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
    let of_4 = header.compression == RUNS_OF_4;
    let (mut at, mut done, mut x) = (header.start, 0, 0);
    while done < len {
        let Some(&[count, byte]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { break };
        at += 2;
        match (count, byte) {
            (0, 0) => {
                done = done.next_multiple_of(width);
                x = 0;
            }
            (0, 1) => break,
            (0, 2) => {
                let Some(&[right, up]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { break };
                at += 2;
                done = len.min(done + usize::from(right) + usize::from(up) * width);
                x = done % width;
            }
            (0, count) => {
                let taken = usize::from(count).min(len - done);
                let stored = if of_4 { taken.div_ceil(2) } else { taken };
                let Some(given) = bytes.get(at..).and_then(|rest| rest.get(..stored)) else { break };
                for (number, to) in indexes[done..][..taken].iter_mut().enumerate() {
                    *to = if of_4 { half(given[number / 2], number) } else { given[number] };
                }
                (at, done, x) = ((at + stored).next_multiple_of(2), done + taken, x + usize::from(count));
            }
            (count, byte) => {
                // No run goes beyond its row.
                let taken = usize::from(count).min(width.saturating_sub(x)).min(len - done);
                for (number, to) in indexes[done..][..taken].iter_mut().enumerate() {
                    *to = if of_4 { half(byte, number) } else { byte };
                }
                (done, x) = (done + taken, x + taken);
            }
        }
    }
    if done < len {
        return Err(truncated(FORMAT, bytes));
    }
    Ok(indexes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 3 by 2 pixels with a palette of 0, 10, 20 and so on in red.
    fn file(bits: u16, compression: u32, pixels: &[u8]) -> Vec<u8> {
        let mut file = b"BM\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        for number in [40_u32, 3, 2] {
            file.extend(number.to_le_bytes());
        }
        file.extend([1, 0].into_iter().chain(bits.to_le_bytes()));
        file.extend(compression.to_le_bytes().into_iter().chain([0; 20]));
        if bits <= 8 {
            file.extend((0..1_u32 << bits).flat_map(|color| [0, 0, (10 * color) as u8, 0]));
        }
        file.extend(pixels);
        file
    }

    fn reds(file: &[u8]) -> Result<Vec<u8>> {
        let image = decode(file, &Decoding::default())?;
        assert_eq!((image.height(), image.width()), (2, 3));
        Ok(image.pixels().iter().step_by(3).copied().collect())
    }

    #[test]
    fn run_lengths_begin_below() {
        // A run, the end of a row, literals, and the end.
        let of_8 = [2, 1, 0, 0, 0, 3, 4, 5, 6, 0, 0, 1];
        assert_eq!(reds(&file(8, RUNS_OF_8, &of_8)).unwrap(), [40, 50, 60, 10, 10, 0]);
        // Pixels by turns, a jump, and a run that would go beyond its row.
        let of_4 = [2, 0x12, 0, 2, 2, 0, 9, 0x34];
        assert_eq!(reds(&file(4, RUNS_OF_4, &of_4)).unwrap(), [0, 30, 40, 10, 20, 0]);
        // Without the padding of literals and the end, all pixels are there.
        for end in 0..9 {
            assert!(reds(&file(8, RUNS_OF_8, &of_8[..end])).is_err(), "{end}");
        }
    }

    #[test]
    fn sixteen_bits_are_fives() {
        let pixels = [[0_u16, 0x7c00, 0x4000, 0], [0x1f, 0x3ff, 0x2fff, 0]].map(|row| row.map(u16::to_le_bytes));
        let pixels = pixels.as_flattened().as_flattened();
        assert_eq!(reds(&file(16, UNCOMPRESSED, pixels)).unwrap(), [0, 0, 90, 0, 255, 131]);
    }
}

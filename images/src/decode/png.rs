//! PNG, by `png`.

use super::pixels::{Kind, converted, of_palette, spread, unpacked};
use super::{Color, Decoding, Format, corrupt, exif, read_error, truncated};
use crate::Image;
use crate::image::memory;
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits};
use std::io::Cursor;
use uringload_core::{Error, Result};

const FORMAT: Format = Format::Png;

/// Bytes for a pixel: four channels of 16 bits, and three to which they are converted.
const BYTES_A_PIXEL: u64 = 8 + 3;

/// Most bytes of what is no pixel: text, profiles and the like.
const METADATA_BYTES_MAX: usize = 8 << 20;

pub fn decode(bytes: &[u8], how: &Decoding) -> Result<(Image, u16)> {
    let wrong = |error: DecodingError| wrong(bytes, &error);
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: METADATA_BYTES_MAX });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let info = decoder.read_header_info().map_err(wrong)?;
    let size = (info.height, info.width);
    how.limits.check(size.0, size.1, BYTES_A_PIXEL)?;
    let mut reader = decoder.read_info().map_err(wrong)?;
    let bytes_needed = reader.output_buffer_size().ok_or_else(|| corrupt(FORMAT, "it is too large"))?;
    let row = u32::try_from(bytes_needed / size.0 as usize).map_err(|_| corrupt(FORMAT, "its rows are too long"))?;
    let mut pixels = memory(size.0, row, 1, 0)?;
    reader.next_frame(&mut pixels).map_err(wrong)?;
    let info = reader.info();
    let orientation = info.exif_metadata.as_ref().map_or(1, |exif| exif::orientation(exif));
    let (color, depth) = (info.color_type, info.bit_depth);
    if depth == BitDepth::Sixteen {
        pixels = pixels.as_chunks::<2>().0.iter().map(|level| level[0]).collect();
    } else if depth != BitDepth::Eight {
        pixels = unpacked(&pixels, depth as u32, size)?;
    }
    let image = match color {
        ColorType::Indexed => {
            let palette = info.palette.as_deref().unwrap_or_default();
            of_palette(size, pixels, palette.as_chunks().0, how.color)
        }
        ColorType::Grayscale => {
            if how.color != Color::Index {
                spread(&mut pixels, depth as u32);
            }
            converted(FORMAT, size, Kind::Gray, pixels, how.color)
        }
        ColorType::GrayscaleAlpha => converted(FORMAT, size, Kind::GrayAlpha, pixels, how.color),
        ColorType::Rgb => converted(FORMAT, size, Kind::Rgb, pixels, how.color),
        ColorType::Rgba => converted(FORMAT, size, Kind::Rgba, pixels, how.color),
    }?;
    Ok((image, orientation))
}

fn wrong(bytes: &[u8], error: &DecodingError) -> Error {
    match error {
        DecodingError::IoError(error) => read_error(FORMAT, bytes, error),
        // What `png` says where the stream of pixels ends with the file.
        error if error.to_string().to_lowercase().contains("unexpected end") => truncated(FORMAT, bytes),
        error => corrupt(FORMAT, error),
    }
}

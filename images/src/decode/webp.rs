//! WebP, by `image-webp`.

use super::pixels::{Kind, converted};
use super::{Decoding, Format, corrupt, exif, read_error};
use crate::Image;
use crate::image::memory;
use image_webp::{DecodingError, WebPDecoder};
use std::io::Cursor;
use uringload_core::{Error, Result};

const FORMAT: Format = Format::WebP;

/// Bytes for a pixel: four channels and the three that they become, and the decoder's own planes.
const BYTES_A_PIXEL: u64 = 4 + 3 + 8;

/// Most bytes of a chunk of metadata.
const METADATA_BYTES_MAX: usize = 8 << 20;

pub fn decode(bytes: &[u8], how: &Decoding) -> Result<(Image, u16)> {
    let wrong = |error: DecodingError| wrong(bytes, &error);
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(wrong)?;
    let (width, height) = decoder.dimensions();
    how.limits.check(height, width, BYTES_A_PIXEL)?;
    decoder.set_memory_limit(METADATA_BYTES_MAX);
    let kind = if decoder.has_alpha() { Kind::Rgba } else { Kind::Rgb };
    let mut pixels = memory(height, width, kind.channels() as u32, 0)?;
    if decoder.output_buffer_size() != Some(pixels.len()) {
        return Err(corrupt(FORMAT, "it has two headers, of different sizes"));
    }
    if decoder.is_animated() {
        decoder.read_frame(&mut pixels).map_err(wrong)?;
    } else {
        decoder.read_image(&mut pixels).map_err(wrong)?;
    }
    // An image is not lost because of broken metadata.
    let exif = decoder.exif_metadata().ok().flatten().unwrap_or_default();
    let xmp = decoder.xmp_metadata().ok().flatten().unwrap_or_default();
    let orientation = exif::orientation(&exif, &xmp);
    Ok((converted(FORMAT, (height, width), kind, pixels, how.color)?, orientation))
}

fn wrong(bytes: &[u8], error: &DecodingError) -> Error {
    match error {
        DecodingError::IoError(error) => read_error(FORMAT, bytes, error),
        error => corrupt(FORMAT, error),
    }
}

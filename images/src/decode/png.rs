//! PNG, by `png`.

use super::pixels::{Kind, converted, narrowed, of_palette, spread, unpacked};
use super::{Color, Decoding, Format, corrupt, exif, read_error, truncated};
use crate::Image;
use crate::image::memory;
use flate2::read::ZlibDecoder;
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits};
use std::borrow::Cow;
use std::io::{Cursor, Read};
use uringload_core::{Error, Result};

const FORMAT: Format = Format::Png;

/// Bytes for a pixel: four channels of 16 bits, twice, and three to which they are converted.
const BYTES_A_PIXEL: u64 = 8 + 8 + 3;

/// Most bytes of everything that is not pixels: text, profiles and the like.
const METADATA_BYTES_MAX: usize = 8 << 20;

/// Most bytes of one deflated text, as in Pillow.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// The first bytes of a file, and the checksum after a chunk.
const SIGNATURE_BYTES: usize = 8;
const CHECK_BYTES: usize = 4;

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
    let (color, depth) = (info.color_type, info.bit_depth);
    if depth == BitDepth::Sixteen {
        let levels: Vec<u16> = pixels.as_chunks::<2>().0.iter().map(|level| u16::from_be_bytes(*level)).collect();
        let is_gray = matches!(color, ColorType::Grayscale | ColorType::GrayscaleAlpha);
        pixels = narrowed(FORMAT, &levels, if is_gray { how.color } else { Color::Rgb })?;
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
    Ok((image, if how.orient { orientation(bytes) } else { 1 }))
}

/// The metadata before and after the pixels: `png` stops after the last pixel, and reads no text.
fn orientation(bytes: &[u8]) -> u16 {
    let (mut exif, mut raw, mut xmp) = (Cow::default(), None, Cow::default());
    let mut rest = bytes.get(SIGNATURE_BYTES..).unwrap_or_default();
    while let Some((head, behind)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(data) = behind.get(..length) else { break };
        match &head[4..] {
            b"eXIf" => exif = Cow::Borrowed(data),
            b"IEND" => break,
            kind => match text(kind, data) {
                Some((b"exif", text)) if kind == b"tEXt" => exif = text,
                Some((b"Raw profile type exif", text)) => raw = Some(text),
                Some((b"XML:com.adobe.xmp", text)) => xmp = text,
                _ => {}
            },
        }
        rest = behind.get(length + CHECK_BYTES..).unwrap_or_default();
    }
    if exif.is_empty() {
        exif = raw.and_then(|text| of_hex(&text)).unwrap_or_default().into();
    }
    exif::orientation(&exif, &xmp)
}

/// The key and the text of a chunk that has one, inflated.
fn text<'a>(kind: &[u8], data: &'a [u8]) -> Option<(&'a [u8], Cow<'a, [u8]>)> {
    let after_zero = |data: &'a [u8]| data.iter().position(|&byte| byte == 0).map(|at| (&data[..at], &data[at + 1..]));
    let (key, value) = after_zero(data)?;
    let (is_deflated, value) = match kind {
        b"tEXt" => (false, value),
        b"zTXt" => (true, value.get(1..)?),
        // After the two bytes of compression come a language and the key in it.
        b"iTXt" => (value.first()? != &0, after_zero(after_zero(value.get(2..)?)?.1)?.1),
        _ => return None,
    };
    if !is_deflated {
        return Some((key, Cow::Borrowed(value)));
    }
    let mut inflated = Vec::new();
    ZlibDecoder::new(value).take(TEXT_BYTES_MAX).read_to_end(&mut inflated).ok()?;
    Some((key, Cow::Owned(inflated)))
}

/// What ImageMagick writes: an empty line, a name, a length, and lines of hexadecimal digits.
fn of_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.split(|&byte| byte == b'\n').skip(3).flatten().copied().collect();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits.chunks_exact(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

fn wrong(bytes: &[u8], error: &DecodingError) -> Error {
    match error {
        DecodingError::IoError(error) => read_error(FORMAT, bytes, error),
        // The error of `png` if the stream of pixels ends with the file.
        error if error.to_string().to_lowercase().contains("unexpected end") => truncated(FORMAT, bytes),
        error => corrupt(FORMAT, error),
    }
}

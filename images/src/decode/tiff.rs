//! The first page of a TIFF, by `tiff`.

use super::pixels::{Kind, converted, of_palette, spread, unpacked};
use super::{Color, Decoding, Format, corrupt, exif, no_index, read_error, unsupported};
use crate::Image;
use std::io::Cursor;
use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::Tag;
use tiff::{ColorType, TiffError};
use uringload_core::{Error, Result};

const FORMAT: Format = Format::Tiff;

/// Bytes for a pixel: four channels of 16 bits, those of 8 bits, and three to which they are converted.
const BYTES_A_PIXEL: u64 = 8 + 4 + 3;

/// Most bytes of one tag's value.
const TAG_BYTES_MAX: usize = 1 << 20;

/// The tag of XMP metadata.
const XMP: Tag = Tag::Unknown(700);

pub fn decode(bytes: &[u8], how: &Decoding) -> Result<(Image, u16)> {
    let wrong = |error: TiffError| wrong(bytes, &error);
    let most = usize::try_from(how.limits.bytes).unwrap_or(usize::MAX);
    let mut limits = Limits::default();
    limits.decoding_buffer_size = most;
    limits.intermediate_buffer_size = most;
    limits.ifd_value_size = TAG_BYTES_MAX;
    let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(wrong)?.with_limits(limits);
    let (width, height) = decoder.dimensions().map_err(wrong)?;
    how.limits.check(height, width, BYTES_A_PIXEL)?;
    let size = (height, width);
    let color = decoder.colortype().map_err(wrong)?;
    let mut tag = |tag| decoder.find_tag(tag).ok().flatten();
    let orientation = match tag(Tag::Orientation) {
        Some(value) => value.into_u16().unwrap_or(1),
        None => exif::orientation(&[], &tag(XMP).and_then(|xmp| xmp.into_u8_vec().ok()).unwrap_or_default()),
    };
    let palette = decoder.get_tag_u16_vec(Tag::ColorMap).ok();
    let mut pixels = match decoder.read_image().map_err(wrong)? {
        DecodingResult::U8(pixels) => pixels,
        DecodingResult::U16(pixels) => pixels.iter().map(|level| (level >> 8) as u8).collect(),
        _ => return Err(unsupported(FORMAT, format_args!("samples of {color:?} that are no bytes"))),
    };
    let image = match color {
        ColorType::Palette(bits) => {
            let Some(palette) = palette else { return Err(corrupt(FORMAT, "it has no palette")) };
            if bits < 8 {
                pixels = packed(&pixels, bits, size)?;
            }
            let third = palette.len() / 3;
            let level = |at: usize| (palette[at] >> 8) as u8;
            let palette: Vec<_> = (0..third).map(|at| [level(at), level(third + at), level(2 * third + at)]).collect();
            of_palette(size, pixels, &palette, how.color)
        }
        ColorType::Gray(bits) => {
            if bits < 8 {
                pixels = packed(&pixels, bits, size)?;
                if how.color != Color::Index {
                    spread(&mut pixels, bits.into());
                }
            }
            whole(size, Kind::Gray, pixels, how)
        }
        ColorType::GrayA(_) => whole(size, Kind::GrayAlpha, pixels, how),
        ColorType::RGB(_) => whole(size, Kind::Rgb, pixels, how),
        ColorType::RGBA(_) => whole(size, Kind::Rgba, pixels, how),
        ColorType::CMYK(_) => whole(size, Kind::Cmyk, pixels, how),
        // A JPEG inside has been converted by its decoder.
        ColorType::YCbCr(_) => whole(size, Kind::Rgb, pixels, how),
        other => Err(unsupported(FORMAT, format_args!("the colours {other:?}"))),
    }?;
    Ok((image, orientation))
}

/// Pixels of 8 bits, once it is sure that all are there.
fn whole(size: (u32, u32), kind: Kind, pixels: Vec<u8>, how: &Decoding) -> Result<Image> {
    if kind.channels() > 2 && how.color == Color::Index {
        return Err(no_index(FORMAT));
    }
    if pixels.len() as u64 != u64::from(size.0) * u64::from(size.1) * kind.channels() as u64 {
        return Err(corrupt(FORMAT, "it has not as many bytes as its pixels need"));
    }
    converted(FORMAT, size, kind, pixels, how.color)
}

/// Pixels of fewer than 8 bits.
fn packed(pixels: &[u8], bits: u8, size: (u32, u32)) -> Result<Vec<u8>> {
    if !matches!(bits, 1 | 2 | 4) {
        return Err(unsupported(FORMAT, format_args!("{bits} bits a sample")));
    }
    let row = (u64::from(size.1) * u64::from(bits)).div_ceil(8);
    if pixels.len() as u64 != row * u64::from(size.0) {
        return Err(corrupt(FORMAT, "it has not as many bytes as its pixels need"));
    }
    unpacked(pixels, bits.into(), size)
}

fn wrong(bytes: &[u8], error: &TiffError) -> Error {
    match error {
        TiffError::IoError(error) => read_error(FORMAT, bytes, error),
        TiffError::UnsupportedError(what) => unsupported(FORMAT, what),
        error => corrupt(FORMAT, error),
    }
}

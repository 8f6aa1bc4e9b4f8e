//! JPEG, by `zune-jpeg`.
//!
//! As libjpeg and so Pillow do, a broken stream of codes gives whatever pixels it gives; a file that ends early is an
//! error. `zune-jpeg` fills what is missing with gray, so that the end is looked for here. Pillow takes a file that
//! lacks nothing but the end marker, where no decoder can tell that nothing else is missing: here it is an error.

use super::pixels::{Kind, converted};
use super::{Color, Decoding, Format, corrupt, exif, no_index, truncated, unsupported};
use crate::Image;
use crate::image::memory;
use uringload_core::Result;
use zune_core::bytestream::{ZByteIoError, ZCursor};
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

const FORMAT: Format = Format::Jpeg;

/// Bytes for a pixel: 4 channels, which are converted to 3 others, and a progressive file's coefficients of 16 bits,
/// as many as four planes without subsampling, which zune-jpeg pads for odd subsampling.
const BYTES_A_PIXEL: u64 = 4 + 3 + 2 * 4;

/// Most scans of a progressive file: 10 are usual. Each may be a few bytes that cost the work of all pixels.
const SCANS_MAX: usize = 100;

pub fn decode(bytes: &[u8], how: &Decoding) -> Result<(Image, u16)> {
    let head = Head::read(bytes)?;
    how.limits.check(head.height, head.width, BYTES_A_PIXEL)?;
    if how.color == Color::Index && head.components != 1 {
        return Err(no_index(FORMAT));
    }
    if !has_end(&bytes[head.scan..]) {
        return Err(truncated(FORMAT, bytes));
    }
    let options = DecoderOptions::default().set_strict_mode(false).jpeg_set_max_scans(SCANS_MAX);
    let options = options.set_max_width(usize::from(u16::MAX)).set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| wrong(bytes, error))?;
    let from = decoder.input_colorspace().unwrap_or(ColorSpace::YCbCr);
    let (to, kind) = match from {
        ColorSpace::Luma => (ColorSpace::Luma, Kind::Gray),
        ColorSpace::YCbCr | ColorSpace::RGB => (ColorSpace::RGB, Kind::Rgb),
        // As they are stored: the conversion is Pillow's and not the decoder's.
        ColorSpace::CMYK | ColorSpace::YCCK => (from, Kind::Cmyk),
        other => return Err(unsupported(FORMAT, format_args!("the colours {other:?}"))),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(to));
    let (height, width) = (head.height, head.width);
    let mut pixels = memory(height, width, kind.channels() as u32, 0)?;
    // What was checked is what is decoded, unless a second header says something else.
    if decoder.output_buffer_size() != Some(pixels.len()) {
        return Err(corrupt(FORMAT, "it has two headers, of different sizes"));
    }
    decoder.decode_into(&mut pixels).map_err(|error| wrong(bytes, error))?;
    let orientation = decoder.exif().map_or(1, |exif| exif::orientation(exif));
    match from {
        ColorSpace::YCCK => pixels.as_chunks_mut::<4>().0.iter_mut().for_each(|pixel| *pixel = of_ycck(*pixel)),
        // Adobe's files store paper and not ink, and Pillow takes all for Adobe's.
        ColorSpace::CMYK => pixels.iter_mut().for_each(|level| *level = 255 - *level),
        _ => {}
    }
    Ok((converted(FORMAT, (height, width), kind, pixels, how.color)?, orientation))
}

/// Ink from luminance, two chroma and paper, by libjpeg's conversion of YCC to RGB.
fn of_ycck([y, cb, cr, k]: [u8; 4]) -> [u8; 4] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let clip = |level: i32| level.clamp(0, 255) as u8;
    let half = 1 << 15;
    let red = y + ((91881 * cr + half) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + half) >> 16);
    let blue = y + ((116_130 * cb + half) >> 16);
    [clip(red), clip(green), clip(blue), 255 - k]
}

/// What stands before the first scan.
struct Head {
    height: u32,
    width: u32,
    components: u8,
    /// Where the first scan's segment starts.
    scan: usize,
}

impl Head {
    /// Walks over the segments up to the first scan.
    fn read(bytes: &[u8]) -> Result<Head> {
        let cut = || truncated(FORMAT, bytes);
        let mut at = 2;
        let mut frame = None;
        loop {
            // Any number of fill bytes may stand in front of a marker, and libjpeg skips garbage between segments.
            let found = bytes
                .get(at..)
                .ok_or_else(cut)?
                .windows(2)
                .position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff));
            at += found.ok_or_else(cut)?;
            let marker = bytes[at + 1];
            // Markers without a length.
            if matches!(marker, 0x01 | 0xd0..=0xd8) {
                at += 2;
                continue;
            }
            if marker == 0xd9 {
                return Err(corrupt(FORMAT, "it has no scan").with_offset(at as u64));
            }
            let length = bytes.get(at + 2..at + 4).ok_or_else(cut)?;
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let payload = bytes.get(at + 4..).ok_or_else(cut)?;
            match marker {
                0xc3 | 0xc5..=0xc7 | 0xcb | 0xcd..=0xcf => {
                    let kind = "a lossless or hierarchical frame";
                    return Err(unsupported(FORMAT, kind).with_offset(at as u64));
                }
                0xc9 | 0xca => return Err(unsupported(FORMAT, "arithmetic coding").with_offset(at as u64)),
                0xc0..=0xc2 => {
                    let head = payload.first_chunk::<6>().ok_or_else(cut)?;
                    if head[0] != 8 {
                        let depth = format!("{} bits a sample", head[0]);
                        return Err(unsupported(FORMAT, depth).with_offset(at as u64));
                    }
                    let side = |high: u8, low: u8| u32::from(u16::from_be_bytes([high, low]));
                    frame = Some((side(head[1], head[2]), side(head[3], head[4]), head[5]));
                }
                0xda => {
                    let no_frame = || corrupt(FORMAT, "a scan comes before the frame").with_offset(at as u64);
                    let (height, width, components) = frame.ok_or_else(no_frame)?;
                    return Ok(Head { height, width, components, scan: at });
                }
                _ => {}
            }
            at += 2 + length.max(2);
        }
    }
}

/// Whether the marker of the end is there.
fn has_end(scans: &[u8]) -> bool {
    scans.windows(2).rev().any(|pair| pair == [0xff, 0xd9])
}

fn wrong(bytes: &[u8], error: DecodeErrors) -> uringload_core::Error {
    match error {
        DecodeErrors::ExhaustedData | DecodeErrors::IoErrors(ZByteIoError::NotEnoughBytes(..)) => {
            truncated(FORMAT, bytes)
        }
        DecodeErrors::Unsupported(scheme) => unsupported(FORMAT, format_args!("{scheme:?}")),
        error => corrupt(FORMAT, error),
    }
}

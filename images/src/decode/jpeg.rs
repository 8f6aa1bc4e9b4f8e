//! JPEG, by libjpeg-turbo where there is one, else by `zune-jpeg`.
//!
//! As in libjpeg, and so in Pillow, a broken stream of codes decodes to some pixels; a file that ends early is an
//! error. Both decoders fill missing pixels with gray, so this module looks for the end. Pillow accepts a file that
//! lacks only the end marker, but no decoder can know that nothing else is missing: here it is an error.

use super::cut::{Cut, Gain};
use super::pixels::{Kind, converted};
use super::turbo::{self, JpegBuffers};
use super::{Color, Decoded, Decoding, Format, corrupt, exif, no_index, truncated, unsupported};
use crate::image::memory;
use crate::view::View;
use crate::{Image, Region};
use std::borrow::Cow;
use uringload_core::Result;
use zune_core::bytestream::{ZByteIoError, ZCursor};
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

const FORMAT: Format = Format::Jpeg;

/// Bytes for a pixel: 3 channels, and the 3 that they become.
const BYTES_A_PIXEL: u64 = 3 + 3;

/// The same for a file with 4 channels, which become 3.
const BYTES_A_PIXEL_OF_FOUR: u64 = 4 + 3;

/// Bytes of a coefficient: if a file spreads blocks over several scans, coefficients are kept until the last one.
const COEFFICIENT_BYTES: u64 = 2;

/// Bytes for a column of each component in the current rows: 8 rows of 4 samples of 16 bits, before and after chroma is
/// interpolated, twice.
const STRIP_BYTES: u64 = 8 * 4 * 2 * 2 * 2;

/// Most scans of a progressive file: 10 are usual. Each may be a few bytes that cost the work of all pixels.
pub const SCANS_MAX: usize = 100;

/// Version of the embedded decoder, as in Cargo.toml.
pub const ZUNE_VERSION: &str = "0.5";

/// The first bytes of a segment with XMP.
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

/// The image as it is stored, and its orientation.
pub fn decode(bytes: &[u8], how: &Decoding, buffers: &mut JpegBuffers) -> Result<(Image, u16)> {
    let head = Head::checked(bytes, how)?;
    let image = match turbo::chosen(how.jpeg)? {
        Some(library) => buffers.whole(library, bytes, (head.height, head.width), how.color)?,
        None => embedded(bytes, &head, how, buffers)?,
    };
    Ok((image, head.orientation))
}

/// Rows and columns of the image as it is seen.
pub fn dimensions(bytes: &[u8], how: &Decoding) -> Result<(u32, u32)> {
    let head = Head::checked(bytes, how)?;
    let is_turned = how.orient && exif::is_turned(head.orientation);
    Ok(if is_turned { (head.width, head.height) } else { (head.height, head.width) })
}

/// Rows and columns of the image as it is stored, if every decoder knows its kind.
pub fn usual(bytes: &[u8], how: &Decoding) -> Option<(u32, u32)> {
    usual_head(bytes, how).map(|head| (head.height, head.width))
}

/// The same, if the image is also seen as it is stored.
pub fn usual_upright(bytes: &[u8], how: &Decoding) -> Option<(u32, u32)> {
    let head = usual_head(bytes, how).filter(|head| !how.orient || head.orientation == 1)?;
    Some((head.height, head.width))
}

fn usual_head(bytes: &[u8], how: &Decoding) -> Option<Head> {
    let head = Head::checked(bytes, how).ok()?;
    let is_usual = head.components == 3 && head.arithmetic.is_none() && !head.is_split;
    (is_usual && head.signs.agree_on_ycc()).then_some(head)
}

/// The image of a file, turned to its orientation. `image` has its pixels as they are stored.
pub fn as_seen(bytes: &[u8], image: Image, how: &Decoding) -> Result<Image> {
    let head = Head::read(bytes)?;
    if (image.height(), image.width()) != (head.height, head.width) {
        return Err(corrupt(FORMAT, "it has two headers, of different sizes"));
    }
    Ok(if how.orient { exif::oriented(image, head.orientation) } else { image })
}

/// At least the part of the image that a view uses, turned to its orientation. The view is for an image of the size
/// `source`; without a view, all of it.
pub fn part(
    bytes: &[u8],
    how: &Decoding,
    (source, view): ((u32, u32), Option<&View>),
    buffers: &mut JpegBuffers,
) -> Result<Decoded> {
    let head = Head::checked(bytes, how)?;
    let stored = (head.height, head.width);
    let orientation = if how.orient { head.orientation } else { 1 };
    let library = turbo::chosen(how.jpeg)?;
    let seen = if exif::is_turned(orientation) { (head.width, head.height) } else { stored };
    // A view of another size is refused when its plan is run.
    if let Some(view) = view.filter(|_| source == seen) {
        // A turned image starts at its other end, which may be within a pixel of the smaller one. The embedded decoder
        // knows one size.
        let is_whole_size = how.exact || orientation != 1 || library.is_none();
        let divisor = if is_whole_size { 1 } else { view.divisor() };
        if let Some(used) = view.used(divisor).filter(|used| used.h > 0 && used.w > 0) {
            let used = exif::stored(used, stored, orientation);
            let made = match library {
                Some(library) => buffers.part(library, bytes, stored, how, (divisor, used))?,
                None => embedded_part(bytes, stored, used, how, buffers),
            };
            if let Some((image, region)) = made {
                let image = exif::oriented(image, orientation);
                let region = exif::seen(region, stored, orientation);
                return Ok(Decoded { image, place: (region.y, region.x), divisor, is_whole: false });
            }
        }
    }
    let image = match library {
        Some(library) => buffers.whole(library, bytes, stored, how.color)?,
        None => embedded(bytes, &head, how, buffers)?,
    };
    Ok(Decoded::whole(exif::oriented(image, orientation)))
}

/// At least `used` of an image of that size, and its place. `None` if the whole image must be decoded.
fn embedded_part(
    bytes: &[u8],
    size: (u32, u32),
    used: Region,
    how: &Decoding,
    buffers: &mut JpegBuffers,
) -> Option<(Image, Region)> {
    // It always interpolates chroma.
    let cut = Cut { seen: used, has_margin: true, gain: Gain::OfAll };
    buffers.of_cut(bytes, size, (&cut, how), |buffers, file, place| {
        let image = embedded(file, &Head::read(file).ok()?, how, buffers).ok()?;
        let region = Region { y: place.y, x: place.x, h: image.height(), w: image.width() };
        Some((image, region))
    })
}

/// Most bytes that decoding a file takes.
pub fn need(bytes: &[u8]) -> Option<u64> {
    Head::read(bytes).ok().map(|head| head.bytes)
}

fn embedded(bytes: &[u8], head: &Head, how: &Decoding, buffers: &mut JpegBuffers) -> Result<Image> {
    // It allocates new memory, and the limit is for all that an image takes.
    buffers.shrink_to(0);
    if let Some(at) = head.arithmetic {
        return Err(unsupported(FORMAT, "arithmetic coding").with_offset(at as u64));
    }
    if head.is_split {
        // zune-jpeg 0.5.15 gives other pixels, and no error, where chroma has fewer samples.
        return Err(unsupported(FORMAT, "a scan for each component").with_offset(head.scan as u64));
    }
    let options = DecoderOptions::default().set_strict_mode(false).jpeg_set_max_scans(SCANS_MAX);
    let options = options.set_max_width(usize::from(u16::MAX)).set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| wrong(bytes, error))?;
    let from = match (head.components, decoder.input_colorspace().unwrap_or(ColorSpace::YCbCr)) {
        // It changes its mind about four colours in three components when it decodes.
        (3, ColorSpace::CMYK) => ColorSpace::RGB,
        (3, ColorSpace::YCCK) => ColorSpace::YCbCr,
        (_, from) => from,
    };
    let is = head.signs.colors(head.components);
    let (to, kind) = match (head.components, from) {
        (1, ColorSpace::Luma) => (ColorSpace::Luma, Kind::Gray),
        // If the decoder takes it for another kind, it stays as it is stored.
        (3, ColorSpace::YCbCr | ColorSpace::RGB) => (if from == is { ColorSpace::RGB } else { from }, Kind::Rgb),
        // As they are stored: Pillow's conversion is used, not the decoder's.
        (4, ColorSpace::CMYK | ColorSpace::YCCK) => (from, Kind::Cmyk),
        (_, other) => return Err(unsupported(FORMAT, format_args!("the colours {other:?}"))),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(to));
    let (height, width) = (head.height, head.width);
    let mut pixels = memory(height, width, kind.channels() as u32, 0)?;
    // The header that was checked is the one that is decoded, unless a second header differs.
    if decoder.output_buffer_size() != Some(pixels.len()) {
        return Err(corrupt(FORMAT, "it has two headers, of different sizes"));
    }
    decoder.decode_into(&mut pixels).map_err(|error| wrong(bytes, error))?;
    match is {
        ColorSpace::YCbCr if from != is => {
            pixels.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| *pixel = of_ycc(*pixel));
        }
        ColorSpace::YCCK => pixels.as_chunks_mut::<4>().0.iter_mut().for_each(|pixel| *pixel = of_ycck(*pixel)),
        // Adobe's files store paper instead of ink, and Pillow treats every file as Adobe's.
        ColorSpace::CMYK => pixels.iter_mut().for_each(|level| *level = 255 - *level),
        _ => {}
    }
    converted(FORMAT, (height, width), kind, pixels, how.color)
}

/// Ink from luminance, two chroma and paper, by libjpeg's conversion of YCC to RGB.
fn of_ycck([y, cb, cr, k]: [u8; 4]) -> [u8; 4] {
    let [red, green, blue] = of_ycc([y, cb, cr]);
    [red, green, blue, 255 - k]
}

fn of_ycc([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let clip = |level: i32| level.clamp(0, 255) as u8;
    let half = 1 << 15;
    let red = y + ((91881 * cr + half) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + half) >> 16);
    let blue = y + ((116_130 * cb + half) >> 16);
    [clip(red), clip(green), clip(blue)]
}

/// The segments that say which colours the components are.
struct Signs {
    is_jfif: bool,
    /// The transform of Adobe's segment.
    adobe: Option<u8>,
    /// Names of the first three components.
    names: Option<[u8; 3]>,
    /// Whether only segments come before the first scan.
    is_plain: bool,
}

impl Signs {
    /// The colours, as libjpeg decides (`default_decompress_parms`): if signs contradict each other, the first counts.
    fn colors(&self, components: u8) -> ColorSpace {
        match (components, self.adobe) {
            (1, _) => ColorSpace::Luma,
            (3, _) if self.is_jfif => ColorSpace::YCbCr,
            (3, Some(0)) => ColorSpace::RGB,
            (3, None) if self.names == Some(*b"RGB") => ColorSpace::RGB,
            (3, _) => ColorSpace::YCbCr,
            (_, None | Some(0)) => ColorSpace::CMYK,
            _ => ColorSpace::YCCK,
        }
    }

    /// Whether all signs say that three components are luminance and chroma, so that every decoder agrees.
    fn agree_on_ycc(&self) -> bool {
        let named = self.names.is_some_and(|names| names != *b"RGB");
        self.is_plain && named && matches!(self.adobe, None | Some(1))
    }
}

/// What comes before the first scan.
struct Head {
    height: u32,
    width: u32,
    components: u8,
    /// Most bytes that decoding takes.
    bytes: u64,
    /// Whether a file that is not progressive has its components in several scans.
    is_split: bool,
    /// Where the first scan's segment starts.
    scan: usize,
    /// The start of a frame with arithmetic coding, which only libjpeg-turbo knows.
    arithmetic: Option<usize>,
    /// As EXIF says it: 1 to 8.
    orientation: u16,
    signs: Signs,
}

impl Head {
    /// For a file that may be decoded: within the limits, and whole.
    fn checked(bytes: &[u8], how: &Decoding) -> Result<Head> {
        let head = Head::read(bytes)?;
        how.limits.check_bytes(head.height, head.width, head.bytes)?;
        if how.color == Color::Index && head.components != 1 {
            return Err(no_index(FORMAT));
        }
        if !has_end(&bytes[head.scan..]) {
            return Err(truncated(FORMAT, bytes));
        }
        Ok(head)
    }

    /// Walks over the segments up to the first scan.
    fn read(bytes: &[u8]) -> Result<Head> {
        let cut = || truncated(FORMAT, bytes);
        let mut at = 2;
        let (mut frame, mut arithmetic) = (None, None);
        let (mut exif, mut xmp) = (Cow::Borrowed(&[][..]), &[][..]);
        let mut signs = Signs { is_jfif: false, adobe: None, names: None, is_plain: true };
        loop {
            // Any number of fill bytes may precede a marker, and libjpeg skips garbage between segments.
            let found = bytes
                .get(at..)
                .ok_or_else(cut)?
                .windows(2)
                .position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff));
            let found = found.ok_or_else(cut)?;
            signs.is_plain &= bytes[at..at + found].iter().all(|&byte| byte == 0xff);
            at += found;
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
                0xc0..=0xc2 | 0xc9 | 0xca => {
                    arithmetic = matches!(marker, 0xc9 | 0xca).then_some(at);
                    let head = payload.first_chunk::<6>().ok_or_else(cut)?;
                    if head[0] != 8 {
                        let depth = format!("{} bits a sample", head[0]);
                        return Err(unsupported(FORMAT, depth).with_offset(at as u64));
                    }
                    let side = |high: u8, low: u8| u32::from(u16::from_be_bytes([high, low]));
                    signs.names = payload.get(6..15).map(|list| [list[0], list[3], list[6]]);
                    let factors = payload[6..].chunks_exact(3).take(head[5].into()).map(|component| component[1]);
                    let size = (side(head[1], head[2]), side(head[3], head[4]));
                    let has_scans = matches!(marker, 0xc2 | 0xca);
                    frame = Some((size, head[5], coefficients(size, factors), has_scans));
                }
                0xe0 => signs.is_jfif |= length >= 16 && payload.starts_with(b"JFIF\0"),
                0xee if length >= 14 && payload.starts_with(b"Adobe") => {
                    signs.adobe = payload.get(11).copied().or(signs.adobe);
                }
                0xe1 => {
                    let segment = &payload[..length.saturating_sub(2).min(payload.len())];
                    match (segment.strip_prefix(b"Exif\0\0"), segment.strip_prefix(XMP)) {
                        // What does not fit in one segment continues in the next.
                        (Some(more), _) if !exif.is_empty() => exif.to_mut().extend_from_slice(more),
                        (Some(first), _) => exif = Cow::Borrowed(first),
                        (None, Some(found)) => xmp = found,
                        (None, None) => {}
                    }
                }
                0xda => {
                    let no_frame = || corrupt(FORMAT, "a scan comes before the frame").with_offset(at as u64);
                    let ((height, width), components, coefficients, has_scans) = frame.ok_or_else(no_frame)?;
                    let is_split = !has_scans && payload.first() != Some(&components);
                    let orientation = exif::orientation(&exif, xmp);
                    let a_pixel = if components == 4 { BYTES_A_PIXEL_OF_FOUR } else { BYTES_A_PIXEL };
                    let kept = if has_scans || is_split { COEFFICIENT_BYTES * coefficients } else { 0 };
                    let strip = u64::from(components) * u64::from(width).next_multiple_of(64) * STRIP_BYTES;
                    let bytes = u64::from(height) * u64::from(width) * a_pixel + kept + strip;
                    let scan = at;
                    return Ok(Head {
                        height,
                        width,
                        components,
                        bytes,
                        is_split,
                        scan,
                        arithmetic,
                        orientation,
                        signs,
                    });
                }
                _ => {}
            }
            at += 2 + length.max(2);
        }
    }
}

/// The number of coefficients of an image with these sampling factors, in whole blocks.
fn coefficients((height, width): (u32, u32), factors: impl Iterator<Item = u8> + Clone) -> u64 {
    // Decoders refuse a factor of 0.
    let split = |factor: u8| (u64::from(factor >> 4).max(1), u64::from(factor & 15).max(1));
    let most = factors.clone().map(split).fold((1, 1), |most, (h, v)| (most.0.max(h), most.1.max(v)));
    let blocks = u64::from(width).div_ceil(8 * most.0) * u64::from(height).div_ceil(8 * most.1);
    64 * blocks * factors.map(split).map(|(h, v)| h * v).sum::<u64>()
}

/// Whether the end marker is there.
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

//! The first page of a TIFF. `tiff` reads its directory and its samples; this module decides which samples those are,
//! and which colours they are.

mod inside;
mod plain;

use super::pixels::{Kind, converted, narrowed, of_palette, spread, unpacked};
use super::turbo::JpegBuffers;
use super::{Color, Decoding, Format, corrupt, exif, no_index, read_error, truncated, unsupported};
use crate::Image;
use std::io::Cursor;
use tiff::decoder::{ChunkType, Decoder, DecodingResult, Limits};
use tiff::tags::{CompressionMethod, Tag};
use tiff::{TiffError, TiffResult};
use uringload_core::{Error, ErrorKind, Result};

const FORMAT: Format = Format::Tiff;

/// Bytes for a pixel besides its samples: four of 8 bits, and three to which they are converted.
const BYTES_A_PIXEL: u64 = 4 + 3;

/// Most bytes of one tag's value.
const TAG_BYTES_MAX: usize = 1 << 20;

/// The tag of XMP metadata.
const XMP: Tag = Tag::Unknown(700);

/// Most samples of a pixel: colours, alpha and whatever else a program keeps.
const SAMPLES_MAX: u64 = 8;

/// Photometric interpretations.
const WHITE_IS_ZERO: u16 = 0;
const BLACK_IS_ZERO: u16 = 1;
const RGB: u16 = 2;
const PALETTE: u16 = 3;
const CMYK: u16 = 5;
const YCBCR: u16 = 6;

/// The value of the tag for an extra sample with whose alpha the colours were multiplied.
const ASSOCIATED: u16 = 1;

type File<'a> = Decoder<Cursor<&'a [u8]>>;

/// The directory's description of the samples.
struct Page {
    /// Rows and columns.
    size: (u32, u32),
    photometric: u16,
    bits: u8,
    samples: u64,
    /// The kind of the first sample that is not a colour.
    extra: Option<u16>,
    compression: CompressionMethod,
    is_planar: bool,
    is_tiled: bool,
    /// Whether the lowest bit of a byte is the first one.
    is_reversed: bool,
}

pub fn decode(bytes: &[u8], how: &Decoding, buffers: &mut JpegBuffers) -> Result<(Image, u16)> {
    let wrong = |error: TiffError| wrong(bytes, &error);
    let mut file = opened(bytes, how).map_err(wrong)?;
    let page = Page::read(&mut file).map_err(wrong)?;
    let kind = page.kind()?;
    how.limits.check_bytes(page.size.0, page.size.1, page.need(bytes))?;
    if kind.channels() > 2 && how.color == Color::Index {
        return Err(no_index(FORMAT));
    }
    let mut tag = |tag| file.find_tag(tag).ok().flatten();
    let orientation = match tag(Tag::Orientation) {
        Some(value) => value.into_u16().unwrap_or(1),
        None => exif::orientation(&[], &tag(XMP).and_then(|xmp| xmp.into_u8_vec().ok()).unwrap_or_default()),
    };
    let image = if page.compression == CompressionMethod::ModernJPEG {
        inside::decode(bytes, &mut file, &page, how, buffers)?
    } else {
        let palette = if page.photometric == PALETTE { file.get_tag_u16_vec(Tag::ColorMap).ok() } else { None };
        let samples = plain::samples(bytes, &mut file, &page, how)?;
        of_samples(&page, kind, samples, palette.as_deref(), how.color)?
    };
    Ok((image, orientation))
}

/// A file whose directory has been read.
fn opened<'a>(bytes: &'a [u8], how: &Decoding) -> TiffResult<File<'a>> {
    let most = usize::try_from(how.limits.bytes).unwrap_or(usize::MAX);
    let mut limits = Limits::default();
    limits.decoding_buffer_size = most;
    limits.intermediate_buffer_size = most;
    limits.ifd_value_size = TAG_BYTES_MAX;
    Ok(Decoder::new(Cursor::new(bytes))?.with_limits(limits))
}

impl Page {
    fn read(file: &mut File<'_>) -> TiffResult<Page> {
        let (width, height) = file.dimensions()?;
        let photometric = file.find_tag_unsigned(Tag::PhotometricInterpretation)?.unwrap_or(u16::MAX);
        let bits = file.find_tag_unsigned_vec::<u8>(Tag::BitsPerSample)?.and_then(|bits| bits.first().copied());
        let formats = file.find_tag_unsigned_vec::<u16>(Tag::SampleFormat)?.unwrap_or_default();
        let compression = file.find_tag_unsigned(Tag::Compression)?.unwrap_or(1);
        let extra = file.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples)?.and_then(|extra| extra.first().copied());
        Ok(Page {
            size: (height, width),
            // Samples that are not unsigned numbers have no colours here.
            photometric: if formats.iter().all(|&format| format == 1) { photometric } else { u16::MAX },
            bits: bits.unwrap_or(1),
            samples: file.find_tag_unsigned(Tag::SamplesPerPixel)?.unwrap_or(1),
            extra,
            compression: CompressionMethod::from_u16_exhaustive(compression),
            is_planar: file.find_tag_unsigned(Tag::PlanarConfiguration)? == Some(2_u16),
            is_tiled: file.get_chunk_type() == ChunkType::Tile,
            is_reversed: file.find_tag_unsigned(Tag::FillOrder)? == Some(2_u16),
        })
    }

    /// Most bytes that decoding takes: a copy of the file, and the samples in planes and together.
    fn need(&self, file: &[u8]) -> u64 {
        let pixels = u64::from(self.size.0) * u64::from(self.size.1);
        let a_pixel = 2 * self.samples * u64::from(self.bits.div_ceil(8)) + BYTES_A_PIXEL;
        pixels.saturating_mul(a_pixel).saturating_add(file.len() as u64)
    }

    /// The kind of pixel, among those that Pillow knows.
    fn kind(&self) -> Result<Kind> {
        let Page { bits, samples, extra, .. } = *self;
        let is_jpeg = self.compression == CompressionMethod::ModernJPEG;
        let kind = match (self.photometric, bits, samples) {
            _ if self.compressed().is_none() || samples > SAMPLES_MAX => None,
            _ if is_jpeg && (bits != 8 || self.is_planar) => None,
            // `tiff` 0.11 panics at the padding of such tiles.
            _ if self.is_planar && self.is_tiled && samples > 1 => None,
            (WHITE_IS_ZERO, 1 | 2 | 4 | 8, 1) => Some(Kind::Gray),
            (BLACK_IS_ZERO, 1 | 2 | 4 | 8 | 16, 1) => Some(Kind::Gray),
            (RGB, 8, 3) if is_jpeg => Some(Kind::Rgb),
            (YCBCR, 8, 3) if is_jpeg && !self.is_reversed => Some(Kind::Rgb),
            // No other kind is common in JPEG.
            _ if is_jpeg => None,
            (BLACK_IS_ZERO, 8, 2) if extra != Some(ASSOCIATED) => Some(Kind::GrayAlpha),
            (PALETTE, 1 | 2 | 4 | 8, 1) => Some(Kind::Gray),
            (PALETTE, 8, 2) if extra != Some(ASSOCIATED) => Some(Kind::GrayAlpha),
            (RGB, 8 | 16, 3) => Some(Kind::Rgb),
            (RGB, 8, 4..) | (RGB, 16, 4) => Some(Kind::Rgba),
            (CMYK, 8, 4..) if extra.unwrap_or(0) == 0 => Some(Kind::Cmyk),
            (CMYK, 16, 4) => Some(Kind::Cmyk),
            _ => None,
        };
        let is_known = |_: &Kind| !self.is_reversed || bits <= 8 && matches!(samples, 1 | 3);
        kind.filter(is_known).ok_or_else(|| unsupported(FORMAT, self.described()))
    }

    /// The compression, if it is known here.
    fn compressed(&self) -> Option<&'static str> {
        match self.compression {
            CompressionMethod::None => Some("not compressed"),
            CompressionMethod::LZW => Some("LZW"),
            CompressionMethod::Deflate | CompressionMethod::OldDeflate => Some("Deflate"),
            CompressionMethod::PackBits => Some("PackBits"),
            CompressionMethod::Fax4 => Some("CCITT Group 4"),
            CompressionMethod::ModernJPEG => Some("JPEG"),
            CompressionMethod::ZSTD if cfg!(feature = "zstd") => Some("ZSTD"),
            _ => None,
        }
    }

    /// The same in words.
    fn described(&self) -> String {
        let of = match self.photometric {
            WHITE_IS_ZERO => "gray whose white is 0",
            BLACK_IS_ZERO => "gray",
            RGB => "RGB",
            PALETTE => "a palette",
            CMYK => "CMYK",
            YCBCR => "YCbCr",
            8..=10 => "L*a*b*",
            _ => "other colours, or numbers with a sign or a fraction",
        };
        let alpha = if self.extra == Some(ASSOCIATED) { ", multiplied by alpha" } else { "" };
        let planes = match (self.is_planar, self.is_tiled) {
            (true, true) => " in planes of tiles",
            (true, false) => " in planes",
            _ => "",
        };
        let reversed = if self.is_reversed { ", the lowest bit first" } else { "" };
        let compressed = match self.compression {
            CompressionMethod::JPEG => "JPEG of the old kind".into(),
            CompressionMethod::Huffman => "CCITT run lengths".into(),
            CompressionMethod::Fax3 => "CCITT Group 3".into(),
            CompressionMethod::Unknown(34925) => "LZMA".into(),
            other => self.compressed().map_or_else(|| format!("{other:?}"), str::to_owned),
        };
        let Page { bits, samples, .. } = self;
        format!("{of}{alpha}, {samples} samples of {bits} bits{planes}{reversed}, {compressed}")
    }
}

/// The image of all samples, those of a pixel together.
fn of_samples(
    page: &Page,
    kind: Kind,
    samples: DecodingResult,
    palette: Option<&[u16]>,
    color: Color,
) -> Result<Image> {
    let (bits, size) = (u32::from(page.bits), page.size);
    let row = (u64::from(size.1) * page.samples * u64::from(bits.min(8))).div_ceil(8);
    let found = match &samples {
        DecodingResult::U8(levels) => levels.len(),
        DecodingResult::U16(levels) => levels.len(),
        _ => 0,
    };
    if found as u64 != row * u64::from(size.0) {
        return Err(corrupt(FORMAT, "it has not as many bytes as its pixels need"));
    }
    let mut levels = match samples {
        DecodingResult::U8(levels) if bits < 8 => unpacked(&levels, bits, size)?,
        DecodingResult::U8(levels) => levels,
        DecodingResult::U16(levels) => narrowed(FORMAT, &levels, if kind.channels() < 3 { color } else { Color::Rgb })?,
        _ => return Err(unsupported(FORMAT, page.described())),
    };
    let (all, kept) = (page.samples as usize, kind.channels());
    if all > kept {
        levels = levels.chunks_exact(all).flat_map(|pixel| &pixel[..kept]).copied().collect();
    }
    if page.photometric == WHITE_IS_ZERO {
        let white = ((1_u16 << bits) - 1) as u8;
        levels.iter_mut().for_each(|level| *level = white - *level);
    }
    if kind == Kind::Rgba && page.extra == Some(ASSOCIATED) {
        levels.as_chunks_mut().0.iter_mut().for_each(divide);
    }
    if page.photometric == PALETTE {
        let Some(palette) = palette else { return Err(corrupt(FORMAT, "it has no palette")) };
        let third = palette.len() / 3;
        let level = |at: usize| (palette[at] >> 8) as u8;
        let palette: Vec<_> = (0..third).map(|at| [level(at), level(third + at), level(2 * third + at)]).collect();
        let indexes = if kept > 1 { levels.chunks_exact(kept).map(|pixel| pixel[0]).collect() } else { levels };
        return of_palette(size, indexes, &palette, color);
    }
    if color != Color::Index {
        spread(&mut levels, bits);
    }
    converted(FORMAT, size, kind, levels, color)
}

/// Divides colours by the alpha that they were multiplied with, as Pillow does.
fn divide(pixel: &mut [u8; 4]) {
    let alpha = u32::from(pixel[3]);
    let divided = |level: u8| (u32::from(level) * 255).checked_div(alpha).unwrap_or(0).min(255) as u8;
    pixel[..3].iter_mut().for_each(|level| *level = divided(*level));
}

fn wrong(bytes: &[u8], error: &TiffError) -> Error {
    match error {
        TiffError::IoError(error) => read_error(FORMAT, bytes, error),
        TiffError::LimitsExceeded => {
            Error::new(ErrorKind::MemoryLimit, "the TIFF needs more bytes to be decoded than are allowed")
                .with_remedy("raise the limit of bytes if you trust it")
        }
        TiffError::UnsupportedError(what) => {
            Error::new(ErrorKind::Unavailable, format!("the TIFF is of a kind that is not supported: {what}"))
                .with_remedy("convert it to another format or kind")
        }
        error => corrupt(FORMAT, error),
    }
}

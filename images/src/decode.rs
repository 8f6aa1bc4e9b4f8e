//! From the bytes of a file to pixels: the format, the limits of memory, and the orientation.

mod bmp;
mod cut;
mod exif;
#[cfg(feature = "gif")]
mod gif;
mod jpeg;
mod pixels;
mod png;
#[cfg(feature = "tiff")]
mod tiff;
mod turbo;
#[cfg(feature = "webp")]
mod webp;

pub(crate) use jpeg::{as_seen as jpeg_as_seen, part as jpeg_part, usual_upright};
pub(crate) use turbo::JpegBuffers;

use crate::{Image, Media, refused};
use std::fmt;
use std::path::PathBuf;
use uringload_core::not_built_in;
use uringload_core::{Error, ErrorKind, Result};

/// How an image is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoding {
    /// What a pixel becomes. Default: [`Color::Rgb`].
    pub color: Color,
    /// Whether the image is turned and mirrored as its EXIF or XMP orientation says. That of a TIFF is always applied,
    /// as Pillow does it: it is a part of the format. Default: true.
    pub orient: bool,
    /// The most that one image may take.
    pub limits: Limits,
    /// What decodes a JPEG. Default: [`Jpeg::Auto`].
    pub jpeg: Jpeg,
    /// Whether [`Chain::ready`](crate::Chain::ready), which decodes only the visible part, makes the bytes that a full
    /// decode makes. If not, it repeats chroma instead of interpolating it, and decodes at a half, a quarter or an
    /// eighth of the size where enough pixels are left. Default: false.
    pub exact: bool,
}

impl Default for Decoding {
    fn default() -> Decoding {
        Decoding { color: Color::Rgb, orient: true, limits: Limits::default(), jpeg: Jpeg::Auto, exact: false }
    }
}

/// What decodes a JPEG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jpeg {
    /// libjpeg-turbo if the system has it in version 3 or later, else the embedded decoder: [`decoder`] says which.
    #[default]
    Auto,
    /// libjpeg-turbo, or an error.
    Turbo,
    /// `zune-jpeg`, which every build has and which is the same everywhere.
    Embedded,
}

/// What [`Jpeg::Auto`] is on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JpegDecoder {
    /// "libjpeg-turbo" or "zune-jpeg".
    pub name: &'static str,
    /// Its version.
    pub version: String,
    /// The library's file, if it was loaded.
    pub path: Option<PathBuf>,
    /// Why it is not libjpeg-turbo.
    pub why_not: Option<String>,
}

/// The decoder of JPEGs by default.
#[must_use]
pub fn decoder() -> JpegDecoder {
    turbo::described(&[])
}

/// The same, and looks for libjpeg-turbo at these places too, each a library or a folder that holds one. The search
/// happens once: the first call, or the first JPEG that is decoded, decides for the process.
#[must_use]
pub fn decoder_at(places: &[PathBuf]) -> JpegDecoder {
    turbo::described(places)
}

/// What a pixel becomes, whatever the file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Color {
    /// Red, green and blue, as Pillow's `convert("RGB")`: gray is repeated, alpha is dropped, CMYK is converted
    /// without a profile, and of 16 bits the upper 8 are kept.
    #[default]
    Rgb,
    /// One channel, as Pillow's `convert("L")`: `0.299 R + 0.587 G + 0.114 B`.
    Gray,
    /// One channel without conversion: the index of a palette, or the level of a gray image, as masks of classes are
    /// stored. Images of colours are refused.
    Index,
}

impl Color {
    /// Channels of the decoded image.
    #[must_use]
    pub fn channels(self) -> u32 {
        if self == Color::Rgb { 3 } else { 1 }
    }
}

/// The most that one image may take. Both are compared with the header's claims before memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most pixels. Default: 178 956 970, beyond which Pillow calls an image a decompression bomb.
    pub pixels: u64,
    /// Most bytes of memory for its pixels and what the decoder keeps while it works. Default: 2 GiB.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { pixels: 178_956_970, bytes: 2 << 30 }
    }
}

impl Limits {
    /// Refuses an image of that size if it needs too many pixels, or too much memory at `bytes` bytes a pixel.
    fn check(self, height: u32, width: u32, bytes: u64) -> Result<()> {
        self.check_bytes(height, width, (u64::from(height) * u64::from(width)).saturating_mul(bytes))
    }

    /// Refuses an image of that size if it needs too many pixels, or too much memory at `memory` bytes in all.
    fn check_bytes(self, height: u32, width: u32, memory: u64) -> Result<()> {
        if height == 0 || width == 0 {
            return Err(Error::new(ErrorKind::Corrupt, format!("the image has {height} rows of {width} pixels")));
        }
        let pixels = u64::from(height) * u64::from(width);
        if pixels > self.pixels {
            let what = format!("the image has {height} x {width} pixels, and {} are allowed", self.pixels);
            return Err(
                Error::new(ErrorKind::MemoryLimit, what).with_remedy("raise the limit of pixels if you trust it")
            );
        }
        if memory > self.bytes {
            let what = format!("the image needs {memory} bytes to be decoded, and {} are allowed", self.bytes);
            return Err(
                Error::new(ErrorKind::MemoryLimit, what).with_remedy("raise the limit of bytes if you trust it")
            );
        }
        Ok(())
    }
}

/// A format of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG: baseline, extended and progressive, coded by Huffman.
    Jpeg,
    /// PNG, 1 to 16 bits.
    Png,
    /// WebP, lossy and lossless; of an animation the first frame. It needs the feature `webp`.
    WebP,
    /// BMP.
    Bmp,
    /// GIF: the first frame. It needs the feature `gif`.
    Gif,
    /// TIFF: the first page. It needs the feature `tiff`.
    Tiff,
}

impl Format {
    /// The format of a file that starts with these bytes; 12 are enough.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Format::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Format::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Format::Gif),
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some(Format::Tiff),
            [b'B', b'M', ..] => Some(Format::Bmp),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::WebP => "WebP",
            Format::Bmp => "BMP",
            Format::Gif => "GIF",
            Format::Tiff => "TIFF",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Decodes an image, of the format that its first bytes show.
///
/// ```
/// use uringload_images::{Decoding, decode};
/// # fn main() -> uringload_core::Result<()> {
/// # let file = uringload_images::example_bmp();
/// let image = decode(&file, &Decoding::default())?;
/// assert_eq!((image.height(), image.width(), image.pixels()), (1, 2, &[255, 0, 0, 0, 255, 0][..]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// - `Empty` for no bytes, `WrongFileType` for bytes of no known format.
/// - `Truncated` and `Corrupt` for a file that ends early or breaks its format, with the offset where it is known.
/// - `Unavailable` for what a format allows and this decoder does not know, such as arithmetic coding where
///   there is no libjpeg-turbo; for [`Jpeg::Turbo`] where there is none; and for a format that is not built in, as
///   WebP, GIF and TIFF are with the features `webp`, `gif` and `tiff`.
/// - `MemoryLimit` for an image beyond the limits, before memory is taken for it.
/// - `InvalidArgument` for [`Color::Index`] of an image that has colours.
pub fn decode(bytes: &[u8], how: &Decoding) -> Result<Image> {
    decode_in(bytes, how, &mut JpegBuffers::default())
}

/// The same, into memory that is kept for the next JPEG.
pub(crate) fn decode_in(bytes: &[u8], how: &Decoding, buffers: &mut JpegBuffers) -> Result<Image> {
    let Some(format) = Format::of(bytes) else { return Err(unknown(bytes)) };
    if format != Format::Jpeg {
        // Nothing else uses what is kept, and the limit is for all that an image takes.
        buffers.shrink_to(0);
    }
    let (image, orientation) = match format {
        Format::Jpeg => jpeg::decode(bytes, how, buffers),
        Format::Png => png::decode(bytes, how),
        Format::Bmp => bmp::decode(bytes, how).map(|image| (image, 1)),
        #[cfg(feature = "webp")]
        Format::WebP => webp::decode(bytes, how),
        #[cfg(feature = "gif")]
        Format::Gif => gif::decode(bytes, how).map(|image| (image, 1)),
        #[cfg(feature = "tiff")]
        Format::Tiff => tiff::decode(bytes, how, buffers),
        // With every feature on, no format is left.
        #[allow(unreachable_patterns)]
        absent => Err(not_built_in(absent.name(), &absent.name().to_ascii_lowercase())),
    }?;
    // In a TIFF it is a part of the format, and Pillow always turns it.
    Ok(if how.orient || format == Format::Tiff { exif::oriented(image, orientation) } else { image })
}

/// Rows and columns of the image as it is seen: for a JPEG from its header, for the others by decoding them.
///
/// # Errors
/// As [`decode`].
pub fn dimensions(bytes: &[u8], how: &Decoding) -> Result<(u32, u32)> {
    if Format::of(bytes) == Some(Format::Jpeg) {
        return jpeg::dimensions(bytes, how);
    }
    decode(bytes, how).map(|image| (image.height(), image.width()))
}

/// Rows and columns, as they are stored, of a JPEG that other decoders know too, such as that of a GPU: luminance and
/// two chroma, coded by Huffman, whole and within the limits. `None` for every other file. What such a decoder makes of
/// it is for [`Chain::ready_with`](crate::Chain::ready_with).
#[must_use]
pub fn usual_jpeg(bytes: &[u8], how: &Decoding) -> Option<(u32, u32)> {
    if Format::of(bytes) == Some(Format::Jpeg) { jpeg::usual(bytes, how) } else { None }
}

/// What was decoded of an image, as it is seen.
pub struct Decoded {
    pub image: Image,
    /// The row and the column of its place.
    pub place: (u32, u32),
    /// Pixels along each axis that became one.
    pub divisor: u32,
    pub is_whole: bool,
}

impl Decoded {
    pub fn whole(image: Image) -> Decoded {
        Decoded { image, place: (0, 0), divisor: 1, is_whole: true }
    }
}

fn unknown(bytes: &[u8]) -> Error {
    if bytes.is_empty() {
        return Error::new(ErrorKind::Empty, "the image has no bytes").with_offset(0);
    }
    if let Some(media) = Media::of(bytes) {
        let error = Error::new(ErrorKind::WrongFileType, format!("this is {media}, and no image")).with_offset(0);
        return error.with_remedy("decode it in a function of your own (in Python: transform=), or leave it as bytes");
    }
    let head = &bytes[..bytes.len().min(8)];
    let what = format!("no known image starts with the bytes {head:02x?}");
    Error::new(ErrorKind::WrongFileType, what)
        .with_offset(0)
        .with_remedy("give JPEG, PNG, WebP, BMP, GIF or TIFF, or leave the sample out")
}

/// The error of a file that breaks its format.
fn corrupt(format: Format, cause: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the {format} cannot be decoded: {cause}"))
}

/// The error of a file that ends early, at the length that it has.
fn truncated(format: Format, bytes: &[u8]) -> Error {
    let what = format!("the {format} ends early, after {} bytes", bytes.len());
    Error::new(ErrorKind::Truncated, what).with_offset(bytes.len() as u64)
}

/// The error of a valid file that this decoder does not know.
fn unsupported(format: Format, what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the {format} has {what}, which is not supported"))
        .with_remedy("convert it to another format or kind")
}

/// The error of colours that were asked for as indexes.
fn no_index(format: Format) -> Error {
    refused(format!("the {format} has colours, and no index for each pixel"), "decode it as rgb or gray")
}

/// The error of a reader: the file is cut, or broken.
fn read_error(format: Format, bytes: &[u8], error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::UnexpectedEof { truncated(format, bytes) } else { corrupt(format, error) }
}

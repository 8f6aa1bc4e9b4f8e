//! JPEG by libjpeg-turbo, where it is installed.

use super::cut::{Corner, Cut, Cutter, Gain};
use super::pixels::{Kind, converted};
use super::{Color, Decoding, Format, Jpeg, JpegDecoder, corrupt, unsupported};
use crate::image::grown;
use crate::{Image, Region};
use std::path::PathBuf;
use std::sync::OnceLock;
use uringload_core::{Error, ErrorKind, Result};
use uringload_sys::turbojpeg::{Jpeg as File, Library, OpenError, Pixels, Rectangle, Request, Scale, TurboError};

/// The result of the system's loader when it was first asked.
static LIBRARY: OnceLock<std::result::Result<Library, OpenError>> = OnceLock::new();

/// Columns beside a region that are needed to interpolate chroma: one sample of it is up to four columns.
const MARGIN: u32 = 4;

fn library(places: &[PathBuf]) -> &'static std::result::Result<Library, OpenError> {
    LIBRARY.get_or_init(|| Library::open(places))
}

/// See [`super::decoder_at`].
pub fn described(places: &[PathBuf]) -> JpegDecoder {
    match library(places) {
        Ok(library) => {
            let version = library.version().to_owned();
            JpegDecoder { name: "libjpeg-turbo", version, path: library.path().map(PathBuf::from), why_not: None }
        }
        Err(error) => JpegDecoder {
            name: "zune-jpeg",
            version: super::jpeg::ZUNE_VERSION.into(),
            path: None,
            why_not: Some(error.to_string()),
        },
    }
}

/// The library that decodes, if it is there.
pub fn chosen(jpeg: Jpeg) -> Result<Option<&'static Library>> {
    if jpeg == Jpeg::Embedded {
        return Ok(None);
    }
    match library(&[]) {
        Ok(library) => Ok(Some(library)),
        Err(_) if jpeg == Jpeg::Auto => Ok(None),
        Err(error) => Err(Error::new(ErrorKind::Unavailable, error.to_string()).with_remedy(
            "install libturbojpeg of libjpeg-turbo 3.0 or later, or leave the choice of the decoder to the library",
        )),
    }
}

/// Memory of a thread that decodes one JPEG after the other.
#[derive(Debug, Default)]
pub struct JpegBuffers {
    /// The pixels of an image that is no longer used.
    pixels: Vec<u8>,
    cutter: Cutter,
}

impl JpegBuffers {
    /// Takes back the memory of an image.
    pub fn give(&mut self, image: Image) {
        self.pixels = image.into_pixels();
    }

    /// The memory that is kept, for something else.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pixels)
    }

    /// Drops the memory that is kept if it has more bytes than that.
    pub fn shrink_to(&mut self, bytes: u64) {
        if self.pixels.capacity() as u64 + self.cutter.bytes() > bytes {
            self.pixels = Vec::new();
            self.cutter.shrink();
        }
    }

    /// All of an image, of that size.
    pub fn whole(&mut self, library: &Library, bytes: &[u8], size: (u32, u32), color: Color) -> Result<Image> {
        self.decode(opened(library, bytes, size)?, color, Scale::Whole, None, false)
    }

    /// The result of `decode` for a file of a part of an image of that size. `None` if it has no result, if there is no
    /// such file, or no memory for it: then the whole file is decoded, which reports what is wrong.
    pub fn of_cut<T>(
        &mut self,
        bytes: &[u8],
        size: (u32, u32),
        (cut, how): (&Cut, &Decoding),
        decode: impl FnOnce(&mut JpegBuffers, &[u8], Corner) -> Option<T>,
    ) -> Option<T> {
        // The codes, the part's codes, and its file.
        if 4 * bytes.len() as u64 > how.limits.bytes {
            return None;
        }
        let mut cutter = std::mem::take(&mut self.cutter);
        let made = cutter.cut(bytes, size, cut).and_then(|place| {
            let need = super::jpeg::need(cutter.file())? + cutter.bytes();
            if need > how.limits.bytes { None } else { decode(self, cutter.file(), place) }
        });
        self.cutter = cutter;
        made
    }

    /// At least `used` of an image of that size, decoded at a part of its size, and its place. `None` if the library
    /// knows no parts of such an image.
    pub fn part(
        &mut self,
        library: &Library,
        bytes: &[u8],
        size: (u32, u32),
        how: &Decoding,
        (divisor, used): (u32, Region),
    ) -> Result<Option<(Image, Region)>> {
        let seen = Region { y: used.y * divisor, x: used.x * divisor, h: used.h * divisor, w: used.w * divisor };
        let seen = Region { h: seen.h.min(size.0 - seen.y), w: seen.w.min(size.1 - seen.x), ..seen };
        let cut = Cut { seen, has_margin: how.exact, gain: Gain::OfRowsSeen };
        let made = self.of_cut(bytes, size, (&cut, how), |buffers, file, place| {
            let (y, x) = (place.y / divisor, place.x / divisor);
            let used = Region { y: used.y - y, x: used.x - x, ..used };
            let file = File::new(library, file).ok()?;
            let (image, region) = buffers.part_of(file, how, (divisor, used)).ok()??;
            Some((image, Region { y: region.y + y, x: region.x + x, ..region }))
        });
        if made.is_some() {
            return Ok(made);
        }
        self.part_of(opened(library, bytes, size)?, how, (divisor, used))
    }

    fn part_of(
        &mut self,
        file: File<'_>,
        how: &Decoding,
        (divisor, used): (u32, Region),
    ) -> Result<Option<(Image, Region)>> {
        let scale = match divisor {
            1 => Scale::Whole,
            2 => Scale::Half,
            4 => Scale::Quarter,
            _ => Scale::Eighth,
        };
        let header = *file.header();
        let Some(mcu_width) = header.subsampling.mcu_width().filter(|_| !header.lossless) else { return Ok(None) };
        let margin = if how.exact { MARGIN } else { 0 };
        let columns = mcu_width.div_ceil(divisor);
        let x = used.x.saturating_sub(margin) / columns * columns;
        let end = (used.x + used.w + margin).min(header.width.div_ceil(divisor));
        let part = Rectangle { x, y: used.y, w: end - x, h: used.h };
        let image = self.decode(file, how.color, scale, Some(part), !how.exact)?;
        Ok(Some((image, Region { y: part.y, x: part.x, h: part.h, w: part.w })))
    }

    fn decode(
        &mut self,
        mut file: File<'_>,
        color: Color,
        scale: Scale,
        rectangle: Option<Rectangle>,
        fast_upsampling: bool,
    ) -> Result<Image> {
        let (pixels, kind) = match (file.header().components, color) {
            (1, Color::Gray | Color::Index) => (Pixels::Gray, Kind::Gray),
            (4, _) => (Pixels::Cmyk, Kind::Cmyk),
            // The library repeats gray.
            _ => (Pixels::Rgb, Kind::Rgb),
        };
        let scans_max = super::jpeg::SCANS_MAX as u32;
        let request = Request { pixels, scale, rectangle, fast_upsampling, scans_max };
        let (height, width) = request.size(file.header());
        let mut out = grown(std::mem::take(&mut self.pixels), height, width, pixels.channels() as u32)?;
        file.decode(&request, &mut out).map_err(|error| wrong(&error))?;
        if kind == Kind::Cmyk {
            // Adobe's files store paper instead of ink, and Pillow treats every file as Adobe's.
            out.iter_mut().for_each(|level| *level = 255 - *level);
        }
        converted(Format::Jpeg, (height, width), kind, out, color)
    }
}

/// A file whose header has the same size as we read in it.
fn opened<'a>(library: &'a Library, bytes: &'a [u8], size: (u32, u32)) -> Result<File<'a>> {
    let file = File::new(library, bytes).map_err(|error| wrong(&error))?;
    if (file.header().height, file.header().width) != size {
        return Err(corrupt(Format::Jpeg, "it has two headers, of different sizes"));
    }
    Ok(file)
}

fn wrong(error: &TurboError) -> Error {
    let text = error.to_string();
    if text.contains("nsupported") { unsupported(Format::Jpeg, text) } else { corrupt(Format::Jpeg, text) }
}

//! From a JPEG to pixels.

use super::table::Table;
use super::{Library, TurboError, abi};
use std::ffi::{CStr, c_int};
use std::sync::Arc;

/// What a pixel becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// Red, green and blue; of gray images three times the level. Not of images of four components.
    Rgb,
    /// Luminance as it is stored.
    Gray,
    /// The four components, YCCK converted to CMYK; not of others.
    Cmyk,
}

impl Pixels {
    /// Bytes of a pixel.
    #[must_use]
    pub fn channels(self) -> usize {
        match self {
            Pixels::Rgb => 3,
            Pixels::Gray => 1,
            Pixels::Cmyk => 4,
        }
    }

    pub(super) fn number(self) -> c_int {
        match self {
            Pixels::Rgb => abi::PIXELS_RGB,
            Pixels::Gray => abi::PIXELS_GRAY,
            Pixels::Cmyk => abi::PIXELS_CMYK,
        }
    }
}

/// How much smaller an image is decoded. A size that does not divide is rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// As it is.
    #[default]
    Whole,
    /// A half of each side.
    Half,
    /// A quarter.
    Quarter,
    /// An eighth.
    Eighth,
}

impl Scale {
    /// Pixels of the image along each axis that become one.
    #[must_use]
    pub fn divisor(self) -> u32 {
        match self {
            Scale::Whole => 1,
            Scale::Half => 2,
            Scale::Quarter => 4,
            Scale::Eighth => 8,
        }
    }
}

/// Which kind of chroma subsampling an image has: by that, where a rectangle may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subsampling(c_int);

impl Subsampling {
    /// Columns of the unscaled image that are coded together: a rectangle starts at a multiple of them. `None` for a
    /// kind that the library does not know, of which no rectangle can be decoded.
    #[must_use]
    pub fn mcu_width(self) -> Option<u32> {
        // TJSAMP_444, 422, 420, GRAY, 440, 411, 441.
        [8, 16, 16, 8, 8, 32, 8].get(usize::try_from(self.0).ok()?).copied()
    }
}

/// What an image's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Kind of chroma subsampling.
    pub subsampling: Subsampling,
    /// 1, 3 or 4.
    pub components: u32,
    /// Bits of a level.
    pub precision: u32,
    /// Whether it is a lossless JPEG, of which no rectangle can be decoded.
    pub lossless: bool,
}

/// A part of the scaled image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// First column: a multiple of [`Subsampling::mcu_width`] divided by the scale's divisor.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns, at least one.
    pub w: u32,
    /// Rows, at least one.
    pub h: u32,
}

/// How an image is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What a pixel becomes.
    pub pixels: Pixels,
    /// How much smaller it becomes.
    pub scale: Scale,
    /// The part of the scaled image that is wanted; `None` is all of it.
    pub rectangle: Option<Rectangle>,
    /// Whether chroma is repeated instead of interpolated. It is faster, and differs by a few levels along edges of
    /// colour.
    pub fast_upsampling: bool,
    /// Most scans of a progressive image: each may be a few bytes that cost the work of all pixels.
    pub scans_max: u32,
}

impl Request {
    /// Rows and columns that come out of an image with that header.
    #[must_use]
    pub fn size(&self, header: &Header) -> (u32, u32) {
        let divisor = self.scale.divisor();
        let all = (header.height.div_ceil(divisor), header.width.div_ceil(divisor));
        self.rectangle.map_or(all, |part| (part.h, part.w))
    }
}

/// Decodes one image after the other. It is of one thread at a time.
#[derive(Debug)]
pub struct Decoder {
    library: Library,
    /// `None` before the first image, and behind an error: libjpeg may stop anywhere in an image, and
    /// `tj3DecompressHeader` then leaves its reader inside the broken header, where the next image would be read on.
    instance: Option<Instance>,
}

impl Decoder {
    /// A decoder without memory, which the first image takes.
    #[must_use]
    pub fn new(library: Library) -> Decoder {
        Decoder { library, instance: None }
    }

    /// The library that it calls.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Reads what stands before the first scan.
    ///
    /// # Errors
    /// What libjpeg-turbo says about bytes that are no JPEG or break the format there.
    pub fn header(&mut self, jpeg: &[u8]) -> Result<Header, TurboError> {
        self.with(|instance| instance.header(jpeg))
    }

    /// Writes the image's pixels, row by row without gaps, to `out`. Broken codes give whatever pixels they give, as
    /// libjpeg's users know it, the same each time.
    ///
    /// # Errors
    /// What libjpeg-turbo says about the file; a rectangle that is not within the image or does not start where it may;
    /// an `out` of another length than [`Request::size`] says.
    pub fn decode(&mut self, jpeg: &[u8], request: &Request, out: &mut [u8]) -> Result<(), TurboError> {
        self.with(|instance| instance.decode(jpeg, request, out))
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut Instance) -> Result<T, TurboError>) -> Result<T, TurboError> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => Instance::new(&self.library, abi::INIT_DECOMPRESS)?,
        };
        let made = call(&mut instance)?;
        self.instance = Some(instance);
        Ok(made)
    }
}

/// A `tjhandle`.
#[derive(Debug)]
pub(super) struct Instance {
    raw: abi::Handle,
    table: TableOf,
}

/// The table, without a text of its own.
struct TableOf(Arc<Table>);

impl std::fmt::Debug for TableOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("libturbojpeg")
    }
}

// SAFETY: an instance is plain memory that only its functions look into, and the library has no state of a thread but
// the text of the last error without an instance, which is not asked for. It is not Sync: every call takes `&mut`.
unsafe impl Send for Instance {}

impl Instance {
    pub(super) fn new(library: &Library, kind: c_int) -> Result<Instance, TurboError> {
        let table = library.table.clone();
        // SAFETY: the type is the header's; the number is one of its kinds.
        let raw = unsafe { (table.init)(kind) };
        if raw.is_null() {
            return Err(TurboError::new("there is no memory for libjpeg-turbo"));
        }
        Ok(Instance { raw, table: TableOf(table) })
    }

    pub(super) fn table(&self) -> &Table {
        &self.table.0
    }

    pub(super) fn raw(&mut self) -> abi::Handle {
        self.raw
    }

    pub(super) fn set(&mut self, parameter: c_int, value: c_int) -> Result<(), TurboError> {
        // SAFETY: `raw` is an instance that `new` made and `drop` has not ended; any number may be given.
        let status = unsafe { (self.table().set)(self.raw, parameter, value) };
        self.check(status)
    }

    fn get(&self, parameter: c_int) -> c_int {
        // SAFETY: as in `set`.
        unsafe { (self.table().get)(self.raw, parameter) }
    }

    /// The error of the last call, if it was one.
    pub(super) fn check(&mut self, status: c_int) -> Result<(), TurboError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: as in `set`.
        let text = unsafe { (self.table().error_str)(self.raw) };
        if text.is_null() {
            return Err(TurboError::new("libjpeg-turbo says no more than that it failed"));
        }
        // SAFETY: the function returns the instance's own text, or that of the thread, each in a buffer that ends with
        // a zero and is not written to before the next call: it is copied here.
        let text = unsafe { CStr::from_ptr(text) };
        Err(TurboError::new(text.to_string_lossy()))
    }

    /// Whether the last call that failed has done its work and only found something wrong with the file.
    fn was_warned(&self) -> bool {
        // SAFETY: as in `set`.
        let code = unsafe { (self.table().error_code)(self.raw) };
        code == abi::WARNING
    }

    fn header(&mut self, jpeg: &[u8]) -> Result<Header, TurboError> {
        // Of tables without an image the library reads nothing, and tells what it knew of the image before. They have
        // no pixels: decoding them fails.
        self.set_region(abi::Region { x: 0, y: 0, w: 0, h: 0 })?;
        // SAFETY: as in `set`; the bytes are borrowed for the call, and the function keeps no pointer that it uses
        // after it: `decompress` sets its source anew.
        let status = unsafe { (self.table().decompress_header)(self.raw, jpeg.as_ptr(), jpeg.len()) };
        if status != 0 && !self.was_warned() {
            self.check(status)?;
        }
        let side = |number: c_int| u32::try_from(number).ok().filter(|&side| side > 0);
        let sides = (side(self.get(abi::WIDTH)), side(self.get(abi::HEIGHT)));
        let (Some(width), Some(height)) = sides else { return Err(TurboError::new("the JPEG has no image")) };
        let components = match self.get(abi::COLORS) {
            abi::COLORS_GRAY => 1,
            abi::COLORS_CMYK | abi::COLORS_YCCK => 4,
            _ => 3,
        };
        Ok(Header {
            width,
            height,
            subsampling: Subsampling(self.get(abi::SUBSAMPLING)),
            components,
            precision: u32::try_from(self.get(abi::PRECISION)).unwrap_or(0),
            lossless: self.get(abi::LOSSLESS) == 1,
        })
    }

    fn decode(&mut self, jpeg: &[u8], request: &Request, out: &mut [u8]) -> Result<(), TurboError> {
        let header = self.header(jpeg)?;
        let (rows, columns) = request.size(&header);
        let bytes = u64::from(rows) * u64::from(columns) * request.pixels.channels() as u64;
        if bytes != out.len() as u64 || bytes == 0 {
            return Err(TurboError::new(format!("{} bytes are given for an image of {bytes}", out.len())));
        }
        let divisor = request.scale.divisor();
        // A number of the header that changed between here and the call would be told by this.
        let pixels = u64::from(header.width) * u64::from(header.height);
        self.set(abi::MAX_PIXELS, c_int::try_from(pixels).unwrap_or(c_int::MAX))?;
        self.set(abi::SCAN_LIMIT, c_int::try_from(request.scans_max).unwrap_or(c_int::MAX))?;
        self.set(abi::FAST_UPSAMPLING, c_int::from(request.fast_upsampling))?;
        self.set(abi::FAST_DCT, 0)?;
        let factor = abi::ScalingFactor { num: 1, denom: divisor as c_int };
        // SAFETY: as in `set`.
        let status = unsafe { (self.table().set_scaling_factor)(self.raw, factor) };
        self.check(status)?;
        if let Some(part) = request.rectangle {
            self.set_rectangle(part, (header.height.div_ceil(divisor), header.width.div_ceil(divisor)))?;
        }
        self.decompress(jpeg, request.pixels, columns, out)?;
        Ok(())
    }

    fn set_rectangle(&mut self, part: Rectangle, (height, width): (u32, u32)) -> Result<(), TurboError> {
        let is_within =
            |start: u32, len: u32, all: u32| len > 0 && start.checked_add(len).is_some_and(|end| end <= all);
        if !is_within(part.x, part.w, width) || !is_within(part.y, part.h, height) {
            return Err(TurboError::new(format!("{part:?} is not within {height} rows of {width} pixels")));
        }
        // Zero rows or columns would mean all of them; there are none here. Sides of a JPEG have 16 bits.
        let [x, y, w, h] = [part.x, part.y, part.w, part.h].map(|number| number as c_int);
        self.set_region(abi::Region { x, y, w, h })
    }

    fn set_region(&mut self, region: abi::Region) -> Result<(), TurboError> {
        // SAFETY: as in `set`.
        let status = unsafe { (self.table().set_cropping_region)(self.raw, region) };
        self.check(status)
    }

    /// Decodes into `out`, which has rows of `columns` pixels for the whole of the region that was set.
    fn decompress(&mut self, jpeg: &[u8], pixels: Pixels, columns: u32, out: &mut [u8]) -> Result<(), TurboError> {
        let pitch = c_int::try_from(columns as usize * pixels.channels())
            .map_err(|_| TurboError::new("a row has more bytes than libjpeg-turbo counts"))?;
        for is_second in [false, true] {
            // SAFETY: as in `set`. The source is borrowed for the call. The function writes as many rows as the region
            // has, or the scaled image without one, each of as many pixels: `decode` compared their bytes, by the size
            // that the same function read from the same bytes just before, with those of `out`, which is borrowed for
            // the call alone. A region whose left edge or width libjpeg would have to change is an error there.
            let status = unsafe {
                (self.table().decompress)(self.raw, jpeg.as_ptr(), jpeg.len(), out.as_mut_ptr(), pitch, pixels.number())
            };
            if status == 0 {
                return Ok(());
            }
            if !self.was_warned() {
                return self.check(status);
            }
            if is_second {
                break;
            }
            // A fatal error behind a warning is told as a warning, and the rows below it are then what `out` was: the
            // pixels of another image. It is black instead, and what can be read is read once more.
            out.fill(0);
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and it is ended only here.
        unsafe { (self.table().destroy)(self.raw) };
    }
}

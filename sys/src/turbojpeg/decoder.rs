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
    /// kind that the library does not know: it cannot decode a rectangle of it.
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
    /// Whether it is a lossless JPEG: no rectangle of it can be decoded.
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

/// A JPEG whose header has been read.
///
/// It has an instance of the library of its own, so that its pixels are a function of its bytes. An instance that has
/// seen another file keeps its tables, for files that have none; its size, if a header ends in the middle; and the
/// place where it stopped, which a fatal error after a warning does not show.
#[derive(Debug)]
pub struct Jpeg<'a> {
    library: &'a Library,
    bytes: &'a [u8],
    header: Header,
    /// One that has read the header and nothing else.
    instance: Option<Instance>,
}

impl<'a> Jpeg<'a> {
    /// Reads what comes before the first scan.
    ///
    /// # Errors
    /// The message of libjpeg-turbo about bytes that are not a JPEG or break the format there.
    pub fn new(library: &'a Library, bytes: &'a [u8]) -> Result<Jpeg<'a>, TurboError> {
        let mut instance = Instance::new(library, abi::INIT_DECOMPRESS)?;
        let header = instance.header(bytes)?;
        Ok(Jpeg { library, bytes, header, instance: Some(instance) })
    }

    /// What the header says.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Writes the image's pixels, row by row without gaps, to `out`. Broken codes give whatever pixels they give, as
    /// libjpeg's users know it, the same each time.
    ///
    /// # Errors
    /// What libjpeg-turbo says about the file; a rectangle that is not within the image or does not start where it may;
    /// an `out` of another length than [`Request::size`] says.
    pub fn decode(&mut self, request: &Request, out: &mut [u8]) -> Result<(), TurboError> {
        let Some((mut warning, row_bytes)) = self.attempt(request, out)? else { return Ok(()) };
        // A fatal error after a warning is reported as a warning too, and the rows below it then keep the old content
        // of `out`. So the last row decides: it was written if it differs from its filling, for two levels of filling.
        for level in [0, 255] {
            out.fill(level);
            match self.attempt(request, out)? {
                Some((again, _)) if out[out.len() - row_bytes..].iter().all(|&found| found == level) => warning = again,
                _ => return Ok(()),
            }
        }
        Err(warning)
    }

    /// Decodes once. Returns what libjpeg-turbo warned of, with the bytes of a row.
    fn attempt(&mut self, request: &Request, out: &mut [u8]) -> Result<Option<(TurboError, usize)>, TurboError> {
        if self.instance.is_none() {
            *self = Jpeg::new(self.library, self.bytes)?;
        }
        let Some(mut instance) = self.instance.take() else { return Ok(None) };
        instance.decode(self.bytes, &self.header, request, out)
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

    fn decode(
        &mut self,
        jpeg: &[u8],
        header: &Header,
        request: &Request,
        out: &mut [u8],
    ) -> Result<Option<(TurboError, usize)>, TurboError> {
        let (rows, columns) = request.size(header);
        let bytes = u64::from(rows) * u64::from(columns) * request.pixels.channels() as u64;
        if bytes != out.len() as u64 || bytes == 0 {
            return Err(TurboError::new(format!("{} bytes are given for an image of {bytes}", out.len())));
        }
        let divisor = request.scale.divisor();
        // This would show a number of the header that changed between here and the call.
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
        let row_bytes = columns as usize * request.pixels.channels();
        let warning = self.decompress(jpeg, (request.pixels, row_bytes), out)?;
        Ok(warning.map(|warning| (warning, row_bytes)))
    }

    fn set_rectangle(&mut self, part: Rectangle, (height, width): (u32, u32)) -> Result<(), TurboError> {
        let is_within =
            |start: u32, len: u32, all: u32| len > 0 && start.checked_add(len).is_some_and(|end| end <= all);
        if !is_within(part.x, part.w, width) || !is_within(part.y, part.h, height) {
            return Err(TurboError::new(format!("{part:?} is not within {height} rows of {width} pixels")));
        }
        // Zero rows or columns would mean all of them; there are none here. Sides of a JPEG have 16 bits.
        let [x, y, w, h] = [part.x, part.y, part.w, part.h].map(|number| number as c_int);
        // SAFETY: as in `set`.
        let status = unsafe { (self.table().set_cropping_region)(self.raw, abi::Region { x, y, w, h }) };
        self.check(status)
    }

    /// Decodes into `out`, which has rows of that many bytes for the whole region that was set. Returns the warnings.
    /// warned of.
    fn decompress(
        &mut self,
        jpeg: &[u8],
        (pixels, row_bytes): (Pixels, usize),
        out: &mut [u8],
    ) -> Result<Option<TurboError>, TurboError> {
        let pitch = c_int::try_from(row_bytes)
            .map_err(|_| TurboError::new("a row has more bytes than libjpeg-turbo counts"))?;
        // SAFETY: as in `set`. The source is borrowed for the call. The function writes as many rows as the region has,
        // or the scaled image without one, each of as many pixels: `decode` compared their bytes, by the size that the
        // same instance read from the same bytes, which have been borrowed since (`Jpeg`), with those of `out`, which
        // is borrowed for the call alone. A region whose left edge or width libjpeg would have to change is an error
        // there.
        let status = unsafe {
            (self.table().decompress)(self.raw, jpeg.as_ptr(), jpeg.len(), out.as_mut_ptr(), pitch, pixels.number())
        };
        match self.check(status) {
            Err(warning) if self.was_warned() => Ok(Some(warning)),
            checked => checked.map(|()| None),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and it is ended only here.
        unsafe { (self.table().destroy)(self.raw) };
    }
}

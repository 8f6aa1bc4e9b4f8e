//! Resampling by Pillow's arithmetic: two passes, in Pillow's order, with weights of 22 bits and levels rounded to 8
//! bits between the passes. So the result is Pillow's to the bit, while only the visible rows and columns are computed.
//!
//! Our own instead of `fast_image_resize`: its weights have 16 bits, it cannot resample a window of its output, and its
//! second pass writes pixels where normalized numbers are wanted. The loops themselves are in `lanes`.

use crate::image::{Image, Region, memory};
use crate::lanes::{self, Lanes};
use crate::refused;
use crate::weights::{Axis, Filter, Weights};
use std::ops::Range;
use uringload_core::Result;

/// Resizes a region of `image` to `height` rows of `width` pixels, as Pillow's `crop` and `resize`.
///
/// # Errors
/// `InvalidArgument` if the region is empty or not within the image, or the size is 0. `MemoryLimit` if there is no
/// memory.
pub fn resize(image: &Image, region: Region, (height, width): (u32, u32), filter: Filter) -> Result<Image> {
    let is_within = |start: u32, len: u32, all: u32| len > 0 && start.checked_add(len).is_some_and(|end| end <= all);
    if !is_within(region.y, region.h, image.height()) || !is_within(region.x, region.w, image.width()) {
        let what = format!("{region:?} is no part of an image of {} x {} pixels", image.height(), image.width());
        return Err(refused(what, "give a region of at least a pixel within the image"));
    }
    if height == 0 || width == 0 {
        return Err(refused(format!("no image has {height} x {width} pixels"), "give a size of at least a pixel"));
    }
    let mut pixels = memory(height, width, image.channels(), 0)?;
    let resampling = Resampling { part: Patch::whole(image), region, size: (height, width), filter };
    let mut buffers = Buffers::default();
    let rows = resampling.start(0..height, 0..width, false, &mut buffers);
    let row_bytes = width as usize * image.channels() as usize;
    for (y, row) in (0..height).zip(pixels.chunks_exact_mut(row_bytes)) {
        rows.write(y, row);
    }
    Image::new(height, width, image.channels(), pixels)
}

/// Memory of a thread that resamples one image after the other.
#[derive(Debug, Default)]
pub struct Buffers {
    columns: Weights,
    rows: Weights,
    /// The result of the first pass, if it made rows.
    middle: Image,
    /// The result of the first pass: the rows that the second one uses.
    between: Vec<u8>,
    lanes: Lanes,
}

/// An image, or the decoded part of one.
#[derive(Clone, Copy)]
pub struct Patch<'a> {
    pub image: &'a Image,
    /// The row and the column of its place.
    pub place: (u32, u32),
    /// Pixels along each axis that became one of these.
    pub divisor: u32,
}

impl<'a> Patch<'a> {
    pub fn whole(image: &'a Image) -> Patch<'a> {
        Patch { image, place: (0, 0), divisor: 1 }
    }
}

/// One resampling: of a region of an image to a size.
#[derive(Clone, Copy)]
pub struct Resampling<'a> {
    pub part: Patch<'a>,
    /// Of the whole image in its whole size; `part` shows at least the pixels that are used.
    pub region: Region,
    pub size: (u32, u32),
    pub filter: Filter,
}

/// Whether Pillow, from version 13 on, makes rows before columns: where more than twice as many rows as columns go.
pub fn is_rows_first(region: Region, size: (u32, u32), filter: Filter) -> bool {
    let gone = |from: u32, to: u32| i64::from(from) - i64::from(to);
    let (rows, columns) = (gone(region.h, size.0), gone(region.w, size.1));
    filter != Filter::Nearest && rows > 0 && columns != 0 && rows > 2 * columns
}

impl<'a> Resampling<'a> {
    /// Prepares these rows and columns of the output. The columns are in reverse order if they are to be mirrored and
    /// the result says so.
    pub fn start<'b>(
        self,
        rows: Range<u32>,
        columns: Range<u32>,
        is_mirrored: bool,
        buffers: &'b mut Buffers,
    ) -> Rows<'b>
    where
        'a: 'b,
    {
        let Resampling { part, region, size, filter } = self;
        let Patch { image, place, divisor } = part;
        if divisor == 1 && is_rows_first(region, size, filter) {
            return self.rows_first(rows, columns, is_mirrored, buffers);
        }
        let channels = image.channels() as usize;
        let vertical = Axis::new(region.y, region.h, divisor);
        buffers.rows.fill(filter, vertical, size.0, rows.clone());
        let used = buffers.rows.used();
        let width = columns.len() * channels;
        let is_same = divisor == 1 && size.0 == region.h;
        // An empty range needs nothing.
        let top = (vertical.first + used.start).saturating_sub(place.0) as usize;
        let start = rows.start;
        if divisor == 1 && size.1 == region.w {
            // Only rows change, or nothing does: they are used where they are.
            let at = (region.x + columns.start).saturating_sub(place.1) as usize * channels;
            let source = image.pixels().get(top * image.row_bytes() + at..).unwrap_or_default();
            let stride = image.row_bytes();
            return Rows { source, stride, width, used, rows: &buffers.rows, start, is_same, is_mirrored: false };
        }
        let horizontal = Axis::new(region.x, region.w, divisor);
        buffers.columns.fill(filter, horizontal, size.1, columns);
        // Pixels are written as four bytes each.
        let stride = width + 4;
        // The old content is overwritten.
        buffers.between.resize(used.len().next_multiple_of(lanes::ROWS) * stride, 0);
        if width > 0 && !used.is_empty() {
            let left = i64::from(horizontal.first) - i64::from(place.1);
            let to = &mut buffers.between;
            buffers.lanes.columns(image, (top, left), &buffers.columns, is_mirrored, to, (stride, used.len()));
        }
        let source = &buffers.between;
        Rows { source, stride, width, used, rows: &buffers.rows, start, is_same, is_mirrored }
    }

    /// The same with rows before columns: makes both passes at once.
    fn rows_first(self, rows: Range<u32>, columns: Range<u32>, is_mirrored: bool, buffers: &mut Buffers) -> Rows<'_> {
        let Resampling { part: Patch { image, place, .. }, region, size, filter } = self;
        let channels = image.channels() as usize;
        let width = columns.len() * channels;
        buffers.rows.fill(filter, Axis::new(region.y, region.h, 1), size.0, rows.clone());
        buffers.columns.fill(filter, Axis::new(region.x, region.w, 1), size.1, columns);
        let wide = buffers.columns.used();
        let mut made = std::mem::take(&mut buffers.middle).into_pixels();
        made.resize(rows.len() * wide.len() * channels, 0);
        for (index, to) in made.chunks_exact_mut((wide.len() * channels).max(1)).enumerate() {
            let (first, weights) = buffers.rows.of(index);
            let (top, left) = (region.y + first as u32 - place.0, region.x + wide.start - place.1);
            let from = &image.pixels()[top as usize * image.row_bytes() + left as usize * channels..];
            lanes::row(from, image.row_bytes(), weights, to);
        }
        buffers.middle = Image::new(rows.len() as u32, wide.len() as u32, image.channels(), made).unwrap_or_default();
        let stride = width + 4;
        buffers.between.resize(rows.len().next_multiple_of(lanes::ROWS) * stride, 0);
        if width > 0 && !rows.is_empty() {
            let (from, to) = (&buffers.middle, &mut buffers.between);
            let left = -i64::from(wide.start);
            buffers.lanes.columns(from, (0, left), &buffers.columns, is_mirrored, to, (stride, rows.len()));
        }
        let (source, start) = (&buffers.between, rows.start);
        Rows { source, stride, width, used: rows, rows: &buffers.rows, start, is_same: true, is_mirrored }
    }
}

/// Rows of the output, made one by one.
pub struct Rows<'a> {
    source: &'a [u8],
    stride: usize,
    /// Bytes of a row.
    width: usize,
    /// Number of the region's rows that `source` has.
    used: Range<u32>,
    rows: &'a Weights,
    start: u32,
    /// Whether the rows of `source` are those of the output.
    is_same: bool,
    /// Whether the columns are in reverse order.
    pub is_mirrored: bool,
}

impl Rows<'_> {
    /// Writes row `y` of the output.
    pub fn write(&self, y: u32, to: &mut [u8]) {
        if self.is_same {
            // The row at the same place: Pillow omits a pass that changes nothing.
            let at = (y - self.used.start) as usize * self.stride;
            to.copy_from_slice(&self.source[at..][..self.width]);
            return;
        }
        let (first, weights) = self.rows.of((y - self.start) as usize);
        let from = &self.source[(first - self.used.start as usize) * self.stride..];
        if weights.len() == 1 {
            to.copy_from_slice(&from[..self.width]);
            return;
        }
        lanes::row(from, self.stride, weights, to);
    }
}

//! Resampling by Pillow's arithmetic: two passes, in the order that Pillow takes, with weights of 22 bits and levels
//! rounded to 8 bits between the passes. So the result is Pillow's to the bit, while only the rows and columns that are
//! seen are computed.
//!
//! Our own and not `fast_image_resize`, whose weights have 16 bits, which cannot resample a window of its output, and
//! whose second pass writes pixels where normalized numbers are wanted. The loops themselves are in `lanes`.

use crate::image::{Image, Region, memory};
use crate::lanes::{self, Lanes};
use crate::passes::Taps;
use crate::refused;
use std::f64::consts::PI;
use std::ops::Range;
use uringload_core::Result;

/// How pixels of the output are made of those of the source. All but `Nearest` average over what an output pixel covers
/// where the image becomes smaller (antialias), as Pillow does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The pixel whose centre is nearest.
    Nearest,
    /// The mean of what is covered; what OpenCV calls area.
    Box,
    /// A triangle, one pixel to each side. The default of torchvision.
    #[default]
    Bilinear,
    /// A cubic, two pixels to each side.
    Bicubic,
    /// A windowed sinc, three pixels to each side.
    Lanczos,
}

impl Filter {
    /// All filters.
    pub const ALL: [Filter; 5] = [Filter::Nearest, Filter::Box, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos];

    /// The name in transform strings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Filter::Nearest => "nearest",
            Filter::Box => "box",
            Filter::Bilinear => "bilinear",
            Filter::Bicubic => "bicubic",
            Filter::Lanczos => "lanczos",
        }
    }

    /// How far it reaches, in pixels.
    fn support(self) -> f64 {
        match self {
            Filter::Nearest | Filter::Box => 0.5,
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        match self {
            Filter::Nearest | Filter::Box => f64::from(x > -0.5 && x <= 0.5),
            Filter::Bilinear => (1.0 - x.abs()).max(0.0),
            Filter::Bicubic => {
                const A: f64 = -0.5;
                let x = x.abs();
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Lanczos => 0.0,
        }
    }
}

/// Resizes a region of `image` to `height` rows of `width` pixels, as Pillow's `crop` and `resize`.
///
/// # Errors
/// `InvalidArgument` if the region is empty or not within the image, or the size is 0. `MemoryLimit` where there is no
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
    let resampling = Resampling { part: Part::whole(image), region, size: (height, width), filter };
    let mut buffers = Buffers::default();
    let rows = resampling.start(0..height, 0..width, false, &mut buffers);
    let row_bytes = width as usize * image.channels() as usize;
    for (y, row) in (0..height).zip(pixels.chunks_exact_mut(row_bytes)) {
        rows.write(y, row);
    }
    Image::new(height, width, image.channels(), pixels)
}

/// Bits behind the point of a weight.
pub(crate) const WEIGHT_BITS: u32 = 32 - 8 - 2;
/// Half a level, for rounding.
pub(crate) const HALF: i32 = 1 << (WEIGHT_BITS - 1);

#[inline(always)]
pub(crate) fn clip(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// The pixels of one axis that are resampled: a length from an offset on, of an image that may be decoded at a part of
/// its size, so that neither is a whole number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    /// The first pixel, of which the others are counted.
    first: u32,
    /// Where the length starts, from 0 up to 1 behind the start of the first pixel.
    offset: f64,
    len: f64,
    /// Pixels that the length touches.
    pixels: u32,
}

impl Axis {
    /// `len` pixels from `start` on, where so many became one.
    fn new(start: u32, len: u32, divisor: u32) -> Axis {
        let first = start / divisor;
        let offset = f64::from(start % divisor) / f64::from(divisor);
        let pixels = (start + len).div_ceil(divisor) - first;
        Axis { first, offset, len: f64::from(len) / f64::from(divisor), pixels }
    }

    /// The middle of a pixel of the output, of which there are `to`.
    fn center(&self, at: u32, to: u32) -> f64 {
        self.offset + (f64::from(at) + 0.5) * (self.len / f64::from(to))
    }

    /// How far the filter reaches.
    fn support(&self, filter: Filter, to: u32) -> f64 {
        filter.support() * (self.len / f64::from(to)).max(1.0)
    }

    /// The pixels that make the one around `center`.
    fn taps(&self, center: f64, support: f64) -> Range<u32> {
        (center - support + 0.5).max(0.0) as u32..((center + support + 0.5) as u32).min(self.pixels)
    }

    /// Pixels of the image that those `wanted` of the output need; a few more may be told.
    fn span(&self, filter: Filter, to: u32, wanted: &Range<u32>) -> Range<u32> {
        if wanted.is_empty() {
            return self.first..self.first;
        }
        let support = self.support(filter, to);
        // A pixel more on both sides, because the nearest one is looked up by another rounding.
        let start = self.taps(self.center(wanted.start, to), support).start.saturating_sub(1);
        let end = (self.taps(self.center(wanted.end - 1, to), support).end + 1).min(self.pixels);
        self.first + start..self.first + end.max(start)
    }
}

/// Which pixels of one axis make each pixel of the output, and by what weight.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// The first pixel of the source, for each pixel of the output.
    pub(crate) first: Vec<u32>,
    /// Where its weights end in `weights`; they start where those before end.
    pub(crate) end: Vec<u32>,
    pub(crate) weights: Vec<i32>,
}

impl Weights {
    /// For the pixels `wanted` of an axis that becomes `to` pixels.
    fn fill(&mut self, filter: Filter, axis: Axis, to: u32, wanted: Range<u32>) {
        self.first.clear();
        self.end.clear();
        self.weights.clear();
        if filter == Filter::Nearest {
            return self.fill_nearest(axis.pixels, axis.len / f64::from(to), wanted);
        }
        let support = axis.support(filter, to);
        let inverse = 1.0 / (axis.len / f64::from(to)).max(1.0);
        let one = f64::from(1 << WEIGHT_BITS);
        // As many as a pixel has at most.
        let mut exact = vec![0.0; 2 * support.ceil() as usize + 2];
        let count = wanted.len();
        self.first.reserve(count);
        self.end.reserve(count);
        self.weights.reserve(count * exact.len());
        for at in wanted {
            let center = axis.center(at, to);
            let taps = axis.taps(center, support);
            let exact = &mut exact[..taps.len()];
            let mut sum = 0.0;
            for (x, exact) in taps.clone().zip(&mut *exact) {
                *exact = filter.weight((f64::from(x) - center + 0.5) * inverse);
                sum += *exact;
            }
            let sum = if sum == 0.0 { 1.0 } else { sum };
            self.weights.extend(exact.iter().map(|&weight| {
                let weight = weight / sum;
                (weight * one + 0.5_f64.copysign(weight)) as i32
            }));
            self.first.push(taps.start);
            self.end.push(self.weights.len() as u32);
        }
    }

    /// Pillow adds up the steps, whose rounding this repeats.
    fn fill_nearest(&mut self, from: u32, scale: f64, wanted: Range<u32>) {
        let mut at = scale * 0.5;
        for x in 0..wanted.end {
            if x >= wanted.start {
                self.first.push((at as u32).min(from - 1));
                self.weights.push(1 << WEIGHT_BITS);
                self.end.push(self.weights.len() as u32);
            }
            at += scale;
        }
    }

    pub(crate) fn of(&self, index: usize) -> (usize, &[i32]) {
        let start = if index == 0 { 0 } else { self.end[index - 1] as usize };
        (self.first[index] as usize, &self.weights[start..self.end[index] as usize])
    }

    /// The pixels of the source that are used at all.
    fn used(&self) -> Range<u32> {
        let ends = (0..self.first.len()).map(|index| self.first[index] + self.of(index).1.len() as u32);
        self.first.iter().copied().min().unwrap_or(0)..ends.max().unwrap_or(0)
    }
}

/// Memory of a thread that resamples one image after the other.
#[derive(Debug, Default)]
pub struct Buffers {
    columns: Weights,
    rows: Weights,
    /// What the first pass made, where it made rows.
    middle: Image,
    /// What the first pass made: the rows that the second one uses.
    between: Vec<u8>,
    lanes: Lanes,
}

/// An image, or what was decoded of one.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    pub image: &'a Image,
    /// The row and the column where it lies.
    pub place: (u32, u32),
    /// Pixels along each axis that became one of these.
    pub divisor: u32,
}

impl<'a> Part<'a> {
    pub fn whole(image: &'a Image) -> Part<'a> {
        Part { image, place: (0, 0), divisor: 1 }
    }
}

/// One resampling: of a region of an image to a size.
#[derive(Clone, Copy)]
pub struct Resampling<'a> {
    pub part: Part<'a>,
    /// Of the whole image in its whole size; `part` shows at least what is used of it.
    pub region: Region,
    pub size: (u32, u32),
    pub filter: Filter,
}

/// What of an image that is decoded at a part of its size is used for some rows and columns of the output.
pub fn used(
    region: Region,
    divisor: u32,
    size: (u32, u32),
    filter: Filter,
    (rows, columns): (&Range<u32>, &Range<u32>),
) -> Region {
    let rows = Axis::new(region.y, region.h, divisor).span(filter, size.0, rows);
    let columns = Axis::new(region.x, region.w, divisor).span(filter, size.1, columns);
    Region { y: rows.start, x: columns.start, h: rows.end - rows.start, w: columns.end - columns.start }
}

/// What makes the pixels `wanted` of an axis of which `len` pixels from `start` on become `to`; in reverse order, if
/// they are to be mirrored. A length that stays is not resampled: each pixel is one.
pub fn taps(filter: Filter, (start, len): (u32, u32), to: u32, wanted: Range<u32>, is_reversed: bool) -> Taps {
    let (axis, mut weights) = (Axis::new(start, len, 1), Weights::default());
    weights.fill(if len == to { Filter::Nearest } else { filter }, axis, to, wanted);
    if !is_reversed {
        weights.first.iter_mut().for_each(|first| *first += axis.first);
        return Taps { first: weights.first, end: weights.end, weights: weights.weights };
    }
    let mut taps = Taps::default();
    for index in (0..weights.first.len()).rev() {
        taps.first.push(axis.first + weights.first[index]);
        taps.weights.extend_from_slice(weights.of(index).1);
        taps.end.push(taps.weights.len() as u32);
    }
    taps
}

/// Whether Pillow, from version 13 on, makes rows before columns: where more than twice as many rows as columns go.
pub fn is_rows_first(region: Region, size: (u32, u32), filter: Filter) -> bool {
    let gone = |from: u32, to: u32| i64::from(from) - i64::from(to);
    let (rows, columns) = (gone(region.h, size.0), gone(region.w, size.1));
    filter != Filter::Nearest && rows > 0 && columns != 0 && rows > 2 * columns
}

impl<'a> Resampling<'a> {
    /// Prepares these rows and columns of the output, the columns in reverse order if they are to be mirrored and the
    /// result says that they are.
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
        let Part { image, place, divisor } = part;
        if divisor == 1 && is_rows_first(region, size, filter) {
            return self.rows_first(rows, columns, is_mirrored, buffers);
        }
        let channels = image.channels() as usize;
        let vertical = Axis::new(region.y, region.h, divisor);
        buffers.rows.fill(filter, vertical, size.0, rows.clone());
        let used = buffers.rows.used();
        let width = columns.len() * channels;
        let is_same = divisor == 1 && size.0 == region.h;
        // Of an empty range nothing is looked at.
        let top = (vertical.first + used.start).saturating_sub(place.0) as usize;
        let start = rows.start;
        if divisor == 1 && size.1 == region.w {
            // Only rows change, or nothing does: they are taken from where they lie.
            let at = (region.x + columns.start).saturating_sub(place.1) as usize * channels;
            let source = image.pixels().get(top * image.row_bytes() + at..).unwrap_or_default();
            let stride = image.row_bytes();
            return Rows { source, stride, width, used, rows: &buffers.rows, start, is_same, is_mirrored: false };
        }
        let horizontal = Axis::new(region.x, region.w, divisor);
        buffers.columns.fill(filter, horizontal, size.1, columns);
        // Pixels are written as four bytes each.
        let stride = width + 4;
        // What was there before is overwritten.
        buffers.between.resize(used.len().next_multiple_of(lanes::ROWS) * stride, 0);
        if width > 0 && !used.is_empty() {
            let left = i64::from(horizontal.first) - i64::from(place.1);
            let to = &mut buffers.between;
            buffers.lanes.columns(image, (top, left), &buffers.columns, is_mirrored, to, (stride, used.len()));
        }
        let source = &buffers.between;
        Rows { source, stride, width, used, rows: &buffers.rows, start, is_same, is_mirrored }
    }

    /// The same with rows before columns: both passes are made at once.
    fn rows_first(self, rows: Range<u32>, columns: Range<u32>, is_mirrored: bool, buffers: &mut Buffers) -> Rows<'_> {
        let Resampling { part: Part { image, place, .. }, region, size, filter } = self;
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
    /// Rows that `source` has, of those of the region.
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
            // The row at the same place: Pillow leaves a pass out that changes nothing.
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

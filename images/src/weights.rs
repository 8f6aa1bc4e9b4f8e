//! Which pixels of an axis make each pixel of the output, and with what weights of 22 bits, in Pillow's arithmetic.

use crate::image::Region;
use crate::passes::Taps;
use std::f64::consts::PI;
use std::ops::Range;

/// How pixels of the source make those of the output. If the image becomes smaller, all but `Nearest` average over the
/// area of an output pixel (antialias), as Pillow does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The pixel whose centre is nearest.
    Nearest,
    /// The mean of the area; OpenCV calls it area.
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

/// Bits after the point of a weight.
pub const WEIGHT_BITS: u32 = 32 - 8 - 2;
/// Half a level, for rounding.
pub const HALF: i32 = 1 << (WEIGHT_BITS - 1);

#[inline(always)]
pub fn clip(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// The pixels of one axis that are resampled: a length from an offset on, in an image that may be decoded at a part of
/// its size, so that neither is a whole number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// The first pixel. The others are counted from it.
    pub first: u32,
    /// The start of the length, from 0 up to 1 after the start of the first pixel.
    offset: f64,
    len: f64,
    /// Pixels that the length touches.
    pixels: u32,
}

impl Axis {
    /// `len` pixels from `start` on, where that many became one.
    pub fn new(start: u32, len: u32, divisor: u32) -> Axis {
        let first = start / divisor;
        let offset = f64::from(start % divisor) / f64::from(divisor);
        let pixels = (start + len).div_ceil(divisor) - first;
        Axis { first, offset, len: f64::from(len) / f64::from(divisor), pixels }
    }

    /// The middle of a pixel of the output, which has `to` of them.
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

    /// Pixels of the image that those `wanted` of the output need; it may return a few more.
    fn span(&self, filter: Filter, to: u32, wanted: &Range<u32>) -> Range<u32> {
        if wanted.is_empty() {
            return self.first..self.first;
        }
        let support = self.support(filter, to);
        // One pixel more on both sides, because the nearest one is looked up with another rounding.
        let start = self.taps(self.center(wanted.start, to), support).start.saturating_sub(1);
        let end = (self.taps(self.center(wanted.end - 1, to), support).end + 1).min(self.pixels);
        self.first + start..self.first + end.max(start)
    }
}

/// Which pixels of one axis make each pixel of the output, and with what weight.
#[derive(Debug, Default)]
pub struct Weights {
    /// The first pixel of the source, for each pixel of the output.
    pub first: Vec<u32>,
    /// The end of its weights in `weights`. Each pixel's start where the previous pixel's end.
    pub end: Vec<u32>,
    pub weights: Vec<i32>,
}

impl Weights {
    /// For the pixels `wanted` of an axis that becomes `to` pixels.
    pub fn fill(&mut self, filter: Filter, axis: Axis, to: u32, wanted: Range<u32>) {
        self.first.clear();
        self.end.clear();
        self.weights.clear();
        if filter == Filter::Nearest {
            return self.fill_nearest(axis.pixels, axis.len / f64::from(to), wanted);
        }
        let support = axis.support(filter, to);
        let inverse = 1.0 / (axis.len / f64::from(to)).max(1.0);
        let one = f64::from(1 << WEIGHT_BITS);
        // The most that a pixel has.
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

    /// Pillow adds up the steps; this repeats its rounding.
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

    pub fn of(&self, index: usize) -> (usize, &[i32]) {
        let start = if index == 0 { 0 } else { self.end[index - 1] as usize };
        (self.first[index] as usize, &self.weights[start..self.end[index] as usize])
    }

    /// All pixels of the source that are used.
    pub fn used(&self) -> Range<u32> {
        let ends = (0..self.first.len()).map(|index| self.first[index] + self.of(index).1.len() as u32);
        self.first.iter().copied().min().unwrap_or(0)..ends.max().unwrap_or(0)
    }
}

/// The part of an image, decoded at a part of its size, that some rows and columns of the output use.
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

/// What makes the pixels `wanted` of an axis, on which `len` pixels from `start` on become `to`; in reverse order, if
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

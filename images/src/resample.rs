//! Resampling by Pillow's arithmetic: two passes, columns before rows, with weights of 22 bits and levels rounded to 8
//! bits between the passes. So the result is Pillow's to the bit, while only the rows and columns that are seen are
//! computed.
//!
//! Our own and not `fast_image_resize`, whose weights have 16 bits, which cannot resample a window of its output, and
//! whose second pass writes pixels where normalized numbers are wanted. What it has and we lack is hand-written SIMD:
//! `pulp` compiles the loops below for the processor's instructions.

use crate::image::{Image, memory};
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

/// Whole pixels of an image: a rectangle within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First row.
    pub y: u32,
    /// First column.
    pub x: u32,
    /// Rows.
    pub h: u32,
    /// Columns.
    pub w: u32,
}

impl Region {
    /// All of an image of that size.
    #[must_use]
    pub fn whole(height: u32, width: u32) -> Region {
        Region { y: 0, x: 0, h: height, w: width }
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
    let resampling = Resampling { image, region, size: (height, width), filter };
    let mut buffers = Buffers::default();
    let rows = resampling.start(0..height, 0..width, &mut buffers)?;
    let row_bytes = width as usize * image.channels() as usize;
    for (y, row) in (0..height).zip(pixels.chunks_exact_mut(row_bytes)) {
        rows.write(y, row);
    }
    Image::new(height, width, image.channels(), pixels)
}

/// Bits behind the point of a weight.
const WEIGHT_BITS: u32 = 32 - 8 - 2;
/// Half a level, for rounding.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);

fn clip(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// Which pixels of one axis make each pixel of the output, and by what weight.
#[derive(Debug, Default)]
struct Weights {
    /// The first pixel of the source, for each pixel of the output.
    first: Vec<u32>,
    /// Where its weights end in `weights`; they start where those before end.
    end: Vec<u32>,
    weights: Vec<i32>,
}

impl Weights {
    /// For the pixels `wanted` of an axis that goes from `from` to `to` pixels.
    fn fill(&mut self, filter: Filter, from: u32, to: u32, wanted: Range<u32>) {
        self.first.clear();
        self.end.clear();
        self.weights.clear();
        let scale = f64::from(from) / f64::from(to);
        if filter == Filter::Nearest {
            return self.fill_nearest(from, scale, wanted);
        }
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        let mut exact = Vec::new();
        for at in wanted {
            let center = (f64::from(at) + 0.5) * scale;
            let first = (center - support + 0.5).max(0.0) as u32;
            let end = ((center + support + 0.5) as u32).min(from);
            exact.clear();
            let inverse = 1.0 / stretch;
            exact.extend((first..end).map(|x| filter.weight((f64::from(x) - center + 0.5) * inverse)));
            let sum: f64 = exact.iter().sum();
            let one = f64::from(1 << WEIGHT_BITS);
            self.weights.extend(exact.iter().map(|&weight| {
                let weight = if sum == 0.0 { weight } else { weight / sum };
                (weight * one + 0.5_f64.copysign(weight)) as i32
            }));
            self.first.push(first);
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

    fn of(&self, index: usize) -> (usize, &[i32]) {
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
    /// What the first pass made: the rows that the second one uses.
    between: Vec<u8>,
    padded: Vec<u8>,
}

/// One resampling: of a region of an image to a size.
#[derive(Clone, Copy)]
pub struct Resampling<'a> {
    pub image: &'a Image,
    pub region: Region,
    pub size: (u32, u32),
    pub filter: Filter,
}

impl<'a> Resampling<'a> {
    /// Prepares these rows and columns of the output.
    pub fn start<'b>(self, rows: Range<u32>, columns: Range<u32>, buffers: &'b mut Buffers) -> Result<Rows<'b>>
    where
        'a: 'b,
    {
        let Resampling { image, region, size, filter } = self;
        let channels = image.channels() as usize;
        buffers.rows.fill(filter, region.h, size.0, rows.clone());
        let used = buffers.rows.used();
        let source = Source { image, region, first: used.start };
        if size.1 == region.w {
            // Only rows change, or nothing does: they are taken from where they lie.
            let at = (region.x + columns.start) as usize * channels;
            let source = &image.pixels()[(region.y + used.start) as usize * image.row_bytes() + at..];
            let width = columns.len() * channels;
            let is_same = size.0 == region.h;
            return Ok(Rows {
                source,
                stride: image.row_bytes(),
                width,
                used,
                rows: &buffers.rows,
                start: rows.start,
                is_same,
            });
        }
        buffers.columns.fill(filter, region.w, size.1, columns.clone());
        let width = columns.len() * channels;
        buffers.between.clear();
        buffers.between.resize(used.len() * width, 0);
        source.pass_columns(&buffers.columns, &mut buffers.between, &mut buffers.padded, width);
        let is_same = size.0 == region.h;
        Ok(Rows {
            source: &buffers.between,
            stride: width,
            width,
            used,
            rows: &buffers.rows,
            start: rows.start,
            is_same,
        })
    }
}

/// Rows of a region, from one on.
struct Source<'a> {
    image: &'a Image,
    region: Region,
    first: u32,
}

impl Source<'_> {
    /// The first pass: each row of `to` is one of the source with other columns.
    fn pass_columns(&self, columns: &Weights, to: &mut [u8], padded: &mut Vec<u8>, width: usize) {
        if width == 0 {
            return;
        }
        let channels = self.image.channels() as usize;
        let start = self.region.x as usize * channels;
        let bytes = self.region.w as usize * channels;
        padded.clear();
        // Four bytes are read for a pixel, whatever it has.
        padded.resize(bytes + 4, 0);
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for (y, to) in to.chunks_exact_mut(width).enumerate() {
                    let row = self.image.row(self.region.y + self.first + y as u32);
                    padded[..bytes].copy_from_slice(&row[start..start + bytes]);
                    match channels {
                        1 => columns_of::<1>(columns, padded, to),
                        2 => columns_of::<2>(columns, padded, to),
                        3 => columns_of::<3>(columns, padded, to),
                        _ => columns_of::<4>(columns, padded, to),
                    }
                }
            },
        );
    }
}

#[inline(always)]
fn columns_of<const N: usize>(columns: &Weights, from: &[u8], to: &mut [u8]) {
    let mut start = 0;
    let ends = columns.first.iter().zip(&columns.end);
    for ((&first, &end), to) in ends.zip(to.as_chunks_mut::<N>().0) {
        let weights = &columns.weights[start..end as usize];
        start = end as usize;
        let pixels = &from[first as usize * N..][..weights.len() * N + 4];
        let mut sums = [HALF; 4];
        for (index, &weight) in weights.iter().enumerate() {
            let pixel: [u8; 4] = *pixels[index * N..].first_chunk().unwrap_or(&[0; 4]);
            for channel in 0..4 {
                sums[channel] += i32::from(pixel[channel]) * weight;
            }
        }
        *to = std::array::from_fn(|channel| clip(sums[channel]));
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
    is_same: bool,
}

impl Rows<'_> {
    /// Writes row `y` of the output.
    pub fn write(&self, y: u32, to: &mut [u8]) {
        let (first, weights) = self.rows.of((y - self.start) as usize);
        let from = &self.source[(first - self.used.start as usize) * self.stride..];
        if self.is_same || weights.len() == 1 {
            // The row at the same place: Pillow leaves a pass out that changes nothing.
            let at = if self.is_same { (y - self.used.start) as usize * self.stride } else { 0 };
            let from = if self.is_same { &self.source[at..] } else { from };
            to.copy_from_slice(&from[..self.width]);
            return;
        }
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || rows_of(from, self.stride, weights, to),
        );
    }
}

/// Bytes of a row at a time whose sums stay in registers.
const LANES: usize = 32;

#[inline(always)]
fn rows_of(from: &[u8], stride: usize, weights: &[i32], to: &mut [u8]) {
    let (chunks, rest) = to.as_chunks_mut::<LANES>();
    let rest_at = chunks.len() * LANES;
    for (at, to) in chunks.iter_mut().enumerate() {
        let mut sums = [HALF; LANES];
        for (row, &weight) in weights.iter().enumerate() {
            let from: &[u8; LANES] = from[row * stride + at * LANES..].first_chunk().unwrap_or(&[0; LANES]);
            for lane in 0..LANES {
                sums[lane] += i32::from(from[lane]) * weight;
            }
        }
        *to = std::array::from_fn(|lane| clip(sums[lane]));
    }
    for (at, to) in rest.iter_mut().enumerate() {
        let taps = weights.iter().enumerate();
        let sum = taps.map(|(row, &weight)| i32::from(from[row * stride + rest_at + at]) * weight).sum::<i32>();
        *to = clip(HALF + sum);
    }
}

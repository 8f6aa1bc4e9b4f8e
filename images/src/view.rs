//! Crops, resizes, paddings and flips in a row, as one: which pixels of the source are seen, and where.

use crate::image::{Image, mirror};
use crate::passes::Passes;
use crate::resample::{Buffers, Patch, Resampling, is_rows_first};
use crate::weights::{taps, used};
use crate::{Filter, Region};
use std::ops::Range;
use uringload_core::Result;

/// A rectangle that may reach beyond the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub y: i64,
    pub x: i64,
    pub h: u32,
    pub w: u32,
}

impl Frame {
    fn whole(h: u32, w: u32) -> Frame {
        Frame { y: 0, x: 0, h, w }
    }

    fn contains(self, other: Frame) -> bool {
        let along = |start: i64, len: u32, other: i64, other_len: u32| {
            start <= other && other + i64::from(other_len) <= start + i64::from(len)
        };
        along(self.y, self.h, other.y, other.h) && along(self.x, self.w, other.x, other.w)
    }

    fn and(self, other: Frame) -> Frame {
        let along = |start: i64, len: u32, other: i64, other_len: u32| {
            let first = start.max(other);
            let end = (start + i64::from(len)).min(other + i64::from(other_len));
            (first, (end - first).max(0) as u32)
        };
        let ((y, h), (x, w)) = (along(self.y, self.h, other.y, other.h), along(self.x, self.w, other.x, other.w));
        Frame { y, x, h, w }
    }
}

/// The part of a source that is seen: `region` of it, resized to `size`. Of that, `seen` shows pixels; `window` is the
/// output, with `fill` where it shows none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    region: Region,
    size: (u32, u32),
    filter: Filter,
    is_resized: bool,
    seen: Frame,
    window: Frame,
    is_flipped: (bool, bool),
    fill: u8,
}

impl View {
    /// All of an image of that size, as it is.
    pub fn whole(height: u32, width: u32) -> View {
        let all = Frame::whole(height, width);
        View {
            region: Region::whole(height, width),
            size: (height, width),
            filter: Filter::Nearest,
            is_resized: false,
            seen: all,
            window: all,
            is_flipped: (false, false),
            fill: 0,
        }
    }

    /// Rows and columns of the output.
    pub fn output(&self) -> (u32, u32) {
        (self.window.h, self.window.w)
    }

    /// Whether the output is the source.
    pub fn is_identity(&self) -> bool {
        *self == View::whole(self.region.y + self.region.h, self.region.x + self.region.w)
    }

    /// Cuts the output, or adds around it, to `frame`. `None` if the view cannot express it.
    pub fn cut(mut self, frame: Frame, fill: u8) -> Option<View> {
        let reaches_out = !self.seen.contains(self.window);
        if reaches_out && self.fill != fill {
            return None;
        }
        let from_start = |start: i64, len: u32, all: u32, is_flipped: bool| {
            if is_flipped { i64::from(all) - start - i64::from(len) } else { start }
        };
        let y = from_start(frame.y, frame.h, self.window.h, self.is_flipped.0);
        let x = from_start(frame.x, frame.w, self.window.w, self.is_flipped.1);
        self.seen = self.seen.and(self.window);
        self.window = Frame { y: self.window.y + y, x: self.window.x + x, h: frame.h, w: frame.w };
        self.fill = fill;
        Some(self)
    }

    /// Resizes the output. `None` if the view cannot express it.
    pub fn resize(mut self, size: (u32, u32), filter: Filter) -> Option<View> {
        if self.output() == size {
            return Some(self);
        }
        let is_flipped = self.is_flipped.0 || self.is_flipped.1;
        if self.is_resized || is_flipped || !self.seen.contains(self.window) {
            return None;
        }
        // Within the region, because it is within what is seen.
        self.region.y += self.window.y as u32;
        self.region.x += self.window.x as u32;
        self.region.h = self.window.h;
        self.region.w = self.window.w;
        self.size = size;
        self.filter = filter;
        self.is_resized = true;
        self.seen = Frame::whole(size.0, size.1);
        self.window = self.seen;
        Some(self)
    }

    /// Mirrors the output.
    pub fn flip(mut self, vertically: bool) -> View {
        let flipped = if vertically { &mut self.is_flipped.0 } else { &mut self.is_flipped.1 };
        *flipped = !*flipped;
        self
    }

    /// For a mask: the nearest pixel, and its own fill.
    pub fn for_mask(mut self, fill: u8) -> View {
        self.filter = Filter::Nearest;
        self.fill = fill;
        self
    }

    /// The place of a point of the source in the output, x and y.
    pub fn point(&self, (x, y): (f32, f32)) -> (f32, f32) {
        let along = |at: f32, start: u32, len: u32, size: u32, window: i64, out: u32, is_flipped: bool| {
            let at = (at - start as f32) * (size as f32 / len as f32) - window as f32;
            if is_flipped { out as f32 - at } else { at }
        };
        let (region, window) = (&self.region, &self.window);
        (
            along(x, region.x, region.w, self.size.1, window.x, window.w, self.is_flipped.1),
            along(y, region.y, region.h, self.size.0, window.y, window.h, self.is_flipped.0),
        )
    }

    /// Rows and columns of the resized region that are in the output; a range at 0 if there are none.
    fn shown(&self) -> (Range<u32>, Range<u32>) {
        let shown = self.seen.and(self.window);
        let range = |start: i64, len: u32| Range { start: start as u32, end: start as u32 + len };
        let is_empty = shown.h == 0 || shown.w == 0;
        if is_empty { (0..0, 0..0) } else { (range(shown.y, shown.h), range(shown.x, shown.w)) }
    }

    /// As two passes of weights, columns first; `None` if there is nothing to do, if rows come first, and if not all of
    /// the output shows pixels.
    pub fn passes(&self) -> Option<Passes> {
        let is_whole = self.seen.contains(self.window) && self.window.h > 0 && self.window.w > 0;
        if self.is_identity() || !is_whole || is_rows_first(self.region, self.size, self.filter) {
            return None;
        }
        let (rows, columns) = self.shown();
        let Region { y, x, h, w } = self.region;
        Some(Passes {
            columns: taps(self.filter, (x, w), self.size.1, columns, self.is_flipped.1),
            rows: taps(self.filter, (y, h), self.size.0, rows, self.is_flipped.0),
        })
    }

    /// The used part of a source that is decoded at a part of its size. `None` if nothing is used.
    pub fn used(&self, divisor: u32) -> Option<Region> {
        let (rows, columns) = self.shown();
        (!rows.is_empty()).then(|| used(self.region, divisor, self.size, self.filter, (&rows, &columns)))
    }

    /// How many pixels along each axis may become one while the source is decoded: the largest power of two, up to 8,
    /// that leaves at least as many as the output has.
    pub fn divisor(&self) -> u32 {
        let is_averaged = self.is_resized && self.filter != Filter::Nearest;
        let leaves = |divisor: u32| self.region.h / divisor >= self.size.0 && self.region.w / divisor >= self.size.1;
        [8, 4, 2].into_iter().find(|&divisor| is_averaged && leaves(divisor)).unwrap_or(1)
    }

    /// Makes the output, row by row. `part` shows at least what is [`used`](View::used).
    pub fn render(&self, part: Patch<'_>, buffers: &mut ViewBuffers, mut row: impl FnMut(u32, &[u8])) {
        let channels = part.image.channels() as usize;
        let (rows, columns) = self.shown();
        let shown_bytes = columns.len() * channels;
        let line = &mut buffers.line;
        line.clear();
        line.resize(self.window.w as usize * channels, self.fill);
        let before = (i64::from(columns.start) - self.window.x).max(0) as usize * channels;
        let before = if shown_bytes == 0 { 0 } else { before };
        let resampling = Resampling { part, region: self.region, size: self.size, filter: self.filter };
        let made = resampling.start(rows.clone(), columns, self.is_flipped.1, &mut buffers.resampling);
        let place = if made.is_mirrored { line.len() - before - shown_bytes } else { before };
        for out in 0..self.window.h {
            let from_top = if self.is_flipped.0 { self.window.h - 1 - out } else { out };
            let at = self.window.y + i64::from(from_top);
            let source = u32::try_from(at).ok().filter(|at| rows.contains(at));
            if shown_bytes < line.len() || source.is_none() {
                // An earlier row may have been mirrored or filled.
                line.fill(self.fill);
            }
            if let Some(y) = source {
                made.write(y, &mut line[place..][..shown_bytes]);
            }
            if self.is_flipped.1 && !made.is_mirrored {
                mirror(line, channels);
            }
            row(out, line);
        }
    }

    /// The output, as an image.
    pub fn image(&self, part: Patch<'_>, buffers: &mut ViewBuffers) -> Result<Image> {
        let (height, width) = self.output();
        let mut out = Image::filled(height, width, part.image.channels(), 0)?;
        let bytes = out.row_bytes();
        let pixels = out.pixels_mut();
        self.render(part, buffers, |y, row| pixels[y as usize * bytes..][..bytes].copy_from_slice(row));
        Ok(out)
    }
}

/// Memory of a thread that renders one view after the other.
#[derive(Debug, Default)]
pub struct ViewBuffers {
    resampling: Buffers,
    line: Vec<u8>,
}

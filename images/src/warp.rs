//! Rotation and affine maps, as Pillow's `transform` does them.

use crate::{Filter, Image};
use uringload_core::Result;

/// From a pixel of the output to a place in the source: `x' = a x + b y + c`, `y' = d x + e y + f`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix(pub [f64; 6]);

impl Matrix {
    /// Counter-clockwise about the middle of an image, as Pillow's `rotate`.
    pub fn rotation(degrees: f64, (height, width): (u32, u32)) -> Matrix {
        let angle = -degrees.rem_euclid(360.0).to_radians();
        // Pillow rounds to 15 decimals, so that a quarter turn has no remainder.
        let round = |number: f64| (number * 1e15).round_ties_even() / 1e15;
        let (sin, cos) = (round(angle.sin()), round(angle.cos()));
        let (x, y) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
        Matrix([cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y])
    }

    /// The inverse of a rotation by `degrees` clockwise, a shear, a scale and a translation about `center`, as
    /// torchvision's `affine`.
    pub fn affine(center: (f64, f64), degrees: f64, move_by: (f64, f64), scale: f64, shear: (f64, f64)) -> Matrix {
        let (rot, sx, sy) = (degrees.to_radians(), shear.0.to_radians(), shear.1.to_radians());
        let a = (rot - sy).cos() / sy.cos();
        let b = -(rot - sy).cos() * sx.tan() / sy.cos() - rot.sin();
        let c = (rot - sy).sin() / sy.cos();
        let d = -(rot - sy).sin() * sx.tan() / sy.cos() + rot.cos();
        let mut matrix = [d, -b, 0.0, -c, a, 0.0].map(|number| number / scale);
        let (x, y) = (-center.0 - move_by.0, -center.1 - move_by.1);
        matrix[2] += matrix[0] * x + matrix[1] * y + center.0;
        matrix[5] += matrix[3] * x + matrix[4] * y + center.1;
        Matrix(matrix)
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let [a, b, c, d, e, f] = self.0;
        (a * x + b * y + c, d * x + e * y + f)
    }

    /// The place of a point of the source in the output, x and y. A map without an inverse has no such place.
    pub fn forward(&self, (x, y): (f32, f32)) -> (f32, f32) {
        let [a, b, c, d, e, f] = self.0;
        let (x, y) = (f64::from(x) - c, f64::from(y) - f);
        let determinant = a * e - b * d;
        (((e * x - b * y) / determinant) as f32, ((a * y - d * x) / determinant) as f32)
    }

    /// The image of the same size whose pixels this map looks up in `image`, with `fill` for places outside.
    pub fn apply(&self, image: &Image, filter: Filter, fill: u8) -> Result<Image> {
        let mut out = Image::filled(image.height(), image.width(), image.channels(), fill)?;
        let is_straight = self.0[1] == 0.0 && self.0[3] == 0.0;
        match filter {
            Filter::Nearest if is_straight => self.straight(image, &mut out),
            Filter::Nearest => self.nearest(image, &mut out),
            _ => self.bilinear(image, &mut out),
        }
        Ok(out)
    }

    /// Nearest pixels in steps of 1 / 65536.
    fn nearest(&self, image: &Image, out: &mut Image) {
        let [a, b, c, d, e, f] = self.0;
        let fixed = |number: f64| (number * 65536.0 + 0.5).floor() as i64;
        let (step_x, step_y) = (fixed(a), fixed(d));
        let (mut row_x, mut row_y) = (fixed(c + a * 0.5 + b * 0.5), fixed(f + d * 0.5 + e * 0.5));
        let channels = image.channels() as usize;
        let bytes = out.row_bytes().max(1);
        for row in out.pixels_mut().chunks_exact_mut(bytes) {
            let (mut x, mut y) = (row_x, row_y);
            for to in row.chunks_exact_mut(channels) {
                if let Some(from) = pixel(image, x >> 16, y >> 16) {
                    to.copy_from_slice(from);
                }
                x += step_x;
                y += step_y;
            }
            row_x += fixed(b);
            row_y += fixed(e);
        }
    }

    /// Nearest pixels of a map that maps rows to rows.
    fn straight(&self, image: &Image, out: &mut Image) {
        let [a, _, c, _, e, f] = self.0;
        let whole = |at: f64| if at < 0.0 { -1 } else { at as i64 };
        let channels = image.channels() as usize;
        let bytes = out.row_bytes().max(1);
        let mut y = f + e * 0.5;
        for row in out.pixels_mut().chunks_exact_mut(bytes) {
            let mut x = c + a * 0.5;
            for to in row.chunks_exact_mut(channels) {
                if let Some(from) = pixel(image, whole(x), whole(y)) {
                    to.copy_from_slice(from);
                }
                x += a;
            }
            y += e;
        }
    }

    /// Between the four nearest pixels.
    fn bilinear(&self, image: &Image, out: &mut Image) {
        let (height, width) = (f64::from(image.height()), f64::from(image.width()));
        let channels = image.channels() as usize;
        let bytes = out.row_bytes().max(1);
        for (y, row) in out.pixels_mut().chunks_exact_mut(bytes).enumerate() {
            for (x, to) in row.chunks_exact_mut(channels).enumerate() {
                let (from_x, from_y) = self.at(x as f64 + 0.5, y as f64 + 0.5);
                if !(0.0..width).contains(&from_x) || !(0.0..height).contains(&from_y) {
                    continue;
                }
                let (from_x, from_y) = (from_x - 0.5, from_y - 0.5);
                let (left, above) = (from_x.floor(), from_y.floor());
                let (right_share, below_share) = (from_x - left, from_y - above);
                let column = |at: f64| at.clamp(0.0, width - 1.0) as u32;
                let line = |at: f64| at.clamp(0.0, height - 1.0) as u32;
                let between = |y: u32, channel: usize| {
                    let level = |x: f64| f64::from(image.pixel(y, column(x))[channel]);
                    level(left) + (level(left + 1.0) - level(left)) * right_share
                };
                let has_below = above + 1.0 >= 0.0 && above + 1.0 < height;
                for (channel, to) in to.iter_mut().enumerate() {
                    let upper = between(line(above), channel);
                    let lower = if has_below { between(line(above + 1.0), channel) } else { upper };
                    *to = (upper + (lower - upper) * below_share) as u8;
                }
            }
        }
    }
}

fn pixel(image: &Image, x: i64, y: i64) -> Option<&[u8]> {
    let side = |at: i64, end: u32| u32::try_from(at).ok().filter(|&at| at < end);
    Some(image.pixel(side(y, image.height())?, side(x, image.width())?))
}

//! From the pixels of files to the requested ones, as Pillow's `convert` does it.

use super::{Color, Format, no_index};
use crate::color::luma;
use crate::image::memory;
use crate::{Image, refused};
use uringload_core::Result;

/// What a file has for a pixel, 8 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gray,
    GrayAlpha,
    Rgb,
    Rgba,
    /// 0 is no ink.
    Cmyk,
}

impl Kind {
    pub fn channels(self) -> usize {
        match self {
            Kind::Gray => 1,
            Kind::GrayAlpha => 2,
            Kind::Rgb => 3,
            Kind::Rgba | Kind::Cmyk => 4,
        }
    }
}

/// Converts `pixels`, `height * width` of that kind, to the requested kind.
pub fn converted(format: Format, size: (u32, u32), kind: Kind, pixels: Vec<u8>, color: Color) -> Result<Image> {
    let (height, width) = size;
    match (kind, color) {
        (Kind::Gray, Color::Gray | Color::Index) | (Kind::Rgb, Color::Rgb) => {
            return Image::new(height, width, color.channels(), pixels);
        }
        (Kind::Rgb | Kind::Rgba | Kind::Cmyk, Color::Index) => return Err(no_index(format)),
        _ => {}
    }
    let mut out = memory(height, width, color.channels(), 0)?;
    let pixels = pixels.chunks_exact(kind.channels());
    if color == Color::Rgb {
        for (to, from) in out.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
            *to = rgb(kind, from);
        }
    } else {
        for (to, from) in out.iter_mut().zip(pixels) {
            *to = if kind.channels() < 3 { from[0] } else { luma(rgb(kind, from)) };
        }
    }
    Image::new(height, width, color.channels(), out)
}

/// Indexes of a palette, converted to the requested kind. An index beyond the palette is black.
pub fn of_palette(size: (u32, u32), indexes: Vec<u8>, palette: &[[u8; 3]], color: Color) -> Result<Image> {
    let (height, width) = size;
    let entry = |index: &u8| palette.get(usize::from(*index)).copied().unwrap_or_default();
    let pixels = match color {
        Color::Index => indexes,
        Color::Gray => indexes.iter().map(|index| luma(entry(index))).collect(),
        Color::Rgb => {
            let mut out = memory(height, width, 3, 0)?;
            out.as_chunks_mut::<3>().0.iter_mut().zip(&indexes).for_each(|(to, index)| *to = entry(index));
            out
        }
    };
    Image::new(height, width, color.channels(), pixels)
}

/// Numbers of 1, 2, 4 or 8 bits, packed into bytes from the top with each row in whole bytes: one a byte.
pub fn unpacked(packed: &[u8], bits: u32, size: (u32, u32)) -> Result<Vec<u8>> {
    let (height, width) = size;
    let mut out = memory(height, width, 1, 0)?;
    let row_bytes = (width as usize * bits as usize).div_ceil(8);
    let mask = ((1_u16 << bits) - 1) as u8;
    for (to, from) in out.chunks_exact_mut(width as usize).zip(packed.chunks_exact(row_bytes)) {
        for (x, level) in to.iter_mut().enumerate() {
            let bit = x * bits as usize;
            *level = from[bit / 8] >> (8 - bits as usize - bit % 8) & mask;
        }
    }
    Ok(out)
}

/// Levels of that many bits, spread to 0..=255.
pub fn spread(levels: &mut [u8], bits: u32) {
    let factor = match bits {
        1 => 255,
        2 => 85,
        4 => 17,
        _ => return,
    };
    levels.iter_mut().for_each(|level| *level *= factor);
}

/// Levels of 16 bits as 8: their upper 8 bits. Numbers of a mask are kept, or refused.
pub fn narrowed(format: Format, levels: &[u16], color: Color) -> Result<Vec<u8>> {
    let most = levels.iter().copied().max().unwrap_or(0);
    if color == Color::Index && most > 255 {
        let what = format!("the {format} has numbers of 16 bits, up to {most}, and masks may have 8 bits");
        return Err(refused(what, "store it with 8 bits, or as an array"));
    }
    Ok(levels.iter().map(|level| if color == Color::Index { *level as u8 } else { (level >> 8) as u8 }).collect())
}

fn rgb(kind: Kind, pixel: &[u8]) -> [u8; 3] {
    match kind {
        Kind::Gray | Kind::GrayAlpha => [pixel[0]; 3],
        Kind::Rgb | Kind::Rgba => [pixel[0], pixel[1], pixel[2]],
        Kind::Cmyk => {
            let paper = 255 - pixel[3];
            [pixel[0], pixel[1], pixel[2]].map(|ink| paper - times(ink, paper))
        }
    }
}

/// `a * b / 255`, rounded.
fn times(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    ((product + (product >> 8)) >> 8) as u8
}

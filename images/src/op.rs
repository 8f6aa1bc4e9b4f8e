//! The operations, with torchvision's names, and what each refuses.

use crate::auto::Policy;
use crate::{Filter, refused};
use uringload_core::Result;

/// Most rows and columns of an output: up to this size, single precision represents each pixel's centre.
pub const SIDE_MAX: u32 = 1 << 23;

/// Longest kernel of a blur, in pixels.
const KERNEL_MAX: u32 = 1023;

/// A range of numbers, the lower bound first. Numbers are drawn uniformly from it.
pub type Between = (f32, f32);

/// One operation of a chain. Probabilities are 0 to 1, angles are degrees, sizes are pixels, fills are levels of 0 to
/// 255.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// Resizes.
    Resize {
        /// The size.
        size: Size,
        /// The filter.
        filter: Filter,
    },
    /// Cuts out the middle; a smaller image is padded by 0 first.
    CenterCrop {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
    /// Pads all sides, then cuts out a random place. Refuses an image that is still smaller, as torchvision does
    /// without `pad_if_needed`.
    RandomCrop {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// On each side.
        padding: u32,
        /// The level of the padding.
        fill: u8,
    },
    /// Cuts out a random place of random area and aspect ratio, and resizes it.
    RandomResizedCrop {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// Share of the area; torchvision's default is 0.08 to 1.
        scale: Between,
        /// Width to height, uniform in its logarithm; torchvision's default is 3/4 to 4/3.
        ratio: Between,
        /// The filter.
        filter: Filter,
    },
    /// Mirrors left to right.
    HorizontalFlip {
        /// The probability.
        p: f32,
    },
    /// Mirrors top to bottom.
    VerticalFlip {
        /// The probability.
        p: f32,
    },
    /// Adds pixels around the image.
    Pad {
        /// Left, top, right and bottom.
        padding: [u32; 4],
        /// Their level.
        fill: u8,
    },
    /// Turns counter-clockwise about the middle; the size stays.
    Rotate {
        /// The angle.
        degrees: Between,
        /// `Nearest` or `Bilinear`.
        filter: Filter,
        /// The level of pixels from outside.
        fill: u8,
    },
    /// Turns clockwise, moves, scales and shears about the middle; the size stays.
    Affine {
        /// The angle.
        degrees: Between,
        /// Greatest share of width and height by which it is moved.
        translate: (f32, f32),
        /// The scale.
        scale: Between,
        /// The angle of shear along x.
        shear: Between,
        /// `Nearest` or `Bilinear`.
        filter: Filter,
        /// The level of pixels from outside.
        fill: u8,
    },
    /// Changes brightness, contrast, saturation and hue, in random order.
    ColorJitter {
        /// Factor; 1 changes nothing.
        brightness: Between,
        /// Factor; 1 changes nothing.
        contrast: Between,
        /// Factor; 1 changes nothing.
        saturation: Between,
        /// Turn of the colour circle, -0.5 to 0.5; 0 changes nothing.
        hue: Between,
    },
    /// Makes all channels the luminance.
    Grayscale {
        /// The probability.
        p: f32,
    },
    /// Blurs with a Gaussian kernel; the image is mirrored at its edges.
    GaussianBlur {
        /// Pixels of the kernel, an odd number.
        kernel: u32,
        /// Standard deviation in pixels.
        sigma: Between,
    },
    /// Overwrites a rectangle of the output, after normalization. It is always last.
    RandomErasing {
        /// The probability.
        p: f32,
        /// Share of the area.
        scale: Between,
        /// Height to width, uniform in its logarithm.
        ratio: Between,
        /// The new content.
        value: Erasing,
    },
    /// One of the pairs of operations that were found best for a dataset (`AutoAugment`).
    AutoAugment(Policy),
    /// Several random operations of one magnitude (`RandAugment`).
    RandAugment {
        /// How many.
        ops: u32,
        /// 0 to 30.
        magnitude: u32,
    },
    /// One random operation of random magnitude (`TrivialAugmentWide`).
    TrivialAugment,
}

/// The size that an image is resized to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Size {
    /// This many pixels for the shorter side, and the other one in proportion.
    Shorter(u32),
    /// Rows and columns.
    Exact(u32, u32),
}

/// The content of an erased rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Erasing {
    /// This element as it is, normalized or not.
    Value(f32),
    /// Numbers of the standard normal distribution, one for each element.
    Random,
}

impl Op {
    /// Refuses invalid numbers.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check(&self) -> Result<()> {
        match self {
            Op::Resize { size: Size::Shorter(side), .. } => sides(&[*side]),
            Op::Resize { size: Size::Exact(height, width), .. } | Op::CenterCrop { height, width } => {
                sides(&[*height, *width])
            }
            Op::RandomCrop { height, width, padding, .. } => {
                paddings(&[*padding])?;
                sides(&[*height, *width])
            }
            Op::RandomResizedCrop { height, width, scale, ratio, .. } => {
                sides(&[*height, *width])?;
                positive("scale", *scale)?;
                positive("ratio", *ratio)
            }
            Op::HorizontalFlip { p } | Op::VerticalFlip { p } | Op::Grayscale { p } => probability(*p),
            Op::Pad { padding, .. } => paddings(padding),
            Op::Rotate { degrees, filter, .. } => {
                range("degrees", *degrees, (f32::MIN, f32::MAX))?;
                warps(*filter)
            }
            Op::Affine { degrees, translate, scale, shear, filter, .. } => {
                range("degrees", *degrees, (f32::MIN, f32::MAX))?;
                range("translate", (translate.0, translate.0), (0.0, 1.0))?;
                range("translate", (translate.1, translate.1), (0.0, 1.0))?;
                positive("scale", *scale)?;
                range("shear", *shear, (-89.0, 89.0))?;
                warps(*filter)
            }
            Op::ColorJitter { brightness, contrast, saturation, hue } => {
                range("brightness", *brightness, (0.0, f32::MAX))?;
                range("contrast", *contrast, (0.0, f32::MAX))?;
                range("saturation", *saturation, (0.0, f32::MAX))?;
                range("hue", *hue, (-0.5, 0.5))
            }
            Op::GaussianBlur { kernel, sigma } => {
                if kernel % 2 == 0 || *kernel > KERNEL_MAX {
                    let remedy = format!("give an odd number up to {KERNEL_MAX}");
                    return Err(refused(format!("no blur has a kernel of {kernel} pixels"), remedy));
                }
                positive("sigma", *sigma)
            }
            Op::RandomErasing { p, scale, ratio, value } => {
                probability(*p)?;
                positive("scale", *scale)?;
                positive("ratio", *ratio)?;
                match value {
                    Erasing::Value(value) if !value.is_finite() => {
                        Err(refused(format!("{value} is no value to erase with"), "give a finite number"))
                    }
                    _ => Ok(()),
                }
            }
            Op::RandAugment { ops, magnitude } => {
                if *ops > 16 || *magnitude > 30 {
                    let what = format!("{ops} operations of magnitude {magnitude} are asked for");
                    return Err(refused(what, "give up to 16 operations, and a magnitude of 0 to 30"));
                }
                Ok(())
            }
            Op::AutoAugment(_) | Op::TrivialAugment => Ok(()),
        }
    }
}

fn sides(sides: &[u32]) -> Result<()> {
    match sides.iter().find(|side| !(1..=SIDE_MAX).contains(*side)) {
        None => Ok(()),
        Some(side) => Err(refused(format!("no image has a side of {side} pixels"), format!("give 1 to {SIDE_MAX}"))),
    }
}

fn paddings(paddings: &[u32]) -> Result<()> {
    match paddings.iter().find(|&&padding| padding > SIDE_MAX) {
        None => Ok(()),
        Some(padding) => Err(refused(format!("no image is padded by {padding}"), format!("give 0 to {SIDE_MAX}"))),
    }
}

fn probability(p: f32) -> Result<()> {
    range("p", (p, p), (0.0, 1.0))
}

fn positive(name: &str, between: Between) -> Result<()> {
    range(name, between, (f32::MIN_POSITIVE, f32::MAX))
}

fn range(name: &str, (low, high): Between, (least, most): Between) -> Result<()> {
    if least <= low && low <= high && high <= most {
        return Ok(());
    }
    let what = format!("{name} is {low} to {high}");
    let remedy = match (least, most) {
        (f32::MIN, f32::MAX) => "give finite numbers, the lower bound first".to_owned(),
        (f32::MIN_POSITIVE, f32::MAX) => "give finite numbers above 0, the lower bound first".to_owned(),
        (_, f32::MAX) => format!("give finite numbers from {least} on, the lower bound first"),
        _ => format!("give numbers from {least} to {most}, the lower bound first"),
    };
    Err(refused(what, remedy))
}

fn warps(filter: Filter) -> Result<()> {
    if matches!(filter, Filter::Nearest | Filter::Bilinear) {
        return Ok(());
    }
    Err(refused(format!("no image is turned by {}", filter.name()), "give nearest or bilinear"))
}

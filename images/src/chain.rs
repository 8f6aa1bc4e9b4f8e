//! A list of operations, and what it does with one image.

use crate::auto::{auto_augment, rand_augment, trivial_augment};
use crate::op::{Op, SIDE_MAX, Size};
use crate::plan::{Paint, Plan};
use crate::random::Random;
use crate::tensor::Elements;
use crate::view::Frame;
use crate::warp::Matrix;
use crate::{Filter, Region, refused};
use uringload_core::{DType, Result};

/// Most pixels of an operation's result.
const PIXELS_MAX: u64 = 1 << 30;

/// Operations in a row, and the tensor that they make: by default `f32` from 0 to 1 of shape `[channels, height,
/// width]`, as torchvision's `ToTensor`.
///
/// ```
/// use uringload_core::DType;
/// use uringload_images::{Chain, Filter, Op, Size};
///
/// # fn main() -> uringload_core::Result<()> {
/// let chain = Chain::new()
///     .with(Op::Resize { size: Size::Shorter(256), filter: Filter::Bilinear })?
///     .with(Op::CenterCrop { height: 224, width: 224 })?
///     .normalize(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])?
///     .dtype(DType::BF16)?;
/// // The same, as a string.
/// let parsed: Chain = "resize(256), center_crop(224), normalize(imagenet), to_tensor(bf16)".parse()?;
/// assert_eq!(parsed, chain);
/// // Only what the crop shows of the image is resized.
/// let plan = chain.draw(0, 0, 0, 375, 500)?;
/// assert_eq!(plan.output(3).shape(), [3, 224, 224]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    ops: Vec<Op>,
    elements: Elements,
}

impl Chain {
    /// Without operations.
    #[must_use]
    pub fn new() -> Chain {
        Chain::default()
    }

    /// Adds an operation after the others.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid numbers, and for an operation after an erasing, which overwrites the tensor.
    pub fn with(mut self, op: Op) -> Result<Chain> {
        op.check()?;
        let is_erasing = |op: &Op| matches!(op, Op::RandomErasing { .. });
        if self.ops.last().is_some_and(is_erasing) && !is_erasing(&op) {
            return Err(refused("an operation follows an erasing", "erase last"));
        }
        self.ops.push(op);
        Ok(self)
    }

    /// Subtracts `mean` from levels scaled to 0..1, and divides by `std`: each has one number for all channels, or one
    /// for each channel. Follows all operations but erasing.
    ///
    /// # Errors
    /// `InvalidArgument` for numbers that are not finite, and a deviation that is not above 0.
    pub fn normalize(mut self, mean: &[f32], std: &[f32]) -> Result<Chain> {
        self.elements.mean = mean.to_vec();
        self.elements.std = std.to_vec();
        Elements { dtype: DType::F32, ..self.elements.clone() }.check_numbers()?;
        Ok(self)
    }

    /// The element type that comes out: `F32`, `F16`, `BF16`, or `U8`, which keeps levels from 0 to 255.
    ///
    /// # Errors
    /// `InvalidArgument` for another type.
    pub fn dtype(mut self, dtype: DType) -> Result<Chain> {
        Elements { dtype, ..Elements::default() }.check_numbers()?;
        self.elements.dtype = dtype;
        Ok(self)
    }

    /// Whether the shape that comes out is `[height, width, channels]`.
    #[must_use]
    pub fn channels_last(mut self, channels_last: bool) -> Chain {
        self.elements.channels_last = channels_last;
        self
    }

    /// The operations.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The chain as two in a row: the part that is the same in every epoch, as an image of 8 bits, and everything from
    /// the first random operation on, to the tensor. Random numbers and resulting bytes are those of the whole chain.
    ///
    /// ```
    /// # fn main() -> uringload_core::Result<()> {
    /// use uringload_images::Chain;
    ///
    /// let chain: Chain = "resize(256), random_crop(224), hflip, normalize(imagenet)".parse()?;
    /// let (fixed, random) = chain.split();
    /// assert_eq!((fixed.ops().len(), random.ops().len()), (1, 2));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn split(&self) -> (Chain, Chain) {
        // These draw no number. Others may, even where the number decides nothing.
        let is_fixed = |op: &Op| matches!(op, Op::Resize { .. } | Op::CenterCrop { .. } | Op::Pad { .. });
        let end = self.ops.iter().position(|op| !is_fixed(op)).unwrap_or(self.ops.len());
        let (fixed, random) = self.ops.split_at(end);
        let fixed = Chain { ops: fixed.to_vec(), elements: Elements::default() };
        (fixed, Chain { ops: random.to_vec(), elements: self.elements.clone() })
    }

    /// The chain up to its pixels, `u8` of shape `[height, width, channels]`, and how their levels become numbers then;
    /// `None` with an erasing, which overwrites the tensor.
    #[must_use]
    pub fn split_elements(&self) -> Option<(Chain, &Elements)> {
        if self.ops.iter().any(|op| matches!(op, Op::RandomErasing { .. })) {
            return None;
        }
        let pixels = Elements { dtype: DType::U8, channels_last: true, ..Elements::default() };
        Some((Chain { ops: self.ops.clone(), elements: pixels }, &self.elements))
    }

    /// Rows and columns of the result for an image of any size; `None` if they depend on it.
    #[must_use]
    pub fn size(&self) -> Option<(u32, u32)> {
        let grown = |side: u32, before: &u32, behind: &u32| side.saturating_add(*before).saturating_add(*behind);
        self.ops.iter().fold(None, |size, op| match op {
            Op::Resize { size: Size::Exact(height, width), .. }
            | Op::CenterCrop { height, width }
            | Op::RandomCrop { height, width, .. }
            | Op::RandomResizedCrop { height, width, .. } => Some((*height, *width)),
            Op::Resize { size: Size::Shorter(side), .. } => size.map(|size| shorter(size, *side)),
            Op::Pad { padding: [left, top, right, bottom], .. } => {
                size.map(|(height, width)| (grown(height, top, bottom), grown(width, left, right)))
            }
            _ => size,
        })
    }

    /// What happens to one image of `height` rows and `width` columns: a function of the seed, the epoch and the
    /// sample, the same on every thread, rank and machine, and after a resume.
    ///
    /// The first number of the sample's stream decides about the first horizontal flip, wherever it is in the chain;
    /// the operations draw the others in their order. So the boxes are those of `uringload::transform::Images`.
    ///
    /// # Errors
    /// `InvalidArgument` for an image without pixels, one that is too small for a crop, and one that is too large to
    /// pad.
    pub fn draw(&self, seed: u64, epoch: u64, sample: u64, height: u32, width: u32) -> Result<Plan> {
        self.elements.check_numbers()?;
        if height == 0 || width == 0 || height > SIDE_MAX || width > SIDE_MAX {
            let what = format!("an image of {height} x {width} pixels cannot be transformed");
            return Err(refused(what, format!("give images of 1 to {SIDE_MAX} rows and columns")));
        }
        let random = Random::of_sample(seed, epoch, sample);
        let mut draw = Draw { random, plan: Plan::new(height, width, self.elements.clone()), flip: None };
        draw.flip = Some(draw.random.uniform(0.0, 1.0));
        for op in &self.ops {
            draw.add(op)?;
        }
        Ok(draw.plan)
    }
}

/// One plan while it is drawn.
struct Draw {
    random: Random,
    plan: Plan,
    /// The number of the first horizontal flip, until it is used.
    flip: Option<f64>,
}

impl Draw {
    fn add(&mut self, op: &Op) -> Result<()> {
        let (height, width) = self.plan.size();
        match *op {
            Op::Resize { size, filter } => {
                let size = match size {
                    Size::Shorter(side) => shorter((height, width), side),
                    Size::Exact(height, width) => (height, width),
                };
                self.resize(size, filter)?;
            }
            Op::CenterCrop { height: h, width: w } => self.center_crop(h, w),
            Op::RandomCrop { height: h, width: w, padding, fill } => self.random_crop((h, w), padding, fill)?,
            Op::RandomResizedCrop { height: h, width: w, scale, ratio, filter } => {
                let region = self.random.resized_crop(scale, ratio, height, width);
                self.plan.cut(frame(region), 0);
                self.resize((h, w), filter)?;
            }
            Op::HorizontalFlip { p } => {
                let drawn = self.flip.take().unwrap_or_else(|| self.random.uniform(0.0, 1.0));
                if drawn < f64::from(p) {
                    self.plan.flip(false);
                }
            }
            Op::VerticalFlip { p } => {
                if self.random.happens(p) {
                    self.plan.flip(true);
                }
            }
            Op::Pad { padding, fill } => self.pad(padding, fill)?,
            Op::Rotate { degrees, filter, fill } => {
                let degrees = self.random.within(degrees);
                self.rotate(degrees, filter, fill);
            }
            Op::Affine { degrees, translate, scale, shear, filter, fill } => {
                let degrees = self.random.within(degrees);
                let mut by = |share: f32, side: u32| {
                    let most = f64::from(share) * f64::from(side);
                    self.random.uniform(-most, most).round_ties_even()
                };
                let move_by = (by(translate.0, width), by(translate.1, height));
                let (scale, shear) = (self.random.within(scale), self.random.within(shear));
                let center = (f64::from(width) * 0.5, f64::from(height) * 0.5);
                self.plan.warp(Matrix::affine(center, degrees, move_by, scale, (shear, 0.0)), filter, fill);
            }
            Op::ColorJitter { brightness, contrast, saturation, hue } => {
                self.jitter([brightness, contrast, saturation, hue]);
            }
            Op::Grayscale { p } => {
                if self.random.happens(p) {
                    self.plan.paint(Paint::Grayscale);
                }
            }
            Op::GaussianBlur { kernel, sigma } => {
                let sigma = self.random.within(sigma) as f32;
                self.plan.paint(Paint::Blur { kernel, sigma });
            }
            Op::RandomErasing { p, scale, ratio, value } => {
                let happens = self.random.happens(p);
                if let Some(region) = self.random.erased(scale, ratio, height, width).filter(|_| happens) {
                    let key = self.random.uniform(0.0, 1.0).to_bits();
                    self.plan.erase(region, value, key);
                }
            }
            Op::AutoAugment(policy) => {
                let drawn = auto_augment(&mut self.random, policy, (height, width));
                self.plan.augment(&drawn);
            }
            Op::RandAugment { ops, magnitude } => {
                let drawn = rand_augment(&mut self.random, ops, magnitude, (height, width));
                self.plan.augment(&drawn);
            }
            Op::TrivialAugment => {
                let drawn = trivial_augment(&mut self.random, (height, width));
                self.plan.augment(drawn.as_slice());
            }
        }
        Ok(())
    }

    fn resize(&mut self, size: (u32, u32), filter: Filter) -> Result<()> {
        check_size(size)?;
        self.plan.resize(size, filter);
        Ok(())
    }

    fn center_crop(&mut self, h: u32, w: u32) {
        // A smaller image is padded first, the odd pixel to the right and below.
        let start = |all: u32, len: u32| {
            if len > all { -i64::from((len - all) / 2) } else { (f64::from(all - len) / 2.0).round_ties_even() as i64 }
        };
        let (height, width) = self.plan.size();
        self.plan.cut(Frame { y: start(height, h), x: start(width, w), h, w }, 0);
    }

    fn random_crop(&mut self, (h, w): (u32, u32), padding: u32, fill: u8) -> Result<()> {
        let (height, width) = self.plan.size();
        let padded = (height + 2 * padding, width + 2 * padding);
        if h > padded.0 || w > padded.1 {
            let what = format!("no {h} x {w} can be cut from an image of {} x {} pixels", padded.0, padded.1);
            return Err(refused(what, "give a smaller crop, padding, or resize before it"));
        }
        let place = self.random.place(h, w, padded.0, padded.1);
        let start = |at: u32| i64::from(at) - i64::from(padding);
        self.plan.cut(Frame { y: start(place.y), x: start(place.x), h, w }, fill);
        Ok(())
    }

    fn pad(&mut self, [left, top, right, bottom]: [u32; 4], fill: u8) -> Result<()> {
        let (height, width) = self.plan.size();
        let (h, w) = (height + top + bottom, width + left + right);
        check_size((h, w))?;
        self.plan.cut(Frame { y: -i64::from(top), x: -i64::from(left), h, w }, fill);
        Ok(())
    }

    fn rotate(&mut self, degrees: f64, filter: Filter, fill: u8) {
        // Pillow turns by 0 and 180 degrees without a lookup.
        match degrees.rem_euclid(360.0) {
            0.0 => {}
            180.0 => {
                self.plan.flip(false);
                self.plan.flip(true);
            }
            degrees => self.plan.warp(Matrix::rotation(degrees, self.plan.size()), filter, fill),
        }
    }

    /// Brightness, contrast, saturation and hue, in random order.
    fn jitter(&mut self, ranges: [(f32, f32); 4]) {
        let order = self.random.order::<4>();
        let [brightness, contrast, saturation, hue] = ranges.map(|range| self.random.within(range) as f32);
        let paints = [
            (Paint::Brightness(brightness), ranges[0] != (1.0, 1.0)),
            (Paint::Contrast(contrast), ranges[1] != (1.0, 1.0)),
            (Paint::Saturation(saturation), ranges[2] != (1.0, 1.0)),
            (Paint::Hue(hue), ranges[3] != (0.0, 0.0)),
        ];
        for (paint, is_asked_for) in order.map(|index| paints[index]) {
            if is_asked_for {
                self.plan.paint(paint);
            }
        }
    }
}

fn frame(region: Region) -> Frame {
    Frame { y: region.y.into(), x: region.x.into(), h: region.h, w: region.w }
}

/// The shorter side becomes `side`; the other one follows, rounded down, as in torchvision.
fn shorter((height, width): (u32, u32), side: u32) -> (u32, u32) {
    let follow =
        |long: u32, short: u32| (f64::from(side) * f64::from(long) / f64::from(short)).min(f64::from(u32::MAX)) as u32;
    if width <= height { (follow(height, width), side) } else { (side, follow(width, height)) }
}

fn check_size((height, width): (u32, u32)) -> Result<()> {
    if height <= SIDE_MAX && width <= SIDE_MAX && u64::from(height) * u64::from(width) <= PIXELS_MAX {
        return Ok(());
    }
    let what = format!("the image would have {height} x {width} pixels");
    Err(refused(what, format!("ask for sides of up to {SIDE_MAX} pixels, and {PIXELS_MAX} in all")))
}

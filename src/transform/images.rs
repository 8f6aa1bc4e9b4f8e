//! The requested transform of images, and its random numbers for each image.

use super::twin::{CHANNELS_MAX, ImageLayout, ImageParams};
use super::{Output, refused, twin, zeroed};
use crate::Result;
use crate::dataset::{DType, Field, SampleId, Shape};
use uringload_images::{Elements, Random, Region};
use uringload_sys::cuda::NORMAL_MAX;

/// Most rows and columns of an image: up to this, single precision can represent the centre of each pixel.
pub const SIDE_MAX: u32 = 1 << 23;

/// Turns pixels, bytes of shape `[height, width]` or `[height, width, channels]`, into a tensor of shape
/// `[channels, height, width]`: cropped, resized, flipped and normalized, in this order.
///
/// Resizing is bilinear without antialiasing. The default does what torchvision's `ToTensor` does: single precision
/// from 0 to 1. Random numbers depend on the seed, the epoch and the sample alone.
///
/// ```no_run
/// use uringload::config::Device;
/// use uringload::dataset::{self, Options};
/// use uringload::transform::{Crop, Images};
/// use uringload::{Loader, Result};
///
/// # fn main() -> Result<()> {
/// let photos = dataset::open(&["/data/photos.beton"], &Options::new())?;
/// let images = Images::default()
///     .crop(Crop::RandomResized { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) })
///     .size((224, 224))
///     .flip(0.5)
///     .mean([0.485, 0.456, 0.406])
///     .std([0.229, 0.224, 0.225]);
/// let loader = Loader::builder(photos).shuffle(true).device(Device::auto()).on_device("image", images).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// Height and width of the output in pixels. `None`: those of the source.
    pub(crate) size: Option<(u32, u32)>,
    /// The part of the source that is taken.
    pub(crate) crop: Crop,
    /// Probability, 0 to 1, that the columns of an image are mirrored.
    pub(crate) flip: f32,
    /// Subtracted, for all channels or for each, from pixels of 0 to 1; as in torchvision's `Normalize`. Empty: 0.
    pub(crate) mean: Vec<f32>,
    /// Divisor after that, for all channels or for each. Empty: 1.
    pub(crate) std: Vec<f32>,
    /// Element type of the output: `F32`, `F16`, `BF16`, or `U8`, which keeps pixels from 0 to 255.
    pub(crate) dtype: DType,
    /// Whether the output has the shape `[height, width, channels]`.
    pub(crate) channels_last: bool,
}

/// The part of an image that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Crop {
    /// All of it, resized to `size`.
    #[default]
    None,
    /// The middle, as large as `size`; torchvision's `CenterCrop`.
    Center,
    /// A random place, as large as `size`; torchvision's `RandomCrop`.
    Random,
    /// A random place of random area and aspect ratio (width to height, uniform in its logarithm), resized to `size`;
    /// torchvision's `RandomResizedCrop`, whose defaults are `(0.08, 1.0)` and `(3.0 / 4.0, 4.0 / 3.0)`.
    RandomResized {
        /// Least and greatest share of the area.
        scale: (f32, f32),
        /// Least and greatest aspect ratio.
        ratio: (f32, f32),
    },
}

impl Default for Images {
    fn default() -> Images {
        Images {
            size: None,
            crop: Crop::None,
            flip: 0.0,
            mean: Vec::new(),
            std: Vec::new(),
            dtype: DType::F32,
            channels_last: false,
        }
    }
}

impl Images {
    /// Height and width of the output, in pixels. Default: those of the source.
    #[must_use]
    pub fn size(mut self, size: impl Into<Option<(u32, u32)>>) -> Images {
        self.size = size.into();
        self
    }

    /// The part of the source that is taken. Default: all of it.
    #[must_use]
    pub fn crop(mut self, crop: Crop) -> Images {
        self.crop = crop;
        self
    }

    /// The probability, 0 to 1, that an image is mirrored left to right. Default: 0.
    #[must_use]
    pub fn flip(mut self, probability: f32) -> Images {
        self.flip = probability;
        self
    }

    /// The mean to subtract from pixels scaled to 0..1, as in torchvision's `Normalize`: one number for all channels,
    /// or one for each. Default: nothing.
    #[must_use]
    pub fn mean(mut self, mean: impl Into<Vec<f32>>) -> Images {
        self.mean = mean.into();
        self
    }

    /// The divisor of pixels after the mean is subtracted: one number for all channels, or one for each. Default: 1.
    #[must_use]
    pub fn std(mut self, std: impl Into<Vec<f32>>) -> Images {
        self.std = std.into();
        self
    }

    /// Element type of the output: `F32` (the default), `F16`, `BF16`, or `U8`, which keeps pixels from 0 to 255.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Images {
        self.dtype = dtype;
        self
    }

    /// Whether the output has the shape `[height, width, channels]` instead of `[channels, height, width]`. Default:
    /// false.
    #[must_use]
    pub fn channels_last(mut self, channels_last: bool) -> Images {
        self.channels_last = channels_last;
        self
    }

    /// The result for a sample of this column.
    ///
    /// # Errors
    /// `InvalidArgument` if the column has no images, or none that are large enough, and for invalid numbers.
    #[doc(hidden)]
    pub fn check(&self, field: &Field) -> Result<Output> {
        let layout = self.layout(field)?;
        let [channels, height, width] = [layout.channels, layout.height, layout.width].map(u64::from);
        let shape = if self.channels_last { vec![height, width, channels] } else { vec![channels, height, width] };
        Ok(Output { dtype: self.dtype, shape: Shape::Fixed(shape) })
    }

    /// The layout that all images of this column share.
    ///
    /// # Errors
    /// As [`check`](Images::check).
    #[doc(hidden)]
    pub fn layout(&self, field: &Field) -> Result<ImageLayout> {
        let (height, width, channels) = source_shape(field)?;
        let name = &field.name;
        self.check_size(name, height, width)?;
        if !(0.0..=1.0).contains(&self.flip) {
            let what = format!("images of column {name:?} cannot be mirrored with a probability of {}", self.flip);
            return Err(refused(what, "give a flip from 0 to 1"));
        }
        if !matches!(self.dtype, DType::U8 | DType::F32 | DType::F16 | DType::BF16) {
            let what = format!("images of column {name:?} cannot become {}", self.dtype);
            return Err(refused(what, "ask for f32, f16, bf16 or u8"));
        }
        self.check_scale(name, channels)?;
        let (height, width) = self.size.unwrap_or((height, width));
        let elements = self.elements();
        let numbers = [0, 1, 2, 3].map(|channel| elements.of_channel(channel));
        let (mean, std) = (numbers.map(|(mean, _)| mean), numbers.map(|(_, std)| std));
        let (dtype, channels_last) = (self.dtype, self.channels_last);
        Ok(ImageLayout { dtype, channels, height, width, channels_last, mean, std })
    }

    /// The box and the mirroring of one image, of `height` rows and `width` columns: a function of the seed, the epoch
    /// and the sample, so that they are the same on every thread, rank and device, and after a resume. First the
    /// mirroring is drawn, then the box.
    ///
    /// If the image is smaller than a box that [`check`](Images::check) would have refused, the box is the image.
    #[doc(hidden)]
    pub fn params(&self, seed: u64, epoch: u64, id: SampleId, height: u32, width: u32) -> ImageParams {
        let mut random = Random::of_sample(seed, epoch, id.0);
        let flip = random.happens(self.flip);
        let (out_h, out_w) = self.size.unwrap_or((height, width));
        let (h, w) = (out_h.min(height), out_w.min(width));
        let whole = Region { y: 0, x: 0, h: height, w: width };
        let region = match self.crop {
            Crop::None => whole,
            Crop::Center => Region { y: middle(height - h), x: middle(width - w), h, w },
            Crop::Random => random.place(h, w, height, width),
            // An image without pixels has no parts.
            Crop::RandomResized { .. } if height == 0 || width == 0 => whole,
            Crop::RandomResized { scale, ratio } => random.resized_crop(scale, ratio, height, width),
        };
        let [x, y, w, h] = [region.x, region.y, region.w, region.h].map(|pixels| pixels as f32);
        ImageParams { height, width, x, y, w, h, flip }
    }

    /// The host's chain for levels.
    fn elements(&self) -> Elements {
        let Images { dtype, channels_last, mean, std, .. } = self.clone();
        Elements { dtype, channels_last, mean, std }
    }

    /// Whether the kernels give the same result for each level as the host's chains, as they do for almost all means
    /// and deviations.
    pub(crate) fn is_exact(&self) -> bool {
        let elements = self.elements();
        (0..CHANNELS_MAX as usize).all(|channel| {
            let (mean, std) = elements.of_channel(channel);
            let normalized = twin::normalizer(mean, std);
            (0..=255_u8).all(|level| normalized(level.into()) == elements.value(channel, level))
        })
    }

    /// Refuses sizes and boxes that do not fit images of this size.
    fn check_size(&self, name: &str, height: u32, width: u32) -> Result<()> {
        let (out_h, out_w) = self.size.unwrap_or((height, width));
        if !(1..=SIDE_MAX).contains(&out_h) || !(1..=SIDE_MAX).contains(&out_w) {
            let what = format!("images of column {name:?} cannot be made {out_h} x {out_w} pixels large");
            return Err(refused(what, format!("give a height and a width from 1 to {SIDE_MAX}")));
        }
        if self.crop != Crop::None && self.size.is_none() {
            let what = format!("images of column {name:?} are cut, and no size is given");
            return Err(refused(what, "give size, a height and a width"));
        }
        match self.crop {
            Crop::Center | Crop::Random if out_h > height || out_w > width => {
                let what =
                    format!("no {out_h} x {out_w} can be cut from images of column {name:?}, {height} x {width}");
                Err(refused(what, "give a smaller size, or crop none or resized"))
            }
            Crop::RandomResized { scale: (least, most), ratio: (narrow, wide) } => {
                let is_range = |low: f32, high: f32| low > 0.0 && low <= high && high.is_finite();
                if is_range(least, most) && is_range(narrow, wide) {
                    return Ok(());
                }
                let parts = format!("a scale of {least} to {most} and a ratio of {narrow} to {wide}");
                let what = format!("images of column {name:?} cannot be cut by {parts}");
                Err(refused(what, "give ranges above 0, the lower bound first"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a mean and a standard deviation that do not fit this number of channels.
    fn check_scale(&self, name: &str, channels: u32) -> Result<()> {
        let one_each = |numbers: &[f32]| numbers.len() <= 1 || numbers.len() == channels as usize;
        if !one_each(&self.mean) || !one_each(&self.std) {
            let (means, stds) = (self.mean.len(), self.std.len());
            let what =
                format!("{means} means and {stds} deviations are given for {channels} channels of column {name:?}");
            return Err(refused(what, "give one, or one for each channel"));
        }
        if self.dtype == DType::U8 && !(self.mean.is_empty() && self.std.is_empty()) {
            let what = format!("images of column {name:?} cannot be normalized as u8, which holds 0 to 255");
            return Err(refused(what, "ask for f32, f16 or bf16, or give neither mean nor std"));
        }
        let is_mean = |mean: &f32| mean.abs() <= NORMAL_MAX;
        let is_std = |std: &f32| (1.0 / NORMAL_MAX..=NORMAL_MAX).contains(std);
        if !self.mean.iter().all(is_mean) || !self.std.iter().all(is_std) {
            let (mean, std) = (&self.mean, &self.std);
            let what = format!("images of column {name:?} cannot be normalized by mean {mean:?} and std {std:?}");
            return Err(refused(what, "give means from -1e6 to 1e6, and deviations from 1e-6 to 1e6"));
        }
        Ok(())
    }
}

/// The images of a batch, one after the other, as the kernels make them, without a GPU. Sample i has
/// `params[i].height * params[i].width * layout.channels` bytes.
///
/// # Errors
/// `InvalidArgument` if a sample does not have the length of its parameters, and if the numbers of samples and
/// parameters differ. `MemoryLimit` if there is no memory.
pub fn images_on_host(layout: &ImageLayout, params: &[ImageParams], samples: &[&[u8]]) -> Result<Vec<u8>> {
    if params.len() != samples.len() {
        let what = format!("there are {} images and the parameters of {}", samples.len(), params.len());
        return Err(refused(what, "give parameters for each image"));
    }
    for (index, (params, sample)) in params.iter().zip(samples).enumerate() {
        let (height, width) = (u64::from(params.height), u64::from(params.width));
        if u128::from(height * width) * u128::from(layout.channels) != sample.len() as u128 {
            let shape = format!("{height} x {width} x {}", layout.channels);
            let what = format!("image {index} of the batch has {} bytes and not {shape}", sample.len());
            return Err(refused(what, "give each image the parameters that were made for its height and width"));
        }
    }
    let mut to = zeroed(samples.len(), layout.bytes())?;
    twin::images(&mut to, params.iter().copied().zip(samples.iter().copied()), layout);
    Ok(to)
}

/// Height, width and channels of the column's images.
fn source_shape(field: &Field) -> Result<(u32, u32, u32)> {
    let side = |pixels: u64| u32::try_from(pixels).ok().filter(|pixels| (1..=SIDE_MAX).contains(pixels));
    let shape = match (field.dtype, &field.shape) {
        (DType::U8, Shape::Fixed(shape)) => match shape[..] {
            [height, width] => Some((height, width, 1)),
            [height, width, channels] => Some((height, width, channels)),
            _ => None,
        },
        _ => None,
    };
    let sides = shape.and_then(|(height, width, channels)| {
        let channels = u32::try_from(channels).ok().filter(|channels| (1..=CHANNELS_MAX).contains(channels))?;
        Some((side(height)?, side(width)?, channels))
    });
    sides.ok_or_else(|| {
        let shape = match &field.shape {
            Shape::Fixed(shape) => format!("of shape {shape:?}"),
            Shape::Ragged => "of any length".to_owned(),
        };
        let what = format!("column {:?} has no images: its values are {} {shape}", field.name, field.dtype);
        refused(what, format!("images are u8 of shape [height, width] or [height, width, 1 to {CHANNELS_MAX}]"))
    })
}

/// Half of it, rounded like Python's `round`.
fn middle(pixels: u32) -> u32 {
    (f64::from(pixels) / 2.0).round_ties_even() as u32
}

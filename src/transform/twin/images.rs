//! `ur_images_*`: pixels to tensors, cropped, resized, mirrored and normalized in one pass.

use super::{bf16_bits, f16_bits};
use crate::dataset::DType;

/// Most channels of an image.
pub const CHANNELS_MAX: u32 = 4;

/// Bytes of `struct Image` of the kernels.
pub const IMAGE_RECORD_BYTES: usize = 40;

/// How one image is cut from its source. The box is in pixels of the source, from its upper left corner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImageParams {
    /// Rows of the source.
    pub height: u32,
    /// Columns of the source.
    pub width: u32,
    /// First column of the box.
    pub x: f32,
    /// First row of the box.
    pub y: f32,
    /// Columns of the box.
    pub w: f32,
    /// Rows of the box.
    pub h: f32,
    /// Whether the columns of the output are mirrored.
    pub flip: bool,
}

/// The layout that all images of a batch share: the arguments of `ur_images_*` besides their records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageLayout {
    /// Type of the output: `U8`, `F32`, `F16` or `BF16`.
    pub dtype: DType,
    /// Channels of the source and of the output, 1 to [`CHANNELS_MAX`].
    pub channels: u32,
    /// Rows of the output.
    pub height: u32,
    /// Columns of the output.
    pub width: u32,
    /// Whether an output image is `[height, width, channels]` rather than `[channels, height, width]`.
    pub channels_last: bool,
    /// The mean of each channel, for levels of 0 to 1; `U8` keeps levels of 0 to 255.
    pub mean: [f32; 4],
    /// The divisor of each channel after that.
    pub std: [f32; 4],
}

impl ImageParams {
    /// `struct Image` of the kernels, for pixels at the device's address `src`.
    pub fn to_record(self, src: u64) -> [u8; IMAGE_RECORD_BYTES] {
        let mut record = [0; IMAGE_RECORD_BYTES];
        record[..8].copy_from_slice(&src.to_le_bytes());
        let numbers = [self.x, self.y, self.w, self.h].map(f32::to_bits);
        let [x, y, w, h] = numbers;
        let words = [self.height, self.width, x, y, w, h, u32::from(self.flip), 0];
        for (to, word) in record[8..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        record
    }

    /// The address and the parameters of a `struct Image`.
    pub fn from_record(record: &[u8; IMAGE_RECORD_BYTES]) -> (u64, ImageParams) {
        let mut words = [0; IMAGE_RECORD_BYTES / 4];
        for (word, from) in words.iter_mut().zip(record.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*from);
        }
        let [low, high, height, width, x, y, w, h, flip, _] = words;
        let [x, y, w, h] = [x, y, w, h].map(f32::from_bits);
        (u64::from(high) << 32 | u64::from(low), ImageParams { height, width, x, y, w, h, flip: flip != 0 })
    }
}

impl ImageLayout {
    /// Elements of one output image.
    pub fn elements(&self) -> usize {
        self.channels as usize * self.height as usize * self.width as usize
    }

    /// Bytes of one output image.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size() as usize
    }
}

/// `ur_images_u8`, `_f32`, `_f16` and `_bf16`: makes image i of `to` from `images[i]`, its parameters and its pixels,
/// `[height, width, channels]` bytes.
///
/// A pixel of the output is the bilinear interpolation between those of the box, with half-pixel centres and clamped at
/// the edges of the box, as `torch.nn.functional.interpolate(mode="bilinear", align_corners=False, antialias=False)`
/// does with the image that was cut out: exactly the pixel itself if the box has the size of the output and is at whole
/// pixels. Outside of the image, a box has the nearest pixel of the image's edge; an image without pixels reads as 0.
/// The element of channel c is `(pixel / 255 - mean[c]) / std[c]`, each operation rounded to single precision as in
/// torch ([`normalizer`]), and then to its type, to nearest even; `pixel` itself for `U8`.
///
/// # Panics
/// If a source or `to` is too short, and for a number of channels or a type that the kernels do not have.
pub fn images<'a>(to: &mut [u8], images: impl IntoIterator<Item = (ImageParams, &'a [u8])>, layout: &ImageLayout) {
    let of_channels: [_; 4] = std::array::from_fn(|channel| normalizer(layout.mean[channel], layout.std[channel]));
    let normal = |level: f32, channel: usize| of_channels[channel](level);
    match layout.dtype {
        DType::U8 => write(to, images, layout, |level, _| [level.round_ties_even() as u8]),
        DType::F32 => write(to, images, layout, |level, channel| normal(level, channel).to_le_bytes()),
        DType::F16 => write(to, images, layout, |level, channel| f16_bits(normal(level, channel)).to_le_bytes()),
        DType::BF16 => write(to, images, layout, |level, channel| bf16_bits(normal(level, channel)).to_le_bytes()),
        other => panic!("no kernel makes images of {other}"),
    }
}

/// Computes `(level / 255 - mean) / std` for a level, as kernels divide: by a product with the inverse, to 48 bits. It
/// equals a division except for quotients within a part in 2^47 of the middle between two numbers.
pub fn normalizer(mean: f32, std: f32) -> impl Fn(f32) -> f32 {
    let inverse = |divisor: f32| {
        let inverse = 1.0 / f64::from(divisor);
        (inverse as f32, (inverse - f64::from(inverse as f32)) as f32)
    };
    let quotient = |dividend: f32, (high, low): (f32, f32)| dividend.mul_add(high, dividend * low);
    let (whole, std) = (inverse(255.0), inverse(std));
    move |level| quotient(quotient(level, whole) - mean, std)
}

/// The images, each element made of its level and channel by `element`.
fn write<'a, const N: usize>(
    to: &mut [u8],
    images: impl IntoIterator<Item = (ImageParams, &'a [u8])>,
    layout: &ImageLayout,
    element: impl Fn(f32, usize) -> [u8; N],
) {
    assert!((1..=CHANNELS_MAX).contains(&layout.channels), "no kernel takes {} channels", layout.channels);
    let [channels, height, width] = [layout.channels, layout.height, layout.width].map(|number| number as usize);
    let (pixel_step, channel_step) = if layout.channels_last { (channels, 1) } else { (1, height * width) };
    let mut rest = to;
    for (params, pixels) in images {
        let (to, behind) = rest.split_at_mut(layout.elements() * N);
        rest = behind;
        let to = to.as_chunks_mut::<N>().0;
        let size = params.height as usize * params.width as usize * channels;
        let source = Source { params, channels, pixels: &pixels[..size] };
        for row in 0..layout.height {
            let vertical = taps(row, layout.height, params.y, params.h, params.height);
            for column in 0..layout.width {
                let from = if params.flip { layout.width - 1 - column } else { column };
                let horizontal = taps(from, layout.width, params.x, params.w, params.width);
                let pixel = row as usize * width + column as usize;
                for channel in 0..channels {
                    let value = source.value(vertical, horizontal, channel);
                    to[pixel * pixel_step + channel * channel_step] = element(value, channel);
                }
            }
        }
    }
}

/// The two pixels of an axis around an output pixel, and its fraction of the way from the first to the second.
#[derive(Clone, Copy)]
struct Taps {
    first: usize,
    second: usize,
    fraction: f32,
}

/// The location of pixel `index` of `count` of the output on an axis of the source, which has `len` pixels. The box is
/// those from `start` on, `extent` of them.
fn taps(index: u32, count: u32, start: f32, extent: f32, len: u32) -> Taps {
    // The box's whole pixels are kept separate, so that far to the right no bit is lost that torch would keep.
    let whole = start.floor();
    let centre = (index as f32 + 0.5) * (extent / count as f32) - 0.5;
    // `max` last: a box of less than a pixel is its first pixel.
    let inside = centre.min(extent - 1.0).max(0.0) + (start - whole);
    let first = inside.floor();
    let fraction = inside - first;
    let first = i64::from(whole as i32) + i64::from(first as i32);
    let last = i64::from(len) - 1;
    // Within the axis, so within a `u32`; an axis without pixels has no value that is used.
    let clamped = |at: i64| at.min(last).max(0) as usize;
    Taps { first: clamped(first), second: clamped(first + 1), fraction }
}

/// The pixels of one image.
struct Source<'a> {
    params: ImageParams,
    channels: usize,
    pixels: &'a [u8],
}

impl Source<'_> {
    fn value(&self, vertical: Taps, horizontal: Taps, channel: usize) -> f32 {
        if self.pixels.is_empty() {
            return 0.0;
        }
        let row = |y: usize| {
            let pixel =
                |x: usize| f32::from(self.pixels[(y * self.params.width as usize + x) * self.channels + channel]);
            between(pixel(horizontal.first), pixel(horizontal.second), horizontal.fraction)
        };
        between(row(vertical.first), row(vertical.second), vertical.fraction)
    }
}

/// The point at `fraction` of the way from `first` to `second`.
fn between(first: f32, second: f32, fraction: f32) -> f32 {
    fraction.mul_add(second - first, first)
}

//! The final form of pixels: numbers of some type and layout, written once.

use crate::lanes::Normalization;
use crate::{Image, refused};
use uringload_core::{DType, Result};
use uringload_core::{bf16_bits, f16_bits};

/// The form of one image: a tensor of shape `[channels, height, width]`, or of `[height, width, channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Element type: `U8`, `F32`, `F16` or `BF16`, little endian.
    pub dtype: DType,
    /// Channels.
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// Whether the channels of a pixel are together.
    pub channels_last: bool,
}

impl Output {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let elements = [self.channels, self.height, self.width].iter().map(|&side| u64::from(side)).product::<u64>();
        usize::try_from(elements * self.dtype.size()).unwrap_or(usize::MAX)
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> [u32; 3] {
        let (c, h, w) = (self.channels, self.height, self.width);
        if self.channels_last { [h, w, c] } else { [c, h, w] }
    }
}

/// How levels become elements: `(level / 255 - mean) / std`, each operation rounded to single precision as torch does,
/// and `level` itself where the output is `U8`.
#[derive(Clone, Debug, PartialEq)]
pub struct Elements {
    /// Element type: `U8`, `F32`, `F16` or `BF16`.
    pub dtype: DType,
    /// Whether the channels of a pixel are together.
    pub channels_last: bool,
    /// For all channels, or for each. Empty: 0.
    pub mean: Vec<f32>,
    /// For all channels, or for each. Empty: 1.
    pub std: Vec<f32>,
}

impl Default for Elements {
    fn default() -> Elements {
        Elements { dtype: DType::F32, channels_last: false, mean: Vec::new(), std: Vec::new() }
    }
}

impl Elements {
    /// Refuses numbers that cannot be made of images with that many channels.
    pub fn check(&self, channels: u32) -> Result<()> {
        let fits = |numbers: &[f32]| numbers.len() <= 1 || numbers.len() == channels as usize;
        if !fits(&self.mean) || !fits(&self.std) {
            let what = format!("{} means and {} deviations are given", self.mean.len(), self.std.len());
            return Err(refused(format!("{what} for {channels} channels"), "give one, or one for each channel"));
        }
        Ok(())
    }

    /// Refuses numbers that cannot normalize.
    pub fn check_numbers(&self) -> Result<()> {
        if !matches!(self.dtype, DType::U8 | DType::F32 | DType::F16 | DType::BF16) {
            return Err(refused(format!("images cannot become {}", self.dtype), "ask for f32, f16, bf16 or u8"));
        }
        if self.dtype == DType::U8 && !(self.mean.is_empty() && self.std.is_empty()) {
            return Err(refused("u8, which holds 0 to 255, cannot be normalized", "ask for f32, f16 or bf16"));
        }
        let is_finite = self.mean.iter().all(|mean| mean.is_finite());
        if !is_finite || !self.std.iter().all(|&std| std > 0.0 && (1.0 / std).is_finite()) {
            let what = format!("images cannot be normalized by mean {:?} and std {:?}", self.mean, self.std);
            return Err(refused(what, "give finite means, and deviations above 0"));
        }
        Ok(())
    }

    /// The element of a level of a channel.
    pub fn value(&self, channel: usize, level: u8) -> f32 {
        let (mean, std) = self.of_channel(channel);
        (f32::from(level) / 255.0 - mean) / std
    }

    /// The mean and the deviation of a channel.
    pub fn of_channel(&self, channel: usize) -> (f32, f32) {
        let one_of = |numbers: &[f32], default: f32| {
            let number = if numbers.len() == 1 { numbers.first() } else { numbers.get(channel) };
            number.copied().unwrap_or(default)
        };
        (one_of(&self.mean, 0.0), one_of(&self.std, 1.0))
    }
}

/// Writes rows of levels as elements.
pub struct Writer<'a> {
    out: &'a mut [u8],
    shape: Output,
    /// The element of each level of each channel.
    words: Box<[[u32; 256]]>,
    /// The same of three channels, computed instead of looked up where the result is the same.
    computed: Option<Normalization>,
}

impl<'a> Writer<'a> {
    /// Over `out`, which has [`Output::bytes`] bytes.
    pub fn new(out: &'a mut [u8], shape: Output, elements: &Elements) -> Writer<'a> {
        let bits = |value: f32| match shape.dtype {
            DType::F16 => f16_bits(value).into(),
            DType::BF16 => bf16_bits(value).into(),
            _ => value.to_bits(),
        };
        let of_channel = |channel| std::array::from_fn(|level| bits(elements.value(channel, level as u8)));
        let channels = if shape.dtype == DType::U8 { 0 } else { shape.channels as usize };
        let words: Box<[[u32; 256]]> = (0..channels).map(of_channel).collect();
        let is_known = shape.dtype == DType::F32 && shape.channels == 3 && !shape.channels_last;
        let numbers = std::array::from_fn(|channel| elements.of_channel(channel));
        let computed = if is_known { Normalization::new(numbers, &words) } else { None };
        Writer { out, shape, words, computed }
    }

    /// The row at `y`, of levels.
    pub fn row(&mut self, y: u32, levels: &[u8]) {
        if let Some(computed) = &self.computed {
            let (width, plane) = (self.shape.width as usize, (self.shape.width * self.shape.height) as usize);
            let (red, rest) = self.out.split_at_mut(plane * 4);
            let (green, blue) = rest.split_at_mut(plane * 4);
            let row = y as usize * width * 4..(y as usize + 1) * width * 4;
            return computed.planes(levels, [&mut red[row.clone()], &mut green[row.clone()], &mut blue[row]]);
        }
        match self.shape.dtype {
            DType::U8 => self.row_as::<1>(y, levels),
            DType::F32 => self.row_as::<4>(y, levels),
            _ => self.row_as::<2>(y, levels),
        }
    }

    fn row_as<const SIZE: usize>(&mut self, y: u32, levels: &[u8]) {
        let (channels, width) = (self.shape.channels as usize, self.shape.width as usize);
        let element = |words: Option<&[u32; 256]>, level: u8| -> [u8; SIZE] {
            let word = words.map_or(u32::from(level), |words| words[usize::from(level)]).to_le_bytes();
            std::array::from_fn(|byte| word[byte])
        };
        let row = y as usize * width;
        if self.shape.channels_last {
            let to = &mut self.out[row * channels * SIZE..][..width * channels * SIZE];
            for (pixel, from) in to.chunks_exact_mut(channels * SIZE).zip(levels.chunks_exact(channels)) {
                for (channel, (to, &level)) in pixel.as_chunks_mut::<SIZE>().0.iter_mut().zip(from).enumerate() {
                    *to = element(self.words.get(channel), level);
                }
            }
            return;
        }
        let plane = self.shape.height as usize * width;
        for channel in 0..channels {
            let to = &mut self.out[(channel * plane + row) * SIZE..][..width * SIZE];
            let words = self.words.get(channel);
            let from = levels.iter().skip(channel).step_by(channels);
            for (to, &level) in to.as_chunks_mut::<SIZE>().0.iter_mut().zip(from) {
                *to = element(words, level);
            }
        }
    }

    /// All rows of an image.
    pub fn image(&mut self, image: &Image) {
        for y in 0..image.height() {
            self.row(y, image.row(y));
        }
    }
}

/// One element, little endian, over the first bytes of `to`.
pub fn write_element(to: &mut [u8], dtype: DType, value: f32) {
    match dtype {
        DType::U8 => to[0] = value.clamp(0.0, 255.0) as u8,
        DType::F16 => to[..2].copy_from_slice(&f16_bits(value).to_le_bytes()),
        DType::BF16 => to[..2].copy_from_slice(&bf16_bits(value).to_le_bytes()),
        _ => to[..4].copy_from_slice(&value.to_le_bytes()),
    }
}

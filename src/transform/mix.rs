//! Mixup and CutMix over a batch: which samples are mixed, how, and the pixels. The caller says where they are.

use super::map::Map;
use super::refused;
use crate::Result;
use crate::dataset::{DType, SampleId};
use crate::sampler::{hash, sample_rng};
use rand_xoshiro::rand_core::Rng;
use std::ops::Range;
use uringload_images::mix::Mixing;

/// Bytes that are mixed at a time, so that numbers stay in the processor's cache.
const ROW_BYTES: usize = 16 << 10;

/// Most classes: their shares take memory beside the limit, 4 bytes for each class of a sample.
const CLASSES_MAX: u64 = 1 << 16;

/// Mixup or CutMix over each batch, as torchvision's `MixUp` and `CutMix`: each sample is mixed with the one before it
/// in the batch, the first one with the last, and labels become a share of each class. See
/// [`Builder::mix`](crate::Builder::mix). As a string, for the column of the labels:
/// `mix(image, classes=1000, mixup=0.2, cutmix=1)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    images: String,
    labels: String,
    classes: u64,
    mixup: Option<f32>,
    cutmix: Option<f32>,
    probability: f32,
}

impl Mix {
    /// Mixes the images of a column that has a [`transform`](crate::Builder::transform). Its samples' classes are in
    /// the column `labels`, integers from 0 to `classes - 1`, which becomes `f32` of shape `[samples, classes]`.
    pub fn new(images: impl Into<String>, labels: impl Into<String>, classes: u64) -> Mix {
        let (images, labels) = (images.into(), labels.into());
        Mix { images, labels, classes, mixup: None, cutmix: None, probability: 1.0 }
    }

    /// Mixup, by a share of the beta distribution (`alpha`, `alpha`). With [`cutmix`](Mix::cutmix) too, either of them
    /// with the same probability.
    #[must_use]
    pub fn mixup(mut self, alpha: f32) -> Mix {
        self.mixup = Some(alpha);
        self
    }

    /// CutMix, by a share of the beta distribution (`alpha`, `alpha`).
    #[must_use]
    pub fn cutmix(mut self, alpha: f32) -> Mix {
        self.cutmix = Some(alpha);
        self
    }

    /// The probability that a batch is mixed. Labels have the same form where it is not. Default: 1.
    #[must_use]
    pub fn probability(mut self, probability: f32) -> Mix {
        self.probability = probability;
        self
    }
}

impl Mix {
    /// The column of the images.
    pub(crate) fn images(&self) -> &str {
        &self.images
    }

    /// The column of the labels.
    pub(crate) fn labels(&self) -> &str {
        &self.labels
    }

    /// Parses the text for the column `labels`: `mix(image, classes=1000, mixup=0.2, cutmix=1, p=1)`.
    ///
    /// # Errors
    /// `InvalidArgument`, with the valid forms.
    pub(crate) fn parse(labels: &str, text: &str) -> Result<Mix> {
        let wrong =
            |what: String| refused(what, "write mix(image, classes=1000, mixup=0.2, cutmix=1, p=1) for the labels");
        let inside = text.trim().strip_prefix("mix(").and_then(|text| text.strip_suffix(')'));
        let inside = inside.ok_or_else(|| wrong(format!("{text:?} mixes nothing")))?;
        let mut arguments = inside.split(',').map(str::trim);
        let Some(images) = arguments.next().filter(|name| !name.is_empty() && !name.contains('=')) else {
            return Err(wrong(format!("{text:?} does not begin with the column of the images")));
        };
        let mut mix = Mix::new(images, labels, 0);
        for argument in arguments {
            let (key, value) = argument.split_once('=').map_or(("", ""), |(key, value)| (key.trim(), value.trim()));
            let no_number = || wrong(format!("{argument:?} gives no number"));
            let number = || value.parse::<f32>().map_err(|_| no_number());
            match key {
                "classes" => mix.classes = value.parse().map_err(|_| no_number())?,
                "mixup" => mix.mixup = Some(number()?),
                "cutmix" => mix.cutmix = Some(number()?),
                "p" => mix.probability = number()?,
                _ => return Err(wrong(format!("{argument:?} is no argument of mix"))),
            }
        }
        Ok(mix)
    }
}

/// Mixes the batches of a loader.
#[derive(Clone, Debug)]
pub(crate) struct Mixer {
    seed: u64,
    mix: Mix,
    dtype: DType,
    channels_last: bool,
    /// Channels, rows and columns.
    shape: [usize; 3],
}

impl Mixer {
    /// # Errors
    /// `InvalidArgument` for invalid numbers, and for images that cannot be mixed.
    pub(crate) fn new(mix: Mix, maps: &[(String, Map)], seed: u64) -> Result<Mixer> {
        let alphas = [mix.mixup, mix.cutmix];
        if alphas == [None, None] {
            return Err(refused("neither mixup nor cutmix is asked for", "give mix an alpha for one of them, or both"));
        }
        if let Some(alpha) = alphas.iter().flatten().find(|alpha| !(**alpha > 0.0 && alpha.is_finite())) {
            return Err(refused(format!("batches cannot be mixed with an alpha of {alpha}"), "give a number above 0"));
        }
        if !(0.0..=1.0).contains(&mix.probability) {
            let what = format!("batches cannot be mixed with a probability of {}", mix.probability);
            return Err(refused(what, "give a number from 0 to 1"));
        }
        if !(2..=CLASSES_MAX).contains(&mix.classes) {
            let what = format!("labels of {} classes cannot be mixed", mix.classes);
            return Err(refused(what, format!("give classes, from 2 to {CLASSES_MAX}")));
        }
        let layout = maps.iter().find(|(name, _)| *name == mix.images).and_then(|(_, map)| map.layout());
        let layout = layout.ok_or_else(|| {
            let what = format!("column {:?}, whose batches are to be mixed, has no transform of images", mix.images);
            refused(what, "give it one that ends in a tensor")
        })?;
        if layout.dtype == DType::U8 && mix.mixup.is_some() {
            let what = format!("levels of {:?} are u8, which cannot hold shares of them", mix.images);
            return Err(refused(what, "end its transform with to_tensor(f32), f16 or bf16, or take cutmix alone"));
        }
        let shape = [layout.channels, layout.height, layout.width].map(|side| side as usize);
        Ok(Mixer { seed, mix, dtype: layout.dtype, channels_last: layout.channels_last, shape })
    }

    /// The column of the images.
    pub(crate) fn images(&self) -> &str {
        self.mix.images()
    }

    /// The column of the labels, and the number of their classes.
    pub(crate) fn labels(&self) -> (&str, u64) {
        (&self.mix.labels, self.mix.classes)
    }

    /// How a batch of these samples is mixed, if at all: a function of the seed, the epoch and the samples.
    pub(crate) fn draw(&self, epoch: u64, ids: impl Iterator<Item = SampleId>) -> Result<Option<Mixing>> {
        let key = ids.fold(0, |sum, id| hash(sum ^ id.0));
        let mut random = sample_rng(self.seed, epoch, SampleId(key));
        let mut unit = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let (happens, first) = (unit() < f64::from(self.mix.probability), unit() < 0.5);
        let number = random.next_u64();
        let [_, height, width] = self.shape.map(|side| side as u32);
        let mixup = |alpha| Mixing::mixup(self.seed, epoch, number, alpha);
        let cutmix = |alpha| Mixing::cutmix(self.seed, epoch, number, alpha, (height, width));
        if !happens {
            return Ok(None);
        }
        match (self.mix.mixup, self.mix.cutmix) {
            (Some(alpha), None) => mixup(alpha).map(Some),
            (Some(alpha), Some(_)) if first => mixup(alpha).map(Some),
            (_, Some(alpha)) => cutmix(alpha).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Mixes the images at `places` of a block, ascending and of one length.
    pub(crate) fn mix(&self, mixing: &Mixing, block: &mut [u8], places: &[Range<usize>]) {
        let Some(last) = places.last() else { return };
        // The first image needs the last one as it was.
        let last = block[last.clone()].to_vec();
        for index in (0..places.len()).rev() {
            let own = places[index].clone();
            let (before, rest) = block.split_at_mut(own.start);
            let own = &mut rest[..own.len()];
            let other = index.checked_sub(1).map_or(&last[..], |index| &before[places[index].clone()]);
            match mixing.region() {
                None => self.blend(mixing.own(), own, other),
                Some(region) => {
                    let [y, x, h, w] = [region.y, region.x, region.h, region.w].map(|side| side as usize);
                    for row in self.rows(y..y + h, x..x + w) {
                        own[row.clone()].copy_from_slice(&other[row]);
                    }
                }
            }
        }
    }

    /// Where the bytes of a rectangle are in a tensor, row by row.
    fn rows(&self, rows: Range<usize>, columns: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let [channels, height, width] = self.shape;
        let size = self.dtype.size() as usize;
        let (planes, pixel) = if self.channels_last { (1, channels * size) } else { (channels, size) };
        (0..planes).flat_map(move |plane| {
            let columns = columns.clone();
            rows.clone().map(move |y| {
                let row = (plane * height + y) * width;
                (row + columns.start) * pixel..(row + columns.end) * pixel
            })
        })
    }

    fn blend(&self, share: f32, own: &mut [u8], other: &[u8]) {
        for (own, other) in own.chunks_mut(ROW_BYTES).zip(other.chunks(ROW_BYTES)) {
            match self.dtype {
                DType::F32 => blend::<4>(share, own, other, f32::from_le_bytes, f32::to_le_bytes),
                DType::BF16 => {
                    blend::<2>(share, own, other, of_bf16, |value| super::twin::bf16_bits(value).to_le_bytes())
                }
                // 8-bit levels were refused.
                _ => blend::<2>(share, own, other, of_f16, |value| super::twin::f16_bits(value).to_le_bytes()),
            }
        }
    }
}

/// `share * own + (1 - share) * other`, number by number.
fn blend<const N: usize>(
    share: f32,
    own: &mut [u8],
    other: &[u8],
    read: impl Fn([u8; N]) -> f32,
    write: impl Fn(f32) -> [u8; N],
) {
    for (own, other) in own.as_chunks_mut::<N>().0.iter_mut().zip(other.as_chunks::<N>().0) {
        *own = write(read(*own) * share + read(*other) * (1.0 - share));
    }
}

fn of_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

fn of_f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, exponent, fraction) = (bits >> 15 << 31, bits >> 10 & 0x1f, bits & 0x3ff);
    let magnitude = match exponent {
        // Below the smallest normal number, in steps of 2^-24.
        0 => fraction as f32 / (1 << 24) as f32,
        0x1f => f32::from_bits(0x7f80_0000 | fraction << 13),
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Whether labels can have this type.
pub(crate) fn is_integer(dtype: DType) -> bool {
    use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(dtype, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
}

/// Labels as shares of classes, `f32` in rows of `classes`: each sample's own class, and that of the one before it.
///
/// # Errors
/// The index of a label that is not one of the classes.
pub(crate) fn shares(labels: &[u64], classes: u64, mixing: Option<&Mixing>) -> std::result::Result<Vec<u8>, usize> {
    if let Some(index) = labels.iter().position(|&label| label >= classes) {
        return Err(index);
    }
    let own = mixing.map_or(1.0, Mixing::own);
    let row = classes as usize * size_of::<f32>();
    let mut bytes = vec![0; labels.len() * row];
    for (index, shares) in bytes.chunks_exact_mut(row).enumerate() {
        let before = labels[index.checked_sub(1).unwrap_or(labels.len() - 1)];
        let mut add = |label: u64, share: f32| {
            let place = &mut shares.as_chunks_mut::<4>().0[label as usize];
            *place = (f32::from_le_bytes(*place) + share).to_le_bytes();
        };
        add(labels[index], own);
        add(before, 1.0 - own);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::twin::f16_bits;
    use uringload_images::Chain;

    fn mixer(mix: Mix, chain: &str) -> Result<Mixer> {
        Mixer::new(mix, &[("image".into(), Map::images(chain.parse::<Chain>().unwrap()).unwrap())], 5)
    }

    #[test]
    fn half_precision_goes_there_and_back() {
        for bits in (0..=u16::MAX).filter(|bits| bits & 0x7c00 != 0x7c00) {
            assert_eq!(f16_bits(of_f16(bits.to_le_bytes())), bits, "{bits:#x}");
        }
        assert!(of_f16(0x7c00_u16.to_le_bytes()).is_infinite() && of_f16(0xfe00_u16.to_le_bytes()).is_nan());
    }

    /// Compares with the crate's own functions, which the images' tests compare with the formula.
    #[test]
    fn pixels_and_labels_are_those_of_the_images_crate() {
        for (mix, is_cut) in
            [(Mix::new("image", "label", 3).mixup(0.4), false), (Mix::new("image", "label", 3).cutmix(1.0), true)]
        {
            let mixer = mixer(mix, "resize(4x6)").unwrap();
            let ids = || [3, 1, 2].map(SampleId).into_iter();
            let mixing = mixer.draw(0, ids()).unwrap().unwrap();
            assert_eq!(mixing.region().is_some(), is_cut);
            let mut wanted: Vec<f32> = (0..3 * 72).map(|number| number as f32 / 8.0).collect();
            // With something between the images.
            let mut block = vec![0xee; 3 * 300];
            let places: Vec<_> = (0..3).map(|index| index * 300..index * 300 + 288).collect();
            for (place, numbers) in places.iter().zip(wanted.chunks(72)) {
                block[place.clone()]
                    .copy_from_slice(numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>().as_slice());
            }
            mixer.mix(&mixing, &mut block, &places);
            mixing.images(&mut wanted, [3, 3, 4, 6]).unwrap();
            let seen = places.iter().flat_map(|place| block[place.clone()].as_chunks::<4>().0);
            assert!(seen.map(|bytes| f32::from_le_bytes(*bytes)).eq(wanted));
            assert!(block[288..300].iter().all(|&byte| byte == 0xee));
            let mut labels = [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0];
            mixing.labels(&mut labels, 3).unwrap();
            let seen = shares(&[2, 0, 0], 3, Some(&mixing)).unwrap();
            let seen = seen.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            assert!(seen.zip(labels).all(|(seen, wanted)| (seen - wanted).abs() < 1e-6));
            assert_eq!(shares(&[2, 3], 3, None), Err(1));
            // Another batch, another epoch.
            assert_ne!(mixer.draw(1, ids()).unwrap().unwrap(), mixing);
            assert_ne!(mixer.draw(0, ids().rev()).unwrap().unwrap(), mixing);
        }
    }

    /// A rectangle of rows of pixels, and one of planes, are the same pixels.
    #[test]
    fn layouts_show_the_same_rectangle() {
        let of = |chain: &str| mixer(Mix::new("image", "label", 2).cutmix(1.0), chain).unwrap();
        let (planes, pixels) = (of("resize(5x7), to_tensor(u8)"), of("resize(5x7), to_tensor(u8, hwc)"));
        let seen = |mixer: &Mixer, at: fn(usize, usize) -> usize| -> Vec<usize> {
            let bytes = mixer.rows(1..4, 2..6).flatten();
            let mut seen: Vec<usize> = bytes.map(|byte| at(byte / 35, byte % 35)).collect();
            seen.sort_unstable();
            seen
        };
        let of_planes = seen(&planes, |plane, pixel| pixel * 3 + plane);
        let mut of_pixels: Vec<usize> = pixels.rows(1..4, 2..6).flatten().collect();
        of_pixels.sort_unstable();
        assert_eq!(of_planes, of_pixels);
        assert_eq!(of_planes.len(), 3 * 4 * 3);
    }

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        let refused = |mix: Mix, chain: &str, what: &str| {
            let error = mixer(mix, chain).unwrap_err();
            assert!(error.to_string().contains(what) && error.remedy().is_some(), "{error}");
        };
        let mix = || Mix::new("image", "label", 10);
        refused(mix(), "resize(8x8)", "neither mixup nor cutmix");
        refused(mix().mixup(0.0), "resize(8x8)", "alpha of 0");
        refused(mix().cutmix(f32::NAN), "resize(8x8)", "alpha of NaN");
        refused(mix().cutmix(1.0).probability(1.5), "resize(8x8)", "probability of 1.5");
        refused(Mix::new("image", "label", 1).cutmix(1.0), "resize(8x8)", "1 classes");
        refused(Mix::new("photo", "label", 9).cutmix(1.0), "resize(8x8)", "\"photo\"");
        refused(mix().mixup(1.0), "resize(8x8), to_tensor(u8)", "u8");
        let parsed = Mix::parse("label", " mix( image, classes=10, mixup=0.2, cutmix = 1, p=0.5)").unwrap();
        assert_eq!(parsed, mix().mixup(0.2).cutmix(1.0).probability(0.5));
        for wrong in ["", "mix()", "mix(a, b)", "mix(a, classes=x)", "mixup(a)", "mix(classes=3)"] {
            assert!(Mix::parse("label", wrong).is_err(), "{wrong}");
        }
    }
}

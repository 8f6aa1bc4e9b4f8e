//! Converts images on their way into shards: decodes them once, makes them smaller, and stores JPEGs or pixels.

use super::names::Filling;
use super::{Pack, PackOptions};
use crate::dataset::{Dataset, SampleId, Value};
use crate::samples::Samples;
use crate::transform::Chain;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uringload_images::{
    Decoding, Filter, Format, Image, Op, Scratch, Size, decode_with, dimensions, encode_bmp, encode_jpeg,
};

/// Default quality of JPEGs: the most common one for photographs.
const QUALITY: u8 = 90;

/// Images to measure.
const IMAGES_SEEN: u64 = 64;

/// How often each is decoded; the fastest counts.
const TIMES: u32 = 3;

/// How images of a column are converted before they are packed: see [`PackOptions::images`].
///
/// ```
/// use uringload::pack::{PackImages, PackOptions};
///
/// // The shorter side has 256 pixels, or as many as it had if those are fewer.
/// let options = PackOptions::default().images(PackImages::resize(256).quality(85));
/// // Pixels, ready to be cropped: no decoding is left but for a copy.
/// let chain = "resize(256), center_crop(256)".parse()?;
/// let options = PackOptions::default().images(PackImages::transform(chain)?.pixels());
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PackImages {
    chain: Chain,
    /// Images whose shorter side has no more pixels than this are not enlarged.
    shorter: Option<u32>,
    /// `None`: pixels.
    quality: Option<u8>,
    column: Option<String>,
}

impl PackImages {
    /// Makes the shorter side of larger images `shorter` pixels long, by antialiased bilinear interpolation. JPEGs that
    /// are no larger stay as they are, byte for byte.
    #[must_use]
    pub fn resize(shorter: u32) -> PackImages {
        let chain = Chain::new().with(Op::Resize { size: Size::Shorter(shorter), filter: Filter::Bilinear });
        // An invalid size is refused when the pack is planned.
        PackImages { chain: chain.unwrap_or_default(), shorter: Some(shorter), quality: Some(QUALITY), column: None }
    }

    /// Applies `chain` to every image.
    ///
    /// # Errors
    /// `InvalidArgument` for random operations, which would be the same in every epoch, and for types, layouts and
    /// normalization, which belong to tensors.
    pub fn transform(chain: Chain) -> Result<PackImages> {
        let (fixed, rest) = chain.split();
        if rest != Chain::new() {
            let what = "what is packed is the same in every epoch, and the chain has random operations, or what makes \
                        tensors";
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(
                "pack with resize, center_crop and pad, and do the rest in the loader, in every epoch anew",
            ));
        }
        Ok(PackImages { chain: fixed, shorter: None, quality: Some(QUALITY), column: None })
    }

    /// The quality of the JPEGs, from 1 to 100. Default: 90. Chroma has half the rows and columns.
    #[must_use]
    pub fn quality(mut self, quality: u8) -> PackImages {
        self.quality = Some(quality);
        self
    }

    /// Stores pixels instead of JPEGs: uncompressed bitmaps (BMP), 3 bytes a pixel, which every reader supports and
    /// which need no decoding.
    #[must_use]
    pub fn pixels(mut self) -> PackImages {
        self.quality = None;
        self
    }

    /// The column of the images. Default: the only one with images in the first sample.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>) -> PackImages {
        self.column = Some(name.into());
        self
    }

    /// The settings in the manifest.
    pub(super) fn identity(&self) -> String {
        let form = self.quality.map_or_else(|| "pixels".into(), |quality| format!("jpeg {quality}"));
        format!("{:?} at most {:?} as {form}", self.chain.ops(), self.shorter)
    }

    fn check(&self) -> Result<()> {
        let refused =
            |what: String, remedy: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
        match (self.shorter, self.quality) {
            (Some(shorter), _) if self.chain == Chain::new() => {
                refused(format!("images cannot be resized to {shorter} pixels"), "give a side of 1 to 65535 pixels")
            }
            (_, Some(quality)) if !(1..=100).contains(&quality) => {
                refused(format!("a JPEG cannot have quality {quality}"), "give 1 to 100")
            }
            // If no encoder is built in, fail before a shard is written and not at its first image.
            (_, Some(quality)) => encode_jpeg(&Image::new(1, 1, 1, vec![0])?, quality).map(drop),
            _ => Ok(()),
        }
    }
}

impl PackOptions {
    /// Decodes images once and stores them smaller: see [`PackImages`]. Names stay, whatever the content becomes;
    /// readers detect the format by its first bytes. `shard_bytes` counts the source's bytes. Default: `None`, images
    /// are stored as they are.
    #[must_use]
    pub fn images(mut self, images: impl Into<Option<PackImages>>) -> PackOptions {
        self.images = images.into();
        self
    }
}

/// The conversion of one column's images, and its totals so far. Threads share it.
#[derive(Debug)]
pub(super) struct Making {
    images: PackImages,
    /// The column's place in the schema.
    pub(super) field: usize,
    made: AtomicU64,
    before: AtomicU64,
    after: AtomicU64,
}

/// Images that a pack has converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedImages {
    /// Number of images.
    pub images: u64,
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes after.
    pub bytes_after: u64,
}

/// Sizes of some images of a source before and after, and the time to decode them on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackPrediction {
    /// Images that were examined.
    pub images: u64,
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes after.
    pub bytes_after: u64,
    /// Time that decoding all of them took.
    pub decode_before: Duration,
    /// The same after the conversion.
    pub decode_after: Duration,
    /// Processors that may decode.
    pub processors: usize,
}

impl PackPrediction {
    /// Images that these processors decode in a second, before and after; `None` if that is unknown.
    pub fn images_per_second(&self) -> Option<(f64, f64)> {
        let rate = |time: Duration| self.images as f64 / time.as_secs_f64() * self.processors as f64;
        let is_known = self.images > 0 && !self.decode_before.is_zero() && !self.decode_after.is_zero();
        is_known.then(|| (rate(self.decode_before), rate(self.decode_after)))
    }
}

impl Making {
    /// Finds the column of the images.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that does not exist, if several columns have images and none is named, and for an
    /// invalid size or quality.
    pub(super) fn new(images: &PackImages, dataset: &Arc<dyn Dataset>) -> Result<Making> {
        images.check()?;
        let refused =
            |what: String, remedy: &'static str| Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy);
        let name = match &images.column {
            Some(name) => name.clone(),
            None => Samples::new(Arc::clone(dataset))?.image_column()?,
        };
        let field = dataset.schema().fields.iter().position(|field| field.name == name);
        let field = field.ok_or_else(|| refused(format!("there is no column {name:?}"), "name another"))?;
        let [made, before, after] = [0; 3].map(AtomicU64::new);
        Ok(Making { images: images.clone(), field, made, before, after })
    }

    /// Converts a value that was read.
    pub(super) fn make(&self, value: Filling, scratch: &mut Scratch) -> Result<Filling> {
        let Filling::Bytes(bytes) = value else {
            let what = "the values of the column are numbers of the index, and no images";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        };
        let made = self.encoded(&bytes, scratch)?.map_or(bytes.clone(), Bytes::from);
        self.made.fetch_add(1, Ordering::Relaxed);
        self.before.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.after.fetch_add(made.len() as u64, Ordering::Relaxed);
        Ok(Filling::Bytes(made))
    }

    /// The images converted since the last call.
    pub(super) fn done(&self) -> PackedImages {
        let [images, bytes_before, bytes_after] =
            [&self.made, &self.before, &self.after].map(|number| number.swap(0, Ordering::Relaxed));
        PackedImages { images, bytes_before, bytes_after }
    }

    /// The new encoding of an image; `None` if it stays as it is.
    fn encoded(&self, bytes: &[u8], scratch: &mut Scratch) -> Result<Option<Vec<u8>>> {
        let how = Decoding::default();
        let PackImages { chain, shorter, quality, .. } = &self.images;
        let (height, width) = dimensions(bytes, &how)?;
        let is_small = shorter.is_some_and(|shorter| height.min(width) <= shorter);
        if is_small && quality.is_some() && Format::of(bytes) == Some(Format::Jpeg) {
            // It is decoded anyway: broken images are not packed.
            let image = decode_with(bytes, &how, scratch)?;
            scratch.reuse(image);
            return Ok(None);
        }
        let image = decode_with(bytes, &how, scratch)?;
        let made = if is_small || chain.ops().is_empty() {
            image
        } else {
            // None of it is random.
            let made = chain.draw(0, 0, 0, image.height(), image.width())?.image(&image, scratch)?;
            scratch.reuse(image);
            made
        };
        let file = self.file(&made)?;
        scratch.reuse(made);
        Ok(Some(file))
    }

    fn file(&self, image: &Image) -> Result<Vec<u8>> {
        match self.images.quality {
            Some(quality) => encode_jpeg(image, quality),
            None => encode_bmp(image),
        }
    }
}

impl Pack {
    /// Converts some images: up to 64, spread over the source, are read, converted and decoded on this thread. `None`
    /// if images are stored as they are.
    ///
    /// # Errors
    /// The error of the last image, if none of them can be read.
    pub fn predict(&self) -> Result<Option<PackPrediction>> {
        let Some(making) = &self.images else { return Ok(None) };
        let samples = Samples::new(Arc::clone(&self.dataset))?;
        let (len, mut scratch) = (self.dataset.len(), Scratch::default());
        let count = IMAGES_SEEN.min(len);
        let processors = uringload_sys::cgroup::processors();
        let (mut found, mut last) = (PackPrediction { processors, ..PackPrediction::default() }, None);
        for number in 0..count {
            let id = SampleId((u128::from(len) * u128::from(number) / u128::from(count)) as u64);
            match self.look(making, &samples, id, &mut scratch) {
                Ok((before, after)) => {
                    found.images += 1;
                    found.bytes_before += before.0;
                    found.bytes_after += after.0;
                    found.decode_before += before.1;
                    found.decode_after += after.1;
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if found.images == 0 => Err(error),
            _ => Ok(Some(found)),
        }
    }

    /// Bytes and time of an image, before and after.
    fn look(
        &self,
        making: &Making,
        samples: &Samples,
        id: SampleId,
        scratch: &mut Scratch,
    ) -> Result<((u64, Duration), (u64, Duration))> {
        let sample = samples.read(id)?;
        let Some(Value::Bytes(before)) = sample.values.get(making.field) else {
            return Err(Error::new(ErrorKind::InvalidArgument, "the column has no images"));
        };
        let after = making.encoded(before, scratch)?;
        let mut timed = |bytes: &[u8]| -> Result<(u64, Duration)> {
            let mut least = Duration::MAX;
            for _ in 0..TIMES {
                let start = Instant::now();
                let image = decode_with(bytes, &Decoding::default(), scratch)?;
                least = least.min(start.elapsed());
                scratch.reuse(image);
            }
            Ok((bytes.len() as u64, least))
        };
        let first = timed(before)?;
        let second = match &after {
            Some(after) => timed(after)?,
            None => first,
        };
        Ok((first, second))
    }
}

//! Maps one sample's value in the loader's threads: an encoded image to a tensor, or any value by a closure.

use super::array::Arrays;
use super::follow::Followed;
use super::{Images, refused};
use crate::dataset::{DType, Field, SampleId, Shape};
use crate::sampler::sample_rng;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use rand_xoshiro::rand_core::Rng;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use uringload_images::{
    Chain, Decoding, Draw, Elements, Image, Limits, Passes, Plan, SIDE_MAX, Scratch, decode_with, usual_jpeg,
};

/// Channels of a decoded image.
const CHANNELS: u32 = 3;

/// A thread keeps this part of its share from one image to the next, so that pixels rarely need new memory.
const KEPT_PART: u64 = 16;

/// Rows and columns of the image that a chain is tried with.
const PROBE_SIDE: u32 = 4096;

/// Aspect ratio of the longest image to try.
const LONG: u32 = 64;

/// A value to be mapped, and its sample.
#[derive(Debug)]
#[non_exhaustive]
pub struct Input<'a> {
    /// The value, as the dataset stores it.
    pub bytes: &'a [u8],
    /// The sample.
    pub id: SampleId,
    /// The epoch.
    pub epoch: u64,
    /// Seed for random numbers of the sample: depends on the loader's seed, the epoch and the sample, but not on
    /// threads or ranks.
    pub seed: u64,
}

/// The output of a closure for one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapOutput {
    pub(crate) dtype: DType,
    /// `Ragged`: of any length up to `most`.
    pub(crate) shape: Shape,
    /// Most elements.
    most: u64,
}

impl MapOutput {
    /// Values of one shape: the column becomes one tensor of shape `[samples, shape...]`.
    pub fn fixed(dtype: DType, shape: impl Into<Vec<u64>>) -> MapOutput {
        let shape: Vec<u64> = shape.into();
        let most = shape.iter().fold(1, |most: u64, &side| most.saturating_mul(side));
        MapOutput { dtype, shape: Shape::Fixed(shape), most }
    }

    /// Vectors of up to `max_length` elements: the column becomes ragged. Memory is reserved for the longest one.
    pub fn varying(dtype: DType, max_length: u64) -> MapOutput {
        MapOutput { dtype, shape: Shape::Ragged, most: max_length }
    }

    /// Bytes of the longest value.
    pub(crate) fn bytes(&self) -> u64 {
        self.most.saturating_mul(self.dtype.size())
    }

    /// Whether all values are of one shape.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.shape, Shape::Fixed(_))
    }

    /// The resulting column.
    pub(crate) fn field(&self, name: &str) -> Field {
        Field { name: name.to_owned(), dtype: self.dtype, shape: self.shape.clone() }
    }
}

type Closure = dyn Fn(&Input<'_>, &mut [u8]) -> Result<usize> + Send + Sync;

/// The map of a column, value by value.
#[derive(Clone)]
pub(crate) struct Map {
    output: MapOutput,
    work: Work,
    /// How images are decoded.
    how: Decoding,
    /// Fields whose values it needs in addition to its own.
    beside: Vec<usize>,
}

#[derive(Clone)]
enum Work {
    Images(Arc<Chains>),
    /// Images are decoded, and only their size is kept.
    Decode,
    Closure(Arc<Closure>),
    Arrays(Arc<Arrays>),
    /// It moves with the pixels of another column.
    Followed(Arc<Followed>),
}

/// A chain, whole and split in two.
struct Chains {
    whole: Chain,
    /// The part that is the same in every epoch.
    fixed: Chain,
    random: Chain,
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("output", &self.output).finish_non_exhaustive()
    }
}

/// Memory for decoding images, divided among threads. An image takes its thread's share of it. A larger one waits until
/// no other thread decodes and takes all memory except what the others keep, so that the size of images need not be
/// known in advance.
#[derive(Debug)]
pub(crate) struct DecodeMemory {
    bytes: u64,
    threads: u64,
    /// Read-locked by threads that keep to their share.
    whole: RwLock<()>,
}

impl DecodeMemory {
    /// Divides `bytes` among this many threads.
    pub(crate) fn new(bytes: u64, threads: usize) -> DecodeMemory {
        DecodeMemory { bytes, threads: threads.max(1) as u64, whole: RwLock::new(()) }
    }
}

/// An image that an external decoder has decoded.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// Its rows and columns.
    pub(crate) size: (u32, u32),
    /// Its pixels, as they are stored; or the result of [`passes`](Map::passes), if there is a rest.
    pub(crate) pixels: Vec<u8>,
    /// The rest of the plan after the passes.
    pub(crate) rest: Option<Plan>,
}

/// Memory that a thread keeps from one sample to the next.
#[derive(Debug, Default)]
pub(crate) struct MapScratch {
    images: Scratch,
}

impl MapScratch {
    /// Memory of pixels that are no longer used.
    pub(crate) fn spare(&mut self) -> Vec<u8> {
        self.images.spare()
    }
}

impl Map {
    fn new(output: MapOutput, work: Work) -> Map {
        Map { output, work, how: Decoding { exact: true, ..Decoding::default() }, beside: Vec::new() }
    }

    /// Values follow the images of another column. `beside` are the fields whose values are needed for that.
    pub(crate) fn followed(output: MapOutput, followed: Followed, beside: Vec<usize>) -> Map {
        Map { beside, ..Map::new(output, Work::Followed(Arc::new(followed))) }
    }

    /// Fields whose values it needs in addition to its own.
    pub(crate) fn beside(&self) -> &[usize] {
        &self.beside
    }

    /// The tensor of an image, if the map makes one.
    pub(crate) fn layout(&self) -> Option<uringload_images::Output> {
        self.chain().and_then(|chain| tensor(chain).ok())
    }

    /// The chain for images.
    pub(crate) fn chain(&self) -> Option<&Chain> {
        match &self.work {
            Work::Images(chains) => Some(&chains.whole),
            _ => None,
        }
    }

    /// Encoded images become tensors.
    pub(crate) fn images(chain: Chain) -> Result<Map> {
        if chain.size().is_none() {
            let what = "images of different sizes make no tensor, and nothing in the chain makes them one size";
            return Err(refused(what, "add resize(256) and center_crop(224), or random_resized_crop(224)"));
        }
        let output = tensor(&chain)?;
        let output = MapOutput::fixed(output.dtype, output.shape().map(u64::from));
        let (fixed, random) = chain.split();
        Ok(Map::new(output, Work::Images(Arc::new(Chains { whole: chain, fixed, random }))))
    }

    /// The map up to the pixels of images, and the rest, which another component may do; `None` if the map makes no
    /// tensors of images, or not from their pixels alone.
    pub(crate) fn split_elements(&self) -> Option<(Map, Images)> {
        let (pixels, elements) = self.chain()?.split_elements()?;
        let map = Map::images(pixels).ok()?;
        let Elements { dtype, channels_last, mean, std } = elements.clone();
        Some((map, Images { dtype, channels_last, mean, std, ..Images::default() }))
    }

    /// Encoded images become their height and width: they are decoded only to check and to time that.
    pub(crate) fn decode() -> Map {
        Map::new(MapOutput::fixed(DType::I64, [2]), Work::Decode)
    }

    /// The result of `closure` for a value.
    pub(crate) fn closure(
        output: MapOutput,
        closure: impl Fn(&Input<'_>, &mut [u8]) -> Result<usize> + Send + Sync + 'static,
    ) -> Result<Map> {
        if output.bytes() == 0 || output.bytes() == u64::MAX {
            let what = format!("values of {:?} of {} cannot be made", output.shape, output.dtype);
            return Err(refused(what, "declare a shape with elements that fit into memory"));
        }
        Ok(Map::new(output, Work::Closure(Arc::new(closure))))
    }

    /// Parts of arrays, as another type.
    pub(crate) fn array(output: MapOutput, arrays: Arrays) -> Map {
        Map::new(output, Work::Arrays(Arc::new(arrays)))
    }

    /// The steps for arrays, if it has them.
    pub(crate) fn arrays(&self) -> Option<&Arc<Arrays>> {
        match &self.work {
            Work::Arrays(arrays) => Some(arrays),
            _ => None,
        }
    }

    /// How images are decoded: whether parts of them must have exactly the bytes of a full decode, and whether their
    /// orientation is applied.
    pub(crate) fn set_decoding(&mut self, exact: bool, orient: bool) {
        (self.how.exact, self.how.orient) = (exact, orient);
    }

    /// How images are decoded within limits.
    fn how(&self, limits: Limits) -> Decoding {
        Decoding { limits, ..self.how.clone() }
    }

    /// The output.
    pub(crate) fn output(&self) -> &MapOutput {
        &self.output
    }

    /// Whether it decodes images, which takes an amount of memory that is not known in advance.
    pub(crate) fn decodes(&self) -> bool {
        match &self.work {
            Work::Images(_) | Work::Decode => true,
            Work::Followed(followed) => followed.decodes(),
            Work::Closure(_) | Work::Arrays(_) => false,
        }
    }

    /// The part of the chain before the first random operation, if it makes tensors of images.
    pub(crate) fn fixed(&self) -> Option<&Chain> {
        match &self.work {
            Work::Images(chains) => Some(&chains.fixed),
            Work::Decode | Work::Closure(_) | Work::Arrays(_) | Work::Followed(_) => None,
        }
    }

    /// The image before the first random operation, from which [`finish`](Map::finish) continues; `None` if it makes no
    /// tensors of images.
    pub(crate) fn prepare(
        &self,
        bytes: &[u8],
        (memory, scratch): (&DecodeMemory, &mut MapScratch),
    ) -> Result<Option<Image>> {
        let Work::Images(chains) = &self.work else { return Ok(None) };
        let mut prepared = None;
        memory.with_limits(|limits| {
            let how = self.how(limits);
            let image = decode_with(bytes, &how, &mut scratch.images)?;
            prepared = Some(if chains.fixed.ops().is_empty() {
                image
            } else {
                // None of it is random.
                let plan = chains.fixed.draw(0, 0, 0, image.height(), image.width())?;
                let fixed = plan.image(&image, &mut scratch.images)?;
                scratch.images.reuse(image);
                fixed
            });
            scratch.images.shrink_to(memory.kept());
            Ok(())
        })?;
        // An image may be in memory that was allocated for a larger one.
        let fitted = |image: Image| {
            let (height, width, channels) = (image.height(), image.width(), image.channels());
            let mut pixels = image.into_pixels();
            pixels.shrink_to_fit();
            Image::new(height, width, channels, pixels)
        };
        prepared.map(fitted).transpose()
    }

    /// Writes the result for a value to `out`, from the `image` that [`prepare`](Map::prepare) made: the bytes that
    /// [`run`](Map::run) would write.
    pub(crate) fn finish(
        &self,
        image: &Image,
        (seed, epoch, id): (u64, u64, SampleId),
        out: &mut [u8],
        scratch: &mut MapScratch,
    ) -> Result<usize> {
        let Work::Images(chains) = &self.work else { return Err(no_image()) };
        let plan = chains.random.draw(seed, epoch, id.0, image.height(), image.width())?;
        plan.run(image, out, &mut scratch.images)?;
        Ok(out.len())
    }

    /// Rows and columns of an image that an external decoder may decode for [`run_decoded`](Map::run_decoded): the map
    /// makes a tensor of it, it is a common kind of JPEG, and a thread's share of the memory has room for it.
    pub(crate) fn decodable(&self, bytes: &[u8], memory: &DecodeMemory) -> Option<(u32, u32)> {
        self.chain()?;
        let limits = Limits { bytes: memory.share(), ..Limits::default() };
        usual_jpeg(bytes, &self.how(limits))
    }

    /// The passes that the external decoder may apply to the pixels first, and the rest of the plan after them.
    pub(crate) fn passes(&self, bytes: &[u8], (seed, epoch, id): (u64, u64, SampleId)) -> Option<(Passes, Plan)> {
        self.chain()?.split_plan(bytes, &self.how, Draw { seed, epoch, sample: id.0 })
    }

    /// As [`run`](Map::run), for an image that an external decoder has decoded, and its file. The memory of the pixels
    /// becomes [spare](MapScratch::spare).
    pub(crate) fn run_decoded(
        &self,
        (bytes, decoded): (&[u8], Decoded),
        (seed, epoch, id): (u64, u64, SampleId),
        out: &mut [u8],
        scratch: &mut MapScratch,
    ) -> Result<usize> {
        let Work::Images(chains) = &self.work else { return Err(no_image()) };
        let Decoded { size, pixels, rest } = decoded;
        let image = Image::new(size.0, size.1, CHANNELS, pixels)?;
        let draw = Draw { seed, epoch, sample: id.0 };
        let made = match rest {
            Some(rest) => {
                let made = rest.run(&image, out, &mut scratch.images);
                scratch.images.reuse(image);
                made
            }
            None => {
                let whole = (bytes, image);
                chains.whole.ready_with(whole, &self.how, draw, out, &mut scratch.images).map(drop)
            }
        };
        made.map(|()| out.len())
    }

    /// Writes the result for `bytes`, the value of the sample `id` in `epoch`, to the beginning of `out`, which has
    /// room for the longest value. `values` are those [`beside`](Map::beside) it, and `shape` is its own, if known.
    /// Returns its length.
    pub(crate) fn run(
        &self,
        (bytes, values, shape): (&[u8], &[Bytes], Option<&[u64]>),
        (seed, epoch, id): (u64, u64, SampleId),
        out: &mut [u8],
        (memory, scratch): (&DecodeMemory, &mut MapScratch),
    ) -> Result<usize> {
        match &self.work {
            Work::Images(chains) => {
                let draw = Draw { seed, epoch, sample: id.0 };
                memory.with_limits(|limits| {
                    // Exact decoding gives the bytes of a full decode, so a decoder that cannot decode parts gives them
                    // too, up to differences in rounding between decoders.
                    let how = self.how(limits);
                    let made = chains.whole.ready(bytes, &how, draw, out, &mut scratch.images);
                    scratch.images.shrink_to(memory.kept());
                    made.map(|_| ())
                })?;
                Ok(out.len())
            }
            Work::Decode => {
                memory.with_limits(|limits| {
                    let how = self.how(limits);
                    let image = decode_with(bytes, &how, &mut scratch.images)?;
                    let sides = [image.height(), image.width()].map(|side| i64::from(side).to_le_bytes());
                    out.copy_from_slice(sides.as_flattened());
                    scratch.images.reuse(image);
                    scratch.images.shrink_to(memory.kept());
                    Ok(())
                })?;
                Ok(out.len())
            }
            Work::Followed(followed) => {
                let draw = |chain: &Chain, (height, width)| chain.draw(seed, epoch, id.0, height, width);
                let mut written = 0;
                memory.with_limits(|limits| {
                    written = followed.run((bytes, values), draw, out, (self.how(limits), &mut scratch.images))?;
                    scratch.images.shrink_to(memory.kept());
                    Ok(())
                })?;
                Ok(written)
            }
            Work::Arrays(arrays) => arrays.run((bytes, shape), (seed, epoch, id), (out, self.output.dtype)),
            Work::Closure(closure) => {
                let seed = sample_rng(seed, epoch, id).next_u64();
                let written = closure(&Input { bytes, id, epoch, seed }, out)?;
                self.check(written)?;
                Ok(written)
            }
        }
    }

    /// Refuses a length that differs from the promised one.
    fn check(&self, written: usize) -> Result<()> {
        let MapOutput { dtype, shape, .. } = &self.output;
        let (written, most) = (written as u64, self.output.bytes());
        let what = match shape {
            Shape::Fixed(_) if written == most => return Ok(()),
            Shape::Ragged if written <= most && written.is_multiple_of(dtype.size()) => return Ok(()),
            Shape::Fixed(shape) => format!("the closure made {written} bytes, and {shape:?} of {dtype} are {most}"),
            Shape::Ragged => {
                format!("the closure made {written} bytes, which are no {dtype} of up to {most} bytes")
            }
        };
        Err(refused(what, "return the number of bytes written, as declared"))
    }
}

impl DecodeMemory {
    /// Bytes that a thread may use while others decode too.
    pub(crate) fn share(&self) -> u64 {
        self.bytes / self.threads
    }

    /// Bytes that a thread may keep between images.
    fn kept(&self) -> u64 {
        self.bytes / self.threads / KEPT_PART
    }

    /// Runs `work` with the limits for one image: the thread's share, then all memory if that is too little.
    fn with_limits(&self, mut work: impl FnMut(Limits) -> Result<()>) -> Result<()> {
        let limits = |bytes: u64| Limits { bytes, ..Limits::default() };
        {
            let _shared = self.whole.read().unwrap_or_else(PoisonError::into_inner);
            match work(limits(self.share())) {
                Err(error) if error.kind() == ErrorKind::MemoryLimit && self.threads > 1 => {}
                done => return done.map_err(with_remedy),
            }
        }
        let _alone = self.whole.write().unwrap_or_else(PoisonError::into_inner);
        work(limits(self.bytes - self.kept() * (self.threads - 1))).map_err(with_remedy)
    }
}

/// The tensor of a chain that makes images of one size.
fn tensor(chain: &Chain) -> Result<uringload_images::Output> {
    // A plan has the type and the layout, for any image; take one that is large enough for any crop. If the shorter
    // side decides the scale, a crop may need a long image.
    let (height, width) = chain.size().unwrap_or((0, 0));
    let side = height.max(width).clamp(PROBE_SIDE, SIDE_MAX);
    let long = side.saturating_mul(LONG).min(SIDE_MAX);
    let plan = chain.draw(0, 0, 0, side, side);
    let plan = plan.or_else(|error| chain.draw(0, 0, 0, side, long).map_err(|_| error));
    Ok(plan.or_else(|error| chain.draw(0, 0, 0, long, side).map_err(|_| error))?.output(CHANNELS))
}

fn no_image() -> Error {
    Error::new(ErrorKind::Internal, "a column of which no tensors are made has a prepared image")
}

/// Adds the remedy to an error about an image that needs too much memory.
fn with_remedy(error: Error) -> Error {
    if error.kind() != ErrorKind::MemoryLimit {
        return error;
    }
    error.with_remedy("raise memory_limit, half of which may be for decoding, or store smaller images")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit for one image, plus what other threads keep, is the total.
    #[test]
    fn what_threads_keep_is_within_the_limit() {
        let memory = DecodeMemory::new(1 << 20, 4);
        let mut seen = Vec::new();
        let done = memory.with_limits(|limits| {
            seen.push(limits.bytes);
            if seen.len() == 1 { Err(Error::new(ErrorKind::MemoryLimit, "too large")) } else { Ok(()) }
        });
        assert!(done.is_ok());
        assert_eq!(seen, [1 << 18, (1 << 20) - 3 * memory.kept()]);
        assert_eq!(memory.kept(), 1 << 14);
    }
}

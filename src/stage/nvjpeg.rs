//! Threads that decode with nvJPEG, and have the GPU cut, resize and mirror what it has decoded where a chain begins
//! with that, so that no more comes back than what is seen. They take from the one queue that the others take from: a
//! batch of JPEGs for the GPU, and, like the others, whatever else there is. So nobody has a share that is fixed, and
//! nobody waits for the GPU.
//!
//! A thread takes as many images as the GPU will have decoded by the time that the other threads are through with the
//! rest, as far as that can be told: by the bytes of files, and by what a byte has cost here and there until now.

use super::{Keeping, Shared, Task, Value, Work};
use crate::config::{Cause, Fallback};
use crate::stats::Clock;
use crate::transform::{Decoded, MapScratch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use uringload_images::{Passes, Plan, Taps};
use uringload_sys::cuda;
use uringload_sys::nvjpeg::{Decoder, NvjpegError, Pixels, Request, Resampling};

/// Most images in a batch. Above 50, nvJPEG has multiprocessors read the codes.
const BATCH_MAX: usize = 64;

/// Images in a batch while it is not known what a byte costs.
const BATCH_UNKNOWN: usize = 8;

/// A thread for which the processor was cheaper so many times tries the GPU again.
const TRY_AGAIN: u32 = 64;

/// A new cost counts for this part of the mean.
const NEW_PART: f64 = 0.125;

/// The mean of a cost over some last times; 0 where none is known. Several threads write it, and one that is lost does
/// no harm.
#[derive(Debug, Default)]
struct Mean(AtomicU64);

impl Mean {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn add(&self, value: f64) {
        let before = self.get();
        let mean = if before > 0.0 { before + (value - before) * NEW_PART } else { value };
        self.0.store(mean.to_bits(), Ordering::Relaxed);
    }
}

/// What images cost, and how many threads there are to decode them.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// Nanoseconds of a thread for a byte of a file, decoded by the processor.
    processor: Mean,
    /// Nanoseconds for a byte of the files of a batch, decoded by the GPU.
    device: Mean,
    /// Bytes of a file.
    file: Mean,
    /// Threads that decode by the processor; 0 where no GPU decodes, so that nobody asks for costs.
    threads: AtomicU64,
}

impl Costs {
    pub(super) fn set_threads(&self, threads: usize) {
        self.threads.store(threads as u64, Ordering::Relaxed);
    }

    /// Books what a value cost the processor, where somebody asks: all threads write to the same words.
    pub(super) fn note_processor(&self, bytes: usize, nanos: u128) {
        if bytes > 0 && self.threads.load(Ordering::Relaxed) > 0 {
            self.processor.add(nanos as f64 / bytes as f64);
            self.file.add(bytes as f64);
        }
    }

    fn note_device(&self, bytes: usize, nanos: u128) {
        self.device.add(nanos as f64 / bytes.max(1) as f64);
    }

    /// Whether the GPU is to have a batch of `bytes` in `images` files, while `waiting` files are left to the others.
    fn is_for_device(&self, (images, bytes): (usize, usize), waiting: usize) -> bool {
        let (here, there) = (self.processor.get(), self.device.get());
        if here <= 0.0 || there <= 0.0 {
            return images <= BATCH_UNKNOWN;
        }
        let batch = there * bytes as f64;
        let rest = here * waiting as f64 * self.file.get() / (self.threads.load(Ordering::Relaxed).max(1) as f64);
        // One image is also for the GPU where that is as fast as this thread would be.
        batch <= rest || (images == 1 && batch <= here * bytes as f64)
    }
}

/// An image for the GPU.
struct Image {
    work: Work,
    size: (u32, u32),
    /// What the GPU is to make of its pixels, and what is to be done behind that; `None` if all pixels are wanted.
    split: Option<(Resampling, Plan)>,
}

impl Image {
    /// Bytes of the device that it takes.
    fn bytes(&self) -> u64 {
        let resampled = |(resampling, _): &(Resampling, Plan)| Decoder::bytes_of_resampled(self.size, resampling);
        self.split.as_ref().map_or_else(|| Decoder::bytes_of(self.size), resampled) as u64
    }

    fn request(&self) -> Option<Request<'_>> {
        let resampling = self.split.as_ref().map(|(resampling, _)| resampling);
        Some(Request { file: &value_of(&self.work)?.bytes, size: self.size, resampling })
    }
}

impl Shared {
    /// Works until there is no more work: with the GPU as long as that goes well, and without it behind that.
    pub(super) fn run_nvjpeg(&self, mut decoder: Decoder, mut clock: Clock) {
        let mut scratch = MapScratch::default();
        let mut passed = 0;
        while let Some(first) = self.next(&mut clock) {
            let began = Instant::now();
            let Some(size) = self.decodable(&first, &decoder) else {
                self.finish(first, &mut scratch, began);
                continue;
            };
            let is_first_for_device = self.costs.is_for_device((1, file_bytes(&first)), self.work.len());
            if !is_first_for_device && passed < TRY_AGAIN {
                passed += 1;
                self.finish(first, &mut scratch, began);
                continue;
            }
            passed = 0;
            let (batch, other) = self.batch((first, size), &decoder);
            let decoded = self.decode_batch(batch, &mut decoder, &mut scratch);
            if let Some(other) = other {
                self.finish(other, &mut scratch, Instant::now());
            }
            if let Err(error) = decoded {
                let step = Fallback::new(Cause::Nvjpeg, "images decoded by the processor from now on", None);
                self.said.push(step.with_reason(error.to_string()));
                drop(decoder);
                return self.run(clock);
            }
        }
    }

    /// Rows and columns of an image that the GPU may decode.
    fn decodable(&self, work: &Work, decoder: &Decoder) -> Option<(u32, u32)> {
        let (maps, value) = (self.maps.as_ref()?, value_of(work)?);
        let (_, map) = maps.columns.get(value.column)?;
        // What is kept is what the processor makes.
        let Keeping::Not = value.keeping else { return None };
        let size = map.decodable(&value.bytes, &maps.memory)?;
        (Decoder::bytes_of(size) as u64 <= self.room(decoder)).then_some(size)
    }

    /// Bytes of the pixels of one batch: they may all be on the host at the same time.
    fn room(&self, decoder: &Decoder) -> u64 {
        let share = self.maps.as_ref().map_or(0, |maps| maps.memory.share());
        share.min(decoder.room() as u64)
    }

    /// An image, and what the GPU is to make of it, if there is room for that.
    fn image(&self, (work, size): (Work, (u32, u32)), room: u64) -> Image {
        let split = self.split(&work);
        let image = Image { work, size, split };
        if image.bytes() > room { Image { split: None, ..image } } else { image }
    }

    fn split(&self, work: &Work) -> Option<(Resampling, Plan)> {
        let (maps, value) = (self.maps.as_ref()?, value_of(work)?);
        let (_, map) = maps.columns.get(value.column)?;
        let (passes, rest) = map.passes(&value.bytes, (maps.seed, value.epoch, value.id))?;
        Some((resampling(passes), rest))
    }

    /// Takes images from the queue for as long as the GPU is to have them; and the first work that is none for it.
    fn batch(&self, (first, size): (Work, (u32, u32)), decoder: &Decoder) -> (Vec<Image>, Option<Work>) {
        let (mut bytes, room) = (file_bytes(&first), self.room(decoder));
        let first = self.image((first, size), room);
        let mut taken = first.bytes();
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && self.costs.is_for_device((batch.len() + 1, bytes + bytes / batch.len()), self.work.len())
        {
            let Some(work) = self.work.pop() else { break };
            let Some(size) = self.decodable(&work, decoder) else { return (batch, Some(work)) };
            let file = file_bytes(&work);
            let image = self.image((work, size), room);
            if taken + image.bytes() > room {
                return (batch, Some(image.work));
            }
            bytes += file;
            taken += image.bytes();
            batch.push(image);
        }
        (batch, None)
    }

    /// Has the GPU decode a batch, and makes tensors of what it has decoded. What it has not is for the processor,
    /// which has the last word about a file.
    ///
    /// # Errors
    /// What is about the device. The images are all done then too.
    fn decode_batch(
        &self,
        batch: Vec<Image>,
        decoder: &mut Decoder,
        scratch: &mut MapScratch,
    ) -> Result<(), NvjpegError> {
        let began = Instant::now();
        let requests: Vec<Request<'_>> = batch.iter().filter_map(Image::request).collect();
        let bytes = requests.iter().map(|request| request.file.len()).sum();
        let decoded = decoder.decode_resampled(&requests);
        let nanos = began.elapsed().as_nanos();
        self.costs.note_device(bytes, nanos);
        let (images, failed): (Vec<Option<Pixels>>, _) = match decoded {
            Ok(images) => (images.into_iter().map(Result::ok).collect(), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut images = images.into_iter().chain(std::iter::repeat_with(|| None));
        for image in batch {
            let Image { work, split, .. } = image;
            let decoded = images.next().flatten().map(|pixels| Decoded {
                size: (pixels.height, pixels.width),
                rest: split.filter(|_| pixels.is_resampled).map(|(_, rest)| rest),
                pixels: pixels.bytes,
            });
            self.stats.count.samples_decoded_on_device.add(u64::from(decoded.is_some()));
            self.finish_with(work, decoded, scratch, Instant::now());
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The same numbers, for the device.
fn resampling(Passes { columns, rows }: Passes) -> Resampling {
    let taps = |Taps { first, end, weights }: Taps| cuda::Taps { first, end, weights };
    Resampling { columns: taps(columns), rows: taps(rows) }
}

fn value_of(work: &Work) -> Option<&Value> {
    match &work.task {
        Task::Value(value) => Some(value),
        Task::Unit { .. } | Task::Mix(_) => None,
    }
}

pub(super) fn file_bytes(work: &Work) -> usize {
    value_of(work).map_or(0, |value| value.bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(here: f64, there: f64, threads: usize) -> Costs {
        let costs = Costs::default();
        costs.set_threads(threads);
        costs.note_processor(1000, (here * 1000.0) as u128);
        costs.note_device(1000, (there * 1000.0) as u128);
        costs
    }

    /// The images that a thread takes of so many that wait, each of 1000 bytes.
    fn taken(costs: &Costs, waiting: usize) -> usize {
        (1..=waiting).take_while(|&images| costs.is_for_device((images, images * 1000), waiting - images)).count()
    }

    #[test]
    fn the_gpu_has_what_it_is_through_with_when_the_others_are() {
        // As fast as four threads: half.
        assert_eq!(taken(&costs(40.0, 10.0, 4), 60), 30);
        // A fourth as fast as four threads: a fifth.
        assert_eq!(taken(&costs(40.0, 40.0, 4), 60), 12);
        // Far slower: none, and of the last ones one at most.
        assert_eq!(taken(&costs(40.0, 4000.0, 4), 60), 0);
        assert_eq!(taken(&costs(40.0, 30.0, 4), 1), 1);
        assert_eq!(taken(&costs(40.0, 50.0, 4), 1), 0);
        // Far faster: nearly all.
        assert_eq!(taken(&costs(40.0, 0.1, 4), 60), 59);
    }

    #[test]
    fn what_nothing_is_known_of_is_tried_with_few() {
        assert_eq!(taken(&Costs::default(), 60), BATCH_UNKNOWN);
    }

    #[test]
    fn a_mean_follows_what_changes() {
        let mean = Mean::default();
        mean.add(8.0);
        assert!((mean.get() - 8.0).abs() < 1e-9);
        (0..100).for_each(|_| mean.add(16.0));
        assert!((mean.get() - 16.0).abs() < 0.1, "{}", mean.get());
    }
}

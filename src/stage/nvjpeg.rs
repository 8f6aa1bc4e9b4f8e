//! Decodes JPEGs on threads that use nvJPEG. If a chain begins with crop, resize and flip, the GPU does that too, so
//! that only the visible pixels come back.
//!
//! The choice of images is a function of the sample's number and of the file, never of the threads' load: nvJPEG rounds
//! differently than libjpeg, and two runs must have the same pixels. So these threads have a queue of their own. Images
//! that turn out not to suit the GPU go to the queue of the others.

use super::{Keeping, Shared, Task, Value, Work};
use crate::config::{Cause, Fallback};
use crate::dataset::SampleId;
use crate::resident::Resident;
use crate::stats::Clock;
use crate::transform::{Decoded, MapScratch};
use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, OnceLock};
use std::time::Instant;
use uringload_images::{Passes, Plan, Taps};
use uringload_sys::cuda;
use uringload_sys::nvjpeg::{Decoder, NvjpegError, Pixels, Request, Resampling};

/// Most images in a batch. Above 50, nvJPEG has multiprocessors read the codes.
const BATCH_MAX: usize = 64;

/// Work that waits for these threads.
#[derive(Default)]
pub(super) struct Jpegs {
    work: SegQueue<Work>,
    /// Their share of the images, and whether other threads also decode; empty without such threads.
    begun: OnceLock<(f64, bool)>,
    /// The GPU failed: the processor decodes the rest.
    is_lost: AtomicBool,
    /// Idle threads of this kind sleep on it.
    pub(super) wake: Condvar,
}

impl Jpegs {
    /// Called before anything is queued: sets the share of the images for these threads, and whether there are others.
    pub(super) fn begin(&self, share: f64, has_others: bool) {
        let _ = self.begun.set((share, has_others));
    }

    /// Whether the threads do all work, because there are no others.
    pub(super) fn do_all(&self) -> bool {
        self.begun.get().is_some_and(|&(_, has_others)| !has_others)
    }

    /// Whether a sample is for these threads, judging by its number.
    pub(super) fn is_theirs(&self, id: SampleId) -> bool {
        self.begun.get().is_some_and(|&(share, _)| is_of_share(id, share))
    }

    /// Queues work for these threads; returns work that is not theirs.
    pub(super) fn queue(&self, work: Work) -> Option<Work> {
        if !value_of(&work).is_some_and(|value| self.is_theirs(value.id)) {
            return Some(work);
        }
        self.work.push(work);
        None
    }
}

/// Whether a sample is in this share of all. Neighbours are spread evenly: a constant share of each batch, in any
/// order.
fn is_of_share(id: SampleId, share: f64) -> bool {
    // The golden ratio, of 64 bits (Knuth, The Art of Computer Programming, volume 3, section 6.4).
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    share >= 1.0 || (id.0.wrapping_mul(GOLDEN) as f64) < share * 2.0_f64.powi(64)
}

/// An image for the GPU.
struct Image {
    work: Work,
    size: (u32, u32),
    /// The GPU's part of the plan, and the rest of it; `None` if all pixels are wanted.
    split: Option<(Resampling, Plan)>,
    /// Where the result stays, if no more processing is needed.
    resident: Option<Resident>,
}

impl Image {
    /// Bytes of device memory that it takes.
    fn bytes(&self) -> u64 {
        let resampled = |(resampling, _): &(Resampling, Plan)| Decoder::bytes_of_resampled(self.size, resampling);
        self.split.as_ref().map_or_else(|| Decoder::bytes_of(self.size), resampled) as u64
    }

    fn request(&self) -> Option<Request<'_>> {
        let resampling = self.split.as_ref().map(|(resampling, _)| resampling);
        let to = self.resident.as_ref().map(Resident::span);
        Some(Request { file: &value_of(&self.work)?.bytes, size: self.size, resampling, to })
    }
}

impl Shared {
    /// Works until there is no more work: with the GPU while that succeeds, and without it afterwards.
    pub(super) fn run_nvjpeg(&self, mut decoder: Decoder, mut clock: Clock) {
        let mut scratch = MapScratch::default();
        while let Some(first) = self.next_jpeg(&mut clock) {
            let size = self.decodable(&first, &decoder).filter(|_| !self.jpegs.is_lost.load(Ordering::Relaxed));
            let Some(size) = size else {
                self.hand_over(first, &mut scratch);
                continue;
            };
            let batch = self.batch((first, size), &decoder, &mut scratch);
            if let Err(error) = self.decode_batch(batch, &mut decoder, &mut scratch)
                && !self.jpegs.is_lost.swap(true, Ordering::Relaxed)
            {
                let step = Fallback::new(Cause::Nvjpeg, "images decoded by the processor from now on", None);
                self.said.push(step.with_reason(error.to_string()));
            }
        }
    }

    /// Work that is not for the GPU.
    fn hand_over(&self, work: Work, scratch: &mut MapScratch) {
        if self.jpegs.do_all() {
            self.finish(work, scratch, Instant::now());
        } else {
            self.work.push(work);
            drop(self.lock());
            self.wake.notify_one();
        }
    }

    /// The next work of these threads, or `None` if there will be no more.
    fn next_jpeg(&self, clock: &mut Clock) -> Option<Work> {
        let others = || if self.jpegs.do_all() { self.work.pop() } else { None };
        let pop = || self.jpegs.work.pop().or_else(others);
        self.next_of(pop, &self.jpegs.wake, clock)
    }

    /// Rows and columns of an image that the GPU may decode.
    fn decodable(&self, work: &Work, decoder: &Decoder) -> Option<(u32, u32)> {
        let (maps, value) = (self.maps.as_ref()?, value_of(work)?);
        let (_, map) = maps.columns.get(value.column)?;
        // Samples that are kept are made by the processor.
        let (Keeping::Not, true) = (&value.keeping, self.jpegs.is_theirs(value.id)) else { return None };
        let size = map.decodable(&value.bytes, &maps.memory)?;
        (Decoder::bytes_of(size) as u64 <= self.room(decoder)).then_some(size)
    }

    /// Bytes of the pixels of one batch: they may all be on the host at the same time.
    fn room(&self, decoder: &Decoder) -> u64 {
        let share = self.maps.as_ref().map_or(0, |maps| maps.memory.share());
        share.min(decoder.room() as u64)
    }

    /// An image with its plan for the GPU, if there is room for it.
    fn image(&self, (work, size): (Work, (u32, u32)), room: u64) -> Image {
        let split = self.split(&work);
        let is_all = split.as_ref().is_some_and(|(_, rest)| rest.is_pixels());
        let resident = value_of(&work).and_then(|value| value.place.clone()).filter(|_| is_all);
        let image = Image { work, size, split, resident };
        if image.bytes() > room { Image { split: None, resident: None, ..image } } else { image }
    }

    fn split(&self, work: &Work) -> Option<(Resampling, Plan)> {
        let (maps, value) = (self.maps.as_ref()?, value_of(work)?);
        let (_, map) = maps.columns.get(value.column)?;
        let (passes, rest) = map.passes(&value.bytes, (maps.seed, value.epoch, value.id))?;
        Some((resampling(passes), rest))
    }

    /// The images that wait, as many as fit. Images that do not suit the GPU go to the other threads.
    fn batch(&self, (first, size): (Work, (u32, u32)), decoder: &Decoder, scratch: &mut MapScratch) -> Vec<Image> {
        let room = self.room(decoder);
        let mut batch = vec![self.image((first, size), room)];
        let mut left = room.saturating_sub(batch[0].bytes());
        while batch.len() < BATCH_MAX && left > 0 {
            let Some(work) = self.jpegs.work.pop() else { break };
            let Some(size) = self.decodable(&work, decoder) else {
                self.hand_over(work, scratch);
                continue;
            };
            let image = self.image((work, size), room);
            let bytes = image.bytes();
            if bytes > left {
                // It begins the next batch, on this thread or another.
                self.jpegs.work.push(image.work);
                break;
            }
            left -= bytes;
            batch.push(image);
        }
        batch
    }

    /// Decodes a batch on the GPU, and makes tensors of the results. The processor handles images that failed, and
    /// decides about their files.
    ///
    /// # Errors
    /// Errors of the device. Even then all images are done.
    fn decode_batch(
        &self,
        batch: Vec<Image>,
        decoder: &mut Decoder,
        scratch: &mut MapScratch,
    ) -> Result<(), NvjpegError> {
        let requests: Vec<Request<'_>> = batch.iter().filter_map(Image::request).collect();
        let decoded = decoder.decode_resampled(&requests);
        let (images, failed): (Vec<Option<Pixels>>, _) = match decoded {
            Ok(images) => (images.into_iter().map(Result::ok).collect(), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut images = images.into_iter().chain(std::iter::repeat_with(|| None));
        for image in batch {
            let Image { work, split, resident, .. } = image;
            let (pixels, began) = (images.next().flatten(), Instant::now());
            self.stats.count.samples_decoded_on_device.add(u64::from(pixels.is_some()));
            if let Some(resident) = resident.filter(|_| pixels.as_ref().is_some_and(|pixels| pixels.is_resident)) {
                self.finish_there(work, resident, began);
                continue;
            }
            let decoded = pixels.map(|pixels| Decoded {
                size: (pixels.height, pixels.width),
                rest: split.filter(|_| pixels.is_resampled).map(|(_, rest)| rest),
                pixels: pixels.bytes,
            });
            let is_here = decoded.is_some();
            self.finish_with(work, decoded, scratch, began);
            if is_here {
                decoder.reuse(scratch.spare());
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_has_its_share() {
        for share in [0.1, 0.5, 0.75, 1.0] {
            let of = |ids: std::ops::Range<u64>| ids.filter(|&id| is_of_share(SampleId(id), share)).count() as f64;
            for first in [0, 1, 1_000_003, u64::MAX - 64] {
                let (count, wanted) = (of(first..first + 64), 64.0 * share);
                assert!((count - wanted).abs() <= 3.0, "{count} of 64 from {first} on, for {share}");
            }
            // Samples of one class, at the same positions of each shard.
            let strided = (0..64_000).step_by(1000).filter(|&id| is_of_share(SampleId(id), share)).count() as f64;
            assert!((strided - 64.0 * share).abs() <= 10.0, "{strided} of 64, for {share}");
        }
        assert!(!(0..1000).any(|id| is_of_share(SampleId(id), 0.0)));
    }
}

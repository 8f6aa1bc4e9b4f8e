//! The counters of a loader: live, and at a moment.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`, from any thread. Takes some 5 ns if no other thread does so at the same time.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down, with its greatest value and its mean over time. One thread writes it.
#[derive(Debug, Default)]
pub struct Gauge {
    value: AtomicU64,
    max: AtomicU64,
    /// Sum of value x nanoseconds up to `since`.
    area: AtomicU64,
    /// Nanoseconds from the epoch of the stats to the last change.
    since: AtomicU64,
}

impl Gauge {
    pub(super) fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: u64, now: u64) {
        let area = self.area_at(now);
        self.area.store(area, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
        if value > self.max.load(Ordering::Relaxed) {
            self.max.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn area_at(&self, now: u64) -> u64 {
        let held = now.saturating_sub(self.since.load(Ordering::Relaxed));
        // 2^64 hold a depth of 4096 for 52 days; from then on the mean is of the last 52 days.
        self.area.load(Ordering::Relaxed).wrapping_add(self.value.load(Ordering::Relaxed).wrapping_mul(held))
    }
}

/// Declares the counters once, as atomics in [`Counters`] and as plain numbers in [`Counts`].
macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// The counters, while they grow.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$meta])* pub $name: Counter,)*
        }

        /// The counters at a moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }

        impl Counts {
            /// Bytes that measure what the storage returned: those that the consumer got or, if something was decoded,
            /// those that were decoded.
            #[doc(hidden)]
            pub fn bytes_stored(&self) -> u64 {
                let decodes = self.units_decoded > 0 || self.samples_decoded > 0;
                if decodes { self.bytes_wanted } else { self.bytes_delivered }
            }

            /// What was counted since `earlier`.
            #[must_use]
            pub(crate) fn since(&self, earlier: &Counts) -> Counts {
                Counts { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    /// Bytes read, including alignment and coalesced gaps.
    bytes_read,
    /// Bytes of these that samples needed.
    bytes_wanted,
    /// Ranges of files that samples needed and that were in memory already, so that they were not read.
    reads_saved,
    /// Bytes of samples in the batches that were handed out.
    bytes_delivered,
    /// Reads that ended, with or without an error.
    reads,
    /// Samples in the batches that were handed out.
    samples,
    /// Batches that were handed out.
    batches,
    /// Batches of these that were ready when the consumer asked.
    #[doc(hidden)]
    batches_ready,
    /// Nanoseconds that the consumer waited for its first batch.
    #[doc(hidden)]
    first_wait_nanos,
    /// Samples that failed and whose error went to the consumer.
    samples_failed,
    /// Samples that were left out of their batch because they could not be read.
    samples_skipped,
    /// Values that were cut because they were longer than the `max_length` of their column, or than the room in a
    /// packed row of the sample that they replace.
    samples_truncated,
    /// Samples that were replaced because they could not be read.
    samples_replaced,
    /// Reads that took longer than the timeout.
    timeouts,
    /// Reads that gave fewer bytes than asked, before the end of the file.
    #[doc(hidden)]
    short_reads,
    /// Reads that were retried after an error or a short read.
    retries,
    /// Units that were decoded. A unit counts each time.
    #[doc(hidden)]
    units_decoded,
    /// Values that the loader's threads decoded or transformed.
    samples_decoded,
    /// Images of these that a GPU decoded: see [`Device::nvjpeg`](crate::config::Device::nvjpeg).
    samples_decoded_on_device,
    /// Samples whose decoded images came from the cache: see [`Builder::cache_images`](crate::Builder::cache_images).
    cache_hits,
    /// Samples that were read and decoded although decoded images are cached.
    cache_misses,
    /// Bytes of objects that came from the cache on a local disk: see
    /// [`Builder::cache_disk`](crate::Builder::cache_disk).
    bytes_cached,
    /// Bytes after decoding.
    bytes_decoded,
    /// Bytes that were sent to a device, tables included.
    #[doc(hidden)]
    bytes_copied,
    /// Copies that they went in.
    #[doc(hidden)]
    copies,
    /// Nanoseconds that devices spent on copies, by their own clocks; summed over devices.
    #[doc(hidden)]
    copy_nanos,
    /// Nanoseconds that devices spent on making columns, likewise.
    #[doc(hidden)]
    kernel_nanos,
    /// Samples that the user's own code processed.
    #[doc(hidden)]
    samples_transformed,
    /// Nanoseconds of processor time of the user's own code; summed over threads.
    #[doc(hidden)]
    transform_cpu_nanos,
    /// Nanoseconds of waiting for the storage with as many reads in flight as allowed.
    #[doc(hidden)]
    depth_bound_nanos,
    /// Nanoseconds of waiting for the storage with fewer reads, because of a lack of memory to read into.
    #[doc(hidden)]
    memory_bound_nanos,
    /// Sum of nanoseconds times allowed reads in flight, while the storage was waited for.
    #[doc(hidden)]
    depth_area,
    /// Turns of the reactor.
    #[doc(hidden)]
    turns,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_depth_is_weighted_by_time() {
        let gauge = Gauge::default();
        gauge.set(10, 100);
        gauge.set(40, 200);
        gauge.set(0, 300);
        assert_eq!((gauge.area_at(1000), gauge.max()), (10 * 100 + 40 * 100, 40));
    }
}

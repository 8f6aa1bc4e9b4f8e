//! Records what the samples of a batch took to read and to decode. Every read records its time; samples are looked up
//! only in a batch that may have one of the slowest.

use super::Pending;
use crate::plan::{PlannedRead, Slice};
use crate::stats::{DearSample, Stats};
use std::time::Duration;

/// Whole microseconds: an hour fits.
pub(in crate::reactor) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

impl Pending {
    /// Records the time of a read, or of a part of it.
    pub(super) fn took(&mut self, index: usize, latency: Duration) {
        let took = &mut self.reads[index].took;
        *took = took.saturating_add(micros(latency));
        self.slowest = self.slowest.max(*took);
    }

    /// Offers the samples of the batch to the list of the slowest, if one may belong there.
    pub(super) fn offer_dearest(&mut self, stats: &Stats) {
        let bar = stats.dearest.bar();
        if u64::from(self.slowest) + u64::from(self.making.slowest) <= bar {
            return;
        }
        let mut order = std::mem::take(&mut self.by_place);
        order.clear();
        order.extend(0..self.plan.reads.len() as u32);
        let place = |index: &u32| {
            let PlannedRead { file, offset, .. } = self.plan.reads[*index as usize];
            (file, offset)
        };
        order.sort_unstable_by_key(place);
        let epoch = self.epoch();
        for (index, &id) in self.plan.batch.ids.iter().enumerate() {
            let slices = self.plan.slices_of(index).iter().filter(|slice| !slice.is_kept() && slice.span.len > 0);
            let read = slices.map(|slice| self.longest_of(slice, &order)).max().unwrap_or(0);
            let made = self.making.took.get(index).copied().unwrap_or(0);
            if u64::from(read) + u64::from(made) > stats.dearest.bar() {
                let time = |micros: u32| Duration::from_micros(micros.into());
                stats.dearest.offer(DearSample::new(id, epoch, time(read), time(made)));
            }
        }
        self.by_place = order;
    }

    /// Microseconds of the longest read that brought a part of a slice. `order` has the reads by their places.
    fn longest_of(&self, slice: &Slice, order: &[u32]) -> u32 {
        let (file, start, end) = (slice.span.file, slice.span.offset, slice.span.offset + slice.span.len);
        // Reads of a file overlap only where alignment makes neighbours of two blocks share a sector.
        let ends_before = |index: &u32| {
            let PlannedRead { file: of, offset, len, .. } = self.plan.reads[*index as usize];
            (of, offset + len) <= (file, start)
        };
        let first = order.partition_point(ends_before);
        let brings = |index: &&u32| {
            let PlannedRead { file: of, offset, .. } = self.plan.reads[**index as usize];
            of == file && offset < end
        };
        order[first..].iter().take_while(brings).map(|&index| self.reads[index as usize].took).max().unwrap_or(0)
    }
}

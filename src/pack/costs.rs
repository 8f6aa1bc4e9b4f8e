//! What a pack takes, told before anything is read or written.

use super::Pack;
use super::far::requests_of;
use crate::dataset::{Dataset, FileId, SampleId, Span};
use std::ops::Range;

/// Gaps up to this many bytes are read along, and a request is for at most so many.
const GAP_BYTES: u64 = 1 << 20;
const REQUEST_BYTES: u64 = 8 << 20;
/// Objects of a page of a listing.
const PAGE_OBJECTS: u64 = 1000;
/// Shards that are looked for one by one, and requests for each: more are listed together.
const LOOKED_FOR: u64 = 16;
const LISTS_OF_SHARD: u64 = 3;
/// Requests that look at the head of a shard without one.
const GETS_OF_HEAD: u64 = 3;
/// Requests that open a shard by its index: its head, its pieces, and those of the shard that prove it.
const GETS_OF_INDEX: u64 = 18;

/// What a pack takes, by the index of the source and the plan. Requests are those to stores; without failures they are
/// about right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackCosts {
    /// Files or objects of the source that this part reads.
    pub files: u64,
    /// Bytes of them that it reads.
    pub bytes_read: u64,
    /// Shards that it makes, if none is there.
    pub shards: u64,
    /// Bytes of them, but for headers and padding.
    pub bytes_written: u64,
    /// Requests for bytes.
    pub gets: u64,
    /// Requests for pages of listings, with those of the source.
    pub lists: u64,
    /// Requests that write.
    pub puts: u64,
}

impl Pack {
    /// What it takes to make all shards of this part. Nothing is read or written.
    pub fn costs(&self) -> PackCosts {
        let mut costs = PackCosts::default();
        let mut reads = Reads { dataset: &*self.dataset, last: None, spans: Vec::new() };
        for shard in self.own_shards() {
            // Fits: an index into the plan.
            let bytes = reads.shard(self.shards()[shard as usize].clone(), &mut costs);
            costs.shards += 1;
            costs.bytes_written += bytes;
            if self.far.is_some() {
                costs.puts += requests_of(bytes) + u64::from(self.dense.is_none());
                costs.gets += if self.dense.is_some() { GETS_OF_HEAD } else { GETS_OF_INDEX };
            }
        }
        let files = self.dataset.files();
        let objects = (0..files.roots().len()).filter(|&root| files.store_of(root).is_some());
        let objects: u64 = objects.map(|root| files.files_of(root).len() as u64).sum();
        costs.lists = objects.div_ceil(PAGE_OBJECTS);
        if self.far.is_some() {
            // The manifest, and what is there before and after.
            costs.puts += 1;
            costs.gets += 2;
            costs.lists += 3 * (2 * self.shards().len() as u64).div_ceil(PAGE_OBJECTS);
            costs.lists += LISTS_OF_SHARD * costs.shards.min(if self.dense.is_some() { 2 } else { LOOKED_FOR });
        }
        costs
    }
}

/// Reads of the source, in its order.
struct Reads<'a> {
    dataset: &'a dyn Dataset,
    /// The last read: its file and its bytes.
    last: Option<(FileId, Range<u64>)>,
    spans: Vec<Span>,
}

impl Reads<'_> {
    /// Adds the reads of a shard's samples. The bytes of them.
    fn shard(&mut self, samples: Range<u64>, costs: &mut PackCosts) -> u64 {
        self.last = None;
        let before = costs.bytes_read;
        for id in samples {
            let mut spans = std::mem::take(&mut self.spans);
            spans.clear();
            self.dataset.spans(SampleId(id), &mut spans);
            spans.iter().for_each(|span| self.add(span, costs));
            self.spans = spans;
        }
        costs.bytes_read - before
    }

    fn add(&mut self, span: &Span, costs: &mut PackCosts) {
        let bytes = span.offset..span.offset.saturating_add(span.len);
        costs.bytes_read = costs.bytes_read.saturating_add(span.len);
        let is_far = self.dataset.files().store_of(self.dataset.files().root_of(span.file)).is_some();
        if let Some((file, read)) = &mut self.last
            && *file == span.file
        {
            let is_near = bytes.start >= read.start && bytes.start <= read.end.saturating_add(GAP_BYTES);
            if is_near && bytes.end - read.start <= REQUEST_BYTES {
                read.end = read.end.max(bytes.end);
                return;
            }
        } else {
            costs.files += 1;
        }
        costs.gets += if is_far { span.len.div_ceil(REQUEST_BYTES).max(1) } else { 0 };
        self.last = Some((span.file, bytes));
    }
}

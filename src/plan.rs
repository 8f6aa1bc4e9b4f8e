//! Which reads make a batch: samples become spans, spans become aligned and coalesced extents laid out in blocks, and
//! extents become reads. Pure arithmetic: no I/O, no memory but vectors that are reused.

mod units;

use crate::collate::{Collation, Gather};
use crate::config::{Config, Route};
use crate::dataset::{Dataset, FileId, SampleId, Span};
use crate::sampler::{Order, Position, Selection, Walk};
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use units::Kept;

pub use units::{Load, UnitLimits, UnitsWanted, units_wanted};

/// Blocks are at most this long, unless one extent alone is longer: each block is one copy to a GPU, and 32 MiB is
/// where copies reach the bus's rate.
pub const BLOCK_BYTES: u64 = 32 << 20;

/// Where extents begin in memory: at whole pages. Reads past the page cache go straight there, and a device that is
/// given memory that begins within a page may copy once more (a virtual machine's host does: shuffled records of
/// 150 528 bytes come at 2.50 GB/s from whole pages and at 2.07 from 512-byte boundaries).
const PAGE_BYTES: u64 = 4096;

/// Shorter extents lie close together all the same: rounding up would cost them more memory than they hold.
const PAGE_ALIGNED_FROM: u64 = 16 << 10;

/// How bytes are laid out: what the planner needs to know of the route and of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// File offsets, lengths and memory of reads are multiples of this power of two; 1 where reads are buffered.
    pub alignment: u64,
    /// Longest read, a multiple of `alignment`.
    pub read_bytes: u64,
    /// Extents of one file that lie no further apart than this are read as one, across the whole batch. At 0 only a
    /// sample that follows its predecessor in the file is joined to it, and memory keeps the batch's order.
    pub coalesce_gap: u64,
}

impl Layout {
    /// What a route and a configuration ask for.
    pub fn new(route: &Route, config: &Config) -> Layout {
        Layout {
            alignment: u64::from(route.alignment),
            read_bytes: route.read_bytes as u64,
            coalesce_gap: config.coalesce_gap,
        }
    }
}

/// One read of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRead {
    /// The file.
    pub file: FileId,
    /// First byte in the file, aligned.
    pub offset: u64,
    /// Bytes to ask for, aligned; may reach over the end of the file.
    pub len: u64,
    /// Bytes that must arrive, from `offset` on: `len` less what alignment added at the end.
    pub need: u64,
    /// Which block it goes to. The reads of a block are in ascending order.
    pub block: u32,
    /// First byte in the block.
    pub at: u64,
}

/// Where one span's bytes lie once they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The span.
    pub span: Span,
    /// Block of the plan.
    pub block: u32,
    /// First byte in the block.
    pub at: u64,
}

/// Everything that is to be done for one batch, or for one unit that samples of batches behind it are cut from.
#[derive(Clone, Debug, Default)]
pub struct BatchPlan {
    /// The unit that is to be read and decoded; then there are no samples, and the slices are what the unit is stored
    /// in.
    pub load: Option<Load>,
    /// Loads that neither this batch nor a later one uses, by number.
    pub evicted: Vec<u64>,
    /// The samples, and where the batch stands in the order. Where a sample's value is the dataset's
    /// [`plain_field`](crate::dataset::Index::plain_field), only the piece that is wanted is read; else the sample is
    /// read whole.
    pub batch: Selection,
    /// Where each sample's slices end; sample i has `slices[ends[i-1]..ends[i]]`.
    pub ends: Vec<u32>,
    /// One for each span, in the order of the samples.
    pub slices: Vec<Slice>,
    /// Loads that the samples are cut from, by number, each once.
    pub uses: Vec<u64>,
    /// Where each sample's units end in `units`; empty where no sample is cut from any.
    pub unit_ends: Vec<u32>,
    /// Indices into `uses`, in the order of the samples.
    pub units: Vec<u32>,
    /// Why the batch cannot be read, in whose place this stands.
    pub refused: Option<Error>,
    /// In the order of memory.
    pub reads: Vec<PlannedRead>,
    /// The order in which they should be issued: indices into `reads`.
    pub issue_order: Vec<u32>,
    /// Length of each block in bytes.
    pub blocks: Vec<u64>,
    /// The block that values are to be gathered into, the last one; nothing is read into it.
    pub gather: Option<u32>,
}

impl BatchPlan {
    /// The slices of sample `index` of the batch.
    pub fn slices_of(&self, index: usize) -> &[Slice] {
        &self.slices[self.slice_range(index)]
    }

    /// Where the slices of sample `index` lie in `slices`.
    pub fn slice_range(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        start..self.ends[index] as usize
    }

    /// The units that sample `index` is cut from, as indices into `uses`.
    pub fn units_of(&self, index: usize) -> &[u32] {
        let end = |index: usize| self.unit_ends.get(index).map_or(0, |&end| end as usize);
        let start = index.checked_sub(1).map_or(0, end);
        &self.units[start..end(index)]
    }

    /// Bytes of memory that the batch takes until it is consumed.
    pub fn block_bytes(&self) -> u64 {
        self.blocks.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes))
    }

    fn clear(&mut self) {
        self.load = None;
        self.evicted.clear();
        self.uses.clear();
        self.unit_ends.clear();
        self.units.clear();
        self.refused = None;
        self.batch.clear();
        self.ends.clear();
        self.slices.clear();
        self.reads.clear();
        self.issue_order.clear();
        self.blocks.clear();
        self.gather = None;
    }
}

/// An aligned range of one file that is read as a whole.
#[derive(Clone, Copy, Debug)]
struct Extent {
    file: FileId,
    /// Aligned first byte.
    start: u64,
    /// Aligned end.
    end: u64,
    /// End of the last byte that is wanted.
    need_end: u64,
    /// Block that it is read into, once it is laid out.
    block: u32,
    /// First byte in the block.
    at: u64,
}

/// Plans batch after batch of an order.
pub struct Planner {
    order: Order,
    walk: Walk,
    layout: Layout,
    collation: Arc<Collation>,
    /// Where samples are cut from units.
    kept: Option<Kept>,
    spans: Vec<Span>,
    extents: Vec<Extent>,
    /// Extent of each slice.
    extent_of: Vec<u32>,
    by_offset: Vec<u32>,
}

impl Order {
    /// Plans the batches from the start to the end.
    pub(crate) fn planner(&self, layout: Layout) -> Planner {
        Planner {
            order: self.clone(),
            walk: self.walk(),
            layout,
            collation: Arc::default(),
            kept: None,
            spans: Vec::new(),
            extents: Vec::new(),
            extent_of: Vec::new(),
            by_offset: Vec::new(),
        }
    }

    /// Plans the reads of `samples` samples, up to the end of a batch: for benches/plan.rs, which measures planning
    /// alone. A loader plans on another thread, among other work.
    #[doc(hidden)]
    pub fn plan_ahead(&self, config: &Config, alignment: u64, read_bytes: u64, samples: u64) -> Result<Planned> {
        let collation = Arc::new(Collation::new(config, &**self.dataset())?);
        let layout = Layout { alignment, read_bytes, coalesce_gap: config.coalesce_gap };
        let mut planner = self.planner(layout).with_collation(collation);
        let (mut plan, mut planned) = (BatchPlan::default(), Planned::default());
        while planned.samples < samples && planner.next(&mut plan) {
            planned.samples += plan.batch.ids.len() as u64;
            planned.reads += plan.reads.len() as u64;
            let last = plan.reads.last().map_or(0, |read| read.offset ^ read.need);
            planned.hash = planned.hash * 31 % 1_000_000_007 + plan.block_bytes() % 1_000_000_007 + last;
        }
        Ok(planned)
    }
}

/// What [`Order::plan_ahead`] planned.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Planned {
    pub samples: u64,
    pub reads: u64,
    pub hash: u64,
}

impl Planner {
    /// Sets memory aside for columns of these forms; without it every value stays where it is read.
    #[must_use]
    pub fn with_collation(self, collation: Arc<Collation>) -> Planner {
        Planner { collation, ..self }
    }

    /// Plans the reading of units as well, before the batches whose samples are cut from them; without it nothing is
    /// planned for such samples.
    #[must_use]
    pub fn with_units(self, limits: Option<UnitLimits>) -> Planner {
        Planner { kept: limits.map(Kept::new), ..self }
    }

    /// The forms of the columns.
    pub fn collation(&self) -> &Arc<Collation> {
        &self.collation
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        self.order.dataset()
    }

    /// How bytes are laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Lays out the batches from now on for another route.
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// The epoch that the next batch belongs to, or `None` at the end.
    pub fn epoch(&mut self) -> Option<u64> {
        if let Some(held) = self.kept.as_ref().and_then(|kept| kept.held.as_ref()) {
            return Some(held.batch.cursor.epoch);
        }
        self.walk.epoch()
    }

    /// Plans the next batch into `plan`, or a unit that is to be read before it, whatever that held; false at the end.
    pub fn next(&mut self, plan: &mut BatchPlan) -> bool {
        plan.clear();
        if !self.take_held(plan) {
            if !self.walk.next(&mut plan.batch) {
                return false;
            }
            self.find_units(plan);
        }
        if self.plan_load(plan) {
            return true;
        }
        if plan.refused.is_some() {
            // A batch without a span: nothing of it is read.
            plan.ends.resize(plan.batch.ids.len(), 0);
            return true;
        }
        self.find_spans(plan);
        if self.layout.coalesce_gap == 0 {
            self.extents_in_order();
        } else {
            self.extents_by_offset();
        }
        self.lay_out(plan);
        true
    }

    /// Plans the reading of one sample by itself, outside the order, into `plan`, whatever that held. Its values stay
    /// where they are read.
    pub fn plan_one(&mut self, id: SampleId, plan: &mut BatchPlan) {
        plan.clear();
        plan.batch.positions.push(Position { position: 0, padding: false });
        plan.batch.ids.push(id);
        self.spans.clear();
        self.order.dataset().spans(id, &mut self.spans);
        plan.ends.push(self.spans.len() as u32);
        self.lay_out_by_itself(plan);
    }

    /// The batch whose units were to be read first.
    fn take_held(&mut self, plan: &mut BatchPlan) -> bool {
        let held = self.kept.as_mut().and_then(|kept| kept.held.take());
        let is_held = held.is_some();
        held.into_iter().for_each(|held| *plan = held);
        is_held
    }

    /// Finds the units that the samples are cut from.
    fn find_units(&mut self, plan: &mut BatchPlan) {
        if let (Some(kept), Some(units)) = (&mut self.kept, self.order.dataset().units()) {
            kept.find(&**self.order.dataset(), units, plan);
        }
    }

    /// Plans the next unit that is to be read before the batch `plan`, which is held back; false if there is none.
    fn plan_load(&mut self, plan: &mut BatchPlan) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        let Some(load) = kept.queue.pop_front() else { return false };
        let held = kept.held.insert(std::mem::take(plan));
        plan.load = Some(load);
        (plan.batch.cursor, plan.batch.next) = (held.batch.cursor, held.batch.cursor);
        // What makes room for a unit is told with the first that needs it.
        std::mem::swap(&mut plan.evicted, &mut held.evicted);
        self.spans.clear();
        if let Some(units) = self.order.dataset().units() {
            units.stored(load.unit, &mut self.spans);
        }
        self.lay_out_by_itself(plan);
        true
    }

    /// Lays out the spans in the order in which they are, whose bytes stay where they are read.
    fn lay_out_by_itself(&mut self, plan: &mut BatchPlan) {
        self.extents_in_order();
        let collation = std::mem::take(&mut self.collation);
        self.lay_out(plan);
        self.collation = collation;
    }

    fn find_spans(&mut self, plan: &mut BatchPlan) {
        self.spans.clear();
        let (dataset, batch) = (self.order.dataset(), &plan.batch);
        // Bytes of an element of the value that can be read in parts.
        let field = self.order.recipe().map(|recipe| recipe.field());
        let plain = field.filter(|&field| dataset.index().plain_field == Some(field));
        let element_bytes = plain.map(|field| dataset.schema().fields[field].dtype.size());
        for (index, &id) in batch.ids.iter().enumerate() {
            let first = self.spans.len();
            dataset.spans(id, &mut self.spans);
            if let (Some(bytes), Some(piece)) = (element_bytes, batch.pieces.get(index)) {
                narrow(&mut self.spans[first..], piece.start.saturating_mul(bytes), piece.len.saturating_mul(bytes));
            }
            plan.ends.push(self.spans.len() as u32);
        }
    }

    fn aligned(&self, span: &Span) -> Extent {
        let mask = self.layout.alignment - 1;
        let start = span.offset & !mask;
        // An empty span wants no byte, wherever it lies.
        let need_end = if span.len == 0 { start } else { span.offset + span.len };
        Extent { file: span.file, start, end: (need_end + mask) & !mask, need_end, block: 0, at: 0 }
    }

    /// Extents in the order of the batch; a span that begins in or right behind its predecessor's extent is joined to
    /// it.
    fn extents_in_order(&mut self) {
        self.extents.clear();
        self.extent_of.clear();
        let mask = self.layout.alignment - 1;
        for span in &self.spans {
            let extent = self.aligned(span);
            match self.extents.last_mut() {
                // Behind what the predecessor wants, so that memory ascends with the batch and can be compacted in
                // place.
                Some(last)
                    if last.file == extent.file
                        && (last.need_end..=last.end + mask).contains(&span.offset)
                        && span.len > 0 =>
                {
                    last.end = last.end.max(extent.end);
                    last.need_end = last.need_end.max(extent.need_end);
                }
                _ => self.extents.push(extent),
            }
            self.extent_of.push(self.extents.len() as u32 - 1);
        }
    }

    /// Extents in the order of the disk; spans no further apart than the gap are joined.
    fn extents_by_offset(&mut self) {
        let spans = &self.spans;
        self.by_offset.clear();
        self.by_offset.extend(0..spans.len() as u32);
        self.by_offset.sort_unstable_by_key(|&index| (spans[index as usize].file, spans[index as usize].offset));
        self.extents.clear();
        self.extent_of.clear();
        self.extent_of.resize(self.spans.len(), 0);
        for position in 0..self.by_offset.len() {
            let index = self.by_offset[position];
            let extent = self.aligned(&self.spans[index as usize]);
            match self.extents.last_mut() {
                Some(last) if last.file == extent.file && extent.start <= last.end + self.layout.coalesce_gap => {
                    last.end = last.end.max(extent.end);
                    last.need_end = last.need_end.max(extent.need_end);
                }
                _ => self.extents.push(extent),
            }
            self.extent_of[index as usize] = self.extents.len() as u32 - 1;
        }
    }

    /// Gives every extent its place in a block, cuts it into reads, and tells every span where its bytes will lie.
    fn lay_out(&mut self, plan: &mut BatchPlan) {
        let gather = self.collation.gather(self.layout.coalesce_gap);
        // What is moved together in place needs to be in one block.
        let limit = if gather == Gather::InPlace { u64::MAX } else { BLOCK_BYTES };
        let is_tensor = gather == Gather::InPlace && self.collation.lies_end_to_end(self.layout.alignment);
        let to_pages = self.layout.alignment > 1 && !is_tensor;
        let mut at: u64 = 0;
        for extent in &mut self.extents {
            let bytes = extent.end - extent.start;
            if bytes == 0 {
                continue;
            }
            if to_pages && bytes >= PAGE_ALIGNED_FROM {
                at = at.next_multiple_of(PAGE_BYTES);
            }
            if plan.blocks.is_empty() || (at > 0 && at + bytes > limit) {
                plan.blocks.push(0);
                at = 0;
            }
            extent.block = plan.blocks.len() as u32 - 1;
            extent.at = at;
            let first = plan.reads.len();
            cut(extent, self.layout.read_bytes, &mut plan.reads);
            interleave(first as u32..plan.reads.len() as u32, &mut plan.issue_order);
            at += bytes;
            plan.blocks[extent.block as usize] = at;
        }
        for (span, &index) in self.spans.iter().zip(&self.extent_of) {
            let extent = &self.extents[index as usize];
            let at = extent.at + (span.offset - extent.start);
            plan.slices.push(Slice { span: *span, block: extent.block, at });
        }
        if gather == Gather::Target {
            let (dataset, ids, rows) = (&**self.order.dataset(), &plan.batch.ids, plan.batch.row_ends.len() as u64);
            let bytes = self.collation.target_bytes(dataset, ids, &self.spans, &plan.ends, rows);
            if bytes > 0 {
                plan.gather = Some(plan.blocks.len() as u32);
                plan.blocks.push(bytes);
            }
        }
    }
}

/// Cuts the spans of a value, which lie end to end in it, to the part of it that begins at byte `start` and has `len`
/// bytes. Spans of which nothing is wanted stay, empty: a dataset's parser counts on their number.
fn narrow(spans: &mut [Span], start: u64, len: u64) {
    let (mut skip, mut left) = (start, len);
    for span in spans {
        let skipped = skip.min(span.len);
        skip -= skipped;
        span.offset += skipped;
        span.len = left.min(span.len - skipped);
        left -= span.len;
    }
}

/// Reads between two neighbours of one extent in the order of issue.
const LANES: u32 = 4;

/// Reads of an extent that are interleaved among themselves.
const INTERLEAVED: u32 = 16;

/// The order in which the reads of one extent are issued: 0, 4, 8, 12, 1, 5, ... Neighbours that are submitted one
/// behind the other are merged by the block layer to requests of up to `max_sectors_kb` (4 MiB), which a device works
/// on one after the other where it would have worked on the single reads at once.
fn interleave(reads: Range<u32>, out: &mut Vec<u32>) {
    for group in reads.clone().step_by(INTERLEAVED as usize) {
        let end = reads.end.min(group + INTERLEAVED);
        for lane in group..end.min(group + LANES) {
            out.extend((lane..end).step_by(LANES as usize));
        }
    }
}

/// Cuts an extent into reads of at most `read_bytes`.
fn cut(extent: &Extent, read_bytes: u64, out: &mut Vec<PlannedRead>) {
    let mut offset = extent.start;
    while offset < extent.end {
        let len = read_bytes.min(extent.end - offset);
        let need = extent.need_end.saturating_sub(offset).min(len);
        let at = extent.at + (offset - extent.start);
        out.push(PlannedRead { file: extent.file, offset, len, need, block: extent.block, at });
        offset += len;
    }
}

#[cfg(test)]
mod tests;

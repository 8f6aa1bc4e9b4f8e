//! Plans the reads of a batch: samples become spans, spans become aligned and coalesced extents laid out in blocks, and
//! extents become reads. Pure arithmetic: no I/O, and no memory except reused vectors.

mod alone;
mod extents;
mod joining;
mod prepared;
mod reads;
mod rows;
mod stretches;
mod units;

use crate::collate::{Collation, Gather};
use crate::config::{Config, Route};
use crate::dataset::{Dataset, FileId, FileTable, Span};
use crate::guard::{self, Bounds};
use crate::prepared::Prepared;
use crate::sampler::{Order, Selection, Walk};
use crate::{Error, Result};
use reads::{cut, interleave, narrow};
use rows::{Needed, Wanted};
use std::ops::Range;
use std::sync::Arc;
use stretches::Stretches;
use units::CachedUnits;

pub use joining::{FAR_GAP_MAX, GAP_MAX, Joined, Joining};
pub use rows::Rows;
pub use stretches::{Grid, Keep, SMALL_SPAN_BYTES, Share, Stretch};
pub use units::{Load, UnitLimits, UnitsWanted, units_wanted};

/// Maximum block length, unless a single extent is longer. Each block is one copy to a GPU, and copies reach the bus's
/// rate at 32 MiB.
pub const BLOCK_BYTES: u64 = 32 << 20;

/// Alignment of extents in memory: whole pages. Reads past the page cache go straight there, and a device may need an
/// extra copy if its memory starts inside a page. A virtual machine's host does: shuffled records of 150 528 bytes
/// arrive at 2.50 GB/s with whole pages and at 2.07 with 512-byte boundaries.
const PAGE_BYTES: u64 = 4096;

/// Extents shorter than this are packed closely anyway: rounding up would cost more memory than they hold.
const PAGE_ALIGNED_FROM: u64 = 16 << 10;

/// Bytes requested of an empty file if reads need no alignment: values after it stay where elements may lie.
const GLANCE_BYTES: u64 = 64;

/// Longest gap to read from the page cache: copying it takes about as long as a read of its own, 1.3 us. Longer ones
/// made batches of 4096 records of 1 KiB cost two to three times as much.
const GAP_COPIED_MAX: u64 = 8 << 10;

/// How to lay out bytes: the planner's view of the route and the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Alignment of the file offset, length and memory of reads, a power of two; 1 if reads are buffered.
    pub alignment: u64,
    /// Longest read, a multiple of `alignment`.
    pub read_bytes: u64,
    /// Extents of one file with at most this gap between them are read as one, across the whole batch. At 0, a sample
    /// is joined only to a predecessor that it directly follows in the file, and memory keeps the batch's order.
    pub coalesce_gap: u64,
    /// No read crosses a multiple of it, where what is cached begins and ends; 0: any may.
    pub border: u64,
}

impl Layout {
    /// The layout for a route and a configuration.
    pub fn new(route: &Route, config: &Config) -> Layout {
        let longest_gap = if joining::copies(route) { GAP_COPIED_MAX } else { u64::MAX };
        Layout {
            alignment: u64::from(route.alignment),
            read_bytes: route.read_bytes as u64,
            coalesce_gap: config.coalesce_gap.unwrap_or(0).min(longest_gap),
            border: route.border,
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
    /// Bytes to request, aligned. May extend past the end of the file.
    pub len: u64,
    /// Bytes that must arrive, from `offset` on: `len` minus what alignment added at the end.
    pub need: u64,
    /// The destination block. The reads of a block are in ascending order.
    pub block: u32,
    /// First byte in the block.
    pub at: u64,
}

/// Where a span's bytes are once they have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The span.
    pub span: Span,
    /// Block of the plan. With the bit [`KEPT`], the bytes are in kept stretches, and are copied to that place if the
    /// values of the batch must be adjacent there.
    pub block: u32,
    /// First byte in the block.
    pub at: u64,
}

/// Marks a slice whose bytes are in kept stretches and are not read.
pub const KEPT: u32 = 1 << 30;

impl Slice {
    /// Whether the bytes are in kept stretches.
    pub fn is_kept(&self) -> bool {
        self.block & KEPT != 0
    }
}

/// All the work for one batch, or for one unit that later samples are cut from.
#[derive(Clone, Debug, Default)]
pub struct BatchPlan {
    /// The unit to read and decode. If set, there are no samples, and the slices are the unit's stored bytes.
    pub load: Option<Load>,
    /// The stretch of a file to read and keep. If set, there are no samples, and the only slice is the stretch.
    pub stretch: Option<Stretch>,
    /// Numbers of the stretches that neither this batch nor a later one needs, unless they are read again.
    pub given_up: Vec<u32>,
    /// How its spans were joined.
    pub joined: Joined,
    /// Samples that are already prepared, by ascending index: they need no reads.
    pub prepared: Vec<u32>,
    /// Number of slices whose bytes are in kept stretches.
    pub kept: u64,
    /// Bytes of slices that are not read because they are not needed.
    pub left_out: u64,
    /// Samples, by index, and their fields that are read in part.
    pub parts: Vec<(u32, usize)>,
    /// Whether the batch is one column, each of whose values is a sample's only span.
    pub is_plain: bool,
    /// Numbers of the loads that neither this batch nor a later one uses.
    pub evicted: Vec<u64>,
    /// The samples, and the batch's place in the order. If a sample's value is the dataset's
    /// [`plain_field`](crate::dataset::Index::plain_field), only the wanted piece is read; otherwise the sample is read
    /// whole.
    pub batch: Selection,
    /// End of each sample's slices: sample i has `slices[ends[i-1]..ends[i]]`.
    pub ends: Vec<u32>,
    /// One per span, in sample order.
    pub slices: Vec<Slice>,
    /// Numbers of the loads that the samples are cut from, each once.
    pub uses: Vec<u64>,
    /// End of each sample's units in `units`. Empty if no sample is cut from a unit.
    pub unit_ends: Vec<u32>,
    /// Indices into `uses`, in sample order.
    pub units: Vec<u32>,
    /// Why the batch cannot be read. This error takes its place.
    pub refused: Option<Error>,
    /// Samples that cannot be read because the dataset reports invalid values for them, by ascending index, and the
    /// errors. They have no slices. A unit has at most one, which means the whole unit.
    pub failed: Vec<(u32, Error)>,
    /// The reads, in memory order.
    pub reads: Vec<PlannedRead>,
    /// The order to issue them in: indices into `reads`.
    pub issue_order: Vec<u32>,
    /// Length of each block in bytes.
    pub blocks: Vec<u64>,
    /// The block to gather values into, the last one. Nothing is read into it.
    pub gather: Option<u32>,
}

impl BatchPlan {
    /// The slices of sample `index` of the batch.
    pub fn slices_of(&self, index: usize) -> &[Slice] {
        &self.slices[self.slice_range(index)]
    }

    /// Range of the slices of sample `index` in `slices`.
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

    /// Bytes of memory that the batch holds until it is consumed.
    pub fn block_bytes(&self) -> u64 {
        self.blocks.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes))
    }

    fn clear(&mut self) {
        self.load = None;
        self.stretch = None;
        self.joined = Joined::default();
        self.given_up.clear();
        self.evicted.clear();
        self.uses.clear();
        self.unit_ends.clear();
        self.units.clear();
        self.refused = None;
        self.failed.clear();
        self.prepared.clear();
        self.batch.clear();
        self.ends.clear();
        self.clear_reads();
    }

    fn clear_reads(&mut self) {
        (self.kept, self.left_out) = (0, 0);
        self.parts.clear();
        self.is_plain = false;
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
    /// End of the last wanted byte.
    need_end: u64,
    /// Destination block, once it is laid out.
    block: u32,
    /// First byte in the block.
    at: u64,
    /// Whether it is not read, because its bytes are in kept stretches.
    kept: bool,
    /// Bytes of the pages that its spans would be read in, one by one.
    pages: u64,
}

/// Plans the batches of an order, one after another.
pub struct Planner {
    order: Order,
    walk: Walk,
    layout: Layout,
    bounds: Bounds,
    joining: Joining,
    collation: Arc<Collation>,
    /// The unit cache, if samples are cut from units.
    kept: Option<CachedUnits>,
    /// The stretches that are read whole, if any.
    stretches: Option<Box<Stretches>>,
    /// The samples that are already prepared.
    prepared: Option<Arc<Prepared>>,
    /// The columns that are read in part.
    rows: Option<Arc<Rows>>,
    spans: Vec<Span>,
    /// The parts to read of spans that are read in part, by span.
    needed: Vec<Needed>,
    /// The parts to read of extents with such spans, by extent.
    wanted: Vec<Wanted>,
    /// Whether each span's bytes are in memory. Empty if nothing is.
    in_memory: Vec<bool>,
    extents: Vec<Extent>,
    /// The extent of each slice.
    extent_of: Vec<u32>,
    by_offset: Vec<u32>,
}

impl Order {
    /// Creates a planner of the batches from start to end.
    pub(crate) fn planner(&self, layout: Layout) -> Planner {
        Planner {
            order: self.clone(),
            walk: self.walk(),
            layout,
            bounds: Bounds::NONE,
            joining: Joining::default(),
            collation: Arc::default(),
            kept: None,
            stretches: None,
            prepared: None,
            rows: None,
            spans: Vec::new(),
            needed: Vec::new(),
            wanted: Vec::new(),
            in_memory: Vec::new(),
            extents: Vec::new(),
            extent_of: Vec::new(),
            by_offset: Vec::new(),
        }
    }

    /// Plans the reads of `samples` samples, rounded up to whole batches. For benches/plan.rs, which measures planning
    /// alone; a loader plans on another thread, among other work.
    #[doc(hidden)]
    pub fn plan_ahead(&self, config: &Config, alignment: u64, read_bytes: u64, samples: u64) -> Result<Planned> {
        let collation = Arc::new(Collation::new(config, &**self.dataset())?);
        let layout = Layout { alignment, read_bytes, coalesce_gap: config.coalesce_gap.unwrap_or(0), border: 0 };
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

/// Result of [`Order::plan_ahead`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Planned {
    pub samples: u64,
    pub reads: u64,
    pub hash: u64,
}

impl Planner {
    /// Reserves memory for columns of these forms. Without it, every value stays where it is read.
    #[must_use]
    pub fn with_collation(self, collation: Arc<Collation>) -> Planner {
        Planner { collation, ..self }
    }

    /// Checks the dataset's values for its samples against `bounds`, by which memory was divided.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Planner {
        Planner { bounds, ..self }
    }

    /// Also plans the reading of units, before the batches whose samples are cut from them. Without it, nothing is
    /// planned for such samples.
    #[must_use]
    pub fn with_units(self, limits: Option<UnitLimits>) -> Planner {
        Planner { kept: limits.map(CachedUnits::new), ..self }
    }

    /// Also plans the reading of whole stretches of files, before the batches that need them. Not for samples that are
    /// cut from units.
    #[must_use]
    pub fn with_stretches(self, stretches: Option<(Grid, Keep)>) -> Planner {
        let dataset = &**self.order.dataset();
        Planner { stretches: stretches.map(|(grid, keep)| Box::new(Stretches::new(grid, keep, dataset))), ..self }
    }

    /// The forms of the columns.
    pub fn collation(&self) -> &Arc<Collation> {
        &self.collation
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        self.order.dataset()
    }

    /// The current layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Lays out future batches for another route.
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// Epoch of the next batch, or `None` at the end.
    pub fn epoch(&mut self) -> Option<u64> {
        if let Some(held) = self.kept.as_ref().and_then(|kept| kept.held.as_ref()) {
            return Some(held.batch.cursor.epoch);
        }
        if let Some(held) = self.stretches.as_ref().and_then(|stretches| stretches.held.as_ref()) {
            return Some(held.batch.cursor.epoch);
        }
        self.walk.epoch()
    }

    /// Plans the next batch, or a unit or stretch to read before it, into `plan`, and discards its old content. Returns
    /// false at the end.
    pub fn next(&mut self, plan: &mut BatchPlan) -> bool {
        plan.clear();
        if self.plan_stretch(plan) {
            return true;
        }
        let is_new = !self.take_held(plan);
        if is_new {
            if !self.walk.next(&mut plan.batch) {
                return false;
            }
            self.find_prepared(plan);
            self.find_units(plan);
        }
        if self.plan_load(plan) {
            return true;
        }
        if plan.refused.is_some() {
            // A batch without spans: nothing is read for it.
            plan.ends.resize(plan.batch.ids.len(), 0);
            return true;
        }
        self.find_spans(plan);
        if is_new && self.hold_for_stretches(plan) {
            return self.plan_stretch(plan);
        }
        self.find_in_memory(plan);
        if self.reads_in_batch_order(plan) {
            self.extents_in_order();
        } else {
            self.extents_by_offset();
        }
        self.lay_out(plan, self.collation.gather(self.layout.coalesce_gap));
        self.tell_joining(plan);
        self.refuse_too_large(plan);
        true
    }

    /// Holds the batch back if it needs stretches that are not in memory.
    fn hold_for_stretches(&mut self, plan: &mut BatchPlan) -> bool {
        let Some(stretches) = &mut self.stretches else { return false };
        stretches.begin(&self.spans, self.order.dataset().files());
        if stretches.queue.is_empty() {
            return false;
        }
        stretches.held = Some(std::mem::take(plan));
        true
    }

    /// Plans the next stretch to read before the batch that is held back. Returns false if there is none.
    fn plan_stretch(&mut self, plan: &mut BatchPlan) -> bool {
        let Some(stretches) = &mut self.stretches else { return false };
        let Some(number) = stretches.queue.pop_front() else { return false };
        // They make room, so they go with the first stretch that needs it.
        std::mem::swap(&mut plan.given_up, &mut stretches.evicted);
        let stretch = stretches.grid.stretch(number, self.order.dataset().files());
        let at = stretches.held.as_ref().map_or_else(Default::default, |held| held.batch.cursor);
        (plan.batch.cursor, plan.batch.next) = (at, at);
        self.lay_out_stretch(stretch, plan);
        true
    }

    fn lay_out_stretch(&mut self, stretch: Stretch, plan: &mut BatchPlan) {
        plan.stretch = Some(stretch);
        self.spans.clear();
        self.spans.push(stretch.span);
        self.lay_out_by_itself(plan);
        plan.joined = self.joined_in_stretch();
    }

    /// Plans the reading of a stretch anew, in the shortest reads, into `plan`, so that an unreadable place fails as
    /// few samples as possible.
    pub fn plan_again(&mut self, stretch: Stretch, plan: &mut BatchPlan) {
        let at = (plan.batch.cursor, plan.batch.next);
        plan.clear();
        (plan.batch.cursor, plan.batch.next) = at;
        let layout = self.layout;
        self.layout.read_bytes = PAGE_BYTES.max(layout.alignment);
        self.lay_out_stretch(stretch, plan);
        self.layout = layout;
    }

    /// Finds the spans whose bytes are in memory.
    fn find_in_memory(&mut self, plan: &mut BatchPlan) {
        self.in_memory.clear();
        let dataset = self.order.dataset();
        let has_values = plan.batch.pieces.is_empty() && plan.batch.row_ends.is_empty();
        let value_bytes = self.collation.plain_value_bytes(&**dataset).filter(|_| has_values);
        plan.is_plain = self.layout.coalesce_gap == 0
            && plan.failed.is_empty()
            && self.spans.len() == plan.batch.ids.len()
            && value_bytes.is_some_and(|bytes| self.spans.iter().all(|span| span.len == bytes));
        if let Some(stretches) = self.stretches.as_mut().filter(|stretches| stretches.may_have()) {
            self.in_memory.extend(self.spans.iter().map(|span| stretches.has(span)));
            plan.kept = self.in_memory.iter().map(|&is_there| u64::from(is_there)).sum();
            stretches.leave(plan.kept);
            plan.given_up.append(&mut stretches.evicted);
        }
    }

    /// Takes the batch that was held back until its units or stretches were planned.
    fn take_held(&mut self, plan: &mut BatchPlan) -> bool {
        let held = self.kept.as_mut().and_then(|kept| kept.held.take());
        let held = held.or_else(|| self.stretches.as_mut().and_then(|stretches| stretches.held.take()));
        let is_held = held.is_some();
        held.into_iter().for_each(|held| *plan = held);
        is_held
    }

    /// Finds the units that the samples are cut from.
    fn find_units(&mut self, plan: &mut BatchPlan) {
        if let (Some(kept), Some(units)) = (&mut self.kept, self.order.dataset().units()) {
            kept.find(&**self.order.dataset(), units, self.bounds, plan);
        }
    }

    /// Plans the next unit to read before the batch `plan`, which is held back. Returns false if there is none.
    fn plan_load(&mut self, plan: &mut BatchPlan) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        let Some(load) = kept.queue.pop_front() else { return false };
        let held = kept.held.insert(std::mem::take(plan));
        plan.load = Some(load);
        (plan.batch.cursor, plan.batch.next) = (held.batch.cursor, held.batch.cursor);
        // Evictions are reported with the first unit that needs the room.
        std::mem::swap(&mut plan.evicted, &mut held.evicted);
        self.spans.clear();
        let dataset = &**self.order.dataset();
        if let Some(units) = dataset.units()
            && let Err(error) = guard::stored(dataset, units, load.unit, self.bounds, &mut self.spans)
        {
            plan.failed.push((0, error));
        }
        self.lay_out_by_itself(plan);
        true
    }

    fn find_spans(&mut self, plan: &mut BatchPlan) {
        self.spans.clear();
        self.needed.clear();
        plan.parts.clear();
        plan.ends.clear();
        let mut fields = Vec::new();
        let (dataset, batch, had_failed) = (self.order.dataset(), &plan.batch, !plan.failed.is_empty());
        // Bytes per element, if the value can be read in parts.
        let field = self.order.recipe().map(|recipe| recipe.field());
        let plain = field.filter(|&field| dataset.index().plain_field == Some(field));
        let element_bytes = plain.map(|field| dataset.schema().fields[field].dtype.size());
        for (index, &id) in batch.ids.iter().enumerate() {
            let first = self.spans.len();
            let failed_before = plan.failed.iter().any(|&(failed, _)| failed as usize == index);
            let is_read = !failed_before && !plan.is_prepared(index);
            let mut found = Ok(());
            if is_read {
                found = guard::spans(&**dataset, id, self.bounds.sample, &mut self.spans);
            }
            if let Some(rows) = self.rows.as_ref().filter(|_| is_read && found.is_ok()) {
                let of = (batch.cursor.epoch, id);
                found = rows.narrow(&**dataset, of, (&mut self.spans[..], first), (&mut self.needed, &mut fields));
                plan.parts.extend(fields.iter().map(|&field| (index as u32, field)));
            }
            if let Err(error) = found {
                self.spans.truncate(first);
                self.needed.retain(|needed| (needed.span as usize) < first);
                plan.failed.push((index as u32, error));
            }
            if let (Some(bytes), Some(piece)) = (element_bytes, batch.pieces.get(index)) {
                narrow(&mut self.spans[first..], piece.start.saturating_mul(bytes), piece.len.saturating_mul(bytes));
            }
            plan.ends.push(self.spans.len() as u32);
        }
        if had_failed {
            plan.failed.sort_unstable_by_key(|&(index, _)| index);
        }
    }

    /// Refuses a batch that needs more memory than there is: it would wait forever.
    fn refuse_too_large(&mut self, plan: &mut BatchPlan) {
        let bytes = plan.block_bytes();
        if bytes <= self.bounds.batch {
            return;
        }
        let samples = plan.batch.ids.len();
        let wanted: u64 = self.spans.iter().map(|span| span.len).sum();
        let what = format!(
            "{samples} samples have {wanted} bytes and take {bytes} of memory, but a batch has only {}: \"largest\" \
             promises fewer",
            self.bounds.batch
        );
        plan.refused = Some(guard::wrong(&**self.order.dataset(), what));
        plan.clear_reads();
        plan.ends.clear();
        plan.ends.resize(samples, 0);
    }

    /// Whether reads are in memory in the order of the batch. Samples of several values are better read in the order of
    /// the disk: each column has its own region of the file, so no value follows the previous one of the batch, and
    /// each would be a read of its own.
    fn reads_in_batch_order(&self, plan: &BatchPlan) -> bool {
        let has_columns = self.spans.len() > plan.batch.ids.len();
        let stays = self.collation.gather(0) == Gather::InPlace;
        self.layout.coalesce_gap == 0 && (stays || (!has_columns && self.joining.gap == 0))
    }

    /// Places every extent in a block, cuts it into reads, and records the location of each span.
    fn lay_out(&mut self, plan: &mut BatchPlan, gather: Gather) {
        // Values that are compacted in place must be in one block.
        let limit = if gather == Gather::InPlace { u64::MAX } else { BLOCK_BYTES };
        let is_tensor = gather == Gather::InPlace && self.collation.lies_end_to_end(self.layout.alignment);
        let to_pages = self.layout.alignment > 1 && !is_tensor;
        let Layout { read_bytes, border, .. } = self.layout;
        self.find_wanted(plan);
        let (mut at, mut wanted): (u64, _) = (0, self.wanted.chunk_by(Wanted::is_beside).peekable());
        for (number, extent) in self.extents.iter_mut().enumerate() {
            let bytes = extent.end - extent.start;
            if bytes == 0 {
                continue;
            }
            if to_pages && bytes >= PAGE_ALIGNED_FROM && !extent.kept {
                at = at.next_multiple_of(PAGE_BYTES);
            } else if !extent.kept {
                // Only after a kept extent is this not yet a multiple.
                at = at.next_multiple_of(self.layout.alignment);
            }
            if plan.blocks.is_empty() || (at > 0 && at + bytes > limit) {
                plan.blocks.push(0);
                at = 0;
            }
            extent.block = plan.blocks.len() as u32 - 1;
            extent.at = at;
            if !extent.kept {
                let first = plan.reads.len();
                match wanted.next_if(|wanted| wanted[0].extent as usize == number) {
                    None => cut(extent, (read_bytes, border), &mut plan.reads),
                    Some(parts) => {
                        let parts = parts.iter().map(|part| part.of(extent));
                        parts.for_each(|part| cut(&part, (read_bytes, border), &mut plan.reads));
                    }
                }
                interleave(first as u32..plan.reads.len() as u32, &mut plan.issue_order);
            }
            at += bytes;
            plan.blocks[extent.block as usize] = at;
        }
        for (span, &index) in self.spans.iter().zip(&self.extent_of) {
            let Some(extent) = self.extents.get(index as usize) else {
                plan.slices.push(Slice { span: *span, block: KEPT, at: 0 });
                continue;
            };
            let at = extent.at + (span.offset - extent.start);
            let block = if extent.kept { extent.block | KEPT } else { extent.block };
            plan.slices.push(Slice { span: *span, block, at });
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

/// Whether the span is all of a file without bytes.
pub fn is_empty_file(files: &FileTable, span: &Span) -> bool {
    span.len == 0 && files.size(span.file) == 0
}

/// The extent of a span that is not read and has no place in the batch's blocks.
const NOWHERE: u32 = u32::MAX;

#[cfg(test)]
mod tests;

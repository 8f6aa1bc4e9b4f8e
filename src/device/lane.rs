//! One GPU: its memory, its copies and its kernels. Memory is taken in batch order, so that no later batch holds what
//! an earlier one lacks, and is returned once its users are done. Nothing here waits.

use super::batch::{After, DeviceBatch, DeviceBytes, DeviceColumn, Held, Home, Lease, Returned, device_error, form_of};
use super::layout::{self, Addressed, Placed, Places, Staged, Work};
use super::straight;
use super::traced::Traced;
use super::transforms::Transforms;
use crate::batch::{Batch, Data, Deferred, Pieces};
use crate::pool::Pool;
use crate::queue::Bell;
use crate::reactor::EarlyBlock;
use crate::resident::{RANGE_ALIGNMENT, Ranges};
use crate::stats::Stats;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use uringload_sys::Part;
use uringload_sys::cuda::{
    Context, Copies, CudaError, DeviceMemory, Event, Kernel, Kernels, Notice, Span, Stream, Timing, Uploaded,
};

/// Upper bounds of the device memory of one batch, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// The data as it was read, with everything that goes with it. Free again once the columns are made.
    pub(super) raw: u64,
    /// Its columns, which the consumer holds.
    pub(super) columns: u64,
    /// The part of `raw` that is assembled on the host: tables, integers, and values that are in no block.
    pub(super) staged: u64,
    /// Whether values are copied straight to their columns; `raw` is then the staged part.
    pub(super) is_straight: bool,
}

impl Need {
    /// The total, with each part aligned.
    pub(super) fn bytes(self) -> u64 {
        let units = |bytes: u64| bytes.checked_next_multiple_of(RANGE_ALIGNMENT as u64).unwrap_or(u64::MAX);
        units(self.raw).saturating_add(units(self.columns))
    }
}

/// GPU memory that blocks are read straight into: they are already where they must be.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// Host address of the arena that represents it.
    pub(super) host: usize,
    /// The GPU memory itself.
    pub(super) span: Span,
}

impl Shadow {
    /// Where a block is on the device, if it is there.
    fn place(&self, block: &Bytes) -> Option<Placed> {
        let host = block.as_ptr().addr();
        let at = host.checked_sub(self.host)?;
        let device = self.span.address() + at as u64;
        (at + block.len() <= self.span.len()).then_some(Placed { host, len: block.len(), device })
    }
}

/// One GPU that batches go to.
pub(super) struct Lane {
    context: Context,
    memory: DeviceMemory,
    /// If set, every block is in it.
    shadow: Option<Shadow>,
    ranges: Ranges,
    copies: Copies,
    /// Runs the kernels, so that the next copies do not wait for them.
    work: Stream,
    kernels: Kernels,
    home: Arc<Home>,
    need: Need,
    /// Number of the batch that gets memory next, and the distance to the one after it: batches go to the lanes in
    /// turn.
    next: u64,
    step: u64,
    /// Batches that have memory, oldest first.
    begun: VecDeque<Begun>,
    /// Blocks of batches that have no memory yet.
    early: Vec<EarlyBlock>,
    /// Memory that is free once its events have completed.
    freeing: Vec<Returned>,
    timed: VecDeque<Timed>,
    spare: Vec<Event>,
    /// What kernels wait for. Records no time, which costs less.
    copied: Event,
    traced: Option<Traced>,
    stats: Arc<Stats>,
}

/// A batch that has device memory.
struct Begun {
    number: u64,
    raw: Range<usize>,
    /// Bytes of `raw` in use.
    used: usize,
    columns: Range<usize>,
    placed: Vec<Placed>,
    held: Held,
}

/// Work whose duration on the device is to be measured.
struct Timed {
    begin: Event,
    end: Event,
    is_copy: bool,
}

impl Lane {
    /// Opens a lane whose batches lie in `memory`, with whatever else they need there, such as the given kernels.
    pub(super) fn open(
        context: &Context,
        (need, memory, wanted): (Need, DeviceMemory, &[Kernel]),
        shadow: Option<Shadow>,
        (first, step): (u64, u64),
        bell: &Arc<Bell>,
        stats: &Arc<Stats>,
    ) -> Result<Lane, CudaError> {
        let kernels = Kernels::new(context);
        kernels.prepare(wanted)?;
        let copies = Copies::new(context)?;
        let traced = Traced::begin(stats, context, copies.stream())?;
        Ok(Lane {
            ranges: Ranges::new(memory.len(), need.bytes() as usize),
            home: Arc::new(Home::new(&memory, bell)),
            memory,
            shadow,
            copies,
            work: Stream::new(context)?,
            kernels,
            context: context.clone(),
            need,
            next: first,
            step,
            begun: VecDeque::new(),
            early: Vec::new(),
            freeing: Vec::new(),
            timed: VecDeque::new(),
            spare: Vec::new(),
            copied: Event::new(context, Timing::Off)?,
            traced,
            stats: Arc::clone(stats),
        })
    }

    /// How the host learns that a copy has finished.
    pub(super) fn notice(&self) -> Notice {
        self.copies.notice()
    }

    /// Whether values are copied straight to their columns, one by one, although the driver could copy several with one
    /// call.
    pub(super) fn lacks_lists(&self) -> bool {
        self.need.is_straight && !self.copies.takes_lists()
    }

    /// Total bytes of device memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Bytes that no batch holds.
    pub(super) fn free_bytes(&self) -> usize {
        self.ranges.free_bytes()
    }

    /// The device's context.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether it can use blocks before their batch is complete.
    pub(super) fn takes_early(&self) -> bool {
        !self.need.is_straight
    }

    /// Bytes of dropped batches that wait for the end of a stream's capture.
    pub(super) fn captured_bytes(&self) -> usize {
        let waits = |returned: &&Returned| returned.after.iter().any(After::is_capture);
        self.freeing.iter().filter(waits).map(|returned| returned.range.len()).sum()
    }

    /// Whether the device is working, or some of its memory is about to become free, so that checking again is
    /// worthwhile.
    pub(super) fn is_busy(&self) -> bool {
        self.copies.under_way() > 0 || !self.freeing.is_empty() || !self.timed.is_empty()
    }

    /// Whether copies are in progress.
    pub(super) fn is_copying(&self) -> bool {
        self.copies.under_way() > 0
    }

    /// Whether memory was returned and not processed yet.
    pub(super) fn has_returned(&self) -> bool {
        !self.home.returned.is_empty()
    }

    /// Processes finished work and starts to copy early blocks. Returns whether anything changed.
    pub(super) fn turn(&mut self) -> Result<bool, CudaError> {
        let context = self.context.clone();
        let _current = context.adopt()?;
        let mut changed = self.copies.finished()? > 0;
        while let Some(returned) = self.home.returned.pop() {
            self.freeing.push(returned);
            changed = true;
        }
        let mut index = 0;
        while index < self.freeing.len() {
            // Completed events are not queried again.
            let after = &mut self.freeing[index].after;
            while let Some(last) = after.last_mut() {
                if !last.is_over(&self.context)? {
                    break;
                }
                after.pop().into_iter().for_each(|over| self.home.take(over));
            }
            if after.is_empty() {
                let Returned { range, held, .. } = self.freeing.swap_remove(index);
                self.ranges.give(range);
                drop(held);
                changed = true;
            } else {
                index += 1;
            }
        }
        self.measure()?;
        self.place_early()?;
        Ok(changed)
    }

    /// Waits for all of the device's work and processes it.
    pub(super) fn settle(&mut self) -> Result<(), CudaError> {
        self.copies.stream().synchronize()?;
        self.work.synchronize()?;
        self.turn().map(drop)
    }

    /// Takes a block of a batch that is not complete yet.
    pub(super) fn take_early(&mut self, block: EarlyBlock) {
        self.early.push(block);
    }

    /// Makes the columns of a batch. Returns `None` if there is no memory for it now, on the device or on the host.
    ///
    /// # Errors
    /// `MemoryLimit` if it needs more than the bound for any batch; `Device`.
    pub(super) fn put(
        &mut self,
        number: u64,
        batch: &mut Batch,
        transforms: &Transforms,
        staging: &mut Pool,
    ) -> Result<Option<DeviceBatch>> {
        let Some(mut deferred) = batch.deferred.take() else { return Err(unprepared()) };
        let context = self.context.clone();
        let entered = context.adopt();
        let _current = entered.map_err(|error| device_error("cannot begin a batch on the device", error))?;
        // A batch may have to come many times before there is memory.
        let blocks = deferred.in_use.take().unwrap_or_else(|| {
            if self.need.is_straight { Vec::new() } else { layout::blocks_in_use(batch, &deferred, transforms) }
        });
        let block_bytes = match &self.shadow {
            Some(_) => 0,
            None => {
                // Early ones are placed too, needed or not.
                let is_other = |block: &&EarlyBlock| block.batch == number && !is_among(&block.known_as, &blocks);
                let early = self.early.iter().filter(is_other).map(|block| &block.bytes);
                blocks.iter().chain(early).map(|block| padded(block.len())).sum::<usize>() as u64
            }
        };
        let failed = |error| device_error("cannot begin a batch on the device", error);
        let columns = if self.need.is_straight {
            straight::column_bytes(batch, &deferred).min(self.need.columns)
        } else {
            self.need.columns
        };
        if !self.begin(number, block_bytes, columns).map_err(failed)? {
            deferred.in_use = Some(blocks);
            batch.deferred = Some(deferred);
            return Ok(None);
        }
        let Some(part) = staging.take_exact(self.need.staged as usize) else {
            // Copies in progress hold it. The heap would work as well but is not pinned: the driver would copy the data
            // before the call returns, and nothing else would progress meanwhile.
            deferred.in_use = Some(blocks);
            batch.deferred = Some(deferred);
            return Ok(None);
        };
        let Some(mut begun) = self.begun.pop_front() else { return Err(unprepared()) };
        debug_assert_eq!(begun.number, number);
        match self.make(&mut begun, batch, (&deferred, &blocks), transforms, (staging, part)) {
            Ok(made) => Ok(Some(made)),
            Err(error) => {
                self.abandon(begun);
                Err(error)
            }
        }
    }

    /// Gives back the memory of a batch that turned out to be an error.
    pub(super) fn skip(&mut self, number: u64) {
        self.early.retain(|block| block.batch != number);
        if self.next == number {
            self.next += self.step;
        }
        if let Some(index) = self.begun.iter().position(|begun| begun.number == number)
            && let Some(begun) = self.begun.remove(index)
        {
            self.abandon(begun);
        }
    }

    /// Takes memory for the batch if it is next in line and there is enough. Returns whether it has memory.
    fn begin(&mut self, number: u64, block_bytes: u64, columns: u64) -> Result<bool, CudaError> {
        if number < self.next {
            return Ok(true);
        }
        if number > self.next {
            return Ok(false);
        }
        // Its blocks may be smaller than the bound for any batch. The staged size is not known yet.
        let raw = block_bytes.saturating_add(self.need.staged) as usize;
        let Some(raw) = self.ranges.take(raw) else { return Ok(false) };
        let Some(columns) = self.ranges.take(columns as usize) else {
            self.ranges.give(raw);
            return Ok(false);
        };
        self.begun.push_back(Begun { number, raw, used: 0, columns, placed: Vec::new(), held: Held::default() });
        self.next += self.step;
        Ok(true)
    }

    /// Starts to copy early blocks, for every batch that can get memory.
    fn place_early(&mut self) -> Result<(), CudaError> {
        let mut index = 0;
        while index < self.early.len() {
            let EarlyBlock { batch, batch_bytes, blocks, .. } = self.early[index];
            let bytes = batch_bytes.saturating_add((blocks * RANGE_ALIGNMENT) as u64);
            if !self.begin(batch, bytes, self.need.columns)? {
                index += 1;
                continue;
            }
            let block = self.early.swap_remove(index);
            if let Some(place) = self.begun.iter().position(|begun| begun.number == block.batch)
                && let Some(mut begun) = self.begun.remove(place)
            {
                let placed = self.place(&mut begun, block.bytes, &block.known_as);
                self.begun.insert(place, begun);
                placed?;
            }
            // Another batch may be next in line now.
            index = 0;
        }
        Ok(())
    }

    /// Starts to copy a block to the batch's memory, unless it is already on the device. Returns whether there is room.
    /// The values in it are slices of `known_as`.
    fn place(&mut self, begun: &mut Begun, block: Bytes, known_as: &Bytes) -> Result<bool, CudaError> {
        if let Some(shadow) = &self.shadow {
            let host = known_as.as_ptr().addr();
            let placed = shadow.place(&block).map(|placed| Placed { host, ..placed });
            begun.placed.extend(placed);
            begun.held.blocks.push(block);
            return Ok(placed.is_some());
        }
        let Some(span) = self.room(begun, block.len()) else { return Ok(false) };
        begun.placed.push(Placed { host: known_as.as_ptr().addr(), len: block.len(), device: span.address() });
        self.copy(block, &span)?;
        Ok(true)
    }

    /// Starts to copy a block of a complete batch, some of whose values may already be on the device.
    fn place_made(
        &mut self,
        begun: &mut Begun,
        block: &Bytes,
        (deferred, transforms): (&Deferred, &Transforms),
    ) -> Result<bool, CudaError> {
        let parts = layout::parts(block, deferred, transforms);
        if parts.residents.is_empty() {
            return self.place(begun, block.clone(), block);
        }
        let Some(span) = self.room(begun, block.len()) else { return Ok(false) };
        begun.placed.push(Placed { host: block.as_ptr().addr(), len: block.len(), device: span.address() });
        for (resident, at) in parts.residents {
            // Before the device reads it, so that it outlives the read even if something fails below.
            begun.held.residents.push(resident.clone());
            let Some(to) = span.slice(at..at + resident.span().len()) else { return Ok(false) };
            self.copies.within(resident.span(), &to)?;
        }
        if !parts.others.is_empty() {
            self.copy_groups(&span, vec![parts.others])?;
        }
        Ok(true)
    }

    /// Starts to copy the batch's early blocks that had found no memory until now.
    fn place_rest(&mut self, begun: &mut Begun) -> Result<bool, CudaError> {
        let mut all = true;
        for block in self.early.extract_if(.., |block| block.batch == begun.number).collect::<Vec<_>>() {
            all &= self.place(begun, block.bytes, &block.known_as)?;
        }
        Ok(all)
    }

    fn room(&self, begun: &mut Begun, len: usize) -> Option<Span> {
        let start = begun.raw.start + begun.used;
        let span = Span::new(&self.memory, start..start + len).filter(|_| start + len <= begun.raw.end)?;
        begun.used += padded(len);
        Some(span)
    }

    fn copy(&mut self, bytes: Bytes, to: &Span) -> Result<Uploaded, CudaError> {
        let (begin, end) = (self.timing()?, self.timing()?);
        begin.record(self.copies.stream())?;
        self.stats.count.bytes_copied.add(bytes.len() as u64);
        self.stats.count.copies.add(1);
        let uploaded = self.copies.start(bytes, to)?;
        end.record(self.copies.stream())?;
        self.timed.push_back(Timed { begin, end, is_copy: true });
        Ok(uploaded)
    }

    /// Does everything for a batch that has memory.
    fn make(
        &mut self,
        begun: &mut Begun,
        batch: &mut Batch,
        (deferred, blocks): (&Deferred, &[Bytes]),
        transforms: &Transforms,
        (staging, part): (&mut Pool, Part),
    ) -> Result<DeviceBatch> {
        let failed = |error| device_error("cannot copy a batch to the device", error);
        let is_placed = |placed: &[Placed], block: &Bytes| {
            let host = block.as_ptr().addr();
            placed.iter().any(|placed| placed.host == host && placed.len == block.len())
        };
        if !self.place_rest(begun).map_err(failed)? {
            staging.give(part);
            return Err(self.too_small("its blocks", begun.raw.len()));
        }
        for block in blocks {
            if !is_placed(&begun.placed, block)
                && !self.place_made(begun, block, (deferred, transforms)).map_err(failed)?
            {
                staging.give(part);
                return Err(self.too_small("its blocks", begun.raw.len()));
            }
        }
        let places = Places::new(std::mem::take(&mut begun.placed));
        let mut staged = Staged::new(part);
        let base = self.memory.address() + (begun.raw.start + begun.used) as u64;
        let mut works = Vec::with_capacity(batch.columns.len());
        for (index, column) in batch.columns.iter().enumerate() {
            let pieces = deferred.columns.get(index).and_then(Option::as_ref);
            works.push(match (&column.data, pieces) {
                (Data::I64(values), _) => layout::integers(values, &mut staged),
                // The results for its values.
                (Data::Dense { bytes, .. }, None) => Work::Whole(bytes.clone()),
                (_, None) => Work::Stay,
                (_, Some(Pieces { whole: Some(bytes), .. })) if transforms.kernel(index).is_none() => {
                    Work::Whole(bytes.clone())
                }
                (_, Some(pieces)) if self.need.is_straight => Work::Straight { len: pieces.len },
                (_, Some(pieces)) => {
                    let addressed = Addressed::new(pieces, &places, &mut staged, base);
                    match transforms.work(index, batch, &addressed, &mut staged) {
                        Some(work) => work,
                        None => layout::plain(column, &addressed, &mut staged),
                    }
                }
            });
        }
        let staged = staged.finish(staging);
        let Some(span) = self.room(begun, staged.len()) else {
            return Err(self.too_small("its tables and values", begun.raw.len()));
        };
        let table = self.copy(staged, &span).map_err(failed)?;
        self.finish(begun, (batch, deferred), &works, &table)
    }

    /// Makes the columns from the copied data, and gives back what is no longer needed.
    fn finish(
        &mut self,
        begun: &mut Begun,
        (batch, deferred): (&mut Batch, &Deferred),
        works: &[Work],
        table: &Uploaded,
    ) -> Result<DeviceBatch> {
        let failed = |error| device_error("cannot make a batch's columns on the device", error);
        let bytes: usize = works.iter().flat_map(Work::lengths).map(padded).sum();
        if bytes > begun.columns.len() {
            return Err(self.too_small("its columns", begun.columns.len()));
        }
        self.ranges.shorten(&mut begun.columns, bytes);
        let mut at = begun.columns.start;
        let mut spans = Vec::new();
        for len in works.iter().flat_map(Work::lengths) {
            let Some(span) = Span::new(&self.memory, at..at + len) else { return Err(unprepared()) };
            spans.push(span);
            at += padded(len);
        }
        let mut next = spans.iter();
        for work in works {
            match (work, next.as_slice().first()) {
                (Work::Integers(range), Some(to)) => {
                    self.copies.start(table.bytes().slice(range.clone()), to).map_err(failed)?;
                }
                (Work::Whole(bytes), Some(to)) if !bytes.is_empty() => {
                    self.copy(bytes.clone(), to).map_err(failed)?;
                }
                _ => {}
            }
            next.by_ref().take(work.lengths().count()).for_each(drop);
        }
        self.scatter(works, &spans, deferred).map_err(failed)?;
        self.launch(begun, works, &spans, table).map_err(failed)?;
        let ready = Arc::new(self.home.event(&self.context).map_err(failed)?);
        ready.record(&self.work).map_err(failed)?;
        let (range, held) = (std::mem::take(&mut begun.raw), std::mem::take(&mut begun.held));
        self.freeing.push(Returned { range, held, after: vec![After::Event(Arc::clone(&ready))] });
        let lease = Arc::new(Lease::new(&self.context, begun.columns.clone(), &ready, &self.home));
        Ok(columns_of(batch, works, spans, lease))
    }

    /// Copies values straight to their columns.
    fn scatter(&mut self, works: &[Work], spans: &[Span], deferred: &Deferred) -> Result<(), CudaError> {
        if !self.need.is_straight {
            return Ok(());
        }
        let mut spans = spans.iter();
        let starts: Vec<Option<usize>> = works
            .iter()
            .map(|work| spans.by_ref().take(work.lengths().count()).last().filter(|_| work.is_straight()))
            .map(|span| span.map(Span::offset))
            .collect();
        self.copy_groups(&Span::all(&self.memory), straight::groups(deferred, &starts))
    }

    /// Copies pieces to their places in `to`, each group by one call if the driver can.
    fn copy_groups(&mut self, to: &Span, groups: Vec<Vec<(Bytes, usize)>>) -> Result<(), CudaError> {
        let (begin, end) = (self.timing()?, self.timing()?);
        begin.record(self.copies.stream())?;
        for group in groups {
            let bytes: usize = group.iter().map(|(bytes, _)| bytes.len()).sum();
            self.copies.scatter(to, group)?;
            self.stats.count.bytes_copied.add(bytes as u64);
            self.stats.count.copies.add(1);
        }
        end.record(self.copies.stream())?;
        self.timed.push_back(Timed { begin, end, is_copy: true });
        Ok(())
    }

    fn launch(&mut self, begun: &Begun, works: &[Work], spans: &[Span], table: &Uploaded) -> Result<(), CudaError> {
        // A kernel waits for its table, and therefore for the blocks copied before it. But integers are copied after
        // the table, to columns that no kernel writes, and the batch is ready only once they have arrived too.
        // The wait applies to what was recorded by then, so the event may be recorded again.
        self.copied.record(self.copies.stream())?;
        self.work.wait(&self.copied)?;
        let (begin, end) = (self.timing()?, self.timing()?);
        begin.record(&self.work)?;
        let raw = || Span::new(&self.memory, begun.raw.clone());
        let Some(from) = self.shadow.as_ref().map(|shadow| shadow.span.clone()).or_else(raw) else { return Ok(()) };
        let mut spans = spans;
        for work in works {
            let (to, rest) = spans.split_at(work.lengths().count());
            spans = rest;
            work.launch(&self.kernels, &self.work, table, &from, to)?;
        }
        end.record(&self.work)?;
        self.timed.push_back(Timed { begin, end, is_copy: false });
        Ok(())
    }

    /// Gives back a batch's memory once the device has finished the work begun for it.
    fn abandon(&mut self, begun: Begun) {
        let mut after = Vec::new();
        for stream in [self.copies.stream(), &self.work] {
            // A device that cannot even record an event is lost, and its memory with it.
            let Ok(event) = self.home.event(&self.context) else { return };
            if event.record(stream).is_err() {
                return;
            }
            after.push(Arc::new(event));
        }
        let all = || after.iter().cloned().map(After::Event).collect();
        self.freeing.push(Returned { range: begun.raw, held: begun.held, after: all() });
        self.freeing.push(Returned { range: begun.columns, held: Held::default(), after: all() });
    }

    /// Adds up how long the device took for finished work.
    fn measure(&mut self) -> Result<(), CudaError> {
        while let Some(first) = self.timed.front() {
            if !first.end.is_done()? {
                break;
            }
            let Some(Timed { begin, mut end, is_copy }) = self.timed.pop_front() else { break };
            let nanos = end.since(&begin)?.as_nanos() as u64;
            let count = &self.stats.count;
            if is_copy {
                count.copy_nanos.add(nanos)
            } else {
                count.kernel_nanos.add(nanos)
            }
            if let Some(traced) = &mut self.traced {
                end = traced.tell(is_copy, &begin, end)?;
            }
            self.spare.extend([begin, end]);
        }
        Ok(())
    }

    fn timing(&mut self) -> Result<Event, CudaError> {
        self.spare.pop().map_or_else(|| Event::new(&self.context, Timing::On), Ok)
    }

    fn too_small(&self, what: &str, bytes: usize) -> Error {
        let Need { raw, columns, .. } = self.need;
        Error::new(
            ErrorKind::MemoryLimit,
            format!("a batch does not fit: {what} take more than the {bytes} bytes of the device's memory that it has"),
        )
        .with_remedy(format!(
            "by the index, a batch takes up to {} bytes: lower batch_size, or give a max_length",
            raw + columns
        ))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Kernels must not be unloaded while they run. A device that failed is running none.
        let _ = self.work.synchronize();
        // Also record the work of the last batches.
        let _ = self.measure();
        // Work that must end before the memory is released.
        self.freeing.drain(..).for_each(|returned| self.home.returned.push(returned));
    }
}

/// Whether a block is one of these.
fn is_among(block: &Bytes, blocks: &[Bytes]) -> bool {
    blocks.iter().any(|other| other.as_ptr() == block.as_ptr() && other.len() == block.len())
}

/// `bytes`, rounded up to the alignment.
pub(super) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(RANGE_ALIGNMENT)
}

fn unprepared() -> Error {
    Error::new(ErrorKind::Internal, "a batch was not prepared for the device: this is a bug of uringload")
}

/// The finished batch. Its columns are in `spans`, as many per column as its work makes.
fn columns_of(batch: &mut Batch, works: &[Work], spans: Vec<Span>, lease: Arc<Lease>) -> DeviceBatch {
    let mut spans = spans.into_iter();
    let mut host = Vec::new();
    let mut columns = Vec::new();
    for (column, work) in std::mem::take(&mut batch.columns).into_iter().zip(works) {
        let Some(form) = form_of(&column).filter(|_| !matches!(work, Work::Stay)) else {
            host.push(column);
            continue;
        };
        for (name, dtype, form) in work.outputs(&column, form) {
            if let Some(span) = spans.next() {
                columns.push(DeviceColumn { name, dtype, form, memory: DeviceBytes::on_device(span, &lease) });
            }
        }
    }
    batch.columns = host;
    DeviceBatch::on_device(batch.clone(), columns, lease)
}

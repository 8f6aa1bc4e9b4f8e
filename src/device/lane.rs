//! One GPU: its memory, its copies and its kernels. A batch's memory is taken in the order of the batches, so that no
//! later one holds what an earlier one lacks, and goes back when what used it is done. Nothing here waits.

use super::batch::{DeviceBatch, DeviceBytes, DeviceColumn, Home, Lease, Returned, device_error, form_of};
use super::layout::{self, Addressed, Placed, Places, Staged, Work};
use super::ranges::{RANGE_ALIGNMENT, Ranges};
use super::transforms::Transforms;
use crate::batch::{Batch, Data, Deferred};
use crate::pool::Pool;
use crate::queue::Bell;
use crate::reactor::EarlyBlock;
use crate::stats::Stats;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use uringload_sys::Part;
use uringload_sys::cuda::{
    Context, Copies, CudaError, DeviceMemory, Event, Kernel, Kernels, Notice, Span, Stream, Timing, Uploaded,
};

/// Bytes that one batch takes on a device at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// As it was read, with all that goes with it; free again when its columns are made.
    pub(super) raw: u64,
    /// Its columns; the consumer holds them.
    pub(super) columns: u64,
    /// Of `raw`, what is put together on the host: tables, integers, and values that lie in no block.
    pub(super) staged: u64,
}

impl Need {
    /// All of it, in whole units of the device's memory.
    pub(super) fn bytes(self) -> u64 {
        let units = |bytes: u64| bytes.checked_next_multiple_of(RANGE_ALIGNMENT as u64).unwrap_or(u64::MAX);
        units(self.raw).saturating_add(units(self.columns))
    }
}

/// Memory of the GPU that blocks are read into straight: they are where they must be.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// Address of the first byte of the arena that stands for it on the host.
    pub(super) host: usize,
    /// It.
    pub(super) span: Span,
}

impl Shadow {
    /// Where a block lies there, if it does.
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
    /// Where it is `Some`, every block lies there.
    shadow: Option<Shadow>,
    ranges: Ranges,
    copies: Copies,
    /// Where kernels run, so that the next copies do not wait for them.
    work: Stream,
    kernels: Kernels,
    home: Arc<Home>,
    need: Need,
    /// The batch that gets memory next, and how far the one after it is: batches go to the lanes in turn.
    next: u64,
    step: u64,
    /// Batches that have memory, oldest first.
    begun: VecDeque<Begun>,
    /// Blocks of batches that have none yet.
    early: Vec<EarlyBlock>,
    /// Memory that is free when its events came to pass.
    freeing: Vec<Returned>,
    timed: VecDeque<Timed>,
    spare: Vec<Event>,
    stats: Arc<Stats>,
}

/// A batch that has memory on the device.
struct Begun {
    number: u64,
    raw: Range<usize>,
    /// Bytes of `raw` that are taken.
    used: usize,
    columns: Range<usize>,
    placed: Vec<Placed>,
    /// Blocks that were read straight to the device: not to be read into again while kernels read them.
    held: Vec<Bytes>,
}

/// Work of which is to be known how long the device was at it.
struct Timed {
    begin: Event,
    end: Event,
    is_copy: bool,
}

impl Lane {
    /// Takes `memory_bytes` of the device's memory, and all that batches need there, such as these kernels.
    pub(super) fn open(
        context: &Context,
        (need, memory_bytes, wanted): (Need, u64, &[Kernel]),
        shadow: Option<Shadow>,
        (first, step): (u64, u64),
        bell: &Arc<Bell>,
        stats: &Arc<Stats>,
    ) -> Result<Lane, CudaError> {
        let memory = DeviceMemory::new(context, memory_bytes as usize)?;
        let kernels = Kernels::new(context);
        kernels.prepare(wanted)?;
        Ok(Lane {
            ranges: Ranges::new(memory.len(), need.bytes() as usize),
            memory,
            shadow,
            copies: Copies::new(context)?,
            work: Stream::new(context)?,
            kernels,
            context: context.clone(),
            home: Arc::new(Home { returned: SegQueue::new(), bell: Arc::clone(bell) }),
            need,
            next: first,
            step,
            begun: VecDeque::new(),
            early: Vec::new(),
            freeing: Vec::new(),
            timed: VecDeque::new(),
            spare: Vec::new(),
            stats: Arc::clone(stats),
        })
    }

    /// How the host learns that a copy is done.
    pub(super) fn notice(&self) -> Notice {
        self.copies.notice()
    }

    /// Bytes of the device's memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Bytes that no batch has.
    pub(super) fn free_bytes(&self) -> usize {
        self.ranges.free_bytes()
    }

    /// Whether the device is at work, or something of its memory is about to be free: looking again is worth it.
    pub(super) fn is_busy(&self) -> bool {
        self.copies.under_way() > 0 || !self.freeing.is_empty() || !self.timed.is_empty()
    }

    /// Whether copies are under way.
    pub(super) fn is_copying(&self) -> bool {
        self.copies.under_way() > 0
    }

    /// Whether memory came home that was not looked at.
    pub(super) fn has_returned(&self) -> bool {
        !self.home.returned.is_empty()
    }

    /// Books what is done and starts to copy what came early; returns whether anything changed.
    pub(super) fn turn(&mut self) -> Result<bool, CudaError> {
        let mut changed = self.copies.finished()? > 0;
        while let Some(returned) = self.home.returned.pop() {
            self.freeing.push(returned);
            changed = true;
        }
        let mut index = 0;
        while index < self.freeing.len() {
            // Those that came to pass are not asked again.
            let after = &mut self.freeing[index].after;
            while let Some(event) = after.last() {
                if !event.is_done()? {
                    break;
                }
                after.pop();
            }
            if after.is_empty() {
                let Returned { range, blocks, .. } = self.freeing.swap_remove(index);
                self.ranges.give(range);
                drop(blocks);
                changed = true;
            } else {
                index += 1;
            }
        }
        self.measure()?;
        self.place_early()?;
        Ok(changed)
    }

    /// Waits for all that the device is at, and books it.
    pub(super) fn settle(&mut self) -> Result<(), CudaError> {
        self.copies.stream().synchronize()?;
        self.work.synchronize()?;
        self.turn().map(drop)
    }

    /// Takes note of a block of a batch that is not complete.
    pub(super) fn take_early(&mut self, block: EarlyBlock) {
        self.early.push(block);
    }

    /// Makes the columns of a batch. `None`: there is no memory for it just now, there or here.
    ///
    /// # Errors
    /// `MemoryLimit` where it needs more than any batch was to need; `Device`.
    pub(super) fn put(
        &mut self,
        number: u64,
        batch: &mut Batch,
        transforms: &Transforms,
        staging: &mut Pool,
    ) -> Result<Option<DeviceBatch>> {
        let Some(deferred) = batch.deferred.take() else { return Err(unprepared()) };
        let block_bytes = match self.shadow {
            Some(_) => 0,
            None => deferred.blocks.iter().map(|block| padded(block.len())).sum::<usize>() as u64,
        };
        let failed = |error| device_error("cannot begin a batch on the device", error);
        if !self.begin(number, block_bytes).map_err(failed)? {
            batch.deferred = Some(deferred);
            return Ok(None);
        }
        let Some(part) = staging.take_exact(self.need.staged as usize) else {
            // Copies that are under way have it. The heap would do as well, but is not pinned: the driver would copy it
            // before the call returns, and nothing else would go on meanwhile.
            batch.deferred = Some(deferred);
            return Ok(None);
        };
        let Some(mut begun) = self.begun.pop_front() else { return Err(unprepared()) };
        debug_assert_eq!(begun.number, number);
        match self.make(&mut begun, batch, &deferred, transforms, (staging, part)) {
            Ok(made) => Ok(Some(made)),
            Err(error) => {
                self.abandon(begun);
                Err(error)
            }
        }
    }

    /// Gives back the memory of a batch that is an error.
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

    /// Takes memory for the batch, if it is the next one in line and there is enough; returns whether it has memory.
    fn begin(&mut self, number: u64, block_bytes: u64) -> Result<bool, CudaError> {
        if number < self.next {
            return Ok(true);
        }
        if number > self.next {
            return Ok(false);
        }
        // What is read of it may be less than the most that any batch needs; what is staged is not known yet.
        let raw = block_bytes.saturating_add(self.need.staged) as usize;
        let Some(raw) = self.ranges.take(raw) else { return Ok(false) };
        let Some(columns) = self.ranges.take(self.need.columns as usize) else {
            self.ranges.give(raw);
            return Ok(false);
        };
        self.begun.push_back(Begun { number, raw, used: 0, columns, placed: Vec::new(), held: Vec::new() });
        self.next += self.step;
        Ok(true)
    }

    /// Starts to copy the blocks that came early, of all batches that memory can be had for.
    fn place_early(&mut self) -> Result<(), CudaError> {
        let mut index = 0;
        while index < self.early.len() {
            let EarlyBlock { batch, batch_bytes, blocks, .. } = self.early[index];
            let bytes = batch_bytes.saturating_add((blocks * RANGE_ALIGNMENT) as u64);
            if !self.begin(batch, bytes)? {
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
            // Another may be next in line now.
            index = 0;
        }
        Ok(())
    }

    /// Starts to copy a block to the batch's memory, unless it lies on the device; returns whether there is room.
    /// Values of it are slices of `known_as`.
    fn place(&mut self, begun: &mut Begun, block: Bytes, known_as: &Bytes) -> Result<bool, CudaError> {
        if let Some(shadow) = &self.shadow {
            let host = known_as.as_ptr().addr();
            let placed = shadow.place(&block).map(|placed| Placed { host, ..placed });
            begun.placed.extend(placed);
            begun.held.push(block);
            return Ok(placed.is_some());
        }
        let Some(span) = self.room(begun, block.len()) else { return Ok(false) };
        begun.placed.push(Placed { host: known_as.as_ptr().addr(), len: block.len(), device: span.address() });
        self.copy(block, &span)?;
        Ok(true)
    }

    /// Starts to copy those blocks of a batch that came early and found no memory until its end.
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

    /// Everything that is to be done for a batch that has memory.
    fn make(
        &mut self,
        begun: &mut Begun,
        batch: &mut Batch,
        deferred: &Deferred,
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
        for (block, used) in deferred.blocks.iter().zip(layout::blocks_in_use(batch, deferred)) {
            if used && !is_placed(&begun.placed, block) && !self.place(begun, block.clone(), block).map_err(failed)? {
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
                (_, None) => Work::Stay,
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
        self.finish(begun, batch, &works, &table)
    }

    /// Makes the columns of what was copied, and gives back what is not needed any more.
    fn finish(
        &mut self,
        begun: &mut Begun,
        batch: &mut Batch,
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
            if let (Work::Integers(range), Some(to)) = (work, next.as_slice().first()) {
                self.copies.start(table.bytes().slice(range.clone()), to).map_err(failed)?;
            }
            next.by_ref().take(work.lengths().count()).for_each(drop);
        }
        self.launch(begun, works, &spans, table).map_err(failed)?;
        let ready = Arc::new(Event::new(&self.context, Timing::Off).map_err(failed)?);
        ready.record(&self.work).map_err(failed)?;
        let (range, blocks) = (std::mem::take(&mut begun.raw), std::mem::take(&mut begun.held));
        self.freeing.push(Returned { range, blocks, after: vec![Arc::clone(&ready)] });
        let lease = Arc::new(Lease::new(&self.context, begun.columns.clone(), &ready, &self.home));
        Ok(columns_of(batch, works, spans, lease))
    }

    fn launch(&mut self, begun: &Begun, works: &[Work], spans: &[Span], table: &Uploaded) -> Result<(), CudaError> {
        // A kernel waits for its table by itself, and so for the blocks in front of it. Integers are copied behind the
        // table, to columns that no kernel writes: the batch is ready only when they are there as well.
        let copied = self.timing()?;
        copied.record(self.copies.stream())?;
        self.work.wait(&copied)?;
        // The wait is for what was recorded by then: it may be recorded again.
        self.spare.push(copied);
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

    /// Gives back a batch's memory once the device is done with what was begun of it.
    fn abandon(&mut self, begun: Begun) {
        let mut after = Vec::new();
        for stream in [self.copies.stream(), &self.work] {
            // A device that does not even record an event is lost, and its memory with it.
            let Ok(event) = Event::new(&self.context, Timing::Off) else { return };
            if event.record(stream).is_err() {
                return;
            }
            after.push(Arc::new(event));
        }
        self.freeing.push(Returned { range: begun.raw, blocks: begun.held, after: after.clone() });
        self.freeing.push(Returned { range: begun.columns, blocks: Vec::new(), after });
    }

    /// Books how long the device was at what is done.
    fn measure(&mut self) -> Result<(), CudaError> {
        while let Some(first) = self.timed.front() {
            if !first.end.is_done()? {
                break;
            }
            let Some(Timed { begin, end, is_copy }) = self.timed.pop_front() else { break };
            let nanos = end.since(&begin)?.as_nanos() as u64;
            let count = &self.stats.count;
            if is_copy {
                count.copy_nanos.add(nanos)
            } else {
                count.kernel_nanos.add(nanos)
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
            "{} bytes were taken for a batch at most, as the index tells: lower batch_size, or give a max_length",
            raw + columns
        ))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Kernels must not be unloaded while they run. A device that failed has none that do.
        let _ = self.work.synchronize();
    }
}

/// Bytes with what rounds them up.
pub(super) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(RANGE_ALIGNMENT)
}

fn unprepared() -> Error {
    Error::new(ErrorKind::Internal, "a batch was not prepared for the device: this is a bug of uringload")
}

/// The batch, whose columns lie in `spans`, as many for each column as its work makes.
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

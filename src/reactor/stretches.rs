//! Keeps stretches of files in memory. The plan says which and when; this holds their bytes. A stretch is read like a
//! batch of its own, and copied out of the pool when it comes to the front, so that long-lived memory never splits the
//! memory that batches need in one piece.

use super::Reactor;
use super::lost::Failure;
use crate::Result;
use crate::dataset::{Dataset, FileId, Span};
use crate::engine::Engine;
use crate::patience::Patience;
use crate::plan::{Grid, Stretch};
use crate::queue::Bell;
use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uringload_sys::copy;

/// Free buffers of stretches, kept for reuse: memory from the system costs more than the copy.
const SPARE_MAX: usize = 64;

/// Files to check when an epoch begins; each takes some microseconds.
const FILES_LOOKED_AT: usize = 1024;

/// The stretches in memory.
pub struct KeptStretches {
    grid: Grid,
    /// The place of each stretch in `stretches`, from 1; 0: not in memory.
    places: Vec<u32>,
    stretches: Vec<Content>,
    /// Unused places.
    free: Vec<u32>,
    /// Limit for the bytes held here and by slices of dropped stretches, while the consumer has batches to take.
    most: u64,
    home: Arc<Home>,
    /// Stretches that were read with failures since the last epoch began.
    broken: Vec<u32>,
    /// Files that did not answer the check.
    silent: HashSet<FileId>,
    /// Number of stretches in memory that lack bytes. Batches of the last epoch may still need one that this epoch
    /// rereads.
    lacking: usize,
}

/// The memory of a stretch. It returns when its last slice is dropped, often long after the stretch itself: waiting
/// batches, and those that a consumer holds, have slices of it.
struct Lent {
    buffer: Vec<u8>,
    home: Arc<Home>,
}

/// Owns the memory of stretches.
struct Home {
    spare: ArrayQueue<Vec<u8>>,
    /// Bytes of all stretches that have slices.
    bytes: AtomicU64,
    bell: Arc<Bell>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.bytes.fetch_sub(self.buffer.len() as u64, Ordering::Release);
        // If there are enough spare buffers, the system gets it back.
        let _ = self.home.spare.push(std::mem::take(&mut self.buffer));
        self.home.bell.ring();
    }
}

/// What was read of a stretch.
#[derive(Default)]
struct Content {
    bytes: Bytes,
    /// What could not be read.
    failures: Vec<Failure>,
}

impl KeptStretches {
    /// Creates the store for the stretches of `grid`, with none in memory. Batches should hold at most `most` bytes of
    /// them and of dropped ones while the consumer can return some. A return of memory rings `bell`.
    pub fn new(grid: Grid, most: u64, bell: Arc<Bell>) -> KeptStretches {
        let home = Home { spare: ArrayQueue::new(SPARE_MAX), bytes: AtomicU64::new(0), bell };
        let places = vec![0; grid.len()];
        let (stretches, free, broken) = (Vec::new(), Vec::new(), Vec::new());
        let (home, silent) = (Arc::new(home), HashSet::new());
        KeptStretches { grid, places, stretches, free, most, home, broken, silent, lacking: 0 }
    }

    /// Bytes of all stretches in memory, and of dropped ones that are still in use.
    pub(super) fn held_bytes(&self) -> u64 {
        self.home.bytes.load(Ordering::Acquire)
    }

    /// Keeps what was read of a stretch.
    fn insert(&mut self, stretch: Stretch, read: &[u8], failures: Vec<Failure>) {
        self.remove(stretch.number);
        let mut buffer = self.home.spare.pop().unwrap_or_default();
        buffer.clear();
        // Exactly: the limit of memory counts these bytes.
        buffer.reserve_exact(read.len());
        buffer.extend_from_slice(read);
        if !failures.is_empty() {
            self.broken.push(stretch.number);
            self.lacking += 1;
        }
        self.home.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let bytes = Bytes::from_owner(Lent { buffer, home: Arc::clone(&self.home) });
        let content = Content { bytes, failures };
        let place = match self.free.pop() {
            Some(place) => {
                self.stretches[place as usize - 1] = content;
                place
            }
            None => {
                self.stretches.push(content);
                self.stretches.len() as u32
            }
        };
        self.places[stretch.number as usize] = place;
    }

    /// Drops a stretch. Slices of it live on.
    fn remove(&mut self, number: u32) {
        let place = std::mem::take(&mut self.places[number as usize]);
        if place == 0 {
            return;
        }
        self.free.push(place);
        let content = std::mem::take(&mut self.stretches[place as usize - 1]);
        self.lacking -= usize::from(!content.failures.is_empty());
    }

    fn content(&self, number: u32) -> Option<&Content> {
        let place = self.places.get(number as usize).copied().filter(|&place| place > 0)?;
        self.stretches.get(place as usize - 1)
    }

    /// The bytes of a span in one slice: a copy if it lies in several stretches. `None` if it is not in memory, which
    /// is a bug.
    pub(super) fn bytes(&self, span: &Span) -> Option<Bytes> {
        let (numbers, at) = self.grid.of(span);
        if numbers.len() == 1 {
            let content = self.content(numbers.start)?;
            let (start, end) = (at as usize, (at + span.len) as usize);
            return (end <= content.bytes.len()).then(|| content.bytes.slice(start..end));
        }
        let mut bytes = vec![0; span.len as usize];
        self.copy(&mut bytes, std::iter::once((0, span))).then(|| Bytes::from(bytes))
    }

    /// The bytes of a span: each piece with its offset in the span. Skips bytes that are not in memory, which is a bug.
    pub(super) fn pieces(&self, span: &Span) -> impl Iterator<Item = (usize, &[u8])> {
        let (numbers, at) = self.grid.of(span);
        let (mut start, mut place, len) = (at as usize, 0, span.len as usize);
        numbers.filter_map(move |number| {
            let from = self.content(number)?.bytes.get(start..)?;
            let piece = (place, &from[..from.len().min(len - place)]);
            (start, place) = (0, place + piece.1.len());
            Some(piece)
        })
    }

    /// Copies the bytes of spans to `to`, each starting at its offset. Returns false if some are not in memory, which
    /// is a bug.
    pub(super) fn copy<'a>(&'a self, to: &mut [u8], spans: impl Iterator<Item = (usize, &'a Span)>) -> bool {
        let (room, mut missing) = (to.len(), 0);
        let pieces = spans.flat_map(|(at, span)| {
            missing += span.len as usize;
            self.pieces(span).map(move |(place, piece)| (at + place, piece))
        });
        let mut copied = 0;
        let fitting = pieces.filter(|(at, piece)| at + piece.len() <= room).inspect(|(_, piece)| copied += piece.len());
        copy::gather(to, fitting);
        copied == missing
    }

    /// Whether any stretch in memory lacks bytes.
    pub(super) fn is_broken(&self) -> bool {
        self.lacking > 0
    }

    /// What could not be read of the stretches that a span lies in.
    pub(super) fn failures(&self, span: &Span) -> impl Iterator<Item = &Failure> {
        self.grid.of(span).0.filter_map(|number| self.content(number)).flat_map(|content| &content.failures)
    }

    /// The stretches to read again in the new epoch: those that could not be read, and those of files that have
    /// changed. If there are many files, checks a part of them, another part each time.
    fn outdated(&mut self, dataset: &Arc<dyn Dataset>, epoch: u64, patience: &Patience) -> (Vec<u32>, Vec<FileId>) {
        let mut numbers = std::mem::take(&mut self.broken);
        let files = dataset.files();
        let looked_at = files.len().min(FILES_LOOKED_AT) as u64;
        let first = epoch.wrapping_mul(looked_at) % files.len().max(1) as u64;
        let is_kept = |file: &FileId| self.grid.of_file(*file).any(|number| self.places[number as usize] > 0);
        // Each read of an object looks at its version.
        let is_object = |file: &FileId| files.store_of(files.root_of(*file)).is_some();
        let looked_at = (0..looked_at).map(|index| FileId(((first + index) % files.len() as u64) as u32));
        let kept: Vec<FileId> =
            looked_at.filter(|file| !self.silent.contains(file) && is_kept(file) && !is_object(file)).collect();
        let (asked, numbered) = (Arc::clone(dataset), kept.clone());
        let is_other = move |number: usize| {
            let (files, file) = (asked.files(), numbered[number]);
            match uringload_sys::file::Identity::of_path(&files.path(file)) {
                // Numbers of devices and inodes may vary, so times and sizes decide.
                Ok(found) => files.is_still(file, &found, || true).is_err(),
                Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            }
        };
        // A file that does not answer cannot be read either: its stretches stay, and it is not checked again.
        let answers = patience.ask(kept.len(), 1, is_other);
        self.silent.extend(kept.iter().zip(&answers).filter(|(_, answer)| answer.is_none()).map(|(&file, _)| file));
        let changed = kept.into_iter().zip(answers).filter(|(_, is_other)| *is_other == Some(true));
        let changed: Vec<FileId> = changed.map(|(file, _)| file).collect();
        for &file in &changed {
            numbers.extend(self.grid.of_file(file).filter(|&number| self.places[number as usize] > 0));
        }
        (numbers, changed)
    }
}

impl Reactor {
    /// Sets the store of the stretches that the planner plans.
    #[must_use]
    pub fn with_kept(self, kept: Option<KeptStretches>) -> Reactor {
        Reactor { kept, ..self }
    }

    /// Forgets what must be read again from `epoch` on. Returns the files that have changed since they were read. The
    /// engine opens those again: its state may date from just before the change.
    pub fn look_at_kept(&mut self, epoch: u64, engine: &mut dyn Engine, patience: &Patience) -> Vec<FileId> {
        let Some(kept) = &mut self.kept else { return Vec::new() };
        if kept.stretches.is_empty() {
            return Vec::new();
        }
        let (numbers, changed) = kept.outdated(self.planner.dataset(), epoch, patience);
        self.planner.forget(numbers.into_iter());
        changed.iter().for_each(|&file| engine.renew(file));
        changed
    }

    /// Whether batches hold too many bytes of dropped stretches, so that the next one waits. Only while there are
    /// batches for the consumer: one that holds all of them and asks for more gets more, up to the limit of memory.
    pub(super) fn must_wait_for_stretches(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.held_bytes() > kept.most) && !self.out.is_empty()
    }

    /// Switches between whole windows and single samples, where that is tried.
    pub(super) fn adapt_stretches(&mut self) {
        let is_whole = self.reads.depth.is_whole();
        if self.planner.is_whole().is_some_and(|was_whole| was_whole != is_whole) {
            self.planner.set_whole(is_whole);
            self.stats.note_whole();
        }
    }

    /// Whether a loader that tries whole windows waits for the storage. Whole windows are few reads, which need not
    /// fill the depth.
    pub(super) fn waits_for_stretches(&self) -> bool {
        self.reads.depth.is_whole() && !self.blocked.queue && !self.blocked.memory
    }

    /// Drops and keeps the stretches that the entry at the front names. Returns whether that was a stretch, which is
    /// then removed. A stretch that failed may be read once more; it is then no longer complete.
    pub(super) fn keep_front(&mut self) -> Result<bool> {
        let (Some(kept), Some(front)) = (&mut self.kept, self.pending.front_mut()) else { return Ok(false) };
        for number in front.take_given_up() {
            kept.remove(number);
        }
        let Some(stretch) = front.plan().stretch else { return Ok(false) };
        let (mut read, failures) = front.take_stretch(&self.pool)?;
        if !failures.is_empty() {
            // A copy, so that its memory is free for the second read.
            read = Bytes::copy_from_slice(&read);
            if self.read_again_shorter(stretch) {
                return Ok(false);
            }
        }
        self.stats.count.bytes_wanted.add(stretch.span.len);
        let Some(kept) = &mut self.kept else { return Ok(false) };
        kept.insert(stretch, &read, failures);
        let done = self.pop_front();
        self.spare.batches.extend(done);
        Ok(true)
    }

    /// Reads the stretch at the front once more, in the shortest reads, because one failed read made more samples fail
    /// than necessary. Returns false if that was done before, or if there is no memory for it.
    fn read_again_shorter(&mut self, stretch: Stretch) -> bool {
        let Some(front) = self.pending.front_mut() else { return false };
        if front.has_holes() || front.is_second_try() {
            return false;
        }
        self.pool.collect();
        let mut plan = self.spare.plans.pop().unwrap_or_default();
        plan.batch.cursor = front.plan().batch.cursor;
        plan.batch.next = front.plan().batch.next;
        self.planner.plan_again(stretch, &mut plan);
        if !front.take_memory(&mut self.pool, &plan) {
            // Its old memory is free, but perhaps no longer in one piece.
            self.spare.plans.push(plan);
            return false;
        }
        self.reads.unissued += plan.reads.len();
        self.spare.plans.extend(front.begin_again(plan));
        self.reads.issuing = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::FileTable;

    fn kept(size: u64, bytes: u64) -> (KeptStretches, FileTable) {
        let mut files = FileTable::new();
        files.push_root("/nowhere");
        files.push(b"a", size).unwrap();
        (KeptStretches::new(Grid::of_bytes(&files, bytes).unwrap(), u64::MAX, Arc::new(Bell::new())), files)
    }

    #[test]
    fn spans_come_back_whole_wherever_they_lie() {
        let content: Vec<u8> = (0..1000_u32).map(|byte| (byte * 7 / 3) as u8).collect();
        let (mut kept, files) = kept(1000, 64);
        for number in 0..16 {
            let stretch = Grid::of_bytes(&files, 64).unwrap().stretch(number, &files);
            let start = stretch.span.offset as usize;
            kept.insert(stretch, &content[start..start + stretch.span.len as usize], Vec::new());
        }
        for start in (0..1000_usize).step_by(13) {
            for len in [1, 63, 64, 65, 300] {
                let Some(wanted) = content.get(start..start + len) else { continue };
                let span = Span { file: FileId(0), offset: start as u64, len: len as u64 };
                assert_eq!(kept.bytes(&span).unwrap(), wanted, "{len} bytes at {start}");
                let mut copy = vec![0; len];
                assert!(kept.copy(&mut copy, [(0, &span)].into_iter()) && copy == wanted);
            }
        }
    }

    #[test]
    fn what_was_given_up_is_gone_and_its_slices_stay() {
        let (mut kept, files) = kept(128, 64);
        let grid = Grid::of_bytes(&files, 64).unwrap();
        kept.insert(grid.stretch(0, &files), &[1; 64], Vec::new());
        let span = Span { file: FileId(0), offset: 3, len: 5 };
        let slice = kept.bytes(&span).unwrap();
        kept.remove(0);
        kept.insert(grid.stretch(1, &files), &[2; 64], Vec::new());
        assert_eq!((kept.bytes(&span), &slice[..]), (None, &[1; 5][..]));
        assert!(!kept.copy(&mut [0; 5], [(0, &span)].into_iter()));
        // Its memory is used again when no slice of it is left.
        let at = slice.as_ptr().addr() - 3;
        assert_eq!(kept.held_bytes(), 128);
        drop(slice);
        assert_eq!(kept.held_bytes(), 64);
        kept.insert(grid.stretch(0, &files), &[3; 64], Vec::new());
        assert_eq!(kept.bytes(&span).map(|bytes| bytes.as_ptr().addr()), Some(at + 3));
    }

    /// Batches of the previous epoch may be built after an epoch has begun, which is when such stretches are forgotten.
    #[test]
    fn what_lacks_bytes_does_so_until_it_is_read_again() {
        let (mut kept, files) = kept(128, 64);
        let stretch = Grid::of_bytes(&files, 64).unwrap().stretch(0, &files);
        let error = crate::Error::new(crate::ErrorKind::Io, "bad");
        let failure = || Failure::of(FileId(0), (3, 9), error.clone());
        kept.insert(stretch, &[1; 64], vec![failure()]);
        let options = crate::dataset::Options::new().format("records").set("record_bytes", 64);
        let dataset = crate::dataset::inspect::of_files(files, &options).unwrap();
        let patience = Patience::new(std::time::Duration::from_secs(60));
        assert_eq!(
            kept.outdated(&dataset, 1, &patience).0,
            [0, 0],
            "by its failure, and because the file is not there"
        );
        assert!(kept.is_broken());
        kept.insert(stretch, &[1; 64], Vec::new());
        assert!(!kept.is_broken());
        kept.insert(stretch, &[1; 64], vec![failure()]);
        kept.remove(0);
        assert!(!kept.is_broken());
    }
}

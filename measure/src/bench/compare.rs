//! Reads the same samples in other ways: simple loops that share nothing with the loader except the list of samples.

use super::Gpus;
use super::Way;
use super::run::{self, End, Measured, Run};
use crate::Caller;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uringload::config::Config;
use uringload::config::{EngineChoice, IoChoice};
use uringload::dataset::{Dataset, FileId, SampleId, Span};
use uringload::sampler::{Cursor, Sampler};
use uringload::{Error, ErrorKind, Result};
use uringload_sys::file::Mapping;
use uringload_sys::system;

/// Thread counts to try; the one with the best rate represents the way of reading.
const THREADS: [usize; 4] = [2, 4, 8, 16];

/// A longer sample is read piece by piece into one buffer, which stays in the CPU cache: kinder to this way of reading
/// than a buffer for each sample would be.
const BUFFER_BYTES: usize = 1 << 20;

/// The result of another way of reading.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The way of reading.
    pub way: Way,
    /// Thread count with the best rate.
    pub threads: usize,
    /// Samples read.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Elapsed time.
    pub wall: Duration,
    /// CPU time of the process.
    pub cpu: Duration,
}

impl Compared {
    /// Bytes of samples per second.
    pub fn bytes_per_second(&self) -> f64 {
        run::rate(self.bytes, self.wall)
    }

    /// CPU seconds per 10^9 bytes.
    pub fn cpu_per_gb(&self) -> Option<f64> {
        run::cpu_per_gb(self.cpu, self.bytes)
    }
}

/// Reads with each thread count (or only with `threads`) and returns the best; `None` if interrupted. `prepare` is
/// called before each run: it may empty the page cache.
///
/// # Errors
/// That of the first sample that cannot be read, or that of `prepare`.
pub fn best(
    run: &Run<'_>,
    way: Way,
    threads: Option<usize>,
    caller: &Caller,
    mut prepare: impl FnMut() -> Result<()>,
) -> Result<Option<Compared>> {
    let mut best: Option<Compared> = None;
    // The search takes as long as two runs.
    let shorter = run.duration.map(|duration| if threads.is_none() { duration / 2 } else { duration });
    for count in threads.map_or(THREADS.to_vec(), |threads| vec![threads]) {
        prepare()?;
        let compared = match way {
            Way::Threads => own_threads(run, count, shorter, caller)?,
            Way::Buffered | Way::Mmap => plain_threads(run, way, (count, shorter), caller)?,
        };
        if caller.is_set() {
            return Ok(None);
        }
        if best.as_ref().is_none_or(|best| compared.bytes_per_second() > best.bytes_per_second()) {
            best = Some(compared);
        }
    }
    Ok(best)
}

/// Our own loader with blocking reads past the page cache.
fn own_threads(run: &Run<'_>, threads: usize, duration: Option<Duration>, caller: &Caller) -> Result<Compared> {
    let config = Config {
        engine: EngineChoice::Threads,
        io: IoChoice::Direct,
        io_threads: Some(threads),
        queue_depth: None,
        trace: None,
        ..run.config.clone()
    };
    let run = Run {
        dataset: run.dataset,
        config,
        prepare: run.prepare,
        sampler: Arc::clone(&run.sampler),
        state: None,
        step: None,
        accelerators: 1,
        duration,
        devices: Vec::new(),
        gpus: Gpus::default(),
    };
    let Measured { end, wall, cpu, snapshot, .. } = run::measure(&run, "threads", caller)?;
    if let End::Failed(error) = end {
        return Err(error);
    }
    let (samples, bytes) = (snapshot.count.samples, snapshot.count.bytes_delivered);
    Ok(Compared { way: Way::Threads, threads, samples, bytes, wall, cpu })
}

/// State shared by the threads of a plain loop.
struct Work<'a> {
    dataset: &'a dyn Dataset,
    sampler: &'a dyn Sampler,
    /// Positions of this rank over all epochs, end to end; each thread takes the next.
    next: AtomicU64,
    epochs: u64,
    config: &'a Config,
    deadline: Option<Instant>,
    caller: &'a Caller,
    way: Way,
}

fn plain_threads(
    run: &Run<'_>,
    way: Way,
    (threads, duration): (usize, Option<Duration>),
    caller: &Caller,
) -> Result<Compared> {
    let cpu = system::cpu_time();
    let start = Instant::now();
    let work = Work {
        dataset: &**run.dataset,
        sampler: &*run.sampler,
        next: AtomicU64::new(0),
        epochs: run.config.epochs.unwrap_or(u64::MAX),
        config: &run.config,
        deadline: duration.map(|duration| start + duration),
        caller,
        way,
    };
    let results: Vec<Result<(u64, u64)>> = std::thread::scope(|scope| {
        // Where the system refuses a thread, those that run share the work, and the table says how many they are.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, || work.read());
        let spawned: Vec<_> = (0..threads).map_while(|number| start(number).ok()).collect();
        spawned
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let threads = results.len();
    if threads == 0 {
        let error = Error::new(ErrorKind::Unavailable, "the system refuses to start a thread");
        return Err(error.with_remedy("raise the limit of processes: ulimit -u, or pids.max of the cgroup"));
    }
    let mut compared = Compared { way, threads, samples: 0, bytes: 0, wall: start.elapsed(), cpu: Duration::ZERO };
    for result in results {
        let (samples, bytes) = result?;
        compared.samples += samples;
        compared.bytes += bytes;
    }
    compared.cpu = system::cpu_time().saturating_sub(cpu);
    Ok(compared)
}

impl Work<'_> {
    /// Runs one thread: reads sample after sample. Returns their number and bytes.
    fn read(&self) -> Result<(u64, u64)> {
        let (mut samples, mut bytes) = (0, 0);
        let mut open = Open::default();
        let mut spans: Vec<Span> = Vec::new();
        loop {
            let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let sample = self.next_sample().filter(|_| !is_late && !self.caller.is_set());
            let Some(sample) = sample else { return Ok((samples, bytes)) };
            spans.clear();
            self.dataset.spans(sample, &mut spans);
            for span in &spans {
                let read = open.file(self.dataset, span.file).and_then(|()| open.read(span, self.way));
                read.map_err(|source| {
                    let path = self.dataset.files().path(span.file);
                    Error::io("cannot read", source).with_path(path).with_offset(span.offset)
                })?;
                bytes += span.len;
            }
            samples += 1;
        }
    }

    /// The next sample of this rank, which is every `world_size`-th of each epoch; `None` after the last epoch.
    fn next_sample(&self) -> Option<SampleId> {
        let Config { rank, world_size, .. } = *self.config;
        let an_epoch = (self.sampler.len() + world_size - 1 - rank) / world_size;
        let taken = self.next.fetch_add(1, Ordering::Relaxed);
        let epoch = taken.checked_div(an_epoch).filter(|&epoch| epoch < self.epochs)?;
        Some(self.sampler.at(Cursor::new(epoch, taken % an_epoch * world_size + rank)))
    }
}

/// The file that a thread has open: while it stays in one file, it opens that file once.
#[derive(Default)]
struct Open {
    file: Option<(FileId, File)>,
    mapping: Option<Mapping>,
    buffer: Vec<u8>,
}

impl Open {
    fn file(&mut self, dataset: &dyn Dataset, id: FileId) -> io::Result<()> {
        if self.file.as_ref().is_none_or(|(open, _)| *open != id) {
            self.mapping = None;
            self.file = Some((id, uringload_sys::file::open_regular(&dataset.files().path(id))?));
        }
        Ok(())
    }

    fn read(&mut self, span: &Span, way: Way) -> io::Result<()> {
        let Some((_, file)) = &self.file else { return Err(io::ErrorKind::NotFound.into()) };
        if span.len == 0 {
            return Ok(());
        }
        if way == Way::Buffered {
            self.buffer.resize(BUFFER_BYTES, 0);
            let end = span.offset + span.len;
            for offset in (span.offset..end).step_by(BUFFER_BYTES) {
                let len = (end - offset).min(BUFFER_BYTES as u64) as usize;
                file.read_exact_at(&mut self.buffer[..len], offset)?;
            }
            return Ok(());
        }
        let mapping = match self.mapping.take() {
            Some(mapping) => mapping,
            None => Mapping::new(file.as_fd(), file.metadata()?.len() as usize)?,
        };
        if (mapping.len() as u64) < span.offset + span.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        touch(self.mapping.insert(mapping), span);
        Ok(())
    }
}

/// Reads a byte of every page, like a program that parses mapped data.
fn touch(mapping: &Mapping, span: &Span) {
    const PAGE_BYTES: usize = 4096;
    let mut byte = [0];
    for offset in (span.offset as usize..(span.offset + span.len) as usize).step_by(PAGE_BYTES) {
        mapping.copy(offset, &mut byte);
        std::hint::black_box(byte);
    }
}

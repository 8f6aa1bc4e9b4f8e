//! The device, pinned memory, and timing by the device's clock.

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload_sys::Arena;
use uringload_sys::cuda::{Context, Copies, DeviceMemory, Driver, Event, Kernels, Pinned, Span, Stream, Timing};

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The device under test.
pub struct Gpu {
    pub context: Context,
    pub kernels: Kernels,
    /// A stream for timed work, and for work that stands in for a trainer's.
    pub stream: Arc<Stream>,
}

impl Gpu {
    pub fn open() -> Outcome<Gpu> {
        let context = Context::new(&Driver::open(None)?, 0)?;
        let kernels = Kernels::new(&context);
        let stream = Arc::new(Stream::new(&context)?);
        Ok(Gpu { context, kernels, stream })
    }

    /// Allocates device memory.
    pub fn memory(&self, bytes: usize) -> Outcome<Span> {
        let memory = DeviceMemory::new(&self.context, bytes)?;
        Span::new(&memory, 0..bytes).ok_or_else(|| "no span of memory".into())
    }

    /// Allocates device memory and fills it with random bytes.
    pub fn random_memory(&self, bytes: usize) -> Outcome<Span> {
        const PIECE: usize = 32 << 20;
        let to = self.memory(bytes)?;
        let mut copies = Copies::new(&self.context)?;
        let from = Bytes::from(random(PIECE.min(bytes), bytes as u64));
        for start in (0..bytes).step_by(PIECE) {
            let len = PIECE.min(bytes - start);
            copies.start(from.slice(..len), &part(&to, start, len)?)?;
        }
        copies.stream().synchronize()?;
        copies.finished()?;
        Ok(to)
    }

    /// How long the device takes for the work that `work` puts into `stream`, which must be idle before.
    pub fn timed(&self, stream: &Stream, work: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
        let (begin, end) = (Event::new(&self.context, Timing::On)?, Event::new(&self.context, Timing::On)?);
        stream.synchronize()?;
        begin.record(stream)?;
        work()?;
        end.record(stream)?;
        end.wait()?;
        Ok(end.since(&begin)?)
    }

    /// Like `timed`, for copies. A copy of `run_up`, if given, comes first and is not counted: while the engine is at
    /// it, the copies behind it are submitted, so that what is timed begins between copies and not in an idle stream.
    pub fn timed_copies(
        &self,
        copies: &mut Copies,
        run_up: Option<(&Bytes, &Span)>,
        work: impl FnOnce(&mut Copies) -> Outcome<()>,
    ) -> Outcome<Duration> {
        const RUN_UP_BYTES: usize = 32 << 20;
        let (begin, end) = (Event::new(&self.context, Timing::On)?, Event::new(&self.context, Timing::On)?);
        copies.stream().synchronize()?;
        if let Some((bytes, to)) = run_up {
            copies.start(bytes.slice(..bytes.len().min(to.len()).min(RUN_UP_BYTES)), to)?;
        }
        begin.record(copies.stream())?;
        work(copies)?;
        end.record(copies.stream())?;
        end.wait()?;
        copies.finished()?;
        Ok(end.since(&begin)?)
    }

    /// The number of rounds of `Kernels::burn` over `floats` that take as long as `wanted`.
    pub fn rounds_for(&self, floats: &Span, wanted: Duration) -> Outcome<u32> {
        let burn = |rounds: u32| self.timed(&self.stream, || Ok(self.kernels.burn(&self.stream, floats, rounds)?));
        burn(100)?;
        let mut rounds = 100;
        loop {
            let took = burn(rounds)?.max(Duration::from_micros(1));
            if took >= wanted / 4 || rounds >= 1 << 24 {
                let factor = wanted.as_secs_f64() / took.as_secs_f64();
                return Ok((f64::from(rounds) * factor).ceil().max(1.0) as u32);
            }
            rounds *= 4;
        }
    }
}

/// A part of a span.
pub fn part(of: &Span, start: usize, len: usize) -> Outcome<Span> {
    of.slice(start..start + len).ok_or_else(|| "a part lies outside of its span".into())
}

/// Pinned memory full of random bytes, and the guard that keeps it pinned.
pub fn pinned(context: &Context, bytes: usize) -> Outcome<(Pinned, Bytes)> {
    let (arena, mut all) = Arena::reserve(bytes)?;
    arena.populate(0..bytes)?;
    all.as_mut().copy_from_slice(&random(bytes, 1));
    Ok((Pinned::new(context, &arena)?, Bytes::from_owner(all)))
}

/// Random bytes, so that no repetition in the data can make anything faster.
pub fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// The time limit of a section.
pub struct Limits {
    end: Instant,
    all: Duration,
}

impl Limits {
    pub fn new(all: Duration) -> Limits {
        Limits { end: Instant::now() + all, all }
    }

    /// The section's whole time.
    pub fn all(&self) -> Duration {
        self.all
    }

    /// Whether to run another round: at least `least` rounds, whatever the time is, and at most `most`.
    pub fn goes_on(&self, round: usize, least: usize, most: usize) -> bool {
        round < least || (round < most && Instant::now() < self.end)
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

/// Bytes per second.
pub fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64().max(1e-9)
}

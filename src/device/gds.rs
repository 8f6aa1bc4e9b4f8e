//! Decides whether to read files straight into a GPU's memory: checks the preconditions, compares one read byte by
//! byte, and runs a short trial against reading into pinned memory and copying.

use super::lane::Shadow;
use super::{BatchBytes, Opened, pin};
use crate::collate::{Collation, Form};
use crate::config::GdsCause;
use crate::config::{Cause, Config, Device, EngineChoice, Fallback, Gds, GdsRoute, GdsTrial, OnError};
use crate::engine::{self, Engine, PINNED, Read, STRAIGHT_BYTES, Straight};
use crate::gds::{self, Facts};
use crate::patience::Patience;
use crate::plan::{BatchPlan, Layout, PlannedRead};
use crate::pool::Pool;
use crate::queue::Bell;
use crate::sampler::Order;
use crate::stats::Stats;
use crate::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use uringload_sys::cuda::{Context, Copies, CudaError, DeviceMemory, Span};
use uringload_sys::numa::Near;
use uringload_sys::{Arena, system};

/// Duration of each of the two trials.
const TRIAL: Duration = Duration::from_millis(200);

/// How much longer than that a trial may take to finish.
const BOUND: Duration = Duration::from_secs(5);

/// Host memory for a trial of the pinned path, unless a single read is longer.
const TRIAL_BYTES: u64 = 64 << 20;

/// Maximum number of batches and reads in a trial.
const TRIAL_BATCHES: usize = 64;
const TRIAL_READS: usize = 4096;

/// Number of files to try for a successful first read.
const FILES_TRIED: usize = 4;

/// GDS is chosen if it is at least `FASTER` times as fast as the pinned path, or if it is at least `AS_FAST` times as
/// fast with at most `CHEAPER` times the CPU time. The margins suit such a short trial.
const FASTER: f64 = 1.02;
const AS_FAST: f64 = 0.99;
const CHEAPER: f64 = 0.9;

/// Device memory is taken in multiples of this.
const UNIT: usize = 2 << 20;

/// Alignment of addresses for direct reads.
const ALIGNMENT: u64 = 4096;

/// What the choice depends on.
pub(crate) struct Asked<'a> {
    pub(crate) config: &'a Config,
    pub(crate) order: &'a Order,
    pub(crate) collation: &'a Arc<Collation>,
    pub(crate) batch: BatchBytes,
    /// Bytes of memory for samples.
    pub(crate) pool_bytes: usize,
}

/// GPU memory that files are read into, and what reads them.
pub(crate) struct Loading {
    /// Lends the memory out.
    pub(crate) pool: Pool,
    pub(crate) straight: Arc<Straight>,
    pub(super) route: GdsRoute,
}

/// A fallback, which is an error if GDS was requested by name.
type Step<T> = std::result::Result<T, Box<Fallback>>;

impl Loading {
    pub(super) fn shadow(&self) -> Shadow {
        Shadow { host: self.pool.arena().address(), span: self.straight.memory().clone() }
    }
}

/// Decides whether to read files straight into the device's memory. If not, reports why, unless it was not wanted.
///
/// # Errors
/// `Unavailable` if it was requested by name.
pub(crate) fn choose(opened: &mut Opened, devices: &[Device], asked: &Asked<'_>) -> Result<Option<Loading>> {
    let insists = devices.iter().any(|device| device.gds == Gds::On);
    if !insists && devices.iter().all(|device| device.gds == Gds::Off) {
        return Ok(None);
    }
    let (Some(context), Some(device)) = (opened.contexts.first().cloned(), devices.first()) else {
        return if insists { Err(unavailable(&work("batches stay on the host"))) } else { Ok(None) };
    };
    let mut said = Vec::new();
    let attempt = if opened.contexts.len() > 1 {
        Err(work("batches go to several GPUs in turn, and files are read into the memory of one"))
    } else {
        attempt(&context, device, asked, insists, &mut said)
    };
    match attempt {
        Ok(loading) => {
            opened.fallbacks.append(&mut said);
            Ok(Some(loading))
        }
        Err(step) if insists => Err(unavailable(&step)),
        Err(step) => {
            opened.fallbacks.push(*step);
            Ok(None)
        }
    }
}

/// Falls back to the pinned path when the device's memory is too small next to the memory taken for files.
///
/// # Errors
/// `error`, if GDS was requested by name or the error is not `MemoryLimit`.
pub(crate) fn give_up(opened: &mut Opened, devices: &[Device], error: Error) -> Result<()> {
    if error.kind() != ErrorKind::MemoryLimit || devices.iter().any(|device| device.gds == Gds::On) {
        return Err(error);
    }
    opened.fallbacks.push(Fallback::new(Cause::Gds(GdsCause::Memory), PINNED, None).with_reason(error.to_string()));
    Ok(())
}

fn attempt(
    context: &Context,
    device: &Device,
    asked: &Asked<'_>,
    insists: bool,
    said: &mut Vec<Fallback>,
) -> Step<Loading> {
    guard_work(asked)?;
    engine::suits(asked.config, asked.order.dataset(), insists)?;
    let search = device.search.clone();
    let facts = Facts::read(&search.root);
    gds::guard(&facts)?;
    let layout =
        Layout { alignment: ALIGNMENT, read_bytes: engine::STRAIGHT_READ_BYTES as u64, coalesce_gap: 0, border: 0 };
    let layout = Layout { coalesce_gap: asked.config.coalesce_gap.unwrap_or(0), ..layout };
    let reads = planned(asked, layout, 0);
    let candidates = candidates(reads);
    let longest = candidates.first().copied();
    if !insists && longest.is_none_or(|read| read.len < STRAIGHT_BYTES) {
        let len = longest.map_or(0, |read| read.len);
        let reason = format!("reads of this work are of up to {len} bytes; below {STRAIGHT_BYTES} the host is faster");
        return Err(Box::new(Fallback::new(Cause::Gds(GdsCause::Slower), PINNED, None).with_reason(reason)));
    }
    let (bound, check_every) = (search.bound, search.check_every);
    let current = context.clone();
    let opened = gds::open(&facts, search, move || {
        // It stays current: the thread ends with what it opens.
        current.adopt().map(std::mem::forget).map_err(|error| error.to_string())
    })?;
    said.extend(opened.said);
    let (version, way) = (opened.cufile.version(), opened.mode);
    let memory = take_memory(context, device, asked)?;
    let bytes = memory.len();
    let (config, dataset, context_there) = (asked.config.clone(), Arc::clone(asked.order.dataset()), context.clone());
    let cufile = opened.cufile;
    let made = within(bound, move || Straight::new(&config, &dataset, (cufile, &context_there), memory, check_every));
    let (straight, limit) = made.ok_or_else(|| hangs("to register the GPU's memory"))??;
    said.extend(limit);
    let straight = Arc::new(straight);
    let (arena, whole) = Arena::shadow(bytes).map_err(|error| memory_step(error.to_string()))?;
    let pool = Pool::of_shadow(arena, whole, 0, Arc::new(Bell::new()));
    let route = GdsRoute {
        way: way.to_string(),
        version: version.map(|version| version.to_string()),
        memory_bytes: bytes as u64,
        registered_bytes: straight.registered_bytes(),
        trial: None,
    };
    let mut loading = Loading { pool, straight, route };
    let mut failed = None;
    for (index, &read) in candidates.iter().enumerate() {
        match prove(&mut loading, asked, read) {
            Ok(()) => break,
            // One bad file is left to its samples to report. Further fallbacks would be the same.
            Err(step) if matches!(step.cause, Cause::Gds(GdsCause::File) | Cause::Gds(GdsCause::Read)) => {
                let first = failed.get_or_insert(step);
                if index + 1 == candidates.len() {
                    return Err(first.clone());
                }
            }
            Err(step) => return Err(step),
        }
    }
    said.extend(failed.map(|step| *step));
    if !insists {
        let trial = compare(&mut loading, context, asked)?;
        loading.route.trial = Some(trial);
    }
    Ok(loading)
}

/// Checks that the host need not see the bytes, and that the engine was not chosen by name.
fn guard_work(asked: &Asked<'_>) -> Step<()> {
    let Asked { config, order, collation, .. } = asked;
    let dataset = order.dataset();
    if !asked.collation.mapped_fields().is_empty() {
        return Err(work("the loader's threads decode or transform columns, so what is read must lie on the host"));
    }
    if dataset.units().is_some() || dataset.index().parse_reads_bytes {
        let format = dataset.format();
        return Err(work(&format!("samples of this {format} dataset are made of their bytes by the host")));
    }
    if config.engine != EngineChoice::Auto {
        return Err(work("another engine was asked for by its name"));
    }
    if config.on_error == OnError::Replace {
        return Err(work("samples that stand in for others are copied by the host"));
    }
    if collation.forms().iter().any(|form| matches!(form, Form::Views)) {
        return Err(work("views are slices of the host's memory"));
    }
    Ok(())
}

/// Takes as much device memory as the host's pool would have, or less, but at least enough for one batch.
fn take_memory(context: &Context, device: &Device, asked: &Asked<'_>) -> Step<Span> {
    let least = (asked.batch.read as usize).next_multiple_of(UNIT);
    // The rest of a batch takes about as much again there.
    let most = device.memory_limit.map_or(usize::MAX, |bytes| (bytes / 2) as usize / UNIT * UNIT);
    let mut bytes = asked.pool_bytes.next_multiple_of(UNIT).min(most);
    while bytes >= least {
        match aligned_memory(context, bytes) {
            Ok(Some(span)) => return Ok(span),
            Ok(None) => break,
            Err(error) if error.is_out_of_memory() => bytes = (bytes / 2 / UNIT * UNIT).min(bytes - UNIT),
            Err(error) => return Err(memory_step(error.to_string())),
        }
    }
    Err(memory_step(format!("the GPU has no memory for the {least} bytes of a batch beside its columns")))
}

/// `cuMemAlloc` guarantees multiples of 256, and in practice gives multiples of 2 MiB for such lengths. If it does not,
/// take a little more.
fn aligned_memory(context: &Context, bytes: usize) -> std::result::Result<Option<Span>, CudaError> {
    let memory = DeviceMemory::new(context, bytes)?;
    if memory.address().is_multiple_of(ALIGNMENT) {
        return Ok(Span::new(&memory, 0..bytes));
    }
    drop(memory);
    let memory = DeviceMemory::new(context, bytes + ALIGNMENT as usize)?;
    let start = (memory.address().next_multiple_of(ALIGNMENT) - memory.address()) as usize;
    Ok(Span::new(&memory, start..start + bytes))
}

/// The reads of every second batch, starting with the first or the second, even past the end of the order.
fn planned(asked: &Asked<'_>, layout: Layout, parity: usize) -> Vec<PlannedRead> {
    let mut planner = asked.order.endless().planner(layout).with_collation(Arc::clone(asked.collation));
    let (mut plan, mut reads, mut first) = (BatchPlan::default(), Vec::new(), Vec::new());
    for batch in 0..TRIAL_BATCHES {
        if reads.len() >= TRIAL_READS || !planner.next(&mut plan) {
            break;
        }
        let of_batch = plan.issue_order.iter().map(|&index| plan.reads[index as usize]);
        let of_batch = of_batch.take(TRIAL_READS).filter(|read| read.len > 0);
        if batch == 0 {
            first = of_batch.clone().collect();
        }
        if batch % 2 == parity {
            reads.extend(of_batch);
        }
    }
    if reads.is_empty() { first } else { reads }
}

/// The longest read of each of a few files, longest first.
fn candidates(mut reads: Vec<PlannedRead>) -> Vec<PlannedRead> {
    reads.sort_by_key(|read| std::cmp::Reverse(read.need));
    let mut longest: Vec<PlannedRead> = Vec::new();
    for read in reads {
        if longest.len() < FILES_TRIED && longest.iter().all(|other| other.file != read.file) {
            longest.push(read);
        }
    }
    longest
}

/// Reads once, and compares the bytes on the device with those of the file.
fn prove(loading: &mut Loading, asked: &Asked<'_>, read: PlannedRead) -> Step<()> {
    let failed = |cause, what: String| Err(Box::new(Fallback::new(cause, PINNED, None).with_reason(what)));
    let stats = Arc::new(Stats::new());
    let unopened = |error: Error| Box::new(Fallback::new(Cause::Gds(GdsCause::Work), PINNED, None).with_error(&error));
    let mut engine = loading.straight.open(asked.config, &stats).map_err(unopened)?.engine;
    // Read to a place after other bytes: part of the proof is that the buffer offset is respected.
    let len = read.len.min(loading.straight.registered_bytes() / 2 / ALIGNMENT * ALIGNMENT) as usize;
    let before = loading.pool.take_exact(len);
    let Some(part) = loading.pool.take_exact(len) else { return Err(work("there is no room for a first read")) };
    before.into_iter().for_each(|part| loading.pool.give(part));
    let (start, reads) = (part.offset(), loading.straight.reads());
    engine.start(Read { tag: 0, file: read.file, offset: read.offset, part, pieces: Vec::new() });
    let (begin, mut done) = (Instant::now(), Vec::new());
    while done.is_empty() && begin.elapsed() < BOUND {
        engine.turn(Some(BOUND), &mut done).map_err(|error| work(&error.to_string()))?;
    }
    let Some(done) = done.pop() else {
        engine.abandon(0);
        return Err(hangs("a first read"));
    };
    loading.pool.give(done.part);
    let by_cufile = loading.straight.reads() > reads || (len as u64) < STRAIGHT_BYTES;
    if let Some(step) = engine.said().filter(|_| !by_cufile) {
        return Err(Box::new(step));
    }
    let files = asked.order.dataset().files();
    let got = match done.result {
        Ok(got) => got,
        Err(error) => {
            return failed(Cause::Gds(GdsCause::Read), format!("{}: {error}", files.path(read.file).display()));
        }
    };
    if !by_cufile {
        return failed(
            Cause::Gds(GdsCause::File),
            format!("{}: cuFile did not read it", files.path(read.file).display()),
        );
    }
    let (mut there, mut here) = (vec![0; got], vec![0; got]);
    let span = loading.straight.memory().slice(start..start + got);
    let copied = span.map(|span| span.read(&mut there));
    if let Some(Err(error)) = copied {
        return failed(Cause::Gds(GdsCause::Proof), format!("a first read cannot be compared: {error}"));
    }
    if got == 0 || !read_here(files.path(read.file).as_path(), read.offset, &mut here) {
        return failed(
            Cause::Gds(GdsCause::Proof),
            format!("{} could not be read to compare", files.path(read.file).display()),
        );
    }
    match there.iter().zip(&here).position(|(there, here)| there != here) {
        None => Ok(()),
        Some(at) => {
            let (file, at) = (files.path(read.file), read.offset + at as u64);
            failed(Cause::Gds(GdsCause::Proof), format!("byte {at} of {} is another one on the GPU", file.display()))
        }
    }
}

/// Fills `into` using `pread(2)`.
fn read_here(path: &std::path::Path, offset: u64, into: &mut [u8]) -> bool {
    use std::os::unix::fs::FileExt;
    uringload_sys::file::open_regular(path).is_ok_and(|file| file.read_exact_at(into, offset).is_ok())
}

/// Tries both ways on the files.
///
/// # Errors
/// If GDS does not win.
fn compare(loading: &mut Loading, context: &Context, asked: &Asked<'_>) -> Step<[GdsTrial; 2]> {
    let failed = |error: Error| Box::new(step(Cause::Gds(GdsCause::Work), String::new()).with_error(&error));
    let stats = Arc::new(Stats::new());
    let opened = loading.straight.open(asked.config, &stats).map_err(failed)?;
    let layout = |bytes: usize| Layout {
        alignment: ALIGNMENT,
        read_bytes: (bytes as u64).next_multiple_of(ALIGNMENT),
        coalesce_gap: asked.config.coalesce_gap.unwrap_or(0),
        border: 0,
    };
    let reads = planned(asked, layout(opened.route.read_bytes), 0);
    let gds = Trial { engine: opened.engine, pool: &mut loading.pool, copies: None }.run(&reads)?;
    let patience = Patience::of(asked.config);
    let opened = engine::open(asked.config, asked.order.dataset(), &stats, &patience).map_err(failed)?;
    let reads = planned(asked, layout(opened.route.read_bytes), 1);
    let longest = reads.iter().map(|read| read.len).max().unwrap_or(0);
    let bytes = TRIAL_BYTES.max(2 * longest).min(loading.pool.bytes() as u64) as usize;
    let mut pool = Pool::new(bytes, 0, Arc::new(Bell::new())).map_err(failed)?;
    let near = Near::to(Path::new("/"), &[&context.info().pci]);
    let _pinned = pin(context, near.as_ref(), &mut pool, &mut Vec::new()).map_err(failed)?;
    let mut engine = opened.engine;
    // Ignore a refusal: the loader would have been refused as well.
    let _ = engine.register(pool.arena(), 0..pool.backed_bytes());
    let copies = Copies::new(context).map_err(|error| work(&error.to_string()))?;
    let to = loading.straight.memory().clone();
    let pinned = Trial { engine, pool: &mut pool, copies: Some((copies, to)) }.run(&reads)?;
    if is_better(gds, pinned) {
        return Ok([gds, pinned]);
    }
    let reason = format!("a trial of {} ms on the files gave {gds}, pinned {pinned}", TRIAL.as_millis());
    Err(Box::new(Fallback::new(Cause::Gds(GdsCause::Slower), PINNED, None).with_reason(reason)))
}

fn is_better(gds: GdsTrial, pinned: GdsTrial) -> bool {
    let (rate, other) = (gds.rate(), pinned.rate());
    rate >= other * FASTER || (rate >= other * AS_FAST && gds.cpu_per_gb() <= pinned.cpu_per_gb() * CHEAPER)
}

/// The trial of one way.
struct Trial<'a> {
    engine: Box<dyn Engine>,
    pool: &'a mut Pool,
    /// The destination of copies, unless reads already go there.
    copies: Option<(Copies, Span)>,
}

impl Trial<'_> {
    /// Reads for the duration of a trial, repeating reads if necessary, and waits until all data has arrived.
    fn run(mut self, reads: &[PlannedRead]) -> Step<GdsTrial> {
        let failed = |error: std::io::Error| Box::new(step(Cause::Gds(GdsCause::Read), format!("a trial: {error}")));
        let (start, cpu, mut bytes) = (Instant::now(), system::cpu_time(), 0);
        let (mut done, mut under_way, mut next) = (Vec::new(), Vec::new(), 0);
        loop {
            let is_over = start.elapsed() >= TRIAL || reads.is_empty();
            while !is_over && self.engine.room() > 0 {
                let PlannedRead { file, offset, len, .. } = reads[next % reads.len()];
                let Some(mut part) = self.pool.take_exact(len as usize) else { break };
                self.pool.give(part.split_off(len as usize));
                self.engine.start(Read { tag: next as u64, file, offset, part, pieces: Vec::new() });
                under_way.push(next as u64);
                next += 1;
            }
            let copying = self.copies.as_ref().is_some_and(|(copies, _)| copies.under_way() > 0);
            if is_over && self.engine.in_flight() == 0 && !copying {
                break;
            }
            if start.elapsed() > TRIAL + BOUND {
                // Reads still in progress keep their memory, and none of it is used again.
                under_way.iter().for_each(|&tag| self.engine.abandon(tag));
                return Err(hangs("a trial"));
            }
            let wait = if copying { Duration::from_micros(100) } else { Duration::from_millis(5) };
            self.engine.turn(Some(wait), &mut done).map_err(failed)?;
            for done in done.drain(..) {
                under_way.retain(|&tag| tag != done.tag);
                let got = done.result.map_err(failed)?;
                bytes += got as u64;
                match &mut self.copies {
                    None => self.pool.give(done.part),
                    Some((copies, to)) => {
                        let block = self.pool.lease(done.part).slice(..got);
                        let to = to.slice(0..got).ok_or_else(|| work("a trial read too much"))?;
                        copies.start(block, &to).map_err(|error| failed(std::io::Error::other(error)))?;
                    }
                }
            }
            if let Some((copies, _)) = &mut self.copies {
                copies.finished().map_err(|error| failed(std::io::Error::other(error)))?;
            }
            self.pool.collect();
        }
        Ok(GdsTrial { bytes, time: start.elapsed(), cpu: system::cpu_time().saturating_sub(cpu) })
    }
}

/// Runs `work` on a thread of its own. If it takes longer than `bound`, returns `None` and leaves the thread alone.
fn within<T: Send + 'static>(bound: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("uringload-cufile".into());
    thread
        .spawn(move || {
            // If the result is late, it has no receiver any more, and is dropped.
            let _ = tell.send(work());
        })
        .ok()?;
    told.recv_timeout(bound).ok()
}

fn step(cause: Cause, reason: String) -> Fallback {
    Fallback::new(cause, PINNED, None).with_reason(reason)
}

fn work(reason: &str) -> Box<Fallback> {
    Box::new(step(Cause::Gds(GdsCause::Work), reason.to_owned()))
}

fn memory_step(reason: String) -> Box<Fallback> {
    Box::new(step(Cause::Gds(GdsCause::Memory), reason))
}

fn hangs(what: &str) -> Box<Fallback> {
    Box::new(step(
        Cause::Gds(GdsCause::Timeout),
        format!("cuFile did not return from {what}; its thread is left alone"),
    ))
}

fn unavailable(step: &Fallback) -> Error {
    Error::new(ErrorKind::Unavailable, format!("gds was asked for, but {}", step.reason))
        .with_remedy(format!("{}; or let gds be auto, which takes the pinned path", step.remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One second of a trial: this many megabytes for this much CPU time.
    fn trial(megabytes: u64, cpu_ms: u64) -> GdsTrial {
        let (time, cpu) = (Duration::from_secs(1), Duration::from_millis(cpu_ms));
        GdsTrial { bytes: megabytes * 1_000_000, time, cpu }
    }

    #[test]
    fn what_is_slower_is_never_taken_and_what_is_as_fast_only_where_it_is_cheaper() {
        let pinned = trial(1000, 500);
        for (gds, is_taken) in [
            (trial(1020, 5000), true),
            (trial(1019, 500), false),
            (trial(1000, 400), true),
            (trial(990, 400), true),
            (trial(989, 1), false),
            (trial(0, 0), false),
        ] {
            assert_eq!(is_better(gds, pinned), is_taken, "{gds}, pinned {pinned}");
        }
        assert_eq!(pinned.to_string(), "1.00 GB/s at 0.500 s of CPU a GB");
    }
}

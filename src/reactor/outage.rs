//! Retries reads that failed for a reason that may pass. They wait and are read again, and a sample fails only when its
//! own bytes are to blame. While no file of a root can be read, or the machine has no room to read, no sample fails.
//!
//! A failed read is read again after a pause that grows. It fails for good once other reads of its root, begun after
//! its failure, have succeeded several times. If there are no other reads, a probe is made: a read at a random place of
//! the root, into the memory of the waiting read. Half of the probes avoid files with reads under way, because one of
//! those may never end; the other half do not, because all other files may be broken. Where a server asks for fewer
//! requests, or credentials have expired, other reads prove nothing: then time alone decides. Where every answer says
//! that waiting will hardly help, that time is short.

use super::classes::{Class, asked_pause, is_hopeless};
use super::pending::Pending;
use super::{REPAIRS, Reactor};
use crate::dataset::{FileId, FileTable};
use crate::engine::{self, Done, Engine, Read};
use crate::stats::Outage;
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use uringload_sys::Part;

/// How often a read may fail while others of its root succeed.
const FAILURES_ALONE: u32 = 3;

/// Pause before the first retry, what it grows by, and the longest one.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_GROWS: u32 = 3;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Longest pause that a server can ask for.
const PAUSE_ASKED_MAX: Duration = Duration::from_secs(60);

/// The part of the reads in flight that is left if the machine has no room for more.
const HALF: f64 = 0.5;

/// Longest outage of a root whose every answer says that waiting will hardly help.
const HOPELESS_MAX: Duration = Duration::from_secs(10);

/// Retries before a probe is made. Most errors that pass have passed by then.
const RETRIES_BEFORE_PROBES: u32 = 2;

/// Delay before a second look: a read that failed for its own sake is repeated where its samples would be listed as
/// bad.
const SECOND_LOOK: Duration = Duration::from_millis(250);

/// How many random files to draw for a probe: some are empty.
const FILES_DRAWN: u32 = 8;

/// All reads that wait for a retry, and the state of their roots.
pub(super) struct Outages {
    /// Limit for a root that returns nothing, or for a read that the machine has no room for. `None`: no limit.
    timeout: Option<Duration>,
    /// By root.
    roots: Vec<Root>,
    /// By the read's tag, in order: each process draws the same probes.
    troubles: BTreeMap<u64, Trouble>,
    random: SplitMix64,
    /// How long the kernel has taken no read at all, and its answer.
    denied: Option<(Duration, String)>,
    /// Whether an outage was reported and its end was not.
    is_told: bool,
}

/// The state of a root.
#[derive(Clone, Default)]
struct Root {
    /// When the last successful read began.
    worked: Option<Instant>,
    /// The first failure after that.
    down_since: Option<Instant>,
    /// The first failure since which all say that waiting will hardly help.
    hopeless_since: Option<Instant>,
    /// Whether a probe is in flight.
    is_probed: bool,
}

/// A read that failed.
struct Trouble {
    class: Class,
    root: usize,
    /// The read, while it waits, and when it is due.
    waits: Option<(Instant, Read)>,
    /// If it was put off: until when it counts as in flight. The server may ask for far longer.
    counts_until: Option<Instant>,
    /// Its first failure.
    since: Instant,
    /// The first of its last failures, if all of them since are the machine's or the name's.
    unable_since: Instant,
    /// Its last failure.
    failed: Instant,
    retries: u32,
    /// Failures while other reads succeeded.
    alone: u32,
    /// Whether the read in flight, or the last one, is a probe.
    probe: Probe,
    error: Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    No,
    InFlight,
    Failed,
}

impl Trouble {
    /// A read that fails for the first time.
    fn new((class, root): (Class, usize), now: Instant, error: Error) -> Trouble {
        Trouble {
            class,
            root,
            waits: None,
            counts_until: None,
            since: now,
            unable_since: now,
            failed: now,
            retries: 0,
            alone: 0,
            probe: Probe::No,
            error,
        }
    }
}

impl Outages {
    pub(super) fn new(timeout: Option<Duration>, roots: usize, seed: u64) -> Outages {
        Outages {
            timeout,
            roots: vec![Root::default(); roots],
            troubles: BTreeMap::new(),
            random: SplitMix64::seed_from_u64(seed),
            denied: None,
            is_told: false,
        }
    }

    /// Whether every failed read has been read since.
    pub(super) fn is_quiet(&self) -> bool {
        self.troubles.is_empty()
    }

    /// Reads that wait, and count as in flight. Those that a server has put off for long do not count for all that
    /// time, where others were read lately.
    pub(super) fn waiting(&self, engine: &dyn Engine) -> usize {
        if self.is_quiet() {
            return 0;
        }
        let now = engine.now();
        let counts = |trouble: &&Trouble| {
            let is_over = trouble.counts_until.is_some_and(|until| until <= now);
            let down_since = self.roots[trouble.root].down_since;
            let is_down = down_since.is_some_and(|since| now.saturating_duration_since(since) >= PAUSE_MAX);
            trouble.waits.is_some() && (!is_over || is_down)
        };
        self.troubles.values().filter(counts).count()
    }

    /// When the next one is due, or counts no more.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let of = |trouble: &Trouble| {
            let (due, _) = trouble.waits.as_ref()?;
            Some(trouble.counts_until.filter(|until| *until > now).map_or(*due, |until| until.min(*due)))
        };
        self.troubles.values().filter_map(of).min()
    }

    /// Forgets a read that was settled or given up.
    pub(super) fn forget(&mut self, tag: u64) {
        if let Some(trouble) = self.troubles.remove(&tag)
            && trouble.probe == Probe::InFlight
        {
            self.roots[trouble.root].is_probed = false;
        }
    }

    /// Removes and returns the waiting reads whose tags match.
    pub(super) fn take_waiting(&mut self, is_one: impl Fn(u64) -> bool) -> Vec<Read> {
        let mut reads = Vec::new();
        self.troubles.retain(|&tag, trouble| {
            let waits = if is_one(tag) { trouble.waits.take() } else { None };
            let stays = waits.is_none();
            reads.extend(waits.map(|(_, read)| read));
            stays
        });
        reads
    }

    /// Notes that a read of the root, begun at `began`, succeeded.
    fn worked(&mut self, root: usize, began: Instant) {
        let root = &mut self.roots[root];
        root.worked = root.worked.max(Some(began));
        for since in [&mut root.down_since, &mut root.hopeless_since] {
            *since = since.filter(|since| *since >= began);
        }
    }

    /// Whether a probe is in flight under this read's tag. However late the probe ends, it does not count for the read,
    /// and its bytes are not the read's.
    pub(super) fn is_elsewhere(&self, tag: u64) -> bool {
        self.why_elsewhere(tag).is_some()
    }

    /// Whether a read was made again after it had failed for its own sake.
    fn was_looked_at_again(&self, tag: u64) -> bool {
        self.troubles.get(&tag).is_some_and(|trouble| trouble.class == Class::File)
    }

    /// The read's own error, if a probe is in flight under its tag.
    pub(super) fn why_elsewhere(&self, tag: u64) -> Option<&Error> {
        let trouble = self.troubles.get(&tag).filter(|trouble| trouble.probe == Probe::InFlight);
        trouble.map(|trouble| &trouble.error)
    }

    /// How long this read waits, while its root gives nothing `since` then. `None` if it was put off, and its own time
    /// is over: `asked` is what the server asks for.
    fn pause(&mut self, tag: u64, (now, since): (Instant, Instant), asked: Duration) -> Option<Duration> {
        let trouble = self.troubles.get_mut(&tag)?;
        let grown = pause(trouble.retries);
        trouble.counts_until = None;
        if !trouble.class.is_put_off() {
            return Some(grown);
        }
        let own = jittered(&mut self.random, grown);
        trouble.counts_until = Some(now + own);
        let pause = asked.min(PAUSE_ASKED_MAX).max(own);
        // The last attempt comes when the time of the read, or of its root, is over.
        let left = |since| self.timeout.map_or(pause, |timeout| timeout.saturating_sub(now.duration_since(since)));
        Some(pause.min(left(since)).min(left(trouble.since))).filter(|pause| !pause.is_zero())
    }

    /// Takes the reads that are due. If no read of the root has ended since a read failed, a probe takes its place.
    fn due(&mut self, now: Instant, (files, alignment): (&FileTable, u64), pending: &VecDeque<Pending>) -> Vec<Read> {
        let (mut due, mut busy) = (Vec::new(), None);
        for (&tag, trouble) in &mut self.troubles {
            let Some((_, mut read)) = trouble.waits.take_if(|(due, _)| *due <= now) else { continue };
            let root = &mut self.roots[trouble.root];
            let wants = trouble.class == Class::Storage && trouble.retries >= RETRIES_BEFORE_PROBES;
            let is_known = root.worked > Some(trouble.failed);
            let may = wants && !is_known && !root.is_probed && trouble.probe == Probe::No;
            trouble.probe = Probe::No;
            let is_busy = |file: FileId| {
                let of = |pending: &VecDeque<Pending>| pending.iter().flat_map(Pending::files_under_way).collect();
                busy.get_or_insert_with(|| -> HashSet<FileId> { of(pending) }).contains(&file)
            };
            if may && let Some((file, offset)) = elsewhere(&mut self.random, trouble.root, (files, alignment), is_busy)
            {
                (trouble.probe, root.is_probed) = (Probe::InFlight, true);
                read = Read { tag, file, offset, part: read.part, pieces: Vec::new() };
            }
            due.push(read);
        }
        due
    }

    /// The outage to report: the one that has lasted longest.
    fn worst(&self, now: Instant, files: &FileTable) -> Option<Outage> {
        if let Some((lasting, cause)) = self.denied.clone() {
            return Some(Outage { path: None, lasting, cause });
        }
        let since = |trouble: &&Trouble| match trouble.class {
            Class::Storage | Class::Throttled | Class::Expired | Class::Place => self.roots[trouble.root].down_since,
            Class::Machine | Class::Name => Some(trouble.unable_since),
            // A second look.
            Class::Interrupted | Class::Device | Class::File => None,
        };
        let worst = self.troubles.values().filter(|trouble| since(trouble).is_some()).min_by_key(since)?;
        let path = (worst.class != Class::Machine).then(|| files.roots()[worst.root].clone());
        let lasting = now.saturating_duration_since(since(&worst)?);
        Some(Outage { path, lasting, cause: worst.error.headline().to_string() })
    }
}

/// A random place of a root, every other time rather in a file without reads under way. `None` if its files seem to be
/// empty.
fn elsewhere(
    random: &mut SplitMix64,
    root: usize,
    (files, alignment): (&FileTable, u64),
    mut is_busy: impl FnMut(FileId) -> bool,
) -> Option<(FileId, u64)> {
    let avoids = random.next_u64().is_multiple_of(2);
    let of_root = files.files_of(root);
    let draws = (0..FILES_DRAWN).map(|_| {
        let file = FileId(of_root.start + (random.next_u64() % of_root.len().max(1) as u64) as u32);
        (file, random.next_u64())
    });
    let mut found = draws.filter(|(file, _)| files.size(*file) > 0);
    let first = found.next()?;
    let other = if avoids && is_busy(first.0) { found.find(|(file, _)| !is_busy(*file)) } else { None };
    let (file, draw) = other.unwrap_or(first);
    Some((file, draw % files.size(file) / alignment * alignment))
}

fn pause(retries: u32) -> Duration {
    PAUSE.saturating_mul(PAUSE_GROWS.saturating_pow(retries)).min(PAUSE_MAX)
}

/// A pause between half and one and a half times as long, so that the ranks of a job do not all come back at once.
fn jittered(random: &mut SplitMix64, pause: Duration) -> Duration {
    pause / 2 + pause.mul_f64(f64::from(random.next_u32()) / f64::from(u32::MAX))
}

impl Reactor {
    /// Moves the reads whose pause is over to the reads that are issued next.
    pub(super) fn read_again(&mut self, engine: &dyn Engine) {
        if self.outages.is_quiet() {
            return;
        }
        let (files, alignment) = (self.planner.dataset().files(), self.planner.layout().alignment);
        self.reads.again.extend(self.outages.due(engine.now(), (files, alignment), &self.pending));
    }

    /// Notes that a read succeeded, if any waiting read depends on it. Returns the read again if it was a probe: its
    /// memory is then free for the read that waits.
    pub(super) fn note_end(&mut self, done: Done, engine: &dyn Engine) -> Option<Done> {
        if self.outages.is_quiet() {
            return Some(done);
        }
        let tag = done.tag;
        let probe = self.outages.troubles.get_mut(&tag).filter(|trouble| trouble.probe == Probe::InFlight);
        if let Some(trouble) = probe {
            let root = trouble.root;
            self.outages.roots[root].is_probed = false;
            let (now, latency) = (engine.now(), done.latency);
            let worked = done.result.is_ok();
            trouble.probe = if worked { Probe::No } else { Probe::Failed };
            let retries = trouble.retries;
            trouble.retries += u32::from(!worked);
            if worked {
                let began = now.checked_sub(latency).unwrap_or(now);
                self.outages.worked(root, began);
            }
            let due = if worked { now } else { now + pause(retries) };
            let part = done.part;
            match self.find(tag).map(|(pending, index)| pending.read_again(index, tag, part)) {
                Some(read) => {
                    if let Some(trouble) = self.outages.troubles.get_mut(&tag) {
                        trouble.waits = Some((due, read));
                    }
                }
                None => self.outages.forget(tag),
            }
            return None;
        }
        if done.result.is_ok()
            && let Some(file) = self.find(tag).map(|(pending, index)| pending.file_of(index))
        {
            let root = self.planner.dataset().files().root_of(file);
            let now = engine.now();
            self.outages.worked(root, now.checked_sub(done.latency).unwrap_or(now));
        }
        Some(done)
    }

    /// Decides whether a failed read waits or fails for good.
    ///
    /// # Errors
    /// The outage, if it has lasted too long.
    pub(super) fn trouble(&mut self, read: Read, source: io::Error, engine: &mut dyn Engine) -> Result<()> {
        let (tag, file, now) = (read.tag, read.file, engine.now());
        let dataset = std::sync::Arc::clone(self.planner.dataset());
        let files = dataset.files();
        let class = match Class::of(&source) {
            // It was not cancelled by us, yet it came back repeatedly: the kernel has no thread for reads that may
            // block in a ring.
            Class::Interrupted => Class::Machine,
            class => class,
        };
        if class == Class::Device {
            let error = Error::new(ErrorKind::Device, "the GPU failed while a file was read into its memory")
                .with_source(source)
                .with_path(files.path(file))
                .with_offset(read.offset)
                .with_remedy("see nvidia-smi and the kernel's log; build the loader again, in a new process");
            self.outages.forget(tag);
            self.fail_with(read, error.clone());
            return Err(error);
        }
        let lost = if class == Class::Name { engine.lost(file) } else { None };
        if class == Class::File || (class == Class::Name && lost.is_none()) {
            let error = read_error(source, files, &read);
            if self.deserves_another_look(tag) {
                self.look_again(read, error, (now, SECOND_LOOK));
                return Ok(());
            }
            // Other names may have come back after the read failed, and this one with them.
            if class == Class::Name && !self.outages.was_looked_at_again(tag) {
                self.look_again(read, error, (now, PAUSE));
                engine.renew(file);
                return Ok(());
            }
            self.outages.forget(tag);
            self.fail_with(read, error);
            return Ok(());
        }
        let (asked, root) = (asked_pause(&source), files.root_of(file));
        self.give_way(class, asked, engine);
        let is_hopeless = is_hopeless(&source, self.stats.count.bytes_read.get() > 0);
        let error = read_error(source, files, &read);
        let known = &mut self.outages.roots[root];
        if class != Class::Machine {
            known.down_since.get_or_insert(now);
            known.hopeless_since = known.hopeless_since.or(Some(now)).filter(|_| is_hopeless);
        }
        let is_lost = known.hopeless_since.is_some_and(|since| now.saturating_duration_since(since) >= HOPELESS_MAX);
        let new = || Trouble::new((class, root), now, error.clone());
        let trouble = self.outages.troubles.entry(tag).or_insert_with(new);
        // Open files can be read even if every name is gone, so successful reads prove nothing about a name. Opening
        // other names, as was just done, does.
        let is_alone = class == Class::Storage && trouble.retries > 0 && known.worked > Some(trouble.failed);
        trouble.alone += u32::from(is_alone);
        // A disk that was away before has nothing to do with the machine's room.
        if !trouble.class.is_of_one_read() {
            trouble.unable_since = now;
        }
        (trouble.class, trouble.failed, trouble.error) = (class, now, error.clone());
        if trouble.alone >= FAILURES_ALONE {
            self.outages.forget(tag);
            self.fail_with(read, error);
            return Ok(());
        }
        let since = if class.is_of_one_read() { trouble.unable_since } else { known.down_since.unwrap_or(now) };
        let (timeout, lasting) = (self.outages.timeout, now.saturating_duration_since(since));
        if is_lost || timeout.is_some_and(|timeout| lasting >= timeout) {
            let ended = ended_by(class, error.clone(), lost, (files, root), (lasting, is_lost));
            if self.is_reader() {
                // Others may read from other roots, so only this request fails.
                self.outages.forget(tag);
                self.fail_with(read, ended);
                return Ok(());
            }
            self.fail_with(read, error);
            return Err(ended);
        }
        let Some(pause) = self.outages.pause(tag, (now, since), asked) else {
            self.outages.forget(tag);
            self.fail_with(read, put_off(error, timeout));
            return Ok(());
        };
        if let Some(trouble) = self.outages.troubles.get_mut(&tag) {
            trouble.waits = Some((now + pause, read));
            trouble.retries += 1;
        }
        self.stats.count.retries.add(1);
        if class != Class::Machine {
            engine.renew(file);
        }
        Ok(())
    }

    /// Keeps fewer reads in flight, if there were too many.
    fn give_way(&mut self, class: Class, asked: Duration, engine: &mut dyn Engine) {
        let decision = match class {
            Class::Machine => self.reads.depth.refused(HALF, "the machine has no room for more"),
            Class::Throttled => self.reads.depth.throttled(asked),
            _ => None,
        };
        self.decided(decision, engine);
    }

    /// Whether a read that failed for its own sake is repeated once before its samples are listed as bad. A replacement
    /// is never listed: the next candidate is tried at once, and only the last one gets its time. So where every read
    /// fails, as a filter causes, samples do not wait for one replacement after the other.
    fn deserves_another_look(&self, tag: u64) -> bool {
        let is_spare = (tag >> 32) as u32 & REPAIRS != 0 && self.repair.has_others();
        self.failures.lists() && !is_spare && !self.outages.troubles.contains_key(&tag)
    }

    /// Repeats a read that would fail for its own sake, after that pause.
    fn look_again(&mut self, read: Read, error: Error, (now, pause): (Instant, Duration)) {
        let (tag, root) = (read.tag, self.planner.dataset().files().root_of(read.file));
        let of_file = Trouble::new((Class::File, root), now, error);
        let trouble = Trouble { waits: Some((now + pause, read)), retries: 1, ..of_file };
        self.outages.troubles.insert(tag, trouble);
        self.stats.count.retries.add(1);
    }

    /// Decides about a read that timed out, was cancelled and came back: if its samples would be listed as bad, it gets
    /// its time once more.
    pub(super) fn late(&mut self, read: Read, error: Error, good_end: u64, now: Instant) {
        let tag = read.tag;
        if self.deserves_another_look(tag) {
            self.look_again(read, error, (now, SECOND_LOOK));
            return;
        }
        self.outages.forget(tag);
        match self.find(tag) {
            Some((pending, index)) => pending.fail(index, read.part, good_end, error),
            None => self.pool.give(read.part),
        }
    }

    fn fail_with(&mut self, read: Read, error: Error) {
        let (tag, offset) = (read.tag, read.offset);
        match self.find(tag) {
            Some((pending, index)) => {
                // Where a file ends too early, what came before is good.
                let start = error.offset().filter(|at| *at == pending.good_end(index)).unwrap_or(offset);
                pending.fail(index, read.part, start, error);
            }
            None => self.pool.give(read.part),
        }
    }

    /// Notes whether the kernel takes reads at all. While it does not, no read fails, so nothing else would detect it.
    ///
    /// # Errors
    /// The kernel's answer, if it has taken no read for too long.
    pub(super) fn note_denied(&mut self, engine: &dyn Engine) -> Result<()> {
        let Some((lasting, source)) = engine.denied() else {
            self.outages.denied = None;
            return Ok(());
        };
        let cause = Error::io("the kernel takes no read (io_uring_enter)", source);
        if self.outages.timeout.is_some_and(|timeout| lasting >= timeout) {
            let what = format!("the kernel has taken no read for {:.1} s", lasting.as_secs_f64());
            return Err(Error::new(cause.kind(), what).with_source(cause).with_remedy(
                "free memory, or have the container's filter allow io_uring_enter; or take the engine \"threads\"; \
                 resume from the last state, or raise outage_timeout",
            ));
        }
        if lasting >= PAUSE_MAX {
            self.outages.denied = Some((lasting, cause.headline().to_string()));
        }
        Ok(())
    }

    /// Reports an outage, and its end, to the statistics.
    pub(super) fn tell_outage(&mut self, engine: &dyn Engine) {
        if self.outages.is_quiet() && self.outages.denied.is_none() && !self.outages.is_told {
            return;
        }
        let outage = self.outages.worst(engine.now(), self.planner.dataset().files());
        self.outages.is_told = outage.is_some();
        self.stats.set_outage(outage);
    }

    /// Whether only waiting reads keep the reactor from going on.
    pub(super) fn waits_out(&self, in_flight: usize) -> bool {
        in_flight == 0 && !self.outages.is_quiet()
    }
}

fn read_error(source: io::Error, files: &FileTable, read: &Read) -> Error {
    let mut error = engine::read_error(source, &files.path(read.file));
    // An error with a path already says more.
    if error.path().is_none() {
        error = error.with_path(files.path(read.file));
    }
    if error.offset().is_none() {
        error = error.with_offset(read.offset);
    }
    error
}

/// The error of one read that a server has put off until its time was over, while others of its root ended well.
fn put_off(error: Error, timeout: Option<Duration>) -> Error {
    let (path, offset) = (error.path().map(Path::to_owned).unwrap_or_default(), error.offset().unwrap_or_default());
    let what = format!("it was put off for {:?}, while others were read", timeout.unwrap_or_default());
    let remedy = error.remedy().unwrap_or("read with fewer ranks or a smaller queue_depth");
    let remedy = format!("{remedy}, or raise outage_timeout to wait longer");
    Error::new(error.kind(), what).with_path(path).with_offset(offset).with_source(error).with_remedy(remedy)
}

/// The error that ends the loader when an outage has lasted too long.
fn ended_by(
    class: Class,
    error: Error,
    lost: Option<String>,
    (files, root): (&FileTable, usize),
    (lasting, is_lost): (Duration, bool),
) -> Error {
    let seconds = lasting.as_secs_f64();
    if class == Class::Machine {
        let what = format!("the machine has had no room to read a file for {seconds:.1} s");
        return Error::new(error.kind(), what).with_source(error).with_remedy(
            "raise the limit that the cause names (open files: ulimit -n; memory and, where reads are canceled, \
             processes: those of the cgroup), resume from the last state, or raise outage_timeout",
        );
    }
    if files.store_of(root).is_some() {
        let what = format!("no object of this place could be read for {seconds:.1} s");
        let remedy = match class {
            Class::Throttled => "the server asks for fewer requests: read with fewer ranks or a smaller queue_depth",
            Class::Expired => "renew the credentials",
            _ => error.remedy().unwrap_or("see whether the server can be reached, and gives the objects"),
        };
        let or = if is_lost { "" } else { ", or raise outage_timeout to wait longer" };
        let remedy = format!("{remedy}; resume from the last state{or}");
        return Error::new(error.kind(), what).with_path(&files.roots()[root]).with_source(error).with_remedy(remedy);
    }
    let lost = lost.map_or(String::new(), |lost| format!(": {lost}"));
    let what = format!("no file of this folder could be read for {seconds:.1} s{lost}");
    Error::new(error.kind(), what).with_path(&files.roots()[root]).with_source(error).with_remedy(
        "bring back the mount, the server or the disk and resume from the last state, or raise outage_timeout to wait \
         longer",
    )
}

impl Pending {
    /// The read as it was before it failed, with the same memory. It has no deadline while it waits.
    fn read_again(&mut self, index: usize, tag: u64, part: Part) -> Read {
        self.clear_deadline(index);
        let (file, offset) = self.place_of(index);
        Read { tag, file, offset, part, pieces: Vec::new() }
    }

    /// The file of a read.
    fn file_of(&self, index: usize) -> FileId {
        self.place_of(index).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let pauses: Vec<u128> = [0, 1, 2, 3, 4, 5, 500].map(|retries| pause(retries).as_millis()).into();
        assert_eq!(pauses, [10, 30, 90, 270, 810, 1000, 1000]);
    }

    /// One file may hang, and all others may be broken.
    #[test]
    fn probes_go_to_files_with_reads_under_way_and_to_others() {
        let mut files = FileTable::new();
        files.push_root("/data");
        for name in ["hangs", "is broken", "is empty"] {
            files.push(name.as_bytes(), if name == "is empty" { 0 } else { 100_000 }).expect("room");
        }
        let mut random = SplitMix64::seed_from_u64(1);
        let mut probes = || elsewhere(&mut random, 0, (&files, 4096), |file| file == FileId(0)).expect("a place");
        let found: HashSet<(FileId, u64)> = (0..1000).map(|_| probes()).collect();
        let places = |of: u32| found.iter().filter(|(file, _)| *file == FileId(of)).count();
        assert_eq!((places(0), places(1), places(2)), (25, 25, 0));
    }
}

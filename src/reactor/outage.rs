//! Reads that failed for a reason that may pass: they wait and are read again, and a sample fails only when its own
//! bytes are to blame. While nothing of a root can be read, or the machine has no room to read, nobody's sample is.
//!
//! A read that fails is read again after a pause that grows. It fails for good once other reads of its root, begun
//! after its failure, have ended well, time and again. Where there are no other reads, one is made for this: at a
//! random place of the root, into the memory of the read that waits. It avoids files that reads are under way in: one
//! of those may never end.

use super::classes::Class;
use super::pending::Pending;
use super::{REPAIRS, Reactor};
use crate::dataset::{FileId, FileTable};
use crate::engine::{Done, Engine, Read};
use crate::stats::Outage;
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};
use uringload_sys::Part;

/// How often a read may fail while others of its root end well.
const FAILURES_ALONE: u32 = 3;

/// Pause before the first retry, what it grows by, and the longest one.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_GROWS: u32 = 3;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Retries before a place elsewhere is read. Most errors that pass do so before.
const RETRIES_BEFORE_PROBES: u32 = 2;

/// How much later a read that failed for its own sake is made again where its samples would be listed as bad.
const SECOND_LOOK: Duration = Duration::from_millis(250);

/// How many random files to draw for a place elsewhere: some are empty.
const FILES_DRAWN: u32 = 8;

/// All reads that wait to be read again, and what is known of their roots.
pub(super) struct Outages {
    /// How long nothing may come of a root, or for a read that the machine has no room for. `None`: forever.
    timeout: Option<Duration>,
    /// By root.
    roots: Vec<Root>,
    /// By the read's tag.
    troubles: HashMap<u64, Trouble>,
    random: SplitMix64,
    /// How long the kernel has taken no read at all, and what it answers.
    denied: Option<(Duration, String)>,
    /// Whether an outage was told and has not been taken back.
    is_told: bool,
}

/// What is known of a root.
#[derive(Clone, Default)]
struct Root {
    /// When the last read began that ended well.
    worked: Option<Instant>,
    /// The first failure after that.
    down_since: Option<Instant>,
    /// Whether a read elsewhere is in flight.
    is_probed: bool,
}

/// A read that failed.
struct Trouble {
    class: Class,
    root: usize,
    /// The read, while it waits, and when it is due.
    waits: Option<(Instant, Read)>,
    /// Its first failure.
    since: Instant,
    /// Its last failure.
    failed: Instant,
    retries: u32,
    /// Failures while others ended well.
    alone: u32,
    /// Whether what is in flight is a read elsewhere, or was the last time.
    probe: Probe,
    error: Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    No,
    InFlight,
    Failed,
}

impl Outages {
    pub(super) fn new(timeout: Option<Duration>, roots: usize, seed: u64) -> Outages {
        Outages {
            timeout,
            roots: vec![Root::default(); roots],
            troubles: HashMap::new(),
            random: SplitMix64::seed_from_u64(seed),
            denied: None,
            is_told: false,
        }
    }

    /// Whether no read has failed and not been read since.
    pub(super) fn is_quiet(&self) -> bool {
        self.troubles.is_empty()
    }

    /// Reads that wait.
    pub(super) fn waiting(&self) -> usize {
        self.troubles.values().filter(|trouble| trouble.waits.is_some()).count()
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.troubles.values().filter_map(|trouble| trouble.waits.as_ref().map(|(due, _)| *due)).min()
    }

    /// Forgets a read that was settled or given up.
    pub(super) fn forget(&mut self, tag: u64) {
        if let Some(trouble) = self.troubles.remove(&tag)
            && trouble.probe == Probe::InFlight
        {
            self.roots[trouble.root].is_probed = false;
        }
    }

    /// Takes the reads of these tags that wait, for good.
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

    /// A read of the root that began at `began` ended well.
    fn worked(&mut self, root: usize, began: Instant) {
        let root = &mut self.roots[root];
        root.worked = root.worked.max(Some(began));
        if root.down_since.is_some_and(|since| since < began) {
            root.down_since = None;
        }
    }

    /// Whether what is in flight as this read is one elsewhere. However late that ends, it says nothing of this one,
    /// and its bytes are not this one's.
    pub(super) fn is_elsewhere(&self, tag: u64) -> bool {
        self.why_elsewhere(tag).is_some()
    }

    /// Whether a read was made again after it had failed for its own sake.
    fn was_looked_at_again(&self, tag: u64) -> bool {
        self.troubles.get(&tag).is_some_and(|trouble| trouble.class == Class::File)
    }

    /// Why there is a read elsewhere in flight as this read: the error of the read itself.
    pub(super) fn why_elsewhere(&self, tag: u64) -> Option<&Error> {
        let trouble = self.troubles.get(&tag).filter(|trouble| trouble.probe == Probe::InFlight);
        trouble.map(|trouble| &trouble.error)
    }

    /// Takes the reads that are due. Where nothing is known of the root since a read failed, it is a read elsewhere.
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
        // The map's order is another in each process.
        due.sort_unstable_by_key(|read| read.tag);
        due
    }

    /// The outage to tell of: the one that lasts longest.
    fn worst(&self, now: Instant, files: &FileTable) -> Option<Outage> {
        if let Some((lasting, cause)) = self.denied.clone() {
            return Some(Outage { path: None, lasting, cause });
        }
        let since = |trouble: &&Trouble| match trouble.class {
            Class::Storage => self.roots[trouble.root].down_since,
            Class::Machine | Class::Name => Some(trouble.since),
            // A second look.
            Class::Interrupted | Class::Device | Class::File => None,
        };
        let worst = self.troubles.values().filter(|trouble| since(trouble).is_some()).min_by_key(since)?;
        let path = (worst.class != Class::Machine).then(|| files.roots()[worst.root].clone());
        let lasting = now.saturating_duration_since(since(&worst)?);
        Some(Outage { path, lasting, cause: worst.error.headline().to_string() })
    }
}

/// A random place of a root, in a file that is not busy if one was drawn. `None` if its files seem to be empty.
fn elsewhere(
    random: &mut SplitMix64,
    root: usize,
    (files, alignment): (&FileTable, u64),
    mut is_busy: impl FnMut(FileId) -> bool,
) -> Option<(FileId, u64)> {
    let of_root = files.files_of(root);
    let draws = (0..FILES_DRAWN).map(|_| {
        let file = FileId(of_root.start + (random.next_u64() % of_root.len().max(1) as u64) as u32);
        (file, random.next_u64())
    });
    let mut found = draws.filter(|(file, _)| files.size(*file) > 0);
    let first = found.next()?;
    let (file, draw) = if is_busy(first.0) { found.find(|(file, _)| !is_busy(*file)).unwrap_or(first) } else { first };
    Some((file, draw % files.size(file) / alignment * alignment))
}

fn pause(retries: u32) -> Duration {
    PAUSE.saturating_mul(PAUSE_GROWS.saturating_pow(retries)).min(PAUSE_MAX)
}

impl Reactor {
    /// Moves the reads whose pause is over to those that are issued next.
    pub(super) fn read_again(&mut self, engine: &dyn Engine) {
        if self.outages.is_quiet() {
            return;
        }
        let (files, alignment) = (self.planner.dataset().files(), self.planner.layout().alignment);
        self.again.extend(self.outages.due(engine.now(), (files, alignment), &self.pending));
    }

    /// Notes that a read ended well, if anybody wants to know. Returns the read again if it was one elsewhere: then its
    /// memory is free for what it waits for.
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

    /// Decides about a read that failed: it waits, or it fails.
    ///
    /// # Errors
    /// The outage, if it has lasted too long.
    pub(super) fn trouble(&mut self, read: Read, source: io::Error, engine: &mut dyn Engine) -> Result<()> {
        let (tag, file, now) = (read.tag, read.file, engine.now());
        let dataset = std::sync::Arc::clone(self.planner.dataset());
        let files = dataset.files();
        let class = match Class::of(&source) {
            // Nobody took it back, and time and again it came back: the kernel has no thread for what may wait in a
            // ring.
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
            // The other names may have come back after the read failed, and with them this one.
            if class == Class::Name && !self.outages.was_looked_at_again(tag) {
                self.look_again(read, error, (now, PAUSE));
                engine.renew(file);
                return Ok(());
            }
            self.outages.forget(tag);
            self.fail_with(read, error);
            return Ok(());
        }
        if class == Class::Machine {
            let decision = self.depth.refused();
            self.decided(decision, engine);
        }
        let root = files.root_of(file);
        let error = read_error(source, files, &read);
        let known = &mut self.outages.roots[root];
        if class != Class::Machine {
            known.down_since.get_or_insert(now);
        }
        let trouble = self.outages.troubles.entry(tag).or_insert_with(|| Trouble {
            class,
            root,
            waits: None,
            since: now,
            failed: now,
            retries: 0,
            alone: 0,
            probe: Probe::No,
            error: error.clone(),
        });
        // Files that are open can be read although every name is gone, so reads are no witness against a name: asking
        // for other names, as was just done, is.
        let is_alone = class == Class::Storage && trouble.retries > 0 && known.worked > Some(trouble.failed);
        trouble.alone += u32::from(is_alone);
        (trouble.class, trouble.failed, trouble.error) = (class, now, error);
        if trouble.alone >= FAILURES_ALONE {
            let error = trouble.error.clone();
            self.outages.forget(tag);
            self.fail_with(read, error);
            return Ok(());
        }
        let since = if class == Class::Storage { known.down_since.unwrap_or(now) } else { trouble.since };
        if self.outages.timeout.is_some_and(|timeout| now.saturating_duration_since(since) >= timeout) {
            let lasting = now.saturating_duration_since(since);
            let error = trouble.error.clone();
            let ended = ended_by(class, error.clone(), lost, (files, root), lasting);
            if self.is_reader() {
                // Others may read from other roots, so only this request fails.
                self.outages.forget(tag);
                self.fail_with(read, ended);
                return Ok(());
            }
            self.fail_with(read, error);
            return Err(ended);
        }
        trouble.waits = Some((now + pause(trouble.retries), read));
        trouble.retries += 1;
        self.stats.count.retries.add(1);
        if class != Class::Machine {
            engine.renew(file);
        }
        Ok(())
    }

    /// Whether a read that failed for its own sake is made once more before its samples are listed as bad. One that
    /// would replace such a sample is not listed: the next one is tried at once, and only the last gets its time. So
    /// where every read fails, as a filter makes them, samples do not wait for one replacement after the other.
    fn deserves_another_look(&self, tag: u64) -> bool {
        let is_spare = (tag >> 32) as u32 & REPAIRS != 0 && self.repair.has_others();
        self.failures.lists() && !is_spare && !self.outages.troubles.contains_key(&tag)
    }

    /// Reads once more, that time later, what would fail for its own sake.
    fn look_again(&mut self, read: Read, error: Error, (now, pause): (Instant, Duration)) {
        let (tag, root) = (read.tag, self.planner.dataset().files().root_of(read.file));
        let trouble = Trouble {
            class: Class::File,
            root,
            waits: Some((now + pause, read)),
            since: now,
            failed: now,
            retries: 1,
            alone: 0,
            probe: Probe::No,
            error,
        };
        self.outages.troubles.insert(tag, trouble);
        self.stats.count.retries.add(1);
    }

    /// Decides about a read that took too long, was cancelled and came back: what would be listed as bad gets its time
    /// once more.
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

    /// Notes whether the kernel takes reads at all. No read fails while it does not, so nobody else would notice.
    ///
    /// # Errors
    /// What it answers, if it has taken none for too long.
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

    /// Tells the statistics of an outage, and of its end.
    pub(super) fn tell_outage(&mut self, engine: &dyn Engine) {
        if self.outages.is_quiet() && self.outages.denied.is_none() && !self.outages.is_told {
            return;
        }
        let outage = self.outages.worst(engine.now(), self.planner.dataset().files());
        self.outages.is_told = outage.is_some();
        self.stats.set_outage(outage);
    }

    /// Whether only reads that wait keep the reactor from going on.
    pub(super) fn waits_out(&self, in_flight: usize) -> bool {
        in_flight == 0 && !self.outages.is_quiet()
    }
}

fn read_error(source: io::Error, files: &FileTable, read: &Read) -> Error {
    let mut error = source.downcast::<Error>().unwrap_or_else(|source| Error::io("cannot read", source));
    // Who knows more has said it.
    if error.path().is_none() {
        error = error.with_path(files.path(read.file));
    }
    if error.offset().is_none() {
        error = error.with_offset(read.offset);
    }
    error
}

/// The error that ends the loader when an outage has lasted too long.
fn ended_by(
    class: Class,
    error: Error,
    lost: Option<String>,
    (files, root): (&FileTable, usize),
    lasting: Duration,
) -> Error {
    let seconds = lasting.as_secs_f64();
    if class == Class::Machine {
        let what = format!("the machine has had no room to read a file for {seconds:.1} s");
        return Error::new(error.kind(), what).with_source(error).with_remedy(
            "raise the limit that the cause names (open files: ulimit -n; memory and, where reads are canceled, \
             processes: those of the cgroup), resume from the last state, or raise outage_timeout",
        );
    }
    let lost = lost.map_or(String::new(), |lost| format!(": {lost}"));
    let what = format!("no file of this folder could be read for {seconds:.1} s{lost}");
    Error::new(error.kind(), what).with_path(&files.roots()[root]).with_source(error).with_remedy(
        "bring back the mount, the server or the disk and resume from the last state, or raise outage_timeout to wait \
         longer",
    )
}

impl Pending {
    /// The read as it was before it failed, into the same memory. It has no deadline while it waits.
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
}

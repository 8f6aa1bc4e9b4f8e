//! Measures how busy each part was, as shares of the time, from the threads' clocks and the scheduler's counts.

use super::{Evidence, HARDLY, MOST_GAIN, MOSTLY};
use crate::stats::{Doing, Role, Snapshot};

/// A part that can be the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    Trainer,
    Transform,
    Copies,
    DeviceMemory,
    DeviceWork,
    Decode,
    Storage,
    Memory,
    Taking,
    Work,
    Processors,
}

/// From this share of a raw read's rate on, the storage is at its limit.
pub(super) const NEAR_RAW: f64 = 0.9;
/// From this share of the time on, copies to a device are what all others wait for. More than mostly: if the disk gives
/// half of the bus's rate, the device copies for half of the time and waits for the disk for the rest.
const NEAR_BUS: f64 = 0.8;
/// A group that is throttled for less than this share of the time is not bound by its quota.
const THROTTLED: f64 = 0.1;
/// If the quota binds, the process uses at least this share of it.
const OF_QUOTA: f64 = 0.6;
/// Threads are starved if they wait for a processor for this share of the time, and for this share of the time that
/// they could run.
const QUEUED: f64 = 0.2;
const QUEUED_OF_RUNNABLE: f64 = 0.3;
/// If no thread's waits for a processor are known: from this share of the time on in which something on this machine
/// waits for one, it is assumed to be a part of the loader that computes.
const PRESSED: f64 = 0.5;
/// From this share of the time on in which something waits for memory, the machine is short of memory.
const SHORT_OF_MEMORY: f64 = 0.1;
/// A process that uses this share of the processors fills them.
const FILLED: f64 = 0.85;
/// A part counts as about as busy as the busiest one from this share of it on.
const AS_BUSY: f64 = 0.9;
/// If the storage limits, the reactor waits for it for at least this share of the time.
const SOME: f64 = 0.25;

/// Processor time of the threads of a role, as shares of their time.
#[derive(Clone, Copy, Debug, Default)]
struct Got {
    used: f64,
    queued: f64,
}

/// How busy each part was: shares of the time, 0 to 1.
#[derive(Debug)]
pub(super) struct Demands {
    pub(super) elapsed: f64,
    /// Share of its time that the consumer waited.
    pub(super) waited: f64,
    parts: Vec<(Candidate, f64)>,
    /// Share of the reactor's time in which it was ahead of the consumer.
    ahead: f64,
    /// Share of the processors that the process used.
    pub(super) used: Option<f64>,
    /// CPU time of the parts, as shares of the processors.
    own: Vec<(Candidate, f64)>,
    throttled: bool,
    /// Share of the reactor's time spent on starting reads.
    starting: f64,
    /// Share of the storage's concurrency that was used, if reads do not queue in it.
    filled: f64,
    got: Vec<(Role, Got)>,
    /// Share of the time in which something on this machine waited for a processor, if no thread's waits are known.
    pressed: Option<f64>,
}

impl Demands {
    pub(super) fn of(snapshot: &Snapshot, evidence: &Evidence) -> Demands {
        let elapsed = snapshot.elapsed.as_secs_f64().max(1e-9);
        let waited = waited(snapshot);
        let reactor = |doing| snapshot.share(Role::Reactor, doing).unwrap_or(0.0);
        let capacity = snapshot.processors.capacity();
        let used = capacity.map(|capacity| snapshot.processors.used.as_secs_f64() / (capacity * elapsed));
        let mut demands = Demands {
            elapsed,
            waited,
            parts: vec![(Candidate::Trainer, 1.0 - waited)],
            ahead: reactor(Doing::WaitConsumer) + reactor(Doing::Idle),
            used,
            own: Vec::new(),
            throttled: false,
            starting: reactor(Doing::Submit),
            filled: super::storage::filled(snapshot, evidence),
            got: Role::ALL.into_iter().map(|role| (role, got(snapshot, role))).collect(),
            pressed: pressed(snapshot, elapsed),
        };
        demands.throttled = throttled(snapshot, elapsed, used);
        demands.transform(snapshot);
        demands.device(snapshot);
        demands.decode(snapshot);
        demands.reading(snapshot, evidence);
        let share = |role| capacity.map_or(0.0, |capacity| cpu(snapshot, role) / (capacity * elapsed));
        let copied = copying(snapshot);
        demands.own = vec![
            (Candidate::Transform, share(Role::Transform)),
            (Candidate::Decode, share(Role::Stage)),
            (Candidate::Trainer, share(Role::Consumer)),
            (Candidate::Storage, (1.0 - copied) * share(Role::Io)),
            (Candidate::Work, share(Role::Reactor) + copied * share(Role::Io)),
        ];
        demands
    }

    fn add(&mut self, part: Candidate, share: f64) {
        if share > 0.0 {
            self.parts.push((part, share.min(1.0)));
        }
    }

    /// Measures the user's own code.
    fn transform(&mut self, snapshot: &Snapshot) {
        if let Some(idle) = idle(snapshot, Role::Transform) {
            self.add(Candidate::Transform, 1.0 - idle);
        }
    }

    /// Measures decoding, on its own threads, or on the consumer's or the reactor's.
    fn decode(&mut self, snapshot: &Snapshot) {
        let stage = idle(snapshot, Role::Stage).map_or(0.0, |idle| 1.0 - idle);
        let reactor = |doing| snapshot.share(Role::Reactor, doing).unwrap_or(0.0);
        let waited = reactor(Doing::WaitStage);
        // Only a few of the threads may be busy, because samples are cut from few units.
        let waited = if waited > reactor(Doing::WaitStorage) { waited } else { 0.0 };
        let consumer = snapshot.share(Role::Consumer, Doing::Decode).unwrap_or(0.0);
        // The consumer decodes when it gets there, and the reactor waits for that.
        let waited = if consumer > 0.0 { 0.0 } else { waited };
        self.add(Candidate::Decode, stage.max(waited).max(reactor(Doing::Decode)).max(consumer));
    }

    /// Measures the thread that feeds devices, if there is one.
    fn device(&mut self, snapshot: &Snapshot) {
        let share = |doing| snapshot.share(Role::Device, doing).unwrap_or(0.0);
        // While it is ahead of the consumer, it limits no other part.
        let rest = 1.0 - share(Doing::WaitConsumer) - share(Doing::Idle);
        if rest <= 0.0 || threads(snapshot, Role::Device) == 0 {
            return;
        }
        let copies = (snapshot.count.copy_nanos as f64 / 1e9 / self.elapsed).min(1.0);
        // From memory that is not pinned, the driver copies while the copy is being started.
        let copying = (share(Doing::WaitDevice) + share(Doing::Submit)) / rest;
        // Blocks that wait for their copy hold the memory that the next reads wait for.
        let held = snapshot.share(Role::Reactor, Doing::WaitMemory).unwrap_or(0.0);
        if copying >= MOSTLY && (copies >= NEAR_BUS || (copies >= MOSTLY && held >= MOSTLY)) {
            return self.add(Candidate::Copies, if copies >= NEAR_BUS { copies } else { copies.max(held) });
        }
        self.add(Candidate::DeviceMemory, share(Doing::WaitMemory));
        // While copies are in progress, it is unknown whether it waits for them or for the next block.
        let busy = rest - share(Doing::WaitInput) - share(Doing::WaitMemory) - share(Doing::WaitDevice);
        self.add(Candidate::DeviceWork, busy);
    }

    /// Measures the reactor's parts and the storage.
    fn reading(&mut self, snapshot: &Snapshot, evidence: &Evidence) {
        let share = |doing| snapshot.share(Role::Reactor, doing).unwrap_or(0.0);
        let work = share(Doing::Plan) + share(Doing::Submit) + share(Doing::Assemble) + share(Doing::Copy);
        let storage = share(Doing::WaitStorage);
        // It waited with fewer reads than allowed, because of a lack of memory: if reads are as fast as the first one,
        // more of them would have helped.
        let bound = snapshot.count.memory_bound_nanos as f64 / 1e9 / self.elapsed;
        let is_memory = bound > storage * MOSTLY && super::storage::is_waiting(snapshot, evidence);
        let (storage, memory) =
            if is_memory { (0.0, storage + share(Doing::WaitMemory)) } else { (storage, share(Doing::WaitMemory)) };
        let of_raw = super::storage::of_raw(snapshot, evidence).unwrap_or(0.0);
        let given = if storage >= SOME && of_raw >= NEAR_RAW { of_raw } else { 0.0 };
        let copied = storage * copying(snapshot);
        self.add(Candidate::Storage, (storage - copied).max(given));
        self.add(Candidate::Memory, memory);
        self.add(Candidate::Taking, share(Doing::TakeMemory));
        self.add(Candidate::Work, work + copied);
    }

    /// How busy a part was.
    pub(super) fn of_part(&self, part: Candidate) -> f64 {
        if part == Candidate::Processors {
            return if self.throttled { self.used.unwrap_or(1.0).min(1.0) } else { self.queued_most() };
        }
        self.parts.iter().find(|(one, _)| *one == part).map_or(0.0, |(_, share)| *share)
    }

    /// The share of the time in which the reactor was not ahead of the consumer.
    pub(super) fn beside_ahead(&self, part: Candidate) -> f64 {
        (self.of_part(part) / (1.0 - self.ahead).max(1e-9)).min(1.0)
    }

    /// The bottleneck: the trainer if it hardly waits, otherwise the busiest of all other parts.
    pub(super) fn busiest(&self) -> Option<Candidate> {
        if self.throttled {
            return Some(Candidate::Processors);
        }
        if self.waited < HARDLY {
            return Some(if self.is_starved(Candidate::Trainer) { Candidate::Processors } else { Candidate::Trainer });
        }
        let others = self.parts.iter().filter(|(part, _)| *part != Candidate::Trainer);
        let most = others.clone().map(|(_, share)| *share).fold(0.0, f64::max);
        // Among parts that are about as busy, the one nearest to the consumer: it delays those before it.
        let (part, _) = others.clone().find(|(_, share)| *share >= AS_BUSY * most)?;
        let is_own_fault = matches!(part, Candidate::Decode | Candidate::Transform) && self.fills_processors();
        if self.is_starved(*part) && !is_own_fault {
            return Some(Candidate::Processors);
        }
        Some(*part)
    }

    /// Whether control groups limit the process.
    pub(super) fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// Whether the process uses all the processors itself.
    pub(super) fn fills_processors(&self) -> bool {
        self.used.is_some_and(|used| used >= FILLED)
    }

    /// The greatest share of its time that a role's threads waited for a processor.
    pub(super) fn queued_most(&self) -> f64 {
        self.got.iter().map(|(_, got)| got.queued).fold(self.pressed.unwrap_or(0.0), f64::max).min(1.0)
    }

    /// Whether the only evidence of waits for processors is that something on this machine waited.
    pub(super) fn is_by_pressure(&self) -> bool {
        self.pressed.is_some()
    }

    fn got(&self, role: Role) -> Got {
        self.got.iter().find(|(one, _)| *one == role).map_or_else(Got::default, |(_, got)| *got)
    }

    fn is_starved(&self, part: Candidate) -> bool {
        let computes = matches!(
            part,
            Candidate::Transform | Candidate::Decode | Candidate::DeviceWork | Candidate::Taking | Candidate::Work
        );
        let is_pressed = computes && !self.fills_processors() && self.pressed.is_some_and(|share| share >= PRESSED);
        let is_queued = |Got { used, queued }: Got| queued >= QUEUED && queued >= QUEUED_OF_RUNNABLE * (used + queued);
        is_pressed || roles(part).iter().any(|&role| is_queued(self.got(role)))
    }

    /// How much of a part's time would remain if its threads always had a processor when they can run: all except what
    /// they waited for one, and at least what they used. A part may also sleep, which no processor shortens.
    fn unqueued(&self, part: Candidate) -> f64 {
        if let Some(pressed) = self.pressed {
            return 1.0 - pressed;
        }
        let most = roles(part).iter().map(|&role| self.got(role)).max_by(|a, b| a.queued.total_cmp(&b.queued));
        let busy = self.of_part(part);
        most.filter(|got| got.queued > 0.0 && busy > 0.0)
            .map_or(1.0, |Got { used, queued }| (busy - queued).max(used.min(busy)).max(0.0) / busy)
    }

    /// How many times as fast it would be if a part took no time: the busiest of all others bounds it, and the parts of
    /// one thread bound it together.
    pub(super) fn gain_without(&self, part: Candidate) -> f64 {
        self.gain(part, 0.0)
    }

    /// How many times as fast it would be if a part took this share of its time.
    pub(super) fn gain(&self, part: Candidate, share: f64) -> f64 {
        self.gain_beside(part, share, 0.0)
    }

    /// How many times as fast it would be if only this share of the storage's time were left because the rest is kept
    /// in memory. Such reads are not started either, and take no memory.
    pub(super) fn gain_kept(&self, left: f64) -> f64 {
        let spared = (1.0 - left) * (self.of_part(Candidate::Taking) + self.starting);
        self.gain_beside(Candidate::Storage, left, spared)
    }

    /// As [`gain`](Demands::gain), and saves the reactor this much of its time as well.
    fn gain_beside(&self, part: Candidate, share: f64, spared: f64) -> f64 {
        let is_free = |one: Candidate| one == part;
        let of = |one: Candidate| {
            let queued = if part == Candidate::Processors { share + (1.0 - share) * self.unqueued(one) } else { 1.0 };
            // If another part were faster, more reads would be in flight, each as long as now.
            let filled = if one == Candidate::Storage && part != Candidate::Storage { self.filled } else { 1.0 };
            self.of_part(one) * queued * filled * if is_free(one) { share } else { 1.0 }
        };
        let reactor = (of(Candidate::Taking) + of(Candidate::Work) - spared).max(0.0);
        let apart = self.parts.iter().filter(|(one, _)| !matches!(one, Candidate::Taking | Candidate::Work));
        let own = self.own.iter().find(|(one, _)| *one == part).map_or(0.0, |(_, own)| *own * (1.0 - share));
        // Under a quota, the process used up its share, which says nothing about the machine.
        let is_free_of_them = part == Candidate::Processors && self.throttled;
        let processors = if is_free_of_them { 0.0 } else { self.used.map_or(0.0, |used| used - own) };
        let bound = apart.map(|(one, _)| of(*one)).fold(reactor.max(processors), f64::max);
        (1.0 / bound.max(1.0 / MOST_GAIN)).clamp(1.0, MOST_GAIN)
    }
}

/// Share of its time that the consumer waited, or did work that the loader's threads would have done. Its wait for the
/// first batch is not part of a steady state.
fn waited(snapshot: &Snapshot) -> f64 {
    let time = |doing| snapshot.time(Role::Consumer, doing).as_secs_f64();
    let first = snapshot.count.first_wait_nanos as f64 / 1e9;
    let waited = (time(Doing::WaitBatch) + time(Doing::Decode) - first).max(0.0);
    let stepped = time(Doing::Step);
    if snapshot.count.batches > 1 && waited + stepped > 0.0 {
        waited / (waited + stepped)
    } else {
        let share = |doing| snapshot.share(Role::Consumer, doing).unwrap_or(0.0);
        share(Doing::WaitBatch) + share(Doing::Decode)
    }
}

/// The number of threads of a role.
pub(super) fn threads(snapshot: &Snapshot, role: Role) -> usize {
    snapshot.threads.iter().filter(|thread| thread.role == role).count()
}

/// The roles whose threads do a part's work.
fn roles(part: Candidate) -> &'static [Role] {
    match part {
        Candidate::Trainer => &[Role::Consumer],
        Candidate::Transform => &[Role::Transform],
        Candidate::Copies | Candidate::DeviceMemory | Candidate::DeviceWork => &[Role::Device],
        Candidate::Decode => &[Role::Stage, Role::Reactor],
        Candidate::Storage | Candidate::Memory => &[Role::Io, Role::Reactor],
        Candidate::Taking | Candidate::Work => &[Role::Reactor],
        Candidate::Processors => &[],
    }
}

/// Share of the time in which threads of a role had nothing to do; `None` without such threads.
fn idle(snapshot: &Snapshot, role: Role) -> Option<f64> {
    let share = |doing| snapshot.share(role, doing);
    Some(share(Doing::WaitInput)? + share(Doing::Idle).unwrap_or(0.0))
}

/// How much of the reading is copies from the page cache, which load the processors and no device: the reading threads'
/// processor time while they read, if that is most of it. Otherwise 0.
fn copying(snapshot: &Snapshot) -> f64 {
    let read = snapshot.time(Role::Io, Doing::Read).as_secs_f64();
    let copied = (cpu(snapshot, Role::Io) / read.max(1e-9)).min(1.0);
    if copied >= MOSTLY { copied } else { 0.0 }
}

/// The reactor's work, as shares of its time, largest first. Copying from the page cache counts as reading.
pub(super) fn works(snapshot: &Snapshot) -> [(Doing, f64); 5] {
    let share = |doing| snapshot.share(Role::Reactor, doing).unwrap_or(0.0);
    let of = |doing| (doing, share(doing));
    let read = (Doing::Read, share(Doing::WaitStorage) * copying(snapshot));
    let mut works = [of(Doing::Assemble), of(Doing::Plan), of(Doing::Copy), of(Doing::Submit), read];
    works.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    works
}

/// Processor seconds of a role's threads.
fn cpu(snapshot: &Snapshot, role: Role) -> f64 {
    let of_role = snapshot.threads.iter().filter(|thread| thread.role == role);
    of_role.filter_map(|thread| thread.scheduled).map(|scheduled| scheduled.used.as_secs_f64()).sum()
}

fn got(snapshot: &Snapshot, role: Role) -> Got {
    let of_role = || snapshot.threads.iter().filter(|thread| thread.role == role && thread.scheduled.is_some());
    let total: f64 = of_role().map(|thread| thread.total().as_secs_f64()).sum();
    if total <= 0.0 {
        return Got::default();
    }
    let queued = of_role().filter_map(|thread| thread.scheduled?.queued).map(|queued| queued.as_secs_f64());
    Got { used: cpu(snapshot, role) / total, queued: queued.sum::<f64>() / total }
}

/// Pressure on the processors, if no thread's waits for them are known.
fn pressed(snapshot: &Snapshot, elapsed: f64) -> Option<f64> {
    let is_told = snapshot.threads.iter().any(|thread| thread.scheduled.is_some_and(|got| got.queued.is_some()));
    let pressure = snapshot.processors.processor_pressure.filter(|_| !is_told)?;
    Some((pressure.as_secs_f64() / elapsed).min(1.0))
}

/// Share of the time in which something on this machine waited for memory, if that is much.
pub(super) fn short_of_memory(snapshot: &Snapshot) -> Option<f64> {
    let share = snapshot.processors.memory_pressure?.as_secs_f64() / snapshot.elapsed.as_secs_f64().max(1e-9);
    (share >= SHORT_OF_MEMORY).then_some(share.min(1.0))
}

/// Whether the quota binds: the group was throttled, and not because other members used it up.
fn throttled(snapshot: &Snapshot, elapsed: f64, used: Option<f64>) -> bool {
    let throttled = snapshot.processors.throttled.unwrap_or_default().as_secs_f64() / elapsed;
    let quota = snapshot.processors.quota.is_some();
    throttled >= THROTTLED && quota && used.is_some_and(|used| used >= OF_QUOTA)
}

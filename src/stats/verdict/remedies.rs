//! Computes what helps against a bottleneck, and the gain of each remedy, from the measurements, up to the limit of the
//! next part.

use super::demands::{self, Candidate, Demands, NEAR_RAW};
use super::storage;
use super::{Bottleneck, Doing, Evidence, Remedy, Role, Snapshot, Transforming, Tried};
use super::{transform_kind, transform_threads};
use crate::stats::{Facts, Keeping, Neighbours};

/// Maximum number of remedies to report.
const REMEDIES: usize = 3;
/// A remedy with a smaller gain is not reported.
const WORTH: f64 = 1.03;
/// Work that took a smaller share of the loader's own time has no remedy of its own.
const SOME_WORK: f64 = 0.1;
/// A greater depth is proposed as this many times the reads that were in flight.
const DEEPER: f64 = 4.0;
/// The greatest depth to propose.
const DEEPEST: f64 = 4096.0;

/// A cache that would hold a smaller share of the dataset is not proposed.
const KEPT: f64 = 0.03;

/// The remedy if nothing was tried on the storage.
const UNTRIED: &str = "another depth or longer reads: `uringload bench` tries them";

/// The remedy for a server that refuses requests.
const REFUSED: &str = "a server that takes more requests at a time, or fewer ranks that ask it: it refuses more";

/// The remedy for objects that are asked for in each epoch.
const KEPT_ON_DISK: &str = "cache_disk = FOLDER:BYTES on a local disk: the share of the objects that fits is the \
                            share of reads that ask no server, from the second epoch on";

/// What the gain of better storage goes by.
const UNLIMITED: &str = " (supposing storage without any limit)";

/// The way to merge many reads into one, unless that is already done.
fn together(facts: &Facts) -> &'static str {
    match (facts.order, facts.has_shards()) {
        (Neighbours::Near, _) => {
            "read what an order by windows, shards or pieces mixes in long stretches: the route says what hinders it"
        }
        (Neighbours::Stored, true) => "raise coalesce_gap: neighbours come in one read",
        (Neighbours::Stored, false) => "pack into shards: neighbours come in one read",
        (_, true) => "read in an order by windows, shards or pieces (shuffle = auto): neighbours come in one read",
        (_, false) => {
            "read in an order by windows, shards or pieces (shuffle = auto where samples lie in shards), or pack: \
             neighbours come in one read"
        }
    }
}

struct Remedies<'a> {
    snapshot: &'a Snapshot,
    demands: &'a Demands,
    part: Candidate,
    found: Vec<Remedy>,
}

impl Remedies<'_> {
    /// Adds a remedy after which the part takes this share of its time.
    fn share(&mut self, what: impl Into<String>, share: f64) {
        self.gain(what, self.demands.gain(self.part, share.clamp(0.0, 1.0)));
    }

    /// Adds a remedy that gains this much at most, up to the limit of the next part.
    fn most(&mut self, what: impl Into<String>, most: f64) {
        let gain = self.demands.gain(self.part, 1.0 / most.max(1.0)).min(most);
        self.gain(what, gain);
    }

    fn gain(&mut self, what: impl Into<String>, gain: f64) {
        if gain >= WORTH {
            let samples_per_second = Some(self.snapshot.samples_per_second() * gain);
            self.found.push(Remedy { what: what.into(), gain: Some(gain), samples_per_second });
        }
    }

    /// Adds the remedy to keep files in memory, as many as fit.
    fn keep(&mut self) {
        let (all, fits, limit) = match self.snapshot.facts.keeping {
            Keeping::No => return,
            Keeping::Unknown => return self.gain("cache = memory if it fits", self.demands.gain_kept(0.0)),
            Keeping::Room { all, fits, limit } => (all, fits, limit),
        };
        let share = fits as f64 / all.max(1) as f64;
        if share < KEPT {
            return;
        }
        let with = limit.map_or_else(String::new, |limit| format!(" with memory_limit = {limit}"));
        let of = if fits < all { format!("{} of its {}", size(fits), size(all)) } else { format!("all {}", size(all)) };
        let what = format!("cache = memory{with}: {of} fit, and are read in the first epoch only");
        self.gain(what, self.demands.gain_kept((1.0 - share).clamp(0.0, 1.0)));
    }

    /// Adds a remedy whose gain this run does not show.
    fn unmeasured(&mut self, what: &str) {
        self.found.push(Remedy { what: what.to_owned(), gain: None, samples_per_second: None });
    }
}

pub(super) fn of(
    bottleneck: Bottleneck,
    part: Candidate,
    snapshot: &Snapshot,
    evidence: &Evidence,
    demands: &Demands,
) -> Vec<Remedy> {
    let mut remedies = Remedies { snapshot, demands, part, found: Vec::new() };
    match bottleneck {
        Bottleneck::Trainer => remedies.share("a faster step: the loader could give as much", 0.0),
        Bottleneck::Transform => transform(&mut remedies),
        Bottleneck::Decode => decode(&mut remedies),
        Bottleneck::Copies => {
            remedies.share("store half as many bytes: blocks cross the bus as they were read", 0.5);
            remedies.share("a bus that takes no time, or a GPU nearer to this memory", 0.0);
        }
        Bottleneck::Memory => memory(&mut remedies),
        Bottleneck::MemoryTaking => {
            remedies.share("run longer: memory is taken once, and then used again", 0.0);
            remedies.share("half of the memory limit", 0.5);
        }
        Bottleneck::Processors => processors(&mut remedies),
        Bottleneck::Loader => loader(&mut remedies),
        Bottleneck::Unknown => {}
        _ => of_storage(&mut remedies, bottleneck, evidence),
    }
    if demands::short_of_memory(snapshot).is_some() {
        remedies.found.truncate(REMEDIES - 1);
        remedies.unmeasured("leave the machine more memory: a lower memory_limit, or stop what else takes it");
    }
    let mut found = remedies.found;
    found.truncate(REMEDIES);
    found
}

fn transform(remedies: &mut Remedies<'_>) {
    let snapshot = remedies.snapshot;
    let threads = transform_threads(snapshot).max(1);
    let processors = snapshot.processors.available.max(1);
    let kind = transform_kind(snapshot);
    match kind {
        Transforming::Locked => {
            let gain = threads.min(processors) as f64;
            remedies.most("call what releases Python's lock in the transform", gain);
        }
        Transforming::Waiting => {
            remedies.most(format!("num_threads = {}", threads * 4), 4.0);
        }
        Transforming::Working => {
            if processors > threads {
                remedies.most(format!("num_threads = {processors}"), processors as f64 / threads as f64);
            }
        }
    }
    let mut built_in = "use the built-in transforms instead, where they cost nothing".to_owned();
    if kind == Transforming::Locked {
        // Two threads that want the lock hand it to each other, and a loop that slept gets it after tenths of a second
        // (CPython 3.11, ceval_gil.h: only a thread that requests it is sure to get it). Nothing separates that wait
        // from its own step.
        built_in += " (at least: what your loop waits for Python's lock counts as its step here)";
    }
    remedies.share(built_in, 0.0);
}

fn decode(remedies: &mut Remedies<'_>) {
    let threads = demands::threads(remedies.snapshot, Role::Stage).max(1);
    let processors = remedies.snapshot.processors.available;
    if processors > threads {
        remedies.most(format!("num_threads = {processors}"), processors as f64 / threads as f64);
    } else if demands::threads(remedies.snapshot, Role::Stage) == 0 {
        remedies.unmeasured("num_threads = 1");
    }
    remedies.share("pack into plain shards, which are not decoded", 0.0);
}

fn memory(remedies: &mut Remedies<'_>) {
    let (depth, in_flight) = (storage::depth(remedies.snapshot), remedies.snapshot.in_flight_mean());
    if remedies.part == Candidate::DeviceMemory {
        remedies.share("raise device_memory, or keep fewer batches", 0.0);
    } else if in_flight > 0.0 && depth > in_flight {
        remedies.most("raise memory_limit until as many reads as allowed are in flight", depth / in_flight);
    } else {
        remedies.share("raise memory_limit, or keep fewer batches", 0.0);
    }
}

fn processors(remedies: &mut Remedies<'_>) {
    let gain = remedies.demands.gain_without(Candidate::Processors);
    if remedies.demands.is_throttled() {
        let quota = remedies.snapshot.processors.quota.unwrap_or_default().as_secs_f64();
        let needed = quota * remedies.demands.used.unwrap_or(1.0) * gain;
        remedies.gain(format!("raise the group's CPU quota (cpu.max) to {needed:.1} processors"), gain);
    } else if remedies.demands.fills_processors() {
        remedies.gain("more processors, or fewer threads of your own beside the loader", gain);
    } else {
        remedies.gain("stop what else runs on these processors, or give the process others (taskset, cpuset)", gain);
    }
}

fn loader(remedies: &mut Remedies<'_>) {
    if remedies.part == Candidate::DeviceWork {
        return remedies.share("larger batches", 0.5);
    }
    let facts = &remedies.snapshot.facts;
    let is_far = matches!(facts.order, Neighbours::Far | Neighbours::Unknown);
    let work = remedies.demands.of_part(Candidate::Work).max(1e-9);
    let mut found: Vec<(Option<&str>, f64)> = Vec::new();
    for (doing, share) in demands::works(remedies.snapshot) {
        let is_by_number = doing == Doing::Submit || (doing == Doing::Read && storage::is_short(remedies.snapshot));
        let what = match doing {
            _ if is_by_number && facts.has_shards() && is_far => Some("read in an order by windows or shards"),
            _ if is_by_number && facts.has_shards() => Some("raise coalesce_gap, so that neighbours come in one read"),
            _ if is_by_number => Some("pack small files into shards and read them in an order by windows or shards"),
            Doing::Copy => Some("take views instead of dense columns"),
            Doing::Plan if is_far => Some("read in an order by windows or shards"),
            // Every sample needs this work, in any order: only other threads could take a part of it.
            _ => None,
        };
        let share = share / work;
        match found.iter_mut().find(|(one, _)| *one == what) {
            Some((_, shares)) => *shares += share,
            None => found.push((what, share)),
        }
    }
    for (what, share) in found.into_iter().filter(|(_, share)| *share >= SOME_WORK) {
        match what {
            Some(what) => remedies.share(what, 1.0 - share),
            None => remedies.unmeasured(
                "several loaders, each with a part of the samples (rank, world_size), on processors of their own",
            ),
        }
    }
}

fn of_storage(remedies: &mut Remedies<'_>, bottleneck: Bottleneck, evidence: &Evidence) {
    let snapshot = remedies.snapshot;
    let in_flight = storage::at_a_time(snapshot).max(1.0);
    // If threads read one by one, as many are started as reads are allowed, unless the user has set their number.
    let what = if snapshot.threads_are_fixed { "io_threads" } else { "queue_depth" };
    if storage::refuses(snapshot) {
        remedies.unmeasured(REFUSED);
    }
    match bottleneck {
        Bottleneck::Latency if storage::refuses(snapshot) => {}
        Bottleneck::Latency => match storage::better(snapshot, evidence, |tried| matches!(tried, Tried::Depth(_))) {
            Some((Tried::Depth(depth), gain)) => remedies.most(format!("queue_depth = {depth}"), gain),
            _ => {
                let depth = (in_flight * DEEPER).ceil().clamp(8.0, DEEPEST);
                remedies.most(format!("{what} = {depth}"), depth / in_flight);
            }
        },
        Bottleneck::Amplification => {
            let amplification = snapshot.read_amplification().unwrap_or(1.0);
            remedies.most("coalesce_gap = 0, or pack into aligned shards: read only what is needed", amplification);
        }
        Bottleneck::Operations => {}
        _ => {
            let of_raw =
                storage::of_raw(snapshot, evidence).filter(|of_raw| (f64::MIN_POSITIVE..NEAR_RAW).contains(of_raw));
            if let Some(of_raw) = of_raw {
                remedies.most("read as a raw read does: look for other load on the device", 1.0 / of_raw);
            }
        }
    }
    let together = together(&snapshot.facts);
    if let Some((_, gain)) = storage::better(snapshot, evidence, |tried| tried == Tried::LongReads) {
        remedies.most(together, gain);
    } else if let Some(gain) = storage::dear(snapshot) {
        remedies.most(together, gain);
    } else if bottleneck == Bottleneck::Operations {
        remedies.unmeasured(together);
    }
    // What costs nothing comes before what costs money.
    if snapshot.facts.has_objects && !snapshot.facts.keeps_objects {
        remedies.unmeasured(KEPT_ON_DISK);
    }
    remedies.keep();
    if snapshot.facts.has_objects {
        remedies.unmeasured("run nearer to the store: in its region, on its network");
    }
    match (storage::limit(snapshot), bottleneck) {
        (Some(limit), _) => remedies.share(format!("raise the limit {limit}{UNLIMITED}"), 0.0),
        // Depth and size were tried and did not help.
        (None, Bottleneck::Bandwidth) if !evidence.trials.is_empty() => {
            remedies.share(format!("faster or more storage{UNLIMITED}"), 0.0);
        }
        (None, Bottleneck::Bandwidth) => remedies.unmeasured(UNTRIED),
        (None, _) if remedies.found.is_empty() => remedies.unmeasured(UNTRIED),
        (None, _) => {}
    }
}

/// A number of bytes, for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

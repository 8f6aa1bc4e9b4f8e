//! Finds the bottleneck, the gain if it were free, and remedies. By the laws of queueing networks no part can be busy
//! for more than all of the time, so the busiest part bounds the rate, and if it were free, the next one would.
//! `demands` measures how busy each part was, `storage` says which limit of the storage it is, and `remedies` computes
//! what helps.

mod demands;
mod remedies;
mod storage;
#[cfg(test)]
mod tests;

use super::{Doing, Role, Snapshot};
use demands::{Candidate, Demands};
use std::fmt;
use std::time::Duration;

/// What limits the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bottleneck {
    /// Your own work between two batches.
    Trainer,
    /// The user's own transform and collate function, which run behind the loader.
    Transform,
    /// Decoding of samples.
    Decode,
    /// The storage: it returns as many bytes a second as it can.
    Bandwidth,
    /// The storage: it performs as many reads a second as it can, and they are short.
    Operations,
    /// The storage answers slowly, and more reads in flight would help.
    Latency,
    /// The storage returns what it can, but samples do not need much of it.
    Amplification,
    /// Memory: there are reads to start but no memory to read into, or no room for batches on their device.
    Memory,
    /// Taking memory from the system, once for each byte that is ever used.
    MemoryTaking,
    /// The path to the GPU: its copy engine and PCIe.
    Copies,
    /// The processors: a quota, other programs, or too few of them.
    Processors,
    /// The loader's own CPU work.
    Loader,
    /// Too little was measured to say.
    Unknown,
}

impl Bottleneck {
    /// Its name, for people and reports.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Trainer => "trainer",
            Bottleneck::Transform => "transform",
            Bottleneck::Decode => "decode",
            Bottleneck::Bandwidth => "bandwidth",
            Bottleneck::Operations => "operations",
            Bottleneck::Latency => "latency",
            Bottleneck::Amplification => "read amplification",
            Bottleneck::Memory => "memory limit",
            Bottleneck::MemoryTaking => "memory taking",
            Bottleneck::Copies => "copies",
            Bottleneck::Processors => "processors",
            Bottleneck::Loader => "loader",
            Bottleneck::Unknown => "unknown",
        }
    }

    /// Whether the storage limits, in any way.
    pub fn is_storage(self) -> bool {
        matches!(self, Bottleneck::Bandwidth | Bottleneck::Operations | Bottleneck::Latency | Bottleneck::Amplification)
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What limits the loader, how clearly, and what to do. `Display` is one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// What limits.
    pub bottleneck: Bottleneck,
    /// Share of the time, 0 to 1, that the limiting part was busy or was waited for.
    pub share: f64,
    /// What that means, as a sentence.
    pub advice: String,
    /// How many times as fast it would be if that part took no time: until the next part limits. 100 means that or
    /// more; `None` if nothing was measured.
    pub gain: Option<f64>,
    /// One to three things to try, best first.
    pub remedies: Vec<Remedy>,
    /// Measurements that were not available on this machine, so that the verdict does without them.
    pub without: Vec<&'static str>,
}

/// Something to try, and what it would bring. `Display` is one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Remedy {
    /// What to do.
    pub what: String,
    /// How many times as fast it would then be; `None` if this run does not show it.
    pub gain: Option<f64>,
    /// Samples a second after that.
    pub samples_per_second: Option<f64>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:.0} %): {}", self.bottleneck, self.share * 100.0, self.advice)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gain {
            Some(gain) => write!(f, "{}: {}", self.what, times(gain)),
            None => write!(f, "{}: not measured", self.what),
        }
    }
}

/// "1.3x", or "100x or more".
pub(super) fn times(gain: f64) -> String {
    if gain >= MOST_GAIN { format!("{MOST_GAIN:.0}x or more") } else { format!("{gain:.1}x") }
}

/// Evidence besides the loader's own measurements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The rate of a raw read of the same files, in bytes a second.
    pub raw: Option<f64>,
    /// How long the fastest read of that raw read took, which had no queue before it. A loader whose own reads were
    /// never as fast shares the storage with another program.
    pub fastest_read: Option<Duration>,
    /// What else was tried on the storage, each long enough to show a rate.
    pub trials: Vec<Trial>,
}

/// A raw read with one difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The difference.
    pub tried: Tried,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

/// How a trial differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// This many reads in flight.
    Depth(usize),
    /// Neighbouring samples in one read: the order of the files.
    LongReads,
}

/// A gain of at least this much is shown as "or more": the rest was too short to be measured.
const MOST_GAIN: f64 = 100.0;
/// A part that waits for batches for less than this share of the time is the bottleneck.
const HARDLY: f64 = 0.05;
/// A part that is busy for more than this share of the time is mostly busy.
const MOSTLY: f64 = 0.5;
/// Threads that share the interpreter's lock use this much of one processor together; their work without the lock can
/// add as much as the upper end.
const ONE_PROCESSOR: std::ops::Range<f64> = 0.7..1.1;
/// Threads that share a lock wait for it at least this share of their time: two that are always busy wait for half.
const LOCKED_OUT: f64 = 0.25;

pub(super) fn judge(snapshot: &Snapshot, evidence: &Evidence) -> Verdict {
    if snapshot.share(Role::Consumer, Doing::WaitBatch).is_none() {
        return unknown("no batch was asked for");
    }
    if snapshot.count.batches == 0 {
        return unknown(&format!("no batch was delivered{}", so_far(snapshot)));
    }
    let demands = Demands::of(snapshot, evidence);
    let Some(part) = demands.busiest() else { return unknown("the loader's threads were not seen at work") };
    let (bottleneck, share, advice) = match part {
        Candidate::Trainer => (Bottleneck::Trainer, demands.of_part(part), trainer_advice(snapshot, &demands)),
        Candidate::Transform => (Bottleneck::Transform, demands.of_part(part), transform_advice(snapshot)),
        Candidate::Decode => (Bottleneck::Decode, demands.of_part(part), decode_advice(snapshot, &demands)),
        Candidate::Processors => (Bottleneck::Processors, demands.of_part(part), processors_advice(snapshot, &demands)),
        Candidate::Copies => {
            let share = demands.of_part(part);
            (
                Bottleneck::Copies,
                share,
                format!("copies to the GPU took {} of the time: PCIe is the limit", percent(share)),
            )
        }
        Candidate::DeviceMemory => {
            let advice = "batches waited for the GPU's memory, which those before them hold until their work there is \
                          done: the trainer is behind, or keeps batches";
            (Bottleneck::Memory, demands.of_part(part), advice.to_owned())
        }
        Candidate::DeviceWork => (Bottleneck::Loader, demands.of_part(part), device_advice(snapshot)),
        Candidate::Storage => storage::named(snapshot, evidence, &demands),
        Candidate::Memory => {
            let advice = "reads waited for memory that batches and reads in flight hold";
            (Bottleneck::Memory, demands.beside_ahead(part), advice.to_owned())
        }
        Candidate::Taking => {
            let advice = "memory was taken from the system, once for each byte: it ends when the limit is reached";
            (Bottleneck::MemoryTaking, demands.beside_ahead(part), advice.to_owned())
        }
        Candidate::Work => (Bottleneck::Loader, demands.beside_ahead(part), loader_advice(snapshot)),
    };
    let gain = demands.gain_without(part);
    let remedies = remedies::of(bottleneck, part, snapshot, evidence, &demands);
    let advice = match demands::short_of_memory(snapshot) {
        Some(share) => {
            format!("{advice}; and the machine is short of memory: something waited for it for {}", percent(share))
        }
        None => advice,
    };
    Verdict { bottleneck, share, advice, gain: Some(gain), remedies, without: missing(snapshot) }
}

/// The measurements that the verdict does without.
fn missing(snapshot: &Snapshot) -> Vec<&'static str> {
    if snapshot.processors.available == 0 {
        // The machine was not measured: the times are made up.
        return Vec::new();
    }
    let scheduled = || snapshot.threads.iter().filter_map(|thread| thread.scheduled);
    let queued = scheduled().any(|scheduled| scheduled.queued.is_some());
    let processors = &snapshot.processors;
    [
        (queued, "run-queue waits of threads (/proc/self/task/*/schedstat)"),
        (processors.throttled.is_some(), "the control groups' CPU quota (cpu.stat)"),
        (processors.processor_pressure.is_some(), "pressure on this machine (/proc/pressure)"),
    ]
    .into_iter()
    .filter_map(|(is_known, what)| (!is_known).then_some(what))
    .collect()
}

fn trainer_advice(snapshot: &Snapshot, demands: &Demands) -> String {
    let count = &snapshot.count;
    let ready = percent(count.batches_ready as f64 / count.batches as f64);
    let waited = percent(demands.waited);
    format!(
        "you waited for {waited} of the time, and {ready} of the batches lay ready when they were asked for: a faster \
         loader would not help"
    )
}

/// Describes the time of the user's own code, and whether more threads would help.
fn transform_advice(snapshot: &Snapshot) -> String {
    let threads = transform_threads(snapshot);
    let (transform, collate) =
        (snapshot.time(Role::Transform, Doing::Transform), snapshot.time(Role::Transform, Doing::Collate));
    let samples = snapshot.count.samples_transformed.max(1) as f64;
    let millis = |spent: Duration| spent.as_secs_f64() * 1e3 / samples;
    let what = if collate > transform { "collate function" } else { "transform" };
    let took = format!("your {what}: {:.3} ms a sample x {threads} threads", millis(transform.max(collate)));
    let hint = match transform_kind(snapshot) {
        Transforming::Locked => {
            "they had one processor between them, so it holds Python's lock, for which your training loop waits too: \
             more threads do not help; call what releases it (NumPy, torch, Pillow), or take the built-in transforms"
        }
        Transforming::Waiting => "it mostly waits: raise num_threads, or read what it waits for with the loader",
        Transforming::Working => "raise num_threads if there are more processors, or take the built-in transforms",
    };
    format!("{took}; {hint}")
}

/// What the user's own code spends its time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transforming {
    /// Its threads share the interpreter's lock.
    Locked,
    /// It waits for something else.
    Waiting,
    /// It computes.
    Working,
}

fn transform_kind(snapshot: &Snapshot) -> Transforming {
    let spent = |doing| snapshot.time(Role::Transform, doing).as_secs_f64();
    let busy = spent(Doing::Transform) + spent(Doing::Collate);
    let (cpu, elapsed) = (snapshot.count.transform_cpu_nanos as f64 / 1e9, snapshot.elapsed.as_secs_f64());
    let of_role = snapshot.threads.iter().filter(|thread| thread.role == Role::Transform);
    let queued = of_role.filter_map(|thread| thread.scheduled?.queued).map(|queued| queued.as_secs_f64()).sum::<f64>();
    // Neither running nor queued for a processor.
    let waited = busy - cpu - queued;
    match () {
        () if waited > LOCKED_OUT * busy
            && transform_threads(snapshot) > 1
            && ONE_PROCESSOR.contains(&(cpu / elapsed)) =>
        {
            Transforming::Locked
        }
        () if waited > MOSTLY * busy => Transforming::Waiting,
        () => Transforming::Working,
    }
}

/// Threads that ran the user's own code.
fn transform_threads(snapshot: &Snapshot) -> usize {
    let threads = snapshot.threads.iter().filter(|thread| thread.role == Role::Transform);
    threads.filter(|thread| !thread.on(Doing::Transform).is_zero() || !thread.on(Doing::Collate).is_zero()).count()
}

fn decode_advice(snapshot: &Snapshot, demands: &Demands) -> String {
    let busy = percent(demands.of_part(Candidate::Decode));
    match demands::threads(snapshot, Role::Stage) {
        0 => format!("decoding took {busy} of the time of a thread that has more to do: raise num_threads"),
        1 => format!("decoding took {busy} of the time of 1 thread: raise num_threads if there are more processors"),
        threads => {
            format!(
                "decoding took {busy} of the time of {threads} threads: raise num_threads if there are more processors"
            )
        }
    }
}

fn device_advice(snapshot: &Snapshot) -> String {
    let share = |doing| snapshot.share(Role::Device, doing).unwrap_or(0.0);
    if share(Doing::Copy) >= share(Doing::Submit) {
        "making columns on the host took most of the CPU of the thread that does it: put batches on a GPU, or take \
         views"
    } else {
        "starting copies took most of the CPU of the thread that feeds the device: use larger batches, and pinned \
         memory where the route says that it is not"
    }
    .to_owned()
}

fn processors_advice(snapshot: &Snapshot, demands: &Demands) -> String {
    let processors = &snapshot.processors;
    let throttled = processors.throttled.unwrap_or_default().as_secs_f64() / demands.elapsed;
    let used = processors.used.as_secs_f64() / demands.elapsed;
    if demands.is_throttled() {
        let quota =
            processors.quota.map_or_else(String::new, |quota| format!(" {:.2} processors,", quota.as_secs_f64()));
        return format!(
            "its control group allows{quota} and kept it from running for {} of the time",
            percent(throttled.min(1.0))
        );
    }
    let queued = percent(demands.queued_most());
    let available = processors.available;
    if demands.is_by_pressure() {
        return format!(
            "something on this machine was ready to run and had no processor for {queued} of the time, while this \
             process used {used:.1} of {available}; which threads waited is unknown"
        );
    }
    if demands.fills_processors() {
        return format!("its threads filled {available} processors and queued for them for {queued} of the time");
    }
    format!(
        "its threads were ready to run and had no processor for {queued} of the time, while it used {used:.1} of \
         {available}: other programs take them"
    )
}

fn loader_advice(snapshot: &Snapshot) -> String {
    match demands::works(snapshot)[0].0 {
        Doing::Submit if snapshot.facts.has_shards() => "starting reads took most of the CPU: they are many, and short",
        Doing::Submit => {
            "starting reads took most of the CPU: pack small files into shards, or coalesce neighbouring \
                          records"
        }
        Doing::Read if snapshot.facts.has_objects => "receiving what the store sends took most of the CPU",
        Doing::Read if storage::is_short(snapshot) => {
            "reading out of the page cache took most of the CPU: reads are many, and short"
        }
        Doing::Read => "copying out of the page cache took most of the CPU",
        Doing::Copy => "copying took most of the CPU: take views instead of dense columns",
        Doing::Plan => {
            "planning took most of the CPU: samples are small, so read them in an order by windows or shards"
        }
        _ => "making batches took most of the CPU: samples are small, and each takes as much of it as a large one",
    }
    .to_owned()
}

/// Describes what the loader has done before its first batch.
fn so_far(snapshot: &Snapshot) -> String {
    if let Some(outage) = &snapshot.outage {
        return format!(" yet: {outage}");
    }
    let spent = |doing: &Doing| snapshot.time(Role::Reactor, *doing);
    let most = Doing::ALL.into_iter().max_by_key(spent).filter(|doing| !spent(doing).is_zero());
    most.map_or_else(String::new, |doing| format!(" yet, and most of its time the loader had this to do: {doing}"))
}

fn unknown(why: &str) -> Verdict {
    let advice = format!("{why}; run longer");
    Verdict {
        bottleneck: Bottleneck::Unknown,
        share: 0.0,
        advice,
        gain: None,
        remedies: Vec::new(),
        without: Vec::new(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

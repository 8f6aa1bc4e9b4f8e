//! Finds which limit of the storage applies: its bandwidth, its operations, its latency, or bytes that no sample needs.

use super::demands::{Candidate, Demands, NEAR_RAW, threads};
use super::{Bottleneck, Evidence, Tried, percent, times};
use crate::stats::{Doing, Role, Snapshot};
use std::time::Duration;
use uringload_core::store::Counts;
use uringload_sys::throttle::ReadLimit;

/// Reads shorter than this cost a device as much as this many bytes do.
const SHORT_READ_BYTES: f64 = (64 << 10) as f64;
/// From this share of a limit on, it is what limits the storage: the kernel may cut a read into two, and counts both.
const AT_LIMIT: f64 = 0.5;
/// From this many bytes read for each one wanted on, the rest is worth mentioning.
const AMPLIFIED: f64 = 1.5;
/// A trial counts as a gain from this factor on.
const BETTER: f64 = 1.15;
/// A server that refuses this share of the requests, or more, bounds them: the loader makes fewer at a time, and tries
/// more only now and then.
const REFUSED: f64 = 0.001;
/// Reads are short if an operation costs this many times as much as their bytes.
const DEAR: f64 = 2.0;
/// While reads take less than this many times the fastest one, they do not queue in the device.
const UNQUEUED: f64 = 2.5;
/// Below this latency, queueing cannot be seen: the cost of wake-ups hides it.
const TELLING: Duration = Duration::from_micros(500);

/// Stored bytes a second over those of a raw read.
pub(super) fn of_raw(snapshot: &Snapshot, evidence: &Evidence) -> Option<f64> {
    evidence.raw.filter(|&raw| raw > 0.0).map(|raw| snapshot.stored_bytes_per_second() / raw)
}

/// Whether reads take as long as they would alone, so that more of them at a time would bring more.
pub(super) fn is_waiting(snapshot: &Snapshot, evidence: &Evidence) -> bool {
    if of_raw(snapshot, evidence).is_some_and(|of_raw| of_raw >= NEAR_RAW) || limit(snapshot).is_some() {
        return false;
    }
    let fastest = [snapshot.fastest_read, evidence.fastest_read].into_iter().flatten().min();
    match (fastest, alone(snapshot)) {
        (Some(least), Some(mean)) => least >= TELLING && mean.as_secs_f64() < UNQUEUED * least.as_secs_f64(),
        _ => false,
    }
}

/// Reads at a time over the allowed number, if reads do not queue in the storage; otherwise 1.
pub(super) fn filled(snapshot: &Snapshot, evidence: &Evidence) -> f64 {
    let depth = depth(snapshot);
    let is_known = depth > 0.0 && is_waiting(snapshot, evidence);
    if is_known { (at_a_time(snapshot) / depth).clamp(f64::MIN_POSITIVE, 1.0) } else { 1.0 }
}

/// How long a read takes, without waiting for a thread if threads read one by one.
fn alone(snapshot: &Snapshot) -> Option<Duration> {
    match threads(snapshot, Role::Io) {
        0 => snapshot.read_latency.mean(),
        _ => snapshot.time(Role::Io, Doing::Read).checked_div(u32::try_from(snapshot.count.reads).ok()?),
    }
}

/// Mean number of reads in the storage: those in flight, or those that a thread works on.
pub(super) fn at_a_time(snapshot: &Snapshot) -> f64 {
    match threads(snapshot, Role::Io) {
        0 => snapshot.in_flight_mean(),
        _ => snapshot.time(Role::Io, Doing::Read).as_secs_f64() / snapshot.elapsed.as_secs_f64().max(1e-9),
    }
}

/// Mean length of a read, in bytes.
pub(super) fn read_bytes(snapshot: &Snapshot) -> f64 {
    snapshot.count.bytes_read as f64 / snapshot.count.reads.max(1) as f64
}

/// Mean number of reads that were allowed in flight while the storage was waited for.
pub(super) fn depth(snapshot: &Snapshot) -> f64 {
    let waited = snapshot.time(Role::Reactor, Doing::WaitStorage).as_nanos() as f64;
    if waited > 0.0 { snapshot.count.depth_area as f64 / waited } else { 0.0 }
}

/// The gain of the best trial of a kind, if it was faster than the loader.
pub(super) fn better(snapshot: &Snapshot, evidence: &Evidence, kind: fn(Tried) -> bool) -> Option<(Tried, f64)> {
    let got = snapshot.stored_bytes_per_second().max(1.0);
    let of_kind = evidence.trials.iter().filter(|trial| kind(trial.tried));
    let best = of_kind.max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))?;
    let gain = best.bytes_per_second / got;
    (gain >= BETTER).then_some((best.tried, gain))
}

/// The limit of the control group that the storage is read at, if there is one.
pub(super) fn limit(snapshot: &Snapshot) -> Option<&ReadLimit> {
    let seconds = snapshot.elapsed.as_secs_f64().max(1e-9);
    let allowed = &snapshot.facts.allowed;
    let used = [(&allowed.operations, snapshot.count.reads), (&allowed.bytes, snapshot.count.bytes_read)];
    let used = used.into_iter().filter_map(|(limit, done)| {
        let limit = limit.as_ref()?;
        Some((limit, done as f64 / seconds / limit.most.max(1) as f64))
    });
    let (limit, used) = used.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (used >= AT_LIMIT).then_some(limit)
}

/// The bottleneck, its share, and why.
pub(super) fn named(snapshot: &Snapshot, evidence: &Evidence, demands: &Demands) -> (Bottleneck, f64, String) {
    let share = demands.beside_ahead(Candidate::Storage);
    let (bottleneck, why) = name(snapshot, evidence);
    let raw = match of_raw(snapshot, evidence) {
        Some(of_raw) => format!("; it gave {} of what it gave in a raw read of the same files", percent(of_raw)),
        None => String::new(),
    };
    let limit = limit(snapshot).map_or_else(String::new, |limit| format!("; its control group allows {limit}"));
    (bottleneck, share, why + &raw + &limit + &servers(snapshot))
}

/// Whether servers bound the requests that they answer at a time.
pub(super) fn refuses(snapshot: &Snapshot) -> bool {
    let sum = |of: fn(&Counts) -> u64| snapshot.endpoints.iter().map(of).sum::<u64>() as f64;
    let refused = sum(|server| server.throttled);
    refused > 0.0 && refused >= REFUSED * sum(|server| server.requests)
}

/// Which servers the storage is, and the refusals, which say that it gives no more.
fn servers(snapshot: &Snapshot) -> String {
    let servers = snapshot.endpoints.iter().filter(|server| server.requests > 0);
    let told = servers.map(|server| {
        let refused = match server.throttled {
            0 => String::new(),
            throttled => {
                let less = if refuses(snapshot) { ": it takes no more at a time" } else { "" };
                format!(", which refused {throttled} of {} requests{less}", server.requests)
            }
        };
        format!("; the storage is the endpoint {}{refused}", server.endpoint)
    });
    told.collect()
}

/// How much faster samples would come in long reads if an operation is known to cost more than the reads that were
/// made: the ratio of its price to their length.
pub(super) fn dear(snapshot: &Snapshot) -> Option<f64> {
    let gain = snapshot.operation_bytes as f64 / read_bytes(snapshot).max(1.0);
    (snapshot.count.reads > 0 && gain >= DEAR).then_some(gain)
}

/// Whether reads are so short that their number limits.
pub(super) fn is_short(snapshot: &Snapshot) -> bool {
    snapshot.count.reads > 0 && read_bytes(snapshot) < SHORT_READ_BYTES
}

fn name(snapshot: &Snapshot, evidence: &Evidence) -> (Bottleneck, String) {
    let (reads, bytes) = (snapshot.count.reads, read_bytes(snapshot));
    let rate = reads as f64 / snapshot.elapsed.as_secs_f64().max(1e-9);
    let of_bytes = bytes / 1e3;
    if dear(snapshot).is_some() {
        let price = snapshot.operation_bytes as f64 / 1e3;
        let why = format!(
            "it did {rate:.0} reads/s of {of_bytes:.0} KB each, and an operation costs as much as {price:.0} KB"
        );
        return (Bottleneck::Operations, why);
    }
    let in_flight = at_a_time(snapshot);
    let mean = alone(snapshot).unwrap_or_default();
    // What a control group allows is the same for any depth.
    let deeper =
        better(snapshot, evidence, |tried| matches!(tried, Tried::Depth(_))).filter(|_| limit(snapshot).is_none());
    if let Some((Tried::Depth(depth), gain)) = deeper {
        let why = format!("with {in_flight:.0} reads in flight it gave less than with {depth}: {}", times(gain));
        return (Bottleneck::Latency, why);
    }
    if is_waiting(snapshot, evidence) {
        let why = format!("a read takes {mean:.1?} however many there are, and {in_flight:.0} were in flight");
        return (Bottleneck::Latency, why);
    }
    let amplification = snapshot.read_amplification().unwrap_or(1.0);
    let is_short = is_short(snapshot);
    if amplification >= AMPLIFIED && !is_short {
        return (
            Bottleneck::Amplification,
            format!("{amplification:.1} bytes are read for each byte that samples need"),
        );
    }
    let long = better(snapshot, evidence, |tried| tried == Tried::LongReads);
    let tried_long = evidence.trials.iter().any(|trial| trial.tried == Tried::LongReads);
    if long.is_some() || (is_short && !tried_long) {
        return (Bottleneck::Operations, format!("it did {rate:.0} reads/s of {of_bytes:.0} KB each"));
    }
    let tried = match (evidence.trials.is_empty(), of_raw(snapshot, evidence)) {
        (false, _) => "more reads in flight and longer ones were tried and gave no more",
        (true, Some(of_raw)) if of_raw < NEAR_RAW => "a raw read gave more",
        (true, _) => "no other depth and no longer reads were tried",
    };
    let megabytes = snapshot.count.bytes_read as f64 / 1e6 / snapshot.elapsed.as_secs_f64().max(1e-9);
    (Bottleneck::Bandwidth, format!("it gave {megabytes:.0} MB/s in reads of {of_bytes:.0} KB: {tried}"))
}

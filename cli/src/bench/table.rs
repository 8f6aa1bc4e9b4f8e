//! The result of `bench` for humans.

use std::fmt::Write as _;
use uringload::State;
use uringload::config::Shuffle;
use uringload::sampler::{Cursor, EpochDigest};
use uringload::stats::{Counts, Distribution};
use uringload::stats::{Doing, Role};
use uringload_measure::bench::run::Measured;
use uringload_measure::bench::spread::Spread;
use uringload_measure::bench::{Outcome, Workload, device};
use uringload_measure::text::{binary, bytes, count, time};

/// The table, terminated by a newline.
pub fn of(outcome: &Outcome<'_>) -> String {
    let measured = &outcome.median().measured;
    let mut table = Table(subject(outcome) + "\n\n");
    throughput(&mut table, outcome, measured);
    for (name, value) in device::rows(outcome.median(), outcome.raw()) {
        table.row(name, &value);
    }
    waits(&mut table, measured);
    costs(&mut table, measured);
    limit(&mut table, outcome, measured);
    table.row("route", &measured.route.to_string());
    for step in &measured.route.fallbacks {
        table.row("", &step.to_string());
    }
    comparisons(&mut table, outcome, measured);
    table.0
}

/// Columns of the names of rows.
pub const NAMES: usize = 13;

struct Table(String);

impl Table {
    fn row(&mut self, name: &str, value: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{name:<NAMES$} {value}");
    }
}

/// What was read, in one line.
fn subject(outcome: &Outcome<'_>) -> String {
    let (dataset, config) = (&outcome.bench.subject.dataset, &outcome.bench.config);
    let mut line = format!(
        "{} of {} samples, {}; batches of {}",
        dataset.format(),
        count(dataset.len()),
        bytes(dataset.bytes() as f64),
        count(config.batch_size)
    );
    if config.shuffle != Shuffle::Off {
        line += &format!(", shuffled with seed {}", config.seed);
    }
    if config.world_size > 1 {
        line += &format!(", rank {} of {}", config.rank, config.world_size);
        if let Some(source) = &outcome.bench.ranks_from {
            line += &format!(" (from {source})");
        }
    }
    if let Some(Cursor { epoch, position, .. }) = outcome.bench.state.as_ref().map(State::cursor) {
        line += &format!(", from epoch {epoch}, position {}", count(position));
    }
    if outcome.is_cold() {
        line += "; the files evicted from the page cache before each measurement";
    }
    if outcome.rounds.len() > 1 {
        line += &format!("; the median of {} rounds", outcome.rounds.len());
    }
    line
}

/// What limits, what it would bring if it were free, and what to try.
fn limit(table: &mut Table, outcome: &Outcome<'_>, measured: &Measured) {
    let verdict = measured.verdict(&outcome.evidence());
    table.row("limit", &verdict.to_string());
    if let Some(gain) = verdict.gain.filter(|&gain| gain > 1.0) {
        let rate = count((measured.samples_per_second() * gain) as u64);
        let gain = if gain < 100.0 { format!("{gain:.1}x") } else { "100x or more".to_owned() };
        table.row("", &format!("{gain}, {rate} samples/s, if that part took no time"));
    }
    for remedy in &verdict.remedies {
        table.row("try", &remedy.to_string());
    }
    for missing in &verdict.without {
        table.row("", &format!("cannot be read here, so the limit is told without: {missing}"));
    }
}

fn throughput(table: &mut Table, outcome: &Outcome<'_>, measured: &Measured) {
    let rate = measured.bytes_per_second();
    let samples = count(measured.samples_per_second().round() as u64);
    let wall = time(measured.wall);
    table.row("throughput", &format!("{:<12} {samples} samples/s for {wall}", format!("{}/s", bytes(rate))));
    if outcome.rounds.len() > 1 {
        let Spread { mean, deviation, ends: [least, most], outliers } = Spread::of(&outcome.rounds);
        let [least, mean, most] = [least, mean, most].map(|rate| count(rate.round() as u64));
        let deviation = count(deviation.unwrap_or(0.0).round() as u64);
        table.row("rounds", &format!("{mean} ± {deviation} samples/s, from {least} to {most}"));
        for round in outliers {
            let rate = count(outcome.rounds[round].measured.samples_per_second().round() as u64);
            table.row("", &format!("round {} is an outlier: {rate} samples/s; something else was at work", round + 1));
        }
    }
    raw_read(table, outcome, measured);
    if let Some(step) = outcome.bench.emulate_step {
        let au = measured.au_percent.map_or_else(|| "unknown".to_owned(), |au| format!("{au:.1} %"));
        let of = match outcome.bench.accelerators {
            1 => String::new(),
            several => format!(", the mean of {several}"),
        };
        table.row("accelerator", &format!("{au:<12} busy, with steps of {}{of}", time(step)));
        if let (Some(workload), Some(au)) = (outcome.bench.mlperf, measured.au_percent) {
            let Workload { name, accelerator, bar_percent, .. } = workload;
            let reached = if au >= bar_percent { "reached" } else { "missed" };
            table.row(
                "",
                &format!(
                    "{name} on {accelerator} x {}: the bar of {bar_percent} % is {reached} (no MLPerf result)",
                    outcome.bench.accelerators
                ),
            );
        }
    }
}

/// The share of a raw read, with its spread; no share where the yardstick cannot be trusted, or there was none.
fn raw_read(table: &mut Table, outcome: &Outcome<'_>, measured: &Measured) {
    let yardstick = &outcome.yardstick;
    let Some(rate) = yardstick.rate().filter(|&rate| rate > 0.0) else {
        if outcome.lacks_raw_read() {
            table.row(
                "of a raw read",
                "unknown      no raw read came to its end: a longer --duration leaves time for one",
            );
        }
        return;
    };
    let spread = yardstick.spread().map_or_else(String::new, |spread| {
        format!(", the median of {} within {:.0} %", yardstick.count(), 100.0 * spread)
    });
    let depth = yardstick.shape().and_then(|shape| shape.depth);
    let depth = depth.map_or_else(String::new, |depth| format!(" at a depth of {depth}"));
    if yardstick.is_disturbed() {
        let line = format!("unknown      the raw read was disturbed: less ({}/s{spread}) than the loader", bytes(rate));
        return table.row("of a raw read", &line);
    }
    let share = format!("{:.1} %", 100.0 * measured.share_of_raw(rate));
    let line = format!("{share:<12} of {}/s from the same files in the same run{depth}{spread}", bytes(rate));
    table.row("of a raw read", &line);
}

fn waits(table: &mut Table, measured: &Measured) {
    let snapshot = &measured.snapshot;
    let percentiles = |times: &Distribution, percents: &[f64]| {
        let one = |&percent: &f64| times.percentile(percent).map(|at| format!("p{percent} {:<10}", time(at)));
        percents.iter().filter_map(one).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    if snapshot.read_latency.count() > 0 {
        table.row("read latency", &percentiles(&snapshot.read_latency, &[50.0, 99.0, 99.9]));
    }
    let first = measured.first_batch.map(|first| format!("the first after {}", time(first)));
    let waits = percentiles(&snapshot.batch_wait, &[50.0, 99.0]);
    let parts: Vec<String> = [(!waits.is_empty()).then_some(waits), first].into_iter().flatten().collect();
    if !parts.is_empty() {
        table.row("batch wait", &parts.join("; "));
    }
}

fn costs(table: &mut Table, measured: &Measured) {
    let snapshot = &measured.snapshot;
    if let Some(cpu) = measured.cpu_per_gb() {
        let cores = measured.cpu.as_secs_f64() / measured.wall.as_secs_f64().max(1e-9);
        let cost = format!("{cpu:.3} s/GB");
        table.row("CPU", &format!("{cost:<12} {:.0} % of one core, the whole process", 100.0 * cores));
    }
    let pool = binary(measured.pool_bytes);
    match measured.peak_memory {
        Some(peak) => {
            let taken = snapshot.time(Role::Reactor, Doing::TakeMemory);
            let peak = binary(peak);
            let taken = time(taken);
            table.row("memory", &format!("{peak:<12} at most, with up to {pool} for samples; taken once, in {taken}"));
        }
        None => table.row("memory", &format!("up to {pool} for samples")),
    }
    if let Some(amplification) = snapshot.read_amplification() {
        let reads = count(snapshot.count.reads);
        table.row("read", &format!("{amplification:<12.3} bytes for each byte wanted, in {reads} reads"));
    }
    if snapshot.count.units_decoded > 0 {
        let Counts { units_decoded, bytes_decoded, .. } = snapshot.count;
        let threads = snapshot.threads.iter().filter(|thread| thread.role == Role::Stage).count();
        let decoded = format!("{:<12} to {} on {threads} threads", count(units_decoded), bytes(bytes_decoded as f64));
        table.row("units", &decoded);
    }
    if snapshot.count.samples_decoded > 0 {
        let Counts { samples_decoded, bytes_decoded, .. } = snapshot.count;
        let threads = snapshot.threads.iter().filter(|thread| thread.role == Role::Stage).count();
        let spent = snapshot.time(Role::Stage, Doing::Decode) + snapshot.time(Role::Reactor, Doing::Decode);
        let each = time(spent / u32::try_from(samples_decoded).unwrap_or(u32::MAX));
        let made = format!("{} made on {threads} threads, {each} each", bytes(bytes_decoded as f64));
        table.row("decoded", &format!("{:<12} {made}", count(samples_decoded)));
        if snapshot.count.samples_decoded_on_device > 0 {
            let on_device = count(snapshot.count.samples_decoded_on_device);
            table.row("", &format!("{on_device:<12} of these by the GPU"));
        }
    }
    let Counts { cache_hits, cache_misses, .. } = snapshot.count;
    if cache_hits + cache_misses > 0 {
        let share = cache_hits as f64 / (cache_hits + cache_misses) as f64;
        let came = format!("{:.1} % of the samples came from the cache of decoded images", 100.0 * share);
        table.row("cached", &format!("{:<12} {came}", count(cache_hits)));
    }
    let Counts { bytes_cached, bytes_read, .. } = snapshot.count;
    if bytes_cached > 0 {
        let share = 100.0 * bytes_cached as f64 / bytes_read.max(1) as f64;
        let came = format!("{share:.1} % of the bytes came from the cache on the local disk");
        table.row("kept", &format!("{:<12} {came}", bytes(bytes_cached as f64)));
    }
    let EpochDigest { epoch, since, delivered, lost, .. } = measured.digest;
    let since = if since > 0 { format!(" since position {}", count(since)) } else { String::new() };
    let samples = count(delivered.samples);
    table.row("digest", &format!("{:016x} of {samples} samples of epoch {epoch}{since}", delivered.sum));
    if lost.samples > 0 {
        table.row("", &format!("{:016x} of {} samples that were lost", lost.sum, count(lost.samples)));
    }
    for (number, what) in [
        (snapshot.count.samples_skipped, "samples were skipped: they could not be read"),
        (snapshot.count.retries, "reads were repeated after an error or a short read"),
    ] {
        if number > 0 {
            table.row("", &format!("{} {what}", count(number)));
        }
    }
}

fn comparisons(table: &mut Table, outcome: &Outcome<'_>, measured: &Measured) {
    let compared = outcome.compared();
    if compared.is_empty() {
        return;
    }
    let heads = ["threads", "rate", "we are", "CPU s/GB", "we take"];
    table.0.push('\n');
    let [threads, rate, ours, cpu, take] = heads;
    table.row("compared with", &format!("{threads:>7}  {rate:>12}  {ours:>7}  {cpu:>8}  {take:>7}"));
    for one in compared {
        let ratio = |ours: Option<f64>, theirs: Option<f64>| match (ours, theirs) {
            (Some(ours), Some(theirs)) if theirs > 0.0 => format!("{:.2}x", ours / theirs),
            _ => "-".to_owned(),
        };
        let rate = format!("{}/s", bytes(one.bytes_per_second()));
        let faster = ratio(Some(measured.bytes_per_second()), Some(one.bytes_per_second()));
        let cpu = one.cpu_per_gb().map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.3}"));
        let less = ratio(measured.cpu_per_gb(), one.cpu_per_gb());
        let line = format!("{:>7}  {rate:>12}  {faster:>7}  {cpu:>8}  {less:>7}", one.threads);
        table.row(one.way.name(), &line);
    }
}

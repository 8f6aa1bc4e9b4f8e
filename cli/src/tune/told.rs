//! What `tune` says: for people, for programs, and in the profile.

use super::knobs::words;
use super::{Outcome, Point};
use crate::bench::machine::{Command, Machine};
use crate::facts;
use crate::output::one_line;
use crate::units;
use serde_json::{Value, json};
use std::fmt::Write as _;
use uringload::config::Profile;
use uringload::stats::Bottleneck;
use uringload_sys::{cgroup, system};

/// Of what is printed as JSON.
const VERSION: u32 = 1;

/// A gain that is less is noise.
const WORTH: f64 = 1.02;

/// All figures.
pub fn report(outcome: &Outcome<'_>, profile: &Profile) -> Value {
    let dataset = &outcome.bed.data.dataset;
    let [now, best] = outcome.rates();
    let gain = best / now.max(1e-9);
    let tried = outcome.tried.iter().map(|tried| {
        let gain = tried.rate.map(|rate| rate / outcome.now.rate.max(1e-9));
        json!({ "what": tried.what, "samples_per_s": tried.rate, "gain": gain, "why_not": tried.why })
    });
    let others = outcome
        .others
        .iter()
        .map(|other| json!({ "what": other.what, "samples_per_s": other.rate, "gain": other.gain }));
    let verdict = &outcome.verdict;
    let settings = profile.settings().into_iter().map(|(key, value)| (key.to_owned(), number(value)));
    json!({
        "version": VERSION,
        "uringload": env!("CARGO_PKG_VERSION"),
        "run": Command::now(),
        "machine": Machine::here(&**dataset),
        "limits": {
            "processors": cgroup::processors_allowed(),
            "processor_quota": cgroup::processor_quota().map(|quota| quota.processors),
            "memory_available_bytes": system::memory_available(),
            "memory_room_bytes": cgroup::memory().map(|group| group.room()),
        },
        "dataset": { "format": dataset.format(), "samples": dataset.len(), "bytes": dataset.bytes() },
        "took_s": outcome.begun.elapsed().as_secs_f64(),
        "device": outcome.points,
        "raw_read_bytes_per_s": outcome.raw(),
        "now": {
            "what": words(&outcome.given),
            "samples_per_s": now,
            "route": outcome.now.route.to_string(),
            "fallbacks": outcome.now.route.fallbacks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "bottleneck": verdict.bottleneck.name(),
            "share": verdict.share,
            "advice": verdict.advice,
        },
        "tried": tried.collect::<Vec<_>>(),
        "best": { "what": words(&outcome.best), "samples_per_s": best, "gain": gain, "pairs": outcome.pairs },
        "others": others.collect::<Vec<_>>(),
        "profile": settings.collect::<serde_json::Map<_, _>>(),
        "interrupted": outcome.is_interrupted,
    })
}

fn number(text: String) -> Value {
    text.parse::<u64>().map_or(Value::String(text), Value::from)
}

/// Columns of the names of rows.
pub const NAMES: usize = 9;

struct Table(String);

impl Table {
    fn row(&mut self, name: &str, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{name:<NAMES$} {}", one_line(text));
    }

    /// Something that was measured, its rate and how many times as fast that is.
    fn try_out(&mut self, name: &str, what: &str, rate: Option<f64>, gain: Option<f64>) {
        let rate = rate.map_or_else(|| "cannot be".to_owned(), |rate| units::count(rate.round() as u64));
        let gain = gain.map_or_else(String::new, |gain| format!("{gain:.2}x"));
        self.row(name, &format!("{what:<44} {rate:>12} {gain:>8}"));
    }
}

/// The table, terminated by a newline.
pub fn table(outcome: &Outcome<'_>, report: &Value) -> String {
    let dataset = &outcome.bed.data.dataset;
    let mut table = Table(String::new());
    let samples = units::count(dataset.len());
    let bytes = units::bytes(dataset.bytes() as f64);
    table.row("dataset", &format!("{} of {samples} samples, {bytes}", dataset.format()));
    if let Some(place) = facts::place(&**dataset) {
        table.row("on", &place.to_string());
    }
    table.row("machine", &machine());
    device(&mut table, &outcome.points, outcome.now.route.direct_io);
    if let Some(raw) = outcome.raw() {
        table.row("", &format!("the dataset's own samples, raw: {}/s", units::bytes(raw)));
    }
    let [now, best] = outcome.rates();
    table.row("now", &format!("{}: {} samples/s", words(&outcome.given), units::count(now.round() as u64)));
    table.row("route", &outcome.now.route.to_string());
    for fallback in &outcome.now.route.fallbacks {
        table.row("", &fallback.to_string());
    }
    table.row("limit", &outcome.verdict.to_string());
    if outcome.verdict.bottleneck == Bottleneck::Trainer {
        table.row("best", "what there is: the loader is faster than the step, so nothing was searched");
        return table.0;
    }
    table.row("", &format!("{:<44} {:>12} {:>8}", "", "samples/s", "gain"));
    for (number, tried) in outcome.tried.iter().enumerate() {
        let gain = tried.rate.map(|rate| rate / outcome.now.rate.max(1e-9));
        table.try_out(if number == 0 { "try" } else { "" }, &tried.what, tried.rate, gain);
    }
    let gain = best / now.max(1e-9);
    table.try_out("best", &words(&outcome.best), Some(best), Some(gain));
    if gain < WORTH {
        table.row("", "nothing that was tried is faster than what was given");
    } else if let Some(pairs) = range(&outcome.pairs) {
        table.row("", &format!("measured by turns with what was given: {pairs}"));
    }
    for (number, other) in outcome.others.iter().enumerate() {
        table.try_out(if number == 0 { "or" } else { "" }, &other.what, Some(other.rate), Some(other.gain));
    }
    if !outcome.others.is_empty() {
        table.row("", "these change the order or the files, so they are yours to choose; gains over the best");
    }
    if outcome.bed.options.out.as_os_str() != "-" && !outcome.is_interrupted {
        let out = outcome.bed.options.out.display();
        table.row("profile", &format!("{out}: `uringload bench DIR --profile {out}`, DataLoader(profile=...)"));
    }
    let took = report["took_s"].as_f64().unwrap_or_default();
    table.row("took", &format!("{took:.1} s"));
    table.0
}

/// Processors and memory, with what a container leaves of them.
fn machine() -> String {
    let quota =
        cgroup::processor_quota().map_or("no quota".to_owned(), |quota| format!("a quota of {:.2}", quota.processors));
    let available = system::memory_available().map_or("unknown".to_owned(), units::binary);
    let room =
        cgroup::memory().map_or_else(String::new, |group| format!(", {} in its group", units::binary(group.room())));
    format!("{} processors, {quota}; {available} of memory available{room}", cgroup::processors_allowed())
}

fn device(table: &mut Table, points: &[Point], is_direct: bool) {
    let way = if is_direct { "" } else { ", through the page cache" };
    for (number, point) in points.iter().enumerate() {
        let is_first = number == 0 || points[number - 1].read_bytes != point.read_bytes;
        let size = if is_first { format!("{} reads{way}:", units::binary(point.read_bytes)) } else { String::new() };
        let latency = units::time(std::time::Duration::from_secs_f64(point.latency_us / 1e6));
        let line = format!(
            "{size:<18} depth {:>3}  {:>9} reads/s {:>12}/s  {latency:>8} each",
            point.depth,
            units::count(point.reads_per_s.round() as u64),
            units::bytes(point.bytes_per_s)
        );
        table.row(if number == 0 { "device" } else { "" }, &line);
    }
}

/// The gains of all pairs, from the least to the greatest.
fn range(pairs: &[[f64; 2]]) -> Option<String> {
    let gains = || pairs.iter().map(|[given, best]| best / given.max(1e-9));
    let (least, most) = (gains().fold(f64::MAX, f64::min), gains().fold(0.0, f64::max));
    (!pairs.is_empty()).then(|| format!("{least:.2}x to {most:.2}x in {} pairs", pairs.len()))
}

/// The file: who wrote it and what it brings, as comments, and the settings.
pub fn profile(outcome: &Outcome<'_>, profile: &Profile) -> String {
    let [now, best] = outcome.rates().map(|rate| units::count(rate.round() as u64));
    let (run, machine) = (json!(Command::now()), json!(Machine::here(&*outcome.bed.data.dataset)));
    let text = |value: &Value| value.as_str().map_or_else(|| "unknown".to_owned(), |text| one_line(text).into_owned());
    let paths = outcome.bed.options.source.paths.iter().map(|path| one_line(&path.to_string_lossy()).into_owned());
    let paths = paths.collect::<Vec<_>>().join(", ");
    format!(
        "# Written by `uringload tune`, {}. How to read {paths}\n# on {}, Linux {}, {}:\n# {best} samples/s, with what \
         was given ({}) {now}.\n# What is given by name wins over it: `--profile FILE`, `Builder::profile`,\n# \
         `DataLoader(profile=FILE)`.\n{profile}",
        text(&run["time"]),
        text(&machine["host"]),
        text(&machine["kernel"]),
        text(&machine["device"]),
        words(&outcome.given),
    )
}

//! `uringload tune`: finds how to read a dataset fastest on this machine, by measuring.

use crate::Done;
use crate::arguments::{EngineName, Tune, config};
use crate::data::Data;
use crate::failure::Exit;
use crate::interrupt::Interrupt;
use crate::output::{self, eprintln_quietly};
use crate::ranks::Ranks;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use uringload::stats::Bottleneck;
use uringload::{Error, ErrorKind};
use uringload_measure::text::{self, one_line};
use uringload_measure::tune::{Judgement, Outcome, Point, interval, median, words};
use uringload_measure::{Tune as Measurement, facts};

/// Measures, prints, and writes the profile.
pub fn run(options: &Tune) -> Done {
    let interrupt = Interrupt::install();
    if options.means.engine == EngineName::Sim {
        let error = Error::new(ErrorKind::InvalidArgument, "there is nothing to tune about a simulated disk");
        return Err(error.with_remedy("leave out --engine").into());
    }
    let data = Data::of(&options.source)?;
    let ranks = Ranks::of(&options.source.order)?;
    let config = ranks.apply(config(&options.source.order, &options.means, &options.rows, &options.source.failing));
    let subject = data.subject(&options.source.chosen, &options.images);
    let measurement = Measurement {
        emulate_step: options.emulate_step,
        cold: options.cold,
        limit: options.limit,
        out: Some(options.out.clone()).filter(|out| out != Path::new("-")),
        scratch: options.scratch.clone(),
        ..Measurement::new(subject, config, options.source.paths.clone())
    };
    let Some(outcome) = measurement.run(&interrupt)? else {
        eprintln_quietly("uringload: stopped before the first figure, so there is nothing to tell");
        return Ok(Exit::Interrupted);
    };
    let report = outcome.report();
    if options.json {
        output::print(&format!("{report:#}\n"))?;
    } else {
        output::print_table(&table(&outcome, &report), NAMES)?;
    }
    outcome.save()?;
    Ok(if outcome.is_interrupted { Exit::Interrupted } else { Exit::Done })
}

/// Columns of the names of rows.
const NAMES: usize = 9;

struct Table(String);

impl Table {
    fn row(&mut self, name: &str, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{name:<NAMES$} {}", one_line(text));
    }

    /// Something that was measured, its rate and how many times as fast that is.
    fn try_out(&mut self, name: &str, what: &str, rate: Option<f64>, gain: Option<f64>) {
        let none = if name == "found" { "" } else { "cannot be" };
        let rate = rate.map_or_else(|| none.to_owned(), |rate| text::count(rate.round() as u64));
        let gain = gain.map_or_else(String::new, |gain| format!("{gain:.2}x"));
        self.row(name, &format!("{what:<44} {rate:>12} {gain:>8}"));
    }
}

/// The table, terminated by a newline.
fn table(outcome: &Outcome<'_>, report: &Value) -> String {
    let dataset = &outcome.tune.subject.dataset;
    let mut table = Table(String::new());
    let samples = text::count(dataset.len());
    let bytes = text::bytes(dataset.bytes() as f64);
    table.row("dataset", &format!("{} of {samples} samples, {bytes}", dataset.format()));
    if let Some(place) = facts::place(&**dataset) {
        table.row("on", &place.to_string());
    }
    table.row("machine", &machine(&report["limits"]));
    device(&mut table, &outcome.points, outcome.now.route.direct_io);
    if let Some(raw) = outcome.raw() {
        table.row("", &format!("the dataset's own samples, raw: {}/s", text::bytes(raw)));
    }
    let [now, _] = outcome.rates();
    table.row("now", &format!("{}: {} samples/s", words(&outcome.tune.config), text::count(now.round() as u64)));
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
        table.try_out(if number == 0 { "try" } else { "" }, &tried.what, tried.rate, tried.gain);
    }
    if let Some(spread) = outcome.spread {
        let percent = 100.0 * spread;
        table.row("spread", &format!("two runs of what was given, one after the other, differ by {percent:.1} %"));
    }
    judged(&mut table, outcome);
    for (number, other) in outcome.others.iter().enumerate() {
        table.try_out(if number == 0 { "or" } else { "" }, &other.what, Some(other.rate), Some(other.gain));
    }
    if !outcome.others.is_empty() {
        table.row("", "these change the order or the files, so they are yours to choose; gains over the best");
    }
    if let Some(out) = outcome.tune.out.as_ref().filter(|_| !outcome.is_interrupted) {
        let out = out.display();
        table.row("profile", &format!("{out}: `uringload bench DIR --profile {out}`, DataLoader(profile=...)"));
    }
    let took = report["took_s"].as_f64().unwrap_or_default();
    table.row("took", &format!("{took:.1} s"));
    table.0
}

/// Processors and memory, with what a container leaves of them.
fn machine(limits: &Value) -> String {
    let processors = &limits["processors"];
    let quota =
        limits["processor_quota"].as_f64().map_or("no quota".to_owned(), |quota| format!("a quota of {quota:.2}"));
    let available = limits["memory_available_bytes"].as_u64().map_or("unknown".to_owned(), text::binary);
    let room = limits["memory_room_bytes"].as_u64();
    let room = room.map_or_else(String::new, |room| format!(", {} in its group", text::binary(room)));
    format!("{processors} processors, {quota}; {available} of memory available{room}")
}

fn device(table: &mut Table, points: &[Point], is_direct: bool) {
    let way = if is_direct { "" } else { ", through the page cache" };
    for (number, point) in points.iter().enumerate() {
        let is_first = number == 0 || points[number - 1].read_bytes != point.read_bytes;
        let size = if is_first { format!("{} reads{way}:", text::binary(point.read_bytes)) } else { String::new() };
        let latency = text::time(std::time::Duration::from_secs_f64(point.latency_us / 1e6));
        let line = format!(
            "{size:<18} depth {:>3}  {:>9} reads/s {:>12}/s  {latency:>8} each",
            point.depth,
            text::count(point.reads_per_s.round() as u64),
            text::bytes(point.bytes_per_s)
        );
        table.row(if number == 0 { "device" } else { "" }, &line);
    }
}

/// What was found, how sure that is, and what is therefore the best.
fn judged(table: &mut Table, outcome: &Outcome<'_>) {
    let [_, best] = outcome.rates();
    if let Some(found) = &outcome.found {
        let gains = outcome.gains();
        let least = gains.iter().copied().fold(f64::MAX, f64::min);
        let most = gains.iter().copied().fold(0.0, f64::max);
        table.try_out("found", &words(found), None, median(&gains));
        let told = match interval(&gains) {
            Some([low, high]) => format!(", the median at {low:.2}x to {high:.2}x with 95 % of certainty"),
            None => String::new(),
        };
        if !gains.is_empty() {
            let pairs = gains.len();
            table.row("", &format!("{pairs} pairs, by turns with what was given: {least:.2}x to {most:.2}x{told}"));
        }
    }
    table.try_out("best", &words(&outcome.best), Some(best), Some(outcome.gain()));
    match outcome.judgement {
        Some(Judgement::NoFaster) => table.row("", "as it was given: nothing that was tried is faster beyond noise"),
        Some(Judgement::Unclear) => table.row(
            "",
            "as it was given: this machine is too busy to tell what is faster; try again when nothing else runs on it",
        ),
        Some(Judgement::Short) => {
            table.row("", "as it was given: there was too little time to be sure of more; give a longer --limit");
        }
        Some(Judgement::Faster) | None => {}
    }
}

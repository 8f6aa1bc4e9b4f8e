//! `uringload verify`: lists everything that is wrong with a dataset, one line each.

mod console;
mod open;

use crate::Done;
use crate::arguments::{Images, Verify};
use crate::failure::Exit;
use crate::interrupt::Interrupt;
use crate::output;
use console::Console;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;
use uringload::Loader;
use uringload::config::Config;
use uringload::dataset::Dataset;
use uringload::verify::{Finding, Summary, Watch};
use uringload_measure::text;

/// Opens as much of the dataset as possible, and verifies it.
pub fn run(options: &Verify) -> Done {
    let start = Instant::now();
    let interrupt = Interrupt::install();
    let console = Console::new(&interrupt, options.max_findings, options.json);
    let (data, errors) =
        open::all_that_can_be(&options.paths, &options.format.for_verify(options.timeout), &interrupt)?;
    let mut summary = Summary::default();
    summary.findings = errors.len() as u64;
    errors.into_iter().for_each(|error| console.found(&Finding::new(error)));
    if let Some(data) = &data {
        let before = summary.findings;
        let mut config = Config { timeout: options.timeout, ..Config::default() };
        options.means.apply(&mut config);
        let (decode, image_column) = (options.decode, options.image_column.clone());
        let images = Images { decode, image_column, ..Images::default() };
        summary = images.apply(Loader::builder(Arc::clone(data)).config(config), data)?.verify(&console)?;
        summary.findings += before;
    }
    let findings = console.finish()?;
    let text = if options.json {
        format!("{:#}\n", as_json(data.as_deref(), &summary, findings))
    } else {
        as_text(data.as_deref(), &summary, start)
    };
    output::print(&text)?;
    Ok(if interrupt.is_set() {
        Exit::Interrupted
    } else if summary.findings > 0 {
        Exit::Degraded
    } else {
        Exit::Done
    })
}

fn as_text(data: Option<&dyn Dataset>, summary: &Summary, start: Instant) -> String {
    let count = text::count;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = match data {
        None => write!(out, "nothing could be opened"),
        Some(data) => {
            let (format, files) = (data.format(), count(data.files().len() as u64));
            let (samples, bytes) = (count(summary.samples), text::bytes(summary.sample_bytes as f64));
            write!(out, "{format}: {files} files, {samples} good samples of {bytes}")
        }
    };
    if summary.samples_lost > 0 {
        let _ = write!(out, ", {} bad samples", count(summary.samples_lost));
    }
    let _ = write!(out, ", {} checks of files", count(summary.checks));
    for unknown in &summary.not_checked {
        let _ = write!(out, ", {} not checked ({})", count(unknown.count), unknown.algorithm);
    }
    let cut = if summary.is_complete { "" } else { "; it was not looked at to the end" };
    let _ = writeln!(out, "; {} findings in {}{cut}", count(summary.findings), text::time(start.elapsed()));
    for skipped in data.map_or(&[][..], |data| &data.index().left_out) {
        let (reason, first) = (skipped.what, skipped.first.display());
        let _ = writeln!(out, "left out: {} {reason}, the first {first}", count(skipped.count));
    }
    out
}

fn as_json(data: Option<&dyn Dataset>, summary: &Summary, findings: Vec<Value>) -> Value {
    let not_checked = summary.not_checked.iter().map(|unknown| {
        json!({ "algorithm": unknown.algorithm, "count": unknown.count, "first": unknown.first.to_string_lossy() })
    });
    let left_out = data.map_or(&[][..], |data| &data.index().left_out).iter().map(|skipped| {
        json!({
            "what": skipped.what, "count": skipped.count, "first": skipped.first.to_string_lossy(),
        })
    });
    json!({
        "format": data.map(|data| data.format()),
        "files": data.map_or(0, |data| data.files().len()),
        "samples": summary.samples,
        "samples_lost": summary.samples_lost,
        "bytes": summary.sample_bytes,
        "checks": summary.checks,
        "check_bytes": summary.check_bytes,
        "not_checked": not_checked.collect::<Vec<_>>(),
        "left_out": left_out.collect::<Vec<_>>(),
        "findings": findings,
        "complete": summary.is_complete,
    })
}

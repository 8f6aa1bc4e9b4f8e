//! `uringload cache`: what caches on a disk hold, whether it is whole, and how to remove it.

use crate::Done;
use crate::arguments::{CacheClear, CacheCommand, CacheFill, CacheFolder};
use crate::data;
use crate::failure::Exit;
use crate::interrupt::Interrupt;
use crate::output::{self, Table};
use crate::progress;
use serde_json::{Value, json};
use std::sync::Arc;
use uringload::config::{Cause, OnError};
use uringload::inspect::cache::{self, Cached, Clear, Cleared, Stat};
use uringload::{Error, Loader};
use uringload_measure::text;

/// Runs a command on the caches of a folder.
pub fn run(command: &CacheCommand) -> Done {
    // Whatever a command does, its end at any moment does no harm.
    Interrupt::end_at_once();
    match command {
        CacheCommand::Stat(options) => stat(options),
        CacheCommand::Fill(options) => fill(options),
        CacheCommand::Verify(options) => verify(options),
        CacheCommand::Clear(options) => clear(options),
    }
}

fn stat(options: &CacheFolder) -> Done {
    let stat = cache::stat(&options.folder)?;
    if options.json {
        output::print(&format!("{:#}\n", as_json(&stat)))?;
    } else {
        output::print_table(&as_text(&stat), output::NAMES)?;
    }
    Ok(Exit::Done)
}

fn as_json(stat: &Stat) -> Value {
    let dataset = |cached: &Cached| {
        json!({
            "kind": cached.kind,
            "name": cached.name,
            "entries": cached.entries,
            "bytes": cached.bytes,
            "dead_entries": cached.dead_entries,
            "dead_bytes": cached.dead_bytes,
        })
    };
    json!({
        "bytes": stat.bytes,
        "segments": stat.segments,
        "closed": stat.closed,
        "datasets": stat.datasets.iter().map(dataset).collect::<Vec<_>>(),
    })
}

fn as_text(stat: &Stat) -> String {
    let mut table = Table::new(output::NAMES);
    let closed = match stat.closed {
        0 => String::new(),
        closed => format!(", {} of them damaged: nothing is added to those", text::count(closed)),
    };
    table.row("on disk", format!("{} in {} files{closed}", of_bytes(stat.bytes), text::count(stat.segments)));
    for cached in &stat.datasets {
        let (name, entries) = (text::one_line(&cached.name), text::count(cached.entries));
        let dead = match cached.dead_entries {
            0 => String::new(),
            dead => format!("; not used any more: {} of {}", text::count(dead), of_bytes(cached.dead_bytes)),
        };
        table.row(cached.kind, format!("{name}: {entries} entries of {}{dead}", of_bytes(cached.bytes)));
    }
    table.text
}

fn of_bytes(bytes: u64) -> String {
    text::bytes(bytes as f64)
}

/// Samples that are read at a time.
const FILL_BATCH: u64 = 64;

fn fill(options: &CacheFill) -> Done {
    let dataset = data::open(&options.paths, &options.format.0)?;
    let builder = Loader::builder(Arc::clone(&dataset)).batch_size(FILL_BATCH).cache_disk(options.cache_disk.clone());
    let mut loader = builder.on_error(OnError::Skip).build()?;
    let (line, mut samples) = (progress::Line::new(), 0);
    for batch in loader.by_ref() {
        samples += batch?.ids.len() as u64;
        line.show(|| format!("fill {}  {} samples", progress::bar(samples, dataset.len()), text::count(samples)));
    }
    drop(line);
    let (count, route) = (loader.stats().snapshot().count, loader.route());
    drop(loader);
    for step in route.fallbacks.iter().filter(|step| step.cause == Cause::DiskCache) {
        output::eprintln_quietly(&format!("uringload: {step}"));
    }
    let kept: u64 = cache::stat(options.cache_disk.folder())?.datasets.iter().map(|cached| cached.bytes).sum();
    if options.json {
        let told = json!({
            "samples": samples,
            "failed": count.samples_skipped,
            "bytes": kept,
        });
        output::print(&format!("{told:#}\n"))?;
    } else {
        let failed = match count.samples_skipped {
            0 => String::new(),
            failed => format!("; {} samples could not be read", text::count(failed)),
        };
        let (samples, kept) = (text::count(samples), of_bytes(kept));
        output::print(&format!("{samples} samples read; the cache has {kept}{failed}\n"))?;
    }
    Ok(if count.samples_skipped > 0 { Exit::Degraded } else { Exit::Done })
}

fn verify(options: &CacheFolder) -> Done {
    let doing = progress::of_phase("reading the cache", None);
    let mut damaged: Vec<Error> = Vec::new();
    let verified = cache::verify(&options.folder, &mut |error| damaged.push(error))?;
    drop(doing);
    if options.json {
        let told = json!({
            "entries": verified.entries,
            "bytes": verified.bytes,
            "damaged": verified.damaged,
            "findings": damaged,
        });
        output::print(&format!("{told:#}\n"))?;
    } else {
        let mut lines: String = damaged.iter().map(|error| format!("{}\n", error.headline())).collect();
        let (entries, bytes) = (text::count(verified.entries), of_bytes(verified.bytes));
        lines += &format!("{entries} entries of {bytes}; {} damaged\n", text::count(verified.damaged));
        output::print(&lines)?;
    }
    Ok(if verified.damaged > 0 { Exit::Degraded } else { Exit::Done })
}

fn clear(options: &CacheClear) -> Done {
    let what = match &options.dataset {
        Some(name) => Clear::Dataset(name.clone()),
        None if options.stale => Clear::Stale,
        None => Clear::All,
    };
    let doing = progress::of_phase("removing", None);
    let Cleared { entries, bytes, freed, .. } = cache::clear(&options.folder.folder, &what)?;
    drop(doing);
    if options.folder.json {
        output::print(&format!("{:#}\n", json!({ "entries": entries, "bytes": bytes, "freed": freed })))?;
    } else {
        let removed = format!("{} entries of {} removed", text::count(entries), of_bytes(bytes));
        output::print(&format!("{removed}; {} free on the disk\n", of_bytes(freed)))?;
    }
    Ok(Exit::Done)
}

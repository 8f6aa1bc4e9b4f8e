//! `uringload pack`: writes a dataset as WebDataset shards, and reports the result.

use crate::Done;
use crate::arguments::{OnErrorName, Pack as Options};
use crate::data;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{self, Table, eprintln_quietly};
use crate::progress::{Line, bar};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use uringload::dataset::Dataset;
use uringload::dataset::inspect::url_scheme;
use uringload::pack::{Pack, PackCosts, PackLayout, PackPrediction, PackProgress, PackReport};
use uringload::{Error, ErrorKind, Loader};
use uringload_measure::text;

/// Packs what is missing.
pub fn run(options: &Options) -> Done {
    let start = Instant::now();
    let interrupt = Interrupt::install();
    check_apart(options)?;
    // Samples that lack a field are packed without it.
    let dataset = data::open(&options.paths, &options.format.under(&options.failing).prefer("missing", "empty"))?;
    for skipped in &dataset.index().left_out {
        let (count, first) = (text::count(skipped.count), skipped.first.display());
        eprintln_quietly(&format!("uringload: left out: {count} {}, the first {first}", skipped.what));
    }
    let pack =
        Loader::builder(Arc::clone(&dataset)).config(options.config()).pack(&options.folder, options.options()?)?;
    if options.shards.dry_run {
        let costs = pack.costs();
        if options.json {
            output::print(&format!("{:#}\n", costs_as_json(&pack, &costs)))?;
        } else {
            output::print_table(&costs_as_text(&*dataset, &pack, &costs), output::NAMES)?;
        }
        return Ok(Exit::Done);
    }
    let (report, predicted) = if options.shards.finish {
        (pack.finish()?, None)
    } else {
        interrupt.set_cleaner(Some(Box::new(pack.cleaner())));
        let progress = Progress::new(start);
        let report = pack.run(&|done| {
            progress.tell(done);
            if interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        drop(progress);
        interrupt.set_cleaner(None);
        (report?, pack.predict()?)
    };
    if options.failing.on_error == OnErrorName::Warn {
        report.errors.iter().for_each(|error| eprintln_quietly(&format!("uringload: left out: {}", error.headline())));
    }
    let time = start.elapsed();
    let text = if options.json {
        format!("{:#}\n", as_json(&*dataset, &pack, (&report, predicted.as_ref()), time))
    } else if options.shards.finish {
        as_proof(&*dataset, &pack, &report, time)
    } else {
        as_text(&*dataset, &pack, (&report, predicted.as_ref()), time)
    };
    if options.json {
        output::print(&text)?
    } else {
        output::print_table(&text, output::NAMES)?
    }
    Ok(if report.is_interrupted { Exit::Interrupted } else { Exit::Done })
}

/// Refuses a destination folder inside the source: the next scan of the source would find the shards.
fn check_apart(options: &Options) -> Result<(), Failure> {
    // The library looks at URLs.
    if url_scheme(&options.folder).is_some() {
        return Ok(());
    }
    // The folder may not exist yet: then check the place where it will be.
    let exists = options.folder.ancestors().find_map(|place| {
        let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
        place.canonicalize().ok()
    });
    let Some(place) = exists else { return Ok(()) };
    let is_around = |path: &&Path| path.is_dir() && path.canonicalize().is_ok_and(|path| place.starts_with(path));
    match options.paths.iter().map(AsRef::as_ref).find(is_around) {
        None => Ok(()),
        Some(path) => {
            let what = format!("the shards would lie within the source {path:?}");
            let error = Error::new(ErrorKind::InvalidArgument, what).with_path(&options.folder);
            Err(error.with_remedy("name a folder apart from the source").into())
        }
    }
}

fn costs_as_text(dataset: &dyn Dataset, pack: &Pack, costs: &PackCosts) -> String {
    let count = text::count;
    let of = |bytes: u64| text::bytes(bytes as f64);
    let mut table = Table::new(output::NAMES);
    table.row("source", format!("{}, {} samples", dataset.format(), count(dataset.len())));
    table.row("read", format!("{} of {} files", of(costs.bytes_read), count(costs.files)));
    let (shards, folder) = (count(costs.shards), pack.folder().display());
    table.row("shards", format!("{shards} in {folder}, of {} and headers", of(costs.bytes_written)));
    if costs.gets + costs.lists + costs.puts > 0 {
        let [gets, lists, puts] = [costs.gets, costs.lists, costs.puts].map(count);
        table.row("requests", format!("about {gets} GET, {lists} LIST, {puts} PUT"));
    }
    table.text
}

fn costs_as_json(pack: &Pack, costs: &PackCosts) -> Value {
    json!({
        "version": 1,
        "folder": pack.folder().to_string_lossy(),
        "part": pack.part().to_string(),
        "files": costs.files,
        "bytes_read": costs.bytes_read,
        "shards": costs.shards,
        "bytes_written": costs.bytes_written,
        "requests": { "get": costs.gets, "list": costs.lists, "put": costs.puts },
    })
}

/// Archive bytes that are not part of values, per byte of values.
fn overhead(report: &PackReport, bytes: u64) -> f64 {
    if report.payload_bytes == 0 { 0.0 } else { bytes as f64 / report.payload_bytes as f64 }
}

/// The result of a pack, and what happens to images.
type Came<'a> = (&'a PackReport, Option<&'a PackPrediction>);

fn as_proof(dataset: &dyn Dataset, pack: &Pack, report: &PackReport, time: Duration) -> String {
    let count = text::count;
    let mut table = Table::new(output::NAMES);
    table.row("source", format!("{}, {} samples", dataset.format(), count(dataset.len())));
    table.row("shards", format!("{} in {}, none missing", count(report.shards), pack.folder().display()));
    table.row("samples", format!("{}, each in one shard, by its index", count(report.samples)));
    if report.lacking > 0 {
        table.row("lacking", format!("{} samples that are in no shard", count(report.lacking)));
    }
    table.row("looked for", text::time(time));
    table.text
}

fn as_text(dataset: &dyn Dataset, pack: &Pack, (report, predicted): Came<'_>, time: Duration) -> String {
    let count = text::count;
    let of = |bytes: u64| text::bytes(bytes as f64);
    let mut table = Table::new(output::NAMES);
    table.row("source", format!("{}, {} samples", dataset.format(), count(dataset.len())));
    let planned = pack.own_shards().count() as u64;
    let kept = match report.shards_kept {
        0 => String::new(),
        kept => format!(", {} of them from before", count(kept)),
    };
    table.row("shards", format!("{} of {} in {}{kept}", count(report.shards), count(planned), pack.folder().display()));
    if pack.layout() == PackLayout::Mds {
        table.row("layout", "mds: samples side by side, because archives would be mostly headers".into());
    }
    if !pack.part().is_whole() {
        table.row("part", format!("{} of {} shards in all", pack.part(), count(pack.shards().len() as u64)));
    }
    let less = match dataset.len() - pack.samples() {
        0 => String::new(),
        less => format!(", fewer by {} that share a key with another", count(less)),
    };
    if report.is_interrupted {
        table.row("interrupted", "run it again to go on".into());
    } else {
        table.row("samples", format!("{}{less}", count(report.samples)));
    }
    if report.lacking > 0 {
        table.row("lacking", format!("{} samples that could not be read", count(report.lacking)));
    }
    let rate = text::bytes(report.bytes_written as f64 / time.as_secs_f64().max(1e-9));
    let (written, time) = (of(report.bytes_written), text::time(time));
    table.row("written", format!("{written} in {time}, {rate}/s, {} members", count(report.members_written)));
    let other = report.bytes_written.saturating_sub(report.payload_bytes + report.padding_bytes);
    let percent = |bytes| 100.0 * overhead(report, bytes);
    table.row(
        "overhead",
        format!(
            "{:.2} % padding ({}), {:.2} % headers and ends ({})",
            percent(report.padding_bytes),
            of(report.padding_bytes),
            percent(other),
            of(other)
        ),
    );
    if let Some(images) = &report.images {
        let (before, after) = (images.bytes_before, images.bytes_after);
        let share = 100.0 * after as f64 / (before as f64).max(1.0);
        let (count, before, after) = (count(images.images), of(before), of(after));
        table.row("images", format!("{count} made, of {before}: {after} ({share:.1} %)"));
    }
    if let Some(predicted) = predicted
        && let Some((before, after)) = predicted.images_per_second()
    {
        let each = |bytes: u64| of(bytes / predicted.images);
        let (bytes, smaller) = (each(predicted.bytes_before), each(predicted.bytes_after));
        let seen = predicted.images;
        table.row("each", format!("{bytes} before, {smaller} now, the mean of {seen} images"));
        let (rate, faster, processors) = (count(before as u64), count(after as u64), predicted.processors);
        table.row("decoded", format!("some {rate}/s before, {faster}/s now, on {processors} processors"));
    }
    if report.failed > 0 {
        table.row("left out", format!("{} samples", count(report.failed)));
        report.errors.iter().take(ERRORS_SHOWN).for_each(|error| table.row("", error.headline().to_string()));
    }
    table.text
}

/// Most errors in the table; the report has more, and a quarantine file has all.
const ERRORS_SHOWN: usize = 5;

fn as_json(dataset: &dyn Dataset, pack: &Pack, (report, predicted): Came<'_>, time: Duration) -> Value {
    let shard = |(number, range): (u64, &std::ops::Range<u64>)| {
        let path = pack.path(number);
        let name = path.file_name().map(|name| name.to_string_lossy());
        json!({ "name": name, "samples": [range.start, range.end] })
    };
    json!({
        "version": 1,
        "format": dataset.format(),
        "fingerprint": format!("{:016x}", dataset.fingerprint()),
        "source_samples": dataset.len(),
        "folder": pack.folder().to_string_lossy(),
        "part": pack.part().to_string(),
        "layout": if pack.layout() == PackLayout::Mds { "mds" } else { "tar" },
        "shards_planned": pack.shards().len(),
        "shards": report.shards,
        "shards_kept": report.shards_kept,
        "samples_planned": pack.samples(),
        "samples": report.samples,
        "lacking": report.lacking,
        "samples_written": report.samples_written,
        "members_written": report.members_written,
        "payload_bytes": report.payload_bytes,
        "padding_bytes": report.padding_bytes,
        "bytes_written": report.bytes_written,
        "padding_share": overhead(report, report.padding_bytes),
        "images": report.images.map(|images| json!({
            "made": images.images,
            "bytes_before": images.bytes_before,
            "bytes_after": images.bytes_after,
        })),
        "predicted": predicted.map(|predicted| json!({
            "images": predicted.images,
            "bytes_before": predicted.bytes_before,
            "bytes_after": predicted.bytes_after,
            "decode_before_s": predicted.decode_before.as_secs_f64(),
            "decode_after_s": predicted.decode_after.as_secs_f64(),
            "processors": predicted.processors,
            "images_per_s_before": predicted.images_per_second().map(|(before, _)| before),
            "images_per_s_after": predicted.images_per_second().map(|(_, after)| after),
        })),
        "failed": report.failed,
        "errors": report.errors,
        "interrupted": report.is_interrupted,
        "seconds": time.as_secs_f64(),
        "plan": (0..).zip(pack.shards()).map(shard).collect::<Vec<_>>(),
    })
}

/// A line on stderr while shards are written.
struct Progress {
    line: Line,
    start: Instant,
    /// Samples of shards from an earlier pack.
    before: OnceLock<u64>,
}

impl Progress {
    fn new(start: Instant) -> Progress {
        Progress { line: Line::new(), start, before: OnceLock::new() }
    }

    fn tell(&self, done: PackProgress) {
        let before = *self.before.get_or_init(|| done.samples);
        self.line.show(|| {
            let seconds = self.start.elapsed().as_secs_f64().max(1e-9);
            let rate = text::bytes(done.bytes as f64 / seconds);
            let written = done.samples.saturating_sub(before) as f64;
            let left = done.samples_total.saturating_sub(done.samples) as f64 * seconds / written;
            // Before anything is written, there is nothing to estimate from.
            let left = Duration::try_from_secs_f64(left).map(|left| format!("  {} left", text::time(left)));
            let bar = bar(done.samples, done.samples_total);
            let (shards, of) = (done.shards, done.shards_total);
            format!("pack {bar}  {rate}/s, {shards} of {of} shards{}", left.unwrap_or_default())
        });
    }
}

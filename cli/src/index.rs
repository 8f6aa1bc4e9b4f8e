//! `uringload index`: scans archives, TFRecord files and files of lines ahead of time, and reports the result.

use crate::Done;
use crate::arguments::Index;
use crate::failure::{Exit, told};
use crate::interrupt::Interrupt;
use crate::launchers::AskedPart;
use crate::output::{self, Table, eprintln_quietly};
use crate::progress::Doing;
use serde_json::json;
use std::time::{Duration, Instant};
use uringload::config::Part;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Dataset, IndexReport, Options};
use uringload::{Error, ErrorKind};
use uringload_measure::text;

/// Builds missing indexes and lists the result.
pub fn run(asked: &Index) -> Done {
    let start = Instant::now();
    let part = asked.part.map_or(Ok(Part::WHOLE), AskedPart::part)?;
    Interrupt::end_at_once();
    let doing = Doing::opening(&asked.paths);
    // Report everything that is broken, not only the first problem; the content of records does not matter to an index.
    let mut options = Options::new()
        .stores_from_environment()
        .prefer("keep_damaged", true)
        // An index is made for each file, whatever its split.
        .prefer("split", "all")
        .prefer("whole_records", true)
        .prefer("header", false)
        .rebuild(asked.rebuild)
        .part(part)
        .threads(asked.threads.unwrap_or(0))
        .progress(doing.index());
    if let Some(folder) = &asked.index_cache {
        options = options.set("index_cache", folder.as_path());
    }
    if let Some(delimiter) = &asked.delimiter {
        options = options.set("delimiter", &**delimiter);
    }
    let format = match &asked.format {
        Some(format) => format,
        // Archives, if the files show no format that has an index.
        None => detect(&asked.paths, &options).ok().filter(|it| it.has_sidecars).map_or("tar", |it| it.name),
    };
    let built = dataset::open(&asked.paths, &options.format(format));
    drop(doing);
    let dataset = match built {
        // With more jobs than files some have nothing to do, which is fine.
        Err(error) if error.kind() == ErrorKind::Empty && !part.is_whole() => {
            eprintln_quietly(&format!("uringload: {}", told(&error)));
            return Ok(Exit::Done);
        }
        built => built?,
    };
    let index = dataset.index();
    let Some(report) = &index.report else {
        let error = Error::new(ErrorKind::InvalidArgument, format!("the format {} needs no index", index.format));
        return Err(error.with_remedy("tar, tfrecord, jsonl, csv and text do").into());
    };
    let text = if asked.json { as_json(&*dataset, report) } else { as_text(&*dataset, report, start.elapsed()) };
    if asked.json {
        output::print(&text)?
    } else {
        output::print_table(&text, output::NAMES)?
    }
    index.fallbacks.iter().for_each(|fallback| eprintln_quietly(&format!("uringload: {fallback}")));
    index.damage.iter().for_each(|error| eprintln_quietly(&format!("uringload: no index: {}", told(error))));
    let is_kept = report.written == report.scanned;
    Ok(if is_kept && index.damage.is_empty() { Exit::Done } else { Exit::Degraded })
}

fn as_json(dataset: &dyn Dataset, report: &IndexReport) -> String {
    let refused = report.refused.iter();
    let refused = refused.map(|(path, reason)| json!({ "file": path.to_string_lossy(), "reason": reason }));
    let json = json!({
        "version": 1,
        "format": dataset.format(),
        "samples": dataset.len(),
        "files": dataset.files().len(),
        "scanned": report.scanned,
        "current": report.current,
        "written": report.written,
        "bytes_read": report.bytes_read,
        "replaced": refused.collect::<Vec<_>>(),
        "damage": dataset.index().damage,
    });
    format!("{json}\n")
}

fn as_text(dataset: &dyn Dataset, report: &IndexReport, time: Duration) -> String {
    let (index, count) = (dataset.index(), text::count);
    let mut table = Table::new(output::NAMES);
    table.row("samples", format!("{} in {} files", count(dataset.len()), count(dataset.files().len() as u64)));
    let (current, scanned) = (count(report.current), count(report.scanned));
    table.row("files", format!("{scanned} looked through, {current} had their index"));
    table.row("written", format!("{} indexes", count(report.written)));
    let all = dataset.files().sizes().iter().fold(0, |sum, &size| u64::saturating_add(sum, size));
    let of = |bytes: u64| text::bytes(bytes as f64);
    table.row("read", format!("{} of {} in {}", of(report.bytes_read), of(all), text::time(time)));
    for (path, reason) in &report.refused {
        table.row("replaced", format!("{}: {reason}", path.display()));
    }
    // Columns of lines and of raw records say nothing: an index has none.
    for (field, &lacking) in index.schema.fields.iter().zip(&index.lacking) {
        table.row(
            "column",
            match lacking {
                0 => field.name.clone(),
                lacking => format!("{}, lacking in {} samples", field.name, count(lacking)),
            },
        );
    }
    for skipped in &index.left_out {
        let first = skipped.first.display();
        table.row("left out", format!("{} {}, the first {first}", count(skipped.count), skipped.what));
    }
    table.text
}

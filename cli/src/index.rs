//! `uringload index`: looks through archives, TFRecord files and files of lines ahead of time, and says what came of
//! it.

use super::Done;
use super::arguments::{FormatName, Index};
use super::data::detect_lines;
use super::failure::Exit;
use super::interrupt::eprintln_quietly;
use super::units;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};
use uringload::config::Fallback;
use uringload::dataset::{
    Damaged, Dataset, Field, Folder, FolderOptions, IndexProgress as Progress, IndexReport, LineFormat, LineOptions,
    Lines, Skipped, Tar, TarOptions, TfRecord, TfRecordContent, TfRecordOptions,
};
use uringload::{Error, ErrorKind};

/// Builds what is missing, and lists it.
pub fn run(options: &Index) -> Done {
    let start = Instant::now();
    let format = match options.format {
        Some(format) => format,
        None => shown(options)?,
    };
    let progress = IndexProgress::new();
    let built = match format {
        FormatName::Tar => Built::of_archives(options, &progress),
        FormatName::Tfrecord => Built::of_records(options, &progress),
        FormatName::Jsonl => Built::of_lines(options, LineFormat::Jsonl, &progress),
        FormatName::Csv => Built::of_lines(options, LineFormat::Csv, &progress),
        FormatName::Text => Built::of_lines(options, LineFormat::Text, &progress),
        _ => Err(Error::new(ErrorKind::InvalidArgument, "that format needs no index")
            .with_remedy("tar, tfrecord, jsonl, csv and text do")),
    };
    drop(progress);
    let built = match (built, options.part) {
        // Of more jobs than files some have nothing to do, which is nothing to complain of.
        (Err(error), Some(part)) if error.kind() == ErrorKind::Empty && !part.is_whole() => {
            eprintln_quietly(&format!("uringload: {error}"));
            return Ok(Exit::Done);
        }
        (built, _) => built?,
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(built.as_text(start.elapsed()).as_bytes())?;
    stdout.flush()?;
    built.fallbacks.iter().for_each(|fallback| eprintln_quietly(&format!("uringload: {fallback}")));
    built.damaged.iter().for_each(|error| eprintln_quietly(&format!("uringload: no index: {error}")));
    let is_kept = built.report.written == built.report.scanned + built.report.imported;
    Ok(if is_kept && built.damaged.is_empty() { Exit::Done } else { Exit::Degraded })
}

/// The format that the files show; archives where they show none.
fn shown(options: &Index) -> Result<FormatName, Error> {
    if let Some(format) = detect_lines(&options.paths) {
        return Ok(FormatName::of_lines(format));
    }
    let folder = Folder::open_with(&options.paths, &FolderOptions::default())?;
    Ok(if TfRecord::is_made_of(folder.files()) { FormatName::Tfrecord } else { FormatName::Tar })
}

/// Files that have been looked through.
struct Built {
    dataset: Box<dyn Dataset>,
    /// What a sample and a file are called.
    names: [&'static str; 2],
    /// Whether indexes of DALI may be taken over.
    imports: bool,
    report: IndexReport,
    columns: Vec<String>,
    skipped: Vec<Skipped>,
    fallbacks: Vec<Fallback>,
    damaged: Vec<Error>,
}

impl Built {
    fn of_archives(options: &Index, progress: &IndexProgress) -> Result<Built, Error> {
        let tar_options = TarOptions {
            cache: options.index_cache.clone(),
            rebuild: options.rebuild,
            threads: options.threads.unwrap_or(0),
            // All that is broken is told, and not only the first.
            damaged: Damaged::Keep,
            part: options.part.unwrap_or_default(),
            ..TarOptions::default()
        };
        let tar = Tar::open_with_progress(&options.paths, &tar_options, &|done| progress.tell(done))?;
        let column = |(index, field): (usize, &Field)| match tar.lacking(index) {
            0 => field.name.clone(),
            lacking => format!("{}, lacking in {} samples", field.name, units::count(lacking)),
        };
        Ok(Built {
            names: ["samples", "archives"],
            imports: true,
            report: tar.report().clone(),
            columns: tar.schema().fields.iter().enumerate().map(column).collect(),
            skipped: tar.skipped().to_vec(),
            fallbacks: tar.fallbacks().to_vec(),
            damaged: tar.damaged().to_vec(),
            dataset: Box::new(tar),
        })
    }

    fn of_records(options: &Index, progress: &IndexProgress) -> Result<Built, Error> {
        let record_options = TfRecordOptions {
            // What is in the records does not matter to an index.
            content: TfRecordContent::Bytes,
            cache: options.index_cache.clone(),
            rebuild: options.rebuild,
            threads: options.threads.unwrap_or(0),
            damaged: Damaged::Keep,
            part: options.part.unwrap_or_default(),
            ..TfRecordOptions::default()
        };
        let records = TfRecord::open_with_progress(&options.paths, &record_options, &|done| progress.tell(done))?;
        Ok(Built {
            names: ["samples", "files"],
            imports: true,
            report: records.report().clone(),
            columns: records.schema().fields.iter().map(|field| field.name.clone()).collect(),
            skipped: records.skipped().to_vec(),
            fallbacks: records.fallbacks().to_vec(),
            damaged: records.damaged().to_vec(),
            dataset: Box::new(records),
        })
    }

    fn of_lines(options: &Index, format: LineFormat, progress: &IndexProgress) -> Result<Built, Error> {
        let line_options = LineOptions {
            format,
            delimiter: options.delimiter,
            // To an index a header is a row as any other, and it is none of its business what is in it.
            no_header: true,
            cache: options.index_cache.clone(),
            rebuild: options.rebuild,
            threads: options.threads.unwrap_or(0),
            damaged: Damaged::Keep,
            part: options.part.unwrap_or_default(),
            ..LineOptions::default()
        };
        let lines = Lines::open_with_progress(&options.paths, &line_options, &|done| progress.tell(done))?;
        Ok(Built {
            names: [if format == LineFormat::Csv { "rows" } else { "samples" }, "files"],
            imports: false,
            report: lines.report().clone(),
            columns: Vec::new(),
            skipped: lines.skipped().to_vec(),
            fallbacks: lines.fallbacks().to_vec(),
            damaged: lines.damaged().to_vec(),
            dataset: Box::new(lines),
        })
    }

    fn as_text(&self, time: Duration) -> String {
        let Built { dataset, names: [samples, files], report, .. } = self;
        let count = units::count;
        let mut out = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name:<14} {value}");
        };
        row(samples, format!("{} in {} {files}", count(dataset.len()), count(dataset.files().len() as u64)));
        let (current, scanned) = (count(report.current), count(report.scanned));
        let imported = match self.imports {
            true => format!("{} taken over from DALI, ", count(report.imported)),
            false => String::new(),
        };
        row(files, format!("{scanned} looked through, {imported}{current} had their index"));
        row("written", format!("{} indexes", count(report.written)));
        let all = dataset.files().sizes().iter().fold(0, |sum, &size| u64::saturating_add(sum, size));
        let of = |bytes: u64| units::bytes(bytes as f64);
        row("read", format!("{} of {} in {}", of(report.bytes_read), of(all), units::time(time)));
        for (path, reason) in &report.refused {
            row("replaced", format!("{}: {reason}", path.display()));
        }
        self.columns.iter().for_each(|column| row("column", column.clone()));
        for skipped in &self.skipped {
            let first = skipped.first.display();
            row("left out", format!("{} {}, the first {first}", count(skipped.count), skipped.reason.describe()));
        }
        out
    }
}

/// A line on stderr while files are looked through; silent where stderr is no terminal.
pub struct IndexProgress(ProgressBar);

impl IndexProgress {
    /// Appears with the first report.
    pub fn new() -> IndexProgress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("index {bar:30} {percent:>3} %  {binary_bytes_per_sec}  {msg}")
        {
            bar.set_style(style);
        }
        IndexProgress(bar)
    }

    /// Shows how far it has come.
    pub fn tell(&self, done: Progress) {
        self.0.set_length(done.bytes_total);
        self.0.set_position(done.bytes);
        self.0.set_message(format!("{} of {} files", done.shards, done.shards_total));
    }
}

impl Drop for IndexProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

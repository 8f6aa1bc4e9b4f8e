//! `uringload index`: looks through archives and TFRecord files ahead of time, and says what came of it.

use super::Done;
use super::arguments::Index;
use super::failure::{Exit, Failure};
use super::interrupt::eprintln_quietly;
use super::units;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};
use uringload::Error;
use uringload::config::Fallback;
use uringload::dataset::{
    Damaged, Dataset, Folder, FolderOptions, Skipped, Tar, TarOptions, TarProgress, TarReport, TfRecord,
    TfRecordContent, TfRecordOptions,
};

/// Builds what is missing, and lists it.
pub fn run(options: &Index) -> Done {
    let start = Instant::now();
    let indexed = Indexed::new(options)?;
    let text = indexed.as_text(start.elapsed());
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    indexed.fallbacks().iter().for_each(|fallback| eprintln_quietly(&format!("uringload: {fallback}")));
    indexed.damaged().iter().for_each(|error| eprintln_quietly(&format!("uringload: no index: {error}")));
    let report = indexed.report();
    let is_kept = report.written == report.scanned + report.imported;
    Ok(if is_kept && indexed.damaged().is_empty() { Exit::Done } else { Exit::Degraded })
}

/// A dataset whose files have indexes beside them.
enum Indexed {
    Tar(Tar),
    TfRecord(TfRecord),
}

impl Indexed {
    /// Opens what the user named, of the format that the files show.
    fn new(options: &Index) -> Result<Indexed, Failure> {
        let folder = Folder::open_with(&options.paths, &FolderOptions::default())?;
        let progress = IndexProgress::new();
        // All that is broken is told, and not only the first.
        let damaged = Damaged::Keep;
        let (cache, rebuild, threads) = (options.index_cache.clone(), options.rebuild, options.threads.unwrap_or(0));
        if TfRecord::is_made_of(folder.files()) {
            // What is in the records does not matter to an index.
            let content = TfRecordContent::Bytes;
            let options_ = TfRecordOptions { content, cache, rebuild, threads, damaged, ..TfRecordOptions::default() };
            let records = TfRecord::open_with_progress(&options.paths, &options_, &|done| progress.tell(done));
            return Ok(Indexed::TfRecord(records?));
        }
        let tar_options = TarOptions { cache, rebuild, threads, damaged, ..TarOptions::default() };
        let tar = Tar::open_with_progress(&options.paths, &tar_options, &|done| progress.tell(done));
        Ok(Indexed::Tar(tar?))
    }

    fn dataset(&self) -> &dyn Dataset {
        match self {
            Indexed::Tar(tar) => tar,
            Indexed::TfRecord(records) => records,
        }
    }

    fn report(&self) -> &TarReport {
        match self {
            Indexed::Tar(tar) => tar.report(),
            Indexed::TfRecord(records) => records.report(),
        }
    }

    fn fallbacks(&self) -> &[Fallback] {
        match self {
            Indexed::Tar(tar) => tar.fallbacks(),
            Indexed::TfRecord(records) => records.fallbacks(),
        }
    }

    fn damaged(&self) -> &[Error] {
        match self {
            Indexed::Tar(tar) => tar.damaged(),
            Indexed::TfRecord(records) => records.damaged(),
        }
    }

    fn skipped(&self) -> &[Skipped] {
        match self {
            Indexed::Tar(tar) => tar.skipped(),
            Indexed::TfRecord(records) => records.skipped(),
        }
    }

    /// Samples that lack a field.
    fn lacking(&self, field: usize) -> u64 {
        match self {
            Indexed::Tar(tar) => tar.lacking(field),
            Indexed::TfRecord(_) => 0,
        }
    }

    fn as_text(&self, time: Duration) -> String {
        let (report, dataset) = (self.report(), self.dataset());
        let count = units::count;
        let what = match self {
            Indexed::Tar(_) => "archives",
            Indexed::TfRecord(_) => "files",
        };
        let mut out = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name:<14} {value}");
        };
        row("samples", format!("{} in {} {what}", count(dataset.len()), count(dataset.files().len() as u64)));
        let (current, scanned, imported) = (count(report.current), count(report.scanned), count(report.imported));
        row(what, format!("{scanned} looked through, {imported} taken over from DALI, {current} had their index"));
        row("written", format!("{} indexes", count(report.written)));
        let all = dataset.files().sizes().iter().fold(0, |sum, &size| u64::saturating_add(sum, size));
        let of = |bytes: u64| units::bytes(bytes as f64);
        row("read", format!("{} of {} in {}", of(report.bytes_read), of(all), units::time(time)));
        for (path, reason) in &report.refused {
            row("replaced", format!("{}: {reason}", path.display()));
        }
        for (index, field) in dataset.schema().fields.iter().enumerate() {
            let lacking = match self.lacking(index) {
                0 => String::new(),
                lacking => format!(", lacking in {} samples", count(lacking)),
            };
            row("column", format!("{}{lacking}", field.name));
        }
        for skipped in self.skipped() {
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
    pub fn tell(&self, done: TarProgress) {
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

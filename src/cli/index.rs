//! `uringload index`: looks through archives ahead of time, and says what came of it.

use super::Done;
use super::arguments::Index;
use super::failure::Exit;
use super::interrupt::eprintln_quietly;
use super::units;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};
use uringload::dataset::{Damaged, Dataset, Tar, TarOptions, TarProgress};

/// Builds what is missing, and lists it.
pub fn run(options: &Index) -> Done {
    let start = Instant::now();
    let tar_options = TarOptions {
        cache: options.index_cache.clone(),
        rebuild: options.rebuild,
        threads: options.threads.unwrap_or(0),
        // All that is broken is told, and not only the first.
        damaged: Damaged::Keep,
        ..TarOptions::default()
    };
    let progress = IndexProgress::new();
    let tar = Tar::open_with_progress(&options.paths, &tar_options, &|done| progress.tell(done));
    drop(progress);
    let tar = tar?;
    let text = as_text(&tar, start.elapsed());
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    tar.fallbacks().iter().for_each(|fallback| eprintln_quietly(&format!("uringload: {fallback}")));
    tar.damaged().iter().for_each(|error| eprintln_quietly(&format!("uringload: no index: {error}")));
    let is_kept = tar.report().written == tar.report().scanned + tar.report().imported;
    Ok(if is_kept && tar.damaged().is_empty() { Exit::Done } else { Exit::Degraded })
}

fn as_text(tar: &Tar, time: Duration) -> String {
    let report = tar.report();
    let count = units::count;
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<14} {value}");
    };
    row("samples", format!("{} in {} archives", count(tar.len()), count(tar.files().len() as u64)));
    let (current, scanned, imported) = (count(report.current), count(report.scanned), count(report.imported));
    row("archives", format!("{scanned} looked through, {imported} taken over from DALI, {current} had their index"));
    row("written", format!("{} indexes", count(report.written)));
    let all = tar.files().sizes().iter().fold(0, |sum, &size| u64::saturating_add(sum, size));
    let of = |bytes: u64| units::bytes(bytes as f64);
    row("read", format!("{} of {} in {}", of(report.bytes_read), of(all), units::time(time)));
    for (path, reason) in &report.refused {
        row("replaced", format!("{}: {reason}", path.display()));
    }
    for (index, field) in tar.schema().fields.iter().enumerate() {
        let lacking = match tar.lacking(index) {
            0 => String::new(),
            lacking => format!(", lacking in {} samples", count(lacking)),
        };
        row("column", format!("{}{lacking}", field.name));
    }
    for skipped in tar.skipped() {
        let first = skipped.first.display();
        row("left out", format!("{} {}, the first {first}", count(skipped.count), skipped.reason.describe()));
    }
    out
}

/// A line on stderr while archives are looked through; silent where stderr is no terminal.
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
        self.0.set_message(format!("{} of {} archives", done.shards, done.shards_total));
    }
}

impl Drop for IndexProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

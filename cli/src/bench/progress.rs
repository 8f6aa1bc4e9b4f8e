//! The live progress line of a run; silent if stderr is not a terminal.

use super::super::units;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};
use uringload::stats::{Snapshot, Stats};

/// How often the line changes. Each update costs a snapshot, some 20 µs.
const PERIOD: Duration = Duration::from_millis(100);

/// One line on stderr.
pub struct Progress {
    bar: ProgressBar,
    next: Instant,
    before: Snapshot,
}

impl Progress {
    /// A line for a run named `name` with `total` batches, if it has an end.
    pub fn new(name: &str, total: Option<u64>) -> Progress {
        let target = ProgressDrawTarget::stderr_with_hz(10);
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => "{prefix} {bar:30} {percent:>3} %  {msg}",
            None => "{prefix} {elapsed}  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        bar.tick();
        Progress { bar, next: Instant::now() + PERIOD, before: Snapshot::default() }
    }

    /// Records that a batch arrived at `now`.
    pub fn batch(&mut self, now: Instant, stats: &Stats) {
        if self.bar.is_hidden() || now < self.next {
            return;
        }
        self.next = now + PERIOD;
        let snapshot = stats.snapshot();
        let live = snapshot.since(&self.before);
        let rate = units::bytes(live.bytes_per_second());
        let samples = units::count(live.samples_per_second() as u64);
        let verdict = live.verdict(None);
        self.bar.set_message(format!("{rate}/s  {samples} samples/s  limit: {}", verdict.bottleneck));
        self.bar.set_position(snapshot.count.batches);
        self.before = snapshot;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

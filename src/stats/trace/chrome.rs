//! Chrome's JSON: an array of events, one on each line. Readers accept a missing end of the array, which a killed
//! process never writes.

use super::{Event, KERNELS, Lane, What};
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes events.
pub(super) struct Chrome {
    boot: u64,
    /// The same moment as nanoseconds since the Unix epoch.
    unix: u64,
    has_begun: bool,
    /// By lane, whether a slice is open.
    open: Vec<bool>,
}

impl Chrome {
    /// Begins the trace now, `boot` nanoseconds after the machine started.
    pub(super) fn new(boot: u64) -> Chrome {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Chrome { boot, unix, has_begun: false, open: Vec::new() }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
        let before = if std::mem::replace(&mut self.has_begun, true) { ",\n" } else { "[\n" };
        // Writing to memory cannot fail.
        let _ = write!(out, "{before}{{\"pid\":{},{line}}}", std::process::id());
    }

    /// The end of the array.
    pub(super) fn end_of_array(&self) -> &'static str {
        if self.has_begun { "\n]\n" } else { "[]\n" }
    }

    /// Writes what the clock of the events means, so that other traces can be aligned with this one.
    fn clock(&mut self, out: &mut Vec<u8>) {
        let name = "\"ph\":\"M\",\"name\":\"uringload clock\",\"args\"";
        self.line(format_args!("{name}:{{\"unix_minus_ts_ns\":{}}}", self.unix.saturating_sub(self.boot)), out);
    }

    /// Microseconds.
    fn micros(&self, at: u64) -> String {
        let nanos = self.boot.saturating_add(at);
        format!("{}.{:03}", nanos / 1000, nanos % 1000)
    }

    /// Begins a slice after ending the open one.
    fn begin(&mut self, lane: &Lane, (at, name): (u64, &str), out: &mut Vec<u8>) {
        self.end(lane, at, out);
        self.open[lane.number as usize] = true;
        let (tid, at) = (lane.number, self.micros(at));
        self.line(format_args!("\"tid\":{tid},\"ph\":\"B\",\"ts\":{at},\"name\":\"{name}\""), out);
    }

    fn count(&mut self, (at, name, unit): (u64, &str, &str), count: u32, out: &mut Vec<u8>) {
        let at = self.micros(at);
        self.line(format_args!("\"ph\":\"C\",\"ts\":{at},\"name\":\"{name}\",\"args\":{{\"{unit}\":{count}}}"), out);
    }

    fn end(&mut self, lane: &Lane, at: u64, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.open[lane.number as usize]) {
            let at = self.micros(at);
            self.line(format_args!("\"tid\":{},\"ph\":\"E\",\"ts\":{at}", lane.number), out);
        }
    }

    /// Describes a new thread.
    pub(super) fn lane(&mut self, lane: &Lane, out: &mut Vec<u8>) {
        if !self.has_begun {
            self.clock(out);
        }
        self.open.resize(lane.number as usize + 1, false);
        let (number, name) = (lane.number, &lane.name);
        let thread = lane.thread.map_or_else(String::new, |thread| format!(" {thread}"));
        let line = "\"ph\":\"M\",\"name\":\"thread_name\",\"args\"";
        self.line(format_args!("\"tid\":{number},{line}:{{\"name\":\"{name}{thread}\"}}"), out);
    }

    pub(super) fn event(&mut self, lane: &Lane, Event { at, what }: Event, out: &mut Vec<u8>) {
        match what {
            What::Ended => self.end(lane, at, out),
            What::Doing(doing) => self.begin(lane, (at, doing.name()), out),
            What::Kernels => self.begin(lane, (at, KERNELS), out),
            What::InFlight(reads) => self.count((at, "reads in flight", "reads"), reads, out),
            What::Ready(batches) => self.count((at, "batches ready", "batches"), batches, out),
            What::Batch(batch) => {
                let (tid, at) = (lane.number, self.micros(at));
                let name = format!("\"s\":\"t\",\"name\":\"batch {batch}\"");
                self.line(format_args!("\"tid\":{tid},\"ph\":\"i\",\"ts\":{at},{name}"), out);
            }
        }
    }

    /// Records how many events were lost.
    pub(super) fn lost(&mut self, lane: &Lane, count: u64, out: &mut Vec<u8>) {
        let at = self.micros(lane.start.elapsed().as_nanos() as u64);
        let name = format!("\"s\":\"t\",\"name\":\"{count} events were lost\"");
        self.line(format_args!("\"tid\":{},\"ph\":\"i\",\"ts\":{at},{name}", lane.number), out);
    }
}

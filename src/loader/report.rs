//! Reports on a loader, for people: the verdict, the measurements and the way of reading, as lines of text.

use super::{Delivered, Loader};
use crate::config::Route;
use crate::stats::{Snapshot, Verdict};
use std::fmt;
use std::time::Duration;

/// The verdict of a loader, its measurements and its route at one moment: see [`Loader::report`].
///
/// `Display` is some fifteen lines for people, without a newline at the end. [`since`](Report::since) covers the time
/// since an earlier report, such as the last minute.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What limits the loader.
    pub verdict: Verdict,
    /// The measurements.
    pub stats: Snapshot,
    /// How bytes are read.
    pub route: Route,
}

impl<T: Delivered> Loader<T> {
    /// A report on the loader at this moment. Print it at the end of an epoch, or every minute.
    ///
    /// ```
    /// use uringload::{Loader, dataset};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # std::fs::write(folder.path().join("0.dat"), "a sample").unwrap();
    /// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
    /// let mut loader = Loader::builder(dataset).batch_size(64).build()?;
    /// for batch in &mut loader {
    ///     println!("{:?}", batch?.ids);
    /// }
    /// let report = loader.report().to_string();
    /// assert!(report.starts_with("verdict ") && report.contains("samples              1 ("), "{report}");
    /// # Ok::<(), uringload::Error>(())
    /// ```
    pub fn report(&self) -> Report {
        let stats = self.stats.snapshot();
        Report { verdict: stats.verdict(None), stats, route: self.route() }
    }
}

impl Report {
    /// What happened since `earlier`, a report of the same loader.
    #[must_use]
    pub fn since(&self, earlier: &Report) -> Report {
        let stats = self.stats.since(&earlier.stats);
        Report { verdict: stats.verdict(None), stats, route: self.route.clone() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stats, count) = (&self.stats, &self.stats.count);
        let mut line = |name: &str, value: fmt::Arguments<'_>| writeln!(f, "{name:<20} {value}");
        line("verdict", format_args!("{}", self.verdict))?;
        line("time", format_args!("{}", Time(Some(stats.elapsed))))?;
        line("batches", format_args!("{}, {} ready at once", count.batches, count.batches_ready))?;
        line("samples", format_args!("{} ({:.0}/s)", count.samples, stats.samples_per_second()))?;
        let rate = Bytes(stats.bytes_per_second());
        line("delivered", format_args!("{} ({rate}/s)", Bytes(count.bytes_delivered as f64)))?;
        line("first batch", format_args!("{}", Time(stats.first_batch)))?;
        for (name, times) in [("wait for a batch", &stats.batch_wait), ("a read", &stats.read_latency)] {
            let at = |percent| Time(times.percentile(percent));
            line(name, format_args!("median {}, 99 % {}", at(50.0), at(99.0)))?;
        }
        line("reads in flight", format_args!("{:.1} on average", stats.in_flight_mean()))?;
        for server in &stats.endpoints {
            line("server", format_args!("{}: {server}", server.endpoint))?;
        }
        if let Some(amplification) = stats.read_amplification() {
            line("read for each byte", format_args!("{amplification:.2}"))?;
        }
        let failed = count.samples_failed + count.samples_skipped + count.samples_replaced;
        if failed > 0 {
            line("samples that failed", format_args!("{failed}"))?;
        }
        if let Some(outage) = &stats.outage {
            line("outage", format_args!("{outage}"))?;
        }
        write!(f, "{:<20} {}", "route", self.route)?;
        self.route.fallbacks.iter().try_for_each(|step| write!(f, "\n{:<20} {step}", "fallback"))
    }
}

/// A number of bytes, as in "3.2 GB".
struct Bytes(f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut count = self.0;
        for unit in ["B", "KB", "MB", "GB"] {
            if count < 1000.0 {
                return write!(f, "{count:.1} {unit}");
            }
            count /= 1000.0;
        }
        write!(f, "{count:.1} TB")
    }
}

/// A time, if there is one, as in "3.2 ms".
struct Time(Option<Duration>);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("-"),
            Some(time) => write!(f, "{time:.1?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{self, Options};

    #[test]
    fn a_report_has_what_was_measured_and_the_difference_what_came_between() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.bin"), [7; 1000 * 100]).unwrap();
        let options = Options::new().format("records").set("record_bytes", 1000);
        let dataset = dataset::open(&[folder.path()], &options).unwrap();
        let mut loader = Loader::builder(dataset).batch_size(10).epochs(1).build().unwrap();
        let nothing = loader.report();
        assert!(nothing.to_string().contains("first batch          -\n"), "{nothing}");
        loader.by_ref().take(4).for_each(|batch| drop(batch.unwrap()));
        let first = loader.report();
        loader.by_ref().for_each(|batch| drop(batch.unwrap()));
        let all = loader.report();
        assert_eq!((all.stats.count.samples, all.since(&first).stats.count.samples), (100, 60));
        let text = all.to_string();
        for words in
            ["verdict", "samples              100 (", "delivered            100.0 KB (", "ready at once", "route"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.lines().all(|line| !line.is_empty()) && !text.ends_with('\n'), "{text}");
    }

    #[test]
    fn sizes_and_times_are_short() {
        let bytes = [0.0, 999.0, 1000.0, 3.25e9, 5e15].map(|count| Bytes(count).to_string());
        assert_eq!(bytes, ["0.0 B", "999.0 B", "1.0 KB", "3.2 GB", "5000.0 TB"]);
        let time = |nanos| Time(Some(Duration::from_nanos(nanos))).to_string();
        assert_eq!([time(0), time(1_240_000), time(90_000_000_000)], ["0.0ns", "1.2ms", "90.0s"]);
    }
}

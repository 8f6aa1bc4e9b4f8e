//! What the scheduler gave to threads and took from them: processor time, time in the queue for a processor, pressure.
//! Everything is read from `/proc` at the moment of the call.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Ticks of `/proc/PID/stat` in a second, on every architecture that Linux runs on (`USER_HZ`).
const TICKS: u64 = 100;

/// What a thread got of the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Processor time that it used.
    pub used: Duration,
    /// Time that it could have run and did not, because it had no processor or no quota. `None` if the kernel does not
    /// count it (`CONFIG_SCHED_INFO`).
    pub queued: Option<Duration>,
}

/// The number by which the kernel knows the calling thread.
pub fn thread_id() -> u32 {
    // Positive by definition.
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// What a thread of this process got so far; `None` if it has ended, or `/proc` does not say.
pub fn thread(id: u32) -> Option<Scheduled> {
    let folder = Path::new("/proc/self/task").join(id.to_string());
    let counted = fs::read_to_string(folder.join("schedstat")).ok();
    if let Some(scheduled) = counted.and_then(|text| of_schedstat(&text)) {
        return Some(scheduled);
    }
    let used = of_stat(&fs::read_to_string(folder.join("stat")).ok()?)?;
    Some(Scheduled { used, queued: None })
}

/// "used queued slices" in nanoseconds.
fn of_schedstat(text: &str) -> Option<Scheduled> {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok().map(Duration::from_nanos));
    let (used, queued) = (numbers.next()??, numbers.next()??);
    // A kernel without the counts writes zeros; a thread that reads this has used something.
    (!used.is_zero()).then_some(Scheduled { used, queued: Some(queued) })
}

/// The fields "utime" and "stime". The name before them may hold anything, brackets and blanks included.
fn of_stat(text: &str) -> Option<Duration> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    let ticks = fields.next()??.saturating_add(fields.next()??);
    Some(Duration::from_millis(ticks.saturating_mul(1000 / TICKS)))
}

/// Time that something had to wait, since the machine started, as the kernel reports it (PSI). `None`: it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Some thread waited for a processor.
    pub processor: Option<Duration>,
    /// Some thread waited for the storage.
    pub storage: Option<Duration>,
    /// Some thread waited for memory.
    pub memory: Option<Duration>,
}

/// The pressure on this machine.
pub fn pressure() -> Pressure {
    let total = |name: &str| some_total(&fs::read_to_string(Path::new("/proc/pressure").join(name)).ok()?);
    Pressure { processor: total("cpu"), storage: total("io"), memory: total("memory") }
}

/// "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345", in microseconds.
fn some_total(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_whitespace().find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

    #[test]
    fn a_thread_is_told_what_it_used() {
        let start = system::thread_cpu_time();
        let mut sum = 0_u64;
        while system::thread_cpu_time() < start + Duration::from_millis(30) {
            sum = std::hint::black_box(sum + 1);
        }
        let Some(seen) = thread(thread_id()) else { return eprintln!("skipped: no /proc") };
        // A tick of the clock may be missing where it is counted in ticks.
        assert!(seen.used + Duration::from_millis(20) >= Duration::from_millis(30), "{seen:?}");
        assert_eq!(thread(u32::MAX), None);
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        let seen = of_schedstat("1500 2500 7\n").unwrap();
        assert_eq!((seen.used, seen.queued), (Duration::from_nanos(1500), Some(Duration::from_nanos(2500))));
        assert_eq!((of_schedstat("0 0 0\n"), of_schedstat(""), of_schedstat("a b c")), (None, None, None));
        let stat = "77 (a) b) (c) S 1 77 77 0 -1 4194304 9 9 9 9 12 30 0 0 20 0 1 0 5\n";
        assert_eq!(of_stat(stat), Some(Duration::from_millis(420)));
        assert_eq!((of_stat("77 (a"), of_stat(")")), (None, None));
        let text = "some avg10=0.00 avg60=0.12 avg300=0.00 total=1234\nfull avg10=0.00 total=9\n";
        assert_eq!(some_total(text), Some(Duration::from_micros(1234)));
        assert_eq!((some_total(""), some_total("full total=9\n"), some_total("some total=x\n")), (None, None, None));
    }
}

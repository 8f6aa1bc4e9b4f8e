//! What this process may do on this machine, and what it has used.

use crate::block::chosen;
use rustix::process::Resource;
use rustix::time::ClockId;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// `CAP_IPC_LOCK`. With it `RLIMIT_MEMLOCK` does not bound registered buffers.
pub const CAP_IPC_LOCK: u32 = 14;

/// A soft and a hard limit; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// The limit in force.
    pub soft: Option<u64>,
    /// How far a process may raise the soft limit.
    pub hard: Option<u64>,
}

impl From<rustix::process::Rlimit> for Limit {
    fn from(limit: rustix::process::Rlimit) -> Limit {
        Limit { soft: limit.current, hard: limit.maximum }
    }
}

/// The memory node that a PCI device ("0000:3b:00.0") is next to. `None` if the machine has one node only or does not
/// know the device.
pub fn numa_node_of_pci(address: &str) -> Option<u32> {
    crate::numa::node_of_pci(Path::new("/"), address)
}

/// Bytes that this user's processes may lock without [`CAP_IPC_LOCK`] (`RLIMIT_MEMLOCK`), registered buffers included.
pub fn locked_memory_limit() -> Limit {
    rustix::process::getrlimit(Resource::Memlock).into()
}

/// Descriptors that this process may have open (`RLIMIT_NOFILE`), which also bounds the file table of a ring.
pub fn open_files_limit() -> Limit {
    rustix::process::getrlimit(Resource::Nofile).into()
}

/// Sets the soft limit on open descriptors, for the whole process.
///
/// # Errors
/// `EINVAL` or `EPERM` above the hard limit.
pub fn set_open_files_limit(soft: Option<u64>) -> io::Result<()> {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = soft;
    Ok(rustix::process::setrlimit(Resource::Nofile, limit)?)
}

/// Whether this process has the capability of this number in effect; `None` if `/proc` does not say.
pub fn has_capability(number: u32) -> Option<bool> {
    let effective = u64::from_str_radix(&status("CapEff")?, 16).ok()?;
    Some(effective.checked_shr(number).unwrap_or(0) & 1 == 1)
}

/// What seccomp does to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seccomp {
    /// It is off.
    Off,
    /// Only `read`, `write` and `exit` are allowed.
    Strict,
    /// A filter decides about each system call, which is the default in containers.
    Filter,
}

impl Seccomp {
    /// The state in words.
    pub fn name(self) -> &'static str {
        match self {
            Seccomp::Off => "no seccomp",
            Seccomp::Strict => "seccomp in strict mode",
            Seccomp::Filter => "a seccomp filter, as in containers",
        }
    }
}

/// What seccomp does to this process; `None` if `/proc` does not say.
pub fn seccomp() -> Option<Seccomp> {
    match status("Seccomp")?.as_str() {
        "0" => Some(Seccomp::Off),
        "1" => Some(Seccomp::Strict),
        "2" => Some(Seccomp::Filter),
        _ => None,
    }
}

/// The sysctl `kernel.io_uring_disabled`: 0 allows io_uring, 1 allows it to root and to the group in
/// `kernel.io_uring_group`, 2 forbids it. `None` before Linux 6.6 and without io_uring.
pub fn io_uring_disabled() -> Option<u32> {
    read_number("/proc/sys/kernel/io_uring_disabled").and_then(|value| value.try_into().ok())
}

/// The kernel's release, such as "6.18.0-generic".
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The first two numbers of a kernel's release; 0 for one that is not there.
pub fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The huge pages of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HugePages {
    /// Number of pages that `vm.nr_hugepages` reserves.
    pub total: u64,
    /// Of these, free.
    pub free: u64,
    /// Size of each in bytes.
    pub page_bytes: u64,
    /// Transparent huge pages: "always", "madvise" or "never"; empty if the kernel has none.
    pub transparent: String,
}

/// The huge pages of this machine, from `/proc` and `/sys`.
pub fn huge_pages() -> HugePages {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |name| field(&meminfo, name).and_then(leading_number).unwrap_or(0);
    let mode = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    HugePages {
        total: number("HugePages_Total"),
        free: number("HugePages_Free"),
        page_bytes: number("Hugepagesize") * 1024,
        transparent: chosen(&mode).to_owned(),
    }
}

/// Bytes that are available without swapping (`MemAvailable`), page cache included.
pub fn memory_available() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    Some(leading_number(field(&meminfo, "MemAvailable")?)? * 1024)
}

/// CPU time that this process has used, in user space and in the kernel, including the kernel's ring workers.
pub fn cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// CPU time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// The CPU time of one thread, which any thread of the process may ask for.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// That of the calling thread; `None` where the system has none.
    pub fn of_this() -> Option<ThreadClock> {
        let mut id = 0;
        // SAFETY: it has no conditions (pthread_self(3)).
        let this = unsafe { libc::pthread_self() };
        // SAFETY: `this` is a thread that lives, and `id` is written to in this call alone.
        let errno = unsafe { libc::pthread_getcpuclockid(this, &raw mut id) };
        (errno == 0).then_some(ThreadClock(id))
    }

    /// The CPU time that it has used. `None` when the thread has ended; or the time of a later thread that has its
    /// number.
    pub fn now(self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel checks the clock's number, and writes to `time` in this call alone.
        let result = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (result == 0).then(|| Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0)))
    }
}

/// Time since the machine was started, sleep included.
pub fn time_since_boot() -> Duration {
    clock(ClockId::Boottime)
}

fn clock(id: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(id);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// The most memory that this process has had resident, in bytes (`VmHWM`).
///
/// `ru_maxrss` would not do: a process inherits it from whatever it was before `exec`.
pub fn peak_memory() -> Option<u64> {
    Some(leading_number(&status("VmHWM")?)? * 1024)
}

/// Starts [`peak_memory`] over from what is resident now.
///
/// # Errors
/// What writing to `/proc/self/clear_refs` reports: not every container allows it.
pub fn reset_peak_memory() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5\n")
}

fn status(name: &str) -> Option<String> {
    // Not `self`, which is the whole process: capabilities and seccomp belong to each thread.
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    field(&status, name).map(str::to_owned)
}

/// The value in a line "name:   value".
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn leading_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

fn read_number(path: impl AsRef<Path>) -> Option<u64> {
    leading_number(&fs::read_to_string(path).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "VmHWMx:\t1 kB\nVmHWM:\t  1736 kB\nSeccomp_filters:\t3\nSeccomp:\t2\n";
        assert_eq!(field(text, "VmHWM").and_then(leading_number), Some(1736));
        assert_eq!(field(text, "Seccomp"), Some("2"));
        assert_eq!(field(text, "Sec"), None);
    }

    #[test]
    fn clocks_run_with_work() {
        let (process, thread) = (cpu_time(), thread_cpu_time());
        let mut sum = 0_u64;
        while thread_cpu_time() < thread + Duration::from_millis(5) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_time() >= process + Duration::from_millis(5));
    }

    #[test]
    fn the_peak_follows_memory_that_is_touched() {
        const BYTES: usize = 64 << 20;
        let Some(before) = peak_memory() else { return eprintln!("skipped: no /proc") };
        // Mapped and not allocated: an allocator may keep what is freed.
        let (arena, held) = crate::Arena::reserve(BYTES).unwrap();
        arena.populate(0..arena.len()).unwrap();
        let peak = peak_memory().unwrap();
        drop((arena, held));
        assert!(peak >= BYTES as u64 && peak >= before, "{before} to {peak}");
        if let Err(error) = reset_peak_memory() {
            return eprintln!("skipped: the peak cannot be reset: {error}");
        }
        assert!(peak_memory().unwrap() < peak);
    }

    #[test]
    fn every_linux_reports_these() {
        assert!(kernel_release().starts_with(|first: char| first.is_ascii_digit()));
        assert!(memory_available().is_none_or(|bytes| bytes > 1 << 20));
        assert!(huge_pages().free <= huge_pages().total && !huge_pages().transparent.contains('['));
        assert!(io_uring_disabled().is_none_or(|value| value <= 2));
        assert!(has_capability(CAP_IPC_LOCK).is_some() && has_capability(1000) == Some(false));
        assert!(seccomp().is_some());
        let limit = open_files_limit();
        assert!(limit.soft.is_some_and(|soft| soft >= 16));
        set_open_files_limit(limit.soft).unwrap();
        assert_eq!(open_files_limit(), limit);
    }
}

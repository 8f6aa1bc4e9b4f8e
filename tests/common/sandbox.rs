//! Threads and children with fewer rights, as in a container.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::io;

/// The system call number of `io_uring_setup(2)`, the same on every architecture.
const SYS_IO_URING_SETUP: i64 = 425;

/// Runs `work` on a thread whose seccomp filter denies io_uring with `errno`, also to every thread and process that it
/// starts.
///
/// # Panics
/// If `work` panics, or if the filter cannot be installed (it needs no privilege, only a kernel with seccomp).
pub fn without_io_uring<T: Send>(errno: i32, work: impl FnOnce() -> T + Send) -> T {
    without(&[SYS_IO_URING_SETUP], errno, work)
}

/// Runs `work` on a thread that can start no other and no process: it gets `EAGAIN`, as beyond `pids.max`.
///
/// # Panics
/// As [`without_io_uring`].
pub fn without_threads<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    without(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, work)
}

/// Runs `work` on a thread for which these system calls fail with `errno`, and for all that it starts.
///
/// # Panics
/// As [`without_io_uring`].
pub fn without<T: Send>(calls: &[i64], errno: i32, work: impl FnOnce() -> T + Send) -> T {
    let filter = SeccompFilter::new(
        calls.iter().map(|call| (*call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH.try_into().expect("an architecture that seccompiler knows"),
    );
    let program = BpfProgram::try_from(filter.expect("a filter")).expect("a filter that compiles");
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            seccompiler::apply_filter(&program).expect("a kernel with seccomp");
            work()
        });
        confined.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Forks a child that touches nothing and exits after `child_ms` milliseconds; returns its process number.
pub fn fork_idle(child_ms: u64) -> io::Result<i32> {
    let nap = libc::timespec { tv_sec: (child_ms / 1000) as i64, tv_nsec: (child_ms % 1000 * 1_000_000) as i64 };
    // SAFETY: between fork and _exit the child calls only nanosleep and _exit, which are async-signal-safe, as the
    // child of a process with several threads must; the parent continues as before.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: `nap` is a valid timespec on this stack, and null means that the remainder is not asked for.
            unsafe { libc::nanosleep(&nap, std::ptr::null_mut()) };
            // SAFETY: ends the child without running destructors, which belong to the parent.
            unsafe { libc::_exit(0) }
        }
        child => Ok(child),
    }
}

/// Waits for a child of [`fork_idle`]; returns whether it exited successfully.
pub fn wait_for(child: i32) -> bool {
    let mut status = 0;
    // SAFETY: `status` is a valid place for one int.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

//! Opening a ring with the best setup that the kernel accepts, and recording what it refused.

use super::RingOptions;
use super::queues::Queues;
use io_uring::{IoUring, Probe, opcode};
use std::fmt;
use std::io;

/// Entries of the submission queue that the ring keeps for itself: the poll on its bell, and one cancellation.
pub(super) const OWN_ENTRIES: u32 = 2;

/// The longest submission queue (`IORING_MAX_ENTRIES`).
const SQ_ENTRIES_MAX: u32 = 32768;

/// A part of the best setup, which a ring can go without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// `IORING_SETUP_NO_SQARRAY` (Linux 6.6).
    NoSqArray,
    /// `IORING_SETUP_SINGLE_ISSUER` and `IORING_SETUP_DEFER_TASKRUN` (Linux 6.1).
    DeferTaskrun,
    /// `IORING_SETUP_COOP_TASKRUN` and `IORING_SETUP_SUBMIT_ALL` (Linux 5.19).
    CoopTaskrun,
    /// The ring's own descriptor, registered.
    RingFd,
    /// A table of files.
    FileTable,
    /// The table of files at its full length.
    FullFileTable,
    /// A bound on kernel workers.
    WorkerBound,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::NoSqArray => "NO_SQARRAY",
            Feature::DeferTaskrun => "SINGLE_ISSUER and DEFER_TASKRUN",
            Feature::CoopTaskrun => "COOP_TASKRUN and SUBMIT_ALL",
            Feature::RingFd => "registered ring fd",
            Feature::FileTable => "file table",
            Feature::FullFileTable => "file table of the wanted length",
            Feature::WorkerBound => "bound on kernel workers",
        })
    }
}

/// A step down from the best setup: the kernel refused a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// What the ring does without.
    pub feature: Feature,
    /// Why.
    pub errno: i32,
}

/// A ring, and what it got.
pub(super) struct Made {
    pub(super) queues: Queues,
    /// The most operations in flight.
    pub(super) entries: usize,
    /// Slots of the file table.
    pub(super) files: u32,
    pub(super) steps: Vec<Step>,
}

/// Whether a ring can be opened here at all.
///
/// # Errors
/// The errno of `io_uring_setup(2)`: `EPERM` if a seccomp filter or `kernel.io_uring_disabled` forbids it, `ENOSYS` if
/// the kernel has no io_uring or lacks operations that reads need.
pub fn probe() -> Result<(), i32> {
    let ring = IoUring::builder().dontfork().build(OWN_ENTRIES).map_err(|error| errno(&error))?;
    required(&ring).map(drop)
}

/// Features to give up one after another while the kernel answers `EINVAL`.
const RUNGS: [Feature; 3] = [Feature::NoSqArray, Feature::DeferTaskrun, Feature::CoopTaskrun];

pub(super) fn make(options: &RingOptions) -> io::Result<Made> {
    let mut steps = Vec::new();
    // One entry for every operation in flight, so that the submission queue never fills up. The completion queue has
    // twice that by default, so it never overflows.
    let requested = options.entries.clamp(1, SQ_ENTRIES_MAX - OWN_ENTRIES) + OWN_ENTRIES;
    let ring = climb(requested, &mut steps)?;
    let linked_opens = required(&ring).map_err(io::Error::from_raw_os_error)?;
    let entries = requested.min(ring.params().sq_entries()) - OWN_ENTRIES;
    let mut queues = Queues::new(ring);
    let mut note = |feature, errno| steps.push(Step { feature, errno });
    if let Err(error) = queues.register_ring_fd() {
        note(Feature::RingFd, errno(&error));
    }
    let mut files = 0;
    if options.files > 0 {
        let registered = if linked_opens { register_files(&queues, options.files) } else { Err(libc::EOPNOTSUPP) };
        match registered {
            Ok(count) => files = count,
            Err(errno) => note(Feature::FileTable, errno),
        }
        if files > 0 && files < options.files {
            note(Feature::FullFileTable, libc::EMFILE);
        }
    }
    if options.max_workers != [0, 0]
        && let Err(error) = queues.submitter.register_iowq_max_workers(&mut { options.max_workers })
    {
        note(Feature::WorkerBound, errno(&error));
    }
    Ok(Made { queues, entries: entries as usize, files, steps })
}

fn climb(entries: u32, steps: &mut Vec<Step>) -> io::Result<IoUring> {
    for (given_up, &feature) in RUNGS.iter().enumerate() {
        match builder(given_up).build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                steps.push(Step { feature, errno: libc::EINVAL });
            }
            other => return other,
        }
    }
    builder(RUNGS.len()).build(entries)
}

fn builder(given_up: usize) -> io_uring::Builder {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp();
    if given_up < 1 {
        builder.setup_no_sqarray();
    }
    if given_up < 2 {
        builder.setup_single_issuer().setup_defer_taskrun();
    }
    if given_up < 3 {
        builder.setup_coop_taskrun().setup_submit_all();
    }
    if given_up == 2 {
        builder.setup_taskrun_flag();
    }
    builder
}

/// Checks for what the ring cannot do without. Returns whether opens can be linked to reads of the file table.
fn required(ring: &IoUring) -> Result<bool, i32> {
    let params = ring.params();
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|_| libc::ENOSYS)?;
    let codes = [opcode::Read::CODE, opcode::ReadFixed::CODE, opcode::PollAdd::CODE, opcode::AsyncCancel2::CODE];
    // EXT_ARG (5.11) allows waits with a timeout. NODROP and SUBMIT_STABLE (5.5) come with it.
    let enough = params.is_feature_ext_arg() && params.is_feature_nodrop() && params.is_feature_submit_stable();
    if !enough || !codes.iter().all(|&code| probe.is_supported(code)) {
        return Err(libc::ENOSYS);
    }
    Ok(params.is_feature_linked_file() && probe.is_supported(opcode::OpenAt::CODE))
}

/// Registers an empty file table, as long as `RLIMIT_NOFILE` allows.
fn register_files(queues: &Queues, requested: u32) -> Result<u32, i32> {
    let mut count = requested;
    loop {
        match queues.submitter.register_files_sparse(count) {
            Ok(()) => return Ok(count),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) && count > 1 => count /= 2,
            Err(error) => return Err(errno(&error)),
        }
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

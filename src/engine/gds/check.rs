//! Compares one in many cuFile reads with the file, while a loader runs.
//!
//! The comparison at open proves little: published corruptions came with load and with memory that moved, and were
//! reported as success. So the target is poisoned first: otherwise, where cuFile writes nothing, bytes of an earlier
//! read, which may be the right ones, would hide it.

use super::{BOUNCE_BYTES, Own, Straight};
use crate::config::{Cause, Fallback, GdsCause};
use crate::engine::Read;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uringload_sys::cuda::{Bounce, Span};
use uringload_sys::file;

/// The byte that fills a target.
const POISON: u8 = 0xdb;

/// When a read is compared, and whether one was wrong.
#[derive(Debug)]
pub(super) struct Checks {
    /// One read in this many.
    every: u64,
    reads: AtomicU64,
    /// A read was wrong. cuFile reads nothing any more.
    pub(super) failed: AtomicBool,
}

impl Checks {
    pub(super) fn new(every: u64) -> Checks {
        Checks { every: every.max(1), reads: AtomicU64::new(0), failed: AtomicBool::new(false) }
    }

    /// Counts a read, and returns whether to compare it.
    pub(super) fn is_due(&self) -> bool {
        (self.reads.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every)
    }
}

impl Straight {
    /// Fills the target of a read, which has no other user.
    pub(super) fn poison(&self, read: &Read, own: &mut Own) -> io::Result<()> {
        let mut bounce = self.take_bounce(own)?;
        bounce.memory()[..BOUNCE_BYTES].fill(POISON);
        let mut done = 0;
        while done < read.part.len() {
            let len = BOUNCE_BYTES.min(read.part.len() - done);
            bounce.copy(&self.target(read, done, len)?).map_err(io::Error::other)?;
            done += len;
        }
        own.bounce = Some(bounce);
        Ok(())
    }

    /// Whether the `bytes` that cuFile has read are those of the file. If not, reports that and stops using cuFile.
    ///
    /// # Errors
    /// If the file cannot be read to compare, or is no longer the one that was indexed; the device's error.
    pub(super) fn is_right(&self, read: &Read, bytes: usize, own: &mut Own, opening: &AtomicBool) -> io::Result<bool> {
        let file = self.take_file(read.file, own, opening)?;
        let mut bounce = self.take_bounce(own)?;
        let (mut done, mut wrong) = (0, None);
        while done < bytes && wrong.is_none() {
            let len = BOUNCE_BYTES.min(bytes - done);
            // As much as the read itself: the end of a file may not be aligned, but its read is.
            let here = &mut bounce.memory()[..BOUNCE_BYTES.min(read.part.len() - done)];
            let got = file::read_at(file.as_fd(), here, read.offset + done as u64)?.min(len);
            if got == 0 {
                break;
            }
            bounce.fetch(&self.target(read, done, got)?, BOUNCE_BYTES).map_err(io::Error::other)?;
            let (here, there) = bounce.memory().split_at(BOUNCE_BYTES);
            wrong = there[..got].iter().zip(&here[..got]).position(|(there, here)| there != here);
            wrong = wrong.map(|at| at + done);
            done += got;
        }
        let is_still = self.files.check_again(read.file, &file);
        (own.file, own.bounce) = (Some((read.file, file)), Some(bounce));
        is_still?;
        let Some(at) = wrong else { return Ok(true) };
        self.checks.failed.store(true, Ordering::Relaxed);
        let reason = format!(
            "byte {} of {} was another one on the GPU after cuFile had reported success; one read in {} is compared, \
             so batches before this one may hold wrong bytes too",
            read.offset + at as u64,
            self.files.path(read.file).display(),
            self.checks.every
        );
        // This must be reported, even if older fallbacks were not taken yet.
        let _ =
            self.said.force_push(Fallback::new(Cause::Gds(GdsCause::Proof), super::PINNED, None).with_reason(reason));
        Ok(false)
    }

    /// Bytes of a read's target.
    pub(super) fn target(&self, read: &Read, start: usize, len: usize) -> io::Result<Span> {
        let start = read.part.offset() + start;
        self.memory
            .slice(start..start + len)
            .ok_or_else(|| io::Error::other("a read leads outside the GPU's memory: this is a bug of uringload"))
    }

    /// The thread's pinned memory: for the file's bytes, and those on the GPU. The caller puts it back, unless it
    /// failed.
    pub(super) fn take_bounce(&self, own: &mut Own) -> io::Result<Bounce> {
        match own.bounce.take() {
            Some(bounce) => Ok(bounce),
            None => Bounce::new(&self.context, 2 * BOUNCE_BYTES),
        }
    }
}

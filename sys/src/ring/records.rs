//! One record per operation in flight, which owns everything that the kernel uses meanwhile.

use super::{Completion, Operation};
use crate::arena::Part;
use crate::file::Identity;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// User data of the poll on the bell.
pub(super) const BELL: u64 = u64::MAX;

/// User data of a cancellation.
pub(super) const CANCEL: u64 = u64::MAX - 1;

/// Bytes reserved for each path. A longer path grows its record once.
const PATH_BYTES: usize = 256;

/// The operations in flight. In steady state nothing is allocated.
#[derive(Default)]
pub(super) struct Records {
    all: Vec<Record>,
    free: Vec<u32>,
    /// User data of what is in the submission queue, in order.
    pub(super) queued: VecDeque<u64>,
}

/// An operation in flight, or a free entry for one.
pub(super) struct Record {
    kind: Operation,
    tag: u64,
    since: Instant,
    pub(super) slot: Option<u32>,
    pub(super) part: Option<Part>,
    pub(super) file: Option<Arc<OwnedFd>>,
    pub(super) path: Vec<u8>,
    /// Where the kernel writes which file is at the path. In a box, so that it stays in place, and kept for good.
    pub(super) answer: Option<Box<Answer>>,
    /// Whether this is a read linked to the open before it.
    pub(super) linked: bool,
    /// Whether the link was cut, so that the read may have read the slot's previous file.
    cut: bool,
}

/// What `statx(2)` writes.
pub(super) struct Answer(libc::statx);

impl Default for Answer {
    fn default() -> Answer {
        // SAFETY: the struct has only integers, for which zeros are valid values.
        Answer(unsafe { std::mem::zeroed() })
    }
}

impl Answer {
    fn identity(&self) -> Identity {
        let stat = &self.0;
        Identity {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }
}

impl Records {
    pub(super) fn new(capacity: usize) -> Records {
        let record = |_| Record {
            kind: Operation::Open,
            tag: 0,
            since: Instant::now(),
            slot: None,
            part: None,
            file: None,
            path: Vec::with_capacity(PATH_BYTES),
            answer: None,
            linked: false,
            cut: false,
        };
        Records {
            all: (0..capacity).map(record).collect(),
            free: (0..capacity as u32).rev().collect(),
            queued: VecDeque::with_capacity(capacity + super::setup::OWN_ENTRIES as usize),
        }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn used(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Takes a free record, and returns it with the user data that names it.
    pub(super) fn take(&mut self, kind: Operation, tag: u64) -> (u64, &mut Record) {
        let index = self.free.pop().expect("the caller has asked for room");
        let record = &mut self.all[index as usize];
        record.kind = kind;
        record.tag = tag;
        record.since = Instant::now();
        (u64::from(index), record)
    }

    /// User data of the operations in flight with this tag.
    pub(super) fn with_tag(&self, tag: u64) -> impl Iterator<Item = u64> {
        // A record in use owns a part or keeps a folder open, and `finish` takes both away.
        let is_used = |record: &Record| record.part.is_some() || record.file.is_some();
        let all = (0_u64..).zip(&self.all);
        all.filter(move |(_, record)| record.tag == tag && is_used(record)).map(|(index, _)| index)
    }

    /// Frees the record of an operation that the kernel has returned. Returns its slot, and what to report.
    pub(super) fn finish(&mut self, index: u64, result: i32, now: Instant) -> (Option<u32>, Completion) {
        let record = &mut self.all[index as usize];
        let result = match u32::try_from(result) {
            Ok(_) if record.cut => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            Ok(result) => Ok(result),
            Err(_) => Err(io::Error::from_raw_os_error(result.wrapping_neg())),
        };
        record.path.clear();
        record.file = None;
        record.linked = false;
        record.cut = false;
        let latency = now.saturating_duration_since(record.since);
        let is_answered = record.kind == Operation::Stat && result.is_ok();
        let identity = record.answer.as_ref().filter(|_| is_answered).map(|answer| answer.identity());
        let (tag, kind, part) = (record.tag, record.kind, record.part.take());
        let completion = Completion { tag, kind, result, part, identity, latency };
        self.free.push(index as u32);
        (record.slot.take(), completion)
    }

    /// Notes that the kernel took all but the last `left` queued entries.
    ///
    /// A link ends where a submission ends. If the kernel stopped between an open and its read, because an allocation
    /// failed, the read does not wait for the open. So it is marked, and its bytes are thrown away.
    pub(super) fn submitted(&mut self, left: usize) {
        self.queued.drain(..self.queued.len() - left);
        if let Some(&index) = self.queued.front()
            && let Some(record) = self.all.get_mut(index as usize)
        {
            record.cut = record.linked;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_link_throws_the_bytes_away() {
        let mut records = Records::new(4);
        for linked in [false, true, false, true] {
            let (index, record) = records.take(Operation::Read, 0);
            record.linked = linked;
            records.queued.push_back(index);
        }
        records.submitted(2);
        records.submitted(1);
        records.submitted(1);
        records.submitted(0);
        let results: Vec<_> = (0..4)
            .map(|index| records.finish(index, 7, Instant::now()).1.result.map_err(|e| e.raw_os_error()))
            .collect();
        assert_eq!(results, [Ok(7), Ok(7), Ok(7), Err(Some(libc::ECANCELED))]);
    }
}

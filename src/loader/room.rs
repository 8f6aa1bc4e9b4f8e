//! Measures the memory that may be taken: what the machine has available, and what the container's control groups
//! leave.

use super::limits::MEMORY_LIMIT;
use crate::config::{Cause, Fallback};
use crate::{Error, ErrorKind, Result};
use uringload_sys::cgroup::{self, MemoryGroup};
use uringload_sys::system;

/// The part of a control group's room that the default takes. The program, its libraries and its computations need the
/// rest.
const GROUP_SHARE: u64 = 4;

/// The part of the available memory that the default takes, and of a control group's room that one batch may need.
const SHARE: u64 = 2;

/// The memory of this machine and of this container.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    available: u64,
    group: Option<MemoryGroup>,
}

impl Room {
    /// The current values.
    pub(crate) fn now() -> Room {
        Room { available: system::memory_available().unwrap_or(u64::MAX), group: cgroup::memory() }
    }

    /// The default limit if one batch needs `needed` bytes: more than usual only if necessary, and then not so much
    /// that the program has nothing left.
    pub(crate) fn default_for(&self, needed: u64) -> u64 {
        let group = self.group.as_ref().map_or(u64::MAX, |group| group.room() / GROUP_SHARE);
        group.min(self.available / SHARE).max(needed.min(self.half()))
    }

    /// Half of what is left: the most that is taken unless the user asks for more.
    pub(super) fn half(&self) -> u64 {
        self.group.as_ref().map_or(u64::MAX, MemoryGroup::room).min(self.available) / SHARE
    }

    /// Refuses the user's memory limit, called `name`, if the control group would kill the process for it.
    ///
    /// # Errors
    /// `MemoryLimit`, with the arithmetic.
    pub(crate) fn check(&self, name: &str, memory_limit: Option<u64>) -> Result<()> {
        let (Some(limit), Some(group)) = (memory_limit, &self.group) else { return Ok(()) };
        if limit <= group.most() {
            return Ok(());
        }
        let what = format!("a {name} of {limit} bytes is not available: {}", group_words(group));
        let remedy = format!(
            "lower {name} to {} or less (the program needs memory too), or raise the memory limit of the \
             container",
            group.room() / SHARE
        );
        Err(Error::new(ErrorKind::MemoryLimit, what).with_remedy(remedy))
    }

    /// What bounds the default, as text that follows "the memory limit is N bytes".
    pub(super) fn words(&self) -> String {
        match &self.group {
            Some(group) if group.room() / GROUP_SHARE <= self.available / SHARE => {
                format!("a part of the memory that is left: {}", group_words(group))
            }
            _ => format!("a part of the {} bytes that are available on this machine", self.available),
        }
    }

    /// Reports that the default is `limit` instead of the `ample` that reads ahead enough.
    pub(crate) fn told(&self, ample: u64, limit: u64) -> Option<Fallback> {
        (limit < ample).then(|| {
            let reason = format!("{ample} bytes are enough, and the limit is {}", self.words());
            Fallback::new(Cause::MemoryRoom, format!("{limit} bytes"), None).with_reason(reason)
        })
    }

    #[cfg(test)]
    pub(super) fn of(available: u64, group: Option<MemoryGroup>) -> Room {
        Room { available, group }
    }
}

/// The arithmetic of a group, as text.
fn group_words(group: &MemoryGroup) -> String {
    let MemoryGroup { path, limit, used, .. } = group;
    format!("{} allows {limit} bytes, and {used} are in use", path.display())
}

/// Reports that the quota of the container lowered a default number of threads to `got`.
pub(super) fn quota_told(got: usize, what: &str) -> Option<Fallback> {
    let quota = cgroup::processor_quota()?;
    let allowed = cgroup::processors_allowed();
    (got < allowed && cgroup::processors() < allowed).then(|| {
        let reason =
            format!("{} allows the time of {:.2} of {allowed} processors", quota.path.display(), quota.processors);
        let plural = if got == 1 { "" } else { "s" };
        Fallback::new(Cause::ProcessorQuota, format!("{got} thread{plural} {what}"), None).with_reason(reason)
    })
}

/// The default memory of a loader: the 256 MiB that keep a disk busy, or as many batches as that takes.
pub(super) fn ample(batch_bytes: u64, batches_held: u64) -> u64 {
    MEMORY_LIMIT.max(batch_bytes.saturating_mul(batches_held))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    // A group is made from files, as the kernel would show them.
    fn group(limit: u64, used: u64) -> Option<MemoryGroup> {
        MemoryGroup::new("/cg/memory.max", limit, used, 0).into()
    }

    #[test]
    fn the_default_leaves_memory_to_the_program() {
        let roomy = Room::of(8 << 30, None);
        assert_eq!((roomy.default_for(MIB), roomy.half()), (4 << 30, 4 << 30));
        let tight = Room::of(8 << 30, group(100 * MIB, 20 * MIB));
        assert_eq!(tight.default_for(MIB), 20 * MIB);
        assert_eq!(tight.default_for(30 * MIB), 30 * MIB, "one batch");
        assert_eq!(tight.default_for(90 * MIB), 40 * MIB, "and no more than half");
        assert_eq!(Room::of(10 * MIB, group(100 * MIB, 20 * MIB)).default_for(MIB), 5 * MIB);
        assert_eq!(Room::of(8 << 30, group(MIB, 2 * MIB)).default_for(MIB), 0);
    }

    #[test]
    fn a_limit_by_name_is_had_or_refused_with_the_arithmetic() {
        let room = Room::of(8 << 30, group(100 * MIB, 20 * MIB));
        let check = |room: &Room, limit| room.check("memory_limit", limit);
        assert!(check(&room, None).is_ok() && check(&room, Some(80 * MIB)).is_ok());
        let error = check(&room, Some(81 * MIB)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MemoryLimit);
        for part in ["84934656", "/cg/memory.max allows 104857600 bytes, and 20971520", "41943040 or less"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(check(&Room::of(0, None), Some(1 << 40)).is_ok(), "no group says anything");
    }

    #[test]
    fn less_than_ample_is_told() {
        let room = Room::of(8 << 30, group(100 * MIB, 20 * MIB));
        assert_eq!(room.told(20 * MIB, 20 * MIB), None);
        let line = room.told(256 * MIB, 20 * MIB).unwrap().to_string();
        assert!(line.starts_with("20971520 bytes instead of enough memory to read ahead: 268435456 bytes"), "{line}");
        assert!(line.contains("/cg/memory.max allows"), "{line}");
        assert!(Room::of(100 * MIB, None).words().contains("available on this machine"));
    }
}

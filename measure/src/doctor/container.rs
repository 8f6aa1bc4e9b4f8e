//! What the machine and the control groups of a container leave to this process.

use super::{Finding, State};
use crate::text;
use uringload_sys::{cgroup, system};

/// With less, a loader reads ahead less than keeps a fast disk busy: a quarter of it is its default.
const ROOM_MIN: u64 = 1 << 30;

pub(super) fn memory() -> Finding {
    const WHAT: &str = "memory";
    const REMEDY: &str = "raise the memory limit of the container, or name a --memory-limit if you know better";
    let available = system::memory_available();
    let on_machine =
        available.map_or_else(|| "unknown".to_owned(), |bytes| format!("{} available", text::binary(bytes)));
    let Some(group) = cgroup::memory() else {
        let means = "by default a loader takes 256 MiB, or three of the largest batches, up to half of it";
        return Finding::new(WHAT, State::Info, format!("{on_machine}; no control group limits it"), means);
    };
    let found = format!(
        "{on_machine}; {} allows {}, and {} are in use",
        group.path.display(),
        text::binary(group.limit),
        text::binary(group.used)
    );
    let means = format!("by default a loader takes up to {}", text::binary(group.room() / 4));
    if group.room() < ROOM_MIN {
        return Finding::new(WHAT, State::Degraded, found, means + ", and reads ahead less than it could")
            .remedy(REMEDY);
    }
    Finding::new(WHAT, State::Good, found, means)
}

pub(super) fn processors() -> Finding {
    const WHAT: &str = "processors";
    let allowed = cgroup::processors_allowed();
    let quota = cgroup::processor_quota().map_or_else(
        || "no quota".to_owned(),
        |quota| format!("{} gives the time of {:.2}", quota.path.display(), quota.processors),
    );
    let found = format!("{allowed} allowed; {quota}; default numbers of threads are made for {}", cgroup::processors());
    Finding::new(WHAT, State::Info, found, "more threads than that wait for each other")
}

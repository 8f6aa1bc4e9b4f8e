//! The kernel: which one runs, and what each version adds to reading.

use super::{Finding, State};
use uringload_sys::system;

/// A version of Linux: 5.19.
type Version = (u32, u32);

/// What any kernel gives.
const ANY: &str = "reading by threads, through the page cache";

/// What later ones add. docs/features.md has the same table.
const ADDED: [(Version, &str); 7] = [
    ((5, 7), "memory that is carried from one long sample to the next"),
    ((5, 13), "all of the loader's memory registered with the ring"),
    ((5, 19), "io_uring, with every flag that is needed"),
    ((6, 1), "`O_DIRECT`, whose alignment the kernel tells from here on; less CPU for a ring"),
    ((6, 2), "GPUDirect Storage without a kernel module of NVIDIA's"),
    ((6, 6), "still less CPU for a ring"),
    ((6, 15), "reads for `pack` and `cache=\"memory\"` that leave nothing in the page cache"),
];

/// The kernel that runs, and each version that adds something.
pub(super) fn look() -> Vec<Finding> {
    let release = system::kernel_release();
    of(&release, system::kernel_version(&release))
}

fn of(release: &str, version: Version) -> Vec<Finding> {
    let (state, means) = match version {
        v if v >= (6, 6) => (State::Good, "knows every ring flag and reports the alignment of direct reads"),
        v if v >= (6, 1) => (State::Good, "reports the alignment of direct reads; 6.6 spends a little less CPU"),
        _ => (State::Degraded, "does not report the alignment of direct reads, so the page cache is used"),
    };
    let runs = Finding::new("kernel", state, format!("Linux {release}; any gives {ANY}"), means);
    let runs = if state == State::Good { runs } else { runs.remedy("use Linux 6.1 or later") };
    let added = ADDED.iter().map(|&((major, minor), what)| {
        let is_here = version >= (major, minor);
        let (state, means) =
            if is_here { (State::Good, "this kernel has it") } else { (State::Info, "this kernel is older") };
        Finding::new(format!("since {major}.{minor}"), state, what, means)
    });
    std::iter::once(runs).chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_same_table() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/features.md")).unwrap();
        let rows = ADDED.iter().map(|((major, minor), what)| format!("| {major}.{minor} | {what} |\n"));
        let table = format!("| Linux | adds |\n|---|---|\n| any | {ANY} |\n{}\n", rows.collect::<String>());
        assert!(page.contains(&table), "docs/features.md should have\n{table}");
    }

    #[test]
    fn an_old_kernel_lacks_what_later_ones_add() {
        let states = |version| of("x", version).iter().map(|finding| finding.state).collect::<Vec<_>>();
        assert!(states((6, 15)).iter().all(|state| *state == State::Good));
        let old = states((5, 15));
        assert_eq!(old[0], State::Degraded);
        assert_eq!(old[1..4], [State::Good, State::Good, State::Info]);
        assert!(of("x", (5, 15))[0].remedy.is_some());
    }
}

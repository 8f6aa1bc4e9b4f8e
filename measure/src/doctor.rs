//! Whether the fastest way to read is available here, what each fact means, and what to do about it.

mod container;
mod gpu;
mod kernel;
mod store;

use crate::bench::RouteReport;
use crate::facts;
use crate::text;
use serde::Serialize;
use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;
use uringload::config::{Cause, Fallback, Route};
use uringload::dataset::Dataset;
use uringload::inspect::gds;
use uringload::inspect::gds::{Facts, Link, LinkState, Place};
use uringload::{Loader, Result};
use uringload_images::JpegDecoder;
use uringload_sys::block::BlockDevice;
use uringload_sys::throttle::ReadLimit;
use uringload_sys::{ring, system};

/// Checks the machine, and how it reads `dataset`, if there is one; with the CUDA driver `cuda`, or where the system
/// finds it.
///
/// # Errors
/// Those of building a loader.
pub fn examine(dataset: Option<Arc<dyn Dataset>>, cuda: Option<&Path>) -> Result<Examination> {
    let mut findings = kernel::look();
    findings.extend([io_uring(), confinement(), locked_memory(), open_files(), huge_pages()]);
    findings.extend([container::memory(), container::processors(), jpeg_decoder()]);
    let (mut route, mut disk, mut chain_place) = (None, None, None);
    if let Some(dataset) = dataset {
        if let Some(found) = store::look(dataset.files()) {
            findings.extend(found);
        } else {
            let place = facts::place(&*dataset);
            findings.extend(judge_place(place.as_ref()));
            disk = place.and_then(|place| place.device);
            chain_place = Some(facts::chain_place(&*dataset));
        }
        let (finding, found) = open_route(dataset)?;
        findings.push(finding);
        route = Some(found);
    }
    findings.extend(gpu::look(cuda, disk.as_ref()));
    if facts::gpus() > 0 {
        findings.extend(direct_storage(&Facts::read(Path::new("/")), chain_place.as_ref()));
    }
    let is_degraded = findings.iter().any(|finding| finding.state == State::Degraded);
    Ok(Examination { findings, route, is_degraded })
}

/// All findings.
pub struct Examination {
    /// One for each thing that was checked.
    pub findings: Vec<Finding>,
    /// How the dataset would be read.
    pub route: Option<Route>,
    /// Whether anything is worse than it could be.
    pub is_degraded: bool,
}

impl Examination {
    /// For programs.
    pub fn report(&self) -> serde_json::Value {
        let route = self.route.as_ref().map(RouteReport::from);
        serde_json::json!({
            "version": 1, "degraded": self.is_degraded, "findings": self.findings, "route": route,
        })
    }
}

/// One thing that was checked.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// Its name.
    pub what: Cow<'static, str>,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What that means for a loader.
    pub means: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// The state of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Good,
    /// Worse than it could be.
    Degraded,
    /// A fact that is neither.
    Info,
}

impl Finding {
    fn new(
        what: impl Into<Cow<'static, str>>,
        state: State,
        found: impl Into<String>,
        means: impl Into<String>,
    ) -> Finding {
        Finding { what: what.into(), state, found: found.into(), means: means.into(), remedy: None }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = Some(remedy.into());
        self
    }
}

fn io_uring() -> Finding {
    match ring::probe() {
        Ok(()) => Finding::new("io_uring", State::Good, "a ring opens", "reads cost the least CPU"),
        Err(errno) => {
            let error = io::Error::from_raw_os_error(errno);
            let step = Fallback::new(Cause::RingSetup, "pread threads", Some(&error));
            let means = format!("{}; pread threads read instead, for about twice the CPU", step.reason);
            Finding::new("io_uring", State::Degraded, error.to_string(), means).remedy(step.remedy)
        }
    }
}

/// What could deny io_uring. `io_uring` reports whether it is denied; these facts help find the cause.
fn confinement() -> Finding {
    let seccomp = system::seccomp().map_or("seccomp unknown", system::Seccomp::name);
    let sysctl = match system::io_uring_disabled() {
        Some(0) => "kernel.io_uring_disabled = 0".to_owned(),
        Some(1) => "kernel.io_uring_disabled = 1 (root and kernel.io_uring_group only)".to_owned(),
        Some(value) => format!("kernel.io_uring_disabled = {value} (no process)"),
        None => "no sysctl that could disable io_uring".to_owned(),
    };
    Finding::new("confinement", State::Info, format!("{seccomp}; {sysctl}"), "what may deny io_uring to a process")
}

/// What decodes JPEGs, and why it is not the faster one.
fn jpeg_decoder() -> Finding {
    const WHAT: &str = "JPEG decoder";
    let JpegDecoder { name, version, path, why_not, .. } = uringload_images::decoder();
    let Some(why_not) = why_not else {
        let place = path.map_or("built in".into(), |path| path.display().to_string());
        let found = format!("{name} {version} ({place})");
        return Finding::new(WHAT, State::Good, found, "only the part of a JPEG that is seen is decoded");
    };
    let means = format!("a crop of a JPEG takes about 1.7 times the CPU of libjpeg-turbo 3: {why_not}");
    // Nothing is wrong with a machine that trains on something else.
    Finding::new(WHAT, State::Info, format!("{name} {version}"), means).remedy(
        "take a build with it built in, as the wheels are, or install libturbojpeg of libjpeg-turbo 3.0 or later",
    )
}

/// The size of the default pool, which is to be registered with the ring.
const POOL_BYTES: u64 = 256 << 20;

fn locked_memory() -> Finding {
    const WHAT: &str = "locked memory";
    if system::has_capability(system::CAP_IPC_LOCK) == Some(true) {
        return Finding::new(WHAT, State::Good, "CAP_IPC_LOCK", "memory of any size can be registered with the ring");
    }
    match system::locked_memory_limit().soft {
        Some(limit) if limit < POOL_BYTES => {
            let means = format!(
                "the loader's memory ({} by default) cannot be registered with the ring, so each read pins its pages",
                text::binary(POOL_BYTES)
            );
            let error = io::Error::from_raw_os_error(12);
            let step = Fallback::new(Cause::BufferRegistration, "plain reads", Some(&error));
            Finding::new(WHAT, State::Degraded, format!("limit {}", text::binary(limit)), means).remedy(step.remedy)
        }
        limit => {
            let found = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {}", text::binary(limit)));
            Finding::new(WHAT, State::Good, found, "the loader's memory can be registered with the ring")
        }
    }
}

/// With fewer descriptors, a route may have to be narrower than it could be.
const OPEN_FILES_MIN: u64 = 1024;

fn open_files() -> Finding {
    const WHAT: &str = "open files";
    let limit = system::open_files_limit().soft;
    let found = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {}", text::count(limit)));
    if limit.is_some_and(|limit| limit < OPEN_FILES_MIN) {
        let step = Fallback::new(Cause::Descriptors, "fewer", None);
        return Finding::new(WHAT, State::Degraded, found, "few files can be in flight at once").remedy(step.remedy);
    }
    Finding::new(WHAT, State::Good, found, "enough files can be in flight at once")
}

fn huge_pages() -> Finding {
    const WHAT: &str = "huge pages";
    let pages = system::huge_pages();
    let reserved = match pages.free {
        0 => String::new(),
        free => format!("; {free} of {} reserved ones free", pages.total),
    };
    match pages.transparent.as_str() {
        mode if mode == "always" || mode == "madvise" || pages.free > 0 => {
            let means = "the loader's memory is mapped in large pages, which are cheap to register and to read into";
            Finding::new(WHAT, State::Good, format!("transparent: {mode}{reserved}"), means)
        }
        mode => {
            let mode = if mode.is_empty() { "none" } else { mode };
            let means =
                "the loader's memory is mapped in small pages, which cost more CPU to register and to read into";
            let step = Fallback::new(Cause::HugePages, "small pages", None);
            Finding::new(WHAT, State::Degraded, format!("transparent: {mode}{reserved}"), means).remedy(step.remedy)
        }
    }
}

/// The filesystem and the device of the dataset's first file.
fn judge_place(place: Option<&facts::Location>) -> Vec<Finding> {
    let Some(place) = place else {
        let means = "its filesystem and device are not known";
        return vec![Finding::new("filesystem", State::Info, "the first file cannot be opened", means)];
    };
    let filesystem = match place.alignment {
        Some(alignment) => {
            let found = format!("{}, O_DIRECT aligned to {} bytes", place.filesystem, alignment.offset);
            Finding::new("filesystem", State::Good, found, "reads can go past the page cache")
        }
        None => {
            let step = Fallback::new(Cause::DirectAlignment, "page cache", None);
            let means = "reads go through the page cache, for several times the CPU";
            let found = format!("{}, names no O_DIRECT alignment", place.filesystem);
            Finding::new("filesystem", State::Degraded, found, means).remedy(step.remedy)
        }
    };
    let device = match &place.device {
        Some(device) if device.disks().iter().any(|disk| disk.queue.rotational) => {
            let means = "says that it rotates, which virtual disks often say wrongly; if so, a random order is slow";
            Finding::new("device", State::Info, facts::describe(device), means)
        }
        Some(device) => {
            let means =
                format!("holds {} requests; the loader keeps its reads in flight below that", device.requests());
            Finding::new("device", State::Info, facts::describe(device), means)
        }
        None => Finding::new("device", State::Info, "none known", "the loader cannot know how much the device holds"),
    };
    let limits = place.device.as_ref().map(BlockDevice::read_limits).unwrap_or_default();
    let operations = limits.operations.map(|limit| read_limit(format!("{} reads", text::count(limit.most)), &limit));
    let bytes = limits.bytes.map(|limit| read_limit(text::bytes(limit.most as f64), &limit));
    [Some(filesystem), Some(device), operations, bytes].into_iter().flatten().collect()
}

/// What the control group allows of the device.
fn read_limit(most: String, limit: &ReadLimit) -> Finding {
    let found = format!("{most} a second, by {limit}");
    let means = "the control group of this process gets no more of the device, however fast that is";
    let remedy = format!("raise or remove `{}`, on the host where the file is not to be written here", limit.line);
    Finding::new("read limit", State::Degraded, found, means).remedy(remedy)
}

/// Opens a loader as `bench` would, which is the only proof that all of the above works together.
fn open_route(dataset: Arc<dyn Dataset>) -> Result<(Finding, Route)> {
    let loader = Loader::builder(dataset).batch_size(1).build()?;
    let route = loader.route();
    let steps: Vec<&Fallback> = route.fallbacks.iter().filter(|step| step.is_degraded()).collect();
    let finding = if steps.is_empty() {
        Finding::new("route", State::Good, route.to_string(), "the best way to read these files")
    } else {
        let means: Vec<String> =
            steps.iter().map(|s| format!("{} instead of {}: {}", s.got, s.wanted, s.reason)).collect();
        let remedies: Vec<&str> = steps.iter().map(|step| &*step.remedy).collect();
        Finding::new("route", State::Degraded, route.to_string(), means.join("; ")).remedy(remedies.join("; "))
    };
    Ok((finding, route))
}

/// What GPUDirect Storage needs, link by link. A missing link is no defect: few machines have it.
fn direct_storage(facts: &Facts, place: Option<&Place>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = gds::chain(facts, place).into_iter().map(link).collect();
    findings.push(match gds::guard(facts) {
        Ok(mode) => {
            let means = "cuFile can be tried; whether it opens and what it is worth is seen when it is";
            Finding::new("GDS", State::Info, format!("the system has a way: {mode}"), means)
        }
        Err(step) => {
            let means = "batches go through pinned memory of the host";
            Finding::new("GDS", State::Info, format!("not here: {}", step.reason), means).remedy(step.remedy)
        }
    });
    findings
}

fn link(link: Link) -> Finding {
    let state = if link.state == LinkState::Good { State::Good } else { State::Info };
    let unneeded = if link.state == LinkState::Unneeded { " (not needed here)" } else { "" };
    let finding = Finding::new(link.what, state, format!("{}{unneeded}", link.found), link.means);
    match link.remedy {
        Some(remedy) => finding.remedy(remedy),
        None => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_of_direct_storage_is_told_with_what_mends_it_and_is_no_defect() {
        let findings = direct_storage(&Facts { udev: true, ..Facts::default() }, Some(&Place::default()));
        assert!(findings.iter().all(|finding| finding.state != State::Degraded));
        for (name, state) in [("udev data", State::Good), ("module list", State::Info), ("kernel P2PDMA", State::Info)]
        {
            let finding = findings.iter().find(|finding| finding.what == name).expect(name);
            assert_eq!(finding.state, state, "{finding:?}");
        }
        for name in ["data's disks", "GDS"] {
            assert!(findings.iter().any(|finding| finding.what == name && finding.state == State::Info), "{name}");
        }
        assert!(findings.iter().any(|finding| finding.remedy.is_some()));
    }
}

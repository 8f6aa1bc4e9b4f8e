//! Checks whether GPUDirect Storage works here: the guards, in order, each of which is a [`Fallback`] if it fails, and
//! the [`chain`] of everything that it needs, with the command that repairs each link.
//!
//! A guard precedes whatever would hang, crash or silently copy through the host if it did not hold. So the library is
//! only loaded if the system has a path from NVMe to the GPU, and only real direct reads are called GPUDirect Storage:
//! see [`GdsMode`].

mod chain;

pub use chain::{Link, LinkState, Place, chain};
pub use uringload_sys::cufile::guards::{Facts, GpuBar, Iommu, Mount, NvidiaDriver};
pub use uringload_sys::cufile::{Configuration, Cufile, GdsMode, Options};

pub use crate::config::device::{GDS_OPEN_BOUND as OPEN_BOUND, GdsSearch as Search};

use crate::config::GdsCause;
use crate::config::{Cause, Fallback};
use uringload_sys::cufile::{OpenError, VARIABLE};
use uringload_sys::system;

/// The first NVIDIA driver whose open modules support PCI P2PDMA.
const P2PDMA_DRIVER: (u32, u32) = (565, 47);

/// Since this kernel, pages of devices are counted differently; since this driver, its open modules support that.
const COUNTED_OTHERWISE: ((u32, u32), (u32, u32)) = ((6, 15), (595, 71));

/// The path that is used instead.
const PINNED: &str = "the pinned path";

/// cuFile, open, and reading directly.
#[derive(Clone, Debug)]
pub struct Gds {
    /// The library.
    pub cufile: Cufile,
    /// The direct path: never [`GdsMode::Compat`].
    pub mode: GdsMode,
    /// Fallbacks to report although it works.
    pub said: Vec<Fallback>,
}

/// Opens cuFile if all guards hold. `attach` makes the CUDA context current on the thread that opens it.
///
/// # Errors
/// The first guard that does not hold. Returns within the bound, and at once for a guard about the system.
pub fn open(
    facts: &Facts,
    search: Search,
    attach: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<Gds, Box<Fallback>> {
    let expected = guard(facts)?;
    let private = |scratch| Configuration::private(scratch, expected == GdsMode::P2pdma);
    let configuration = search.scratch.map_or(Configuration::Environment, private);
    let options = Options::new(configuration, search.bound).library(search.library).places(search.places);
    let cufile = Cufile::open(options, attach).map_err(|error| Box::new(step(&error)))?;
    let properties = cufile.properties();
    let mode = properties.mode();
    if mode == GdsMode::Compat {
        let step = Fallback::new(Cause::Gds(GdsCause::Compat), PINNED, None);
        if !properties.compat_allowed {
            return Err(Box::new(step));
        }
        let whose = if cufile.is_shared() { "the code that opened cuFile first" } else { VARIABLE };
        return Err(Box::new(step.with_reason(format!(
            "the configuration of {whose} allows compatibility mode, in which cuFile may copy through the host \
             silently"
        ))));
    }
    let closed = cufile.standard_input_was_closed();
    let said =
        closed.then(|| Fallback::new(Cause::Gds(GdsCause::StandardInput), "/dev/null", None)).into_iter().collect();
    Ok(Gds { cufile, mode, said })
}

/// Checks the guards about the system, before anything is loaded. Returns the path for cuFile.
///
/// # Errors
/// The first guard that does not hold.
pub fn guard(facts: &Facts) -> Result<GdsMode, Box<Fallback>> {
    let fails = |cause| Err(Box::new(Fallback::new(cause, PINNED, None)));
    if facts.wsl {
        return fails(Cause::Gds(GdsCause::Wsl));
    }
    if facts.modules.is_none() {
        return fails(Cause::Gds(GdsCause::Modules));
    }
    let Some(mode) = way(facts) else { return fails(Cause::Gds(GdsCause::Path)) };
    if !facts.udev {
        return fails(Cause::Gds(GdsCause::Udev));
    }
    Ok(mode)
}

/// The path of the kernel: nvidia-fs if it is loaded, because it also supports RAID and network file systems.
fn way(facts: &Facts) -> Option<GdsMode> {
    if has_nvidia_fs(facts) {
        return Some(GdsMode::NvidiaFs);
    }
    let driver = facts.driver.as_ref().is_some_and(|driver| drives_p2pdma(facts, driver));
    (driver && facts.p2pdma == Some(true)).then_some(GdsMode::P2pdma)
}

/// Whether the driver supports P2PDMA on this kernel.
fn drives_p2pdma(facts: &Facts, driver: &NvidiaDriver) -> bool {
    let (kernel, since) = COUNTED_OTHERWISE;
    let least = if system::kernel_version(&facts.kernel_release) >= kernel { since } else { P2PDMA_DRIVER };
    driver.open && driver.numbers() >= least
}

fn has_nvidia_fs(facts: &Facts) -> bool {
    let loaded = facts.modules.as_ref().is_some_and(|modules| modules.iter().any(|name| name == "nvidia_fs"));
    facts.nvidia_fs || loaded
}

/// The fallback for a failed open.
fn step(error: &OpenError) -> Fallback {
    let cause = match error {
        OpenError::Absent(_) | OpenError::Incomplete { .. } => Cause::Gds(GdsCause::Library),
        OpenError::Configuration(_) => Cause::Gds(GdsCause::Configuration),
        OpenError::Attach(_) => Cause::Gds(GdsCause::Context),
        OpenError::TimedOut { .. } | OpenError::Busy => Cause::Gds(GdsCause::Timeout),
        _ => Cause::Gds(GdsCause::Driver),
    };
    let errno = if let OpenError::Configuration(error) = error { Some(error) } else { None };
    let mut step = Fallback::new(cause, PINNED, errno);
    // The loader's message has line ends and file names.
    let said: Vec<String> = error.to_string().split_whitespace().map(str::to_owned).collect();
    step.reason = format!("{}: {}", step.reason, said.join(" ")).into();
    if let OpenError::Driver { error, .. } = error {
        step.remedy = error.remedy().into();
        step.reason = format!("cuFile's driver could not be opened: {}", said.join(" ")).into();
    }
    step
}

#[cfg(test)]
mod tests;

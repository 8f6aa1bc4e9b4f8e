//! Where batches end up: in the host's memory, or on a GPU.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use uringload_sys::cuda::DeviceAllocator;

/// Where the batches of a loader end up.
///
/// ```
/// use uringload::config::{Device, Gds};
/// use uringload::{Loader, dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # std::fs::write(folder.path().join("0.dat"), "a sample").unwrap();
/// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
/// // The first GPU where there is one; "cuda:1" or `Device::cuda(1)` insists on the second.
/// let device = Device::auto().memory_limit(1 << 30).gds(Gds::Off);
/// for batch in Loader::builder(dataset).device(device).build()? {
///     let batch = batch?;
///     batch.wait()?; // or `wait_on(stream)`, so that the stream waits and the host does not
///     println!("{} bytes on {:?}", batch.columns[0].memory.len(), batch.device());
/// }
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub(crate) kind: DeviceKind,
    pub(crate) library: Option<PathBuf>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) gds: Gds,
    pub(crate) search: GdsSearch,
    pub(crate) nvjpeg: Nvjpeg,
    pub(crate) allocator: Option<Allocator>,
}

/// Where the device's memory for batches comes from. Two are equal if they are one.
#[derive(Clone, Debug)]
pub(crate) struct Allocator(pub(crate) Arc<dyn DeviceAllocator>);

impl PartialEq for Allocator {
    fn eq(&self, other: &Allocator) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What decodes JPEGs with the GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Nvjpeg {
    /// The share of the JPEGs, 0 to 1.
    pub(crate) share: f64,
    /// The library to load, and no other.
    pub(crate) library: Option<PathBuf>,
    /// Where to look where the loader finds none: libraries, or folders of them.
    pub(crate) places: Vec<PathBuf>,
}

/// Whether files are read straight into the GPU's memory (GPUDirect Storage).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gds {
    /// If it is available, and a short trial on the files shows that it is faster than reading into pinned memory and
    /// copying, or equally fast with less CPU.
    #[default]
    Auto,
    /// Always; `build` fails with the reason if it is not available.
    On,
    /// Never.
    Off,
}

/// How long cuFile's driver may take to open. On a machine with many GPUs it looks at all of them first.
pub const GDS_OPEN_BOUND: Duration = Duration::from_secs(5);

/// One read by cuFile in this many is compared with the file: at 4 MiB each, 4 MiB in 40 GB are read twice.
pub const GDS_CHECK_EVERY: u64 = 10_000;

/// Where cuFile is looked for, and how it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GdsSearch {
    /// The library to load, and no other.
    pub(crate) library: Option<PathBuf>,
    /// Where to look where the loader finds none: libraries, or folders of them.
    pub(crate) places: Vec<PathBuf>,
    /// An existing folder for temporary files, in which cuFile's configuration is made; `None` where the user has
    /// configured it (`CUFILE_ENV_PATH_JSON` is set).
    pub(crate) scratch: Option<PathBuf>,
    /// How long opening it may take: [`GDS_OPEN_BOUND`].
    pub(crate) bound: Duration,
    /// Where the system's own files are (`/proc`, `/sys`, `/run`): "/", but for tests.
    pub(crate) root: PathBuf,
    /// One read in this many is compared with the file: [`GDS_CHECK_EVERY`].
    pub(crate) check_every: u64,
}

/// The library that the loader finds, configured in `/tmp`.
impl Default for GdsSearch {
    fn default() -> GdsSearch {
        let (scratch, root) = (Some(PathBuf::from("/tmp")), PathBuf::from("/"));
        let check_every = GDS_CHECK_EVERY;
        GdsSearch { library: None, places: Vec::new(), scratch, bound: GDS_OPEN_BOUND, root, check_every }
    }
}

impl GdsSearch {
    /// Loads this library and no other.
    #[must_use]
    pub fn library(mut self, path: impl Into<Option<PathBuf>>) -> GdsSearch {
        self.library = path.into();
        self
    }

    /// Libraries, or folders of them, to look through where the loader finds none itself.
    #[must_use]
    pub fn places(mut self, paths: impl IntoIterator<Item = PathBuf>) -> GdsSearch {
        self.places = paths.into_iter().collect();
        self
    }

    /// An existing folder for temporary files, in which cuFile's configuration is written. `None` where the user has
    /// configured cuFile (`CUFILE_ENV_PATH_JSON` is set). Default: `/tmp`.
    #[must_use]
    pub fn scratch(mut self, folder: impl Into<Option<PathBuf>>) -> GdsSearch {
        self.scratch = folder.into();
        self
    }

    /// How long opening cuFile may take. Default: 5 seconds.
    #[must_use]
    pub fn bound(mut self, time: Duration) -> GdsSearch {
        self.bound = time;
        self
    }

    /// One read in this many is compared with the file, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn check_every(mut self, reads: u64) -> GdsSearch {
        self.check_every = reads;
        self
    }

    /// Where the system's own files are, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn root(mut self, folder: impl Into<PathBuf>) -> GdsSearch {
        self.root = folder.into();
        self
    }
}

/// Which device. One asked for by name is used or the build fails; only `Auto` steps down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The first GPU where there is one, the host otherwise.
    Auto,
    /// The host.
    Host,
    /// The GPU of this number, as CUDA counts those that `CUDA_VISIBLE_DEVICES` leaves, from 0.
    Cuda(u32),
}

impl Device {
    /// The first GPU if there is one, the host otherwise: then the route says why.
    pub fn auto() -> Device {
        Device::of(DeviceKind::Auto)
    }

    /// The host. No driver is loaded.
    pub fn host() -> Device {
        Device::of(DeviceKind::Host)
    }

    /// GPU `index`, from 0.
    pub fn cuda(index: u32) -> Device {
        Device::of(DeviceKind::Cuda(index))
    }

    fn of(kind: DeviceKind) -> Device {
        let (gds, search, nvjpeg) = (Gds::default(), GdsSearch::default(), Nvjpeg::default());
        Device { kind, library: None, memory_limit: None, gds, search, nvjpeg, allocator: None }
    }

    /// Loads the CUDA driver from this file instead of `libcuda.so.1` from where the system finds it.
    #[must_use]
    #[doc(hidden)]
    pub fn library(mut self, path: impl Into<PathBuf>) -> Device {
        self.library = Some(path.into());
        self
    }

    /// The most memory of the GPU to use for batches, in bytes. Default: enough for three batches of the largest size.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Device {
        self.memory_limit = Some(bytes);
        self
    }

    /// Takes the GPU's memory for batches from `allocator`, such as a trainer's, instead of the driver: once, when the
    /// loader is built. It is given back when the loader and its last batch are gone, after all work on the GPU.
    #[must_use]
    pub fn allocator(mut self, allocator: Arc<dyn DeviceAllocator>) -> Device {
        self.allocator = Some(Allocator(allocator));
        self
    }

    /// Whether files are read straight into the GPU's memory.
    #[must_use]
    pub fn gds(mut self, gds: Gds) -> Device {
        self.gds = gds;
        self
    }

    /// Loads cuFile from this library and no other. Default: the one of the system, or of the CUDA toolkit.
    #[must_use]
    pub fn cufile(mut self, library: impl Into<PathBuf>) -> Device {
        self.search.library = Some(library.into());
        self
    }

    /// Has this share of the JPEGs, 0 to 1, decoded by the GPU, by nvJPEG. The processor decodes the rest, in
    /// [`num_threads`](crate::Builder::num_threads), and what nvJPEG does not know. Default: 0, none.
    ///
    /// nvJPEG rounds differently than libjpeg, by a few levels. Who decodes an image depends on the sample's number and
    /// on its file, and not on who has time: runs with one share, on GPUs of one kind, have the same pixels. Where
    /// nvJPEG is not there, the processor decodes, and the route says so. Up to 128 MiB of the GPU's memory are taken
    /// beside its limit, room for three batches of pixels where these stay there, and what nvJPEG needs itself.
    ///
    /// `build` refuses what is no share, and GPUs of one loader with different shares.
    #[must_use]
    pub fn nvjpeg(mut self, share: f64) -> Device {
        self.nvjpeg.share = share;
        self
    }

    /// Loads nvJPEG from this library and no other. Default: `libnvjpeg.so.13` or `.12`, where the system finds it.
    #[must_use]
    pub fn nvjpeg_library(mut self, library: impl Into<PathBuf>) -> Device {
        self.nvjpeg.library = Some(library.into());
        self
    }

    /// Libraries, or folders of them, to look through for nvJPEG where the system finds none.
    #[must_use]
    pub fn nvjpeg_places(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Device {
        self.nvjpeg.places = paths.into_iter().collect();
        self
    }

    /// Where cuFile is looked for.
    #[doc(hidden)]
    #[must_use]
    pub fn gds_search(mut self, search: GdsSearch) -> Device {
        self.search = search;
        self
    }

    /// Which device.
    #[doc(hidden)]
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// The driver to load, where it was named.
    #[doc(hidden)]
    pub fn driver(&self) -> Option<&Path> {
        self.library.as_deref()
    }
}

/// "auto", "on" or "off".
impl FromStr for Gds {
    type Err = String;

    fn from_str(text: &str) -> Result<Gds, String> {
        match text {
            "auto" => Ok(Gds::Auto),
            "on" => Ok(Gds::On),
            "off" => Ok(Gds::Off),
            _ => Err(format!("{text:?} is no choice: give auto, on or off")),
        }
    }
}

impl fmt::Display for Gds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Gds::Auto => "auto",
            Gds::On => "on",
            Gds::Off => "off",
        })
    }
}

/// "auto", "host" ("cpu"), "cuda" (the first one) or "cuda:N".
impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Device, String> {
        match text {
            "auto" => Ok(Device::auto()),
            "host" | "cpu" => Ok(Device::host()),
            "cuda" => Ok(Device::cuda(0)),
            _ => match text.strip_prefix("cuda:").and_then(|index| index.parse().ok()) {
                Some(index) => Ok(Device::cuda(index)),
                None => Err(format!("{text:?} is no device: give auto, host, cuda or cuda:N")),
            },
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Auto => f.write_str("auto"),
            DeviceKind::Host => f.write_str("host"),
            DeviceKind::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// A GPU that batches go to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceRoute {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its PCI address, as in sysfs.
    #[doc(hidden)]
    pub pci: String,
    /// The node of memory that it is next to; `None` where the machine has one.
    #[doc(hidden)]
    pub numa_node: Option<u32>,
    /// Whether the host's memory that it copies from is taken from that node.
    #[doc(hidden)]
    pub is_near: bool,
    /// Whether the memory that samples are read into is pinned, so that the copy engine reads it by itself.
    pub pinned: bool,
    /// Whether the GPU itself writes down which copies are done, so that no driver is asked.
    #[doc(hidden)]
    pub flags: bool,
    /// Bytes of its memory that hold batches.
    pub memory_bytes: u64,
    /// How files are read straight into its memory; `None` where they come by way of the host.
    #[doc(hidden)]
    pub gds: Option<GdsRoute>,
    /// How it decodes JPEGs; `None` where it does not.
    pub nvjpeg: Option<NvjpegRoute>,
}

/// How a GPU decodes JPEGs, by nvJPEG.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NvjpegRoute {
    /// nvJPEG's version.
    pub version: String,
    /// The share of the JPEGs that the GPU decodes, 0 to 1.
    pub share: f64,
    /// The GPU's engines for JPEGs, and the cores of each (0 where nvJPEG does not tell); `None` where its
    /// multiprocessors decode.
    pub engines: Option<(u32, u32)>,
}

/// How files are read straight into a GPU's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GdsRoute {
    /// The way that the kernel has, "nvidia-fs" or "P2PDMA".
    pub way: String,
    /// cuFile's version, where it tells one.
    pub version: Option<String>,
    /// Bytes of the GPU's memory that files are read into.
    pub memory_bytes: u64,
    /// Bytes of these that are registered with cuFile; into the others files come by way of the host.
    pub registered_bytes: u64,
    /// What the trial showed of it and of the pinned path, where there was one.
    pub trial: Option<[GdsTrial; 2]>,
}

/// What a short trial of one way from the files to the GPU showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GdsTrial {
    /// Bytes that came to lie on the GPU.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
    /// The processor's time that the process took meanwhile.
    pub cpu: Duration,
}

impl GdsTrial {
    /// Bytes in a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Seconds of the processor's time for 10^9 bytes.
    pub fn cpu_per_gb(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / (self.bytes as f64).max(1.0)
    }
}

impl fmt::Display for GdsTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GB/s at {:.3} s of CPU a GB", self.rate() / 1e9, self.cpu_per_gb())
    }
}

impl fmt::Display for GdsRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "straight from the files by {}", self.way)?;
        if let Some(version) = &self.version {
            write!(f, " (cuFile {version})")?;
        }
        write!(f, " into {} MiB", self.memory_bytes >> 20)?;
        if self.registered_bytes < self.memory_bytes {
            write!(f, ", {} MiB of them registered", self.registered_bytes >> 20)?;
        }
        if let Some([gds, pinned]) = &self.trial {
            write!(f, "; tried: {gds}, pinned {pinned}")?;
        }
        Ok(())
    }
}

impl fmt::Display for NvjpegRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} % of the JPEGs by nvJPEG {}, ", self.share * 100.0, self.version)?;
        match self.engines {
            None => f.write_str("by its multiprocessors"),
            Some((0, _)) => f.write_str("by its own engines"),
            Some((engines, cores)) => write!(f, "by {engines} engines of {cores} cores"),
        }
    }
}

impl fmt::Display for DeviceRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = if self.pinned { "pinned" } else { "pageable" };
        write!(f, "cuda:{} ({}, {})", self.index, self.name, self.pci)?;
        if let Some(node) = self.numa_node {
            write!(f, " on node {node}")?;
        }
        let near = if self.is_near { " of that node" } else { "" };
        write!(f, ", {memory} memory{near}, {} MiB there", self.memory_bytes >> 20)?;
        f.write_str(if self.flags { ", copies signalled by flags" } else { ", copies signalled by events" })?;
        self.gds.as_ref().map_or(Ok(()), |gds| write!(f, ", {gds}"))?;
        self.nvjpeg.as_ref().map_or(Ok(()), |nvjpeg| write!(f, ", {nvjpeg}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_written_as_frameworks_write_them() {
        for (text, kind) in [
            ("auto", DeviceKind::Auto),
            ("host", DeviceKind::Host),
            ("cuda:0", DeviceKind::Cuda(0)),
            ("cuda:17", DeviceKind::Cuda(17)),
        ] {
            let device: Device = text.parse().unwrap();
            assert_eq!((device.kind(), device.to_string().as_str()), (kind, text));
        }
        assert_eq!("cpu".parse::<Device>().unwrap(), Device::host());
        for text in ["cuda:", "cuda:-1", "gpu", "cuda:0 "] {
            assert!(text.parse::<Device>().unwrap_err().contains("cuda:N"), "{text}");
        }
    }
}

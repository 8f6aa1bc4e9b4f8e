//! Options for the device that batches go to.

use crate::units::parse_bytes;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use uringload::config::{Device, Gds};
use uringload_measure::cufile;

/// The device that batches go to.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Device")]
pub struct Devices {
    /// Put batches into the memory of a GPU (cuda:N; several in turn: cuda:0,cuda:1), of the first GPU if there is one
    /// (auto), or gathered in host memory (host) [default: leave them where they were read to, and look for no
    /// driver].
    #[arg(long = "device", value_name = "DEVICE", value_delimiter = ',')]
    pub devices: Vec<Device>,
    /// Memory for samples on each GPU [default: by the batch].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "devices")]
    pub device_memory: Option<u64>,
    /// The CUDA driver to load [default: libcuda.so.1, where the system finds it].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, requires = "devices")]
    pub cuda_library: Option<PathBuf>,
    /// Whether to read files straight into GPU memory (GPUDirect Storage): if it is available and a short trial on the
    /// files shows that it is better (auto), always (on), or never (off).
    #[arg(long, value_name = "CHOICE", default_value = "auto", requires = "devices")]
    pub gds: Gds,
    /// The cuFile library to load [default: libcufile.so.0, from the system, $CUDA_HOME or Python's packages].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, requires = "devices")]
    pub cufile_library: Option<PathBuf>,
    /// The share of the JPEGs, 0 to 1, that the GPUs decode (nvJPEG) [default: 0].
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, hide_default_value = true, requires = "devices")]
    pub nvjpeg: f64,
    /// The nvJPEG library to load [default: libnvjpeg.so.13 to .11, from the system, $CUDA_HOME or Python's packages].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, requires = "devices")]
    pub nvjpeg_library: Option<PathBuf>,
}

impl Devices {
    /// The devices, each with its options; empty if batches stay where they were read to.
    pub fn list(&self) -> Vec<Device> {
        let whole = |device: &Device| {
            let mut device = device.clone();
            if let Some(path) = &self.cuda_library {
                device = device.library(path);
            }
            device = device.gds(self.gds).gds_search(cufile::search(self.cufile_library.clone()));
            if self.nvjpeg != 0.0 {
                device = device.nvjpeg(self.nvjpeg).nvjpeg_places(cufile::nvjpeg_places());
            }
            if let Some(path) = &self.nvjpeg_library {
                device = device.nvjpeg_library(path);
            }
            self.device_memory.iter().fold(device, |device, &bytes| device.memory_limit(bytes))
        };
        self.devices.iter().map(whole).collect()
    }
}

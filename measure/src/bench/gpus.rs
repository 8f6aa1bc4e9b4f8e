//! The GPUs of a bench, opened beside the loader, which shares their contexts: for emulated steps, and to measure their
//! copy engines alone.

use super::step::Step;
use super::trainer::Trainer;
use crate::Caller;
use std::time::Duration;
use uringload::Result;
use uringload::config::Device;
use uringload::inspect::DeviceKind;
use uringload::inspect::raw::bus;
use uringload::inspect::raw::bus::BusRates;
use uringload_sys::cuda::{Context, Driver};

/// How long copies alone are measured.
const BUS_LIMIT: Duration = Duration::from_secs(1);

/// The requested GPUs that are available. For the others the loader reports why: it will fail to build.
#[derive(Default)]
pub struct Gpus {
    contexts: Vec<Context>,
}

impl Gpus {
    /// Opens them.
    pub fn open(devices: &[Device]) -> Gpus {
        let open = |device: &Device| {
            let index = match device.kind() {
                DeviceKind::Cuda(index) => index,
                DeviceKind::Auto => 0,
                _ => return None,
            };
            Context::new(&Driver::open(device.driver()).ok()?, index).ok()
        };
        Gpus { contexts: devices.iter().filter_map(open).collect() }
    }

    /// A trainer on each GPU, whose steps take `step`.
    pub fn trainers(&self, step: Option<Duration>) -> Result<Vec<Trainer>> {
        self.contexts.iter().map(|context| Trainer::new(context, Step::of(context, step)?)).collect()
    }

    /// Their PCI bus addresses.
    pub fn addresses(&self) -> Vec<String> {
        self.contexts.iter().map(|context| context.info().pci.clone()).collect()
    }

    /// The rate of copies to all GPUs at once; `None` if there are none, or if it cannot be measured.
    pub fn bus(&self, duration: Option<Duration>, caller: &Caller) -> Option<BusRates> {
        if self.contexts.is_empty() || caller.is_set() {
            return None;
        }
        let limit = duration.map_or(BUS_LIMIT, |duration| duration.min(BUS_LIMIT));
        let measured = bus::measure(&self.contexts, limit);
        measured
            .inspect_err(|error| {
                caller.say(&format!("no plain copies to compare with: {}", error.headline()));
            })
            .ok()
    }
}

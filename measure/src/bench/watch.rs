//! What NVIDIA's management library reports about the GPUs while a bench runs: an independent witness for our own
//! figures.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use uringload_sys::nvml::{Device, Link, Nvml, NvmlError};

/// How often to query it. It averages over the last 20 ms (PCIe) and over up to a second (utilization).
const PERIOD: Duration = Duration::from_millis(200);

/// What was seen of each GPU, or why nothing was.
pub type Watched = Result<Vec<Seen>, String>;

/// What was seen of one GPU.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Its address on the PCI bus.
    pub pci: String,
    /// Number of queries.
    pub samples: u32,
    /// Average fraction (0 to 1) of the time in which a kernel ran.
    pub busy: f64,
    /// Bytes per second received over PCIe, average and maximum; `None` if the GPU does not count them.
    pub received: Option<(f64, f64)>,
    /// The PCIe link at its best during the run.
    pub link: Option<Link>,
}

/// A thread that queries the GPUs.
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Watched>,
}

impl Watch {
    /// Watches these GPUs from now on; `None` if there are none.
    pub fn start(addresses: &[String]) -> Option<Watch> {
        if addresses.is_empty() {
            return None;
        }
        let (stop, stopped) = mpsc::channel();
        let addresses = addresses.to_vec();
        let watch = move || {
            let nvml = Nvml::open().map_err(|error| error.to_string())?;
            let mut seen: Vec<Seen> =
                addresses.iter().map(|pci| Seen { pci: pci.clone(), ..Seen::default() }).collect();
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                for one in &mut seen {
                    let device = nvml.device(&one.pci);
                    device.and_then(|device| one.look(&device)).map_err(|error| error.to_string())?;
                }
            }
            Ok(seen)
        };
        let thread = thread::Builder::new().name("uringload-nvml".into()).spawn(watch).ok()?;
        Some(Watch { stop, thread })
    }

    /// What was seen.
    pub fn end(self) -> Watched {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|_| Err("the thread that asks panicked".into()))
    }
}

impl Seen {
    fn look(&mut self, device: &Device<'_>) -> Result<(), NvmlError> {
        let busy = f64::from(device.busy_percent()?) / 100.0;
        // Not every GPU has this counter.
        let received = device.received_kilobytes().ok().map(|kilobytes| f64::from(kilobytes) * 1e3);
        self.note(busy, received, device.link().ok());
        Ok(())
    }

    fn note(&mut self, busy: f64, received: Option<f64>, link: Option<Link>) {
        let before = f64::from(self.samples);
        self.samples += 1;
        let mean = |mean: f64, next: f64| (mean * before + next) / (before + 1.0);
        self.busy = mean(self.busy, busy);
        self.received = received.map(|next| match self.received {
            Some((all, most)) => (mean(all, next), most.max(next)),
            None => (next, next),
        });
        let speed = |link: &Link| (link.generation, link.width);
        self.link = self.link.into_iter().chain(link).max_by_key(speed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_the_best_link_are_kept() {
        let link = |generation| Some(Link { generation, width: 16, generation_max: 5, width_max: 16 });
        let mut seen = Seen::default();
        seen.note(0.5, Some(10.0), link(1));
        seen.note(1.0, Some(30.0), link(5));
        seen.note(0.0, Some(20.0), link(4));
        assert_eq!((seen.samples, seen.busy, seen.received, seen.link), (3, 0.5, Some((20.0, 30.0)), link(5)));
    }

    #[test]
    fn without_a_gpu_nobody_watches() {
        assert!(Watch::start(&[]).is_none());
        let absent = Watch::start(&["0000:00:00.0".into()]).expect("a thread").end();
        // If there is a driver, the address is wrong.
        assert!(absent.is_err() || absent.is_ok_and(|seen| seen[0].samples == 0));
    }
}

//! The training workloads of MLPerf Storage, as their own configuration files have them (versions 1.0 to 3.0).

use std::str::FromStr;
use std::time::Duration;

/// A workload on an accelerator. What is emulated is the trainer: its batches, its steps and the bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// The accelerator that is emulated.
    pub accelerator: &'static str,
    /// Samples in a batch.
    pub batch_size: u64,
    /// Seconds of computation for a batch.
    pub step_s: f64,
    /// The accelerator utilization that counts as fed, in percent.
    pub bar_percent: f64,
}

const fn workload(
    name: &'static str,
    accelerator: &'static str,
    batch_size: u64,
    step_s: f64,
    bar_percent: f64,
) -> Workload {
    Workload { name, accelerator, batch_size, step_s, bar_percent }
}

/// All of them.
const WORKLOADS: [Workload; 11] = [
    workload("unet3d", "v100", 4, 1.3604, 90.0),
    workload("unet3d", "a100", 7, 0.636, 90.0),
    workload("unet3d", "h100", 7, 0.323, 90.0),
    workload("unet3d", "b200", 7, 0.162, 90.0),
    workload("resnet50", "a100", 400, 0.435, 90.0),
    workload("resnet50", "h100", 400, 0.224, 90.0),
    workload("cosmoflow", "a100", 1, 0.00551, 70.0),
    workload("cosmoflow", "h100", 1, 0.0035, 70.0),
    workload("retinanet", "b200", 24, 0.04755, 85.0),
    workload("flux", "b200", 48, 1.35, 90.0),
    workload("dlrm", "b200", 16384, 0.000375, 70.0),
];

impl Workload {
    /// Length of a step.
    pub fn step(&self) -> Duration {
        Duration::from_secs_f64(self.step_s)
    }
}

impl FromStr for Workload {
    type Err = String;

    /// "unet3d:h100".
    fn from_str(text: &str) -> Result<Workload, String> {
        let lower = text.to_lowercase();
        let is_it = |one: &&Workload| lower == format!("{}:{}", one.name, one.accelerator);
        WORKLOADS.iter().find(is_it).copied().ok_or_else(|| {
            let names: Vec<String> = WORKLOADS.iter().map(|one| format!("{}:{}", one.name, one.accelerator)).collect();
            format!("there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_named_with_its_accelerator() {
        let unet3d = "unet3d:H100".parse::<Workload>().unwrap();
        assert_eq!((unet3d.batch_size, unet3d.step()), (7, Duration::from_millis(323)));
        for wrong in ["unet3d", "unet3d:", ":h100", "unet3d:h1000", ""] {
            assert!(wrong.parse::<Workload>().unwrap_err().contains("resnet50:a100"), "{wrong}");
        }
    }
}

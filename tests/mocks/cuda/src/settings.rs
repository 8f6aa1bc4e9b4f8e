//! A test's settings of the driver, as text: `key=value,key=value`, through `mock_cuda_configure`, or, for programs
//! that cannot call it, through `URINGLOAD_MOCK_CUDA` in the environment, which `cuInit` reads.
//!
//! | key | means |
//! |---|---|
//! | `devices=N` | number of devices (1) |
//! | `driver=12040` | the CUDA version that the driver is for |
//! | `init=CODE` | what `cuInit` answers; 34 is a toolkit's stub |
//! | `memory=BYTES` | memory of each device (1 GiB) |
//! | `taken=BYTES` | memory of each device that others have taken |
//! | `pinnable=BYTES` | host memory that may be registered (all of it); more gives code 2 |
//! | `copy_us=N`, `mib_us=N` | how long a copy takes: per copy, and per MiB |
//! | `kernel_us=N` | how long a kernel takes |
//! | `jitter_us=N` | up to this much more for any work, at random |
//! | `held=1` | no work begins until `held=0` |
//! | `seed=N` | the seed of the jitter |
//! | `fail=FUNCTION@N:CODE` | call N (from 1, counted from this setting on) fails; `@N+:CODE`: and all later ones |
//! | `fail=*@N:CODE` | the same, counting calls of all functions together |
//! | `fault=N:CODE` | the N-th work that runs fails, and its device with it, for good |
//! | `lose=DEVICE@N:CODE` | the device is lost after N more works were put into its streams; `@0` is at once |
//! | `destroy=DEVICE` | another program resets the primary context |
//! | `cubins=0` | machine code is refused, as by a driver that is older than it |
//! | `report=PATH` | violations are appended to the file |

use crate::abi::{Code, SUCCESS};

/// Name of the variable in the environment.
pub const VARIABLE: &str = "URINGLOAD_MOCK_CUDA";

/// The settings, which hold until they are changed.
#[derive(Clone, Debug)]
pub struct Settings {
    pub devices: usize,
    pub driver: i32,
    pub init: Code,
    pub memory_bytes: u64,
    pub taken_bytes: u64,
    pub pinnable_bytes: u64,
    pub copy_us: u64,
    pub mib_us: u64,
    pub kernel_us: u64,
    pub jitter_us: u64,
    pub is_held: bool,
    pub seed: u64,
    pub failures: Vec<Failure>,
    pub fault: Option<(u64, Code)>,
    pub takes_cubins: bool,
    pub report: Option<String>,
}

/// A call that is to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub function: String,
    /// Calls that still succeed before it.
    pub after: u64,
    pub code: Code,
    /// Whether all later calls fail as well.
    pub goes_on: bool,
}

/// Something that happens to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    Lose { device: usize, after: u64, code: Code },
    Destroy { device: usize },
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            devices: 1,
            driver: 12040,
            init: SUCCESS,
            memory_bytes: 1 << 30,
            taken_bytes: 0,
            pinnable_bytes: u64::MAX,
            copy_us: 0,
            mib_us: 0,
            kernel_us: 0,
            jitter_us: 0,
            is_held: false,
            seed: 1,
            failures: Vec::new(),
            fault: None,
            takes_cubins: true,
            report: None,
        }
    }
}

impl Settings {
    /// Applies the settings in `text`; returns what is to happen to devices.
    pub fn apply(&mut self, text: &str) -> Result<Vec<Blow>, String> {
        let mut blows = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.trim().split_once('=').ok_or_else(|| format!("{pair:?} is no key=value"))?;
            self.set(key, value, &mut blows).ok_or_else(|| format!("{pair:?} is not understood"))?;
        }
        Ok(blows)
    }

    fn set(&mut self, key: &str, value: &str, blows: &mut Vec<Blow>) -> Option<()> {
        match key {
            "devices" => self.devices = value.parse().ok()?,
            "driver" => self.driver = value.parse().ok()?,
            "init" => self.init = value.parse().ok()?,
            "memory" => self.memory_bytes = value.parse().ok()?,
            "taken" => self.taken_bytes = value.parse().ok()?,
            "pinnable" => self.pinnable_bytes = value.parse().ok()?,
            "copy_us" => self.copy_us = value.parse().ok()?,
            "mib_us" => self.mib_us = value.parse().ok()?,
            "kernel_us" => self.kernel_us = value.parse().ok()?,
            "jitter_us" => self.jitter_us = value.parse().ok()?,
            "held" => self.is_held = value.parse::<u8>().ok()? != 0,
            "seed" => self.seed = value.parse().ok()?,
            "cubins" => self.takes_cubins = value.parse::<u8>().ok()? != 0,
            "report" => self.report = Some(value.to_owned()),
            "fail" => {
                let (function, when) = value.split_once('@')?;
                let (number, code) = when.split_once(':')?;
                let (number, goes_on) = number.strip_suffix('+').map_or((number, false), |number| (number, true));
                let after = number.parse::<u64>().ok()?.checked_sub(1)?;
                let function = function.to_owned();
                self.failures.push(Failure { function, after, code: code.parse().ok()?, goes_on });
            }
            "fault" => {
                let (number, code) = value.split_once(':')?;
                self.fault = Some((number.parse::<u64>().ok()?.checked_sub(1)?, code.parse().ok()?));
            }
            "lose" => {
                let (device, when) = value.split_once('@')?;
                let (after, code) = when.split_once(':')?;
                let (device, after) = (device.parse().ok()?, after.parse().ok()?);
                blows.push(Blow::Lose { device, after, code: code.parse().ok()? });
            }
            "destroy" => blows.push(Blow::Destroy { device: value.parse().ok()? }),
            _ => return None,
        }
        Some(())
    }

    /// Whether this call of `function` fails, and with which code.
    pub fn failure(&mut self, function: &str) -> Option<Code> {
        let mut failed = None;
        self.failures.retain_mut(|failure| {
            if failure.function != function && failure.function != "*" {
                return true;
            }
            if failure.after > 0 {
                failure.after -= 1;
                return true;
            }
            failed = failed.or(Some(failure.code));
            failure.goes_on
        });
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_text() {
        let mut settings = Settings::default();
        let text = "devices=2, copy_us=30,fail=cuMemAlloc_v2@2:2,fail=cuInit@1+:999,lose=1@5:46,destroy=0";
        let blows = settings.apply(text).expect("right");
        assert_eq!((settings.devices, settings.copy_us), (2, 30));
        assert_eq!(blows, [Blow::Lose { device: 1, after: 5, code: 46 }, Blow::Destroy { device: 0 }]);
        let answers: Vec<_> = (0..3).map(|_| settings.failure("cuMemAlloc_v2")).collect();
        assert_eq!(answers, [None, Some(2), None]);
        assert_eq!([settings.failure("cuInit"), settings.failure("cuInit")], [Some(999); 2]);
        for wrong in ["devices", "devices=x", "colour=red", "fail=cuInit", "fail=cuInit@0:1", "lose=0"] {
            assert!(settings.apply(wrong).is_err(), "{wrong}");
        }
    }
}

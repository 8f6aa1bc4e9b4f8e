//! Measures how a dataset is read: `bench` reads it as a training run would, `tune` searches for a faster way,
//! `verify_order` proves an order, and `doctor` says what the machine lacks. The command line and Python call these and
//! print.
//!
//! ```
//! use uringload::config::Config;
//! use uringload::dataset::{self, Options};
//! use uringload_measure::{Bench, Caller, Report, Subject};
//!
//! # fn main() -> uringload::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # (0..10).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), [n; 100]).unwrap());
//! let dataset = dataset::open(&[folder.path()], &Options::new())?;
//! let bench = Bench::new(Subject::of(dataset), Config::default());
//! let caller = Caller::silent();
//! let outcome = bench.run(&caller)?;
//! println!("{:.0} samples/s", outcome.median().measured.samples_per_second());
//! let report = serde_json::to_string(&Report::of(&outcome)).unwrap(); // docs/bench-json.md
//! # assert!(report.contains("samples_per_s"));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

// In layer order: a module uses only modules above it (a test enforces it).
pub mod text;
pub mod cufile;
pub mod facts;
mod caller;
mod scratch;
mod cold;
pub mod consume;
mod subject;
mod made;
pub mod bench;
pub mod doctor;
pub mod tune;
pub mod verify_order;

pub use bench::{Bench, Report};
pub use caller::{Caller, Cleaner, Doing, Progress, Say};
pub use made::Made;
pub use subject::{OrderOf, Prepare, Subject};
pub use tune::Tune;

//! A CUDA driver without a GPU: the part of `libcuda.so.1` that the loader calls, so that everything between a loader
//! and a device is tested on machines without a GPU.
//!
//! - Streams are threads that work through a queue. Copies and kernels take as long as a test asks, and kernels are the
//!   host twins of [`uringload::transform`].
//! - It watches. Every copy and kernel must stay within existing memory, host memory must not change while it is being
//!   copied, and two accesses to the same bytes of a device, one of which writes, must be ordered by streams, events or
//!   the host (vector clocks, so no lucky timing hides an error). A breach is a *violation*, printed to stderr.
//! - It knows captures of streams, and refuses what a driver refuses while one is active.
//! - It counts live objects, so that a test sees what was not released.
//! - It fails on demand, at any call: `control` has the exports and `settings` the options; `URINGLOAD_MOCK_CUDA` in
//!   the environment sets the same options for a program that cannot call the exports.
//!
//! It lacks meaningful timing, and every function that the loader does not call.
//!
//! A test loads the library by its path. All state belongs to the library: each copy of the file is a separate driver.

mod abi;
mod capture;
mod control;
mod driver;
mod kernels;
mod memory;
mod order;
mod settings;
mod state;
mod streams;
mod work;

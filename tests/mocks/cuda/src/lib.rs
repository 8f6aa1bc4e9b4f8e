//! A CUDA driver without a GPU: `libcuda.so.1` as far as the loader calls it, so that everything that happens between
//! a loader and a device can be tested, and is, on a machine without one.
//!
//! - Streams are threads that work off a queue; copies and kernels take as long as is asked for, and kernels are the
//!   twins of [`uringload::transform`].
//! - It watches: every copy and kernel is held to the memory that is there, host memory must not change while it is
//!   copied, and two accesses to the same bytes of a device, one of which writes, must be ordered by streams, events
//!   or the host (vector clocks, so no lucky timing hides it). What breaks that is a *violation*, told on stderr.
//! - It counts what is alive, so that a test sees what was not given back.
//! - It fails when it is told to, at any call: `control` has the exports, `settings` what may be told, and
//!   `URINGLOAD_MOCK_CUDA` in the environment tells the same to a program that cannot call them.
//!
//! What it does not have: timing that means anything, streams that wait for the legacy default stream, and every
//! function that the loader does not call.
//!
//! A test loads the library by its path. Everything is the library's own, so each copy of the file is another driver.

mod abi;
mod control;
mod driver;
mod kernels;
mod memory;
mod order;
mod settings;
mod state;
mod streams;
mod work;

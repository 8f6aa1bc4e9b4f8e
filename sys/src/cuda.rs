//! The CUDA driver, loaded at run time. Building requires no CUDA, and a machine without a driver gets a [`ProbeError`]
//! that says what to do.
//!
//! - [`Driver`] loads the library with every function that we call; a [`Context`] is a device's primary context, which
//!   it shares with PyTorch and the runtime API.
//! - [`DeviceMemory`] is memory on the device, and a [`Span`] is a range of it. [`Pinned`] makes an arena accessible to
//!   the copy engine.
//! - [`Stream`]s are queues of work and [`Event`]s are positions in them. A [`StreamRef`] is a stream that the caller
//!   owns; a [`SharedStream`] is either.
//! - [`Copies`] are copies to the device, each of which owns the bytes that it reads. [`Bounce`] is pinned memory that
//!   one thread fills, copies and waits for.
//! - [`Kernels`] launches the device code, over tables that [`Copies::start`] has [`Uploaded`].
//!
//! The bindings are our own. `cudarc` looks for `libcuda.so` first, which may be a toolkit's stub; it panics if a
//! symbol is missing; and it keeps the library in a global, so that a test cannot load another one by its path.
//!
//! # Soundness
//!
//! Device memory is not memory of this process. A wrong address in a kernel is an error of the device and not undefined
//! behaviour here, except where it points to host memory that is mapped on the device. So whatever hands host memory to
//! the device owns it until the device is done, a launch checks each address against the memory that it was given, and
//! a kernel writes nowhere else.

mod bounce;
mod capture;
mod context;
mod copies;
mod cubins;
mod error;
mod event;
mod functions;
mod kernels;
mod memory;
mod modules;
mod parameters;
mod passes;
mod pinned;
mod probe;
mod rows;
mod span;
mod stream;
mod table;

pub use bounce::Bounce;
pub use context::Context;
pub use copies::{Copies, Notice, Uploaded};
pub use error::CudaError;
pub use event::{Event, Timing};
pub use functions::{Allocate, AllocatorFunctions, Free};
pub use kernels::Kernels;
pub use memory::{DeviceAllocator, DeviceMemory, MemoryError};
pub use modules::Kernel;
pub(crate) use passes::PIXEL_BYTES;
pub use passes::{Pass, Taps};
pub use pinned::Pinned;
pub use probe::{DeviceInfo, Driver, OLDEST_VERSION, ProbeError};
pub use rows::{Fill, Image, Images, NORMAL_MAX, Piece, PixelType, Row, TokenType, Tokens};
pub use span::Span;
pub use stream::{SharedStream, Stream, StreamRef};

//! The CUDA driver, loaded at run time: nothing of CUDA is needed to build, and a machine without a driver gets a
//! [`ProbeError`] that says what to do.
//!
//! - [`Driver::open`]: the library, every symbol that is called, `cuInit`, a device; nothing of CUDA is called before.
//! - [`Context`]: a device's primary context, which it shares with PyTorch and the runtime API.
//! - [`DeviceMemory`], [`Pinned`]: memory of the device, and an arena that its copy engine reaches.
//! - [`Stream`], [`StreamRef`], [`SharedStream`], [`Event`]: queues of work, one's own, a caller's or either, and
//!   places in them.
//! - [`Bounce`]: pinned memory that a thread copies from and waits.
//! - [`Copies`]: copies to the device under way, each the owner of the bytes that it reads.
//! - [`Kernels`]: what runs on the device.
//!
//! Own bindings instead of `cudarc`: that looks for `libcuda.so` first, which may be a toolkit's stub, panics where a
//! symbol is missing, and holds the library in a global, so that no second one (a test's) can be loaded by its path.
//!
//! Device memory is not memory of this process: a wrong address in a kernel is an error of the device and no undefined
//! behaviour here, except for host memory that is mapped there. So what hands host memory to the device owns it, and
//! what launches a kernel checks each address against the memory that it was given.

mod bounce;
mod context;
mod copies;
mod error;
mod event;
mod kernels;
mod memory;
mod modules;
mod pinned;
mod probe;
mod stream;
mod table;

pub use bounce::Bounce;
pub use context::{Context, DeviceInfo};
pub use copies::{Copies, Notice, Uploaded};
pub use error::CudaError;
pub use event::{Event, Timing};
pub use kernels::{Fill, Image, Images, Kernels, Piece, PixelType, Row, Span, TokenType, Tokens};
pub use memory::DeviceMemory;
pub use modules::Kernel;
pub use pinned::Pinned;
pub use probe::{Driver, OLDEST_VERSION, ProbeError};
pub use stream::{SharedStream, Stream, StreamRef};

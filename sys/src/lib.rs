//! The unsafe half of uringload: what talks to the Linux kernel and to GPU drivers, behind types that safe code cannot
//! misuse.
//!
//! Every `unsafe` of the library and its command line is in this crate, one operation at a time, each with a proof. The
//! crate moves bytes and asks questions. It decides nothing: the caller decides what to read, when to retry and what to
//! do without.
//!
//! ```no_run
//! use std::fs::File;
//! use std::sync::Arc;
//! use std::time::Duration;
//! use uringload_sys::{Arena, Ring, RingOptions, Target};
//!
//! # fn main() -> std::io::Result<()> {
//! // One mapping, and the one part that owns all of its bytes. A part can be split and joined, never doubled.
//! let (arena, mut memory) = Arena::reserve(8 << 20)?;
//! arena.populate(0..arena.len())?;
//!
//! // The best ring that this kernel offers, and the parts of the setup that it refused.
//! let (mut ring, refused) = Ring::open(&RingOptions::default().entries(64))?;
//! ring.register(&arena, 0..arena.len())?;
//!
//! // A read takes its memory by value, so no code can look at it while the kernel writes it.
//! let file = Target::File(Arc::new(File::open("shard-0.tar")?.into()));
//! ring.read(&file, 0, memory.split_to(1 << 20), 7, false);
//!
//! // A turn submits what is queued and collects what is done. The memory comes back with the result.
//! let mut done = Vec::new();
//! ring.turn(Some(Duration::from_secs(1)), 1, &mut done)?;
//! for completion in done {
//!     let (bytes, part) = (completion.result?, completion.part);
//!     println!("read {} returned {bytes} bytes in {part:?}", completion.tag);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | own memory and read into it | [`arena`] and its [`Part`]s; [`ring`], an io_uring that owns every part in flight |
//! | open files and ask about them | [`mod@file`]; [`block`], the device behind one; [`pci`], its way to a GPU |
//! | move bytes | [`copy`], many pieces into one block; [`dlpack`], tensors lent to NumPy, PyTorch and others |
//! | see bytes as numbers; fill large memory | [`plain`]; [`heap`] |
//! | drive a GPU | [`cuda`], its driver; [`cufile`], GPUDirect Storage; [`nvml`], its counters. All at run time |
//! | decode and encode JPEGs | [`turbojpeg`], libjpeg-turbo; [`nvjpeg`], on a GPU. Both are loaded at run time |
//! | wait and look around | [`event`], for poll loops; [`system`], what a process may do; [`schedule`], what it got |
//! | stay within a container | [`cgroup`], the memory and the processors that its groups leave it |
//!
//! What keeps it sound: memory that the kernel or a device may write to is owned by value until they are done, and
//! leaked if they never report that. What it trusts: that a driver library does what its header says, whether the
//! system's loader finds it or the caller names it, as with any library that a program links.
//!
//! Linux only: elsewhere the crate is empty, and `uringload-core`, on which everything else depends, does not compile
//! and says why.
#![cfg(target_os = "linux")]

// In layer order: a module uses only modules above it (a test enforces it).
#[macro_use]
mod table;
pub mod arena;
pub mod heap;
pub mod plain;
pub mod event;
pub mod file;
pub mod copy;
pub mod ring;
pub mod cgroup;
pub mod throttle;
pub mod block;
pub mod numa;
pub mod system;
pub mod schedule;
pub mod pci;
pub mod cuda;
pub mod dlpack;
pub mod cufile;
pub mod nvjpeg;
pub mod nvml;
pub mod turbojpeg;

pub use arena::{Arena, Part};
pub use event::EventFd;
pub use file::OpenFlags;
pub use ring::{Completion, Open, Operation, Ring, RingOptions, Target};

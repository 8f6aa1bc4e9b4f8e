//! A kernel on the bench: memory of the device in which every byte is known before the launch and compared after it.

use crate::common::content::first_difference;
use bytes::Bytes;
use std::fmt::Display;
use std::ops::Range;
use uringload_sys::cuda::{Context, Copies, CudaError, DeviceMemory, Kernels, Span, Stream, Uploaded};

/// The content of memory that was not written before a launch.
pub const UNTOUCHED: u8 = 0xee;

/// Bytes between two places at least.
const GUARD: usize = 64;

/// Memory, and what runs on it.
pub struct Bench {
    copies: Copies,
    pub kernels: Kernels,
    pub stream: Stream,
    memory: DeviceMemory,
}

/// What the memory is to hold before a launch.
#[derive(Clone)]
pub struct Case {
    base: u64,
    pub bytes: Vec<u8>,
}

/// A launch: the memory behind it must be what is expected.
pub struct Launch<'a> {
    pub kernels: &'a Kernels,
    pub stream: &'a Stream,
    /// All that was uploaded, for the rows of a table.
    pub table: &'a Uploaded,
    /// All of the memory, for a kernel to read.
    pub all: &'a Span,
}

impl Launch<'_> {
    /// A place, for a kernel to write.
    pub fn span(&self, place: &Range<usize>) -> Span {
        self.all.slice(place.clone()).expect("a place in the memory")
    }
}

impl Case {
    /// Puts bytes `off` behind a multiple of 64, with bytes around that must not be written.
    pub fn place(&mut self, off: usize, bytes: &[u8]) -> Range<usize> {
        let start = (self.bytes.len() + GUARD).next_multiple_of(64) + off;
        self.bytes.resize(start, UNTOUCHED);
        self.bytes.extend_from_slice(bytes);
        start..start + bytes.len()
    }

    /// A place that nothing has been written to.
    pub fn target(&mut self, off: usize, len: usize) -> Range<usize> {
        self.place(off, &vec![UNTOUCHED; len])
    }

    /// The rows of a table.
    pub fn table<const BYTES: usize>(&mut self, rows: impl IntoIterator<Item = [u8; BYTES]>) -> Range<usize> {
        let rows: Vec<u8> = rows.into_iter().flatten().collect();
        self.place(0, &rows)
    }

    /// Address of a place on the device.
    pub fn address(&self, place: &Range<usize>) -> u64 {
        self.base + place.start as u64
    }
}

impl Bench {
    pub fn new(context: &Context, bytes: usize) -> Bench {
        Bench {
            copies: Copies::new(context).expect("a stream"),
            kernels: Kernels::new(context),
            stream: Stream::new(context).expect("a stream"),
            memory: DeviceMemory::new(context, bytes).expect("memory of the device"),
        }
    }

    pub fn case(&self) -> Case {
        Case { base: self.memory.address(), bytes: Vec::new() }
    }

    /// Uploads the case, runs `launch`, and fails where any byte is then not what `expected` makes of it.
    pub fn check(
        &mut self,
        about: impl Display,
        mut case: Case,
        expected: impl FnOnce(&mut [u8]),
        launch: impl FnOnce(&Launch<'_>) -> Result<(), CudaError>,
    ) {
        case.bytes.resize(case.bytes.len() + GUARD, UNTOUCHED);
        let len = case.bytes.len();
        let mut wanted = case.bytes.clone();
        expected(&mut wanted);
        let all = Span::new(&self.memory, 0..len).unwrap_or_else(|| panic!("{about}: {len} bytes are too many"));
        let table = self.copies.start(Bytes::from(case.bytes), &all).expect("a copy");
        self.copies.stream().synchronize().expect("a copy");
        self.copies.finished().expect("a copy");
        let (kernels, stream) = (&self.kernels, &self.stream);
        launch(&Launch { kernels, stream, table: &table, all: &all })
            .unwrap_or_else(|error| panic!("{about}: not launched: {error}"));
        stream.synchronize().unwrap_or_else(|error| panic!("{about}: {error}"));
        let mut got = vec![0; len];
        all.read(&mut got).expect("a copy");
        if let Some(at) = first_difference(&got, &wanted) {
            let end = len.min(at + 16);
            panic!("{about}: {:x?} and not {:x?} at byte {at} of {len}", &got[at..end], &wanted[at..end]);
        }
    }
}

//! What runs on the device: the kernels of `sys/kernels`, and the tables that they read.
//!
//! A table is a list of rows that was uploaded before. Its rows name addresses; each is checked here against the memory
//! that it must lie in, so that no kernel reads or writes anything else.

use super::context::Context;
use super::copies::Uploaded;
use super::error::{CudaError, check};
use super::memory::DeviceMemory;
use super::modules::{Kernel, Modules};
use super::stream::Stream;
use std::ffi::{c_uint, c_void};
use std::fmt;
use std::ops::Range;

/// Threads of a block.
const THREADS: u32 = 256;

/// Bytes that a block of threads moves at a time.
const CHUNK_BYTES: u64 = 16 << 10;

/// The largest grid in y.
const GRID_Y_MAX: u64 = 65_535;

/// The largest grid in x that is of use: kernels go over their work in steps of the grid.
const GRID_X_MAX: u64 = 1 << 20;

/// A range of a device's memory.
#[derive(Clone)]
pub struct Span {
    memory: DeviceMemory,
    start: usize,
    len: usize,
}

impl Span {
    /// The bytes `range` of `memory`; `None` where they lie outside.
    pub fn new(memory: &DeviceMemory, range: Range<usize>) -> Option<Span> {
        let is_inside = range.start <= range.end && range.end <= memory.len();
        is_inside.then(|| Span { memory: memory.clone(), start: range.start, len: range.len() })
    }

    /// All of `memory`.
    pub fn all(memory: &DeviceMemory) -> Span {
        Span { memory: memory.clone(), start: 0, len: memory.len() }
    }

    /// A range of it; `None` where that lies outside.
    pub fn slice(&self, range: Range<usize>) -> Option<Span> {
        let is_inside = range.start <= range.end && range.end <= self.len;
        is_inside.then(|| Span { memory: self.memory.clone(), start: self.start + range.start, len: range.len() })
    }

    /// The memory that it is a range of.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Where it starts in its memory, in bytes.
    pub fn offset(&self) -> usize {
        self.start
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies its bytes to the host and waits for that; see [`DeviceMemory::read`].
    ///
    /// # Errors
    /// Where `to` is of another length; what the driver says.
    pub fn read(&self, to: &mut [u8]) -> Result<(), CudaError> {
        self.memory.read(self.start..self.start + self.len, to)
    }

    fn holds(&self, address: u64, len: u64) -> bool {
        let start = self.address();
        address >= start && address.checked_add(len).is_some_and(|end| end <= start + self.len as u64)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:#x}, {} bytes)", self.address(), self.len)
    }
}

/// A row of a kernel's table: little-endian words.
trait Encoded: Sized {
    const BYTES: usize;
    /// Address and length of the bytes that the kernel reads.
    fn reads(&self) -> (u64, u64);
    fn decode(bytes: &[u8]) -> Self;
}

/// Bytes that go from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address on the device.
    pub source: u64,
    /// First byte in the target.
    pub target: u64,
    /// Bytes.
    pub len: u64,
}

/// Bytes that become one row of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Address on the device.
    pub source: u64,
    /// Bytes.
    pub len: u64,
}

/// An image of unsigned bytes, rows of pixels of interleaved channels, and what is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Image {
    /// Address on the device.
    pub source: u64,
    /// Pixels from top to bottom.
    pub height: u32,
    /// Pixels from left to right.
    pub width: u32,
    /// The box that is wanted, in pixels: left, top, width, height.
    pub crop: [f32; 4],
    /// Whether left and right are exchanged.
    pub flip: bool,
}

impl Piece {
    /// Bytes of a row.
    pub const BYTES: usize = 24;

    /// The row of a table.
    pub fn encode(&self) -> [u8; Piece::BYTES] {
        words([self.source, self.target, self.len])
    }
}

impl Row {
    /// Bytes of a row.
    pub const BYTES: usize = 16;

    /// The row of a table.
    pub fn encode(&self) -> [u8; Row::BYTES] {
        words([self.source, self.len])
    }
}

impl Image {
    /// Bytes of a row.
    pub const BYTES: usize = 40;

    /// The row of a table.
    pub fn encode(&self) -> [u8; Image::BYTES] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [x, y, width, height] = self.crop.map(f32::to_bits);
        let size = pair(self.height, self.width);
        words([self.source, size, pair(x, y), pair(width, height), u64::from(self.flip)])
    }
}

/// The words, little endian.
fn words<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES == WORDS * 8) };
    let mut bytes = [0; BYTES];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Encoded for Piece {
    const BYTES: usize = Piece::BYTES;

    fn reads(&self) -> (u64, u64) {
        (self.source, self.len)
    }

    fn decode(bytes: &[u8]) -> Piece {
        Piece { source: word(bytes, 0), target: word(bytes, 8), len: word(bytes, 16) }
    }
}

impl Encoded for Row {
    const BYTES: usize = Row::BYTES;

    fn reads(&self) -> (u64, u64) {
        (self.source, self.len)
    }

    fn decode(bytes: &[u8]) -> Row {
        Row { source: word(bytes, 0), len: word(bytes, 8) }
    }
}

/// An element that fills memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The element, little endian, in the low bytes.
    pub pattern: u64,
    /// Its bytes: 1, 2, 4 or 8.
    pub size: u32,
}

/// Type of tokens as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// 2 bytes.
    U16,
    /// 4 bytes.
    U32,
}

/// How rows of tokens become rows of `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// As they are stored.
    pub stored: TokenType,
    /// Elements of each row.
    pub seq_len: u64,
    /// What stands behind the last token.
    pub pad_id: i64,
    /// What stands in labels where there is no next token.
    pub ignore: i64,
}

/// Type of pixels as they are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelType {
    /// Unsigned bytes.
    U8,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of a single-precision number.
    BF16,
}

impl PixelType {
    /// Bytes of a pixel's channel.
    pub fn size(self) -> u64 {
        match self {
            PixelType::U8 => 1,
            PixelType::F16 | PixelType::BF16 => 2,
            PixelType::F32 => 4,
        }
    }
}

/// How images become a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Images {
    /// As they are wanted.
    pub pixel: PixelType,
    /// Channels of the images, 1 to 4.
    pub channels: u32,
    /// Pixels from top to bottom, as they are wanted.
    pub height: u32,
    /// Pixels from left to right, as they are wanted.
    pub width: u32,
    /// Whether the channels of a pixel lie together (NHWC), or each channel is a plane (NCHW).
    pub channels_last: bool,
    /// What each channel is multiplied with.
    pub scale: [f32; 4],
    /// What is added to each channel then.
    pub bias: [f32; 4],
}

/// The kernels of one device.
pub struct Kernels {
    modules: Modules,
}

/// One parameter of a kernel, passed by value.
#[derive(Clone, Copy)]
enum Parameter {
    U64(u64),
    I64(i64),
    U32(u32),
    F32(f32),
}

impl Kernels {
    /// None is loaded yet.
    pub fn new(context: &Context) -> Kernels {
        Kernels { modules: Modules::new(context) }
    }

    /// Has the driver compile these kernels for the device, which may take it a second for each the first time. One
    /// that was not prepared is when it is first launched.
    ///
    /// # Errors
    /// Where the driver does not take the PTX; what else it says.
    pub fn prepare(&self, kernels: &[Kernel]) -> Result<(), CudaError> {
        kernels.iter().try_for_each(|&kernel| self.modules.function(kernel).map(drop))
    }

    /// Copies the pieces in bytes `rows` of `table` from `from` into `to`. Bytes that no piece covers stay.
    ///
    /// # Errors
    /// Invalid value for a piece that lies outside; what the driver says.
    pub fn gather(
        &self,
        stream: &Stream,
        (table, rows): (&Uploaded, Range<usize>),
        from: &Span,
        to: &Span,
    ) -> Result<(), CudaError> {
        let (table, pieces) = decode::<Piece>(table, rows, from)?;
        let fits = |piece: &Piece| piece.target.checked_add(piece.len).is_some_and(|end| end <= to.len() as u64);
        if !pieces.iter().all(fits) {
            return Err(CudaError::invalid("ur_gather"));
        }
        let longest = pieces.iter().map(|piece| piece.len).max().unwrap_or(0);
        let grid = (longest.div_ceil(CHUNK_BYTES), pieces.len() as u64);
        let parameters = [Parameter::U64(to.address()), Parameter::U64(table), count(pieces.len())?];
        self.launch(Kernel::Gather, stream, grid, &parameters)
    }

    /// Fills `to`.
    ///
    /// # Errors
    /// Invalid value for a size that does not divide the span's length; what the driver says.
    pub fn fill(&self, stream: &Stream, to: &Span, fill: Fill) -> Result<(), CudaError> {
        let bytes = to.len() as u64;
        fill.check(bytes)?;
        let parameters = [
            Parameter::U64(to.address()),
            Parameter::U64(bytes),
            Parameter::U64(fill.pattern),
            Parameter::U32(fill.size),
        ];
        self.launch(Kernel::Fill, stream, (bytes.div_ceil(CHUNK_BYTES), 1), &parameters)
    }

    /// Makes each of the rows in bytes `rows` of `table` a row of `row_bytes` bytes of `to`, filled up behind its
    /// bytes.
    ///
    /// # Errors
    /// Invalid value for a row that lies outside or is longer than that; what the driver says.
    pub fn pad(
        &self,
        stream: &Stream,
        (table, rows): (&Uploaded, Range<usize>),
        from: &Span,
        to: &Span,
        (row_bytes, fill): (u64, Fill),
    ) -> Result<(), CudaError> {
        let (table, rows) = decode::<Row>(table, rows, from)?;
        fill.check(row_bytes)?;
        let is_right = |row: &Row| row.len <= row_bytes && row.len.is_multiple_of(u64::from(fill.size));
        if !rows.iter().all(is_right) || !fits(rows.len(), row_bytes, to) {
            return Err(CudaError::invalid("ur_pad"));
        }
        let parameters = [
            Parameter::U64(to.address()),
            Parameter::U64(table),
            count(rows.len())?,
            Parameter::U64(row_bytes),
            Parameter::U64(fill.pattern),
            Parameter::U32(fill.size),
        ];
        self.launch(Kernel::Pad, stream, (row_bytes.div_ceil(CHUNK_BYTES), rows.len() as u64), &parameters)
    }

    /// Makes each of the rows in bytes `rows` of `table` a row of `i64` of `ids`, and of `labels` the same one token
    /// on.
    ///
    /// # Errors
    /// Invalid value for rows that lie outside; what the driver says.
    pub fn tokens(
        &self,
        stream: &Stream,
        (table, rows): (&Uploaded, Range<usize>),
        from: &Span,
        (ids, labels): (&Span, Option<&Span>),
        tokens: Tokens,
    ) -> Result<(), CudaError> {
        let (table, rows) = decode::<Row>(table, rows, from)?;
        let (kernel, size) = match tokens.stored {
            TokenType::U16 => (Kernel::TokensU16, 2),
            TokenType::U32 => (Kernel::TokensU32, 4),
        };
        let row_bytes = tokens.seq_len.saturating_mul(8);
        let is_right = |row: &Row| row.len.is_multiple_of(size);
        let all_fit =
            fits(rows.len(), row_bytes, ids) && labels.is_none_or(|labels| fits(rows.len(), row_bytes, labels));
        if !rows.iter().all(is_right) || !all_fit {
            return Err(CudaError::invalid("ur_tokens"));
        }
        let parameters = [
            Parameter::U64(ids.address()),
            Parameter::U64(labels.map_or(0, Span::address)),
            Parameter::U64(table),
            count(rows.len())?,
            Parameter::U64(tokens.seq_len),
            Parameter::I64(tokens.pad_id),
            Parameter::I64(tokens.ignore),
        ];
        self.launch(kernel, stream, (row_bytes.div_ceil(CHUNK_BYTES), rows.len() as u64), &parameters)
    }

    /// Makes each of the images in bytes `rows` of `table` a picture of `to`.
    ///
    /// # Errors
    /// Invalid value for images or boxes that lie outside; what the driver says.
    pub fn images(
        &self,
        stream: &Stream,
        (table, rows): (&Uploaded, Range<usize>),
        from: &Span,
        to: &Span,
        images: &Images,
    ) -> Result<(), CudaError> {
        let invalid = CudaError::invalid("ur_images");
        if !(1..=4).contains(&images.channels) || images.height == 0 || images.width == 0 {
            return Err(invalid);
        }
        let (table, pictures) = decode_images(table, rows, from, images.channels)?;
        let pixels = u64::from(images.height).saturating_mul(images.width.into());
        let picture_bytes = pixels.saturating_mul(u64::from(images.channels) * images.pixel.size());
        if !fits(pictures, picture_bytes, to) {
            return Err(invalid);
        }
        let kernel = match images.pixel {
            PixelType::U8 => Kernel::ImagesU8,
            PixelType::F32 => Kernel::ImagesF32,
            PixelType::F16 => Kernel::ImagesF16,
            PixelType::BF16 => Kernel::ImagesBF16,
        };
        let mut parameters = vec![
            Parameter::U64(to.address()),
            Parameter::U64(table),
            count(pictures)?,
            Parameter::U32(images.channels),
            Parameter::U32(images.height),
            Parameter::U32(images.width),
            Parameter::U32(images.channels_last.into()),
        ];
        parameters.extend(images.scale.iter().chain(&images.bias).map(|&factor| Parameter::F32(factor)));
        // A thread has as many pixels of each channel as one store of 16 bytes takes.
        let by_thread = 16 / images.pixel.size();
        let grid = (pixels.div_ceil(u64::from(THREADS) * by_thread), pictures as u64);
        self.launch(kernel, stream, grid, &parameters)
    }

    /// Keeps the device busy: `rounds` of arithmetic over the floats in `floats`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn burn(&self, stream: &Stream, floats: &Span, rounds: u32) -> Result<(), CudaError> {
        let floats_count = floats.len() as u64 / 4;
        let parameters = [Parameter::U64(floats.address()), Parameter::U64(floats_count), Parameter::U32(rounds)];
        self.launch(Kernel::Burn, stream, (floats_count.div_ceil(THREADS.into()), 1), &parameters)
    }

    fn launch(
        &self,
        kernel: Kernel,
        stream: &Stream,
        (x, y): (u64, u64),
        parameters: &[Parameter],
    ) -> Result<(), CudaError> {
        if x == 0 || y == 0 {
            return Ok(());
        }
        let (x, y) = (x.min(GRID_X_MAX) as c_uint, y.min(GRID_Y_MAX) as c_uint);
        let function = self.modules.function(kernel)?;
        let context = self.modules.context();
        let _current = context.enter()?;
        let mut pointers: Vec<*mut c_void> = parameters.iter().map(Parameter::pointer).collect();
        let table = context.table();
        // SAFETY: the function is one of this context's module, and gets as many parameters, of the types and in the
        // order, as its definition in `sys/kernels` has; the driver copies them before the call returns. Every address
        // among them, and in the table that one of them leads to, was checked by the caller in this file.
        let launched = unsafe {
            (table.cuLaunchKernel)(
                function,
                x,
                y,
                1,
                THREADS,
                1,
                1,
                0,
                stream.raw(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", launched)
    }
}

impl Parameter {
    fn pointer(&self) -> *mut c_void {
        let pointer: *const c_void = match self {
            Parameter::U64(value) => (&raw const *value).cast(),
            Parameter::I64(value) => (&raw const *value).cast(),
            Parameter::U32(value) => (&raw const *value).cast(),
            Parameter::F32(value) => (&raw const *value).cast(),
        };
        pointer.cast_mut()
    }
}

impl Fill {
    fn check(self, bytes: u64) -> Result<(), CudaError> {
        let is_right = matches!(self.size, 1 | 2 | 4 | 8) && bytes.is_multiple_of(self.size.into());
        if is_right { Ok(()) } else { Err(CudaError::invalid("ur_fill")) }
    }
}

fn count(rows: usize) -> Result<Parameter, CudaError> {
    u32::try_from(rows).map(Parameter::U32).map_err(|_| CudaError::invalid("cuLaunchKernel"))
}

/// Whether so many rows of so many bytes fit into a span.
fn fits(rows: usize, row_bytes: u64, to: &Span) -> bool {
    (rows as u64).checked_mul(row_bytes).is_some_and(|bytes| bytes <= to.len() as u64)
}

/// The address of a table's rows, and the rows, all of which read inside `from`.
fn decode<T: Encoded>(table: &Uploaded, rows: Range<usize>, from: &Span) -> Result<(u64, Vec<T>), CudaError> {
    let invalid = CudaError::invalid("cuLaunchKernel");
    let bytes = table.bytes.get(rows.clone()).ok_or(invalid)?;
    let address = table.to.slice(rows).ok_or(invalid)?.address();
    if !bytes.len().is_multiple_of(T::BYTES) || !address.is_multiple_of(8) {
        return Err(invalid);
    }
    let rows: Vec<T> = bytes.chunks_exact(T::BYTES).map(T::decode).collect();
    let is_inside = |row: &T| {
        let (address, len) = row.reads();
        len == 0 || from.holds(address, len)
    };
    if rows.iter().all(is_inside) { Ok((address, rows)) } else { Err(invalid) }
}

/// As `decode`; returns how many images there are.
fn decode_images(table: &Uploaded, rows: Range<usize>, from: &Span, channels: u32) -> Result<(u64, usize), CudaError> {
    /// An image with as many channels as the others have.
    struct Sized(Image);
    let invalid = CudaError::invalid("ur_images");
    let bytes = table.bytes.get(rows.clone()).ok_or(invalid)?;
    let address = table.to.slice(rows).ok_or(invalid)?.address();
    if !bytes.len().is_multiple_of(Image::BYTES) || !address.is_multiple_of(8) {
        return Err(invalid);
    }
    let half = |bytes: &[u8], at: usize| (word(bytes, at) & 0xffff_ffff) as u32;
    let decode = |row: &[u8]| {
        Sized(Image {
            source: word(row, 0),
            height: half(row, 8),
            width: half(row, 12),
            crop: [16, 20, 24, 28].map(|at| f32::from_bits(half(row, at))),
            flip: half(row, 32) != 0,
        })
    };
    let is_right = |Sized(image): Sized| {
        let bytes =
            u64::from(image.height).checked_mul(image.width.into()).and_then(|n| n.checked_mul(channels.into()));
        let [x, y, width, height] = image.crop;
        let is_box = |start: f32, len: f32, all: u32| start >= 0.0 && len > 0.0 && start + len <= all as f32;
        bytes.is_some_and(|bytes| from.holds(image.source, bytes))
            && is_box(x, width, image.width)
            && is_box(y, height, image.height)
    };
    if bytes.chunks_exact(Image::BYTES).map(decode).all(is_right) {
        Ok((address, bytes.len() / Image::BYTES))
    } else {
        Err(invalid)
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").field("context", self.modules.context()).finish()
    }
}

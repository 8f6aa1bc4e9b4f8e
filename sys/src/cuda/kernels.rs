//! Launching kernels: each function of `sys/kernels` has a method that checks its arguments.
//!
//! A kernel reads a table of rows, which name device addresses. The method checks every row on the host before the
//! launch and has the stream wait for the table's copy, so the kernel reads the rows that were checked.

use super::context::Context;
use super::copies::Uploaded;
use super::error::{CudaError, check};
use super::modules::{Kernel, Modules};
use super::parameters::{self, Parameter};
use super::passes::Pass;
use super::rows::{Encoded, Fill, Image, Images, Piece, PixelType, Row, TokenType, Tokens};
use super::span::Span;
use super::stream::Stream;
use std::ffi::{c_uint, c_void};
use std::fmt;
use std::ops::Range;

/// Threads in a block.
const THREADS: u32 = 256;

/// Bytes that a block of threads moves at a time.
const CHUNK_BYTES: u64 = 16 << 10;

/// The largest grid in y.
const GRID_Y_MAX: u64 = 65_535;

/// The largest useful grid in x: kernels go through their work in steps of the grid.
const GRID_X_MAX: u64 = 1 << 20;

/// The kernels of one device.
pub struct Kernels {
    modules: Modules,
}

/// The rows of an uploaded table that one launch uses.
struct Table<'a, T> {
    uploaded: &'a Uploaded,
    /// Device address of the first row.
    address: u64,
    rows: Vec<T>,
}

impl Kernels {
    /// Loads no kernel yet.
    pub fn new(context: &Context) -> Kernels {
        Kernels { modules: Modules::new(context) }
    }

    /// Loads these kernels. Where there is no machine code for the device, the driver compiles them, which can take a
    /// second for each the first time. A kernel that was not prepared is loaded when it is first launched.
    ///
    /// # Errors
    /// If the driver rejects the PTX; whatever else it reports.
    pub fn prepare(&self, kernels: &[Kernel]) -> Result<(), CudaError> {
        kernels.iter().try_for_each(|&kernel| self.modules.function(kernel).map(drop))
    }

    /// Copies the pieces given by bytes `rows` of `table` from `from` into `to`. Bytes that no piece covers stay as
    /// they are.
    ///
    /// # Errors
    /// Invalid value for a piece outside the spans; whatever the driver reports.
    pub fn gather(
        &self,
        stream: &Stream,
        (table, rows): (&Uploaded, Range<usize>),
        from: &Span,
        to: &Span,
    ) -> Result<(), CudaError> {
        let invalid = CudaError::invalid("ur_gather");
        let bytes = to.len() as u64;
        let is_inside = |piece: &Piece| {
            reads_inside(from, piece.source, piece.len)
                && piece.target.checked_add(piece.len).is_some_and(|end| end <= bytes)
        };
        let table = Table::checked((table, rows), is_inside).ok_or(invalid)?;
        let longest = table.rows.iter().map(|piece| piece.len).max().unwrap_or(0);
        let grid = (longest.div_ceil(CHUNK_BYTES), table.rows.len() as u64);
        let parameters = parameters::gather((to.address(), bytes), (table.address, table.count().ok_or(invalid)?));
        self.launch(Kernel::Gather, stream, Some(table.uploaded), grid, &parameters)
    }

    /// Fills `to`.
    ///
    /// # Errors
    /// Invalid value for a size that does not divide the length of `to`; whatever the driver reports.
    pub fn fill(&self, stream: &Stream, to: &Span, fill: Fill) -> Result<(), CudaError> {
        let bytes = to.len() as u64;
        if !fill.divides(bytes) {
            return Err(CudaError::invalid("ur_fill"));
        }
        let parameters = parameters::fill((to.address(), bytes), fill);
        self.launch(Kernel::Fill, stream, None, (bytes.div_ceil(CHUNK_BYTES), 1), &parameters)
    }

    /// Turns each row given by bytes `rows` of `table` into a row of `row_bytes` bytes in `to`, padded with `fill`.
    ///
    /// # Errors
    /// Invalid value for a row that is outside the spans or longer than `row_bytes`; whatever the driver reports.
    pub fn pad(
        &self,
        stream: &Stream,
        (table, rows): (&Uploaded, Range<usize>),
        from: &Span,
        to: &Span,
        (row_bytes, fill): (u64, Fill),
    ) -> Result<(), CudaError> {
        let invalid = CudaError::invalid("ur_pad");
        let is_right = |row: &Row| {
            reads_inside(from, row.source, row.len)
                && row.len <= row_bytes
                && row.len.is_multiple_of(u64::from(fill.size))
        };
        if !fill.divides(row_bytes) {
            return Err(invalid);
        }
        let table = Table::checked((table, rows), is_right).ok_or(invalid)?;
        if !fits(table.rows.len(), row_bytes, to) {
            return Err(invalid);
        }
        let rows = (table.address, table.count().ok_or(invalid)?);
        let parameters = parameters::pad(to.address(), rows, (row_bytes, fill));
        let grid = (row_bytes.div_ceil(CHUNK_BYTES), table.rows.len() as u64);
        self.launch(Kernel::Pad, stream, Some(table.uploaded), grid, &parameters)
    }

    /// Turns each row given by bytes `rows` of `table` into a row of `i64` in `ids`, and in `labels` into the same row
    /// shifted by one token.
    ///
    /// # Errors
    /// Invalid value for rows outside the spans; whatever the driver reports.
    pub fn tokens(
        &self,
        stream: &Stream,
        (table, rows): (&Uploaded, Range<usize>),
        from: &Span,
        (ids, labels): (&Span, Option<&Span>),
        tokens: Tokens,
    ) -> Result<(), CudaError> {
        let invalid = CudaError::invalid("ur_tokens");
        let (kernel, size) = (of_token(tokens.stored), tokens.stored.size());
        let row_bytes = tokens.seq_len.saturating_mul(8);
        let is_right = |row: &Row| reads_inside(from, row.source, row.len) && row.len.is_multiple_of(size);
        let table = Table::checked((table, rows), is_right).ok_or(invalid)?;
        if ![Some(ids), labels].into_iter().flatten().all(|to| fits(table.rows.len(), row_bytes, to)) {
            return Err(invalid);
        }
        let rows = (table.address, table.count().ok_or(invalid)?);
        let parameters = parameters::tokens((ids.address(), labels.map_or(0, Span::address)), rows, tokens);
        let grid = (row_bytes.div_ceil(CHUNK_BYTES), table.rows.len() as u64);
        self.launch(kernel, stream, Some(table.uploaded), grid, &parameters)
    }

    /// Turns each image given by bytes `rows` of `table` into an image of the tensor in `to`.
    ///
    /// # Errors
    /// Invalid value for images outside the spans or boxes outside their image; whatever the driver reports.
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
        let is_right = |image: &Image| {
            image.bytes(images.channels).is_some_and(|bytes| from.holds(image.source, bytes)) && image.crop_is_inside()
        };
        let table = Table::checked((table, rows), is_right).ok_or(invalid)?;
        let pixels = u64::from(images.height).saturating_mul(images.width.into());
        let image_bytes = pixels.saturating_mul(u64::from(images.channels) * images.pixel.size());
        if !fits(table.rows.len(), image_bytes, to) {
            return Err(invalid);
        }
        let rows = (table.address, table.count().ok_or(invalid)?);
        let (kernel, parameters) = (of_pixel(images.pixel), parameters::images(to.address(), rows, images));
        // Each thread processes as many pixels of each channel as fill one store of 16 bytes.
        let pixels_a_thread = 16 / images.pixel.size();
        let grid = (pixels.div_ceil(u64::from(THREADS) * pixels_a_thread), table.rows.len() as u64);
        self.launch(kernel, stream, Some(table.uploaded), grid, &parameters)
    }

    /// Makes each pass in the bytes `rows` of `table`, over images in `from`, into its place in `to`. Places overlap
    /// neither each other nor the bytes that are read.
    ///
    /// # Errors
    /// Invalid value for a pass outside the spans or whose weights are not in the table; whatever the driver reports.
    pub fn resample(
        &self,
        stream: &Stream,
        (table, rows): (&Uploaded, Range<usize>),
        from: &Span,
        to: &Span,
    ) -> Result<(), CudaError> {
        let invalid = CudaError::invalid("ur_resample");
        let (all, address, bytes) = (table.bytes(), table.span().address(), to.len() as u64);
        let is_right = |pass: &Pass| {
            pass.source_bytes(all, address).is_some_and(|len| reads_inside(from, pass.source, len))
                && pass.end().is_some_and(|end| end <= bytes)
        };
        let table = Table::checked((table, rows), is_right).ok_or(invalid)?;
        let most = table.rows.iter().map(Pass::pixels).max().unwrap_or(0);
        let grid = (most.div_ceil(THREADS.into()), table.rows.len() as u64);
        let parameters = parameters::resample((to.address(), bytes), (table.address, table.count().ok_or(invalid)?));
        self.launch(Kernel::Resample, stream, Some(table.uploaded), grid, &parameters)
    }

    /// Keeps the device busy with `rounds` of arithmetic over the floats in `floats`.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn burn(&self, stream: &Stream, floats: &Span, rounds: u32) -> Result<(), CudaError> {
        let count = floats.len() as u64 / 4;
        let parameters = parameters::burn((floats.address(), count), rounds);
        self.launch(Kernel::Burn, stream, None, (count.div_ceil(THREADS.into()), 1), &parameters)
    }

    /// Launches a kernel after the copy of the table that it reads.
    fn launch(
        &self,
        kernel: Kernel,
        stream: &Stream,
        table: Option<&Uploaded>,
        (x, y): (u64, u64),
        parameters: &[Parameter],
    ) -> Result<(), CudaError> {
        let context = self.modules.context();
        context.check_driver(stream.context(), "cuLaunchKernel")?;
        table.map_or(Ok(()), |table| table.hold(stream))?;
        if x == 0 || y == 0 {
            return Ok(());
        }
        let (x, y) = (x.min(GRID_X_MAX) as c_uint, y.min(GRID_Y_MAX) as c_uint);
        let (function, wanted) = self.modules.function(kernel)?;
        if !parameters.iter().map(Parameter::kind).eq(wanted.iter().copied()) {
            return Err(CudaError::invalid("cuLaunchKernel"));
        }
        let _current = context.enter()?;
        let mut pointers: Vec<*mut c_void> = parameters.iter().map(Parameter::pointer).collect();
        // SAFETY: The function belongs to a module of this context, and the stream to this driver (checked above). The
        // parameters match those of the PTX in number, type and order (checked above), which are those of the machine
        // code, of the same sources; and the driver copies them before the call returns. The addresses and lengths
        // among them are those of spans. The methods of this file, the only callers, checked the table's rows against
        // these spans. The kernel reads the rows that were checked: only `Copies::start` makes an `Uploaded`, with the
        // bytes that it copies and the place that it copies them to, and `hold` has the stream wait for that copy.
        // Should something overwrite that place before the kernel reads it, the kernel may read any device address,
        // which is at worst an error of the device. It still writes only inside its target: by the parameters alone,
        // or, in `ur_gather` and `ur_resample`, by a check of each row.
        let launched = unsafe {
            (context.table().cuLaunchKernel)(
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

impl<'a, T: Encoded> Table<'a, T> {
    /// The rows in bytes `range` of `uploaded`; `None` if those are not whole rows inside it at an aligned address, and
    /// if one of them is not right.
    fn checked((uploaded, range): (&'a Uploaded, Range<usize>), is_right: impl Fn(&T) -> bool) -> Option<Table<'a, T>> {
        let bytes = uploaded.bytes().get(range.clone())?;
        let address = uploaded.span().slice(range)?.address();
        if !bytes.len().is_multiple_of(T::BYTES) || !address.is_multiple_of(8) {
            return None;
        }
        let rows: Vec<T> = bytes.chunks_exact(T::BYTES).map(T::decode).collect();
        rows.iter().all(is_right).then_some(Table { uploaded, address, rows })
    }

    /// The number of rows, as kernels take it.
    fn count(&self) -> Option<u32> {
        u32::try_from(self.rows.len()).ok()
    }
}

/// The kernel that makes pixels of this type.
fn of_pixel(pixel: PixelType) -> Kernel {
    match pixel {
        PixelType::U8 => Kernel::ImagesU8,
        PixelType::F32 => Kernel::ImagesF32,
        PixelType::F16 => Kernel::ImagesF16,
        PixelType::BF16 => Kernel::ImagesBF16,
    }
}

/// The kernel that reads tokens of this type.
fn of_token(stored: TokenType) -> Kernel {
    match stored {
        TokenType::U16 => Kernel::TokensU16,
        TokenType::U32 => Kernel::TokensU32,
    }
}

/// Whether a kernel that reads `len` bytes at `address` stays inside `from`.
fn reads_inside(from: &Span, address: u64, len: u64) -> bool {
    len == 0 || from.holds(address, len)
}

/// Whether `rows` rows of `row_bytes` bytes fit into `to`.
fn fits(rows: usize, row_bytes: u64, to: &Span) -> bool {
    (rows as u64).checked_mul(row_bytes).is_some_and(|bytes| bytes <= to.len() as u64)
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").field("context", self.modules.context()).finish()
    }
}

//! Decoded images, cut and resized where they lie, so that fewer bytes come to the host.

use crate::cuda::{
    Context, Copies, CudaError, DeviceMemory, Kernel, Kernels, PIXEL_BYTES, Pass, Span, Stream, Taps, Uploaded,
};
use bytes::Bytes;

/// What an image becomes: the columns of each row that is used are made first, and rows of what that makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resampling {
    /// Columns of the image, for each column that comes out.
    pub columns: Taps,
    /// Rows of the image, for each row that comes out.
    pub rows: Taps,
}

impl Resampling {
    /// Rows and columns that come out.
    pub fn size(&self) -> (u32, u32) {
        (self.rows.pixels(), self.columns.pixels())
    }

    /// Whether it looks at nothing beside an image of that size, and something comes out.
    pub(super) fn is_of(&self, (height, width): (u32, u32)) -> bool {
        let (rows, columns) = self.size();
        rows > 0 && columns > 0 && self.rows.used().end <= height && self.columns.used().end <= width
    }

    /// Bytes of what lies between the passes, and of what comes out.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let row = self.columns.first.len().saturating_mul(PIXEL_BYTES as usize);
        let used = self.rows.used();
        (row.saturating_mul((used.end - used.start) as usize), row.saturating_mul(self.rows.first.len()))
    }

    /// Bytes of it in a table.
    pub(super) fn table_bytes(&self) -> usize {
        2 * Pass::BYTES + self.columns.encoded_bytes() + self.rows.encoded_bytes()
    }
}

/// An image in the decoder's memory. Places are offsets there.
pub(super) struct Decoded<'a> {
    pub(super) resampling: &'a Resampling,
    pub(super) width: u32,
    pub(super) pixels: usize,
    pub(super) between: usize,
    pub(super) made: usize,
}

/// Resamples one batch of images after the other.
pub(super) struct Resampler {
    kernels: Kernels,
    copies: Copies,
    tables: DeviceMemory,
}

impl Resampler {
    /// With so many bytes of the device for the weights of a batch.
    pub(super) fn new(context: &Context, bytes: usize) -> Result<Resampler, CudaError> {
        let kernels = Kernels::new(context);
        kernels.prepare(&[Kernel::Resample])?;
        Ok(Resampler { kernels, copies: Copies::new(context)?, tables: DeviceMemory::new(context, bytes)? })
    }

    /// Bytes of tables for one batch.
    pub(super) fn room(&self) -> usize {
        self.tables.len()
    }

    /// Resamples images of `memory`, behind everything in the stream, and waits for that.
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        memory: &DeviceMemory,
        images: &[Decoded<'_>],
    ) -> Result<(), CudaError> {
        if images.is_empty() {
            return Ok(());
        }
        let table = self.upload(memory.address(), images)?;
        let (all, middle) = (Span::all(memory), images.len() * Pass::BYTES);
        for rows in [0..middle, middle..2 * middle] {
            self.kernels.resample(stream, (&table, rows), &all, &all)?;
        }
        stream.synchronize()?;
        // The table's copy is over too: the stream has waited for it.
        self.copies.finished().map(drop)
    }

    /// The first passes of all images, the second ones, and the weights of both.
    fn upload(&mut self, memory: u64, images: &[Decoded<'_>]) -> Result<Uploaded, CudaError> {
        let (mut first, mut second, mut taps) = (Vec::new(), Vec::new(), Vec::new());
        let base = self.tables.address() + (2 * images.len() * Pass::BYTES) as u64;
        let pixel_bytes = PIXEL_BYTES as u32;
        for image in images {
            let Resampling { columns, rows } = image.resampling;
            let ((height, width), used) = (image.resampling.size(), rows.used());
            let row_bytes = image.width.saturating_mul(pixel_bytes);
            let mut pass = Pass {
                source: memory + image.pixels as u64 + u64::from(used.start) * u64::from(row_bytes),
                target: image.between as u64,
                taps: base + taps.len() as u64,
                height: used.end - used.start,
                width,
                row_bytes,
                is_vertical: false,
            };
            first.extend(pass.encode());
            columns.encode(0, &mut taps);
            pass.source = memory + image.between as u64;
            pass.target = image.made as u64;
            pass.taps = base + taps.len() as u64;
            (pass.height, pass.row_bytes, pass.is_vertical) = (height, width.saturating_mul(pixel_bytes), true);
            second.extend(pass.encode());
            rows.encode(used.start, &mut taps);
        }
        self.copies.start(Bytes::from([first, second, taps].concat()), &Span::all(&self.tables))
    }
}

//! Decoded images, cut and resized on the device, so that fewer bytes are copied to the host.

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

    /// Bytes of the intermediate result between the passes, and of the output.
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

/// An image in the decoder's memory, where places are offsets.
pub(super) struct Decoded<'a> {
    pub(super) resampling: &'a Resampling,
    pub(super) width: u32,
    pub(super) pixels: usize,
    pub(super) between: usize,
    /// Where what comes out is to be: there, or in other memory of the device.
    pub(super) made: Span,
}

/// Resamples one batch of images after the other.
pub(super) struct Resampler {
    kernels: Kernels,
    copies: Copies,
    tables: DeviceMemory,
}

impl Resampler {
    /// With that many bytes of the device for the weights of a batch.
    pub(super) fn new(context: &Context, bytes: usize) -> Result<Resampler, CudaError> {
        let kernels = Kernels::new(context);
        kernels.prepare(&[Kernel::Resample])?;
        Ok(Resampler { kernels, copies: Copies::new(context)?, tables: DeviceMemory::new(context, bytes)? })
    }

    /// Bytes of tables for one batch.
    pub(super) fn room(&self) -> usize {
        self.tables.len()
    }

    /// Resamples images of `memory`, after everything in the stream, and waits for that.
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        memory: &DeviceMemory,
        mut images: Vec<Decoded<'_>>,
    ) -> Result<(), CudaError> {
        if images.is_empty() {
            return Ok(());
        }
        images.sort_by_key(|image| image.made.memory().address());
        let table = self.upload(memory.address(), &images)?;
        let (all, mut at) = (Span::all(memory), images.len() * Pass::BYTES);
        self.kernels.resample(stream, (&table, 0..at), &all, &all)?;
        // One launch for each memory that they go to.
        for images in images.chunk_by(|a, b| a.made.memory().address() == b.made.memory().address()) {
            let rows = at..at + images.len() * Pass::BYTES;
            at = rows.end;
            self.kernels.resample(stream, (&table, rows), &all, &Span::all(images[0].made.memory()))?;
        }
        stream.synchronize()?;
        // The table's copy is over too: the stream has waited for it.
        self.copies.finished().map(drop)
    }

    /// The first passes of all images, the second ones, and the weights of both.
    fn upload(&mut self, memory: u64, images: &[Decoded<'_>]) -> Result<Uploaded, CudaError> {
        let mut table = vec![0; 2 * images.len() * Pass::BYTES];
        let put = |table: &mut [u8], row: usize, pass: &Pass| {
            table[row * Pass::BYTES..][..Pass::BYTES].copy_from_slice(&pass.encode());
        };
        let taps = |table: &[u8]| self.tables.address() + table.len() as u64;
        let pixel_bytes = PIXEL_BYTES as u32;
        for (index, image) in images.iter().enumerate() {
            let Resampling { columns, rows } = image.resampling;
            let ((height, width), used) = (image.resampling.size(), rows.used());
            let row_bytes = image.width.saturating_mul(pixel_bytes);
            let mut pass = Pass {
                source: memory + image.pixels as u64 + u64::from(used.start) * u64::from(row_bytes),
                target: image.between as u64,
                taps: taps(&table),
                height: used.end - used.start,
                width,
                row_bytes,
                is_vertical: false,
            };
            put(&mut table, index, &pass);
            columns.encode(0, &mut table);
            pass.source = memory + image.between as u64;
            pass.target = image.made.offset() as u64;
            pass.taps = taps(&table);
            (pass.height, pass.row_bytes, pass.is_vertical) = (height, width.saturating_mul(pixel_bytes), true);
            put(&mut table, images.len() + index, &pass);
            rows.encode(used.start, &mut table);
        }
        self.copies.start(Bytes::from(table), &Span::all(&self.tables))
    }
}

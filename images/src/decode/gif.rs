//! The first frame of a GIF, by `gif`.

use super::pixels::of_palette;
use super::{Color, Decoding, Format, corrupt, read_error};
use crate::Image;
use crate::image::memory;
use gif::{ColorOutput, DecodeOptions, DecodingError, MemoryLimit};
use std::io::Cursor;
use std::num::NonZeroU64;
use uringload_core::{Error, Result};

const FORMAT: Format = Format::Gif;

/// Bytes for a pixel: an index in the frame and on the canvas, and three channels.
const BYTES_A_PIXEL: u64 = 2 + 3;

pub fn decode(bytes: &[u8], how: &Decoding) -> Result<Image> {
    let wrong = |error: DecodingError| wrong(bytes, &error);
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let most = NonZeroU64::new(how.limits.bytes).unwrap_or(NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(most));
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(wrong)?;
    let canvas = (u32::from(decoder.height()), u32::from(decoder.width()));
    let frame = decoder.next_frame_info().map_err(wrong)?.ok_or_else(|| corrupt(FORMAT, "it has no frame"))?;
    let [top, left, height, width] = [frame.top, frame.left, frame.height, frame.width].map(u32::from);
    // A frame may extend beyond the canvas, which then grows, as Pillow's does.
    let size = (canvas.0.max(top + height), canvas.1.max(left + width));
    how.limits.check(size.0, size.1, BYTES_A_PIXEL)?;
    // The rest of the canvas is transparent, or has the first colour: Pillow ignores the background colour.
    let around = frame.transparent.unwrap_or(0);
    let mut indexes = memory(height, width, 1, 0)?;
    if decoder.buffer_size() != indexes.len() {
        return Err(corrupt(FORMAT, "its first frame is not as large as it says"));
    }
    decoder.read_into_buffer(&mut indexes).map_err(wrong)?;
    let palette = decoder.palette().map_err(wrong)?.as_chunks().0.to_vec();
    if size != (height, width) {
        let mut all = memory(size.0, size.1, 1, around)?;
        for (y, row) in indexes.chunks_exact(width as usize).enumerate() {
            let at = (top as usize + y) * size.1 as usize + left as usize;
            all[at..][..row.len()].copy_from_slice(row);
        }
        indexes = all;
    }
    let color: Color = how.color;
    of_palette(size, indexes, &palette, color)
}

fn wrong(bytes: &[u8], error: &DecodingError) -> Error {
    match error {
        DecodingError::Io(error) => read_error(FORMAT, bytes, error),
        error => corrupt(FORMAT, error),
    }
}

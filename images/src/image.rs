//! Pixels in memory.

use crate::refused;
use uringload_core::{Error, ErrorKind, Result};

/// Pixels of 8 bits, row by row from the top, the channels of a pixel together: an array of shape
/// `[height, width, channels]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    height: u32,
    width: u32,
    channels: u32,
    pixels: Vec<u8>,
}

impl Image {
    /// An image of these pixels.
    ///
    /// # Errors
    /// `InvalidArgument` if there are not 1 to 4 channels, or not `height * width * channels` bytes.
    pub fn new(height: u32, width: u32, channels: u32, pixels: Vec<u8>) -> Result<Image> {
        let wanted = u128::from(height) * u128::from(width) * u128::from(channels);
        if !(1..=4).contains(&channels) || wanted != pixels.len() as u128 {
            let what = format!("{} bytes are no image of shape [{height}, {width}, {channels}]", pixels.len());
            return Err(refused(what, "give 1 to 4 channels, and a byte for each channel of each pixel"));
        }
        Ok(Image { height, width, channels, pixels })
    }

    /// An image whose bytes are all `value`.
    ///
    /// # Errors
    /// `MemoryLimit` if there is no memory for it.
    pub(crate) fn filled(height: u32, width: u32, channels: u32, value: u8) -> Result<Image> {
        let pixels = memory(height, width, channels, value)?;
        Ok(Image { height, width, channels, pixels })
    }

    /// Rows.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Columns.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Bytes of a pixel.
    #[must_use]
    pub fn channels(&self) -> u32 {
        self.channels
    }

    /// All bytes, `height * width * channels` of them.
    #[must_use]
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// All bytes, to be changed.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }

    /// All bytes, without the image.
    #[must_use]
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.width as usize * self.channels as usize
    }

    /// The row at `y`.
    pub(crate) fn row(&self, y: u32) -> &[u8] {
        &self.pixels[y as usize * self.row_bytes()..][..self.row_bytes()]
    }

    /// The bytes of one pixel.
    pub(crate) fn pixel(&self, y: u32, x: u32) -> &[u8] {
        let channels = self.channels as usize;
        &self.row(y)[x as usize * channels..][..channels]
    }

    /// Rows become columns.
    pub(crate) fn transposed(&self) -> Image {
        let channels = self.channels as usize;
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for x in 0..self.width as usize {
            for row in self.pixels.chunks_exact(self.row_bytes().max(1)) {
                pixels.extend_from_slice(&row[x * channels..][..channels]);
            }
        }
        Image { height: self.width, width: self.height, channels: self.channels, pixels }
    }

    /// The last row becomes the first one.
    pub(crate) fn flip_vertically(&mut self) {
        let (bytes, rows) = (self.row_bytes(), self.height as usize);
        for y in 0..rows / 2 {
            let (above, below) = self.pixels.split_at_mut((rows - 1 - y) * bytes);
            above[y * bytes..][..bytes].swap_with_slice(&mut below[..bytes]);
        }
    }

    /// The last column becomes the first one.
    pub(crate) fn flip_horizontally(&mut self) {
        let (bytes, channels) = (self.row_bytes().max(1), self.channels as usize);
        for row in self.pixels.chunks_exact_mut(bytes) {
            mirror(row, channels);
        }
    }
}

/// Whole pixels of an image: a rectangle within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First row.
    pub y: u32,
    /// First column.
    pub x: u32,
    /// Rows.
    pub h: u32,
    /// Columns.
    pub w: u32,
}

impl Region {
    /// All of an image of that size.
    #[must_use]
    pub fn whole(height: u32, width: u32) -> Region {
        Region { y: 0, x: 0, h: height, w: width }
    }
}

/// Reverses the pixels of a row.
pub(crate) fn mirror(row: &mut [u8], channels: usize) {
    fn of<const N: usize>(row: &mut [u8]) {
        row.as_chunks_mut::<N>().0.reverse();
    }
    match channels {
        1 => row.reverse(),
        2 => of::<2>(row),
        3 => of::<3>(row),
        _ => of::<4>(row),
    }
}

/// Memory for that many pixels.
pub(crate) fn memory(height: u32, width: u32, channels: u32, value: u8) -> Result<Vec<u8>> {
    let mut pixels = grown(Vec::new(), height, width, channels)?;
    if value != 0 {
        pixels.fill(value);
    }
    Ok(pixels)
}

/// Memory for that many pixels, which may have been another image's.
pub(crate) fn grown(mut pixels: Vec<u8>, height: u32, width: u32, channels: u32) -> Result<Vec<u8>> {
    let bytes = u64::from(height).checked_mul(u64::from(width)).and_then(|pixels| pixels.checked_mul(channels.into()));
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    if bytes.is_some_and(|bytes| bytes > pixels.capacity()) {
        // Both at once would take more than an image may, and the old content is not needed.
        pixels = Vec::new();
    }
    let Some(bytes) = bytes.filter(|&bytes| pixels.try_reserve_exact(bytes.saturating_sub(pixels.len())).is_ok())
    else {
        let what = format!("there is no memory for an image of shape [{height}, {width}, {channels}]");
        return Err(Error::new(ErrorKind::MemoryLimit, what).with_remedy("decode smaller images, or with lower limits"));
    };
    pixels.resize(bytes, 0);
    Ok(pixels)
}

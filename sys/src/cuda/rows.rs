//! The arguments of a kernel's launch: the rows of its table, and the parameters that all rows share.

/// Bytes to copy from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Device address of the first byte.
    pub source: u64,
    /// Offset of the first byte in the target.
    pub target: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Bytes that become one row of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Device address of the first byte.
    pub source: u64,
    /// Length in bytes.
    pub len: u64,
}

/// An image of `u8` pixels with interleaved channels, and what to make of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Image {
    /// Device address of the first byte.
    pub source: u64,
    /// Height in pixels.
    pub height: u32,
    /// Width in pixels.
    pub width: u32,
    /// The box to crop, in pixels: left, top, width, height.
    pub crop: [f32; 4],
    /// Whether to mirror it left to right.
    pub flip: bool,
}

/// A row as stored in a table: little-endian 64-bit words.
pub(super) trait Encoded: Sized {
    const BYTES: usize;

    /// Decodes a row from `bytes`, which has `BYTES` of them.
    fn decode(bytes: &[u8]) -> Self;
}

impl Piece {
    /// Bytes of a row.
    pub const BYTES: usize = 24;

    /// The row as stored in a table.
    pub fn encode(&self) -> [u8; Piece::BYTES] {
        encode([self.source, self.target, self.len])
    }
}

impl Encoded for Piece {
    const BYTES: usize = Piece::BYTES;

    fn decode(bytes: &[u8]) -> Piece {
        Piece { source: word(bytes, 0), target: word(bytes, 8), len: word(bytes, 16) }
    }
}

impl Row {
    /// Bytes of a row.
    pub const BYTES: usize = 16;

    /// The row as stored in a table.
    pub fn encode(&self) -> [u8; Row::BYTES] {
        encode([self.source, self.len])
    }
}

impl Encoded for Row {
    const BYTES: usize = Row::BYTES;

    fn decode(bytes: &[u8]) -> Row {
        Row { source: word(bytes, 0), len: word(bytes, 8) }
    }
}

impl Image {
    /// Bytes of a row.
    pub const BYTES: usize = 40;

    /// The row as stored in a table.
    pub fn encode(&self) -> [u8; Image::BYTES] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [x, y, width, height] = self.crop.map(f32::to_bits);
        let size = pair(self.height, self.width);
        encode([self.source, size, pair(x, y), pair(width, height), u64::from(self.flip)])
    }

    /// Bytes of the image, or `None` if they exceed any address space.
    pub(super) fn bytes(&self, channels: u32) -> Option<u64> {
        u64::from(self.height).checked_mul(self.width.into())?.checked_mul(channels.into())
    }

    /// Whether the box is inside the image. No comparison holds for a NaN.
    pub(super) fn crop_is_inside(&self) -> bool {
        let [x, y, width, height] = self.crop;
        let is_inside = |start: f32, len: f32, all: u32| start >= 0.0 && len > 0.0 && start + len <= all as f32;
        is_inside(x, width, self.width) && is_inside(y, height, self.height)
    }
}

impl Encoded for Image {
    const BYTES: usize = Image::BYTES;

    fn decode(bytes: &[u8]) -> Image {
        let half = |at: usize| (word(bytes, at) & 0xffff_ffff) as u32;
        Image {
            source: word(bytes, 0),
            height: half(8),
            width: half(12),
            crop: [16, 20, 24, 28].map(|at| f32::from_bits(half(at))),
            flip: half(32) != 0,
        }
    }
}

pub(super) fn encode<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES == WORDS * 8) };
    let mut bytes = [0; BYTES];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// An element to fill memory with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The element, little-endian, in the low bytes.
    pub pattern: u64,
    /// Its size in bytes: 1, 2, 4 or 8.
    pub size: u32,
}

impl Fill {
    /// Whether elements of this size fill exactly `bytes`.
    pub(super) fn divides(self, bytes: u64) -> bool {
        matches!(self.size, 1 | 2 | 4 | 8) && bytes.is_multiple_of(self.size.into())
    }
}

/// Element type of stored tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenType {
    /// Unsigned, 2 bytes.
    U16,
    /// Unsigned, 4 bytes.
    U32,
}

impl TokenType {
    /// Size of a token in bytes.
    pub fn size(self) -> u64 {
        match self {
            TokenType::U16 => 2,
            TokenType::U32 => 4,
        }
    }
}

/// How rows of stored tokens become rows of `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tokens {
    /// How they are stored.
    pub stored: TokenType,
    /// Elements per output row.
    pub seq_len: u64,
    /// Fills the ids after the last token: 0 unless set.
    pub pad_id: i64,
    /// Fills the labels where there is no next token: -100 unless set, which PyTorch's losses ignore.
    pub ignore: i64,
}

impl Tokens {
    /// Rows of `seq_len` elements.
    pub fn new(stored: TokenType, seq_len: u64) -> Tokens {
        Tokens { stored, seq_len, pad_id: 0, ignore: -100 }
    }

    /// Sets what fills the ids.
    pub fn pad_id(self, pad_id: i64) -> Tokens {
        Tokens { pad_id, ..self }
    }

    /// Sets what fills the labels.
    pub fn ignore(self, ignore: i64) -> Tokens {
        Tokens { ignore, ..self }
    }
}

/// Element type of output pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PixelType {
    /// Unsigned bytes.
    U8,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of a single-precision number.
    BF16,
}

impl PixelType {
    /// Size of one channel of a pixel, in bytes.
    pub fn size(self) -> u64 {
        match self {
            PixelType::U8 => 1,
            PixelType::F16 | PixelType::BF16 => 2,
            PixelType::F32 => 4,
        }
    }
}

/// Bound of the means and deviations that images are normalized by.
pub const NORMAL_MAX: f32 = 1048576.0;

/// How images become one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Images {
    /// Element type of the tensor.
    pub pixel: PixelType,
    /// Channels of the images, and of the tensor: 1 to 4.
    pub channels: u32,
    /// Height of each output image in pixels.
    pub height: u32,
    /// Width of each output image in pixels.
    pub width: u32,
    /// Whether the channels of a pixel are stored together (NHWC). Otherwise each channel is a plane (NCHW), the
    /// default.
    pub channels_last: bool,
    /// Subtracted from each channel, whose levels are 0 to 1: 0 unless set.
    pub mean: [f32; 4],
    /// What is divided by then: 1 unless set.
    pub std: [f32; 4],
}

impl Images {
    /// A tensor of images of this height and width, in planes, from 0 to 1; `U8` keeps 0 to 255.
    pub fn new(pixel: PixelType, channels: u32, (height, width): (u32, u32)) -> Images {
        Images { pixel, channels, height, width, channels_last: false, mean: [0.0; 4], std: [1.0; 4] }
    }

    /// Sets whether the channels of a pixel are stored together.
    pub fn channels_last(self, channels_last: bool) -> Images {
        Images { channels_last, ..self }
    }

    /// Sets what is subtracted from each channel, and what is divided by then, where the tensor is not of `U8`: means
    /// of at most [`NORMAL_MAX`], and deviations between that and its inverse.
    pub fn normalized(self, mean: [f32; 4], std: [f32; 4]) -> Images {
        Images { mean, std, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_decode_to_what_was_encoded() {
        let piece = Piece { source: u64::MAX - 1, target: 2, len: 3 << 40 };
        assert_eq!(Piece::decode(&piece.encode()), piece);
        let row = Row { source: 1 << 63, len: 7 };
        assert_eq!(Row::decode(&row.encode()), row);
        for flip in [false, true] {
            let image = Image { source: 5, height: u32::MAX, width: 1, crop: [0.5, -1.0, 2.5, f32::MAX], flip };
            assert_eq!(Image::decode(&image.encode()), image);
        }
    }

    #[test]
    fn a_crop_must_lie_inside_its_image() {
        let image = |crop| Image { source: 0, height: 10, width: 20, crop, flip: false };
        for inside in [[0.0, 0.0, 20.0, 10.0], [19.5, 9.5, 0.5, 0.5]] {
            assert!(image(inside).crop_is_inside(), "{inside:?}");
        }
        let nan = f32::NAN;
        let outside = [[0.0, 0.0, 20.5, 10.0], [0.0, 1.0, 20.0, 9.5], [-0.5, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]];
        for outside in outside.into_iter().chain([[nan, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, nan]]) {
            assert!(!image(outside).crop_is_inside(), "{outside:?}");
        }
        let huge = Image { source: 0, height: u32::MAX, width: u32::MAX, crop: [0.0; 4], flip: false };
        assert_eq!((huge.bytes(4), image([0.0; 4]).bytes(3)), (None, Some(600)));
    }
}

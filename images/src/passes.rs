//! The first part of a plan as numbers: two passes of weights, which anything with the pixels can apply, such as a GPU.
//! The result is the same as this crate's, to the bit.

/// Which pixels of an axis make each pixel of the output, and with what weights.
///
/// A level of the output is `(sum of level * weight + 2^21) >> 22`, clamped to 0 and 255, in 32 bits with a sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taps {
    /// The first pixel of the source, for each pixel of the output.
    pub first: Vec<u32>,
    /// The end of its weights. Each pixel's weights start where the previous pixel's end, the first pixel's at 0.
    pub end: Vec<u32>,
    /// The weights of neighbouring pixels of the source. 2^22 is all of a pixel.
    pub weights: Vec<i32>,
}

/// A cut, a resize and mirrors: first the columns of each used row are made, and then rows from the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Columns of the source, for each column of the output.
    pub columns: Taps,
    /// Rows of the source, for each row of the output.
    pub rows: Taps,
}

//! What a plan first does with an image, as numbers: two passes of weights, which anything can apply that has the
//! pixels, such as a GPU. What comes out is what this crate makes, to the bit.

/// Which pixels of an axis make each pixel that comes out, and by what weights.
///
/// A level that comes out is `(sum of level * weight + 2^21) >> 22`, clamped to 0 and 255, in 32 bits with a sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taps {
    /// The first pixel of the source, for each that comes out.
    pub first: Vec<u32>,
    /// Where its weights end. They start where those before end, and those of the first pixel at 0.
    pub end: Vec<u32>,
    /// Of pixels of the source that follow each other. 2^22 is all of a pixel.
    pub weights: Vec<i32>,
}

/// A cut, a resize and mirrors: the columns of each row that is used are made first, and rows of what that makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Columns of the source, for each column that comes out.
    pub columns: Taps,
    /// Rows of the source, for each row that comes out.
    pub rows: Taps,
}

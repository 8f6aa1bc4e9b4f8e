//! The form of a batch's columns.

/// The form of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collate {
    /// Dense where all samples have one shape and dense costs no copy; views otherwise.
    #[default]
    Auto,
    /// One zero-copy slice a sample.
    Views,
    /// One array of all samples end to end; the build fails where shapes differ.
    Dense,
    /// All values end to end, with offsets.
    Ragged,
    /// All values at one length, the rest filled up.
    Padded(Padding),
}

/// How values of different lengths are brought to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// What fills up a value that is shorter than the longest.
    pub value: PadValue,
    /// Longest value, in elements; what is longer is cut there and counted in the stats.
    pub max_length: Option<u64>,
    /// The length is rounded up to a multiple of this many elements, at least 1.
    pub multiple_of: u64,
}

impl Default for Padding {
    fn default() -> Padding {
        Padding { value: PadValue::default(), max_length: None, multiple_of: 1 }
    }
}

/// One element that fills up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PadValue {
    /// A whole number: for integers that can hold it, for floats that hold it exactly. 0 is 0 in every type.
    Int(i64),
    /// The element's bits, for types that this library only carries (bf16, fp8): the low bytes, little endian.
    Bits(u64),
}

impl Default for PadValue {
    fn default() -> PadValue {
        PadValue::Int(0)
    }
}

//! The form of a batch's columns.

/// The form of a column: [`Data`](crate::batch::Data) says what each holds.
///
/// A form set for all columns applies to those that it fits: with ragged or padded, columns of one shape are dense. A
/// form set for one column by name applies to it, or `build` fails.
///
/// If a dense or ragged column is everything that is read, its values are moved together in place, or not at all if
/// they lie end to end already. All other columns are copied once, into memory that the memory limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collate {
    /// Each column for itself: dense if its values have one shape, else views; on a device, else ragged.
    #[default]
    Auto,
    /// One zero-copy slice per sample.
    Views,
    /// One array of all samples end to end. `build` fails if shapes differ.
    Dense,
    /// All values end to end, with offsets.
    Ragged,
    /// All values padded to the length of the longest in the batch. The memory limit must hold a batch of copies of the
    /// dataset's longest sample, unless there is a `max_length`.
    Padded(Padding),
}

/// How values of different lengths are padded to one length.
///
/// The default pads with 0 up to the longest value of the batch.
///
/// ```
/// use uringload::config::{Collate, PadValue, Padding};
///
/// let padded = Collate::Padded(Padding::default().value(PadValue::Int(-1)).max_length(2048).multiple_of(8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// What fills up a value that is shorter than the longest.
    pub(crate) value: PadValue,
    /// Longest value, in elements; what is longer is cut there and counted in the stats.
    pub(crate) max_length: Option<u64>,
    /// The length is rounded up to a multiple of this many elements, at least 1.
    pub(crate) multiple_of: u64,
}

impl Default for Padding {
    fn default() -> Padding {
        Padding { value: PadValue::default(), max_length: None, multiple_of: 1 }
    }
}

impl Padding {
    /// The padding element. Default: 0.
    #[must_use]
    pub fn value(mut self, value: PadValue) -> Padding {
        self.value = value;
        self
    }

    /// The longest value, in elements. Longer values are cut there and counted in the stats. Default: no limit.
    #[must_use]
    pub fn max_length(mut self, elements: impl Into<Option<u64>>) -> Padding {
        self.max_length = elements.into();
        self
    }

    /// Rounds the padded length up to a multiple of this many elements, at least 1. Default: 1.
    #[must_use]
    pub fn multiple_of(mut self, elements: u64) -> Padding {
        self.multiple_of = elements;
        self
    }
}

/// The element that padding consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PadValue {
    /// A whole number, for integers and floats that hold it exactly. 0 works for every type.
    Int(i64),
    /// The element's bits, for types that this library only passes on (bf16, fp8): the low bytes, little endian.
    Bits(u64),
}

impl Default for PadValue {
    fn default() -> PadValue {
        PadValue::Int(0)
    }
}

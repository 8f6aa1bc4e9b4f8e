//! A column as the files declare it.

use crate::dataset::{DType, Shape};

/// What to do where files differ in their columns.
pub(super) const SAME_COLUMNS: &str = "choose columns that all files have, or open others as a dataset of their own";

/// What a file says of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) is_nullable: bool,
    /// Whether it is UTF-8 text.
    pub(crate) is_text: bool,
    /// The type, in the format's own words.
    pub(crate) described: String,
}

impl Kind {
    pub(crate) fn scalar(dtype: DType, described: impl Into<String>) -> Kind {
        Kind { dtype, shape: Shape::Fixed(Vec::new()), is_nullable: false, is_text: false, described: described.into() }
    }

    pub(crate) fn bytes(described: impl Into<String>) -> Kind {
        Kind { shape: Shape::Ragged, ..Kind::scalar(DType::U8, described) }
    }

    /// Text of any length.
    pub(crate) fn text(described: impl Into<String>) -> Kind {
        Kind { is_text: true, ..Kind::bytes(described) }
    }

    pub(crate) fn fixed_bytes(bytes: u64, described: impl Into<String>) -> Kind {
        Kind { shape: Shape::Fixed(vec![bytes]), ..Kind::scalar(DType::U8, described) }
    }

    /// Whether it is a single number.
    pub(crate) fn is_plain(&self) -> bool {
        self.shape == Shape::Fixed(Vec::new())
    }

    /// Bytes of a value, if all have the same length.
    pub(crate) fn width(&self) -> Option<u64> {
        match &self.shape {
            Shape::Fixed(shape) => Some(shape.iter().product::<u64>() * self.dtype.size()),
            Shape::Ragged => None,
        }
    }
}

/// A column with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

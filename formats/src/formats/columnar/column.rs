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

    /// Lists of these lengths within each other, from the outside in, of such numbers.
    ///
    /// # Errors
    /// Why there are none: they would be too long.
    pub(crate) fn in_lists(self, lengths: Vec<u64>) -> Result<Kind, String> {
        let bytes = lengths.iter().try_fold(self.dtype.size(), |bytes, &length| bytes.checked_mul(length));
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            return Err(format!("lists of the lengths {lengths:?}, of more than 2^63 bytes"));
        }
        let described = format!("{}{}", "list of ".repeat(lengths.len()), self.described);
        Ok(Kind { shape: Shape::Fixed(lengths), described, ..self })
    }

    /// All that distinguishes it from others.
    pub(super) fn in_words(&self) -> String {
        let null = if self.is_nullable { ", may be null" } else { "" };
        match &self.shape {
            Shape::Fixed(shape) if !shape.is_empty() => format!("{} of shape {shape:?}{null}", self.described),
            _ => format!("{}{null}", self.described),
        }
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

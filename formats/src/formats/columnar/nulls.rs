//! What nulls become: errors of their samples, or replacements.

use super::column::{Column, Kind};
use super::layout::State;
use crate::dataset::{DType, Encoding, Field, Shape};
use crate::options::words;
use uringload_core::{Error, ErrorKind, Result};

/// What a null becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nulls {
    /// It is an error of its sample, which names column and row.
    #[default]
    Refuse,
    /// In a column of values of any length (text, bytes, lists) it is an empty value; numbers are errors of their
    /// samples, and so are elements of lists.
    Empty,
    /// As `Empty`, and a float is NaN, in lists too. Other numbers have no such value: they are errors.
    Nan,
    /// As `Empty`, and every number is 0, in lists too.
    Zero,
    /// As `Zero`, and each column that may have nulls is followed by a column of booleans: whether neither the value
    /// nor an element of it was null.
    Mask,
}

words!(Nulls {
    "refuse" => Refuse, "empty" => Empty, "nan" => Nan, "zero" => Zero, "mask" => Mask,
});

/// The replacement for an element that is null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    bytes: [u8; 8],
    len: usize,
}

impl Fill {
    pub(crate) const ZERO: Fill = Fill { bytes: [0; 8], len: 1 };

    /// Overwrites `room` with the element, again and again.
    pub(super) fn into(self, room: &mut [u8]) {
        room.chunks_mut(self.len).for_each(|element| element.copy_from_slice(&self.bytes[..element.len()]));
    }
}

impl Nulls {
    /// The replacement for an element of a column.
    pub(super) fn fill(self, kind: &Kind) -> Fill {
        let mut bytes = [0; 8];
        let nan: &[u8] = match (self, kind.dtype) {
            (Nulls::Nan, DType::F16) => &0x7e00_u16.to_le_bytes(),
            (Nulls::Nan, DType::F32) => &f32::NAN.to_le_bytes(),
            (Nulls::Nan, DType::F64) => &f64::NAN.to_le_bytes(),
            _ => &[],
        };
        bytes[..nan.len()].copy_from_slice(nan);
        // No element has more than 8 bytes: longer values are bytes, of 1 each.
        Fill { bytes, len: (kind.dtype.size() as usize).clamp(1, 8) }
    }

    /// Whether a null of this column is replaced.
    pub(super) fn has_value(self, kind: &Kind, state: State) -> bool {
        let is_ragged = state == State::Null && kind.shape == Shape::Ragged;
        match (self, state) {
            (_, State::Valid) | (Nulls::Zero | Nulls::Mask, _) => true,
            (Nulls::Refuse, _) => false,
            (Nulls::Empty, _) => is_ragged,
            (Nulls::Nan, _) => is_ragged || is_float(kind),
        }
    }

    /// Whether a column is followed by one that marks its nulls.
    pub(super) fn has_mask(self, column: &Column) -> bool {
        self == Nulls::Mask && column.kind.is_nullable
    }

    /// The columns of samples: each column, and the one that marks its nulls.
    ///
    /// # Errors
    /// `InvalidArgument` if a column already has the name that the other one needs.
    pub(super) fn fields(self, columns: &[Column]) -> Result<Vec<Field>> {
        let mut fields = Vec::with_capacity(columns.len());
        for column in columns {
            let Column { name, kind } = column;
            fields.push(Field { name: name.clone(), dtype: kind.dtype, shape: kind.shape.clone() });
            if !self.has_mask(column) {
                continue;
            }
            let name = format!("{name}{MASK_SUFFIX}");
            if columns.iter().any(|column| column.name == name) {
                let what = format!("nulls=mask makes a column {name:?}, and there is one of that name");
                let error = Error::new(ErrorKind::InvalidArgument, what);
                return Err(error.with_remedy("say nulls=zero (--nulls zero), or choose other columns"));
            }
            fields.push(Field { name, dtype: DType::Bool, shape: Shape::Fixed(Vec::new()) });
        }
        Ok(fields)
    }

    /// How the columns of samples are stored, in words; `stored` says it of those of the file.
    pub(super) fn encodings(self, columns: &[Column], stored: &[String]) -> Vec<Encoding> {
        let mut encodings = Vec::with_capacity(columns.len());
        for (column, stored) in columns.iter().zip(stored) {
            let null = if column.kind.is_nullable { ", may be null" } else { "" };
            let words = format!("{}{null}: {stored}", column.kind.described);
            encodings.push(if column.kind.is_text { Encoding::text(words) } else { Encoding::raw(words) });
            if self.has_mask(column) {
                encodings.push(Encoding::raw(format!("whether {:?} has a value", column.name)));
            }
        }
        encodings
    }

    /// What helps against a null of this column.
    pub(super) fn remedy(kind: &Kind, state: State) -> &'static str {
        match (state, &kind.shape) {
            (State::Null, Shape::Ragged) => {
                "say nulls=empty (--nulls empty) to make nulls empty values, leave the column out, or skip such samples"
            }
            _ if is_float(kind) => {
                "leave the column out, or skip such samples; nulls=nan (--nulls nan) makes nulls NaN, nulls=zero 0, \
                 and nulls=mask 0 with a column that tells them"
            }
            _ => {
                "leave the column out, or skip such samples; nulls=zero (--nulls zero) makes nulls 0, and nulls=mask 0 \
                 with a column that tells them"
            }
        }
    }
}

/// After the name of a column: the column that marks its nulls.
const MASK_SUFFIX: &str = ".valid";

fn is_float(kind: &Kind) -> bool {
    matches!(kind.dtype, DType::F16 | DType::F32 | DType::F64)
}

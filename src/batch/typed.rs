//! Converts a column to a slice of numbers or to a DLPack tensor. Also builds batches by hand, for tests of their
//! consumers.

use super::{Batch, Column, Data};
use crate::dataset::{DType, SampleId};
use crate::sampler::{Cursor, Digest};
use bytes::Bytes;
use uringload_sys::dlpack::{ElementType, Memory, Tensor};
use uringload_sys::plain::{Plain, cast};

/// A Rust type that a column's elements can be viewed as.
pub trait Element: Plain {
    /// The column's type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty: $dtype:ident),*) => {
        $(impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements!(u8: U8, u16: U16, u32: U32, u64: U64, i8: I8, i16: I16, i32: I32, i64: I64, f32: F32, f64: F64);

impl Batch {
    /// A batch of these samples and columns, like one from a loader, for tests of code that consumes batches.
    ///
    /// ```
    /// use uringload::batch::{Batch, Column, Data};
    /// use uringload::dataset::{DType, SampleId};
    ///
    /// let label = Column::new("label", DType::I64, Data::I64(vec![3, 1]));
    /// let batch = Batch::new(vec![SampleId(7), SampleId(8)], vec![label]);
    /// assert_eq!(batch.column("label").and_then(|label| label.as_slice()), Some(&[3_i64, 1][..]));
    /// ```
    pub fn new(ids: Vec<SampleId>, columns: Vec<Column>) -> Batch {
        let (cursor, next) = (Cursor::default(), Cursor::new(0, ids.len() as u64));
        let (digest, lost) = (Digest::default(), Digest::default());
        Batch { cursor, next, ids, padding: None, columns, failed: Vec::new(), digest, lost, deferred: None }
    }
}

impl Column {
    /// A column with these values. Bytes are elements in little endian.
    pub fn new(name: impl Into<String>, dtype: DType, data: Data) -> Column {
        Column { name: name.into(), dtype, data }
    }

    /// The elements of all samples, end to end, without a copy: of a dense, ragged, padded or packed column, or of
    /// integers. `None` for views, for elements of another type, and if the values begin at an address that is not
    /// aligned for them (only in a column that was made by hand).
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        let bytes = match &self.data {
            _ if T::DTYPE != self.dtype => return None,
            Data::I64(values) => return cast(uringload_sys::plain::bytes_of(values)),
            Data::Views(_) => return None,
            Data::Dense { bytes, .. } => bytes,
            Data::Ragged { values, .. } | Data::Padded { values, .. } => values,
            Data::Packed(packed) => &packed.values,
        };
        cast(bytes)
    }

    /// The column as a DLPack tensor, which keeps its memory: of shape `[samples, shape...]` if it is dense,
    /// `[elements]` if it is ragged, `[samples, length]` if it is padded, `[rows, seq_len]` if it is packed, and
    /// `[samples]` for integers, which are copied. Consumers may not write to it. `None` for views, and for a column
    /// made by hand that has fewer bytes than its shape requires.
    pub fn to_dlpack(&self) -> Option<Tensor> {
        let size = self.dtype.size();
        let (bytes, shape) = match &self.data {
            Data::Dense { shape, bytes } => {
                let value = shape.iter().try_fold(size, |bytes, &length| bytes.checked_mul(length))?;
                // The number of values without elements is unknown.
                let samples = (bytes.len() as u64).checked_div(value)?;
                (bytes.clone(), [&[samples][..], shape].concat())
            }
            Data::Ragged { values, .. } => (values.clone(), vec![values.len() as u64 / size]),
            Data::Padded { length, values, lengths } => (values.clone(), vec![lengths.len() as u64, *length]),
            Data::Packed(packed) => (packed.values.clone(), vec![packed.rows, packed.seq_len]),
            Data::I64(values) => {
                let bytes = Bytes::copy_from_slice(uringload_sys::plain::bytes_of(values));
                (bytes, vec![values.len() as u64])
            }
            Data::Views(_) => return None,
        };
        let element = ElementType { code: self.dtype.dlpack_code(), bits: (size * 8) as u8 };
        Tensor::new(Memory::host(bytes), element, &shape)
    }
}

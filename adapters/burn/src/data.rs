//! A column as the data of a tensor.

use burn_core::tensor::{AllocationProperty, BoolStore, Bytes, DType as Burn, TensorData};
use uringload::batch::{Column, Data};
use uringload::dataset::DType;
use uringload::{Error, ErrorKind, Result};

/// The type of a tensor's elements; `None` for 8-bit floats, which burn has none of.
pub fn dtype(column: DType) -> Option<Burn> {
    Some(match column {
        DType::U8 => Burn::U8,
        DType::I8 => Burn::I8,
        DType::U16 => Burn::U16,
        DType::I16 => Burn::I16,
        DType::U32 => Burn::U32,
        DType::I32 => Burn::I32,
        DType::U64 => Burn::U64,
        DType::I64 => Burn::I64,
        DType::F16 => Burn::F16,
        DType::BF16 => Burn::BF16,
        DType::F32 => Burn::F32,
        DType::F64 => Burn::F64,
        DType::Bool => Burn::Bool(BoolStore::Native),
        _ => return None,
    })
}

/// The column as the data of a tensor, without a copy: of shape `[samples, shape...]` if it is dense, `[elements]` if
/// it is ragged, `[samples, length]` if it is padded, `[rows, seq_len]` if it is packed, and `[samples]` for integers
/// of the index, which are copied.
///
/// # Errors
/// `InvalidArgument` for views, which are no tensor; for 8-bit floats; and for a column made by hand whose bytes do not
/// fit its shape.
pub fn tensor_data(column: &Column) -> Result<TensorData> {
    tensor_data_in(column, AllocationProperty::Native)
}

/// Like [`tensor_data`], and says what memory it is: `AllocationProperty::Pinned` for batches of a loader with
/// [`pin`](uringload::Builder::pin), so that a backend need not copy them to pinned memory of its own.
///
/// # Errors
/// As for [`tensor_data`].
pub fn tensor_data_in(column: &Column, memory: AllocationProperty) -> Result<TensorData> {
    let of = dtype(column.dtype).ok_or_else(|| refused(column, "burn has no such type of elements", "cast them"))?;
    let size = column.dtype.size();
    let (bytes, shape) = match &column.data {
        Data::I64(values) => return Ok(TensorData::new(values.clone(), [values.len()])),
        Data::Dense { shape, bytes } => {
            let each = shape.iter().try_fold(size, |bytes, &length| bytes.checked_mul(length));
            let samples = each.and_then(|each| (bytes.len() as u64).checked_div(each)).unwrap_or(0);
            (bytes, [&[samples][..], shape].concat())
        }
        Data::Ragged { values, .. } => (values, vec![values.len() as u64 / size]),
        Data::Padded { length, values, lengths } => (values, vec![lengths.len() as u64, *length]),
        Data::Packed(packed) => (&packed.values, vec![packed.rows, packed.seq_len]),
        _ => {
            let remedy = "set `Collate::Ragged` or `Collate::Padded` for it";
            return Err(refused(column, "its values lie apart", remedy));
        }
    };
    let shape: Vec<usize> = shape.into_iter().map(|length| length as usize).collect();
    TensorData::try_from_bytes(Bytes::from_shared(bytes.clone(), memory), shape, of).map_err(|error| {
        let what = format!("column \"{}\" of {} as a tensor", column.name, column.dtype.name());
        Error::new(ErrorKind::InvalidArgument, what).with_source(error)
    })
}

fn refused(column: &Column, why: &str, remedy: &'static str) -> Error {
    let what = format!("column \"{}\" of {} as a tensor: {why}", column.name, column.dtype.name());
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}

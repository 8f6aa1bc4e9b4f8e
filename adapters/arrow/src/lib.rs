//! Batches of [uringload] as Arrow arrays, without a copy of their values.
//!
//! ```
//! use arrow_array::cast::AsArray;
//! use uringload::config::Collate;
//! use uringload::{Loader, dataset};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("digits.bin");
//! # std::fs::write(&path, [7; 65 * 4])?;
//! let options = dataset::Options::new().format("records").set("record_fields", "label:u8, image:u8[8,8]");
//! let dataset = dataset::open(&[path], &options)?;
//! // Dense columns, and ragged ones where lengths differ.
//! for batch in Loader::builder(dataset).batch_size(4).collate(Collate::Ragged).build()? {
//!     let rows = uringload_arrow::record_batch(&batch?)?;
//!     let images = rows["image"].as_fixed_size_list();
//!     assert_eq!((images.len(), images.value_length()), (4, 64));
//!     // The C Data Interface, for whatever is not written in Rust.
//!     let (array, schema) = arrow_array::ffi::to_ffi(&images.to_data())?;
//!     # let _ = (array, schema);
//! }
//! # use arrow_array::Array;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | a column of uringload | an array of Arrow |
//! |---|---|
//! | dense, scalars; integers of the index | primitive |
//! | dense, `[samples, shape...]` | `FixedSizeList`, and the extension `arrow.fixed_shape_tensor` if the shape has several dimensions |
//! | padded, packed | `FixedSizeList`: a list is a row, padding included |
//! | ragged | `LargeList`; its offsets, 8 bytes a sample, are copied |
//! | views of bytes | `BinaryView`; values of up to 12 bytes are copied, because they lie in the view itself |
//! | views of other types | `ListView` cannot point into several buffers: refused, take `Collate::Ragged` |
//!
//! Element types have the same names but for those that Arrow does not have: `bf16` is passed on as `UInt16`, 8-bit
//! floats and `bool`, which is a bit in Arrow, as `UInt8`. The field's metadata, `uringload:dtype`, then names the
//! type.
//!
//! An array keeps the memory of its batch: the loader reads on into what is dropped.
#![forbid(unsafe_code)]

use arrow_array::builder::make_view;
use arrow_array::{
    ArrayRef, BinaryViewArray, FixedSizeListArray, Int64Array, LargeListArray, RecordBatch, make_array, new_empty_array,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use std::collections::HashMap;
use std::sync::Arc;
use uringload::batch::{Batch, Column, Data};
use uringload::dataset::DType;

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The key of a field's metadata that names the type of elements that Arrow has no type for.
pub const DTYPE: &str = "uringload:dtype";

/// Arrow's type for the elements, and whether it is the same type.
fn element(dtype: DType) -> (DataType, bool) {
    match dtype {
        DType::U8 => (DataType::UInt8, true),
        DType::I8 => (DataType::Int8, true),
        DType::U16 => (DataType::UInt16, true),
        DType::I16 => (DataType::Int16, true),
        DType::U32 => (DataType::UInt32, true),
        DType::I32 => (DataType::Int32, true),
        DType::U64 => (DataType::UInt64, true),
        DType::I64 => (DataType::Int64, true),
        DType::F16 => (DataType::Float16, true),
        DType::F32 => (DataType::Float32, true),
        DType::F64 => (DataType::Float64, true),
        other if other.size() == 2 => (DataType::UInt16, false),
        // Bool, and 8-bit floats.
        _ => (DataType::UInt8, false),
    }
}

/// The column as an array of one value (a row, if it is packed) a sample; see the [table](crate).
///
/// # Errors
/// `InvalidArgumentError` for a column that Arrow cannot express: views of numbers, values without elements, lists of
/// 2^31 elements and more; and for one made by hand whose bytes do not fit its shape.
pub fn array(column: &Column) -> Result<ArrayRef, ArrowError> {
    let elements = |bytes: &bytes::Bytes| elements(column, bytes);
    match &column.data {
        Data::I64(values) => Ok(Arc::new(Int64Array::from(values.clone()))),
        Data::Dense { shape, bytes } if shape.is_empty() => elements(bytes),
        Data::Dense { shape, bytes } => lists(column, elements(bytes)?, shape.iter().product()),
        Data::Padded { length, values, .. } => lists(column, elements(values)?, *length),
        Data::Packed(packed) => lists(column, elements(&packed.values)?, packed.seq_len),
        Data::Ragged { values, offsets } => {
            let offsets: ScalarBuffer<i64> = offsets.iter().map(|&offset| offset as i64).collect();
            if !offsets.windows(2).all(|pair| 0 <= pair[0] && pair[0] <= pair[1]) || offsets.is_empty() {
                return Err(refused(column, "its offsets do not ascend"));
            }
            let values = elements(values)?;
            Ok(Arc::new(LargeListArray::try_new(item(column), OffsetBuffer::new(offsets), values, None)?))
        }
        Data::Views(views) if column.dtype == DType::U8 => binary(column, views),
        Data::Views(_) => Err(refused(column, "it has a buffer for each value; set `Collate::Ragged` for it")),
        _ => Err(refused(column, "this version does not know its form")),
    }
}

/// The field that describes [`array()`]'s array, with the name of the column.
///
/// # Errors
/// As for [`array()`].
pub fn field(column: &Column) -> Result<Field, ArrowError> {
    Ok(described(column, array(column)?.data_type().clone()))
}

/// All columns of a batch, which must have one value a sample.
///
/// # Errors
/// As for [`array()`]; and `InvalidArgumentError` if a column is packed, because its rows are not samples: take
/// [`array()`] of each column then.
pub fn record_batch(batch: &Batch) -> Result<RecordBatch, ArrowError> {
    let mut fields = Vec::with_capacity(batch.columns.len());
    let mut arrays = Vec::with_capacity(batch.columns.len());
    for column in &batch.columns {
        if matches!(column.data, Data::Packed(_)) {
            return Err(refused(column, "its rows are not samples; take `array` of each column"));
        }
        let array = array(column)?;
        fields.push(described(column, array.data_type().clone()));
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

fn described(column: &Column, data_type: DataType) -> Field {
    let mut metadata = HashMap::new();
    if !element(column.dtype).1 {
        metadata.insert(DTYPE.to_string(), column.dtype.name().to_string());
    }
    if let Data::Dense { shape, .. } = &column.data
        && shape.len() > 1
    {
        let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
        metadata.insert("ARROW:extension:name".into(), "arrow.fixed_shape_tensor".into());
        metadata.insert("ARROW:extension:metadata".into(), format!("{{\"shape\":[{}]}}", shape.join(",")));
    }
    Field::new(&column.name, data_type, false).with_metadata(metadata)
}

/// The field of a list's elements, which the format says is called "item".
fn item(column: &Column) -> Arc<Field> {
    Arc::new(Field::new("item", element(column.dtype).0, false))
}

fn elements(column: &Column, bytes: &bytes::Bytes) -> Result<ArrayRef, ArrowError> {
    let (data_type, _) = element(column.dtype);
    if bytes.is_empty() {
        return Ok(new_empty_array(&data_type));
    }
    let size = column.dtype.size() as usize;
    if !bytes.len().is_multiple_of(size) {
        return Err(refused(column, "its bytes end within an element"));
    }
    // `build` checks that the elements are aligned, which those of a column that was made by hand may not be.
    let data = ArrayData::builder(data_type).len(bytes.len() / size).add_buffer(Buffer::from(bytes.clone())).build()?;
    Ok(make_array(data))
}

fn lists(column: &Column, values: ArrayRef, length: u64) -> Result<ArrayRef, ArrowError> {
    let length = match i32::try_from(length) {
        Ok(0) => return Err(refused(column, "its values have no elements")),
        Ok(length) => length,
        Err(_) => return Err(refused(column, "a value has 2^31 elements or more")),
    };
    Ok(Arc::new(FixedSizeListArray::try_new(item(column), length, values, None)?))
}

fn binary(column: &Column, views: &[bytes::Bytes]) -> Result<ArrayRef, ArrowError> {
    let mut buffers = Vec::new();
    let of = |value: &bytes::Bytes| {
        if u32::try_from(value.len()).is_err() {
            return Err(refused(column, "a value has 4 GiB or more"));
        }
        let view = make_view(value, buffers.len() as u32, 0);
        // A value of up to 12 bytes lies in its view.
        if value.len() > 12 {
            buffers.push(Buffer::from(value.clone()));
        }
        Ok(view)
    };
    let views = views.iter().map(of).collect::<Result<Vec<u128>, ArrowError>>()?;
    Ok(Arc::new(BinaryViewArray::try_new(views.into(), buffers, None)?))
}

fn refused(column: &Column, why: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("column \"{}\" as an array of Arrow: {why}", column.name))
}

#[cfg(test)]
mod tests;

//! Batches of [uringload] as tensors of candle.
//!
//! ```
//! use candle_core::Device;
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
//!     let batch = batch?;
//!     let images = uringload_candle::to_tensor(batch.column("image").expect("images"), &Device::Cpu)?;
//!     assert_eq!(images.dims(), [4, 8, 8]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! candle owns the memory of its tensors, so values are copied once, on the CPU. The batch may be dropped then.
//!
//! | elements of a column | of the tensor | |
//! |---|---|---|
//! | `u8`, `u32`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32`, `f64` | the same | |
//! | `bool` | `u8` | |
//! | `i8` | `i16` | widened |
//! | `u16` | `u32` | widened |
//! | `u64` | `i64` | an error where a number is 2^63 or more |
//! | `f8e5m2`, `f8e4m3` | `f16` | widened, exactly |
//!
//! candle 0.11 has a type for `f8e4m3`, whose conversion to other types (by float8 0.7, optimised) does not return.
//!
//! On a device other than the CPU candle copies the tensor there itself, on its own stream and while the CPU waits. With
//! the feature `cuda`, `from_device` makes tensors of batches that uringload has brought to the GPU: candle's stream
//! waits for them, and one copy on the device makes them candle's.
#![forbid(unsafe_code)]

#[cfg(feature = "cuda")]
mod cuda;

#[cfg(feature = "cuda")]
pub use cuda::from_device;

use candle_core::{DType as Candle, Device, Error, Result, Tensor, WithDType};
use half::{bf16, f16};
use uringload::batch::{Column, Data, Element};
use uringload::dataset::DType;

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The type of the elements of a tensor made of such a column.
pub fn dtype(column: DType) -> Option<Candle> {
    Some(match column {
        DType::U8 | DType::Bool => Candle::U8,
        DType::I8 | DType::I16 => Candle::I16,
        DType::U16 | DType::U32 => Candle::U32,
        DType::I32 => Candle::I32,
        DType::U64 | DType::I64 => Candle::I64,
        DType::F16 | DType::F8E4M3 | DType::F8E5M2 => Candle::F16,
        DType::BF16 => Candle::BF16,
        DType::F32 => Candle::F32,
        DType::F64 => Candle::F64,
        _ => return None,
    })
}

/// The column as a tensor on `device`: of shape `[samples, shape...]` if it is dense, `[elements]` if it is ragged,
/// `[samples, length]` if it is padded, `[rows, seq_len]` if it is packed, and `[samples]` for integers of the index.
///
/// # Errors
/// Views, which are no tensor; an element that the [table](crate) excludes; a column made by hand whose bytes
/// do not fit its shape; and whatever candle says.
pub fn to_tensor(column: &Column, device: &Device) -> Result<Tensor> {
    if let Data::I64(values) = &column.data {
        return Tensor::from_slice(values, values.len(), device);
    }
    let (bytes, shape) = placed(column)?;
    match column.dtype {
        DType::U8 | DType::Bool => Tensor::from_slice(bytes, shape, device),
        DType::U32 => copied::<u32>(column, shape, device),
        DType::I16 => copied::<i16>(column, shape, device),
        DType::I32 => copied::<i32>(column, shape, device),
        DType::I64 => copied::<i64>(column, shape, device),
        DType::F32 => copied::<f32>(column, shape, device),
        DType::F64 => copied::<f64>(column, shape, device),
        DType::F16 => made(bytes, shape, device, |[low, high]| f16::from_le_bytes([low, high])),
        DType::BF16 => made(bytes, shape, device, |[low, high]| bf16::from_le_bytes([low, high])),
        DType::F8E4M3 => made(bytes, shape, device, |[byte]| of_f8e4m3(byte)),
        DType::I8 => made(bytes, shape, device, |[byte]| i16::from(byte as i8)),
        DType::U16 => made(bytes, shape, device, |[low, high]| u32::from(u16::from_le_bytes([low, high]))),
        // The five bits of its exponent are those of a half float.
        DType::F8E5M2 => made(bytes, shape, device, |[byte]| f16::from_le_bytes([0, byte])),
        DType::U64 => {
            let numbers: Vec<i64> = whole::<u64>(column)?
                .iter()
                .map(|&number| i64::try_from(number))
                .collect::<std::result::Result<_, _>>()
                .map_err(|_| refused(column, "a number is 2^63 or more, and candle has no u64"))?;
            Tensor::from_vec(numbers, shape, device)
        }
        _ => Err(refused(column, "candle has no such type")),
    }
}

/// The bytes of the elements, and the shape of the tensor.
fn placed(column: &Column) -> Result<(&[u8], Vec<usize>)> {
    let size = column.dtype.size();
    let (bytes, shape) = match &column.data {
        Data::Dense { shape, bytes } => {
            let each = shape.iter().try_fold(size, |bytes, &length| bytes.checked_mul(length));
            let samples = each.and_then(|each| (bytes.len() as u64).checked_div(each));
            let Some(samples) = samples else { return Err(refused(column, "its values have no elements")) };
            (bytes, [&[samples][..], shape].concat())
        }
        Data::Ragged { values, .. } => (values, vec![values.len() as u64 / size]),
        Data::Padded { length, values, lengths } => (values, vec![lengths.len() as u64, *length]),
        Data::Packed(packed) => (&packed.values, vec![packed.rows, packed.seq_len]),
        _ => return Err(refused(column, "its values lie apart; set `Collate::Ragged` or `Collate::Padded` for it")),
    };
    if shape.iter().try_fold(size, |bytes, &length| bytes.checked_mul(length)) != Some(bytes.len() as u64) {
        return Err(refused(column, &format!("it has {} bytes, and the shape {shape:?}", bytes.len())));
    }
    Ok((bytes, shape.into_iter().map(|length| length as usize).collect()))
}

/// Elements that candle has too, copied once.
fn copied<T: Element + WithDType>(column: &Column, shape: Vec<usize>, device: &Device) -> Result<Tensor> {
    Tensor::from_slice(whole::<T>(column)?, shape, device)
}

fn whole<T: Element>(column: &Column) -> Result<&[T]> {
    column.as_slice().ok_or_else(|| refused(column, "its elements are not aligned"))
}

/// Elements that are made of `N` bytes each, copied once.
fn made<const N: usize, T: WithDType>(
    bytes: &[u8],
    shape: Vec<usize>,
    device: &Device,
    element: impl Fn([u8; N]) -> T,
) -> Result<Tensor> {
    let (pieces, _) = bytes.as_chunks::<N>();
    Tensor::from_vec(pieces.iter().map(|&piece| element(piece)).collect::<Vec<T>>(), shape, device)
}

/// The value of an OCP E4M3 number, of which a half float has all.
fn of_f8e4m3(byte: u8) -> f16 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let value = match byte & 0x7f {
        0x7f => f32::NAN,
        0..=7 => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * 2.0_f32.powi(exponent - 7),
    };
    f16::from_f32(if byte & 0x80 == 0 { value } else { -value })
}

fn refused(column: &Column, why: &str) -> Error {
    Error::Msg(format!("column \"{}\" of {} as a tensor: {why}", column.name, column.dtype.name()))
}

#[cfg(test)]
mod tests {
    use super::{dtype, to_tensor};
    use bytes::Bytes;
    use candle_core::{DType as Candle, Device, Tensor};
    use uringload::batch::{Column, Data};
    use uringload::dataset::DType;

    fn dense(dtype: DType, shape: &[u64], bytes: &[u8]) -> Column {
        let bytes = Bytes::copy_from_slice(bytes);
        Column::new("x", dtype, Data::Dense { shape: shape.to_vec(), bytes })
    }

    fn tensor(column: &Column) -> Tensor {
        to_tensor(column, &Device::Cpu).expect("a tensor")
    }

    fn numbers(column: &Column) -> Vec<f64> {
        let tensor = tensor(column).to_dtype(Candle::F64).expect("numbers");
        tensor.flatten_all().and_then(|flat| flat.to_vec1()).expect("numbers")
    }

    #[test]
    fn every_type_has_its_numbers() {
        for (column, bytes, wanted) in [
            (DType::U8, vec![0, 255], vec![0.0, 255.0]),
            (DType::Bool, vec![0, 1], vec![0.0, 1.0]),
            (DType::I8, vec![0x80, 0x7f], vec![-128.0, 127.0]),
            (DType::U16, vec![0xff, 0xff, 1, 0], vec![65535.0, 1.0]),
            (DType::I16, vec![0xff, 0xff, 1, 0], vec![-1.0, 1.0]),
            (DType::U32, vec![0xff, 0xff, 0xff, 0xff], vec![4294967295.0]),
            (DType::I32, vec![0xfe, 0xff, 0xff, 0xff], vec![-2.0]),
            (DType::U64, 7_u64.to_le_bytes().to_vec(), vec![7.0]),
            (DType::I64, (-7_i64).to_le_bytes().to_vec(), vec![-7.0]),
            (DType::F16, vec![0x00, 0x3c], vec![1.0]),
            (DType::BF16, vec![0x80, 0x3f], vec![1.0]),
            (DType::F32, 1.5_f32.to_le_bytes().to_vec(), vec![1.5]),
            (DType::F64, (-2.5_f64).to_le_bytes().to_vec(), vec![-2.5]),
            // OCP: 1.0 is 0 0111 000, the largest number 448.
            (DType::F8E4M3, vec![0x38, 0x7e, 0x81, 0x08], vec![1.0, 448.0, -0.001953125, 0.015625]),
            // 1.0 is 0 01111 00, the largest number 57 344.
            (DType::F8E5M2, vec![0x3c, 0x7b, 0xbc], vec![1.0, 57344.0, -1.0]),
        ] {
            let made = dense(column, &[], &bytes);
            assert_eq!(Some(tensor(&made).dtype()), dtype(column), "{column:?}");
            assert_eq!(numbers(&made), wanted, "{column:?}");
        }
        assert!(DType::ALL.iter().all(|&column| dtype(column).is_some()));
    }

    #[test]
    fn each_form_has_its_shape() {
        let bytes = Bytes::from((0..12).collect::<Vec<u8>>());
        let of = |data| tensor(&Column::new("x", DType::U8, data)).dims().to_vec();
        assert_eq!(of(Data::Dense { shape: vec![2, 3], bytes: bytes.clone() }), [2, 2, 3]);
        assert_eq!(of(Data::Ragged { values: bytes.clone(), offsets: vec![0, 5, 12] }), [12]);
        assert_eq!(of(Data::Padded { length: 4, values: bytes, lengths: vec![4, 0, 1] }), [3, 4]);
        let labels = Column::new("label", DType::I64, Data::I64(vec![-1, 9]));
        assert_eq!(tensor(&labels).to_vec1::<i64>().expect("numbers"), [-1, 9]);
    }

    #[test]
    fn what_is_no_tensor_is_refused_by_name() {
        for (column, why) in [
            (Column::new("x", DType::U8, Data::Views(vec![])), "Collate::Ragged"),
            (dense(DType::U64, &[], &u64::MAX.to_le_bytes()), "2^63"),
            (dense(DType::U8, &[5], &[0; 12]), "12 bytes, and the shape [2, 5]"),
            (dense(DType::U8, &[0], &[]), "no elements"),
        ] {
            let error = to_tensor(&column, &Device::Cpu).expect_err(why).to_string();
            assert!(error.contains(why) && error.contains("\"x\""), "{error}");
        }
    }
}

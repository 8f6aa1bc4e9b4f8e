//! Batches of [uringload] as views of ndarray, without a copy.
//!
//! ```
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
//!     let images = uringload_ndarray::view::<u8>(batch.column("image").expect("images"))?;
//!     assert_eq!(images.shape(), [4, 8, 8]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A view borrows the column, and so the memory of its batch. Columns of `f16`, `bf16`, 8-bit floats and `bool` have no
//! type in ndarray: take [`Column::as_slice`] of a column's bytes, or `uringload-arrow`.
#![forbid(unsafe_code)]

use ndarray::{ArrayView1, ArrayViewD, IxDyn};
use uringload::batch::{Column, Data, Element};
use uringload::{Error, ErrorKind, Result};

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The column as one array: of shape `[samples, shape...]` if it is dense, `[elements]` if it is ragged, `[samples,
/// length]` if it is padded, `[rows, seq_len]` if it is packed, and `[samples]` for integers of the index.
///
/// # Errors
/// `InvalidArgument` for elements of another type and for views, which are no array ([`values`] takes them); and for a
/// column made by hand whose bytes do not fit its shape.
pub fn view<T: Element>(column: &Column) -> Result<ArrayViewD<'_, T>> {
    let elements = elements(column)?;
    let wanted: Vec<u64> = match &column.data {
        Data::Dense { shape, .. } => {
            let each: u64 = shape.iter().product();
            let samples = (elements.len() as u64).checked_div(each).unwrap_or(0);
            std::iter::once(samples).chain(shape.iter().copied()).collect()
        }
        Data::Padded { length, lengths, .. } => vec![lengths.len() as u64, *length],
        Data::Packed(packed) => vec![packed.rows, packed.seq_len],
        _ => vec![elements.len() as u64],
    };
    let shape: Vec<usize> = wanted.iter().map(|&length| length as usize).collect();
    let wrong = || {
        let what = format!("column \"{}\" has {} elements and the shape {shape:?}", column.name, elements.len());
        Error::new(ErrorKind::InvalidArgument, what)
    };
    // ndarray would leave out what is too much.
    if wanted.iter().try_fold(1, |all: u64, &length| all.checked_mul(length)) != Some(elements.len() as u64) {
        return Err(wrong());
    }
    ArrayViewD::from_shape(IxDyn(&shape), elements).map_err(|error| wrong().with_source(error))
}

/// The value of each sample by itself, without padding: for ragged and padded columns. Of packed ones these are the
/// pieces of the samples, in the order of their segments.
///
/// # Errors
/// As for [`view`]; `InvalidArgument` too for dense columns, whose [`view`] has the samples along its first axis.
pub fn values<T: Element>(column: &Column) -> Result<Vec<ArrayView1<'_, T>>> {
    let elements = elements::<T>(column)?;
    let piece = |start: u64, len: u64| {
        let piece = elements.get(start as usize..)?.get(..len as usize)?;
        Some(ArrayView1::from(piece))
    };
    let pieces: Option<Vec<_>> = match &column.data {
        Data::Ragged { offsets, .. } => {
            offsets.windows(2).map(|pair| piece(pair[0], pair[1].checked_sub(pair[0])?)).collect()
        }
        Data::Padded { length, lengths, .. } => {
            lengths.iter().zip(0..).map(|(&len, row): (_, u64)| piece(row * length, len)).collect()
        }
        Data::Packed(packed) => {
            let of =
                |segment: &uringload::batch::Segment| piece(segment.row * packed.seq_len + segment.start, segment.len);
            packed.segments.iter().map(of).collect()
        }
        _ => return Err(refused(column, "its values have one shape", "take its `view`")),
    };
    pieces.ok_or_else(|| refused(column, "a value lies past the end of its elements", "check how it was made"))
}

fn elements<T: Element>(column: &Column) -> Result<&[T]> {
    if column.dtype != T::DTYPE {
        let what = format!("its elements are {}, and {} is asked for", column.dtype.name(), T::DTYPE.name());
        return Err(refused(column, &what, "ask for the column's type"));
    }
    let remedy = "set `Collate::Ragged` or `Collate::Padded` for it, or take its slices by `bytes_of`";
    column.as_slice().ok_or_else(|| refused(column, "its values lie apart", remedy))
}

fn refused(column: &Column, why: &str, remedy: &str) -> Error {
    let what = format!("column \"{}\" as an array: {why}", column.name);
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy.to_string())
}

#[cfg(test)]
mod tests {
    use super::{values, view};
    use bytes::Bytes;
    use uringload::batch::{Column, Data};
    use uringload::dataset::DType;

    fn floats(numbers: &[f32]) -> Bytes {
        Bytes::from(numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
    }

    #[test]
    fn each_form_has_its_shape_and_is_not_copied() {
        let bytes = floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let dense = Column::new("x", DType::F32, Data::Dense { shape: vec![3], bytes: bytes.clone() });
        let seen = view::<f32>(&dense).expect("an array");
        assert_eq!((seen.shape(), seen.as_ptr().cast()), (&[2, 3][..], bytes.as_ptr()));
        assert_eq!(seen[[1, 0]], 3.0);
        assert!(values::<f32>(&dense).is_err_and(|error| error.remedy().is_some_and(|told| told.contains("view"))));

        let offsets = vec![0, 4, 4, 6];
        let ragged = Column::new("x", DType::F32, Data::Ragged { values: bytes.clone(), offsets });
        assert_eq!(view::<f32>(&ragged).expect("an array").shape(), [6]);
        let lengths: Vec<usize> = values::<f32>(&ragged).expect("values").iter().map(|value| value.len()).collect();
        assert_eq!(lengths, [4, 0, 2]);

        let padded = Data::Padded { length: 3, values: bytes.clone(), lengths: vec![3, 1] };
        let padded = Column::new("x", DType::F32, padded);
        assert_eq!(view::<f32>(&padded).expect("an array").shape(), [2, 3]);
        assert_eq!(values::<f32>(&padded).expect("values")[1].to_vec(), [3.0]);

        let labels = Column::new("label", DType::I64, Data::I64(vec![3, -1]));
        assert_eq!(view::<i64>(&labels).expect("an array").iter().copied().collect::<Vec<_>>(), [3, -1]);
    }

    #[test]
    fn what_is_no_array_is_refused_by_name() {
        let dense = |shape| Column::new("x", DType::F32, Data::Dense { shape, bytes: floats(&[0.0; 6]) });
        let error = view::<f64>(&dense(vec![3])).expect_err("another type");
        assert!(error.to_string().contains("f32, and f64"), "{error}");
        assert!(view::<f32>(&dense(vec![4])).is_err(), "6 elements are no rows of 4");
        let views = Column::new("x", DType::F32, Data::Views(vec![floats(&[1.0])]));
        let error = view::<f32>(&views).expect_err("views");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("Ragged")), "{error}");
        let past = Data::Ragged { values: floats(&[1.0]), offsets: vec![0, 2] };
        assert!(values::<f32>(&Column::new("x", DType::F32, past)).is_err());
        let back = Data::Ragged { values: floats(&[1.0]), offsets: vec![1, 0] };
        assert!(values::<f32>(&Column::new("x", DType::F32, back)).is_err());
    }
}

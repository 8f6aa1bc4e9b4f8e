//! Batches in C: arrays, and DLPack tensors.

use crate::arrow::{self, ArrowArray, ArrowDeviceArray, ArrowSchema};
use crate::seen::{Form, Seen, Whole};
use crate::{UL_OK, call, fill, give, given, invalid, owned, ul_bytes, ul_error};
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use uringload::sys::StreamRef;

/// A batch. Its memory is not reused until it is freed.
pub struct ul_batch {
    /// Shared with the Arrow arrays that were exported.
    batch: Arc<Whole>,
    ids: Vec<u64>,
    columns: Vec<Shown>,
}

/// The description of a column in C, besides its values.
struct Shown {
    name: CString,
    dtype: CString,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Four numbers for each piece of packed rows.
    pieces: Vec<u64>,
    views: Vec<ul_bytes>,
}

/// The description of a batch.
#[repr(C)]
pub struct ul_batch_info {
    /// Bytes of this struct, set by the caller.
    pub size: usize,
    /// Number of samples.
    pub samples: u64,
    /// Their numbers in the dataset.
    pub ids: *const u64,
    /// Number of columns.
    pub columns: u64,
    /// Samples that are missing because they could not be read.
    pub failed: u64,
    /// The epoch that it belongs to.
    pub epoch: u64,
    /// Where it begins in that epoch.
    pub position: u64,
}

/// Elements in memory: a `DLTensor` of dlpack.h, byte for byte.
#[repr(C)]
pub struct ul_tensor {
    /// The first element, on the host or on the device; null if there is none.
    pub data: *mut c_void,
    /// `DLDeviceType`: 1, the host; 2, CUDA.
    pub device_type: i32,
    /// Number of the device.
    pub device_id: i32,
    /// Number of dimensions.
    pub ndim: i32,
    /// `DLDataTypeCode` of the elements.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Always 1.
    pub lanes: u16,
    /// Elements in each dimension.
    pub shape: *mut i64,
    /// Elements from one to the next in each dimension.
    pub strides: *mut i64,
    /// Always 0.
    pub byte_offset: u64,
}

/// Each sample's value is `values.shape[1..]`.
pub const UL_DENSE: u64 = 0;
/// Values of any length, end to end: sample i has elements `places[i]..places[i + 1]`.
pub const UL_RAGGED: u64 = 1;
/// Rows of one length: the first `places[i]` elements of row i are the sample's.
pub const UL_PADDED: u64 = 2;
/// Each sample's bytes by themselves: `views[i]`. There is no tensor.
pub const UL_VIEWS: u64 = 3;
/// Pieces of samples in rows of one length: piece i is in row `places[4 * i]`, from element `places[4 * i + 1]` on,
/// `places[4 * i + 2]` elements long, and of the batch's sample `places[4 * i + 3]`.
pub const UL_PACKED: u64 = 4;

/// One column of a batch. What it points to lives as long as the batch.
#[repr(C)]
pub struct ul_column {
    /// Bytes of this struct, set by the caller.
    pub size: usize,
    /// The column's name.
    pub name: *const c_char,
    /// The type of its elements: "u8", "f32", ...
    pub dtype: *const c_char,
    /// One of `UL_DENSE`, `UL_RAGGED`, `UL_PADDED`, `UL_VIEWS` and `UL_PACKED`.
    pub form: u64,
    /// The elements of all samples.
    pub values: ul_tensor,
    /// Offsets, lengths or pieces, in elements and on the host; null for other forms.
    pub places: *const u64,
    /// Their number.
    pub place_count: u64,
    /// The samples' bytes; null for other forms.
    pub views: *const ul_bytes,
    /// Their number.
    pub view_count: u64,
}

impl ul_batch {
    pub(crate) fn new(batch: Whole) -> ul_batch {
        let columns = batch.columns().map(|column| Shown::new(&column)).collect();
        let ids = batch.host().ids.iter().map(|id| id.0).collect();
        ul_batch { batch: Arc::new(batch), ids, columns }
    }

    fn column(&self, index: u64) -> uringload::Result<(Seen<'_>, &Shown)> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        // Checked here first, because it is compared with a number that is at least as large.
        let found = self.columns.get(at).and_then(|shown| Some((self.batch.column(at)?, shown)));
        let what = || format!("there is no column {index} among {}", self.columns.len());
        found.ok_or_else(|| invalid(what(), "count from 0"))
    }
}

impl Shown {
    fn new(column: &Seen<'_>) -> Shown {
        let shape = column.shape();
        let strides = (1..=shape.len()).map(|at| shape[at..].iter().map(|&length| length.max(1) as i64).product());
        let mut pieces = Vec::new();
        if let Form::Packed(packed) = &column.form {
            pieces.extend(packed.segments.iter().flat_map(|at| [at.row, at.start, at.len, at.sample as u64]));
        }
        let views = if let Form::Views(views) = column.form { views } else { &[] };
        Shown {
            name: owned(column.name),
            dtype: owned(column.dtype.name()),
            strides: strides.collect(),
            // Nothing in memory has 2^63 elements.
            shape: shape.into_iter().map(u64::cast_signed).collect(),
            pieces,
            views: views.iter().map(|view| ul_bytes { data: view.as_ptr(), len: view.len() }).collect(),
        }
    }
}

/// Describes a batch.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_batch_get(
    batch: *const ul_batch,
    out: *mut ul_batch_info,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let ul_batch { batch, ids, columns } = unsafe { given(batch, "batch") }?;
        let info = ul_batch_info {
            size: 0,
            samples: ids.len() as u64,
            ids: ids.as_ptr(),
            columns: columns.len() as u64,
            failed: batch.host().failed.len() as u64,
            epoch: batch.host().cursor.epoch,
            position: batch.host().cursor.position,
        };
        // SAFETY: by the caller's promise; the struct has pointers and 64-bit numbers only, so no padding.
        unsafe { fill(out, info, "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// A column of a batch.
///
/// # Safety
/// Pointers are null or what the header says of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_batch_column(
    batch: *const ul_batch,
    index: u64,
    out: *mut ul_column,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let (column, shown) = unsafe { given(batch, "batch") }?.column(index)?;
        let (form, places): (u64, &[u64]) = match column.form {
            Form::Dense(_) => (UL_DENSE, &[]),
            Form::Ragged(offsets) => (UL_RAGGED, offsets),
            Form::Padded { lengths, .. } => (UL_PADDED, lengths),
            Form::Packed(_) => (UL_PACKED, &shown.pieces),
            Form::Views(_) => (UL_VIEWS, &[]),
        };
        let values = ul_tensor {
            data: column.values.cast_mut(),
            device_type: if column.device.is_some() { CUDA } else { HOST },
            device_id: column.device.unwrap_or(0).cast_signed(),
            // A shape has a handful of dimensions.
            ndim: shown.shape.len() as i32,
            code: column.dtype.dlpack_code(),
            bits: (column.dtype.size() * 8) as u8,
            lanes: 1,
            shape: shown.shape.as_ptr().cast_mut(),
            strides: shown.strides.as_ptr().cast_mut(),
            byte_offset: 0,
        };
        let told = ul_column {
            size: 0,
            name: shown.name.as_ptr(),
            dtype: shown.dtype.as_ptr(),
            form,
            values,
            places: if places.is_empty() { ptr::null() } else { places.as_ptr() },
            place_count: places.len() as u64,
            views: if shown.views.is_empty() { ptr::null() } else { shown.views.as_ptr() },
            view_count: shown.views.len() as u64,
        };
        // SAFETY: by the caller's promise; no field leaves a gap (a test holds offsets against those of C++).
        unsafe { fill(out, told, "out") }?;
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// `kDLCPU` and `kDLCUDA` of DLPack, which equal `ARROW_DEVICE_CPU` and `ARROW_DEVICE_CUDA`.
const HOST: i32 = 1;
const CUDA: i32 = 2;

/// No stream: [`ul_batch_wait_on`] waits on the host. In C it is `(void *)-1`.
pub const UL_HOST: usize = usize::MAX;

/// Makes work put into a stream from now on see the values of a batch on a GPU, or waits for them on the host.
///
/// # Safety
/// `batch` and `error` are null or what the header says of them. `stream` is null, [`UL_HOST`], or a stream of the CUDA
/// driver that the batch's loader uses, and outlives the batch and all that was exported of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_batch_wait_on(
    batch: *const ul_batch,
    stream: *mut c_void,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let batch = unsafe { given(batch, "batch") }?;
        if stream.addr() == UL_HOST {
            batch.batch.wait()?;
        } else {
            // SAFETY: by the caller's promise.
            batch.batch.wait_on(unsafe { StreamRef::from_raw(stream) })?;
        }
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// A `DLManagedTensorVersioned` of DLPack.
pub const UL_DLPACK: i32 = 0;
/// An `ArrowArray`.
pub const UL_ARROW: i32 = 1;
/// An `ArrowDeviceArray`.
pub const UL_ARROW_DEVICE: i32 = 2;
/// All columns, as the fields of a struct.
pub const UL_ALL: u64 = u64::MAX;

/// Exports a column, or with Arrow all of them, to another library. The export outlives the batch.
///
/// # Safety
/// Pointers are null or what the header says of them for this form.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_batch_export(
    batch: *const ul_batch,
    index: u64,
    form: i32,
    out: *mut c_void,
    schema: *mut ArrowSchema,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise.
        let batch = unsafe { given(batch, "batch") }?;
        if out.is_null() {
            return Err(invalid("out is null", "give the address of what the form needs"));
        }
        if form == UL_DLPACK {
            batch.column(index)?;
            // SAFETY: by the caller's promise; it is not null.
            unsafe { give(out.cast(), dlpack(&batch.batch, index)?, "out") }?;
            return Ok(UL_OK);
        }
        if form != UL_ARROW && form != UL_ARROW_DEVICE {
            return Err(invalid(format!("there is no form {form}"), "give UL_DLPACK, UL_ARROW or UL_ARROW_DEVICE"));
        }
        let column = if index == UL_ALL { None } else { Some(batch.column(index)?.0) };
        let device = arrow::place(&batch.batch, column.as_ref())?;
        if device.is_some() && form == UL_ARROW {
            let what = "the values are on a GPU, and an ArrowArray is of the host's memory";
            return Err(invalid(what, "ask for UL_ARROW_DEVICE"));
        }
        // The importer gets no event to wait for.
        batch.batch.wait()?;
        let (array, described) = arrow::export(&batch.batch, column)?;
        if form == UL_ARROW {
            // SAFETY: by the caller's promise; it is not null.
            unsafe { give(out.cast::<ArrowArray>(), array, "out") }?;
        } else {
            let device_id = device.map_or(-1, i64::from);
            let device_type = if device.is_some() { CUDA } else { HOST };
            // SAFETY: by the caller's promise; it is not null.
            unsafe { give(out.cast(), ArrowDeviceArray::new(array, (device_type, device_id)), "out") }?;
        }
        // SAFETY: by the caller's promise.
        unsafe { described.give_or_release(schema) };
        Ok(UL_OK)
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// The column as a `DLManagedTensorVersioned`.
fn dlpack(batch: &Whole, index: u64) -> uringload::Result<*mut c_void> {
    let tensor = batch.tensor(index as usize)?.ok_or_else(|| {
        let what = format!("column {index} has a value for each sample, and no tensor of all");
        invalid(what, "take its views, or collate it: \"ragged\", \"padded\", \"dense\"")
    })?;
    Ok(tensor.into_raw())
}

/// Frees a batch. Exported columns stay valid.
///
/// # Safety
/// `batch` is null, or a living batch that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_batch_free(batch: *mut ul_batch) {
    if !batch.is_null() {
        // SAFETY: a function of this crate made it by `Box::into_raw`, and it is freed once, by the caller's promise.
        drop(unsafe { Box::from_raw(batch) });
    }
}

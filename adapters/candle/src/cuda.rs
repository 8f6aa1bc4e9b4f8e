//! Columns on a GPU as tensors there.

use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, Error, Result, Storage, Tensor};
use half::{bf16, f16};
use uringload::dataset::DType;
use uringload::device::DeviceColumn;
use uringload_cudarc::{CudaElement, View};

/// The column as a tensor on the same GPU, by one copy there: candle's stream waits for the column on the device, and
/// the host waits for nothing. The shape is that of [`to_tensor`](crate::to_tensor). The batch may be dropped then: its
/// memory is filled again after that copy.
///
/// # Errors
/// Elements that candle has no type for (nothing is widened on the device), a column on the host, a device that is not
/// the column's, and what the driver says.
pub fn from_device(column: &DeviceColumn, device: &CudaDevice) -> Result<Tensor> {
    match column.dtype {
        DType::U8 => copied::<u8>(column, device),
        DType::Bool => {
            // A byte each, 0 or 1, as candle has it.
            let mut bytes = column.clone();
            bytes.dtype = DType::U8;
            copied::<u8>(&bytes, device)
        }
        DType::U32 => copied::<u32>(column, device),
        DType::I16 => copied::<i16>(column, device),
        DType::I32 => copied::<i32>(column, device),
        DType::I64 => copied::<i64>(column, device),
        DType::F16 => copied::<f16>(column, device),
        DType::BF16 => copied::<bf16>(column, device),
        DType::F32 => copied::<f32>(column, device),
        DType::F64 => copied::<f64>(column, device),
        other => {
            let what = format!("column \"{}\" of {} as a tensor: candle has no such type", column.name, other.name());
            Err(Error::Msg(format!("{what}; cast it on the host, by a transform of the loader")))
        }
    }
}

/// Elements that candle has too, copied once on the device.
fn copied<T: CudaElement + candle_core::cuda::CudaDType>(column: &DeviceColumn, device: &CudaDevice) -> Result<Tensor> {
    let view = View::<T>::new(column, &device.cuda_stream()).map_err(Error::wrap)?;
    let mine = CudaStorage::wrap_cuda_slice(view.to_slice().map_err(Error::wrap)?, device.clone());
    let shape: Vec<usize> = column.shape().into_iter().map(|length| length as usize).collect();
    Ok(Tensor::from_storage(Storage::Cuda(mine), shape, BackpropOp::none(), false))
}

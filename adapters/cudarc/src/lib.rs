//! Batches of [uringload] on the contexts and streams of cudarc, without a copy.
//!
//! ```no_run
//! use cudarc::driver::{
//!     CudaContext, CudaFunction, CudaStream, DevicePtr, DeviceSlice, DriverError, LaunchConfig, PushKernelArg,
//! };
//! use uringload::{Loader, dataset};
//! use uringload_cudarc::{View, device};
//!
//! /// A kernel of yours: `__global__ void step(const unsigned char *images, size_t count)`.
//! fn step(kernel: &CudaFunction, images: &View<u8>, stream: &CudaStream) -> Result<(), DriverError> {
//!     let (address, _used) = images.device_ptr(stream);
//!     let (count, blocks) = (images.len(), LaunchConfig::for_num_elems(images.len() as u32));
//!     // SAFETY: these are the kernel's arguments, and it only reads what `images` has.
//!     unsafe { stream.launch_builder(kernel).arg(&address).arg(&count).launch(blocks) }.map(drop)
//! }
//!
//! fn train(kernel: &CudaFunction) -> Result<(), Box<dyn std::error::Error>> {
//!     let context = CudaContext::new(0)?;
//!     let stream = context.new_stream()?;
//!     let options = dataset::Options::new().format("records").set("record_fields", "label:u8, image:u8[8,8]");
//!     let dataset = dataset::open(&["digits.bin"], &options)?;
//!     for batch in Loader::builder(dataset).batch_size(64).device(device(&context)).build()? {
//!         let batch = batch?;
//!         let images = View::<u8>::new(batch.column("image").expect("images"), &stream)?;
//!         step(kernel, &images, &stream)?;
//!         // Or a copy that outlives the batch.
//!         let mine = images.to_slice()?;
//!         # let _ = mine;
//!     }
//!     Ok(())
//! }
//! # fn main() {}
//! ```
//!
//! A kernel's argument is the address that `device_ptr` gives for the stream of the launch. `arg(&images)` does not
//! compile: cudarc does not tell an argument its stream, and a launch in another stream than the view's has to wait
//! for the column.
//!
//! A loader works in the primary context of its GPU, which is what `CudaContext::new` opens. A stream of another
//! context is refused when it is first named.
//!
//! The features `dynamic-loading` (the default, with the interface of CUDA 12.8), and `f16` for half floats, are those
//! of cudarc. Where something else in the program chooses how CUDA is linked, such as candle, leave the default out.
//!
//! A view holds the memory of its batch. Once it and the batch are dropped, the memory is filled again after the work
//! that the stream had by then.

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DeviceSlice, SyncOnDrop};
use std::marker::PhantomData;
use std::sync::Arc;
use uringload::config::Device;
use uringload::dataset::DType;
use uringload::device::{DeviceBytes, DeviceColumn};
use uringload::{Error, ErrorKind, Result};
use uringload_sys::cuda::SharedStream;

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The GPU of a trainer's context, for [`Builder::device`](uringload::Builder::device).
pub fn device(context: &CudaContext) -> Device {
    Device::cuda(context.ordinal() as u32)
}

/// A trainer's stream, for [`DeviceBatch::wait_on`](uringload::device::DeviceBatch::wait_on) and
/// [`DeviceColumn::to_dlpack`]: whatever remembers it keeps it alive.
pub fn shared(stream: &Arc<CudaStream>) -> SharedStream {
    // SAFETY: cudarc destroys the stream when the last `Arc` of it is dropped, and not before.
    unsafe { SharedStream::kept(stream.cu_stream().cast(), Arc::clone(stream) as _) }
}

/// A type of Rust that the elements of a column on a GPU can be seen as.
pub trait CudaElement: DeviceRepr {
    /// The column's type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty: $dtype:ident),*) => {
        $(impl CudaElement for $rust {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements!(u8: U8, u16: U16, u32: U32, u64: U64, i8: I8, i16: I16, i32: I32, i64: I64, f32: F32, f64: F64);
#[cfg(feature = "f16")]
elements!(half::f16: F16, half::bf16: BF16);

/// A column on a GPU, as a range of device memory that cudarc's functions and kernels read.
#[derive(Debug)]
pub struct View<T> {
    /// Holds the memory.
    memory: DeviceBytes,
    stream: Arc<CudaStream>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: CudaElement> View<T> {
    /// The elements of `column`, for work in `stream`, which waits for the column on the device.
    ///
    /// # Errors
    /// `InvalidArgument` for elements of another type, for a column on the host, and for a stream of another device or
    /// of a context that is not the primary one; `Device` for errors of the driver.
    pub fn new(column: &DeviceColumn, stream: &Arc<CudaStream>) -> Result<View<T>> {
        let refused = |why: String, remedy: &'static str| {
            let what = format!("column \"{}\" as a view of cudarc: {why}", column.name);
            Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy))
        };
        if column.dtype != T::DTYPE {
            let why = format!("its elements are {}, and {} is asked for", column.dtype.name(), T::DTYPE.name());
            return refused(why, "ask for the column's type");
        }
        if column.memory.device().is_none() {
            return refused("it is on the host".into(), "build the loader with `device`");
        }
        column.wait_on(shared(stream))?;
        let len = column.memory.len() / size_of::<T>();
        Ok(View { memory: column.memory.clone(), stream: Arc::clone(stream), len, elements: PhantomData })
    }

    /// The elements in memory of their own, which cudarc allocates in the view's stream (`cuMemAllocAsync`, where the
    /// device has it) and which the batch plays no part in any more. One copy on the device.
    ///
    /// # Errors
    /// `Device` for what the driver says.
    pub fn to_slice(&self) -> Result<CudaSlice<T>> {
        self.stream.clone_dtod(self).map_err(|error| {
            Error::new(ErrorKind::Device, "cannot copy a column on its device")
                .with_source(error)
                .with_remedy("free memory there, or see whether the work before it has failed")
        })
    }
}

impl<T> DeviceSlice<T> for View<T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl<T> DevicePtr<T> for View<T> {
    /// Another stream than the view's own waits for it on the device, and the host waits for that stream afterwards:
    /// only work in the view's own stream is known to be done when the memory is filled again.
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        let address = self.memory.address();
        if stream.cu_stream() == self.stream.cu_stream() {
            return (address, SyncOnDrop::Record(None));
        }
        stream.context().record_err(stream.join(&self.stream));
        (address, SyncOnDrop::sync_stream(stream))
    }
}

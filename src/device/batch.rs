//! The consumer's batch on a device: its columns there, and the return path of its memory.

use crate::batch::{Batch, Column, Packed};
use crate::dataset::DType;
use crate::queue::Bell;
use crate::resident::Resident;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use uringload_sys::cuda::{Context, CudaError, DeviceMemory, Event, SharedStream, Span, Timing};
use uringload_sys::dlpack::{self, ElementType, Tensor};

/// One batch whose columns are on a device, or on the host if the loader runs without a GPU.
///
/// The copies and kernels that fill the columns may still be running when the batch is delivered:
/// [`wait_on`](DeviceBatch::wait_on) makes a stream wait for them on the device, so that the host need not. The memory
/// returns to the loader when the batch, and every column cloned out of it, is dropped; it is reused only after the
/// work that those streams had at that time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceBatch {
    /// The host's part of the batch: its place in the order, its samples, failed samples, and the columns that stay on
    /// the host (views, such as keys).
    pub host: Batch,
    /// The columns on the device, in the order of the dataset's schema.
    pub columns: Vec<DeviceColumn>,
    lease: Option<Arc<Lease>>,
}

/// One column of a [`DeviceBatch`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceColumn {
    /// Name, as in the schema or as given by the transform.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// The form of the values. [`Data`](crate::batch::Data) explains each one.
    pub form: DeviceForm,
    /// The elements, end to end.
    pub memory: DeviceBytes,
}

/// The form of a column's values.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DeviceForm {
    /// A tensor of shape `[samples, shape...]`.
    Dense {
        /// Shape of one sample's value.
        shape: Vec<u64>,
    },
    /// Values of any length, end to end: a tensor of shape `[offsets[samples]]`.
    Ragged {
        /// Where each value begins, in elements, and at the end where the last one ends; on the host.
        offsets: Vec<u64>,
    },
    /// A tensor of shape `[samples, length]`.
    Padded {
        /// Elements per row.
        length: u64,
        /// Elements of each row that belong to the sample; on the host.
        lengths: Vec<u64>,
    },
    /// A tensor of shape `[rows, seq_len]`. `values` is empty here; the rest has the location of each sample's piece.
    Packed(Packed),
}

impl DeviceColumn {
    /// The column as a DLPack tensor of [`shape`](DeviceColumn::shape) for PyTorch, JAX, CuPy and others, without a
    /// copy.
    ///
    /// Work put into `stream` from now on sees the values: pass the stream that the consumer names
    /// (`__dlpack__(stream=)` in Python). The consumer owns the memory until it frees the tensor, and the memory is
    /// reused after the work that the stream had at that time. On the host the stream is ignored, and the consumer may
    /// only read.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream of another device; `Device` for errors of the driver.
    pub fn to_dlpack(&self, stream: impl Into<SharedStream>) -> Result<Tensor> {
        let memory = self.lend(Some(stream.into()))?;
        let tensor = Tensor::new(memory, element_type(self.dtype), &self.shape());
        tensor.ok_or_else(|| Error::new(ErrorKind::Internal, "a column is not as long as its shape says"))
    }

    /// Makes work put into `stream` from now on wait for the column, as [`DeviceBatch::wait_on`] does for the batch.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream of another device; `Device` for errors of the driver.
    pub fn wait_on(&self, stream: impl Into<SharedStream>) -> Result<()> {
        self.lend(Some(stream.into())).map(drop)
    }

    /// Lends the column's memory for use as a tensor. The memory is ready for any work put into `stream` from now on;
    /// pass the stream that the consumer names (`__dlpack__(stream=)` in Python). The consumer owns the memory until it
    /// frees the tensor. It is reused once the work in the stream by then is done. Without a stream nothing waits: the
    /// consumer must ensure that the column is ready ([`DeviceBatch::wait`]), and that its work is done when it frees
    /// the tensor. On the host the stream is ignored, and the consumer may only read.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream of another device; `Device` for errors of the driver.
    #[doc(hidden)]
    pub fn lend(&self, stream: Option<SharedStream>) -> Result<dlpack::Memory> {
        match &self.memory.0 {
            Memory::Host(bytes) => Ok(dlpack::Memory::host(bytes.clone())),
            Memory::Cuda { span, lease } => {
                if let Some(stream) = stream {
                    lease.wait_on(stream)?;
                }
                Ok(dlpack::Memory::cuda(span.clone(), Arc::clone(lease)))
            }
        }
    }

    /// Bytes of all values, without padding.
    #[doc(hidden)]
    pub fn bytes(&self) -> u64 {
        let size = self.dtype.size();
        match &self.form {
            DeviceForm::Dense { .. } | DeviceForm::Ragged { .. } => self.memory.len() as u64,
            DeviceForm::Padded { lengths, .. } => lengths.iter().sum::<u64>() * size,
            DeviceForm::Packed(packed) => packed.segments.iter().map(|segment| segment.len).sum::<u64>() * size,
        }
    }

    /// The shape of the column as one tensor.
    pub fn shape(&self) -> Vec<u64> {
        let elements = self.memory.len() as u64 / self.dtype.size();
        match &self.form {
            DeviceForm::Dense { shape } => {
                let each = shape.iter().product::<u64>();
                let samples = elements.checked_div(each).unwrap_or(0);
                std::iter::once(samples).chain(shape.iter().copied()).collect()
            }
            DeviceForm::Ragged { .. } => vec![elements],
            DeviceForm::Padded { length, lengths } => vec![lengths.len() as u64, *length],
            DeviceForm::Packed(packed) => vec![packed.rows, packed.seq_len],
        }
    }
}

/// Bytes of a column. Clones share them.
#[derive(Clone, Debug)]
pub struct DeviceBytes(Memory);

#[derive(Clone, Debug)]
enum Memory {
    Host(Bytes),
    Cuda { span: Span, lease: Arc<Lease> },
}

impl DeviceBytes {
    pub(super) fn on_host(bytes: Bytes) -> DeviceBytes {
        DeviceBytes(Memory::Host(bytes))
    }

    pub(super) fn on_device(span: Span, lease: &Arc<Lease>) -> DeviceBytes {
        DeviceBytes(Memory::Cuda { span, lease: Arc::clone(lease) })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Host(bytes) => bytes.len(),
            Memory::Cuda { span, .. } => span.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte, on the device (`CUdeviceptr`) or on the host. Valid until the last clone is dropped.
    pub fn address(&self) -> u64 {
        match &self.0 {
            Memory::Host(bytes) => bytes.as_ptr().addr() as u64,
            Memory::Cuda { span, .. } => span.address(),
        }
    }

    /// The bytes, if they are on the host.
    pub fn as_host(&self) -> Option<&Bytes> {
        match &self.0 {
            Memory::Host(bytes) => Some(bytes),
            Memory::Cuda { .. } => None,
        }
    }

    /// The range of the device's memory, if the bytes are there.
    #[doc(hidden)]
    pub fn as_cuda(&self) -> Option<&Span> {
        match &self.0 {
            Memory::Host(_) => None,
            Memory::Cuda { span, .. } => Some(span),
        }
    }

    /// The number of the GPU that they are on; `None` on the host.
    pub fn device(&self) -> Option<u32> {
        self.as_cuda().map(|span| span.memory().context().info().index)
    }

    /// Waits for the bytes and copies them to the host. For tests and inspection.
    ///
    /// # Errors
    /// `Device` for errors of the driver.
    pub fn to_host(&self) -> Result<Bytes> {
        match &self.0 {
            Memory::Host(bytes) => Ok(bytes.clone()),
            Memory::Cuda { span, lease } => {
                lease.wait()?;
                let mut to = vec![0; span.len()];
                span.read(&mut to).map_err(unread)?;
                Ok(Bytes::from(to))
            }
        }
    }
}

impl DeviceBatch {
    pub(super) fn on_host(host: Batch, columns: Vec<DeviceColumn>) -> DeviceBatch {
        DeviceBatch { host, columns, lease: None }
    }

    pub(super) fn on_device(host: Batch, columns: Vec<DeviceColumn>, lease: Arc<Lease>) -> DeviceBatch {
        DeviceBatch { host, columns, lease: Some(lease) }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.host.len()
    }

    /// Whether every sample was skipped.
    pub fn is_empty(&self) -> bool {
        self.host.is_empty()
    }

    /// Bytes of all columns, including those on the host, without padding.
    #[doc(hidden)]
    pub fn bytes(&self) -> u64 {
        self.host.bytes() + self.columns.iter().map(DeviceColumn::bytes).sum::<u64>()
    }

    /// The device column named `name`.
    pub fn column(&self, name: &str) -> Option<&DeviceColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The CUDA context of the device; `None` on the host.
    pub fn context(&self) -> Option<&Context> {
        self.lease.as_ref().map(|lease| &lease.context)
    }

    /// The number of the GPU that the columns are on; `None` on the host.
    pub fn device(&self) -> Option<u32> {
        self.context().map(|context| context.info().index)
    }

    /// Makes work put into `stream` from here on wait for the columns, on the device. Their memory is reused only after
    /// the work that `stream` has when the batch is dropped. Call it once per stream, before using the columns there.
    /// On the host it does nothing.
    ///
    /// If `stream` is being captured (a CUDA graph), this waits on the host instead. A batch dropped meanwhile keeps
    /// its memory until the loader finds the stream without a capture, so leave some time between two captures; a graph
    /// that reads the columns must not be launched after that.
    ///
    /// A stream is a [`StreamRef`](uringload_sys::cuda::StreamRef) to another library's stream, or an `Arc` of a
    /// [`Stream`](uringload_sys::cuda::Stream), which the batch keeps alive.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream of another device; `Device` for driver errors.
    pub fn wait_on(&self, stream: impl Into<SharedStream>) -> Result<()> {
        match &self.lease {
            Some(lease) => lease.wait_on(stream.into()),
            None => Ok(()),
        }
    }

    /// Waits on the host until the columns are filled.
    ///
    /// # Errors
    /// `Device` for errors of the driver.
    pub fn wait(&self) -> Result<()> {
        match &self.lease {
            Some(lease) => lease.wait(),
            None => Ok(()),
        }
    }

    /// Whether the columns are filled.
    ///
    /// # Errors
    /// `Device` for errors of the driver.
    pub fn is_ready(&self) -> Result<bool> {
        let Some(lease) = &self.lease else { return Ok(true) };
        lease.ready.is_done().map_err(|error| device_error("cannot ask whether a batch is ready", error))
    }
}

/// A batch's hold on device memory, which returns with the last handle.
#[derive(Debug)]
pub(super) struct Lease {
    context: Context,
    range: Range<usize>,
    ready: Arc<Event>,
    /// Streams that use the batch, each with the event that marks the end of that use.
    used: Mutex<Vec<(SharedStream, Event)>>,
    home: Arc<Home>,
}

/// Memory outside a lane's own that a batch is made from, until the device has done that.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Blocks that were read straight to the device. They must not be read into again while kernels read them.
    pub(super) blocks: Vec<Bytes>,
    /// Values that were on the device.
    pub(super) residents: Vec<Resident>,
}

/// Returned memory, and the events that must complete before it is free.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) range: Range<usize>,
    /// Released at the same time.
    pub(super) held: Held,
    pub(super) after: Vec<After>,
}

/// Work that must end before returned memory is free.
#[derive(Debug)]
pub(super) enum After {
    /// The work that precedes a recorded event.
    Event(Arc<Event>),
    /// The work in a stream that is being captured, so that the event cannot be recorded after it yet.
    Stream { stream: SharedStream, event: Arc<Event> },
    /// The capture of a stream that only another thread can name.
    Never,
}

impl After {
    /// The end of the work that is in the stream now, marked by `event`.
    fn work_in(stream: SharedStream, event: Event, context: &Context) -> Option<After> {
        match stream.record_outside(&event, context) {
            Ok(false) if stream.is_per_thread() => Some(After::Never),
            // The stream is no longer needed.
            Ok(true) => Some(After::Event(Arc::new(event))),
            Ok(false) => Some(After::Stream { stream, event: Arc::new(event) }),
            // A destroyed context has no work left that could use the memory.
            Err(_) => None,
        }
    }

    /// Whether the work has ended. Never waits.
    ///
    /// # Errors
    /// Errors of the work, and of the driver.
    pub(super) fn is_over(&mut self, context: &Context) -> Result<bool, CudaError> {
        match self {
            After::Event(event) => event.is_done(),
            After::Stream { stream, event } => {
                if !stream.record_outside(event, context)? {
                    return Ok(false);
                }
                let event = Arc::clone(event);
                let is_done = event.is_done();
                *self = After::Event(event);
                is_done
            }
            After::Never => Ok(false),
        }
    }

    /// Waits on the host until the work has ended. Returns whether it has: not if a capture keeps it, which may last,
    /// or if the work has failed, since some of it may still be running.
    fn wait(self, context: &Context) -> bool {
        match self {
            After::Event(event) => event.wait().is_ok(),
            After::Stream { stream, event } => {
                stream.record_outside(&event, context).unwrap_or(false) && event.wait().is_ok()
            }
            After::Never => false,
        }
    }

    /// Whether it waits for the end of a capture.
    pub(super) fn is_capture(&self) -> bool {
        matches!(self, After::Stream { .. } | After::Never)
    }
}

/// Where dropped leases of a lane go, while it or a batch of it lives.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) returned: SegQueue<Returned>,
    pub(super) bell: Arc<Bell>,
    /// Events that are free for reuse.
    spare: SegQueue<Event>,
    /// Dropped last, when nothing uses it any more.
    memory: DeviceMemory,
}

impl Home {
    pub(super) fn new(memory: &DeviceMemory, bell: &Arc<Bell>) -> Home {
        let (returned, spare) = (SegQueue::new(), SegQueue::new());
        Home { returned, bell: Arc::clone(bell), spare, memory: memory.clone() }
    }

    /// An event, not recorded since it was given back.
    pub(super) fn event(&self, context: &Context) -> Result<Event, CudaError> {
        self.spare.pop().map_or_else(|| Event::new(context, Timing::Off), Ok)
    }

    /// Takes back an event that has completed. Anything that still waits for it waits for what preceded it then.
    pub(super) fn take(&self, over: After) {
        if let After::Event(event) | After::Stream { event, .. } = over {
            Arc::into_inner(event).into_iter().for_each(|event| self.spare.push(event));
        }
    }
}

impl Drop for Home {
    /// The driver frees its own memory after all work. An allocator gives it to the next owner at once, and does not
    /// know the streams of consumers.
    fn drop(&mut self) {
        if !self.memory.is_lent() {
            return;
        }
        while let Some(Returned { after, .. }) = self.returned.pop() {
            if !after.into_iter().all(|after| after.wait(self.memory.context())) {
                std::mem::forget(self.memory.clone());
                return;
            }
        }
    }
}

impl Lease {
    pub(super) fn new(context: &Context, range: Range<usize>, ready: &Arc<Event>, home: &Arc<Home>) -> Lease {
        let (context, ready, home) = (context.clone(), Arc::clone(ready), Arc::clone(home));
        Lease { context, range, ready, used: Mutex::default(), home }
    }

    fn wait(&self) -> Result<()> {
        self.ready.wait().map_err(|error| device_error("a batch did not reach the device", error))
    }

    fn wait_on(&self, stream: SharedStream) -> Result<()> {
        let failed = |error| device_error("cannot make a stream wait for a batch", error);
        if !stream.is_of(&self.context).map_err(failed)? {
            let what = format!("a batch on cuda:{} cannot be used on a stream of another device", self.index());
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("give a stream of that device"));
        }
        if stream.is_capturing(&self.context).map_err(failed)? {
            // A graph cannot wait for anything outside it, and trying to would end the capture.
            self.wait()?;
        } else {
            stream.wait(&self.ready).map_err(failed)?;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.iter().any(|(other, _)| *other == stream) {
            // Created here because a drop must not fail.
            used.push((stream, self.home.event(&self.context).map_err(failed)?));
        }
        Ok(())
    }

    fn index(&self) -> u32 {
        self.context.info().index
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let used = std::mem::take(self.used.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut after = vec![After::Event(Arc::clone(&self.ready))];
        after.extend(used.into_iter().filter_map(|(stream, event)| After::work_in(stream, event, &self.context)));
        self.home.returned.push(Returned { range: self.range.clone(), held: Held::default(), after });
        self.home.bell.ring();
    }
}

/// Converts a driver error.
pub(crate) fn device_error(what: &'static str, error: CudaError) -> Error {
    let remedy = if error.is_out_of_memory() {
        "lower the device's memory limit, or free memory there"
    } else if error.is_destroyed_context() {
        "the device was reset while the loader used it: build the loader again"
    } else if error.is_capture() {
        "a CUDA graph was being captured: update the driver, or capture when no loader works on the device"
    } else if error.is_fatal() {
        "see nvidia-smi and the kernel's log; this process can no longer use the device"
    } else {
        "please report it with the message"
    };
    Error::new(ErrorKind::Device, what).with_source(error).with_remedy(remedy)
}

/// Converts an error of a copy to the host, which may be one of the driver.
fn unread(error: io::Error) -> Error {
    const WHAT: &str = "cannot copy a column to the host";
    match error.downcast::<CudaError>() {
        Ok(error) => device_error(WHAT, error),
        Err(error) => {
            Error::new(ErrorKind::Device, WHAT).with_source(error).with_remedy("free some of the host's memory")
        }
    }
}

/// The element type in DLPack's terms.
pub fn element_type(dtype: DType) -> ElementType {
    // At most 8 bytes.
    ElementType { code: dtype.dlpack_code(), bits: (dtype.size() * 8) as u8 }
}

/// The form of a column on a device, without its values.
pub(super) fn form_of(column: &Column) -> Option<DeviceForm> {
    use crate::batch::Data;
    match &column.data {
        Data::Dense { shape, .. } => Some(DeviceForm::Dense { shape: shape.clone() }),
        Data::Ragged { offsets, .. } => Some(DeviceForm::Ragged { offsets: offsets.clone() }),
        Data::Padded { length, lengths, .. } => Some(DeviceForm::Padded { length: *length, lengths: lengths.clone() }),
        Data::Packed(packed) => Some(DeviceForm::Packed(Packed { values: Bytes::new(), ..packed.clone() })),
        Data::I64(_) => Some(DeviceForm::Dense { shape: Vec::new() }),
        Data::Views(_) => None,
    }
}

//! DLPack: lending a tensor's memory to NumPy, PyTorch, JAX and others without a copy, and freeing it exactly once.
//!
//! The structs are those of `dlpack.h` (github.com/dmlc/dlpack): `DLManagedTensorVersioned` of version 1.0, and
//! `DLManagedTensor` for older consumers.

mod allocator;

pub use allocator::{Allocate, Allocator, CurrentStream, Tell};

use crate::cuda::Span;
use bytes::Bytes;
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};

/// Version of the structs.
pub const VERSION: (u32, u32) = (1, 0);

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
const IS_COPIED: u64 = 2;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementType {
    /// `DLDataTypeCode`: 0 signed, 1 unsigned, 2 IEEE float, 4 bfloat, 6 bool, 10 and 12 8-bit floats.
    pub code: u8,
    /// Size in bits, a multiple of 8.
    pub bits: u8,
}

/// Memory to lend as a tensor, with its owner and what its consumer may do with it.
pub struct Memory {
    address: *mut c_void,
    len: usize,
    /// `DLDeviceType` and number.
    device: (i32, i32),
    /// Flags of `DLPACK_FLAG_BITMASK`.
    flags: u64,
    owner: Box<dyn Send>,
}

// SAFETY: the address is only a number here. What it points to is kept alive by `owner`, which may be sent.
unsafe impl Send for Memory {}

impl Memory {
    /// `kDLCPU`: the host.
    pub const HOST: i32 = 1;
    /// `kDLCUDA`: a GPU.
    pub const CUDA: i32 = 2;

    /// Bytes of the host's memory, which the consumer may only read.
    pub fn host(bytes: Bytes) -> Memory {
        let address = if bytes.is_empty() { ptr::null_mut() } else { bytes.as_ptr().cast_mut().cast() };
        Memory { address, len: bytes.len(), device: (Memory::HOST, 0), flags: READ_ONLY, owner: Box::new(bytes) }
    }

    /// Bytes of the host's memory, which the consumer may also write.
    ///
    /// # Safety
    /// The bytes are in memory that can be written, such as a heap allocation, and not in a constant of the program.
    /// Until the tensor is freed, Rust code reads or writes them only in an order agreed with the consumer, and holds
    /// no reference to them while the consumer writes, not even by another handle on the same bytes.
    pub unsafe fn host_mut(bytes: Bytes) -> Memory {
        Memory { flags: 0, ..Memory::host(bytes) }
    }

    /// A range of a GPU's memory, which the consumer may read and write. `owner` is dropped when the consumer frees the
    /// tensor: it says when the range may be used for something else.
    pub fn cuda(span: Span, owner: impl Send + 'static) -> Memory {
        let address =
            if span.is_empty() { ptr::null_mut() } else { ptr::without_provenance_mut(span.address() as usize) };
        // A machine has a handful of devices.
        let device = (Memory::CUDA, span.memory().context().info().index as i32);
        Memory { address, len: span.len(), device, flags: 0, owner: Box::new((span, owner)) }
    }

    /// Marks the tensor as a copy made for the consumer.
    #[must_use]
    pub fn copied(self) -> Memory {
        Memory { flags: self.flags | IS_COPIED, ..self }
    }

    /// Whether the consumer may only read.
    pub fn is_read_only(&self) -> bool {
        self.flags & READ_ONLY != 0
    }

    /// `DLDeviceType` and number of the device.
    pub fn device(&self) -> (i32, i32) {
        self.device
    }
}

/// A tensor to lend: a `DLManagedTensorVersioned`, owned until [`into_raw`](Tensor::into_raw) hands it over.
pub struct Tensor {
    raw: NonNull<Lent<Versioned>>,
}

// SAFETY: it is the only owner of a `Lent`, whose owner is `Send` and whose pointers point to memory that this keeps.
unsafe impl Send for Tensor {}

impl Tensor {
    /// A row-major tensor over `memory`. `None` if elements of this size and shape do not take exactly all of it, or a
    /// dimension is 2^63 or more.
    pub fn new(memory: Memory, element: ElementType, shape: &[u64]) -> Option<Tensor> {
        let flags = memory.flags;
        let make = |tensor| Versioned {
            version: Version { major: VERSION.0, minor: VERSION.1 },
            context: ptr::null_mut(),
            deleter: Some(delete::<Versioned>),
            flags,
            tensor,
        };
        Some(Tensor { raw: lend(memory, element, shape, make)? })
    }

    /// Takes back what [`into_raw`](Tensor::into_raw) handed over.
    ///
    /// # Safety
    /// `raw` came from there. Neither its deleter nor this function was called on it, nor will be again.
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Tensor> {
        Some(Tensor { raw: NonNull::new(raw.cast())? })
    }

    /// The address of the `DLManagedTensorVersioned`, which the caller now owns. Its owner calls its `deleter` once,
    /// from any thread.
    pub fn into_raw(self) -> *mut c_void {
        let raw = self.raw;
        std::mem::forget(self);
        raw.as_ptr().cast()
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `lend` and was not handed over, so it is freed here and nowhere else.
        drop(unsafe { Box::from_raw(self.raw.as_ptr()) });
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:p})", self.raw)
    }
}

/// Like [`Tensor`], for consumers older than version 1.0: the address of a `DLManagedTensor`, which its `deleter`
/// frees. `None` for read-only memory as well, because this struct cannot say so.
pub fn into_legacy_raw(memory: Memory, element: ElementType, shape: &[u64]) -> Option<*mut c_void> {
    if memory.is_read_only() {
        return None;
    }
    let make = |tensor| Legacy { tensor, context: ptr::null_mut(), deleter: Some(delete::<Legacy>) };
    Some(lend(memory, element, shape, make)?.as_ptr().cast())
}

/// Frees a tensor of [`into_legacy_raw`] that no consumer took.
///
/// # Safety
/// `raw` came from there. Neither its deleter nor this function was called on it, nor will be again.
pub unsafe fn free_legacy_raw(raw: *mut c_void) {
    // SAFETY: by the caller's promise the tensor is freed here and nowhere else.
    unsafe { delete::<Legacy>(raw.cast()) }
}

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct RawTensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Legacy {
    tensor: RawTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: RawTensor,
}

/// What the consumer gets the address of, followed by what that points to. With `repr(C)` a pointer to the whole is
/// also one to its first field.
#[repr(C)]
struct Lent<Managed> {
    managed: Managed,
    _owner: Box<dyn Send>,
    /// The shape, followed by the strides.
    _dimensions: Box<[i64]>,
}

fn lend<Managed>(
    memory: Memory,
    element: ElementType,
    shape: &[u64],
    make: impl FnOnce(RawTensor) -> Managed,
) -> Option<NonNull<Lent<Managed>>> {
    let size = u64::from(element.bits / 8);
    let bytes = shape.iter().try_fold(size, |bytes, &dimension| bytes.checked_mul(dimension))?;
    // A consumer rounds the bits of an element up to bytes.
    if bytes != memory.len as u64 || size == 0 || !element.bits.is_multiple_of(8) {
        return None;
    }
    let mut dimensions = Vec::with_capacity(shape.len() * 2);
    for &dimension in shape {
        dimensions.push(i64::try_from(dimension).ok()?);
    }
    for index in 1..=shape.len() {
        dimensions.push(shape[index..].iter().map(|&dimension| dimension.max(1) as i64).product());
    }
    let mut dimensions = dimensions.into_boxed_slice();
    let (of_shape, of_strides) = dimensions.split_at_mut(shape.len());
    let tensor = RawTensor {
        data: memory.address,
        device: Device { kind: memory.device.0, number: memory.device.1 },
        dimensions: i32::try_from(shape.len()).ok()?,
        dtype: DataType { code: element.code, bits: element.bits, lanes: 1 },
        shape: of_shape.as_mut_ptr(),
        strides: of_strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let lent = Lent { managed: make(tensor), _owner: memory.owner, _dimensions: dimensions };
    NonNull::new(Box::into_raw(Box::new(lent)))
}

/// Frees a tensor. The consumer calls it once.
unsafe extern "C" fn delete<Managed>(managed: *mut Managed) {
    if managed.is_null() {
        return;
    }
    // SAFETY: `managed` is the first field (`repr(C)`) of a `Lent<Managed>` that `lend` boxed. By the contract of
    // DLPack a deleter is called once, when the tensor is no longer used.
    drop(unsafe { Box::from_raw(managed.cast::<Lent<Managed>>()) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const F32: ElementType = ElementType { code: 2, bits: 32 };

    fn counted(len: usize) -> (Arc<()>, Memory) {
        struct Owner(Vec<u8>, #[expect(dead_code, reason = "it is counted")] Arc<()>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let count = Arc::new(());
        let bytes = Bytes::from_owner(Owner((0..len).map(|byte| byte as u8).collect(), Arc::clone(&count)));
        // SAFETY: the allocation belongs to the tensor alone: no other handle on it exists.
        (count, unsafe { Memory::host_mut(bytes) })
    }

    fn flags_of(memory: Memory) -> u64 {
        let raw = Tensor::new(memory, F32, &[2]).unwrap().into_raw();
        // SAFETY: made above and not freed.
        let flags = unsafe { &*raw.cast::<Versioned>() }.flags;
        // SAFETY: as above.
        drop(unsafe { Tensor::from_raw(raw) });
        flags
    }

    #[test]
    fn shared_memory_is_lent_for_reading_only() {
        let shared = Bytes::from(vec![0; 8]);
        assert_eq!(flags_of(Memory::host(shared.clone())), READ_ONLY);
        assert_eq!(flags_of(Memory::host(shared.clone()).copied()), READ_ONLY | IS_COPIED);
        assert!(into_legacy_raw(Memory::host(shared), F32, &[2]).is_none(), "it cannot say that it is read-only");
        assert_eq!((flags_of(counted(8).1), flags_of(counted(8).1.copied())), (0, IS_COPIED));
    }

    #[test]
    fn elements_are_whole_bytes() {
        for bits in [0, 1, 4, 12, 255] {
            for len in [0, 8] {
                let element = ElementType { code: 2, bits };
                assert!(Tensor::new(counted(len).1, element, &[len as u64]).is_none(), "{bits} bits");
                assert!(into_legacy_raw(counted(len).1, element, &[len as u64]).is_none(), "{bits} bits");
            }
        }
    }

    #[test]
    fn a_tensor_is_what_the_header_says() {
        assert_eq!((size_of::<RawTensor>(), size_of::<Versioned>(), size_of::<Legacy>()), (48, 80, 64));
        let (count, memory) = counted(2 * 3 * 4 * 4);
        let raw = Tensor::new(memory.copied(), F32, &[2, 3, 4]).unwrap().into_raw().cast::<Versioned>();
        // SAFETY: made above and not freed.
        let Versioned { version, flags, tensor, deleter, .. } = unsafe { &*raw };
        assert_eq!((version.major, *flags, tensor.dimensions, tensor.dtype.bits), (1, IS_COPIED, 3, 32));
        // SAFETY: the tensor has three dimensions and three strides.
        let shape = unsafe { std::slice::from_raw_parts(tensor.shape, 3) };
        // SAFETY: as above.
        let strides = unsafe { std::slice::from_raw_parts(tensor.strides, 3) };
        assert_eq!((shape, strides), (&[2, 3, 4][..], &[12, 4, 1][..]));
        // SAFETY: the tensor has 96 bytes.
        let data = unsafe { std::slice::from_raw_parts(tensor.data.cast::<u8>(), 96) };
        assert!(data.iter().copied().eq(0..96) && Arc::strong_count(&count) == 2);
        let delete = deleter.unwrap();
        // SAFETY: called once, and nothing of it is used after this.
        unsafe { delete(raw) };
        assert_eq!(Arc::strong_count(&count), 1, "freed once");
    }

    #[test]
    fn what_nobody_takes_is_freed() {
        let (count, memory) = counted(8);
        drop(Tensor::new(memory, F32, &[2]).unwrap());
        assert_eq!(Arc::strong_count(&count), 1);
        let (count, memory) = counted(8);
        let raw = Tensor::new(memory, F32, &[2]).unwrap().into_raw();
        // SAFETY: handed over on the line above, and not freed.
        drop(unsafe { Tensor::from_raw(raw) });
        assert_eq!(Arc::strong_count(&count), 1);
        let (count, memory) = counted(8);
        let raw = into_legacy_raw(memory, F32, &[2]).unwrap();
        // SAFETY: made on the line above, and not freed.
        unsafe { free_legacy_raw(raw) };
        assert_eq!(Arc::strong_count(&count), 1);
        let (count, memory) = counted(8);
        let raw = into_legacy_raw(memory, F32, &[1, 2]).unwrap().cast::<Legacy>();
        // SAFETY: made above and not freed.
        let delete = unsafe { &*raw }.deleter.unwrap();
        // SAFETY: called once, and nothing of it is used after this.
        unsafe { delete(raw) };
        assert_eq!(Arc::strong_count(&count), 1);
        for shape in [&[3][..], &[1 << 63, 2], &[]] {
            let (count, memory) = counted(8);
            assert!(Tensor::new(memory, F32, shape).is_none());
            assert_eq!(Arc::strong_count(&count), 1);
        }
    }
}

//! Device memory of another library's allocator, by DLPack's C exchange API.

use super::{DataType, Device, Memory, RawTensor, Version, Versioned};
use crate::cuda::{DeviceAllocator, StreamRef};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `DLPackManagedTensorAllocator`: a new tensor (`DLManagedTensorVersioned`) of the device, type and shape that the
/// first one (`DLTensor`) has, which is only looked at. The last two are for what went wrong.
pub type Allocate =
    unsafe extern "C" fn(prototype: *mut c_void, made: *mut *mut c_void, context: *mut c_void, tell: Tell) -> c_int;

/// An allocator reports an error by this function: a kind and a message.
pub type Tell = unsafe extern "C" fn(context: *mut c_void, kind: *const c_char, message: *const c_char);

/// `DLPackCurrentWorkStream`: the stream that the calling thread works in on a device.
pub type CurrentStream = unsafe extern "C" fn(kind: c_int, device: i32, stream: *mut *mut c_void) -> c_int;

/// `DLDataTypeCode` of unsigned integers.
const UNSIGNED: u8 = 1;

/// The allocator of a library of tensors, such as PyTorch's caching one: each allocation is a tensor of bytes.
pub struct Allocator {
    allocate: Allocate,
    current_stream: CurrentStream,
    /// By address.
    taken: Mutex<HashMap<u64, Taken>>,
}

/// A tensor of theirs, deleted once.
struct Taken(NonNull<Versioned>);

// SAFETY: DLPack lets any thread delete a tensor, and nothing else is done with it.
unsafe impl Send for Taken {}

impl Allocator {
    /// # Safety
    /// They are the `managed_tensor_allocator` and the `current_work_stream` of an exchange API (DLPack 1.3) of major
    /// version 1, in a library that stays loaded. Any thread may call them. Only the holder of one of its tensors uses
    /// that tensor's memory, except work that is in the current stream when it is made, and that stream lives until the
    /// thread makes another one current.
    pub unsafe fn new(allocate: Allocate, current_stream: CurrentStream) -> Allocator {
        Allocator { allocate, current_stream, taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<u64, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tensor of `len` bytes on a device; or why there is none, or that it is not what was asked for.
    fn take(&self, (kind, number): (i32, i32), len: i64) -> Result<Taken, String> {
        let (mut shape, mut made) = (len, ptr::null_mut());
        let mut prototype = RawTensor {
            data: ptr::null_mut(),
            device: Device { kind, number },
            dimensions: 1,
            dtype: DataType { code: UNSIGNED, bits: 8, lanes: 1 },
            shape: &raw mut shape,
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let (asked, mut told): (*mut RawTensor, _) = (&raw mut prototype, String::new());
        let to: *mut String = &raw mut told;
        // SAFETY: the function is what `new` was promised. The prototype, its shape, the place for an address and the
        // text live until it returns, which is as long as it looks at them and calls `keep`.
        let code = unsafe { (self.allocate)(asked.cast(), &raw mut made, to.cast(), keep) };
        let Some(made) = NonNull::new(made.cast()).filter(|_| code == 0) else {
            return Err(if told.is_empty() { format!("it has no {len} bytes, and does not say why") } else { told });
        };
        let taken = Taken(made);
        // SAFETY: it succeeded, so this is a tensor, which is ours. Every version of the struct begins with its number.
        let Version { major, .. } = unsafe { &(*taken.0.as_ptr()).version };
        // What has another version has its deleter elsewhere, and is left alone.
        if *major != super::VERSION.0 {
            let major = *major;
            std::mem::forget(taken);
            return Err(format!("its tensors are of DLPack {major}, which we do not know"));
        }
        // SAFETY: as above, of a version that has all members at these places.
        let RawTensor { device, .. } = unsafe { &(*taken.0.as_ptr()).tensor };
        if (device.kind, device.number) != (kind, number) || taken.address() == 0 {
            return Err(format!("its tensor is on device {} of kind {}", device.number, device.kind));
        }
        Ok(taken)
    }

    fn stream(&self, (kind, number): (i32, i32)) -> Result<StreamRef, String> {
        let mut stream = ptr::null_mut();
        // SAFETY: the function is what `new` was promised, and the pointer is to a handle that lives until it returns.
        match unsafe { (self.current_stream)(kind, number, &raw mut stream) } {
            // SAFETY: a stream of the device's primary context, which is the process's only one there, and lives as
            // long as `DeviceAllocator` asks for (`new`).
            0 => Ok(unsafe { StreamRef::from_raw(stream) }),
            code => Err(format!("it does not say which stream is current (code {code})")),
        }
    }
}

impl Taken {
    fn address(&self) -> u64 {
        // SAFETY: a tensor that `take` has checked, and that is deleted when this is dropped.
        let RawTensor { data, byte_offset, .. } = unsafe { &(*self.0.as_ptr()).tensor };
        (data.addr() as u64).wrapping_add(*byte_offset)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: as in `address`.
        let deleter = unsafe { (*self.0.as_ptr()).deleter };
        if let Some(delete) = deleter {
            // SAFETY: it is the tensor's own deleter, called once, when the tensor is no longer used.
            unsafe { delete(self.0.as_ptr()) };
        }
    }
}

/// Keeps the error.
///
/// # Safety
/// `to` is a `String` that no other code uses meanwhile; the others are null or texts that end with a zero.
unsafe extern "C" fn keep(to: *mut c_void, kind: *const c_char, message: *const c_char) {
    // SAFETY: as the caller promises: it passes on what `take` gave it.
    let to = unsafe { &mut *to.cast::<String>() };
    for text in [kind, message].into_iter().filter(|text| !text.is_null()) {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        to.push_str(if to.is_empty() { "" } else { ": " });
        to.push_str(text.trim());
    }
}

// SAFETY: the result is the memory of a tensor of as many bytes as were asked for. No other code uses it until the
// tensor is deleted (`new`), and that is what `free` does.
unsafe impl DeviceAllocator for Allocator {
    fn allocate(&self, index: u32, len: usize) -> Result<(u64, StreamRef), String> {
        let (Ok(number), Ok(len)) = (i32::try_from(index), i64::try_from(len)) else {
            return Err(format!("{len} bytes are more than it can be asked for"));
        };
        let device = (Memory::CUDA, number);
        let taken = self.take(device, len)?;
        let (address, stream) = (taken.address(), self.stream(device)?);
        self.taken().insert(address, taken);
        Ok((address, stream))
    }

    fn free(&self, _index: u32, address: u64) {
        let taken = self.taken().remove(&address);
        // Not under the lock: it is another library's function.
        drop(taken);
    }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("taken", &self.taken().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlpack::{ElementType, Tensor};
    use bytes::Bytes;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Bytes of tensors that were made and not deleted; a number for each of the two tests.
    static ALIVE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

    struct Counted(Vec<u8>, usize);

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE[self.1].fetch_sub(self.0.len(), Ordering::SeqCst);
        }
    }

    /// Makes tensors on the host that say that they are where they were wanted; none of 13 bytes, some of another
    /// version of 14, and on another device of 15.
    ///
    /// # Safety
    /// As [`Allocate`].
    unsafe fn make(
        prototype: *mut c_void,
        made: *mut *mut c_void,
        (context, tell): (*mut c_void, Tell),
        test: usize,
    ) -> c_int {
        // SAFETY: the prototype is a tensor of one dimension, by the contract of the function.
        let asked = unsafe { &*prototype.cast::<RawTensor>() };
        assert_eq!((asked.dimensions, asked.dtype.code, asked.dtype.bits, asked.dtype.lanes), (1, 1, 8, 1));
        // SAFETY: as above.
        let len = unsafe { *asked.shape } as usize;
        if len == 13 {
            // SAFETY: the texts end with a zero.
            unsafe { tell(context, c"MemoryError".as_ptr(), c"unlucky".as_ptr()) };
            return -1;
        }
        ALIVE[test].fetch_add(len, Ordering::SeqCst);
        let memory = Memory::host(Bytes::from_owner(Counted(vec![0; len], test)));
        let tensor = Tensor::new(memory, ElementType { code: 1, bits: 8 }, &[len as u64]).unwrap().into_raw();
        // SAFETY: made above, and handed over below.
        let lent = unsafe { &mut *tensor.cast::<Versioned>() };
        lent.tensor.device = Device { kind: asked.device.kind, number: asked.device.number + i32::from(len == 15) };
        lent.version.major += u32::from(len == 14);
        // SAFETY: a place for an address.
        unsafe { made.write(tensor) };
        0
    }

    unsafe extern "C" fn first(asked: *mut c_void, made: *mut *mut c_void, to: *mut c_void, tell: Tell) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { make(asked, made, (to, tell), 0) }
    }

    unsafe extern "C" fn second(asked: *mut c_void, made: *mut *mut c_void, to: *mut c_void, tell: Tell) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { make(asked, made, (to, tell), 1) }
    }

    /// Device 5 has none.
    unsafe extern "C" fn current(kind: c_int, device: i32, stream: *mut *mut c_void) -> c_int {
        assert_eq!(kind, Memory::CUDA);
        // SAFETY: a place for a handle.
        unsafe { stream.write(ptr::without_provenance_mut(0x100 * device as usize)) };
        c_int::from(device == 5)
    }

    #[test]
    fn memory_is_that_of_tensors_which_are_deleted_once() {
        // SAFETY: it makes tensors of its own.
        let allocator = unsafe { Allocator::new(first, current) };
        let ((one, stream), (other, default)) =
            (allocator.allocate(3, 1000).unwrap(), allocator.allocate(0, 24).unwrap());
        assert_eq!((stream.as_raw().addr(), default), (0x300, StreamRef::LEGACY));
        assert!(one != other && ALIVE[0].load(Ordering::SeqCst) == 1024);
        assert_eq!(format!("{allocator:?}"), "Allocator { taken: 2 }");
        allocator.free(3, one);
        allocator.free(3, one);
        assert_eq!(ALIVE[0].load(Ordering::SeqCst), 24);
        drop(allocator);
        assert_eq!(ALIVE[0].load(Ordering::SeqCst), 0);
    }

    #[test]
    fn what_is_no_such_tensor_is_no_memory() {
        // SAFETY: as above.
        let allocator = unsafe { Allocator::new(second, current) };
        assert_eq!(allocator.allocate(0, 13), Err("MemoryError: unlucky".to_owned()));
        assert!(allocator.allocate(0, 15).unwrap_err().contains("on device 1 of kind 2"));
        assert!(allocator.allocate(5, 16).unwrap_err().contains("which stream"));
        assert_eq!(ALIVE[1].load(Ordering::SeqCst), 0, "those that are of no use are deleted");
        // Its deleter is unknown.
        assert!(allocator.allocate(0, 14).unwrap_err().contains("of DLPack 2"));
        assert_eq!(ALIVE[1].load(Ordering::SeqCst), 14);
        assert!(allocator.allocate(0, usize::MAX).is_err());
    }
}

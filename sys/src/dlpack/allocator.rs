//! Device memory of another library's allocator, by DLPack's C exchange API.

use super::{DataType, Device, Memory, RawTensor, Version, Versioned};
use crate::cuda::DeviceAllocator;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `DLPackManagedTensorAllocator`: a new tensor (`DLManagedTensorVersioned`) of the device, type and shape that the
/// first one (`DLTensor`) has, which is only looked at. The last two are for what went wrong.
pub type Allocate =
    unsafe extern "C" fn(prototype: *mut c_void, made: *mut *mut c_void, context: *mut c_void, tell: Tell) -> c_int;

/// How an allocator tells what went wrong: a kind and a message.
pub type Tell = unsafe extern "C" fn(context: *mut c_void, kind: *const c_char, message: *const c_char);

/// `DLDataTypeCode` of unsigned integers.
const UNSIGNED: u8 = 1;

/// The allocator of a library of tensors, such as PyTorch's caching one: each allocation is a tensor of bytes.
pub struct Allocator {
    allocate: Allocate,
    /// By address.
    taken: Mutex<HashMap<u64, Taken>>,
}

/// A tensor of theirs, deleted once.
struct Taken(NonNull<Versioned>);

// SAFETY: DLPack lets any thread delete a tensor, and nothing else is done with it.
unsafe impl Send for Taken {}

impl Allocator {
    /// # Safety
    /// `allocate` is the `managed_tensor_allocator` of an exchange API (DLPack 1.3) of major version 1, in a library
    /// that stays loaded. Any thread may call it, and nobody but who has one of its tensors uses that tensor's memory.
    pub unsafe fn new(allocate: Allocate) -> Allocator {
        Allocator { allocate, taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<u64, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tensor of `len` bytes on a device; `None` if there is none, or if it is not what was asked for.
    fn take(&self, (kind, number): (i32, i32), len: i64) -> Option<Taken> {
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
        let asked: *mut RawTensor = &raw mut prototype;
        // SAFETY: the function is what `new` was promised. The prototype, its shape and the place for an address live
        // until it returns, which is as long as it looks at them; `ignore` may be called with anything.
        let code = unsafe { (self.allocate)(asked.cast(), &raw mut made, ptr::null_mut(), ignore) };
        let taken = Taken(NonNull::new(made.cast()).filter(|_| code == 0)?);
        // SAFETY: it succeeded, so this is a tensor, which is ours. Every version of the struct begins with its number.
        let Version { major, .. } = unsafe { &(*taken.0.as_ptr()).version };
        // What has another version has its deleter elsewhere, and is left alone.
        if *major != super::VERSION.0 {
            std::mem::forget(taken);
            return None;
        }
        // SAFETY: as above, of a version that has all members at these places.
        let RawTensor { device, .. } = unsafe { &(*taken.0.as_ptr()).tensor };
        let is_there = (device.kind, device.number) == (kind, number) && taken.address() != 0;
        is_there.then_some(taken)
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
            // SAFETY: it is the tensor's own deleter, called once, when nobody uses the tensor any more.
            unsafe { delete(self.0.as_ptr()) };
        }
    }
}

/// What went wrong is told in the error of who asked: there was no memory.
unsafe extern "C" fn ignore(_context: *mut c_void, _kind: *const c_char, _message: *const c_char) {}

// SAFETY: what is returned is the memory of a tensor of as many bytes as were asked for, which nobody else uses until
// it is deleted (`new`), and that is what `free` does.
unsafe impl DeviceAllocator for Allocator {
    fn allocate(&self, index: u32, len: usize) -> Option<u64> {
        let device = (Memory::CUDA, i32::try_from(index).ok()?);
        let taken = self.take(device, i64::try_from(len).ok()?)?;
        let address = taken.address();
        self.taken().insert(address, taken);
        Some(address)
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
    unsafe fn make(prototype: *mut c_void, made: *mut *mut c_void, tell: Tell, test: usize) -> c_int {
        // SAFETY: the prototype is a tensor of one dimension, by the contract of the function.
        let asked = unsafe { &*prototype.cast::<RawTensor>() };
        assert_eq!((asked.dimensions, asked.dtype.code, asked.dtype.bits, asked.dtype.lanes), (1, 1, 8, 1));
        // SAFETY: as above.
        let len = unsafe { *asked.shape } as usize;
        if len == 13 {
            // SAFETY: the texts end with a zero.
            unsafe { tell(ptr::null_mut(), c"MemoryError".as_ptr(), c"unlucky".as_ptr()) };
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

    unsafe extern "C" fn first(asked: *mut c_void, made: *mut *mut c_void, _: *mut c_void, tell: Tell) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { make(asked, made, tell, 0) }
    }

    unsafe extern "C" fn second(asked: *mut c_void, made: *mut *mut c_void, _: *mut c_void, tell: Tell) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { make(asked, made, tell, 1) }
    }

    #[test]
    fn memory_is_that_of_tensors_which_are_deleted_once() {
        // SAFETY: it makes tensors of its own.
        let allocator = unsafe { Allocator::new(first) };
        let (one, other) = (allocator.allocate(3, 1000).unwrap(), allocator.allocate(0, 24).unwrap());
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
        let allocator = unsafe { Allocator::new(second) };
        assert_eq!((allocator.allocate(0, 13), allocator.allocate(0, 15)), (None, None));
        assert_eq!(ALIVE[1].load(Ordering::SeqCst), 0, "the one of another device is deleted");
        // Nobody knows how to delete it.
        assert_eq!((allocator.allocate(0, 14), ALIVE[1].load(Ordering::SeqCst)), (None, 14));
        assert_eq!(allocator.allocate(0, usize::MAX), None);
    }
}

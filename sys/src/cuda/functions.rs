//! Device memory by a pair of C functions, of the types that PyTorch's `CUDAPluggableAllocator` takes.

use super::memory::DeviceAllocator;
use super::stream::StreamRef;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// `void *allocate(ssize_t bytes, int device, cudaStream_t stream)`: null where there is no memory.
pub type Allocate = unsafe extern "C" fn(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void;

/// `void free(void *memory, ssize_t bytes, int device, cudaStream_t stream)`.
pub type Free = unsafe extern "C" fn(memory: *mut c_void, bytes: isize, device: c_int, stream: *mut c_void);

/// An allocator of two functions. The stream is the default one, 0: memory is waited for there when it is taken, and no
/// stream uses it when it comes back.
#[derive(Debug)]
pub struct AllocatorFunctions {
    allocate: Allocate,
    free: Free,
    /// Bytes by address.
    taken: Mutex<HashMap<u64, isize>>,
}

impl AllocatorFunctions {
    /// # Safety
    /// The functions are of these types, and any thread may call them as long as this lives. `allocate` returns null,
    /// or the address of as many bytes of the device's memory as it was asked for. No other code uses them until `free`
    /// gets them back, except work that is in the default stream by then.
    pub unsafe fn new(allocate: Allocate, free: Free) -> AllocatorFunctions {
        AllocatorFunctions { allocate, free, taken: Mutex::default() }
    }
}

// SAFETY: what `new` was promised.
unsafe impl DeviceAllocator for AllocatorFunctions {
    fn allocate(&self, index: u32, len: usize) -> Result<(u64, StreamRef), String> {
        let (Ok(bytes), Ok(device)) = (isize::try_from(len), c_int::try_from(index)) else {
            return Err(format!("{len} bytes are more than it can be asked for"));
        };
        // SAFETY: the function has this type (`new`).
        let address = unsafe { (self.allocate)(bytes, device, ptr::null_mut()) }.addr() as u64;
        if address == 0 {
            return Err(format!("it returned null for {len} bytes"));
        }
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
        Ok((address, StreamRef::LEGACY))
    }

    fn free(&self, index: u32, address: u64) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        let (Some(bytes), Ok(device)) = (taken, c_int::try_from(index)) else { return };
        let memory = ptr::without_provenance_mut(address as usize);
        // SAFETY: the function has this type, and gets what `allocate` returned, once: it is taken out above.
        unsafe { (self.free)(memory, bytes, device, ptr::null_mut()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static FREED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn allocate(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
        assert!(stream.is_null());
        if bytes > 1000 { ptr::null_mut() } else { ptr::without_provenance_mut((4096 * (device + 1)) as usize) }
    }

    unsafe extern "C" fn free(memory: *mut c_void, bytes: isize, device: c_int, stream: *mut c_void) {
        assert!(stream.is_null() && memory.addr() == 4096 * (device as usize + 1) && bytes == 500);
        FREED.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn memory_comes_back_once_and_with_its_length() {
        // SAFETY: the addresses are never dereferenced.
        let functions = unsafe { AllocatorFunctions::new(allocate, free) };
        assert_eq!(functions.allocate(2, 500), Ok((3 * 4096, StreamRef::LEGACY)));
        assert!(functions.allocate(2, 1001).unwrap_err().contains("1001 bytes"));
        assert!(functions.allocate(0, usize::MAX).is_err());
        functions.free(2, 77);
        functions.free(2, 3 * 4096);
        functions.free(2, 3 * 4096);
        assert_eq!(FREED.load(Ordering::SeqCst), 1);
    }
}

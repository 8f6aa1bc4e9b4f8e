//! The C face: pointers that a caller passes, as types that can be used in one way only, and codes of `CUresult`.
//!
//! Each type is made by the caller of an exported function and by nobody else, so whoever has one has the caller's word
//! for what `cuda.h` says of that parameter. That is what the proofs here stand on.

use std::ffi::{CStr, c_char, c_int, c_void};

/// `CUresult`.
pub type Code = c_int;

pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
pub const OUT_OF_MEMORY: Code = 2;
pub const NOT_INITIALIZED: Code = 3;
pub const NO_DEVICE: Code = 100;
pub const INVALID_DEVICE: Code = 101;
pub const INVALID_CONTEXT: Code = 201;
pub const INVALID_PTX: Code = 218;
pub const INVALID_HANDLE: Code = 400;
pub const NOT_FOUND: Code = 500;
pub const NOT_READY: Code = 600;
pub const ILLEGAL_ADDRESS: Code = 700;
pub const CONTEXT_IS_DESTROYED: Code = 709;
pub const ALREADY_REGISTERED: Code = 712;
pub const NOT_REGISTERED: Code = 713;
pub const MISALIGNED_ADDRESS: Code = 716;
pub const LAUNCH_FAILED: Code = 719;

/// Exports functions. `$before` is asked first, with the function's name, and may refuse the call.
macro_rules! exports {
    ($before:path; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: nothing else of this name is linked into the library, and a process has one driver.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> $crate::abi::Code {
            let answer = $before(stringify!($name)).and_then(move |()| $body);
            answer.err().unwrap_or($crate::abi::SUCCESS)
        }
    )*};
}
pub(crate) use exports;

/// A place that the caller wants a result in, or null.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result; a null place is the error that the driver has for it.
    pub fn set(self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's place for one `T`, by `cuda.h`.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// A buffer that the caller wants a string in.
#[repr(transparent)]
pub struct OutText(*mut c_char);

impl OutText {
    /// Writes as much of `text` as fits into `len` bytes with the zero behind it.
    pub fn set(self, text: &str, len: c_int) -> Result<(), Code> {
        let len = usize::try_from(len).ok().filter(|&len| len > 0).ok_or(INVALID_VALUE)?;
        let kept = text.len().min(len - 1);
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        let mut bytes = text.as_bytes()[..kept].to_vec();
        bytes.push(0);
        // SAFETY: the caller's buffer has `len` bytes, and `bytes` has as many at most.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        Ok(())
    }
}

/// A string of the caller's.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The string; none where the pointer is null or the string no UTF-8.
    pub fn get(&self) -> Option<&str> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, and a string that ends with a zero, by `cuda.h`; it outlives the call, and so `self`.
        unsafe { CStr::from_ptr(self.0) }.to_str().ok()
    }
}

/// Memory of the host, which whoever named it keeps readable and writable: for the length of the call, or, once it is
/// registered, until it was unregistered.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct HostPointer(*mut c_void);

// SAFETY: an address; what may be done with it is said at each use.
unsafe impl Send for HostPointer {}

impl HostPointer {
    /// The address.
    pub fn address(self) -> usize {
        self.0.addr()
    }

    /// Its first `len` bytes. Called while the promise of the type holds: in the call, or while it is registered.
    pub fn read(self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: the caller of the driver keeps the range readable for as long as this is called. Where it writes to
        // it meanwhile, against the rules, is what the mock is there to notice; bytes have no invalid value.
        unsafe { std::ptr::copy_nonoverlapping(self.0.cast(), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Writes to it. Called while the promise of the type holds.
    pub fn write(self, bytes: &[u8]) {
        // SAFETY: the caller of the driver keeps the range writable for as long as this is called, and lets nothing
        // else write to it until it was told that the copy is done.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
    }

    /// Writes the word at the address, as a device does it: whole, and behind everything before it.
    pub fn store(address: u64, value: u32) {
        let pointer = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
        // SAFETY: the address is that of a word inside registered memory (the caller has looked that up, and its
        // alignment), all of whose users access it as an atomic.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(pointer) };
        word.store(value, std::sync::atomic::Ordering::Release);
    }

    /// Lets `store` write to it.
    pub fn expose(self) {
        let _ = self.0.expose_provenance();
    }
}

/// Parameters of a kernel: a pointer to each, of which the kernel's definition knows type and order.
#[repr(transparent)]
pub struct Parameters(*mut *mut c_void);

impl Parameters {
    /// Parameter `index` of a kernel that has more than that, which is a `T`.
    pub fn get<T: Copy>(&self, index: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the list has a pointer for each parameter of the kernel, by `cuda.h`.
        let place = unsafe { self.0.add(index) };
        // SAFETY: as above; the list outlives the call.
        let place = unsafe { place.read() };
        if place.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: it points to a parameter of the kernel's type, which outlives the call.
        Ok(unsafe { place.cast::<T>().read_unaligned() })
    }
}

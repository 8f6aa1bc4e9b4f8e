//! The C interface: a caller's pointers, as types that can be used in only one way, and the codes of `CUresult`.
//!
//! Only the caller of an exported function makes these types, so whoever has one has the caller's promise of what
//! `cuda.h` says about that parameter. The proofs here rest on that.

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
pub const NO_BINARY: Code = 209;
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
pub const CAPTURE_UNSUPPORTED: Code = 900;
pub const CAPTURE_INVALIDATED: Code = 901;
pub const CAPTURE_UNMATCHED: Code = 903;
pub const CAPTURE_ISOLATION: Code = 905;
pub const CAPTURE_IMPLICIT: Code = 906;
pub const CAPTURED_EVENT: Code = 907;
pub const CAPTURE_WRONG_THREAD: Code = 908;

/// Exports functions. `$before` is called first, with the function's name, and may refuse the call.
macro_rules! exports {
    ($before:path; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: nothing else with this name is linked into the library, and a process has one driver.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> $crate::abi::Code {
            let answer = $before(stringify!($name)).and_then(move |()| $body);
            answer.err().unwrap_or($crate::abi::SUCCESS)
        }
    )*};
}
pub(crate) use exports;

/// The place for a result, or null.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result; a null place gives the driver's error.
    pub fn set(self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's place for one `T`, by `cuda.h`.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// A list from the caller, or null.
#[repr(transparent)]
pub struct List<T>(*const T);

impl<T: Copy> List<T> {
    /// Its first `count` entries, as many as the caller says it has.
    pub fn get(&self, count: usize) -> Result<Vec<T>, Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and a list of `count` entries that outlives the call, by `cuda.h`.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) }.to_vec())
    }
}

/// `CUmemcpyAttributes`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CopyAttributes {
    pub order: c_int,
    _hints: [c_int; 4],
    pub flags: u32,
}

/// The place for a value that the call exchanges, or null.
#[repr(transparent)]
pub struct InOut<T>(*mut T);

impl<T: Copy> InOut<T> {
    /// Replaces the value by what `exchange` makes of it; a null place gives the driver's error.
    pub fn exchange(self, exchange: impl FnOnce(T) -> Result<T, Code>) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the caller's place for one `T`, which it has set, by `cuda.h`.
        let value = unsafe { self.0.read() };
        let value = exchange(value)?;
        // SAFETY: as above.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// The caller's buffer for a string.
#[repr(transparent)]
pub struct OutText(*mut c_char);

impl OutText {
    /// Writes as much of `text` as fits into `len` bytes with a zero after it.
    pub fn set(self, text: &str, len: c_int) -> Result<(), Code> {
        let len = usize::try_from(len).ok().filter(|&len| len > 0).ok_or(INVALID_VALUE)?;
        let kept = text.len().min(len - 1);
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        let mut bytes = text.as_bytes()[..kept].to_vec();
        bytes.push(0);
        // SAFETY: the caller's buffer has `len` bytes, and `bytes` has at most that many.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        Ok(())
    }
}

/// A string from the caller.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The string; `None` if the pointer is null or the string is not UTF-8.
    pub fn get(&self) -> Option<&str> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, and a string that ends with a zero, by `cuda.h`; it outlives the call, and so `self`.
        unsafe { CStr::from_ptr(self.0) }.to_str().ok()
    }
}

/// What a module is made of: PTX, or an ELF file.
#[repr(transparent)]
pub struct ModuleImage(*const c_char);

/// Bytes of an ELF file's head, and where its table of sections is named in it.
const ELF_HEAD: usize = 64;

impl ModuleImage {
    /// The bytes of an ELF file; `None` if it is none.
    pub fn elf(&self) -> Option<&[u8]> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null; PTX ends with a zero, so that it has a byte.
        if unsafe { self.0.cast::<u8>().read() } != 0x7f {
            return None;
        }
        // SAFETY: no text starts with that byte, so that it is an ELF file, and has a head; it outlives the call, and
        // so `self`.
        let head = unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), ELF_HEAD) };
        let number =
            |at: usize, len: usize| head[at..at + len].iter().rfold(0, |all, &byte| (all << 8) | usize::from(byte));
        // The table of sections is the last part of NVIDIA's files, or the one of program headers is.
        let sections = number(0x28, 8) + number(0x3a, 2) * number(0x3c, 2);
        let programs = number(0x20, 8) + number(0x36, 2) * number(0x38, 2);
        // SAFETY: as above; the tables lie inside the file.
        Some(unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), sections.max(programs)) })
    }

    /// The text of PTX; `None` if the pointer is null or it is not UTF-8.
    pub fn ptx(&self) -> Option<&str> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, and a string that ends with a zero, by `cuda.h`; it outlives the call, and so `self`.
        unsafe { CStr::from_ptr(self.0) }.to_str().ok()
    }
}

/// Host memory, which its provider keeps readable and writable: for the length of the call, or, once it is registered,
/// until it is unregistered.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct HostPointer(*mut c_void);

// SAFETY: it is only an address; each use says what may be done with it.
unsafe impl Send for HostPointer {}

impl HostPointer {
    /// A pointer of a list that holds it as a number.
    pub fn of_number(address: u64) -> HostPointer {
        HostPointer(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    /// The address.
    pub fn address(self) -> usize {
        self.0.addr()
    }

    /// Its first `len` bytes. Call it only while the type's promise holds: in the call, or while it is registered.
    pub fn read(self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: the driver's caller keeps the range readable for as long as this may be called. If it writes to the
        // range meanwhile, against the rules, the mock is there to notice that; bytes have no invalid value.
        unsafe { std::ptr::copy_nonoverlapping(self.0.cast(), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Writes to it. Call it only while the type's promise holds.
    pub fn write(self, bytes: &[u8]) {
        // SAFETY: the driver's caller keeps the range writable for as long as this may be called, and lets nothing else
        // write to it until it has been told that the copy is done.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
    }

    /// Writes the word at the address as a device does: whole, and after everything before it.
    pub fn store(address: u64, value: u32) {
        let pointer = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
        // SAFETY: the address is that of a word inside registered memory (the caller has looked that up, and its
        // alignment), all of whose users access it as an atomic.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(pointer) };
        word.store(value, std::sync::atomic::Ordering::Release);
    }

    /// Exposes its address, so that `store` may write to it.
    pub fn expose(self) {
        let _ = self.0.expose_provenance();
    }
}

/// The parameters of a kernel: a pointer to each; the kernel's definition gives their types and order.
#[repr(transparent)]
pub struct Parameters(*mut *mut c_void);

impl Parameters {
    /// Parameter `index`, a `T`, of a kernel that has more than `index` parameters.
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

//! A mock nvJPEG: a copy of the library for each test, so that no test sees another one's numbers.

use super::Mock;
use libloading::Library;
use mock_nvjpeg::Knob;
use std::ffi::{CString, c_char, c_int};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Keeps the copy of the loaded library, which is never unloaded.
pub struct Nvjpeg {
    library: ManuallyDrop<Library>,
    folder: TempDir,
}

impl Nvjpeg {
    /// One that gives its pixels to the driver.
    pub fn new(driver: &Mock) -> Nvjpeg {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = folder.path().join("libnvjpeg.so.12");
        std::fs::copy(built(), &path).expect("room for the library");
        // SAFETY: the library is the mock; loading it runs nothing but Rust's own initializers.
        let library = ManuallyDrop::new(unsafe { Library::new(&path) }.expect("a library"));
        // SAFETY: the type is that of the mock's definition.
        let name = unsafe { library.get::<unsafe extern "C" fn(*const c_char) -> c_int>(b"mock_nvjpeg_driver") };
        let text = CString::new(driver.path().into_os_string().into_encoded_bytes()).expect("no zero");
        // SAFETY: the text ends with a zero and outlives the call.
        assert_eq!(unsafe { name.expect("a function")(text.as_ptr()) }, 0);
        Nvjpeg { library, folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("libnvjpeg.so.12")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The same library without a function: its name in the file is changed.
    pub fn without(&self, symbol: &str) -> PathBuf {
        let mut bytes = std::fs::read(self.path()).expect("the library");
        let mut at = 0;
        while let Some(next) = bytes[at..].windows(symbol.len()).position(|window| window == symbol.as_bytes()) {
            at += next + symbol.len();
            bytes[at - 1] = b'#';
        }
        assert!(at > 0, "{symbol} is nowhere in the library");
        let path = self.folder.path().join("libnvjpeg-less.so");
        std::fs::write(&path, bytes).expect("room for the library");
        path
    }

    pub fn set(&self, knob: Knob, value: i64) {
        // SAFETY: the mock has a function with this name and type.
        let set = unsafe { self.library.get::<extern "C" fn(u32, i64)>(b"mock_nvjpeg_set") }.expect("a function");
        set(knob as u32, value);
    }

    pub fn get(&self, knob: Knob) -> i64 {
        // SAFETY: the mock has a function with this name and type.
        let get = unsafe { self.library.get::<extern "C" fn(u32) -> i64>(b"mock_nvjpeg_get") }.expect("a function");
        get(knob as u32)
    }

    /// Fails if anything was not given back, or was used as it must not be.
    pub fn assert_clean(&self) {
        let kept = [Knob::Handles, Knob::States, Knob::Blocks, Knob::Misuses];
        assert_eq!(kept.map(|knob| self.get(knob)), [0; 4]);
    }
}

/// The library that cargo built beside this test, or one folder above.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let mut folders = test.ancestors().skip(1).take(2).map(|folder| folder.join("libmock_nvjpeg.so"));
    folders.find(|path| path.exists()).expect("cargo builds the mock before its tests")
}

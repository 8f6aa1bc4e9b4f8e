//! The loaded mock, memory that represents a device's, and made-up systems.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use mock_cufile::Knob;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uringload::inspect::gds::{Configuration, Cufile, Facts, Options, Search};
use uringload_sys::cufile::{DeviceRange, OpenError};

/// Shorter than anything that hangs, longer than anything that does not.
pub const BOUND: Duration = Duration::from_millis(500);

/// The mock, and a turn to use it: its state, the environment and descriptor 0 belong to the process.
pub struct Mock {
    library: Library,
    pub scratch: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Mock {
    /// Waits for its turn, and resets everything to a machine on which everything works.
    pub fn new() -> Mock {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the mock has no initializers.
        let library = unsafe { Library::open(Some(path()), RTLD_NOW | RTLD_LOCAL) }.expect("the mock loads");
        let mock = Mock { library, scratch: tempfile::tempdir().unwrap(), _turn: turn };
        for knob in 0..=Knob::Faults as u32 {
            mock.set_number(knob, 0);
        }
        mock.set(Knob::Version, 1200);
        mock.set(Knob::NvidiaFs, 2030);
        mock
    }

    pub fn set(&self, knob: Knob, value: i64) {
        self.set_number(knob as u32, value);
    }

    fn set_number(&self, knob: u32, value: i64) {
        // SAFETY: the mock has a function with this name and type.
        let set: Symbol<extern "C" fn(u32, i64)> = unsafe { self.library.get(c"mock_cufile_set") }.unwrap();
        set(knob, value);
    }

    pub fn get(&self, knob: Knob) -> i64 {
        // SAFETY: the mock has a function with this name and type.
        let get: Symbol<extern "C" fn(u32) -> i64> = unsafe { self.library.get(c"mock_cufile_get") }.unwrap();
        get(knob as u32)
    }

    /// The library, for functions that the function table lacks.
    pub fn library(&self) -> &Library {
        &self.library
    }

    pub fn options(&self) -> Options {
        Options::new(Configuration::private(self.scratch.path().into(), false), BOUND).library(Some(path()))
    }

    pub fn open(&self) -> Result<Cufile, OpenError> {
        Cufile::open(self.options(), || Ok(()))
    }

    pub fn search(&self) -> Search {
        let scratch = Some(self.scratch.path().into());
        Search::default().library(path()).scratch(scratch).bound(BOUND)
    }

    /// Files and folders left in the scratch folder.
    pub fn leftovers(&self) -> usize {
        std::fs::read_dir(self.scratch.path()).unwrap().count()
    }
}

/// `libmock_cufile.so` beside this test's program, or one folder above.
pub fn path() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let mut folders = program.ancestors().skip(1).take(2).map(|folder| folder.join("libmock_cufile.so"));
    folders.find(|path| path.exists()).expect("cargo builds the mock beside its tests")
}

/// Host memory that stands in for a device's: only ever reached through addresses.
#[derive(Debug)]
pub struct Range {
    address: u64,
    len: usize,
}

impl Range {
    pub fn new(len: usize) -> Range {
        use rustix::mm::{MapFlags, ProtFlags};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
        Range { address: base.unwrap() as u64, len }
    }

    /// A copy of its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        let from = self.address as *const u8;
        // SAFETY: the mapping is as long as the copy and lives; a read in flight may give torn bytes, and no test looks
        // at memory while it is being read into.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(from, self.len) };
        bytes
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it and nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.address as *mut _, self.len) }.unwrap();
    }
}

// SAFETY: the mapping is made by `new`, unmapped by `drop` and never moves; bytes are only copied out of it.
unsafe impl DeviceRange for Range {
    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> u64 {
        self.len as u64
    }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A file with the pattern.
pub fn file(folder: &Path, len: usize) -> PathBuf {
    let path = folder.join("data");
    File::create(&path).unwrap().write_all(&pattern(len)).unwrap();
    path
}

/// Opens with `O_DIRECT`; `None`, after saying so, if the filesystem does not support it.
pub fn open_direct(path: &Path) -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    match rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Some(file),
        Err(error) => {
            eprintln!("skipped: no O_DIRECT at {path:?}: {error}");
            None
        }
    }
}

/// A system on which every guard holds.
pub fn native() -> Facts {
    Facts { modules: Some(vec!["nvidia_fs".into()]), nvidia_fs: true, udev: true, ..Facts::default() }
}

/// Waits until the condition holds.
pub fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} does not come to be");
        std::thread::sleep(Duration::from_millis(1));
    }
}

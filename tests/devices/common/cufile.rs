//! A mock cuFile, a system on which it may be used, and suitable data.

use super::dataset::Made;
use super::{Random, skip};
use libloading::Library;
use mock_cufile::Knob;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::Gds;
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::inspect::GdsSearch;

/// Longer than anything that does not hang.
pub const BOUND: Duration = Duration::from_secs(2);

/// A mock without another test's settings, and a turn to use it: cuFile is opened once per process.
pub struct Cufile {
    library: ManuallyDrop<Library>,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Cufile {
    /// A machine on which everything works.
    pub fn new() -> Cufile {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = folder.path().join("libcufile.so.0");
        std::fs::copy(built(), &path).expect("room for the library");
        // SAFETY: the library is the mock, which has no initializers.
        let library = ManuallyDrop::new(unsafe { Library::new(&path) }.expect("a library"));
        let cufile = Cufile { library, folder, _turn: turn };
        cufile.set(Knob::Version, 1200);
        cufile.set(Knob::NvidiaFs, 2030);
        for (name, text) in [
            ("proc/modules", "nvidia_fs 1 0 - Live 0x0\n"),
            ("proc/driver/nvidia-fs/devcount", "1\n"),
            ("run/udev/data/b1:0", "E:ID_FS_USAGE=filesystem\n"),
            ("tmp/empty", ""),
        ] {
            let path = cufile.folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        cufile
    }

    /// Where to find all of it.
    pub fn search(&self) -> GdsSearch {
        let root = self.folder.path().to_path_buf();
        let (library, scratch) = (Some(root.join("libcufile.so.0")), Some(root.join("tmp")));
        GdsSearch::default().library(library).scratch(scratch).bound(BOUND).root(root)
    }

    pub fn choice(&self, gds: Gds) -> (Gds, GdsSearch) {
        (gds, self.search())
    }

    /// The folder with the made-up system.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn set(&self, knob: Knob, value: i64) {
        // SAFETY: the mock has a function with this name and type.
        let set = unsafe { self.library.get::<extern "C" fn(u32, i64)>(b"mock_cufile_set") }.expect("a function");
        set(knob as u32, value);
    }

    pub fn get(&self, knob: Knob) -> i64 {
        // SAFETY: the mock has a function with this name and type.
        let get = unsafe { self.library.get::<extern "C" fn(u32) -> i64>(b"mock_cufile_get") }.expect("a function");
        get(knob as u32)
    }

    /// Fails unless cuFile soon releases everything.
    pub fn assert_closed(&self) {
        let held = || [Knob::Uses, Knob::Handles, Knob::Buffers].map(|knob| self.get(knob));
        let start = Instant::now();
        while held() != [0; 3] && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((held(), self.get(Knob::ClosedTooEarly)), ([0; 3], 0));
    }
}

/// The library that cargo built beside this test, or one folder above.
fn built() -> std::path::PathBuf {
    let test = std::env::current_exe().expect("a path");
    let mut folders = test.ancestors().skip(1).take(2).map(|folder| folder.join("libmock_cufile.so"));
    folders.find(|path| path.exists()).expect("cargo builds the mock before its tests")
}

/// Whether the tests' folder supports `O_DIRECT`; says so if not.
fn has_direct() -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("direct");
    std::fs::write(&path, [0; 4096]).expect("a file");
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
    opened.inspect_err(|error| skip(format_args!("no O_DIRECT for the tests' files: {error}"))).is_ok()
}

/// As [`super::within`], where files may be read past the page cache; nothing, said aloud, where not.
pub fn on_direct(bound: Duration, work: impl FnOnce() + Send + 'static) {
    if has_direct() {
        super::within(bound, work);
    }
}

/// Records in two files; those of 300001 bytes begin at odd offsets.
pub fn records(count: usize, record_bytes: u64, random: &mut Random) -> Made {
    records_of(count, record_bytes, |len| random.bytes(len))
}

/// As [`records`], of these bytes.
pub fn records_of(count: usize, record_bytes: u64, mut bytes: impl FnMut(usize) -> Vec<u8>) -> Made {
    let folder = folder();
    for name in ["a", "b"] {
        let bytes = bytes(count / 2 * record_bytes as usize);
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    }
    let options = Options::new().format("records").set("record_bytes", record_bytes);
    let dataset: Arc<dyn Dataset> = dataset::open(&[folder.path()], &options).expect("records");
    Made { dataset, folder }
}

/// Files of 0 to 700 KB in two classes.
pub fn files(count: usize, random: &mut Random) -> Made {
    let folder = folder();
    for index in 0..count {
        let class = folder.path().join(["one", "two"][index % 2]);
        std::fs::create_dir_all(&class).expect("a folder");
        let len = if random.chance(4) { random.below(5000) } else { random.below(700_000) };
        std::fs::write(class.join(format!("{index:03}")), random.bytes(len)).expect("a file");
    }
    let options = Options::new().format("folder").set("labels", true);
    let dataset: Arc<dyn Dataset> = dataset::open(&[folder.path()], &options).expect("a folder");
    Made { dataset, folder }
}

/// Arrays of 100 x 1000 floats in two `.npy` files.
pub fn arrays(rows: usize, random: &mut Random) -> Made {
    let folder = folder();
    for name in ["a.npy", "b.npy"] {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 100, 1000), }}", rows / 2);
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let len = (10 + text.len() + 1).next_multiple_of(64) - 10;
        bytes.extend((len as u16).to_le_bytes());
        bytes.extend(format!("{text:<width$}\n", width = len - 1).into_bytes());
        bytes.extend(random.bytes(rows / 2 * 400_000));
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    }
    let options = Options::new().format("npy").set("rows", true);
    let dataset = dataset::open(&[folder.path()], &options).expect("arrays");
    assert_eq!(dataset.schema().fields[0].dtype, DType::F32);
    Made { dataset, folder }
}

fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

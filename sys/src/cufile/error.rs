//! cuFile's errors: each number in its header, with its name, its meaning and a remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::abi::Status;

/// An error of cuFile (`CUfileOpError`). `Display` is one line: name, number, meaning, remedy.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CufileError {
    code: i32,
    cuda: i32,
}

/// A number, its name without `CU_FILE_`, its meaning, and what to do about it.
struct Entry(i32, &'static str, &'static str, &'static str);

impl CufileError {
    /// nvidia-fs is not loaded, and nothing else was allowed.
    pub const DRIVER_NOT_INITIALIZED: CufileError = CufileError::from_code(5001);
    /// An argument that cannot work.
    pub const INVALID_VALUE: CufileError = CufileError::from_code(5022);
    /// The file was not opened with `O_DIRECT`.
    pub const DIO_NOT_SET: CufileError = CufileError::from_code(5020);
    /// Other code in this process opened the driver.
    pub const DRIVER_ALREADY_OPEN: CufileError = CufileError::from_code(5026);
    /// Something inside cuFile broke, or it gave an answer that makes no sense.
    pub const INTERNAL_ERROR: CufileError = CufileError::from_code(5030);
    /// No more memory of the GPU can be pinned.
    pub const PINNING_FAILED: CufileError = CufileError::from_code(5036);

    /// The error with this number, whether or not the table knows it.
    pub const fn from_code(code: i32) -> CufileError {
        CufileError { code, cuda: 0 }
    }

    pub(super) fn check(status: Status) -> Result<(), CufileError> {
        if status.code == 0 { Ok(()) } else { Err(CufileError { code: status.code, cuda: status.cuda }) }
    }

    /// The error number. The table knows 5001 to 5049.
    pub fn code(&self) -> i32 {
        self.code
    }

    /// The CUDA driver's error (`CUresult`), if this is one (5011).
    pub fn cuda(&self) -> Option<i32> {
        (self.code == 5011).then_some(self.cuda)
    }

    /// The name without `CU_FILE_`, such as "IO_NOT_SUPPORTED"; "UNKNOWN" for a number that the table lacks.
    pub fn name(&self) -> &'static str {
        self.entry().map_or("UNKNOWN", |entry| entry.1)
    }

    /// What it means.
    pub fn meaning(&self) -> &'static str {
        self.entry().map_or("an error that cuFile 1.20 does not have", |entry| entry.2)
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        self.entry().map_or(REPORT, |entry| entry.3)
    }

    /// Whether fewer or smaller registrations may succeed: the limits of BAR1, of pinned memory and of cuFile itself.
    pub fn is_limit(&self) -> bool {
        matches!(self.code, 5003 | 5016 | 5017 | 5036 | 5043)
    }

    /// Every number of the table, in order.
    pub fn known() -> impl Iterator<Item = CufileError> {
        TABLE.iter().map(|entry| CufileError::from_code(entry.0))
    }

    fn entry(&self) -> Option<&'static Entry> {
        TABLE.iter().find(|entry| entry.0 == self.code)
    }
}

impl fmt::Display for CufileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CU_FILE_{} ({})", self.name(), self.code)?;
        if let Some(cuda) = self.cuda() {
            write!(f, " [CUDA error {cuda}]")?;
        }
        write!(f, ": {}; {}", self.meaning(), self.remedy())
    }
}

impl fmt::Debug for CufileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CU_FILE_{}({}, CUDA {})", self.name(), self.code, self.cuda)
    }
}

impl std::error::Error for CufileError {}

/// Why cuFile could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No library under any name, with the loader's last message.
    Absent(String),
    /// A library that lacks a function that we call.
    Incomplete {
        /// The library.
        library: String,
        /// The function.
        function: &'static str,
    },
    /// The private folder, its configuration or the environment could not be prepared.
    Configuration(io::Error),
    /// `attach` failed, for example to make a CUDA context current.
    Attach(String),
    /// `cuFileDriverOpen` failed.
    Driver {
        /// What it reported.
        error: CufileError,
        /// The last error in its log, if it wrote one.
        log: Option<String>,
    },
    /// It did not open within the bound. Its thread and the library are left alone, because nothing can end a call into
    /// a library.
    TimedOut {
        /// The bound.
        after: Duration,
        /// Where its log is.
        log: Option<PathBuf>,
    },
    /// An earlier opening is still in progress, or hangs.
    Busy,
    /// No thread could be started, or it ended without an answer.
    Thread(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Absent(said) => write!(f, "no libcufile.so.0: {said}"),
            OpenError::Incomplete { library, function } => write!(f, "{library} has no {function}"),
            OpenError::Configuration(error) => write!(f, "cuFile's configuration cannot be prepared: {error}"),
            OpenError::Attach(said) => f.write_str(said),
            OpenError::Driver { error, log: Some(log) } => write!(f, "{error}; its log says: {log}"),
            OpenError::Driver { error, log: None } => write!(f, "{error}"),
            OpenError::TimedOut { after, log } => {
                write!(f, "cuFileDriverOpen did not return within {} ms", after.as_millis())?;
                log.as_ref().map_or(Ok(()), |log| write!(f, "; its log is in {log:?}"))
            }
            OpenError::Busy => f.write_str("an earlier opening of cuFile in this process has not ended"),
            OpenError::Thread(said) => write!(f, "no thread to open cuFile on: {said}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why a read failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// What the system reported, as with `pread(2)`.
    Io(io::Error),
    /// What cuFile reported.
    Cufile(CufileError),
    /// The range is not inside the buffer or any file, or buffer and handle belong to different openings.
    Range,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => error.fmt(f),
            ReadError::Cufile(error) => error.fmt(f),
            ReadError::Range => f.write_str("the range of the read does not lie in the buffer or the file"),
        }
    }
}

impl std::error::Error for ReadError {}

const REPORT: &str = "see cuFile's log; report the error with its number";
const LOAD: &str = "modprobe nvidia-fs, or a kernel and driver with PCI P2PDMA: `uringload doctor` shows the chain";
const UPDATE: &str = "install cuFile, nvidia-fs and the NVIDIA driver from one CUDA release";
const RETRY: &str = "it is temporary; use the pinned path meanwhile";
const OURS: &str = "a bug in the caller: report it";
const PATH: &str = "use the pinned path for this file; GPUDirect needs ext4 (data=ordered) or XFS on NVMe";
const PINNED: &str = "register less memory; nvidia-smi -q -d MEMORY shows BAR1";
const BATCH: &str = "the batch API is not used here: report it";

/// `CUFILEOP_STATUS_ENTRIES` of cufile.h 1.20.0.107, which lacks 5021 and 5032. Where more is known than the header
/// states, the meaning includes it: 5027 without udev's data, 5036 if BAR1 is full.
const TABLE: [Entry; 47] = [
    Entry(5001, "DRIVER_NOT_INITIALIZED", "nvidia-fs is not loaded and compatibility mode is not allowed", LOAD),
    Entry(5002, "DRIVER_INVALID_PROPS", "a property of cufile.json is invalid", "correct cufile.json"),
    Entry(5003, "DRIVER_UNSUPPORTED_LIMIT", "a limit of cufile.json is out of range", "correct cufile.json"),
    Entry(5004, "DRIVER_VERSION_MISMATCH", "nvidia-fs does not fit this libcufile", UPDATE),
    Entry(5005, "DRIVER_VERSION_READ_ERROR", "the version of nvidia-fs cannot be read", UPDATE),
    Entry(5006, "DRIVER_CLOSING", "the driver is being closed", "open it again"),
    Entry(5007, "PLATFORM_NOT_SUPPORTED", "this platform has no GPUDirect Storage", "use the pinned path"),
    Entry(5008, "IO_NOT_SUPPORTED", "this file or its file system has no GPUDirect Storage", PATH),
    Entry(5009, "DEVICE_NOT_SUPPORTED", "this GPU has no GPUDirect Storage", "use the pinned path"),
    Entry(5010, "NVFS_DRIVER_ERROR", "an ioctl of nvidia-fs failed", "see dmesg"),
    Entry(
        5011,
        "CUDA_DRIVER_ERROR",
        "the CUDA driver failed",
        "look up the CUDA error; see nvidia-smi and dmesg | grep Xid",
    ),
    Entry(5012, "CUDA_POINTER_INVALID", "the address is not device memory", OURS),
    Entry(5013, "CUDA_MEMORY_TYPE_INVALID", "memory of this kind cannot be read into", OURS),
    Entry(5014, "CUDA_POINTER_RANGE_ERROR", "the range is longer than what was allocated", OURS),
    Entry(5015, "CUDA_CONTEXT_MISMATCH", "the current CUDA context is not the memory's", OURS),
    Entry(5016, "INVALID_MAPPING_SIZE", "more memory than may be pinned", PINNED),
    Entry(5017, "INVALID_MAPPING_RANGE", "the range goes beyond what is mapped", PINNED),
    Entry(5018, "INVALID_FILE_TYPE", "not a regular file", "read regular files only"),
    Entry(5019, "INVALID_FILE_OPEN_FLAG", "the file was opened in a mode that GPUDirect lacks", OURS),
    Entry(5020, "DIO_NOT_SET", "the file was not opened with O_DIRECT", OURS),
    Entry(5022, "INVALID_VALUE", "an argument is invalid", OURS),
    Entry(5023, "MEMORY_ALREADY_REGISTERED", "this memory is registered already", OURS),
    Entry(5024, "MEMORY_NOT_REGISTERED", "this memory is not registered", OURS),
    Entry(5025, "PERMISSION_DENIED", "the driver or the file may not be used", "give access to /dev/nvidia-fs*"),
    Entry(5026, "DRIVER_ALREADY_OPEN", "the driver is open already", "harmless; it is shared"),
    Entry(5027, "HANDLE_NOT_REGISTERED", "the file is not known, for example because udev's data are missing", UDEV),
    Entry(5028, "HANDLE_ALREADY_REGISTERED", "this descriptor is registered already", OURS),
    Entry(5029, "DEVICE_NOT_FOUND", "no GPU was found", "see nvidia-smi; give the container the GPU"),
    Entry(5030, "INTERNAL_ERROR", "something inside cuFile broke", REPORT),
    Entry(5031, "GETNEWFD_FAILED", "no new file descriptor was available", "raise ulimit -n"),
    Entry(5033, "NVFS_SETUP_ERROR", "nvidia-fs could not be set up", UPDATE),
    Entry(5034, "IO_DISABLED", "cufile.json turns GPUDirect off for this file", "correct cufile.json"),
    Entry(5035, "BATCH_SUBMIT_FAILED", "a batch could not be submitted", BATCH),
    Entry(5036, "GPU_MEMORY_PINNING_FAILED", "memory of the GPU could not be pinned: BAR1 is full", PINNED),
    Entry(5037, "BATCH_FULL", "the batch's queue is full", BATCH),
    Entry(5038, "ASYNC_NOT_SUPPORTED", "this file system has no stream operations", PATH),
    Entry(5039, "INTERNAL_BATCH_SETUP_ERROR", "a batch could not be set up", BATCH),
    Entry(5040, "INTERNAL_BATCH_SUBMIT_ERROR", "a batch could not be submitted inside cuFile", BATCH),
    Entry(5041, "INTERNAL_BATCH_GETSTATUS_ERROR", "a batch's state could not be read", BATCH),
    Entry(5042, "INTERNAL_BATCH_CANCEL_ERROR", "a batch could not be cancelled", BATCH),
    Entry(5043, "NOMEM_ERROR", "cuFile has no memory left", RETRY),
    Entry(5044, "IO_ERROR", "the device failed to read", "see dmesg; smartctl -a on the device"),
    Entry(5045, "INTERNAL_BUF_REGISTER_ERROR", "a buffer could not be registered", PINNED),
    Entry(5046, "HASH_OPR_ERROR", "a table inside cuFile broke", REPORT),
    Entry(5047, "INVALID_CONTEXT_ERROR", "no valid CUDA context is current", OURS),
    Entry(
        5048,
        "NVFS_INTERNAL_DRIVER_ERROR",
        "nvidia-fs broke",
        "see dmesg; modprobe -r nvidia-fs; modprobe nvidia-fs",
    ),
    Entry(5049, "BATCH_NOCOMPAT_ERROR", "a batch would need compatibility mode, which is off", BATCH),
];

const UDEV: &str = "in a container mount udev's data: docker run -v /run/udev:/run/udev:ro; or use the pinned path";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_number_of_the_header_once_and_in_order() {
        let expected: Vec<i32> = (5001..=5049).filter(|code| ![5021, 5032].contains(code)).collect();
        assert_eq!(CufileError::known().map(|error| error.code()).collect::<Vec<_>>(), expected);
        let mut names: Vec<&str> = CufileError::known().map(|error| error.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len(), "a name is there twice");
    }

    #[test]
    fn each_error_is_one_line_with_a_remedy() {
        for error in CufileError::known().chain([4999, 5021, 5050, -1, i32::MIN].map(CufileError::from_code)) {
            let line = error.to_string();
            assert!(!line.contains('\n') && !line.contains("  "), "{line:?}");
            assert!(!error.meaning().is_empty() && !error.remedy().is_empty(), "{line:?}");
            assert!(line.contains(&error.code().to_string()), "{line:?}");
        }
        let cuda = CufileError::check(Status { code: 5011, cuda: 719 }).unwrap_err();
        assert!(cuda.to_string().contains("[CUDA error 719]"), "{cuda}");
        assert_eq!(CufileError::check(Status { code: 5008, cuda: 719 }).unwrap_err().cuda(), None);
    }
}

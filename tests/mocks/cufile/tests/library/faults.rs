//! Failures: every error of the table at every call, hangs within their bound, descriptor 0, limits.

use super::support::{BOUND, Mock, Range, file, native, open_direct, pattern, wait};
use mock_cufile::Knob;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::config::Cause;
use uringload::config::GdsCause;
use uringload::inspect::gds;
use uringload::inspect::gds::{Configuration, Cufile};
use uringload_sys::cufile::{CufileError, OpenError, ReadError};

/// Longer than any bound here, in milliseconds.
const HANGS: i64 = 300_000;
/// Whoever waits for what hangs takes longer.
const AT_ONCE: Duration = Duration::from_secs(60);

fn standard_input() -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(rustix::stdio::stdin()).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

#[test]
fn every_error_of_the_table_comes_through_every_call() {
    let mock = Mock::new();
    mock.set(Knob::CudaError, 719);
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file(data.path(), 4096);
    let Some(first) = open_direct(&path) else { return };
    let cufile = mock.open().unwrap();
    let handle = cufile.register_file(first).unwrap();
    let buffer = cufile.register_buffer(Range::new(4096)).unwrap();
    for expected in CufileError::known().chain([5099, 1].map(CufileError::from_code)) {
        let code = i64::from(expected.code());
        let cuda = (code == 5011).then_some(719);
        let is_it = |error: CufileError| {
            assert_eq!((error.code(), error.cuda(), error.name()), (expected.code(), cuda, expected.name()));
        };
        mock.set(Knob::HandleError, code);
        is_it(cufile.register_file(open_direct(&path).unwrap()).unwrap_err());
        mock.set(Knob::BufferError, code);
        let (error, range) = cufile.register_buffer(Range::new(8192)).unwrap_err();
        is_it(error);
        assert_eq!(range.bytes().len(), 8192, "the memory comes back");
        if code != 1 {
            mock.set(Knob::ReadError, -code);
            let error = cufile.read(&handle, &buffer, 0, 0, 4096).unwrap_err();
            assert!(matches!(error, ReadError::Cufile(error) if error.code() == expected.code()), "{error:?}");
        }
    }
    mock.set(Knob::HandleError, 0);
    mock.set(Knob::BufferError, 0);
    mock.set(Knob::ReadError, 0);
    assert_eq!(cufile.read(&handle, &buffer, 0, 0, 4096).unwrap(), 4096, "it reads on after errors");
    assert_eq!(mock.get(Knob::Handles), 1);
}

#[test]
fn every_error_of_opening_is_a_fallback_with_its_remedy_and_the_log() {
    let mock = Mock::new();
    for error in CufileError::known().filter(|error| *error != CufileError::DRIVER_ALREADY_OPEN) {
        mock.set(Knob::OpenError, i64::from(error.code()));
        let step = gds::open(&native(), mock.search(), || Ok(())).unwrap_err();
        assert_eq!((step.cause, &*step.remedy), (Cause::Gds(GdsCause::Driver), error.remedy()));
        assert!(step.reason.contains(&error.code().to_string()), "{step}");
        assert!(step.reason.ends_with(&format!("its log says: mock:1 error {}", error.code())), "{step}");
    }
    assert_eq!((mock.get(Knob::Uses), mock.leftovers()), (0, 0));
}

#[test]
fn errors_of_the_system_and_lengths_that_cannot_be_are_told_apart() {
    let mock = Mock::new();
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(first) = open_direct(&file(data.path(), 8192)) else { return };
    let cufile = mock.open().unwrap();
    let handle = cufile.register_file(first).unwrap();
    let buffer = cufile.register_buffer(Range::new(8192)).unwrap();
    let read = || cufile.read(&handle, &buffer, 0, 0, 8192);
    mock.set(Knob::ReadError, -1);
    for errno in [5, 11, 4, 19] {
        mock.set(Knob::ReadErrno, errno);
        let error = read().unwrap_err();
        assert!(matches!(&error, ReadError::Io(error) if error.raw_os_error() == Some(errno as i32)), "{error:?}");
    }
    mock.set(Knob::ReadError, i64::MIN);
    assert!(matches!(read(), Err(ReadError::Cufile(error)) if error.name() == "UNKNOWN"));
    mock.set(Knob::ReadError, 0);
    mock.set(Knob::ShortRead, 4096);
    assert_eq!(read().unwrap(), 4096);
    assert_eq!(buffer.range().bytes()[..4096], pattern(8192)[..4096]);
    mock.set(Knob::ShortRead, 0);
    mock.set(Knob::LongRead, 1);
    assert!(matches!(read(), Err(ReadError::Cufile(CufileError::INTERNAL_ERROR))), "more than was asked for");
}

#[test]
fn files_without_o_direct_are_refused_before_the_library_sees_them() {
    let mock = Mock::new();
    let cufile = mock.open().unwrap();
    let plain = std::fs::File::open(file(mock.scratch.path(), 4096)).unwrap();
    assert_eq!(cufile.register_file(plain.into()).unwrap_err(), CufileError::DIO_NOT_SET);
    assert_eq!(mock.get(Knob::Handles), 0);
}

#[test]
fn a_full_bar_is_a_limit_and_smaller_registrations_are_had() {
    let mock = Mock::new();
    mock.set(Knob::BarBytes, 3 << 20);
    let cufile = mock.open().unwrap();
    let held = cufile.register_buffer(Range::new(2 << 20)).unwrap();
    let (error, range) = cufile.register_buffer(Range::new(2 << 20)).unwrap_err();
    assert_eq!(error, CufileError::PINNING_FAILED);
    assert!(error.is_limit());
    drop(range);
    let small = cufile.register_buffer(Range::new(1 << 20)).unwrap();
    assert_eq!((held.len(), small.len(), mock.get(Knob::Buffers)), (2 << 20, 1 << 20, 2));
}

/// Memory that cuFile may still write to must not return to the allocator.
#[test]
fn memory_that_cannot_be_deregistered_is_never_freed() {
    let mock = Mock::new();
    let cufile = mock.open().unwrap();
    let buffer = cufile.register_buffer(Range::new(4096)).unwrap();
    let address = buffer.address();
    mock.set(Knob::BufferEndError, 5030);
    drop(buffer);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_mapped = maps.lines().any(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(from)..number(to)).contains(&address)
    });
    assert!(is_mapped, "{address:#x} is unmapped");
}

#[test]
fn an_opening_that_hangs_is_left_to_itself_within_the_bound() {
    let mock = Mock::new();
    mock.set(Knob::OpenHangs, HANGS);
    let start = Instant::now();
    let step = gds::open(&native(), mock.search(), || Ok(())).unwrap_err();
    assert!(start.elapsed() >= BOUND && start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    assert_eq!(step.cause, Cause::Gds(GdsCause::Timeout));
    assert!(step.reason.contains("did not return within 500 ms") && step.reason.contains("its log is in"), "{step}");
    let start = Instant::now();
    assert!(matches!(mock.open(), Err(OpenError::Busy)), "no second thread is lost");
    assert!(start.elapsed() < AT_ONCE);
    // The driver opens after all: it is not waited for, so it is closed, and the next opening takes its turn.
    mock.set(Knob::OpenHangs, 0);
    let mut opened = None;
    wait("the late driver's end", || {
        opened = mock.open().ok();
        opened.is_some()
    });
    drop(opened);
    assert_eq!((mock.get(Knob::Uses), mock.leftovers()), (0, 0));
}

#[test]
fn a_read_that_hangs_keeps_its_file_and_memory_alive() {
    let mock = Mock::new();
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(first) = open_direct(&file(data.path(), 4096)) else { return };
    let cufile = mock.open().unwrap();
    let handle = Arc::new(cufile.register_file(first).unwrap());
    let buffer = Arc::new(cufile.register_buffer(Range::new(4096)).unwrap());
    mock.set(Knob::ReadHangs, HANGS);
    let reader = {
        let (cufile, handle, buffer) = (cufile.clone(), handle.clone(), buffer.clone());
        std::thread::spawn(move || {
            let read = cufile.read(&handle, &buffer, 0, 0, 4096);
            (read.unwrap(), buffer.range().bytes())
        })
    };
    wait("the read", || mock.get(Knob::Reads) == 1);
    // Giving up a read drops everything without waiting.
    let start = Instant::now();
    drop((cufile, handle, buffer));
    assert!(start.elapsed() < AT_ONCE);
    assert_eq!((mock.get(Knob::Uses), mock.get(Knob::Handles), mock.get(Knob::Buffers)), (1, 1, 1));
    mock.set(Knob::ReadHangs, 0);
    let (read, bytes) = reader.join().unwrap();
    assert!(read == 4096 && bytes == pattern(4096), "{read} bytes, or wrong ones");
    wait("the end of the driver", || mock.get(Knob::Uses) == 0);
    assert_eq!((mock.get(Knob::Handles), mock.get(Knob::Buffers), mock.get(Knob::ClosedTooEarly)), (0, 0, 0));
}

#[test]
fn a_close_that_hangs_is_left_to_itself() {
    let mock = Mock::new();
    let cufile = mock.open().unwrap();
    mock.set(Knob::CloseHangs, HANGS);
    let start = Instant::now();
    drop(cufile);
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    mock.set(Knob::CloseHangs, 0);
    wait("the end of the driver", || mock.get(Knob::Uses) == 0);
}

#[test]
fn standard_input_survives_a_library_that_closes_it() {
    let mock = Mock::new();
    let before = standard_input().expect("tests have a standard input");
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file(data.path(), 4096);
    let Some(first) = open_direct(&path) else { return };
    mock.set(Knob::ClosesZero, 3);
    let cufile = mock.open().unwrap();
    assert_eq!(standard_input(), Some(before), "after opening");
    let handle = cufile.register_file(first).unwrap();
    assert!(std::os::fd::AsRawFd::as_raw_fd(&handle.as_fd()) > 2);
    drop(handle);
    assert_eq!(standard_input(), Some(before), "after deregistering");
    drop(cufile);
    assert_eq!(standard_input(), Some(before), "after closing");
}

#[test]
fn a_closed_standard_input_becomes_dev_null_and_is_said() {
    let mock = Mock::new();
    let saved = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).unwrap();
    // SAFETY: nothing in this program reads standard input, and it is restored below.
    drop(unsafe { rustix::stdio::take_stdin() });
    let opened = gds::open(&native(), mock.search(), || Ok(()));
    let null = standard_input();
    rustix::stdio::dup2_stdin(&saved).unwrap();
    let gds = opened.unwrap();
    assert_eq!(gds.said.iter().map(|step| step.cause).collect::<Vec<_>>(), [Cause::Gds(GdsCause::StandardInput)]);
    let expected = rustix::fs::stat("/dev/null").unwrap();
    assert_eq!(null, Some((expected.st_dev, expected.st_ino)));
}

#[test]
fn compat_mode_is_refused_by_its_name() {
    let mock = Mock::new();
    mock.set(Knob::NvidiaFs, 0);
    let step = gds::open(&native(), mock.search(), || Ok(())).unwrap_err();
    assert_eq!(step.cause, Cause::Gds(GdsCause::Compat));
    // nvidia-fs is there, but the user's own configuration allows compatibility mode.
    mock.set(Knob::NvidiaFs, 2030);
    mock.set(Knob::ControlFlags, 1 << 1);
    let search = mock.search().scratch(None);
    let step = gds::open(&native(), search, || Ok(())).unwrap_err();
    assert_eq!(step.cause, Cause::Gds(GdsCause::Compat));
    assert!(step.reason.contains("CUFILE_ENV_PATH_JSON"), "{step}");
    assert_eq!(mock.get(Knob::ConfigurationBytes), 0, "the user's configuration is not replaced");
    assert_eq!(mock.get(Knob::Uses), 0, "what is refused is closed");
    // Without a private configuration, the log goes to the current folder.
    let _ = std::fs::remove_file("cufile_mock.log");
}

#[test]
fn what_cannot_be_loaded_or_prepared_is_said() {
    let mock = Mock::new();
    let open = |options| Cufile::open(options, || Ok(())).unwrap_err();
    let absent = mock.scratch.path().join("libnone.so");
    let error = open(mock.options().library(Some(absent.clone())));
    assert!(matches!(&error, OpenError::Absent(said) if said.contains("libnone.so")), "{error:?}");
    std::fs::write(&absent, b"no library").unwrap();
    let error = open(mock.options().library(Some(absent.clone())));
    assert!(matches!(error, OpenError::Absent(_)), "{error:?}");
    // A library that exists but has none of the functions.
    let error = open(mock.options().library(Some("libc.so.6".into())));
    assert!(matches!(error, OpenError::Incomplete { function: "cuFileDriverOpen", .. }), "{error:?}");
    let mut options = mock.options();
    options.configuration = Configuration::private(absent.join("below a file"), true);
    let error = open(options);
    assert!(matches!(error, OpenError::Configuration(_)), "{error:?}");
    let error = Cufile::open(mock.options(), || Err("no context".into())).unwrap_err();
    assert!(matches!(&error, OpenError::Attach(said) if said == "no context"), "{error:?}");
    // Without the hook of panics: with a backtrace it reads the program's symbols for longer than the bound.
    let error = Cufile::open(mock.options(), || std::panic::resume_unwind(Box::new("on purpose"))).unwrap_err();
    assert!(matches!(error, OpenError::Thread(_)), "{error:?}");
    drop(mock.open().unwrap());
    std::fs::remove_file(absent).unwrap();
    assert_eq!(mock.leftovers(), 0);
}

#[test]
fn a_driver_that_others_have_open_is_shared_and_not_closed() {
    let mock = Mock::new();
    mock.set(Knob::OpenError, 5026);
    let cufile = mock.open().unwrap();
    assert!(cufile.is_shared());
    drop(cufile);
    assert_eq!(mock.get(Knob::Uses), 0);
}

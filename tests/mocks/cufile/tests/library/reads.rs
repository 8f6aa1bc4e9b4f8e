//! The good cases: opening, registering, reading, and everything released at the end.

use super::support::{Mock, Range, file, native, open_direct, path, pattern};
use libloading::os::unix::Symbol;
use mock_cufile::{BatchEvent, BatchRead, Knob, Status};
use std::ffi::{c_uint, c_void};
use std::ptr;
use uringload::inspect::gds;
use uringload::inspect::gds::{Cufile, GdsMode};
use uringload_sys::cufile::ReadError;

#[test]
fn an_open_driver_tells_its_version_and_mode_and_is_closed_at_the_end() {
    let mock = Mock::new();
    let cufile = mock.open().unwrap();
    assert_eq!(cufile.version().unwrap().to_string(), "1.20");
    assert_eq!((cufile.properties().nvidia_fs, cufile.properties().mode()), ((2, 30), GdsMode::NvidiaFs));
    assert_eq!((cufile.properties().max_direct_io_kib, cufile.properties().max_pinned_kib), (16384, u32::MAX));
    assert!(!cufile.is_shared() && mock.get(Knob::Uses) == 1);
    drop(cufile.clone());
    assert_eq!(mock.get(Knob::Uses), 1, "a clone shares it");
    drop(cufile);
    assert_eq!(mock.get(Knob::Uses), 0);
}

#[test]
fn a_folder_is_searched_for_the_library() {
    let mock = Mock::new();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(path(), folder.path().join("libcufile.so.0")).unwrap();
    let empty = tempfile::tempdir().unwrap();
    let places = vec![empty.path().into(), folder.path().into()];
    let options = mock.options().library(None).places(places);
    match Cufile::open(options, || Ok(())) {
        // A copy of the mock has its own state.
        Ok(cufile) => assert_eq!(cufile.properties().mode(), GdsMode::Compat),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn configuration_is_in_force_while_the_driver_opens_and_gone_afterwards() {
    let mock = Mock::new();
    let before: Vec<_> = std::env::vars_os().collect();
    let here = std::fs::read_dir(".").unwrap().count();
    drop(mock.open().unwrap());
    assert!(mock.get(Knob::ConfigurationBytes) > 100, "the library saw no configuration");
    assert_eq!(std::env::vars_os().collect::<Vec<_>>(), before);
    assert_eq!((mock.leftovers(), std::fs::read_dir(".").unwrap().count()), (0, here), "a log or a folder is left");
}

#[test]
fn every_byte_lands_where_it_is_told_to() {
    let mock = Mock::new();
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes = pattern(256 << 10);
    let Some(file) = open_direct(&file(data.path(), bytes.len())) else { return };
    let cufile = mock.open().unwrap();
    let handle = cufile.register_file(file).unwrap();
    let buffer = cufile.register_buffer(Range::new(256 << 10)).unwrap();
    // In pieces, the last one first, each to its place in the file.
    for piece in (0..4).rev() {
        let at = piece * (64 << 10);
        assert_eq!(cufile.read(&handle, &buffer, at, at, 64 << 10).unwrap(), 64 << 10);
    }
    assert_eq!(buffer.range().bytes(), bytes);
    // And one to another place than in the file.
    assert_eq!(cufile.read(&handle, &buffer, 8192, 0, 4096).unwrap(), 4096);
    assert_eq!(buffer.range().bytes()[8192..12288], bytes[..4096]);
    assert_eq!(cufile.read(&handle, &buffer, 0, 256 << 10, 4096).unwrap(), 0, "the end of the file");
    drop(cufile);
    assert_eq!((mock.get(Knob::Uses), mock.get(Knob::Handles), mock.get(Knob::Buffers)), (1, 1, 1));
    drop((handle, buffer));
    assert_eq!((mock.get(Knob::Uses), mock.get(Knob::Handles), mock.get(Knob::Buffers)), (0, 0, 0));
    assert_eq!(mock.get(Knob::ClosedTooEarly), 0, "a descriptor was closed before its handle");
}

#[test]
fn reads_beyond_the_buffer_never_reach_the_library() {
    let mock = Mock::new();
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = file(data.path(), 8192);
    let (Some(file), Some(again)) = (open_direct(&path), open_direct(&path)) else { return };
    let cufile = mock.open().unwrap();
    let handle = cufile.register_file(file).unwrap();
    let buffer = cufile.register_buffer(Range::new(8192)).unwrap();
    for (into, at, len) in [(4096, 0, 8192), (8193, 0, 0), (u64::MAX, 0, 1), (0, u64::MAX, 1), (0, i64::MAX as u64, 1)]
    {
        let error = cufile.read(&handle, &buffer, into, at, len).unwrap_err();
        assert!(matches!(error, ReadError::Range), "{into} {at} {len}: {error:?}");
    }
    // Another opening's handle, while the first is open.
    let other = mock.open().unwrap();
    assert!(other.is_shared());
    let stranger = other.register_file(again).unwrap();
    assert!(matches!(cufile.read(&stranger, &buffer, 0, 0, 4096), Err(ReadError::Range)));
    assert_eq!(mock.get(Knob::Reads), 0);
    drop((other, stranger));
    assert_eq!(mock.get(Knob::Uses), 2, "who shares it does not close it");
}

#[test]
fn guards_and_library_together_open_a_straight_way() {
    let mock = Mock::new();
    let gds = gds::open(&native(), mock.search(), || Ok(())).unwrap();
    assert_eq!((gds.mode, gds.said.len()), (GdsMode::NvidiaFs, 0));
    drop(gds);
    mock.set(Knob::NvidiaFs, 0);
    mock.set(Knob::FeatureFlags, 1 << 4);
    let gds = gds::open(&native(), mock.search(), || Ok(())).unwrap();
    assert_eq!(gds.mode, GdsMode::P2pdma);
}

/// Tests not our code but what the batch API does in compatibility mode, for anyone who thinks of moving to it.
#[test]
fn the_batch_api_ignores_the_offset_into_the_buffer() {
    type SetUp = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Status;
    type Submit = unsafe extern "C" fn(*mut c_void, c_uint, *mut BatchRead, c_uint) -> Status;
    type GetStatus = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint, *mut BatchEvent, *mut c_void) -> Status;
    type Register = unsafe extern "C" fn(*mut *mut c_void, *mut [usize; 3]) -> Status;
    let mock = Mock::new();
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(file) = open_direct(&file(data.path(), 8192)) else { return };
    let range = Range::new(8192);
    // SAFETY: these four are the types of the mock's functions of these names; a descriptor is as long as three words.
    let register: Symbol<Register> = unsafe { mock.library().get(c"cuFileHandleRegister") }.unwrap();
    // SAFETY: as above.
    let set_up: Symbol<SetUp> = unsafe { mock.library().get(c"cuFileBatchIOSetUp") }.unwrap();
    // SAFETY: as above.
    let submit: Symbol<Submit> = unsafe { mock.library().get(c"cuFileBatchIOSubmit") }.unwrap();
    // SAFETY: as above.
    let get_status: Symbol<GetStatus> = unsafe { mock.library().get(c"cuFileBatchIOGetStatus") }.unwrap();
    let (mut batch, mut handle) = (ptr::null_mut(), ptr::null_mut());
    let mut descriptor = [1, std::os::fd::AsRawFd::as_raw_fd(&file) as usize, 0];
    // SAFETY: both addresses are of locals of the right type.
    assert_eq!(unsafe { register(&raw mut handle, &raw mut descriptor) }.code, 0);
    // SAFETY: the address is of a local.
    assert_eq!(unsafe { set_up(&raw mut batch, 1) }.code, 0);
    let base = uringload_sys::cufile::DeviceRange::address(&range) as *mut c_void;
    let cookie = ptr::null_mut();
    let mut read =
        BatchRead { mode: 1, base, file_offset: 0, buffer_offset: 4096, size: 4096, handle, opcode: 0, cookie };
    assert_eq!(size_of::<BatchRead>(), 64);
    // SAFETY: one read, into memory that is mapped.
    assert_eq!(unsafe { submit(batch, 1, &raw mut read, 0) }.code, 0);
    let (mut count, mut event) = (1, BatchEvent { cookie, status: 0, result: 0 });
    // SAFETY: there is room for one event.
    assert_eq!(unsafe { get_status(batch, 1, &raw mut count, &raw mut event, ptr::null_mut()) }.code, 0);
    assert_eq!((count, event.status, event.result), (1, 16, 4096));
    let bytes = range.bytes();
    assert_eq!((&bytes[..4096], &bytes[4096..]), (&pattern(4096)[..], &[0; 4096][..]));
}

//! Opening real files and asking about them.

use super::*;
use std::fs::File;
use std::io::Write;

fn opened(path: &Path, flags: OpenFlags) -> io::Result<Opened> {
    use std::os::unix::ffi::OsStrExt;
    open(CWD, path.as_os_str().as_bytes(), flags)
}

fn written(bytes: usize) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; bytes]).unwrap();
    file.sync_all().unwrap();
    (folder, path)
}

fn flags_of(file: &OwnedFd) -> OFlags {
    rustix::fs::fcntl_getfl(file).unwrap()
}

#[test]
fn a_file_is_opened_relative_to_a_folder() {
    let (folder, path) = written(100);
    let handle = open_folder(folder.path()).unwrap();
    let opened = open(handle.as_fd(), b"file", OpenFlags { noatime: true, ..OpenFlags::default() }).unwrap();
    assert!(opened.flags.noatime && !opened.flags.direct);
    assert_eq!((opened.identity.size, Identity::of(opened.file.as_fd()).unwrap()), (100, opened.identity));
    assert!(!flags_of(&opened.file).contains(OFlags::NONBLOCK));
    assert!(flags_of(&opened.file).contains(OFlags::NOATIME));
    let mut bytes = [0; 8];
    assert_eq!(read_at(opened.file.as_fd(), &mut bytes, 96).unwrap(), 4);
    assert_eq!(bytes, [7, 7, 7, 7, 0, 0, 0, 0]);
    File::create(&path).unwrap().write_all(b"x").unwrap();
    assert_ne!(Identity::of(opened.file.as_fd()).unwrap(), opened.identity);
    assert_eq!(open_folder(&path).unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let (folder, path) = written(0);
    let fifo = folder.path().join("fifo");
    rustix::fs::mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
    let errno = |name: &str| opened(&folder.path().join(name), OpenFlags::default()).unwrap_err();
    assert_eq!(errno("fifo").kind(), io::ErrorKind::InvalidInput);
    assert_eq!(errno(".").raw_os_error(), Some(libc::EISDIR));
    assert_eq!(errno("loop").raw_os_error(), Some(libc::ELOOP));
    assert_eq!(errno("none").raw_os_error(), Some(libc::ENOENT));
    assert_eq!(opened(Path::new("/dev/null"), OpenFlags::default()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(open(CWD, b"a\0b", OpenFlags::default()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(opened(&path, OpenFlags::default()).unwrap().identity.size, 0);
}

#[test]
fn direct_reads_follow_the_reported_alignment() {
    let (_folder, path) = written(10_000);
    let opened = match opened(&path, OpenFlags { direct: true, ..OpenFlags::default() }) {
        Ok(opened) => opened,
        Err(error) => return eprintln!("skipped: no O_DIRECT for {}: {error}", path.display()),
    };
    assert!(flags_of(&opened.file).contains(OFlags::DIRECT), "clearing O_NONBLOCK keeps the rest");
    let Some(alignment) = direct_alignment(opened.file.as_fd()) else {
        return eprintln!("skipped: no alignment is reported for {}", path.display());
    };
    assert!(alignment.memory.is_power_of_two() && alignment.offset.is_power_of_two(), "{alignment:?}");
    let (_arena, mut part) = crate::Arena::reserve(1).unwrap();
    let memory = part.as_mut();
    let offset = alignment.offset as usize;
    let last = 10_000 / offset * offset;
    assert_eq!(read_at(opened.file.as_fd(), &mut memory[..offset], last as u64).unwrap(), 10_000 - last);
    let misaligned = read_at(opened.file.as_fd(), &mut memory[..offset], 1).unwrap_err();
    assert_eq!(misaligned.raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn proc_has_no_direct_reads_and_a_known_name() {
    let proc = File::open("/proc/self/status").unwrap();
    assert_eq!(direct_alignment(proc.as_fd()), None);
    assert_eq!(file_system(proc.as_fd()).unwrap(), "proc");
    let direct = opened(Path::new("/proc/self/status"), OpenFlags { direct: true, ..OpenFlags::default() });
    assert_eq!(direct.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    let sys = File::open("/sys/kernel").unwrap();
    assert_eq!(file_system(sys.as_fd()).unwrap(), "0x62656572");
    assert!(!is_local(proc.as_fd()) && !is_local(sys.as_fd()), "what is not known may ask a server");
}

#[test]
fn cached_pages_are_counted_and_evicted() {
    let (_folder, path) = written(40_960);
    let file = File::open(&path).unwrap();
    let pages = 40_960_u64.div_ceil(rustix::param::page_size() as u64);
    assert_eq!(std::fs::read(&path).unwrap().len(), 40_960);
    let stat = match cachestat(file.as_fd(), 0, 0) {
        Ok(stat) => stat,
        Err(error) => return eprintln!("skipped: no cachestat: {error}"),
    };
    assert_eq!(stat.cached, pages, "{stat:?}");
    advise_random(file.as_fd()).unwrap();
    let fs = file_system(file.as_fd()).unwrap();
    if !["ext4", "xfs", "btrfs", "f2fs"].contains(&&*fs) {
        return eprintln!("skipped: {fs} may keep pages that are evicted");
    }
    evict(file.as_fd()).unwrap();
    assert_eq!(cachestat(file.as_fd(), 0, 0).unwrap().cached, 0);
}

#[test]
fn a_mapping_copies_bytes_out() {
    let (_folder, path) = written(5000);
    let file = File::open(&path).unwrap();
    let mapping = Mapping::new(file.as_fd(), 5000).unwrap();
    let mut bytes = [0; 100];
    assert_eq!((mapping.len(), mapping.copy(4950, &mut bytes)), (5000, 50));
    assert!(bytes[..50].iter().all(|&byte| byte == 7) && bytes[50..].iter().all(|&byte| byte == 0));
    assert_eq!((mapping.copy(5000, &mut bytes), mapping.copy(usize::MAX, &mut bytes)), (0, 0));
    assert!(Mapping::new(file.as_fd(), 0).is_err());
}

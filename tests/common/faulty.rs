//! A filesystem that lies: FUSE with EIO, short reads, delays, truncation and calls that never end. Root only, because
//! without a setuid fusermount only root can use /dev/fuse.

use super::content::{content, key_of};
use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen,
    Request,
};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// The fault of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Reads that cover this byte fail with EIO, always.
    Broken(u64),
    /// The first read of each offset fails with EIO, the next one succeeds.
    BrokenOnce,
    /// Reads return at most this many bytes, a whole number of sectors.
    Short(usize),
    /// Reads take this long.
    Slow(Duration),
    /// Reads take this long, one after the other: a disk with so many operations a second.
    Turns(Duration),
    /// Reads take as long as their bytes do at this rate, in bytes a second, one after the other.
    Rate(u64),
    /// The file ends at this byte, although its size says otherwise.
    EndsAt(u64),
    /// Reads do not end until [`Faulty::release`].
    Stuck,
}

/// A call that reaches the filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Lookup,
    Open,
    Getattr,
    Read,
    Readdir,
}

/// One file.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    pub size: u64,
    pub fault: Fault,
}

/// A mounted filesystem that lies. Drop unmounts it.
pub struct Faulty {
    session: Option<BackgroundSession>,
    /// Sessions whose mounts are unused, except by processes that opened them before.
    gone: Vec<BackgroundSession>,
    gate: Arc<Gate>,
    /// The errno of every request; 0: there is no outage.
    outage: Arc<AtomicI32>,
    /// A call that does not end, and the inode of the file that it is about.
    hanging: Arc<Mutex<Option<(Call, u64)>>>,
    at: TempDir,
    files: Vec<Spec>,
}

impl Faulty {
    /// Mounts a filesystem with these files, whose content is that of their names.
    ///
    /// # Errors
    /// The reason, in words, why this machine cannot mount it.
    pub fn mount(files: Vec<Spec>) -> Result<Faulty, String> {
        if !super::is_root() {
            return Err("FUSE: only root can mount without fusermount".into());
        }
        let at = TempDir::new().map_err(|error| error.to_string())?;
        let gate = Arc::new(Gate::default());
        let outage = Arc::new(AtomicI32::new(0));
        let hanging = Arc::default();
        let mut faulty = Faulty { session: None, gone: Vec::new(), gate, outage, hanging, at, files };
        faulty.put()?;
        Ok(faulty)
    }

    fn put(&mut self) -> Result<(), String> {
        let (files, gate, outage) = (self.files.clone(), Arc::clone(&self.gate), Arc::clone(&self.outage));
        let disk = Disk { files, gate, outage, hanging: Arc::clone(&self.hanging), seen: Mutex::default() };
        let mut config = fuser::Config::default();
        config.mount_options = vec![MountOption::RO, MountOption::FSName("faulty".into())];
        let session = fuser::spawn_mount(disk, self.at.path(), &config).map_err(|error| format!("FUSE: {error}"))?;
        self.session = Some(session);
        Ok(())
    }

    /// From now on this call about the file of this number, or about the root for `Readdir`, does not end before
    /// [`release`](Faulty::release).
    pub fn hang(&self, call: Call, number: usize) {
        let inode = if call == Call::Readdir { INodeNo::ROOT.into() } else { number as u64 + FIRST_FILE };
        *self.hanging.lock().expect("no holder panics") = Some((call, inode));
    }

    /// From now on every request fails with `errno`; 0 ends that.
    pub fn fail_all(&self, errno: i32) {
        self.outage.store(errno, Ordering::Relaxed);
    }

    /// Ends the server for who holds the mount, for ever: they get `ENOTCONN`. At its path is the folder below.
    pub fn go(&mut self) {
        self.fail_all(ENOTCONN);
        super::mounts::unmount(self.at.path());
        self.gone.extend(self.session.take());
    }

    /// Mounts the same files at the same path again.
    ///
    /// # Errors
    /// As [`mount`](Faulty::mount).
    pub fn come_back(&mut self) -> Result<(), String> {
        self.outage = Arc::default();
        self.put()
    }

    /// The filesystem's root.
    pub fn path(&self) -> &Path {
        self.at.path()
    }

    /// Lets all calls end that are stuck.
    pub fn release(&self) {
        self.gate.open();
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // A stuck read would keep the filesystem busy.
        self.release();
        // Lazily: the kernel closes a ring's files only some time after the ring itself.
        if self.session.is_some() {
            super::mounts::unmount(self.at.path());
        }
        drop(self.session.take());
    }
}

/// Closed at first, then open forever.
#[derive(Default)]
pub(super) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn open(&self) {
        *self.is_open.lock().expect("no holder panics") = true;
        self.opened.notify_all();
    }

    pub(super) fn pass(&self) {
        let mut is_open = self.is_open.lock().expect("no holder panics");
        while !*is_open {
            is_open = self.opened.wait(is_open).expect("no holder panics");
        }
    }
}

/// How long the kernel may cache names and attributes.
const TIME_TO_LIVE: Duration = Duration::from_millis(100);

/// Requests that the kernel may have under way.
const BACKGROUND: u16 = 256;

const ENOTCONN: i32 = 107;

/// Inode of the first file; 1 is the root.
const FIRST_FILE: u64 = 2;

struct Disk {
    files: Vec<Spec>,
    gate: Arc<Gate>,
    outage: Arc<AtomicI32>,
    hanging: Arc<Mutex<Option<(Call, u64)>>>,
    /// Reads that failed once, by file and offset.
    seen: Mutex<HashSet<(u64, u64)>>,
}

impl Disk {
    /// What every request fails with now.
    fn down(&self) -> Option<Errno> {
        Some(self.outage.load(Ordering::Relaxed)).filter(|errno| *errno != 0).map(Errno::from_i32)
    }

    /// Answers, now or when the gate opens if this call hangs.
    fn answer(&self, call: Call, inode: u64, answer: impl FnOnce() + Send + 'static) {
        if *self.hanging.lock().expect("no holder panics") != Some((call, inode)) {
            return answer();
        }
        let gate = Arc::clone(&self.gate);
        // The filesystem's one thread goes on.
        std::thread::spawn(move || {
            gate.pass();
            answer();
        });
    }

    fn file(&self, inode: INodeNo) -> Option<&Spec> {
        self.files.get(u64::from(inode).checked_sub(FIRST_FILE)? as usize)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let file = self.file(inode);
        if file.is_none() && inode != INodeNo::ROOT {
            return None;
        }
        let size = file.map_or(0, |file| file.size);
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file.is_some() { FileType::RegularFile } else { FileType::Directory },
            perm: if file.is_some() { 0o444 } else { 0o555 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        })
    }

    /// The bytes that a read returns, or the error.
    fn bytes(&self, inode: INodeNo, offset: u64, size: u64) -> Result<Vec<u8>, Errno> {
        let file = self.file(inode).ok_or(Errno::ENOENT)?;
        let mut end = (offset + size).min(file.size);
        match file.fault {
            Fault::Broken(at) if offset <= at && at < end => return Err(Errno::EIO),
            Fault::BrokenOnce if self.seen.lock().expect("no holder panics").insert((inode.into(), offset)) => {
                return Err(Errno::EIO);
            }
            Fault::Short(most) => end = end.min(offset + most as u64),
            Fault::EndsAt(last) => end = end.min(last),
            _ => {}
        }
        let len = end.saturating_sub(offset) as usize;
        Ok(content(key_of(file.name.as_bytes()), offset, len))
    }
}

impl Filesystem for Disk {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The kernel's own bound would be what limits: 12 requests at a time.
        // A look for one name must not hold up those for others.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.set_congestion_threshold(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(errno) = self.down() {
            return reply.error(errno);
        }
        let number = self.files.iter().position(|file| file.name.as_bytes() == name.as_bytes());
        let inode = number.map_or(0, |number| number as u64 + FIRST_FILE);
        let attributes = number.and_then(|_| self.attributes(INodeNo(inode)));
        self.answer(Call::Lookup, inode, move || match attributes {
            Some(attributes) => reply.entry(&TIME_TO_LIVE, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        });
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        // Asked once: it may come back in between.
        let down = self.down();
        let attributes = self.attributes(inode).filter(|_| down.is_none());
        let errno = down.unwrap_or(Errno::ENOENT);
        self.answer(Call::Getattr, inode.into(), move || match attributes {
            Some(attributes) => reply.attr(&TIME_TO_LIVE, &attributes),
            None => reply.error(errno),
        });
    }

    fn open(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if let Some(errno) = self.down() {
            return reply.error(errno);
        }
        // Without direct I/O the kernel would fill up short reads with zeros: the kernel would lie instead of us.
        self.answer(Call::Open, inode.into(), move || reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO));
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let fault = self.file(inode).map_or(Fault::None, |file| file.fault);
        match fault {
            Fault::Turns(time) => std::thread::sleep(time),
            Fault::Rate(rate) => std::thread::sleep(Duration::from_secs_f64(f64::from(size) / rate as f64)),
            _ => {}
        }
        let bytes = self.down().map_or_else(|| self.bytes(inode, offset, u64::from(size)), Err);
        let gate = Arc::clone(&self.gate);
        let answer = move || {
            match fault {
                Fault::Slow(delay) => std::thread::sleep(delay),
                Fault::Stuck => gate.pass(),
                _ => {}
            }
            match bytes {
                Ok(bytes) => reply.data(&bytes),
                Err(errno) => reply.error(errno),
            }
        };
        // A read that waits must not keep the filesystem's one thread from answering others.
        match fault {
            Fault::Slow(_) | Fault::Stuck => drop(std::thread::spawn(answer)),
            _ => self.answer(Call::Read, inode.into(), answer),
        }
    }

    fn readdir(&self, _request: &Request, inode: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (number, file) in self.files.iter().enumerate().skip(offset as usize) {
            let inode = INodeNo(number as u64 + FIRST_FILE);
            if reply.add(inode, number as u64 + 1, FileType::RegularFile, &file.name) {
                break;
            }
        }
        self.answer(Call::Readdir, inode.into(), move || reply.ok());
    }
}

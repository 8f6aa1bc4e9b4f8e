//! A filesystem in memory that can be written to, by FUSE: it has neither `O_DIRECT` nor `fallocate(2)`, as some on
//! networks. Its writes may fail, and writes, reads and listings may never end. Root only, as
//! [`faulty`](super::faulty).

use super::faulty::Gate;
use fuser::{
    BackgroundSession, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// How writes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    Good,
    /// They fail with this errno.
    Fail(i32),
    /// They do not end before the filesystem is dropped.
    Hang,
}

/// Calls that do not end before the filesystem is dropped.
#[derive(Default)]
struct Silent {
    lists: AtomicBool,
    reads: AtomicBool,
}

/// The mounted filesystem. Drop unmounts it.
pub struct Writable {
    session: Option<BackgroundSession>,
    writes: Arc<Mutex<(u64, Writes)>>,
    silent: Arc<Silent>,
    gate: Arc<Gate>,
    at: TempDir,
}

impl Writable {
    /// Mounts an empty one.
    ///
    /// # Errors
    /// The reason, in words, why this machine cannot mount it.
    pub fn mount() -> Result<Writable, String> {
        if !super::is_root() {
            return Err("FUSE: only root can mount without fusermount".into());
        }
        let at = TempDir::new().map_err(|error| error.to_string())?;
        let (writes, gate) = (Arc::new(Mutex::new((0, Writes::Good))), Arc::new(Gate::default()));
        let root = Node { name: OsString::new(), parent: 0, is_folder: true, mode: 0o700, bytes: Vec::new() };
        let silent = Arc::new(Silent::default());
        let disk = Disk {
            nodes: Mutex::new(vec![root]),
            writes: Arc::clone(&writes),
            silent: Arc::clone(&silent),
            gate: Arc::clone(&gate),
        };
        let mut config = fuser::Config::default();
        config.mount_options = vec![MountOption::FSName("writable".into())];
        let session = fuser::spawn_mount(disk, at.path(), &config).map_err(|error| format!("FUSE: {error}"))?;
        Ok(Writable { session: Some(session), writes, silent, gate, at })
    }

    /// The next `good` writes end well, and all after them so.
    pub fn after(&self, good: u64, then: Writes) {
        *self.writes.lock().expect("no holder panics") = (good, then);
    }

    /// From now on no listing of a folder ends before the filesystem is dropped.
    pub fn hang_lists(&self) {
        self.silent.lists.store(true, Ordering::SeqCst);
    }

    /// From now on no read does.
    pub fn hang_reads(&self) {
        self.silent.reads.store(true, Ordering::SeqCst);
    }

    /// The filesystem's root.
    pub fn path(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        self.gate.open();
        super::mounts::unmount(self.at.path());
        drop(self.session.take());
    }
}

const TIME_TO_LIVE: Duration = Duration::from_millis(100);

/// A file or a folder. Its inode is its place among all, from 1; one that is gone is in folder 0.
struct Node {
    name: OsString,
    parent: u64,
    is_folder: bool,
    mode: u16,
    bytes: Vec<u8>,
}

struct Disk {
    nodes: Mutex<Vec<Node>>,
    /// Writes that end well, and how those after them end.
    writes: Arc<Mutex<(u64, Writes)>>,
    silent: Arc<Silent>,
    gate: Arc<Gate>,
}

impl Disk {
    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().expect("no holder panics")
    }

    /// Makes a node, unless there is one of the name.
    fn make(&self, parent: INodeNo, name: &OsStr, is_folder: bool, mode: u32) -> FileAttr {
        let mut nodes = self.nodes();
        let inode = find(&nodes, parent, name).unwrap_or_else(|| {
            let (name, parent, mode) = (name.to_owned(), parent.into(), (mode & 0o777) as u16);
            nodes.push(Node { name, parent, is_folder, mode, bytes: Vec::new() });
            nodes.len() as u64
        });
        attributes(&nodes, inode)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut nodes = self.nodes();
        match find(&nodes, parent, name) {
            Some(inode) => {
                nodes[inode as usize - 1].parent = 0;
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Calls `end` when the filesystem is dropped. Its one thread goes on.
    fn hang(&self, end: impl FnOnce() + Send + 'static) {
        let gate = Arc::clone(&self.gate);
        drop(std::thread::spawn(move || {
            gate.pass();
            end();
        }));
    }

    /// How the next write ends.
    fn next_write(&self) -> Writes {
        let mut writes = self.writes.lock().expect("no holder panics");
        if writes.0 == 0 {
            return writes.1;
        }
        writes.0 -= 1;
        Writes::Good
    }
}

fn find(nodes: &[Node], parent: INodeNo, name: &OsStr) -> Option<u64> {
    let is_it = |node: &Node| node.parent == u64::from(parent) && node.name == name;
    nodes.iter().position(is_it).map(|at| at as u64 + 1)
}

fn attributes(nodes: &[Node], inode: u64) -> FileAttr {
    let node = &nodes[inode as usize - 1];
    let size = node.bytes.len() as u64;
    FileAttr {
        ino: INodeNo(inode),
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if node.is_folder { FileType::Directory } else { FileType::RegularFile },
        perm: node.mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let nodes = self.nodes();
        match find(&nodes, parent, name) {
            Some(inode) => reply.entry(&TIME_TO_LIVE, &attributes(&nodes, inode), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TIME_TO_LIVE, &attributes(&self.nodes(), inode.into()));
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut nodes = self.nodes();
        let node = &mut nodes[u64::from(inode) as usize - 1];
        node.mode = mode.map_or(node.mode, |mode| (mode & 0o777) as u16);
        node.bytes.resize(size.map_or(node.bytes.len(), |size| size as usize), 0);
        reply.attr(&TIME_TO_LIVE, &attributes(&nodes, inode.into()));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        reply.entry(&TIME_TO_LIVE, &self.make(parent, name, true, mode), Generation(0));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut nodes = self.nodes();
        let Some(inode) = find(&nodes, parent, name) else { return reply.error(Errno::ENOENT) };
        if let Some(old) = find(&nodes, to, new) {
            nodes[old as usize - 1].parent = 0;
        }
        let node = &mut nodes[inode as usize - 1];
        (node.parent, node.name) = (to.into(), new.to_owned());
        reply.ok();
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(parent, name, false, mode);
        reply.created(&TIME_TO_LIVE, &made, Generation(0), FileHandle(0), FopenFlags::empty());
    }

    fn open(&self, _request: &Request, _inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match flags.0 & libc::O_DIRECT {
            0 => reply.opened(FileHandle(0), FopenFlags::empty()),
            _ => reply.error(Errno::EINVAL),
        }
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
        if self.silent.reads.load(Ordering::SeqCst) {
            return self.hang(|| reply.error(Errno::EIO));
        }
        let nodes = self.nodes();
        let bytes = &nodes[u64::from(inode) as usize - 1].bytes;
        let start = (offset as usize).min(bytes.len());
        reply.data(&bytes[start..(start + size as usize).min(bytes.len())]);
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _how: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.next_write() {
            Writes::Fail(errno) => return reply.error(Errno::from_i32(errno)),
            Writes::Hang => return self.hang(|| reply.error(Errno::EIO)),
            Writes::Good => {}
        }
        let mut nodes = self.nodes();
        let bytes = &mut nodes[u64::from(inode) as usize - 1].bytes;
        let end = offset as usize + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn readdir(&self, _request: &Request, inode: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if self.silent.lists.load(Ordering::SeqCst) {
            return self.hang(|| reply.error(Errno::EIO));
        }
        for (at, node) in self.nodes().iter().enumerate().skip(offset as usize) {
            let kind = if node.is_folder { FileType::Directory } else { FileType::RegularFile };
            let is_in = node.parent == u64::from(inode) && at > 0;
            if is_in && reply.add(INodeNo(at as u64 + 1), at as u64 + 1, kind, &node.name) {
                break;
            }
        }
        reply.ok();
    }
}

//! The files of a dataset in compact memory: 24 bytes a file in addition to its name.

mod parts;

use super::fingerprint::Fingerprint;
use super::sample::FileId;
use super::stamp::Stamp;
use crate::place::{Place, Tree};
pub(crate) use parts::Room;
use std::collections::HashSet;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::store::{Store, Version};
use uringload_core::{Error, ErrorKind, Fallback, Result};
use uringload_sys::file::Identity;
use uringload_sys::heap::prefer_huge;

/// The files of a dataset.
///
/// Takes 24 bytes a file in addition to its name. Names are end to end in segments; a search for files hands over
/// segments, so names are never copied into one large buffer.
#[derive(Clone, Debug, Default)]
pub struct FileTable {
    roots: Vec<PathBuf>,
    /// Of each root that is no folder: its store, and the bytes in front of its names.
    stores: Vec<Option<Prefix>>,
    /// First file of each root.
    root_starts: Vec<u32>,
    segments: Vec<Vec<u8>>,
    /// Numbers of [`NamePlace`]s, so that memory for many comes as zeros, which nothing has to write.
    names: Vec<u64>,
    sizes: Vec<u64>,
    /// Numbers of [`Stamp`]s.
    stamps: Vec<u64>,
    /// What did not go as asked while the files were found.
    fallback: Option<Box<Fallback>>,
}

/// Where the objects of a root are: their keys are these bytes and their names, end to end.
#[derive(Clone, Debug)]
struct Prefix {
    tree: Arc<Tree>,
    bytes: Vec<u8>,
}

/// A file that is an object.
#[derive(Clone, Debug)]
pub struct FarFile<'a> {
    /// Where it is.
    pub store: &'a Arc<dyn Store>,
    /// Its whole key.
    pub key: Vec<u8>,
    /// Which content it had when the index was made, if that was said.
    pub version: Option<Version>,
}

/// The place of a name: the number of its segment in the upper 24 bits, then 24 bits of offset and 16 of length.
#[derive(Clone, Copy, Debug)]
struct NamePlace(u64);

/// A segment that holds this many bytes of names is closed. That bounds what a growing `Vec` wastes.
pub(crate) const SEGMENT_BYTES: usize = 64 << 10;
/// A segment may have so many, and one name more.
pub(crate) const SEGMENT_BYTES_MAX: usize = OFFSET_MAX + 1;
const SEGMENTS_MAX: usize = 1 << 24;
const OFFSET_MAX: usize = (1 << 24) - 1;
const NAME_BYTES_MAX: usize = (1 << 16) - 1;

impl FileTable {
    /// An empty table.
    pub fn new() -> FileTable {
        FileTable::default()
    }

    /// Starts a new root: files that are pushed from now on are below `path`.
    pub fn push_root(&mut self, path: impl Into<PathBuf>) {
        self.roots.push(path.into());
        self.stores.push(None);
        self.root_starts.push(self.sizes.len() as u32);
    }

    /// As [`push_root`](FileTable::push_root).
    pub(crate) fn push_root_at(&mut self, place: &Place) {
        match place.as_far() {
            Some(far) => self.push_prefix(Arc::clone(&far.tree), far.inside()),
            None => self.push_root(place.path()),
        }
    }

    /// Starts a root that is the one with this number in another table.
    pub(crate) fn push_root_of(&mut self, other: &FileTable, root: usize) {
        match &other.stores[root] {
            Some(prefix) => self.push_prefix(Arc::clone(&prefix.tree), prefix.bytes.clone()),
            None => self.push_root(&other.roots[root]),
        }
    }

    /// Starts a new root of objects: the keys of those that are pushed from now on are `prefix` and their names, end to
    /// end.
    pub fn push_store(&mut self, store: Arc<dyn Store>, prefix: &[u8]) {
        self.push_prefix(Arc::new(Tree::new(store)), prefix.to_vec());
    }

    /// Starts a root of objects whose keys are these bytes and their names, end to end.
    pub(crate) fn push_prefix(&mut self, tree: Arc<Tree>, bytes: Vec<u8>) {
        self.roots.push(tree.shown(bytes.strip_suffix(b"/").unwrap_or(&bytes)));
        self.stores.push(Some(Prefix { tree, bytes }));
        self.root_starts.push(self.sizes.len() as u32);
    }

    /// Adds an object as [`push`](FileTable::push) adds a file, and which content it has.
    pub fn push_object(&mut self, name: &[u8], size: u64, version: Option<Version>) -> Option<FileId> {
        self.push_stamped(name, size, Stamp::of_version(version))
    }

    /// Adds a file of `size` bytes at `name` below the last root; returns its number, or `None` when the table is full
    /// (2^32 - 1 files) or the name has more than 65535 bytes.
    ///
    /// The file is not inspected: whether it is still the same when it is read is not checked.
    ///
    /// # Panics
    /// If no root was pushed.
    pub fn push(&mut self, name: &[u8], size: u64) -> Option<FileId> {
        self.push_stamped(name, size, Stamp::default())
    }

    /// Adds a file as `push` does, and what it is known by when it is read.
    pub(crate) fn push_stamped(&mut self, name: &[u8], size: u64, stamp: Stamp) -> Option<FileId> {
        match self.segments.last_mut() {
            Some(segment) if segment.len() < SEGMENT_BYTES => segment.extend_from_slice(name),
            _ => {
                self.push_segment(name.to_vec())?;
            }
        }
        let segment = self.segments.len() - 1;
        let end = self.segments[segment].len();
        self.push_in(segment, end - name.len()..end, size, stamp)
    }

    /// Adds names for `push_in`; returns the number of the segment, or `None` when the table is full.
    pub(crate) fn push_segment(&mut self, mut names: Vec<u8>) -> Option<usize> {
        if self.segments.len() >= SEGMENTS_MAX {
            return None;
        }
        names.shrink_to_fit();
        if let Some(closed) = self.segments.last_mut() {
            closed.shrink_to_fit();
        }
        self.segments.push(names);
        Some(self.segments.len() - 1)
    }

    /// Names of a segment.
    pub(crate) fn segment(&self, segment: usize) -> &[u8] {
        &self.segments[segment]
    }

    /// Adds a file with a name in a segment, as `push` does.
    #[inline]
    pub(crate) fn push_in(&mut self, segment: usize, name: Range<usize>, size: u64, stamp: Stamp) -> Option<FileId> {
        assert!(!self.roots.is_empty(), "push_root comes first");
        assert!(name.end <= self.segments[segment].len(), "the name lies in its segment");
        let id = u32::try_from(self.sizes.len()).ok().filter(|&id| id != u32::MAX)?;
        self.names.push(NamePlace::new(segment, name)?.0);
        self.sizes.push(size);
        self.stamps.push(stamp.whole());
        Some(FileId(id))
    }

    /// Adds the roots and files of another table after those of this one; returns the number that its first file has
    /// here, or `None`, with nothing added, when there is no room for all of them.
    pub(crate) fn append(&mut self, other: &FileTable) -> Option<u32> {
        let base = u32::try_from(self.sizes.len()).ok()?;
        let files = self.sizes.len() + other.sizes.len();
        let segments = self.segments.len();
        if files >= u32::MAX as usize || segments + other.segments.len() > SEGMENTS_MAX {
            return None;
        }
        self.roots.extend_from_slice(&other.roots);
        self.stores.extend_from_slice(&other.stores);
        // Of the numbers that were just added up.
        self.root_starts.extend(other.root_starts.iter().map(|start| base + start));
        self.segments.extend_from_slice(&other.segments);
        self.names.extend(other.names.iter().map(|&name| NamePlace(name).behind(segments).0));
        self.sizes.extend_from_slice(&other.sizes);
        self.stamps.extend_from_slice(&other.stamps);
        Some(base)
    }

    /// Makes room for exactly `files` more files.
    pub(crate) fn reserve_exact(&mut self, files: usize) {
        self.names.reserve_exact(files);
        self.sizes.reserve_exact(files);
        self.stamps.reserve_exact(files);
        prefer_huge(self.names.spare_capacity_mut());
        prefer_huge(self.sizes.spare_capacity_mut());
        prefer_huge(self.stamps.spare_capacity_mut());
    }

    /// Returns reserved memory that is not needed.
    #[doc(hidden)]
    pub fn shrink_to_fit(&mut self) {
        self.segments.iter_mut().for_each(Vec::shrink_to_fit);
        self.segments.shrink_to_fit();
        self.names.shrink_to_fit();
        self.sizes.shrink_to_fit();
        self.stamps.shrink_to_fit();
    }

    /// Notes what did not go as asked while the files were found; the first time counts.
    pub(crate) fn set_fallback(&mut self, fallback: Fallback) {
        self.fallback.get_or_insert_with(|| Box::new(fallback));
    }

    /// Takes what did not go as asked.
    pub(crate) fn take_fallback(&mut self) -> Option<Fallback> {
        self.fallback.take().map(|fallback| *fallback)
    }

    /// What the stores found otherwise than it should be.
    pub(crate) fn notes(&self) -> Vec<Fallback> {
        let mut seen = HashSet::new();
        let stores = self.stores.iter().flatten().map(|prefix| prefix.tree.store());
        stores.filter(|store| seen.insert(Arc::as_ptr(store).cast::<()>())).flat_map(|store| store.notes()).collect()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The folders that contain the files.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Where the file is, if it is an object.
    pub fn far(&self, file: FileId) -> Option<FarFile<'_>> {
        let prefix = self.stores[self.root_of(file)].as_ref()?;
        let key = [&prefix.bytes[..], self.name(file)].concat();
        Some(FarFile { store: prefix.tree.store(), key, version: self.stamp(file).version() })
    }

    /// The store of a root (an index into `roots`), if its files are objects.
    pub fn store_of(&self, root: usize) -> Option<&Arc<dyn Store>> {
        self.stores[root].as_ref().map(|prefix| prefix.tree.store())
    }

    /// Whether some of the files are objects.
    #[doc(hidden)]
    pub fn has_objects(&self) -> bool {
        self.stores.iter().any(Option::is_some)
    }

    /// The first root: the place of a dataset in messages.
    pub(crate) fn place(&self) -> &Path {
        self.roots.first().map_or(Path::new("."), |root| root)
    }

    /// Which root contains the file (an index into `roots`).
    pub fn root_of(&self, file: FileId) -> usize {
        self.root_starts.partition_point(|&start| start <= file.0) - 1
    }

    /// The numbers of the files below a root (an index into `roots`).
    pub fn files_of(&self, root: usize) -> Range<u32> {
        let end = self.root_starts.get(root + 1).copied().unwrap_or(self.sizes.len() as u32);
        self.root_starts[root]..end
    }

    /// All files in ranges, each long enough for a thread.
    pub(crate) fn ranges(&self) -> Vec<Range<u32>> {
        let all = self.sizes.len() as u32;
        (0..all).step_by(1 << 16).map(|first| first..first.saturating_add(1 << 16).min(all)).collect()
    }

    /// Path relative to its root.
    pub fn name(&self, file: FileId) -> &[u8] {
        let (segment, name) = NamePlace(self.names[file.0 as usize]).resolve();
        &self.segments[segment][name]
    }

    /// Size in bytes when the index was made.
    pub fn size(&self, file: FileId) -> u64 {
        self.sizes[file.0 as usize]
    }

    /// What the file was known by when the index was made.
    pub(crate) fn stamp(&self, file: FileId) -> Stamp {
        Stamp::of_whole(self.stamps[file.0 as usize])
    }

    /// Notes the identity of a file, whose name alone was known.
    pub(crate) fn set_stamp(&mut self, file: FileId, stamp: Stamp) {
        self.stamps[file.0 as usize] = stamp.whole();
    }

    /// Whether `found` is the file that was indexed. Device and inode do not count where `inodes_vary`, which is asked
    /// only if they differ.
    ///
    /// # Errors
    /// `Truncated` for a file that has become shorter, else `Changed`.
    #[doc(hidden)]
    pub fn is_still(&self, file: FileId, found: &Identity, inodes_vary: impl FnOnce() -> bool) -> Result<()> {
        let change = self.stamp(file).change(self.size(file), found, inodes_vary);
        change.map_or(Ok(()), |error| Err(error.with_path(self.path(file))))
    }

    /// Lists the objects of all roots again.
    ///
    /// # Errors
    /// What a store says.
    pub(crate) fn list_anew(&self) -> Result<()> {
        self.stores.iter().flatten().for_each(|prefix| prefix.tree.forget());
        for (prefix, root) in
            self.stores.iter().zip(&self.roots).filter_map(|(prefix, root)| prefix.as_ref().zip(Some(root)))
        {
            if prefix.tree.store().lists() {
                prefix.tree.all(&prefix.bytes).map_err(|error| Error::io("cannot list", error).with_path(root))?;
            }
        }
        Ok(())
    }

    /// Whether an object is the one that was indexed.
    ///
    /// # Errors
    /// `Changed` if it is not.
    pub(crate) fn is_object(&self, file: FileId, version: Option<Version>, size: u64) -> Result<()> {
        if (version, size) == (self.stamp(file).version(), self.size(file)) {
            return Ok(());
        }
        let what = "the object was written anew since it was listed";
        Err(Error::new(ErrorKind::Changed, what).with_path(self.path(file)).with_remedy("open the dataset again"))
    }

    /// A hash of the files' sizes and of their times of modification and of change.
    #[doc(hidden)]
    pub fn stamps(&self) -> u64 {
        self.hash_of(Stamp::times)
    }

    /// A hash of the files' sizes and times of modification, which machines that share them agree on.
    #[doc(hidden)]
    pub fn modified(&self) -> u64 {
        self.hash_of(Stamp::modified)
    }

    fn hash_of(&self, part: impl Fn(Stamp) -> u64) -> u64 {
        let mut hash = Fingerprint::new("stamps");
        for (root, store) in self.stores.iter().enumerate() {
            for file in self.files_of(root).map(FileId) {
                hash.number(self.size(file));
                let stamp = self.stamp(file);
                hash.number(if store.is_some() { stamp.whole() } else { part(stamp) });
            }
        }
        hash.finish()
    }

    /// All sizes, by file number.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.sizes.iter().fold(0, |sum, &size| u64::saturating_add(sum, size))
    }

    /// The whole path, for messages.
    pub fn path(&self, file: FileId) -> PathBuf {
        if let Some(far) = self.far(file) {
            return far.store.shown(&far.key);
        }
        let name = Path::new(std::ffi::OsStr::from_bytes(self.name(file)));
        self.roots[self.root_of(file)].join(name)
    }

    /// Where the files below a root (an index into `roots`) are.
    pub(crate) fn root_at(&self, root: usize) -> Place {
        match &self.stores[root] {
            Some(prefix) => {
                let key = prefix.bytes.strip_suffix(b"/").unwrap_or(&prefix.bytes);
                Place::far(Arc::clone(&prefix.tree), key.to_vec())
            }
            None => Place::new(&self.roots[root]),
        }
    }

    /// Where a file is.
    pub(crate) fn at(&self, file: FileId) -> Place {
        match &self.stores[self.root_of(file)] {
            Some(prefix) => Place::far(Arc::clone(&prefix.tree), [&prefix.bytes[..], self.name(file)].concat()),
            None => Place::new(self.path(file)),
        }
    }

    /// Heap bytes that the table takes, names included.
    #[doc(hidden)]
    pub fn heap_bytes(&self) -> usize {
        let segments: usize = self.segments.iter().map(Vec::capacity).sum();
        segments
            + self.segments.capacity() * size_of::<Vec<u8>>()
            + self.names.capacity() * size_of::<u64>()
            + self.sizes.capacity() * size_of::<u64>()
            + self.stamps.capacity() * size_of::<u64>()
            + self.root_starts.capacity() * size_of::<u32>()
    }
}

impl NamePlace {
    fn new(segment: usize, name: Range<usize>) -> Option<NamePlace> {
        if name.start > OFFSET_MAX || name.len() > NAME_BYTES_MAX {
            return None;
        }
        Some(NamePlace((segment as u64) << 40 | (name.start as u64) << 16 | name.len() as u64))
    }

    /// The place when there are `segments` more before it.
    fn behind(self, segments: usize) -> NamePlace {
        NamePlace(self.0 + ((segments as u64) << 40))
    }

    fn resolve(self) -> (usize, Range<usize>) {
        let (segment, start, len) = (self.0 >> 40, self.0 >> 16 & OFFSET_MAX as u64, self.0 & NAME_BYTES_MAX as u64);
        (segment as usize, start as usize..(start + len) as usize)
    }
}

/// A [`FileTable`] is full.
pub(crate) fn too_many_files(root: &Path) -> Error {
    Error::new(ErrorKind::InvalidArgument, "the folder has more than 4294967295 files").with_path(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;
    use uringload_core::store::{Failure, Interrupt, Known, ListOptions, Listed, Page, Read};

    #[test]
    fn names_of_all_lengths_come_back() {
        let name = |number: usize| vec![number as u8; [0, 1, 255, 4095, NAME_BYTES_MAX][number % 5]];
        let mut files = FileTable::new();
        files.push_root("/data");
        for number in 0..200 {
            assert_eq!(files.push(&name(number), number as u64), Some(FileId(number as u32)));
        }
        assert!(files.segments.len() > 2);
        files.shrink_to_fit();
        for number in 0..200 {
            assert_eq!(files.name(FileId(number as u32)), name(number));
        }
        assert_eq!(files.push(&vec![0; NAME_BYTES_MAX + 1], 0), None);
        assert_eq!(files.len(), 200);
    }

    #[test]
    fn tables_are_put_end_to_end() {
        let mut all = FileTable::new();
        let mut paths = Vec::new();
        for table in 0..3 {
            let mut files = FileTable::new();
            files.push_root(format!("/{table}"));
            // More than a segment holds, in the first table.
            for number in 0..[40, 0, 3][table] {
                let name = vec![b'a' + number as u8 % 26; 4000 - number];
                assert!(files.push(&name, number as u64).is_some());
                paths.push(files.path(FileId(number as u32)));
            }
            files.push_root(format!("/{table}/without"));
            assert_eq!(all.append(&files), Some([0, 40, 40][table]));
        }
        assert_eq!((all.len(), all.roots().len()), (43, 6));
        for (file, path) in paths.iter().enumerate() {
            assert_eq!(all.path(FileId(file as u32)), *path);
        }
        assert_eq!((all.size(FileId(39)), all.size(FileId(42))), (39, 2));
        assert_eq!(
            (0..6).map(|root| all.files_of(root)).collect::<Vec<_>>(),
            [0..40, 40..40, 40..40, 40..40, 40..43, 43..43]
        );
        all.push_root("/more");
        assert_eq!(all.push(b"x", 1), Some(FileId(43)));
        assert_eq!(all.path(FileId(43)), PathBuf::from("/more/x"));
        assert_eq!(all.path(FileId(42)), paths[42]);
    }

    /// Puts no answer together: only names are asked for.
    #[derive(Debug)]
    struct Nowhere;

    impl Store for Nowhere {
        fn shown(&self, key: &[u8]) -> PathBuf {
            format!("s3://bucket/{}", key.escape_ascii()).into()
        }

        fn read(
            &self,
            _: &[u8],
            _: u64,
            _: &mut [u8],
            _: Option<Version>,
            _: &Interrupt,
        ) -> std::result::Result<Read, Failure> {
            unreachable!()
        }

        fn lists(&self) -> bool {
            false
        }

        fn list(
            &self,
            _: &[u8],
            _: &ListOptions,
            _: &Interrupt,
            _: &mut dyn FnMut(Page) -> ControlFlow<()>,
        ) -> std::result::Result<Listed, Failure> {
            unreachable!()
        }
    }

    #[test]
    fn keys_are_put_end_to_end() {
        let mut files = FileTable::new();
        files.push_root("/data");
        assert!(files.push(b"x", 1).is_some());
        files.push_store(Arc::new(Nowhere), b"data/");
        let version = Some(Version::new(Known::Etag, 77));
        for name in [&b"/a"[..], b"../x", b".", b"a//b", b"a b%41", b""] {
            let file = files.push_object(name, 5, version).unwrap();
            let far = files.far(file).unwrap();
            assert_eq!((far.key, far.version), ([&b"data/"[..], name].concat(), version));
            let shown = format!("s3://bucket/data/{}", name.escape_ascii());
            assert_eq!(files.path(file), PathBuf::from(shown));
        }
        assert!(files.far(FileId(0)).is_none() && files.store_of(0).is_none() && files.store_of(1).is_some());
        let mut all = FileTable::new();
        all.push_root("/before");
        all.append(&files).unwrap();
        assert_eq!(all.far(FileId(1)).unwrap().key, b"data//a");
        assert_ne!(files.modified(), {
            files.set_stamp(FileId(1), Stamp::of_version(None));
            files.modified()
        });
    }

    #[test]
    fn roots_without_files_have_none() {
        let mut files = FileTable::new();
        for (root, names) in [("/a", 2), ("/empty", 0), ("/b", 1), ("/last", 0)] {
            files.push_root(root);
            (0..names).for_each(|_| assert!(files.push(b"x", 0).is_some()));
        }
        assert_eq!([0, 1, 2].map(|file| files.path(FileId(file))), ["/a/x", "/a/x", "/b/x"].map(PathBuf::from));
    }
}

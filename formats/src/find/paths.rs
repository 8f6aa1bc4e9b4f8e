//! Turns the user's input (folders, files, patterns, lists) into a table of files with their sizes.

use crate::dataset::{FileId, FileTable, SkipReason, Skips, Stamp, too_many_files};
use crate::find::objects;
use crate::find::patterns::{Argument, expand};
use crate::find::walk::{FileType, Measured, measure_paths, walk};
use crate::place::Place;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use uringload_core::{Error, ErrorKind, Part, Result};

/// Threads that find files, if the user does not set a number. Taking a size waits for the disk unless the inode is in
/// memory, so more threads than cores help. The bounds keep small and large machines reasonable.
const THREADS_MIN: usize = 4;
const THREADS_MAX: usize = 16;

/// Threads that read the headers of files, if the user does not set a number. They wait for the disk and do next to
/// nothing else, and the disk wants many requests at once: for 10 000 cold files on an NVMe disk, 2 cores had the
/// headers after 0.33 s with 4 threads, 0.21 s with 16, 0.18 s with 32, and 64 were no faster.
const HEADER_THREADS: usize = 32;

/// The files that were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundFiles {
    pub(crate) files: FileTable,
    pub(crate) skips: Skips,
    /// Whether a file was named explicitly: then it is unknown which folder's subfolders would be classes.
    pub(crate) has_single_files: bool,
    /// The files that were named one by one.
    pub(crate) single: Vec<Range<u32>>,
    /// For each root that a pattern matched, by its number: the part of the path that matched.
    pub(crate) matched: BTreeMap<usize, PathBuf>,
}

/// Number of threads for `asked`; 0 means "as many as fit".
pub(crate) fn thread_count(asked: usize) -> usize {
    match asked {
        0 => uringload_sys::cgroup::processors().clamp(THREADS_MIN, THREADS_MAX),
        asked => asked,
    }
}

/// Number of threads that look at names, for `asked`; 0 means one a processor, because they wait for nothing.
pub(crate) fn looking_threads(asked: usize) -> usize {
    if asked == 0 { uringload_sys::cgroup::processors().min(THREADS_MAX) } else { asked }
}

/// Number of threads for reading short headers, for `asked`; 0 means "as many as suit the disk".
pub(crate) fn header_thread_count(asked: usize) -> usize {
    if asked == 0 { HEADER_THREADS } else { asked }
}

/// Finds the files that what was named matches: folders with everything below them, files, and patterns for either.
pub(crate) fn index(named: &[Place], threads: usize) -> Result<FoundFiles> {
    let Some(first) = named.first() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "no path was given"));
    };
    let mut places = Vec::new();
    for place in named {
        expand(place, &mut places)?;
    }
    let mut index = FoundFiles::default();
    let mut places = places.into_iter().peekable();
    let mut named = Vec::new();
    while let Some(place) = places.next() {
        match place {
            Argument::Named(place) => named.push(place),
            Argument::Matched { root, names } => index.add_matched(&root, names, threads)?,
        }
        if !matches!(places.peek(), Some(Argument::Named(_))) {
            index.add_named(std::mem::take(&mut named), threads)?;
        }
    }
    index.finish(first)
}

/// The files that were named, each by itself, in this order: a table without a walk.
///
/// # Errors
/// `WrongFileType` for what is no file; what the system says of the others.
pub(crate) fn named_files<P: AsRef<Path>>(paths: &[P], threads: usize) -> Result<FileTable> {
    let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
    let measured = measure_paths(Path::new(""), &paths, threads);
    let group = paths.into_iter().zip(measured).map(|(path, measured)| {
        let place = Place::new(path);
        let measured = regular(&place, measured)?;
        Ok((place, measured))
    });
    let mut index = FoundFiles::default();
    index.add_single_files(group.collect::<Result<_>>()?)?;
    index.files.shrink_to_fit();
    Ok(index.files)
}

impl FoundFiles {
    /// Whether a file was named by itself.
    pub(crate) fn is_single(&self, file: FileId) -> bool {
        self.single.iter().any(|range| range.contains(&file.0))
    }

    /// The name of a file below its root; below the part of a pattern before its first wildcard, if one matched the
    /// root.
    pub(crate) fn name_in_pattern(&self, file: FileId) -> Cow<'_, [u8]> {
        let name = self.files.name(file);
        if self.matched.is_empty() {
            return name.into();
        }
        match self.matched.get(&self.files.root_of(file)) {
            None => name.into(),
            Some(matched) => matched.join(OsStr::from_bytes(name)).into_os_string().into_vec().into(),
        }
    }

    /// What [`name_in_pattern`](FoundFiles::name_in_pattern) is relative to.
    pub(crate) fn pattern_root(&self, file: FileId) -> Place {
        let number = self.files.root_of(file);
        let root = self.files.root_at(number);
        let depth = self.matched.get(&number).map_or(0, |matched| matched.components().count());
        root.above(depth).unwrap_or(root)
    }

    /// Leaves out the file at this place, if it is here: it accompanies the data, and is not a sample.
    pub(crate) fn without(self, place: &Place) -> FoundFiles {
        let Ok(other) = place.canonical() else { return self };
        let base = other.name();
        let is_it = |files: &FileTable, file: FileId| {
            files.name(file).ends_with(base) && files.at(file).canonical().is_ok_and(|place| place == other)
        };
        let reason = |files: &FileTable, file| is_it(files, file).then_some(SkipReason::Companion);
        if (0..self.files.len() as u32).any(|file| is_it(&self.files, FileId(file))) {
            return self.sort(|files, file| !is_it(files, file), reason);
        }
        self
    }

    /// Keeps the files for which `keep` is true. Others are counted for the reason given, if one is.
    pub(crate) fn keep(self, keep: &[bool], reason: impl Fn(FileId) -> Option<SkipReason>) -> FoundFiles {
        self.sort(|_, file| keep[file.0 as usize], |_, file| reason(file))
    }

    /// Keeps the files whose names satisfy `keep`. Those of the others that satisfy `count` are counted as skipped for
    /// their format.
    pub(crate) fn retain(self, keep: impl Fn(&[u8]) -> bool, count: impl Fn(&[u8]) -> bool) -> FoundFiles {
        self.sort_out(SkipReason::OtherFormat, |files, file| keep(files.name(file)), count)
    }

    /// Keeps the files whose names satisfy `keep`, and those that were named alone. The others are counted.
    pub(crate) fn keep_by(self, keep: impl Fn(&[u8]) -> bool, reason: SkipReason) -> FoundFiles {
        // Fits: a table has fewer than 2^32 files.
        let all = (0..self.files.len() as u32).map(FileId);
        let keep: Vec<bool> = all.map(|file| self.is_single(file) || keep(self.files.name(file))).collect();
        if keep.iter().all(|&keep| keep) { self } else { self.keep(&keep, |_| Some(reason)) }
    }

    /// Keeps the files that are shards by name, and those in `named`. The others are counted as skipped, except those
    /// that satisfy `is_companion`.
    ///
    /// # Errors
    /// `Empty` with the text `nothing` if there are no shards.
    pub(crate) fn only_shards(
        self,
        named: &[Place],
        is_shard: impl Fn(&[u8]) -> bool,
        is_companion: impl Fn(&[u8]) -> bool,
        nothing: &'static str,
    ) -> Result<FoundFiles> {
        let named: HashSet<&Place> = named.iter().collect();
        let keep = |files: &FileTable, file| is_shard(files.name(file)) || named.contains(&files.at(file));
        let index = self.sort_out(SkipReason::NoShard, keep, |name| !is_companion(name));
        if index.files.is_empty() {
            let place = index.files.place();
            let error = Error::new(ErrorKind::Empty, nothing).with_path(place);
            return Err(error.with_remedy("name the files themselves, or choose another format"));
        }
        Ok(index)
    }

    /// Keeps the files of one part.
    ///
    /// # Errors
    /// `Empty` if it has none.
    pub(crate) fn only_part(self, part: Part) -> Result<FoundFiles> {
        if part.is_whole() {
            return Ok(self);
        }
        let all = self.files.len();
        let index = self.sort_out(SkipReason::NoShard, |_, file| part.has(file.0.into()), |_| false);
        if index.files.is_empty() {
            let place = index.files.place();
            let error = Error::new(ErrorKind::Empty, format!("part {part} has none of the {all} files"));
            return Err(error.with_path(place).with_remedy("run as many jobs as there are files, or fewer"));
        }
        Ok(index)
    }

    fn sort_out(
        self,
        reason: SkipReason,
        keep: impl Fn(&FileTable, FileId) -> bool,
        count: impl Fn(&[u8]) -> bool,
    ) -> FoundFiles {
        self.sort(keep, |files, file| count(files.name(file)).then_some(reason))
    }

    fn sort(
        self,
        keep: impl Fn(&FileTable, FileId) -> bool,
        reason: impl Fn(&FileTable, FileId) -> Option<SkipReason>,
    ) -> FoundFiles {
        let FoundFiles { files: mut all, mut skips, has_single_files, single, matched } = self;
        let mut files = FileTable::new();
        if let Some(fallback) = all.take_fallback() {
            files.set_fallback(fallback);
        }
        let mut single_now: Vec<Range<u32>> = Vec::new();
        for root in 0..all.roots().len() {
            files.push_root_of(&all, root);
            for file in all.files_of(root).map(FileId) {
                let name = all.name(file);
                if keep(&all, file) {
                    let pushed = files.push_stamped(name, all.size(file), all.stamp(file));
                    let new = pushed.expect("what fits into a table fits into another").0;
                    if single.iter().any(|range| range.contains(&file.0)) {
                        match single_now.last_mut() {
                            Some(last) if last.end == new => last.end = new + 1,
                            _ => single_now.push(new..new + 1),
                        }
                    }
                } else if let Some(reason) = reason(&all, file) {
                    skips.add(reason, &all.path(file));
                }
            }
        }
        files.shrink_to_fit();
        FoundFiles { files, skips, has_single_files, single: single_now, matched }
    }

    fn finish(mut self, place: &Place) -> Result<FoundFiles> {
        if self.files.is_empty() {
            let file = if place.as_far().is_some() { "object" } else { "file" };
            let what = format!("the {} has no {file}", place.kind());
            let error = Error::new(ErrorKind::Empty, what).with_path(place);
            let left_out = self.skips.describe();
            return Err(if left_out.is_empty() { error } else { error.with_remedy(format!("left out: {left_out}")) });
        }
        self.files.shrink_to_fit();
        Ok(self)
    }

    /// Adds paths that were named explicitly. Whatever cannot be used is an error, since it was asked for by name.
    fn add_named(&mut self, places: Vec<Place>, threads: usize) -> Result<()> {
        let measured = measured(&places, threads)?;
        let mut group = Vec::new();
        for (place, measured) in places.into_iter().zip(measured) {
            if let Ok((FileType::Directory, ..)) = measured {
                self.add_single_files(std::mem::take(&mut group))?;
                walk(&place, threads, &mut self.files, &mut self.skips)?;
            } else {
                let measured = regular(&place, measured)?;
                group.push((place, measured));
            }
        }
        self.add_single_files(group)
    }

    /// Adds paths that match a pattern. What is not a sample is skipped, as in a folder.
    fn add_matched(&mut self, root: &Place, names: Vec<PathBuf>, threads: usize) -> Result<()> {
        let mut is_root_open = false;
        let places: Vec<Place> = names.iter().map(|name| root.join(name)).collect();
        for ((name, place), measured) in names.iter().zip(&places).zip(measured(&places, threads)?) {
            match measured {
                Ok((FileType::RegularFile, size, stamp)) => {
                    if !std::mem::replace(&mut is_root_open, true) {
                        self.files.push_root_at(root);
                    }
                    let pushed = self.files.push_stamped(name.as_os_str().as_bytes(), size, stamp);
                    pushed.ok_or_else(|| too_many_files(root.path()))?;
                }
                Ok((FileType::Directory, ..)) => {
                    is_root_open = false;
                    self.matched.insert(self.files.roots().len(), name.clone());
                    walk(place, threads, &mut self.files, &mut self.skips)?;
                }
                Ok(_) => self.skips.add(SkipReason::Special, place.path()),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NOENT | Errno::NOTDIR) => self.skips.add(SkipReason::DanglingLink, place.path()),
                    Some(Errno::LOOP) => self.skips.add(SkipReason::LinkLoop, place.path()),
                    _ => return Err(Error::io("cannot read its size", error).with_path(place)),
                },
            }
        }
        Ok(())
    }

    /// Adds consecutive files that were named one by one. Their root is the deepest folder that contains them all, so
    /// that a long list does not create one root per file.
    fn add_single_files(&mut self, group: Vec<(Place, (u64, Stamp))>) -> Result<()> {
        self.has_single_files |= !group.is_empty();
        let mut rest = &group[..];
        while let Some((first, _)) = rest.first() {
            if let Some(far) = first.as_far() {
                let start = self.files.len() as u32;
                rest = &rest[objects::add_single(rest, far, &mut self.files)?..];
                self.single.push(start..self.files.len() as u32);
                continue;
            }
            let mut root = first.path().parent().unwrap_or(Path::new(""));
            let mut count = 1;
            for path in
                rest[1..].iter().take_while(|(place, _)| place.as_far().is_none()).map(|(place, _)| place.path())
            {
                let Some(common) = root.ancestors().find(|ancestor| path.starts_with(ancestor)) else { break };
                // "" is above every relative path, and `starts_with` also accepts it as a prefix of absolute ones.
                if common.as_os_str().is_empty() && path.is_absolute() {
                    break;
                }
                root = common;
                count += 1;
            }
            let (these, others) = rest.split_at(count);
            self.files.push_root(if root.as_os_str().is_empty() { Path::new(".") } else { root });
            let start = self.files.len() as u32;
            for (path, measured) in these.iter().map(|(place, measured)| (place.path(), measured)) {
                self.push(root, path.strip_prefix(root).unwrap_or(path), *measured)?;
            }
            self.single.push(start..self.files.len() as u32);
            rest = others;
        }
        Ok(())
    }

    fn push(&mut self, root: &Path, name: &Path, (size, stamp): (u64, Stamp)) -> Result<()> {
        self.files.push_stamped(name.as_os_str().as_bytes(), size, stamp).ok_or_else(|| too_many_files(root))?;
        Ok(())
    }
}

/// Types, sizes and stamps of what is at these places, in order.
///
/// # Errors
/// What a store says that cannot be listed.
fn measured(places: &[Place], threads: usize) -> Result<Vec<Measured>> {
    if places.iter().all(|place| place.as_far().is_none()) {
        return Ok(measure_paths(Path::new(""), places, threads));
    }
    objects::expect(places)?;
    let measure = |place: &Place| match place.as_far() {
        Some(far) => objects::measure(far),
        None => measure_paths(Path::new(""), &[place], 1).remove(0),
    };
    Ok(places.iter().map(measure).collect())
}

/// The size and the stamp of what was named as a file.
fn regular(place: &Place, measured: Measured) -> Result<(u64, Stamp)> {
    let path = place.path();
    match measured {
        Ok((FileType::RegularFile, size, stamp)) => Ok((size, stamp)),
        Ok((FileType::Directory, ..)) => {
            Err(Error::new(ErrorKind::WrongFileType, "this is a folder in a list of files").with_path(path))
        }
        Ok((kind, ..)) => {
            let what = format!("this is neither a file nor a folder but a {}", describe(kind));
            Err(Error::new(ErrorKind::WrongFileType, what).with_path(path))
        }
        Err(error) if place.as_far().is_some() && Errno::from_io_error(&error) == Some(Errno::NOENT) => {
            Err(objects::absent(place))
        }
        Err(error) => Err(Error::io("cannot find", error).with_path(path)),
    }
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        _ => "special file",
    }
}

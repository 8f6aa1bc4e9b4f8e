//! A place: what a user names, and what lies below it. Who wants to know whether something is there, or what is in a
//! folder, asks here; `index::headers` opens what is there. It is a path of a file system, or an object of a store.

mod again;
pub(crate) mod listed;
mod listing;
mod tree;

pub(crate) use again::again;
pub(crate) use listing::{Listing, Walk};
pub(crate) use tree::Tree;

use crate::watched::{Asking, asking};
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, ReadDir};
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_sys::file::Identity;
use uringload_sys::heap::prefer_huge;

/// A path of a file system, or an object of a store and what lies below its key. Who has one asks it, and does not look
/// at how it is spelled. Two are the same if messages call them the same.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// What messages call it; for a path, it itself.
    path: PathBuf,
    far: Option<Far>,
}

/// Where an object is. Keys are bytes, put end to end: `..`, `.` and `//` mean nothing in them.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    pub(crate) tree: Arc<Tree>,
    pub(crate) key: Vec<u8>,
}

/// What is at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) is_folder: bool,
    pub(crate) is_file: bool,
    /// Size in bytes.
    pub(crate) bytes: u64,
}

impl Place {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Place {
        Place { path: path.into(), far: None }
    }

    /// The object with this key, or the folder of all objects whose keys begin with it and a slash.
    pub(crate) fn far(tree: Arc<Tree>, key: Vec<u8>) -> Place {
        Place { path: tree.shown(&key), far: Some(Far { tree, key }) }
    }

    /// Where it is, if it is an object.
    pub(crate) fn as_far(&self) -> Option<&Far> {
        self.far.as_ref()
    }

    /// What messages call it where it lacks something.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.far {
            None => "folder",
            Some(far) if far.key.is_empty() => "bucket",
            Some(_) => "prefix",
        }
    }

    /// What messages call it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The last part of its name; empty for what has none, such as `/` and `..`.
    pub(crate) fn name(&self) -> &[u8] {
        match &self.far {
            Some(far) => far.split().1,
            None => self.path.file_name().unwrap_or_default().as_bytes(),
        }
    }

    /// Whether its name ends in a dot and `extension`, with something in front.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(OsStr::from_bytes(self.name())).extension().is_some_and(|its| its == extension)
    }

    /// What is called `name` below it.
    pub(crate) fn join(&self, name: impl AsRef<OsStr>) -> Place {
        match &self.far {
            Some(_) if name.as_ref().is_empty() => self.clone(),
            Some(far) => self.with_bytes([&far.inside()[..], name.as_ref().as_bytes()].concat()),
            None => Place::new(self.path.join(name.as_ref())),
        }
    }

    /// What is called `name` beside it.
    pub(crate) fn beside(&self, name: &[u8]) -> Place {
        match &self.far {
            Some(far) => self.with_bytes([far.split().0, name].concat()),
            None => Place::new(self.path.with_file_name(OsStr::from_bytes(name))),
        }
    }

    /// What is called as it is, but with another extension.
    pub(crate) fn with_extension(&self, extension: &str) -> Place {
        let name = Path::new(OsStr::from_bytes(self.name())).with_extension(extension);
        self.beside(name.as_os_str().as_bytes())
    }

    /// What is called as it is, with `ending` behind.
    pub(crate) fn and(&self, ending: &str) -> Place {
        self.with_bytes([self.bytes(), ending.as_bytes()].concat())
    }

    /// The folder that it is in. That of a bare name is the one that the process is in.
    pub(crate) fn folder(&self) -> Place {
        match &self.far {
            Some(far) => self.with_bytes(far.split().0.strip_suffix(b"/").unwrap_or_default().to_vec()),
            None => {
                let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
                Place::new(folder.unwrap_or(Path::new(".")))
            }
        }
    }

    /// The folder that is so many folders above it, if there is one.
    pub(crate) fn above(&self, folders: usize) -> Option<Place> {
        match &self.far {
            Some(_) if folders == 0 => Some(self.clone()),
            Some(far) if far.key.is_empty() => None,
            Some(_) => self.folder().above(folders - 1),
            None => self.path.ancestors().nth(folders).map(Place::new),
        }
    }

    /// Its whole name, from the root on.
    ///
    /// # Errors
    /// What the system says of the folder that the process is in.
    pub(crate) fn absolute(&self) -> io::Result<Place> {
        if self.far.is_some() {
            return Ok(self.clone());
        }
        std::path::absolute(&self.path).map(Place::new)
    }

    /// Its one name among all that lead to it.
    ///
    /// # Errors
    /// What the system says if it is not there.
    pub(crate) fn canonical(&self) -> io::Result<Place> {
        if self.far.is_some() {
            return self.stat().map(|_| self.clone());
        }
        let _asking = asking(&self.path);
        fs::canonicalize(&self.path).map(Place::new)
    }

    /// The bytes of its name, from the first to the last.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.far.as_ref().map_or_else(|| self.path.as_os_str().as_bytes(), |far| &far.key)
    }

    /// The place whose name has these bytes, where this one is.
    pub(crate) fn with_bytes(&self, bytes: Vec<u8>) -> Place {
        match &self.far {
            Some(far) => Place::far(Arc::clone(&far.tree), bytes),
            None => Place::new(OsString::from_vec(bytes)),
        }
    }

    /// Whether something is there. A link to nothing is not.
    pub(crate) fn is_there(&self) -> bool {
        self.stat().is_ok()
    }

    /// Whether something has this name, be it a link to nothing.
    pub(crate) fn is_taken(&self) -> bool {
        if self.far.is_some() {
            return self.is_there();
        }
        let _asking = asking(&self.path);
        self.path.symlink_metadata().is_ok()
    }

    /// Whether there is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.stat().is_ok_and(|stat| stat.is_folder)
    }

    /// What is there.
    ///
    /// # Errors
    /// What the system or the store says.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        let _asking = asking(&self.path);
        if let Some(far) = &self.far {
            return far.tree.stat(&far.key).map(|(stat, _)| stat);
        }
        let found = fs::metadata(&self.path)?;
        Ok(Stat { is_folder: found.is_dir(), is_file: found.is_file(), bytes: found.len() })
    }

    /// All bytes of the file that is there.
    ///
    /// # Errors
    /// What the system says; `Unsupported` of an object.
    pub(crate) fn contents(&self) -> io::Result<Vec<u8>> {
        if self.far.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let _asking = asking(&self.path);
        let mut file = fs::File::open(&self.path)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX))?;
        prefer_huge(bytes.spare_capacity_mut());
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Which file is there.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn identity(&self) -> io::Result<Identity> {
        Identity::of_path(&self.path)
    }

    /// What is in the folder that is there, in no order.
    ///
    /// # Errors
    /// What the system or the store says.
    pub(crate) fn list(&self) -> io::Result<List> {
        let asking = asking(&self.path);
        let entries = match &self.far {
            Some(far) => Entries::Far(far.tree.children(&far.inside())?.into_iter()),
            None => Entries::Near(fs::read_dir(&self.path)?),
        };
        Ok(List { entries, asking })
    }
}

impl Far {
    /// What the keys below it begin with.
    pub(crate) fn inside(&self) -> Vec<u8> {
        if self.key.is_empty() { Vec::new() } else { [&self.key[..], b"/"].concat() }
    }

    /// The key up to its last slash, and the name behind that.
    fn split(&self) -> (&[u8], &[u8]) {
        let end = self.key.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        self.key.split_at(end)
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        (self.far.is_some(), &self.path).cmp(&(other.far.is_some(), &other.path))
    }
}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.hash(state);
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// The entries of a folder.
pub(crate) struct List {
    entries: Entries,
    asking: Asking,
}

enum Entries {
    Near(ReadDir),
    /// Names, and whether each is a folder.
    Far(std::vec::IntoIter<(Vec<u8>, bool)>),
}

impl Iterator for List {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        self.asking.again();
        match &mut self.entries {
            Entries::Near(entries) => entries.next().map(|entry| entry.map(Entry::Near)),
            Entries::Far(entries) => entries.next().map(|(name, is_folder)| Ok(Entry::Far { name, is_folder })),
        }
    }
}

/// An entry of a folder.
pub(crate) enum Entry {
    Near(DirEntry),
    Far { name: Vec<u8>, is_folder: bool },
}

impl Entry {
    pub(crate) fn name(&self) -> OsString {
        match self {
            Entry::Near(entry) => entry.file_name(),
            Entry::Far { name, .. } => OsStr::from_bytes(name).to_owned(),
        }
    }

    /// Whether it is a folder itself: a link to one is not.
    ///
    /// # Errors
    /// What the system says, where its list does not tell.
    pub(crate) fn is_folder(&self) -> io::Result<bool> {
        match self {
            Entry::Near(entry) => entry.file_type().map(|kind| kind.is_dir()),
            Entry::Far { is_folder, .. } => Ok(*is_folder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_places() {
        let place = Place::new("/data/a.b/c.tar.gz");
        assert_eq!((place.name(), place.folder()), (&b"c.tar.gz"[..], Place::new("/data/a.b")));
        assert!(place.has_extension("gz") && !place.has_extension("tar.gz") && !Place::new(".gz").has_extension("gz"));
        assert_eq!(place.beside(b"d"), Place::new("/data/a.b/d"));
        assert_eq!(place.with_extension("idx"), Place::new("/data/a.b/c.tar.idx"));
        assert_eq!(place.and(".idx"), Place::new("/data/a.b/c.tar.gz.idx"));
        assert_eq!((place.above(2), place.above(9)), (Some(Place::new("/data")), None));
        assert_eq!((Place::new("a").folder(), Place::new("..").name()), (Place::new("."), &b""[..]));
    }

    #[test]
    fn a_link_to_nothing_is_not_there_and_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path());
        let (link, file, below) = (place.join("link"), place.join("file"), place.join("below"));
        std::os::unix::fs::symlink("/nowhere", &link).unwrap();
        fs::write(&file, "four").unwrap();
        fs::create_dir(&below).unwrap();
        assert!(link.is_taken() && !link.is_there() && link.canonical().is_err());
        assert!(file.is_there() && !file.is_folder() && below.is_folder() && !place.join("none").is_taken());
        let stat = file.stat().unwrap();
        assert_eq!((stat.is_file, stat.bytes), (true, 4));
        let mut listed: Vec<_> =
            place.list().unwrap().flatten().map(|entry| (entry.name(), entry.is_folder().unwrap())).collect();
        listed.sort();
        assert_eq!(listed, [("below", true), ("file", false), ("link", false)].map(|(name, is)| (name.into(), is)));
        assert!(file.list().is_err());
    }
}

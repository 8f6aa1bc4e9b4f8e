//! A place: what a user names, and what lies below it. Who wants to know whether something is there, or what is in a
//! folder, asks here; `index::headers` opens what is there.

use crate::watched::{Asking, asking};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use uringload_sys::file::Identity;

/// A path of a file system. Who has one asks it, and does not look at how it is spelled: it need not stay a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(PathBuf);

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
        Place(path.into())
    }

    /// What messages call it.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The last part of its name; empty for what has none, such as `/` and `..`.
    pub(crate) fn name(&self) -> &[u8] {
        self.0.file_name().unwrap_or_default().as_bytes()
    }

    /// Whether its name ends in a dot and `extension`, with something in front.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        self.0.extension().is_some_and(|its| its == extension)
    }

    /// What is called `name` below it.
    pub(crate) fn join(&self, name: impl AsRef<OsStr>) -> Place {
        Place(self.0.join(name.as_ref()))
    }

    /// What is called `name` beside it.
    pub(crate) fn beside(&self, name: &[u8]) -> Place {
        Place(self.0.with_file_name(OsStr::from_bytes(name)))
    }

    /// What is called as it is, but with another extension.
    pub(crate) fn with_extension(&self, extension: &str) -> Place {
        Place(self.0.with_extension(extension))
    }

    /// What is called as it is, with `ending` behind.
    pub(crate) fn and(&self, ending: &str) -> Place {
        let mut name = self.0.clone().into_os_string();
        name.push(ending);
        Place(name.into())
    }

    /// The folder that it is in. That of a bare name is the one that the process is in.
    pub(crate) fn folder(&self) -> Place {
        Place::new(self.0.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
    }

    /// The folder that is so many folders above it, if there is one.
    pub(crate) fn above(&self, folders: usize) -> Option<Place> {
        self.0.ancestors().nth(folders).map(Place::new)
    }

    /// Its whole name, from the root on.
    ///
    /// # Errors
    /// What the system says of the folder that the process is in.
    pub(crate) fn absolute(&self) -> io::Result<Place> {
        std::path::absolute(&self.0).map(Place)
    }

    /// Its one name among all that lead to it.
    ///
    /// # Errors
    /// What the system says if it is not there.
    pub(crate) fn canonical(&self) -> io::Result<Place> {
        let _asking = asking(&self.0);
        fs::canonicalize(&self.0).map(Place)
    }

    /// The bytes of its name, from the first to the last.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// The place whose name has these bytes.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Place {
        Place(OsString::from_vec(bytes).into())
    }

    /// Whether something is there. A link to nothing is not.
    pub(crate) fn is_there(&self) -> bool {
        self.stat().is_ok()
    }

    /// Whether something has this name, be it a link to nothing.
    pub(crate) fn is_taken(&self) -> bool {
        let _asking = asking(&self.0);
        self.0.symlink_metadata().is_ok()
    }

    /// Whether there is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.stat().is_ok_and(|stat| stat.is_folder)
    }

    /// What is there.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        let _asking = asking(&self.0);
        let found = fs::metadata(&self.0)?;
        Ok(Stat { is_folder: found.is_dir(), is_file: found.is_file(), bytes: found.len() })
    }

    /// Which file is there.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn identity(&self) -> io::Result<Identity> {
        Identity::of_path(&self.0)
    }

    /// What is in the folder that is there, in no order.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn list(&self) -> io::Result<List> {
        let asking = asking(&self.0);
        Ok(List { entries: fs::read_dir(&self.0)?, asking })
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// The entries of a folder.
pub(crate) struct List {
    entries: ReadDir,
    asking: Asking,
}

impl Iterator for List {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        self.asking.again();
        self.entries.next().map(|entry| entry.map(Entry))
    }
}

/// An entry of a folder.
pub(crate) struct Entry(DirEntry);

impl Entry {
    pub(crate) fn name(&self) -> OsString {
        self.0.file_name()
    }

    /// Whether it is a folder itself: a link to one is not.
    ///
    /// # Errors
    /// What the system says, where its list does not tell.
    pub(crate) fn is_folder(&self) -> io::Result<bool> {
        self.0.file_type().map(|kind| kind.is_dir())
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

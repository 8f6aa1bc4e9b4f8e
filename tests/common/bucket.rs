//! A store whose objects are the files of a folder. Its pages are short, so that listings have several.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uringload::store::{Class, Failure, Interrupt, Known, ListOptions, Listed, Object, Page, Read, Store, Version};

/// Entries of a page.
const PAGE: usize = 7;

/// The files of a folder, called `s3://bucket/NAME` unless the store has another name.
#[derive(Debug, Default)]
pub struct Bucket {
    root: PathBuf,
    name: &'static str,
    /// Requests for a page, and for bytes.
    pub lists: AtomicU64,
    pub reads: AtomicU64,
}

impl Bucket {
    pub fn of(root: &Path) -> Arc<Bucket> {
        Bucket::called("bucket", root)
    }

    pub fn called(name: &'static str, root: &Path) -> Arc<Bucket> {
        Arc::new(Bucket { root: root.to_path_buf(), name, ..Bucket::default() })
    }

    /// All objects whose keys begin with this, in order.
    fn objects(&self, prefix: &[u8]) -> Vec<Object> {
        let mut objects = Vec::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let Ok(found) = fs::metadata(&path) else { continue };
                if found.is_dir() {
                    folders.push(path);
                } else {
                    let key = path.strip_prefix(&self.root).unwrap().as_os_str().as_bytes().to_vec();
                    objects.push(Object { key, size: found.len(), version: Some(version(&found)) });
                }
            }
        }
        objects.retain(|object| object.key.starts_with(prefix));
        objects.sort_by(|one, other| one.key.cmp(&other.key));
        objects
    }
}

fn version(found: &fs::Metadata) -> Version {
    let hash = found.mtime_nsec() as u64 ^ (found.mtime() as u64) << 30 ^ found.ino() << 10 ^ found.len();
    Version::new(Known::Etag, hash)
}

impl Store for Bucket {
    fn shown(&self, key: &[u8]) -> PathBuf {
        format!("s3://{}/{}", self.name, String::from_utf8_lossy(key)).into()
    }

    fn read(
        &self,
        key: &[u8],
        offset: u64,
        into: &mut [u8],
        expected: Option<Version>,
        _: &Interrupt,
    ) -> Result<Read, Failure> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let missing = |_: io::Error| Failure::new(Class::Missing, "there is no such object");
        let file = File::open(self.root.join(std::ffi::OsStr::from_bytes(key))).map_err(missing)?;
        let found = file.metadata().map_err(missing)?;
        if found.is_dir() {
            return Err(Failure::new(Class::Missing, "there is no such object"));
        }
        let version = version(&found);
        if expected.is_some_and(|expected| expected != version) {
            return Err(Failure::new(Class::Changed, "the object was written anew since it was listed"));
        }
        let bytes = file.read_at(into, offset).map_err(|error| Failure::io("cannot read", error))?;
        Ok(Read { bytes, version: Some(version), total: Some(found.len()) })
    }

    fn lists(&self) -> bool {
        true
    }

    fn list(
        &self,
        prefix: &[u8],
        options: &ListOptions,
        _: &Interrupt,
        take: &mut dyn FnMut(Page) -> ControlFlow<()>,
    ) -> Result<Listed, Failure> {
        let after = options.after.as_deref();
        let (mut objects, mut folders) = (Vec::new(), BTreeSet::new());
        for object in
            self.objects(prefix).into_iter().filter(|object| after.is_none_or(|after| &object.key[..] > after))
        {
            match object.key[prefix.len()..].iter().position(|&byte| byte == b'/').filter(|_| options.folders) {
                Some(slash) => drop(folders.insert(object.key[..=prefix.len() + slash].to_vec())),
                None => objects.push(object),
            }
        }
        let mut listed = Listed { objects: objects.len() as u64, ..Listed::default() };
        let mut folders: Vec<Vec<u8>> = folders.into_iter().collect();
        loop {
            listed.pages += 1;
            self.lists.fetch_add(1, Ordering::Relaxed);
            let rest = objects.split_off(PAGE.min(objects.len()));
            let page = Page {
                number: listed.pages,
                objects: std::mem::replace(&mut objects, rest),
                folders: std::mem::take(&mut folders),
            };
            if take(page).is_break() || objects.is_empty() {
                return Ok(listed);
            }
        }
    }
}

//! Keeps the root folders of a dataset's files open. A mount may be lost and come back while a loader runs: then the
//! open folder leads nowhere any more, but its path leads to the new mount.

use crate::dataset::{Dataset, FileId};
use crate::patience::Patience;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use uringload_sys::file::{self, Identity};

/// How many other files to look for before all of them count as gone.
const OTHERS_TRIED: u64 = 8;

/// The root folders of a dataset, open.
pub(super) struct Roots {
    dataset: Arc<dyn Dataset>,
    /// By number. A store has none.
    roots: BTreeMap<usize, Root>,
    patience: Patience,
}

struct Root {
    folder: Mutex<Arc<OwnedFd>>,
    /// Identity of the folder that was opened first.
    first: Option<Identity>,
    /// Whether a thread is opening the folder again.
    reopening: AtomicBool,
}

impl Roots {
    /// Opens the folders.
    ///
    /// # Errors
    /// Names the root that is missing, that this process may not open, or that does not answer.
    pub(super) fn open(dataset: Arc<dyn Dataset>, patience: Patience) -> Result<Roots> {
        let files = dataset.files();
        let numbers: Vec<usize> = (0..files.roots().len()).filter(|&root| files.store_of(root).is_none()).collect();
        let (asked, numbered) = (Arc::clone(&dataset), numbers.clone());
        let whole = patience.whole();
        let folders = whole.ask(numbers.len(), 1, move |at| {
            let folder = file::open_folder(&asked.files().roots()[numbered[at]])?;
            let first = Identity::of(folder.as_fd()).ok();
            Ok((folder, first))
        });
        let of_path = |(root, folder): (usize, Option<io::Result<_>>)| {
            let path = &files.roots()[root];
            let (folder, first) = folder
                .ok_or_else(|| whole.over(path))?
                .map_err(|source| Error::io("cannot open the folder", source).with_path(path))?;
            let (folder, reopening) = (Mutex::new(Arc::new(folder)), AtomicBool::new(false));
            Ok((root, Root { folder, first, reopening }))
        };
        let roots = numbers.into_iter().zip(folders).map(of_path).collect::<Result<_>>()?;
        Ok(Roots { dataset, roots, patience })
    }

    /// The folder, as it was opened last.
    pub(super) fn folder(&self, root: usize) -> Arc<OwnedFd> {
        Arc::clone(&self.roots[&root].folder.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why no file of the root of `file` can be found, after this one could not: the folder is gone, another is in its
    /// place, or a sample of the other files is missing too, or does not answer. `None` if other files can be found.
    pub(super) fn lost(self: &Arc<Self>, file: FileId) -> Option<String> {
        if self.patience.is_over() {
            // No more checks are made, and silence proves nothing.
            return None;
        }
        let files = self.dataset.files();
        let root = files.root_of(file);
        let asked = Arc::clone(self);
        match self.patience.ask_one(move || Identity::of_path(&asked.dataset.files().roots()[root])) {
            // With too few descriptors or too little memory, this proves nothing; the names below show more.
            Some(Err(error)) if matches!(error.raw_os_error(), Some(ENOENT | ENOTDIR | EACCES)) => {
                return Some(format!("the folder is gone ({error})"));
            }
            Some(Ok(now)) if self.roots[&root].first.is_some_and(|first| !now.is_same_file(&first)) => {
                return Some("another folder is in the place of the one that was opened".into());
            }
            _ => {}
        }
        let of_root = files.files_of(root);
        // A root of one file proves no more than the files of the other roots, and objects prove nothing.
        let is_alone = of_root.len() == 1 && self.roots.len() < files.roots().len();
        if files.len() == 1 || is_alone {
            // There is no other file to check. It alone is gone if its own folder answers.
            let name = files.name(file);
            let parent = name.iter().rposition(|&byte| byte == b'/').map_or(&b"."[..], |end| &name[..end]).to_vec();
            let folder = self.folder(root);
            let is_there = self.patience.ask_one(move || Identity::at(folder.as_fd(), &parent).is_ok());
            return (is_there != Some(true)).then(|| "the folder of the only file is gone too".into());
        }
        let among = if of_root.len() > 1 { of_root } else { 0..files.len() as u32 };
        let count = among.len() as u64;
        let others: Vec<u32> = if count <= OTHERS_TRIED {
            among.collect()
        } else {
            let random = RandomState::new();
            (0..OTHERS_TRIED).map(|draw| among.start + (random.hash_one(draw) % count) as u32).collect()
        };
        let asked = Arc::clone(self);
        let found = self.patience.first_of(others.len(), move |number| {
            let other = FileId(others[number]);
            let files = asked.dataset.files();
            let folder = asked.folder(files.root_of(other));
            (other != file && Identity::at(folder.as_fd(), files.name(other)).is_ok()).then_some(())
        });
        found.is_none().then(|| "other files of the folder are gone too".into())
    }

    /// Opens the root of `file` again by its path, on a separate thread, because that may block while the mount does
    /// not answer. If the system has no thread for it, the next failure tries again.
    pub(super) fn reopen(self: &Arc<Self>, file: FileId) {
        let root = self.dataset.files().root_of(file);
        if self.roots[&root].reopening.swap(true, Ordering::Relaxed) {
            return;
        }
        let roots = Arc::clone(self);
        let thread = std::thread::Builder::new().name("uringload-root".into());
        let started = thread.spawn(move || {
            let path: &Path = &roots.dataset.files().roots()[root];
            if let Ok(Ok(folder)) = catch_unwind(|| file::open_folder(path)) {
                *roots.roots[&root].folder.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(folder);
            }
            roots.roots[&root].reopening.store(false, Ordering::Relaxed);
        });
        if started.is_err() {
            self.roots[&root].reopening.store(false, Ordering::Relaxed);
        }
    }
}

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

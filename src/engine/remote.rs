//! Reads objects of stores, each in a thread that waits for one answer. Files beside them are read with `pread(2)`.

use super::Read;
use super::files::Files;
use super::pread::Pread;
use super::threads::Reader;
use crate::dataset::{Dataset, FarFile, FileId, FileTable};
use crate::{Error, ErrorKind};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uringload_core::store::{Class, Failure, Interrupt};

/// Whether all of these files are objects, and there is a root.
pub(crate) fn has_only_objects(files: &FileTable) -> bool {
    !files.roots().is_empty() && (0..files.roots().len()).all(|root| files.store_of(root).is_some())
}

/// Reads a part of an object, in this thread. Fewer bytes than wanted are a short read, or the end.
///
/// # Errors
/// Carries the [`Failure`], or the [`Error`] that says how the object differs from the one that was indexed.
pub(crate) fn read_object(
    (files, file): (&FileTable, FileId),
    far: &FarFile<'_>,
    offset: u64,
    into: &mut [u8],
    interrupt: &Interrupt,
) -> io::Result<usize> {
    if into.is_empty() {
        return Ok(0);
    }
    let read = far.store.read(&far.key, offset, into, far.version, interrupt).map_err(io::Error::other)?;
    let (indexed, now) = (files.size(file), read.total.unwrap_or(files.size(file)));
    if now != indexed {
        let what = format!("the object has changed since it was indexed: it had {indexed} bytes, and has {now} now");
        let kind = if now < indexed { ErrorKind::Truncated } else { ErrorKind::Changed };
        let error = Error::new(kind, what).with_path(files.path(file));
        return Err(io::Error::other(error.with_remedy("restore the object, or open the dataset again")));
    }
    Ok(read.bytes.min(into.len()))
}

/// The error of a read of the file at `path`, of either kind.
pub(crate) fn read_error(source: io::Error, path: &Path) -> Error {
    match source.downcast::<Failure>() {
        Ok(failure) => failure.into_error(path),
        Err(source) => source.downcast::<Error>().unwrap_or_else(|source| Error::io("cannot read", source)),
    }
}

/// If the read was put off, because its server asks for fewer requests or credentials have expired: for how long at
/// least.
pub(crate) fn put_off(error: &io::Error) -> Option<Duration> {
    let failure = error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>())?;
    let is_put_off = matches!(failure.class(), Class::Throttled | Class::Expired);
    is_put_off.then(|| failure.after().unwrap_or_default())
}

/// Reads objects, and files.
pub(super) struct Remote {
    dataset: Arc<dyn Dataset>,
    near: Pread,
    /// Ends reads of objects that are in progress, by their tags.
    in_progress: Mutex<HashMap<u64, Interrupt>>,
}

impl Remote {
    pub(super) fn new(dataset: Arc<dyn Dataset>, files: Arc<Files>) -> Remote {
        Remote { dataset, near: Pread::new(files), in_progress: Mutex::default() }
    }

    fn in_progress(&self) -> MutexGuard<'_, HashMap<u64, Interrupt>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_far(&self, file: FileId) -> bool {
        let files = self.dataset.files();
        files.store_of(files.root_of(file)).is_some()
    }
}

impl Reader for Remote {
    type Own = <Pread as Reader>::Own;

    fn read(&self, read: &mut Read, own: &mut Self::Own, opening: &AtomicBool) -> io::Result<usize> {
        let files = self.dataset.files();
        let Some(far) = files.far(read.file) else { return self.near.read(read, own, opening) };
        let interrupt = Interrupt::new();
        self.in_progress().insert(read.tag, interrupt.clone());
        let result = read_object((files, read.file), &far, read.offset, read.part.as_mut(), &interrupt);
        self.in_progress().remove(&read.tag);
        result
    }

    fn interrupt(&self, tag: u64) {
        if let Some(interrupt) = self.in_progress().get(&tag) {
            interrupt.stop();
        }
    }

    fn lost(&self, file: FileId) -> Option<String> {
        if self.is_far(file) { None } else { self.near.lost(file) }
    }

    fn renew(&self, file: FileId) {
        if !self.is_far(file) {
            self.near.renew(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Price, suits, would_be_direct};
    use super::*;
    use crate::config::Config;
    use crate::dataset::{self, Options};
    use crate::patience::Patience;
    use std::ops::ControlFlow;
    use std::path::PathBuf;
    use uringload_core::store::{ListOptions, Listed, Page, Read, Store, Version};

    /// A store whose objects are only named.
    #[derive(Debug)]
    struct Named;

    impl Store for Named {
        fn shown(&self, key: &[u8]) -> PathBuf {
            format!("mem://b/{}", key.escape_ascii()).into()
        }

        fn read(&self, _: &[u8], _: u64, _: &mut [u8], _: Option<Version>, _: &Interrupt) -> Result<Read, Failure> {
            unreachable!("no object is read to choose a way")
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
        ) -> Result<Listed, Failure> {
            unreachable!()
        }
    }

    #[test]
    fn no_way_of_files_is_asked_for() {
        let (mut files, root) = (FileTable::new(), tempfile::tempdir().unwrap());
        files.push_store(Arc::new(Named), b"data/");
        files.push_object(b"a", 1000, None).unwrap();
        let records = |files| {
            let options = Options::new().format("records").set("record_bytes", 10_u64);
            dataset::inspect::of_files(files, &options).unwrap()
        };
        let (config, far) = (Config::default(), records(files.clone()));
        assert_eq!(Price::of(&config, &*far).unwrap().operation_bytes, 1 << 20);
        assert!(has_only_objects(far.files()));
        files.push_root(root.path());
        let mixed = records(files);
        assert!(mixed.files().has_objects() && !has_only_objects(mixed.files()));
        for dataset in [far, mixed] {
            assert_eq!(would_be_direct(&config, &dataset, &Patience::of(&config)).unwrap(), None);
            let step = suits(&config, &dataset, true).unwrap_err();
            assert!(step.reason.contains("objects of a store"), "{step}");
        }
    }
}

//! Reads objects of stores, each in a thread that waits for one answer. Files beside them are read with `pread(2)`.

use super::Read;
use super::cached::{Cached, Lookup};
use super::files::Files;
use super::pread::Pread;
use super::threads::Reader;
use crate::config::Fallback;
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

/// Answers that a read is made of at most, where each breaks off.
const ANSWERS_MAX: usize = 1024;

/// A part of an object, and where its bytes go.
struct Wanted<'a> {
    far: &'a FarFile<'a>,
    file: FileId,
    offset: u64,
    into: &'a mut [u8],
}

/// Reads objects, and files.
pub(super) struct Remote {
    dataset: Arc<dyn Dataset>,
    near: Pread,
    /// What is kept on a local disk.
    cached: Option<Arc<Cached>>,
    /// Ends reads of objects that are in progress, by their tags.
    in_progress: Mutex<HashMap<u64, Interrupt>>,
}

impl Remote {
    pub(super) fn new(dataset: Arc<dyn Dataset>, files: Arc<Files>, cached: Option<Arc<Cached>>) -> Remote {
        Remote { dataset, near: Pread::new(files), cached, in_progress: Mutex::default() }
    }

    fn in_progress(&self) -> MutexGuard<'_, HashMap<u64, Interrupt>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the store. Reads of a dataset with a cache are aligned, and the reactor would read again what an
    /// answer that broke off had beyond a multiple: here the next one goes on where it ended.
    fn read_far(&self, wanted: Wanted<'_>, interrupt: &Interrupt) -> io::Result<usize> {
        let Wanted { far, file, offset, into } = wanted;
        let (mut got, most) = (0, if self.cached.is_some() { ANSWERS_MAX } else { 1 });
        for _ in 0..most {
            let file = (self.dataset.files(), file);
            // What came before a failure is asked for again with the rest: a part of it would look like an end.
            let bytes = read_object(file, far, offset + got as u64, &mut into[got..], interrupt)?;
            got += bytes;
            if bytes == 0 || got == into.len() {
                break;
            }
        }
        Ok(got)
    }

    /// Reads what may be kept: from the disk, or from the store with the stretch around it, which is then kept.
    fn read_kept(&self, cached: &Arc<Cached>, wanted: Wanted<'_>, interrupt: &Interrupt) -> io::Result<usize> {
        let Wanted { far, file, offset, into } = wanted;
        let Some(stretch) = cached.stretch(file, offset, into.len() as u64) else {
            return self.read_far(Wanted { far, file, offset, into }, interrupt);
        };
        let (from, bytes) = ((offset - stretch.span.offset) as usize, stretch.span.len);
        let mut found = cached.look_up(&stretch, into.len() as u64);
        if let Lookup::Check(place) = found {
            let is_good = cached.buffers.with(bytes, |whole| {
                cached.read(place, 0, whole)?;
                into.copy_from_slice(&whole[from..from + into.len()]);
                Ok::<bool, io::Error>(place.is_of(whole))
            });
            match is_good {
                Ok(true) => {
                    cached.trust(&stretch);
                    return Ok(cached.count(into.len()));
                }
                Ok(false) => cached.lose(&stretch),
                Err(error) => cached.give_up(&stretch, Some(&error)),
            }
            found = cached.look_up(&stretch, into.len() as u64);
        }
        match found {
            Lookup::Near(place) => match cached.read(place, from as u64, into) {
                Ok(()) => return Ok(cached.count(into.len())),
                Err(error) => cached.give_up(&stretch, Some(&error)),
            },
            Lookup::Fetch(claim) if into.len() as u64 == bytes => {
                let read = self.read_far(Wanted { far, file, offset, into: &mut *into }, interrupt)?;
                if read == into.len() {
                    claim.keep(|| cached.buffers.copy(into));
                }
                return Ok(read);
            }
            Lookup::Fetch(claim) => {
                let start = stretch.span.offset;
                let is_read = cached.buffers.with(bytes, |whole| {
                    let read = self.read_far(Wanted { far, file, offset: start, into: &mut *whole }, interrupt)?;
                    let is_read = read >= from + into.len();
                    if is_read {
                        into.copy_from_slice(&whole[from..from + into.len()]);
                    }
                    if read == whole.len() {
                        claim.keep(|| std::mem::take(whole));
                    }
                    Ok::<bool, io::Error>(is_read)
                })?;
                if is_read {
                    return Ok(into.len());
                }
            }
            Lookup::Far | Lookup::Check(_) => {}
        }
        self.read_far(Wanted { far, file, offset, into }, interrupt)
    }

    fn is_far(&self, file: FileId) -> bool {
        let files = self.dataset.files();
        files.store_of(files.root_of(file)).is_some()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(cached) = &self.cached {
            cached.finish();
        }
    }
}

impl Reader for Remote {
    type Own = <Pread as Reader>::Own;

    fn read(&self, read: &mut Read, own: &mut Self::Own, opening: &AtomicBool) -> io::Result<usize> {
        let files = self.dataset.files();
        let Some(far) = files.far(read.file) else { return self.near.read(read, own, opening) };
        let interrupt = Interrupt::new();
        self.in_progress().insert(read.tag, interrupt.clone());
        let left = usize::try_from(files.size(read.file).saturating_sub(read.offset)).unwrap_or(usize::MAX);
        // Alignment may ask for more than there is.
        let wanted = if left == 0 { read.part.len() } else { left.min(read.part.len()) };
        let wanted =
            Wanted { far: &far, file: read.file, offset: read.offset, into: &mut read.part.as_mut()[..wanted] };
        let result = match &self.cached {
            Some(cached) => self.read_kept(cached, wanted, &interrupt),
            None => self.read_far(wanted, &interrupt),
        };
        self.in_progress().remove(&read.tag);
        result
    }

    fn said(&self) -> Option<Fallback> {
        self.cached.as_ref().and_then(|cached| cached.said.next())
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

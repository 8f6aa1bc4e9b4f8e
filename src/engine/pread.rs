//! The engine for systems without io_uring: threads that call `pread(2)`. It is also the faster one for files in the
//! page cache, where a read is a copy and a second processor can copy too.

use super::files::{Files, OpenFile, has_no_descriptor};
use super::threads::Reader;
use super::{Piece, Read};
use crate::dataset::FileId;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// If a dataset has at most this many files, each is opened once and stays open.
const FILES_KEPT_OPEN: usize = 256;

/// Reads with `pread(2)`.
pub(super) struct Pread {
    files: Arc<Files>,
    /// The dataset's files if there are few. Empty if each thread opens what it reads.
    kept: Vec<RwLock<Option<Arc<OpenFile>>>>,
    /// How often files were dropped. Threads drop the files that they opened before.
    renewed: AtomicU64,
}

/// The file that a thread read last.
pub(super) struct Last {
    id: FileId,
    file: Held,
    /// [`Pread::renewed`] when it was opened.
    renewed: u64,
}

/// An open file. One that a single thread opened costs no allocation.
enum Held {
    Shared(Arc<OpenFile>),
    Own(OpenFile),
}

impl Pread {
    /// Creates a reader of these files.
    pub(super) fn new(files: Arc<Files>) -> Pread {
        let kept = if files.len() <= FILES_KEPT_OPEN.min(Files::open_at_once()) { files.len() } else { 0 };
        Pread { files, kept: (0..kept).map(|_| RwLock::default()).collect(), renewed: AtomicU64::new(0) }
    }

    /// The file, from those that stay open, or newly opened.
    fn file(&self, id: FileId, opening: &AtomicBool) -> io::Result<Held> {
        let kept = self.kept.get(id.0 as usize);
        if let Some(kept) = kept
            && let Some(file) = &*kept.read().unwrap_or_else(PoisonError::into_inner)
        {
            return Ok(Held::Shared(Arc::clone(file)));
        }
        opening.store(true, Ordering::Relaxed);
        let mut file = self.files.open(id);
        if file.as_ref().is_err_and(has_no_descriptor) && self.let_go() {
            file = self.files.open(id);
        }
        opening.store(false, Ordering::Relaxed);
        let Some(kept) = kept else { return Ok(Held::Own(file?)) };
        let file = Arc::new(file?);
        *kept.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&file));
        Ok(Held::Shared(file))
    }

    /// The file, in the place of the one that the thread read last.
    fn hold<'a>(&self, id: FileId, last: &'a mut Option<Last>, opening: &AtomicBool) -> io::Result<&'a OpenFile> {
        let renewed = self.renewed.load(Ordering::Relaxed);
        if last.as_ref().is_none_or(|last| last.id != id || last.renewed != renewed) {
            // Close the file before opening the next: a thread holds one descriptor.
            *last = None;
            *last = Some(Last { id, file: self.file(id, opening)?, renewed });
        }
        match last {
            Some(Last { file: Held::Shared(file), .. }) => Ok(file),
            Some(Last { file: Held::Own(file), .. }) => Ok(file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Reads piece after piece, up to the first incomplete one: the reactor reads the rest again one by one, and then
    /// gets their errors. Returns the length of the complete pieces. For adjacent pieces of one file, checks once
    /// whether it is still the indexed file.
    fn read_pieces(&self, read: &mut Read, last: &mut Option<Last>, opening: &AtomicBool) -> usize {
        let (mut good, mut read_to) = (0, 0);
        for pieces in read.pieces.chunk_by(|before, piece| before.file == piece.file) {
            let id = pieces[0].file;
            let Ok(file) = self.hold(id, last, opening) else { return good };
            let memory = read.part.as_mut();
            let is_whole = |piece: &Piece| {
                let bytes = self.files.read_at(file, &mut memory[read_to..read_to + piece.len], piece.offset);
                read_to += piece.len;
                bytes.is_ok_and(|bytes| bytes >= piece.need)
            };
            let whole = pieces.iter().map(is_whole).take_while(|&is_whole| is_whole).count();
            if self.files.check_again(id, file).is_err() {
                return good;
            }
            good += pieces[..whole].iter().map(|piece| piece.len).sum::<usize>();
            if whole < pieces.len() {
                return good;
            }
        }
        good
    }

    /// Closes all files that stay open, because the process has no descriptor left. Returns whether there were any.
    fn let_go(&self) -> bool {
        self.renewed.fetch_add(1, Ordering::Relaxed);
        let close = |kept: &RwLock<Option<Arc<OpenFile>>>| {
            kept.write().unwrap_or_else(PoisonError::into_inner).take().is_some()
        };
        self.kept.iter().fold(false, |any, kept| close(kept) | any)
    }
}

impl Reader for Pread {
    type Own = Option<Last>;

    fn read(&self, read: &mut Read, last: &mut Self::Own, opening: &AtomicBool) -> io::Result<usize> {
        if !read.pieces.is_empty() {
            return Ok(self.read_pieces(read, last, opening));
        }
        let file = self.hold(read.file, last, opening)?;
        let bytes = self.files.read_at(file, read.part.as_mut(), read.offset)?;
        self.files.check_again(read.file, file)?;
        Ok(bytes)
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn lost(&self, file: FileId) -> Option<String> {
        self.files.lost(file)
    }

    fn renew(&self, file: FileId) {
        if let Some(kept) = self.kept.get(file.0 as usize) {
            *kept.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.renewed.fetch_add(1, Ordering::Relaxed);
        self.files.reopen_root(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{self, FileTable, Options};
    use crate::patience::Patience;
    use uringload_sys::Arena;

    #[test]
    fn pieces_are_read_up_to_the_first_that_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), b"0123456789").unwrap();
        std::fs::write(folder.path().join("b"), b"abcdefghij").unwrap();
        let mut files = FileTable::new();
        files.push_root(folder.path());
        files.push(b"a", 10).unwrap();
        files.push(b"b", 10).unwrap();
        let dataset = dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap();
        let patience = Patience::new(std::time::Duration::from_secs(60));
        let pread = Pread::new(Arc::new(Files::new(dataset, false, true, &patience).unwrap()));
        let (_arena, mut memory) = Arena::reserve(1 << 20).unwrap();
        let read = |memory: &mut uringload_sys::Part, pieces: &[(u32, u64, usize)]| {
            let piece = |&(file, offset, len): &(u32, u64, usize)| Piece { file: FileId(file), offset, len, need: len };
            let pieces: Vec<Piece> = pieces.iter().map(piece).collect();
            let part = memory.split_to(pieces.iter().map(|piece| piece.len).sum());
            let mut read = Read { tag: 0, file: pieces[0].file, offset: pieces[0].offset, part, pieces };
            let good = pread.read(&mut read, &mut None, &AtomicBool::new(false)).unwrap();
            String::from_utf8(read.part.as_ref()[..good].to_vec()).unwrap()
        };
        assert_eq!(read(&mut memory, &[(0, 6, 4), (0, 0, 2), (1, 3, 3), (0, 9, 1)]), "678901def9");
        // A piece past the end of the file, and one of a file that is missing.
        assert_eq!(read(&mut memory, &[(0, 6, 2), (0, 8, 4), (0, 0, 2)]), "67");
        assert_eq!(read(&mut memory, &[(0, 6, 2), (1, 20, 1), (0, 0, 2)]), "67");
        std::fs::remove_file(folder.path().join("b")).unwrap();
        let again = Pread::new(Arc::clone(&pread.files));
        let mut last = None;
        let part = memory.split_to(4);
        let pieces = vec![
            Piece { file: FileId(0), offset: 1, len: 2, need: 2 },
            Piece { file: FileId(1), offset: 0, len: 2, need: 2 },
        ];
        let mut gone = Read { tag: 0, file: FileId(0), offset: 1, part, pieces };
        assert_eq!(again.read(&mut gone, &mut last, &AtomicBool::new(false)).unwrap(), 2, "it says no reason");
    }
}

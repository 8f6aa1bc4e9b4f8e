//! Reads on the calling thread: through the page cache, with files that stay open, or an object by request.

use crate::config::Config;
use crate::dataset::{Dataset, FarFile, FileId, FileTable, Span};
use crate::engine::files::{Files, OpenFile};
use crate::engine::{put_off, read_error, read_object};
use crate::guard;
use crate::patience::Patience;
use crate::plan::is_empty_file;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uringload_core::store::Interrupt;
use uringload_sys::file::read_at;

/// Maximum number of open files.
const FILES_KEPT: usize = 32;

/// Pause before the first retry where a server asks for fewer requests, and the longest one, unless it names one.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Reads without a ring and without a thread. Threads may share it.
///
/// The lock is only tried: a thread that finds it taken opens the file again. So a forked child does not wait for a
/// lock that a thread of its parent held.
pub struct Here {
    dataset: Arc<dyn Dataset>,
    files: Files,
    open: Mutex<VecDeque<(FileId, Arc<OpenFile>)>>,
    /// How long to ask again where a server asks for fewer requests.
    patience: Duration,
}

impl Here {
    /// For the files of this dataset.
    ///
    /// # Errors
    /// Names a root folder that is missing or that this process may not open.
    pub(crate) fn new(dataset: Arc<dyn Dataset>) -> Result<Here> {
        let patience = Patience::of(&Config::default());
        let files = Files::new(Arc::clone(&dataset), false, false, &patience)?;
        Ok(Here { dataset, files, open: Mutex::default(), patience: patience.whole().bound() })
    }

    /// The files that spans refer to.
    pub(crate) fn files(&self) -> &FileTable {
        self.dataset.files()
    }

    /// Refuses spans that are in no file, or beyond its end, and the absence of any that a sample of units has.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check(&self, spans: &[Span]) -> Result<()> {
        let (files, invalid) = (self.files(), |what| Error::new(ErrorKind::InvalidArgument, what));
        if spans.is_empty() && self.dataset.units().is_some() {
            let format = self.dataset.format();
            return Err(invalid(format!(
                "no span is asked for: samples of format {format} are cut from compressed units, so none has spans of \
                 its own"
            ))
            .with_remedy(
                "read them with a loader, or one by one: `inspect::Samples` in Rust, `dataset[i]` in Python",
            ));
        }
        guard::check(files, spans).map_err(|why| {
            invalid(format!("a span {why}")).with_remedy("count files from 0, and offsets from the start of a file")
        })?;
        let Some(span) = spans.iter().find(|span| span.offset + span.len > files.size(span.file)) else {
            return Ok(());
        };
        let (end, size) = (span.offset + span.len, files.size(span.file));
        Err(invalid(format!("a span ends at byte {end}, and the file has {size}"))
            .with_path(files.path(span.file))
            .with_offset(span.offset)
            .with_remedy("ask for what the file has, or open it again if it has grown"))
    }

    /// The bytes of these checked spans, end to end.
    ///
    /// # Errors
    /// The errors of opening and reading, and `Changed` or `Truncated` for a file that is no longer the one that was
    /// indexed.
    pub fn read(&self, spans: &[Span]) -> Result<Bytes> {
        let bytes = spans.iter().map(|span| span.len).fold(0, u64::saturating_add);
        let mut out = vec![0; memory_of(bytes)?];
        let mut rest = &mut out[..];
        for span in spans {
            let (part, behind) = rest.split_at_mut(span.len as usize);
            self.read_into(span, part)?;
            rest = behind;
        }
        Ok(out.into())
    }

    /// Reads the bytes of this checked span into memory of its length.
    ///
    /// # Errors
    /// Those of [`read`](Here::read).
    pub(crate) fn read_into(&self, span: &Span, out: &mut [u8]) -> Result<()> {
        // An empty file is opened too: it may be gone, or have bytes now.
        if span.len == 0 && !is_empty_file(self.files(), span) {
            return Ok(());
        }
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let what = "the file ends within a sample: it has become shorter since it was indexed";
                let error = Error::new(ErrorKind::Truncated, what).with_path(self.files.path(span.file));
                error.with_offset(span.offset).with_remedy("restore the file, or open the dataset again")
            }
            _ => {
                let path = self.files.path(span.file);
                let error = read_error(error, &path);
                if error.path().is_none() { error.with_path(path) } else { error }
            }
        };
        if let Some(far) = self.files().far(span.file) {
            return self.read_far(span, &far, out).map_err(failed);
        }
        let open = self.open(span.file).map_err(failed)?;
        let mut filled = 0;
        while filled < out.len() {
            match read_at(open.as_fd(), &mut out[filled..], span.offset + filled as u64) {
                Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        self.files.check_again(span.file, &open).map_err(failed)
    }

    fn read_far(&self, span: &Span, far: &FarFile<'_>, out: &mut [u8]) -> io::Result<()> {
        let (mut filled, mut pause, start) = (0, PAUSE, Instant::now());
        while filled < out.len() {
            let (file, offset) = ((self.files(), span.file), span.offset + filled as u64);
            match read_object(file, far, offset, &mut out[filled..], &Interrupt::new()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) => {
                    let asked = put_off(&error).map(|asked| asked.max(pause));
                    match asked.filter(|asked| start.elapsed().saturating_add(*asked) <= self.patience) {
                        Some(asked) => std::thread::sleep(asked),
                        None => return Err(error),
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        Ok(())
    }

    fn open(&self, file: FileId) -> io::Result<Arc<OpenFile>> {
        if let Ok(kept) = self.open.try_lock()
            && let Some((_, open)) = kept.iter().find(|(known, _)| *known == file)
        {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(self.files.open(file)?);
        if let Ok(mut kept) = self.open.try_lock() {
            kept.truncate(FILES_KEPT - 1);
            kept.push_front((file, Arc::clone(&open)));
        }
        Ok(open)
    }
}

/// Converts to a number of bytes in memory.
pub(crate) fn memory_of(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::new(ErrorKind::MemoryLimit, format!("{bytes} bytes are no memory")))
}

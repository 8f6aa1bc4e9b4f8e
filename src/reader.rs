//! Single samples by number, outside any order: what looks at a sample, or asks for samples one by one.
//!
//! A loader is made for batches that are known ahead: its ring, its memory and its thread take about a millisecond to
//! set up. A reader has none of these. It reads through the page cache, in the thread that asks, and keeps the files
//! that it has opened.

use crate::dataset::{Dataset, FileId, Sample, SampleId, Span, UnitId, Units, Value};
use crate::engine::files::{Files, OpenFile};
use crate::guard::{self, Bounds};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use uringload_images::Format;
use uringload_sys::file::read_at;

/// Files that are kept open.
const FILES_KEPT: usize = 32;
/// Decoded units that are kept: a sample's neighbours are often asked for next.
const UNITS_KEPT: usize = 2;

/// Samples to look at for images: the first may be broken.
const SAMPLES_SEEN: u64 = 8;

/// Reads single samples of a dataset. Threads may share it.
///
/// Locks are only tried: whoever finds one taken opens the file again, or decodes the unit again. So a child that was
/// forked while another thread held a lock does not wait for a thread that it does not have.
pub struct Reader {
    dataset: Arc<dyn Dataset>,
    files: Files,
    open: Mutex<VecDeque<(FileId, Arc<OpenFile>)>>,
    decoded: Mutex<VecDeque<(UnitId, Bytes)>>,
}

impl Reader {
    /// A reader of this dataset.
    ///
    /// # Errors
    /// Names a root folder that is missing or that this process may not open.
    pub fn new(dataset: Arc<dyn Dataset>) -> Result<Reader> {
        let files = Files::new(Arc::clone(&dataset), false, false)?;
        let (open, decoded) = Default::default();
        Ok(Reader { dataset, files, open, decoded })
    }

    /// Reads and parses a sample, which the dataset has.
    ///
    /// # Errors
    /// What opening and reading its file gives, `Changed` or `Truncated` for a file that is no longer the one that was
    /// indexed, and what the format says of its bytes.
    pub fn read(&self, id: SampleId) -> Result<Sample> {
        let mut spans = Vec::new();
        guard::spans(&*self.dataset, id, u64::MAX, &mut spans)?;
        let mut raw = spans.iter().map(|span| self.bytes(span)).collect::<Result<Vec<Bytes>>>()?;
        if let Some(units) = self.dataset.units() {
            let mut of = Vec::new();
            guard::units_of(&*self.dataset, units, id, &mut of)?;
            for unit in of {
                raw.push(self.unit(units, unit)?);
            }
        }
        let mut sample = Sample::default();
        guard::parse(&*self.dataset, id, &raw, &mut sample)?;
        Ok(sample)
    }

    /// Names of the columns whose values are encoded images: in the first sample, or the next ones that cannot be read.
    ///
    /// # Errors
    /// That of the last sample, if none of the first ones can be read.
    pub fn image_columns(&self) -> Result<Vec<String>> {
        let mut tried = Ok(Vec::new());
        for id in (0..self.dataset.len().min(SAMPLES_SEEN)).map(SampleId) {
            let columns = |sample: Sample| {
                let is_image = |value: &Value| matches!(value, Value::Bytes(bytes) if Format::of(bytes).is_some());
                let fields = self.dataset.schema().fields.iter().zip(&sample.values);
                fields.filter(|(_, value)| is_image(value)).map(|(field, _)| field.name.clone()).collect()
            };
            tried = self.read(id).map(columns);
            if tried.as_ref().is_ok_and(|columns: &Vec<String>| !columns.is_empty()) {
                break;
            }
        }
        tried
    }

    fn unit(&self, units: &dyn Units, unit: UnitId) -> Result<Bytes> {
        let kept = self.decoded.try_lock().ok();
        if let Some((_, bytes)) = kept.as_ref().and_then(|kept| kept.iter().find(|(known, _)| *known == unit)) {
            return Ok(bytes.clone());
        }
        drop(kept);
        let mut spans = Vec::new();
        guard::stored(&*self.dataset, units, unit, Bounds::NONE, &mut spans)?;
        let stored = spans.iter().map(|span| self.bytes(span)).collect::<Result<Vec<Bytes>>>()?;
        let claimed = units.decoded_bytes(unit);
        let mut out = vec![0; memory_of(claimed)?];
        // Decoders are not trusted.
        let what = format!("\"decode\" of unit {}", unit.0);
        let len = guard::whole(&*self.dataset, &what, || units.decode(unit, &stored, &mut out))?;
        if len > out.len() {
            let what = format!("{what} has {len} bytes, and \"decoded_bytes\" says {}", out.len());
            return Err(guard::wrong(&*self.dataset, what));
        }
        out.truncate(len);
        let bytes = Bytes::from(out);
        if let Ok(mut kept) = self.decoded.try_lock() {
            kept.truncate(UNITS_KEPT - 1);
            kept.push_front((unit, bytes.clone()));
        }
        Ok(bytes)
    }

    fn bytes(&self, span: &Span) -> Result<Bytes> {
        if span.len == 0 {
            return Ok(Bytes::new());
        }
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let what = "the file ends within a sample: it has become shorter since it was indexed";
                let error = Error::new(ErrorKind::Truncated, what).with_path(self.files.path(span.file));
                error.with_offset(span.offset).with_remedy("restore the file, or open the dataset again")
            }
            _ => match error.downcast::<Error>() {
                // How the file differs from the one that was indexed.
                Ok(error) => error,
                Err(error) => Error::io("cannot read", error).with_path(self.files.path(span.file)),
            },
        };
        let open = self.open(span.file).map_err(failed)?;
        let mut bytes = vec![0; memory_of(span.len)?];
        let mut filled = 0;
        while filled < bytes.len() {
            match read_at(open.as_fd(), &mut bytes[filled..], span.offset + filled as u64) {
                Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        self.files.check_again(span.file, &open).map_err(failed)?;
        Ok(bytes.into())
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

/// As a number of bytes in memory.
fn memory_of(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::new(ErrorKind::MemoryLimit, format!("{bytes} bytes are no memory")))
}

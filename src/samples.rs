//! Single samples by number, outside any order: for callers that inspect a sample, or read samples one by one.
//!
//! A loader is built for batches that are known in advance: its ring, its memory and its thread take about a
//! millisecond to set up. This has none of these. It reads through the page cache, on the calling thread.

use crate::Result;
use crate::dataset::{Dataset, Sample, SampleId, UnitId, Units, Value};
use crate::guard::{self, Bounds};
use crate::here::{Here, memory_of};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use uringload_images::Format;

/// Decoded units that are kept: a sample's neighbours are often read next.
const UNITS_KEPT: usize = 2;

/// Samples to examine for images: the first may be broken.
const SAMPLES_SEEN: u64 = 8;

/// Reads single samples of a dataset. Threads may share it.
///
/// Locks are only tried: a thread that finds one taken decodes the unit again. So a forked child does not wait for a
/// lock that a thread of its parent held.
pub struct Samples {
    dataset: Arc<dyn Dataset>,
    here: Here,
    decoded: Mutex<VecDeque<(UnitId, Bytes)>>,
}

impl Samples {
    /// For the samples of this dataset.
    ///
    /// # Errors
    /// Names a root folder that is missing or that this process may not open.
    pub fn new(dataset: Arc<dyn Dataset>) -> Result<Samples> {
        let here = Here::new(Arc::clone(&dataset))?;
        Ok(Samples { dataset, here, decoded: Mutex::default() })
    }

    /// Reads and parses a sample that the dataset has.
    ///
    /// # Errors
    /// The errors of opening and reading its file, `Changed` or `Truncated` for a file that is no longer the one that
    /// was indexed, and the format's errors about its bytes.
    pub fn read(&self, id: SampleId) -> Result<Sample> {
        let mut spans = Vec::new();
        guard::spans(&*self.dataset, id, u64::MAX, &mut spans)?;
        let mut raw = spans.iter().map(|span| self.here.read(&[*span])).collect::<Result<Vec<Bytes>>>()?;
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

    /// Names of the columns whose values are encoded images, in the first readable sample.
    ///
    /// # Errors
    /// The last error, if none of the first samples can be read.
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
        let stored = spans.iter().map(|span| self.here.read(&[*span])).collect::<Result<Vec<Bytes>>>()?;
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
}

//! Handles prepared samples in the computing threads: they fill entries, and continue from them.

use super::{Keeping, Maps, Shared, Value};
use crate::dataset;
use crate::prepared::PreparedValue;
use crate::samples::Samples;
use crate::transform::{Map, MapScratch};
use crate::{Error, ErrorKind, Result};

/// The result for a value.
pub(super) struct Made {
    /// Length in bytes.
    pub(super) bytes: usize,
    /// All values of its sample, if that needed no reads and this is the first of its columns.
    pub(super) others: Option<Vec<dataset::Value>>,
}

impl Shared {
    /// Applies `map` to a value that is kept, that should be kept, or neither.
    pub(super) fn run_map(
        &self,
        value: &Value,
        (maps, map): (&Maps, &Map),
        out: &mut [u8],
        scratch: &mut MapScratch,
    ) -> Result<Made> {
        let of = (maps.seed, value.epoch, value.id);
        let shape = self.dataset.shape(value.id, value.field);
        let Some(prepared) = &maps.prepared else {
            let bytes = map.run((&value.bytes, &value.beside, shape), of, out, (&maps.memory, scratch))?;
            return Ok(Made { bytes, others: None });
        };
        let is_first = value.column == 0;
        let counted = if let Keeping::Kept = value.keeping {
            &self.stats.count.cache_hits
        } else {
            &self.stats.count.cache_misses
        };
        match &value.keeping {
            Keeping::Not => {
                counted.add(u64::from(is_first));
                let bytes = map.run((&value.bytes, &value.beside, shape), of, out, (&maps.memory, scratch))?;
                Ok(Made { bytes, others: None })
            }
            Keeping::Fill(filling) => {
                counted.add(u64::from(is_first));
                let (bytes, kept) = match map.prepare(&value.bytes, (&maps.memory, &mut *scratch))? {
                    Some(image) => (map.finish(&image, of, out, scratch)?, PreparedValue::Image(image)),
                    None => {
                        let bytes = map.run((&value.bytes, &value.beside, shape), of, out, (&maps.memory, scratch))?;
                        (bytes, PreparedValue::Bytes(value.bytes.to_vec()))
                    }
                };
                if let Some((id, entry)) = filling.put(value.field, kept) {
                    prepared.keep(id, entry);
                }
                Ok(Made { bytes, others: None })
            }
            Keeping::Kept => {
                let Some(entry) = prepared.get(value.id) else {
                    return self.made_anew(value, (maps, map), out, scratch);
                };
                counted.add(u64::from(is_first));
                let bytes = match entry.get(value.field) {
                    Some(PreparedValue::Image(image)) => map.finish(image, of, out, scratch)?,
                    Some(PreparedValue::Bytes(bytes)) => {
                        map.run((bytes, &[], shape), of, out, (&maps.memory, scratch))?
                    }
                    Some(PreparedValue::Number(_)) | None => return Err(no_bytes()),
                };
                let others = is_first.then(|| entry.iter().map(PreparedValue::value).collect());
                Ok(Made { bytes, others })
            }
        }
    }

    /// Reads a sample whose entry is gone although it existed when its batch was planned: its file is damaged. That is
    /// rare, so this thread reads it.
    fn made_anew(
        &self,
        value: &Value,
        (maps, map): (&Maps, &Map),
        out: &mut [u8],
        scratch: &mut MapScratch,
    ) -> Result<Made> {
        let is_first = value.column == 0;
        self.stats.count.cache_misses.add(u64::from(is_first));
        let samples = match self.samples.get() {
            Some(samples) => samples,
            None => {
                let samples = Samples::new(self.dataset.clone())?;
                self.samples.get_or_init(|| samples)
            }
        };
        let sample = samples.read(value.id)?;
        let Some(dataset::Value::Bytes(bytes)) = sample.values.get(value.field) else { return Err(no_bytes()) };
        let of = (maps.seed, value.epoch, value.id);
        let shape = self.dataset.shape(value.id, value.field);
        let bytes = map.run((bytes, &[], shape), of, out, (&maps.memory, scratch))?;
        Ok(Made { bytes, others: is_first.then_some(sample.values) })
    }
}

fn no_bytes() -> Error {
    Error::new(ErrorKind::Internal, "what is kept of a sample has no bytes to transform")
}

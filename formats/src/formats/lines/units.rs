//! Compressed files as units: each is read and decoded as a whole.

use super::Lines;
use crate::dataset::{Dataset, SampleId, Span, UnitId, Units};
use bytes::Bytes;
use uringload_core::Result;

impl Units for Lines {
    fn count(&self) -> u32 {
        // At most one per file, and there are fewer than 2^32 files.
        self.packed.len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.unit(self.index.locate(id).0));
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        out.push(self.packed[unit.0 as usize].stored(self.files()));
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.packed[unit.0 as usize].decoded_bytes.max(1)
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        self.packed[unit.0 as usize].decode(self.files(), stored, out)
    }
}

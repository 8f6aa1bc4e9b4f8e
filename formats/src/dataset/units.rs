//! Chunks of samples that are stored in a form from which a single sample cannot be read.

use super::sample::{SampleId, Span};
use super::sizes;
use bytes::Bytes;
use uringload_core::Result;

/// The number of a unit in its dataset, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u32);

/// The units of a dataset: chunks that are compressed as a whole, or stored column by column. Each is read and decoded
/// as a whole and stays in memory while it is needed; samples are slices of it.
///
/// The reading thread calls all methods but [`decode`](Units::decode), so they must neither block nor do I/O. `decode`
/// runs on several threads at once.
pub trait Units: Send + Sync {
    /// The number of units, at least 1.
    fn count(&self) -> u32;

    /// Appends the units that a sample is cut from, in the order in which [`Dataset::parse`](crate::Dataset::parse)
    /// wants them. None for a sample that is read by its spans.
    fn of(&self, id: SampleId, out: &mut Vec<UnitId>);

    /// Appends the spans that the unit is stored in, in the order in which `decode` wants them.
    fn stored(&self, unit: UnitId, out: &mut Vec<Span>);

    /// The most bytes that the unit can decode to, at least 1. It gets this much memory.
    fn decoded_bytes(&self, unit: UnitId) -> u64;

    /// The largest [`decoded_bytes`](Units::decoded_bytes) of all units. By default asks every unit.
    fn largest_decoded(&self) -> u64 {
        (0..self.count()).map(|unit| self.decoded_bytes(UnitId(unit))).max().unwrap_or(1)
    }

    /// The most bytes that a unit is stored in. By default asks every unit.
    fn largest_stored(&self) -> u64 {
        let mut spans = Vec::new();
        let stored = |unit| {
            spans.clear();
            self.stored(UnitId(unit), &mut spans);
            sizes::sum(spans.iter().map(|span| span.len))
        };
        (0..self.count()).map(stored).max().unwrap_or(0)
    }

    /// The most bytes that decoding one unit takes beside what is stored and what it decodes to, such as a page or a
    /// dictionary that is decompressed. By default none.
    fn largest_scratch(&self) -> u64 {
        0
    }

    /// Decodes a unit into `out` and returns its length. `stored` holds one slice for each span, exactly as long as the
    /// span; `out` has the length of [`decoded_bytes`](Units::decoded_bytes) and any content.
    ///
    /// # Errors
    /// `Corrupt` where the stored bytes break the format or decode to more than they should. It becomes the error of
    /// every sample that is cut from the unit.
    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize>;
}

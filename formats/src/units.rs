//! Chunks of samples that are stored in a form from which no single sample can be read.

use crate::{SampleId, Span, sizes};
use bytes::Bytes;
use uringload_core::Result;

/// Number of a unit in its dataset, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u32);

/// The units of a dataset: chunks that are compressed as a whole, or stored column by column. Each is read and decoded
/// as a whole, into memory where it stays while it is of use, and samples are slices of it.
///
/// All methods but [`decode`](Units::decode) are called from the reactor's thread and must neither block nor do I/O.
/// `decode` runs on any thread, for several units at once.
pub trait Units: Send + Sync {
    /// Number of units, 1 or more.
    fn count(&self) -> u32;

    /// Appends the units that a sample is cut from, in the order in which
    /// [`Dataset::parse`](super::Dataset::parse) wants them; none for a sample that is read by its spans.
    fn of(&self, id: SampleId, out: &mut Vec<UnitId>);

    /// Appends the spans that the unit is stored in, in the order in which `decode` wants them. A pure look-up.
    fn stored(&self, unit: UnitId, out: &mut Vec<Span>);

    /// Bytes that the unit has at most when it is decoded: the memory that it is given. At least 1.
    fn decoded_bytes(&self, unit: UnitId) -> u64;

    /// The most that [`decoded_bytes`](Units::decoded_bytes) says of any unit. By default all units are asked.
    fn largest_decoded(&self) -> u64 {
        (0..self.count()).map(|unit| self.decoded_bytes(UnitId(unit))).max().unwrap_or(1)
    }

    /// The most bytes that the spans of any unit have together. By default all units are asked.
    fn largest_stored(&self) -> u64 {
        let mut spans = Vec::new();
        let stored = |unit| {
            spans.clear();
            self.stored(UnitId(unit), &mut spans);
            sizes::sum(spans.iter().map(|span| span.len))
        };
        (0..self.count()).map(stored).max().unwrap_or(0)
    }

    /// Decodes a unit: `stored` holds one slice for each span, each exactly as long as its span, and `out` is as long
    /// as [`decoded_bytes`](Units::decoded_bytes) says and holds anything. Returns how many bytes of it are the unit.
    ///
    /// # Errors
    /// `Corrupt` where what is stored breaks the format, or decodes to more than it should; it becomes the error of
    /// every sample that is cut from the unit.
    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize>;
}

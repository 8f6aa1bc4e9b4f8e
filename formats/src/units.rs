//! Chunks of samples that are stored in a form from which a single sample cannot be read.

use crate::{SampleId, Span};
use bytes::Bytes;
use uringload_core::Result;

/// Number of a unit in its dataset, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u32);

/// The units of a dataset: chunks that are compressed as a whole, or stored column by column. Each is read and decoded
/// as a whole, into memory where it stays while it is needed. Samples are slices of it.
///
/// All methods except [`decode`](Units::decode) are called on the reactor's thread and must neither block nor do I/O.
/// `decode` runs on any thread, for several units at once.
pub trait Units: Send + Sync {
    /// Number of units, at least 1.
    fn count(&self) -> u32;

    /// Appends the units that a sample is cut from, in the order in which [`Dataset::parse`](super::Dataset::parse)
    /// expects them; none for a sample that is read by its spans.
    fn of(&self, id: SampleId, out: &mut Vec<UnitId>);

    /// Appends the spans in which the unit is stored, in the order in which `decode` expects them. A pure look-up.
    fn stored(&self, unit: UnitId, out: &mut Vec<Span>);

    /// Maximum decoded bytes of the unit: the memory that it is given. At least 1.
    fn decoded_bytes(&self, unit: UnitId) -> u64;

    /// The largest value of [`decoded_bytes`](Units::decoded_bytes) for any unit.
    fn largest_decoded(&self) -> u64;

    /// The most bytes that the spans of any unit have in total.
    fn largest_stored(&self) -> u64;

    /// Decodes a unit. `stored` holds one slice for each span, each exactly as long as its span. `out` has the length
    /// of [`decoded_bytes`](Units::decoded_bytes), with arbitrary content. Returns how many bytes of it are the unit.
    ///
    /// # Errors
    /// `Corrupt` if the stored bytes break the format, or decode to more than they should; it becomes the error of
    /// every sample that is cut from the unit.
    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize>;
}

//! The place of a column's values in a row group, and what reading them takes.

use super::types::Compression;
use crate::formats::columnar::ByteRange;

/// The values of a column in a row group: the unit of reading.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub(super) place: ByteRange,
    /// The number of values, with nulls.
    pub(super) values: u64,
    /// Bytes of its decompressed pages.
    pub(super) decoded: u64,
    pub(super) compression: Compression,
    /// The most bytes that its elements take, if their number is not the number of rows.
    pub(super) room: u64,
    /// The most bytes that decoding it takes, beside what is stored and what is decoded.
    pub(super) scratch: u64,
}

/// The chunks of a column in a row group: one for each leaf of the schema that it has.
#[derive(Clone, Debug)]
pub struct Chunks {
    pub(super) places: Box<[ByteRange]>,
    pub(super) chunks: Box<[Chunk]>,
}

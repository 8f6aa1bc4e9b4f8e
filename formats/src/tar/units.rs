//! Compressed shards as units: read and decoded as a whole.

use super::{Tar, packed};
use crate::sidecar::Sidecar;
use crate::{Dataset, FileId, SampleId, Span, UnitId, Units};
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

/// The shards that are compressed and have samples.
#[derive(Debug, Default)]
pub(super) struct Packed {
    files: Vec<FileId>,
    largest_decoded: u64,
    largest_stored: u64,
}

impl Packed {
    /// Makes a shard of `size` bytes a unit, if it is compressed and has samples.
    pub(super) fn add(&mut self, sidecar: &Sidecar, file: FileId, size: u64) -> Option<UnitId> {
        let (_, decoded) = sidecar.decoded().filter(|_| sidecar.len() > 0)?;
        self.largest_decoded = self.largest_decoded.max(decoded);
        self.largest_stored = self.largest_stored.max(size);
        self.files.push(file);
        // Fits: there are no more units than files, and a table has fewer than 2^32.
        Some(UnitId((self.files.len() - 1) as u32))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

impl Units for Tar {
    fn count(&self) -> u32 {
        // Fits: see `Packed::add`.
        self.packed.files.len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.shards[self.locate(id).0.0 as usize].unit);
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let file = self.packed.files[unit.0 as usize];
        out.push(Span { file, offset: 0, len: self.files().size(file) });
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        let file = self.packed.files[unit.0 as usize];
        // A shard with a sample has at least a header. If an index says otherwise, no sample can be read from the one
        // byte.
        self.shards[file.0 as usize].sidecar.decoded().map_or(1, |(_, bytes)| bytes.max(1))
    }

    fn largest_decoded(&self) -> u64 {
        self.packed.largest_decoded.max(1)
    }

    fn largest_stored(&self) -> u64 {
        self.packed.largest_stored
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let file = self.packed.files[unit.0 as usize];
        let path = || self.files().path(file);
        let broken = |what: String| Error::new(ErrorKind::Corrupt, what).with_path(path()).with_offset(0);
        let decoded = self.shards[file.0 as usize].sidecar.decoded().zip(stored.first());
        let Some(((compression, bytes), stored)) = decoded else {
            return Err(broken("nothing was read of a compressed archive".into()));
        };
        let len = compression
            .decode(stored, out)
            .map_err(|error| packed::undecodable(compression, error).with_path(path()).with_offset(0))?;
        if len as u64 != bytes {
            let what = format!("the archive decompresses to {len} bytes, and its index says {bytes}");
            return Err(broken(what).with_remedy("build the index again with `uringload index --rebuild`"));
        }
        Ok(len)
    }
}

//! Compressed files as units: each is read and decoded as a whole.

use super::TfRecord;
use crate::compression::Compression;
use crate::units::{UnitId, Units};
use crate::{Dataset, FileId, SampleId, Span};
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

/// A compressed file.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) file: FileId,
    pub(super) compression: Compression,
    pub(super) decoded_bytes: u64,
    /// Whether something follows that cannot be read.
    pub(super) is_cut: bool,
}

impl Units for TfRecord {
    fn count(&self) -> u32 {
        // At most one per file, and there are fewer than 2^32 files.
        self.units.len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.shard(self.index.locate(id).0).unit);
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let file = self.units[unit.0 as usize].file;
        out.push(Span { file, offset: 0, len: self.files().size(file) });
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.units[unit.0 as usize].decoded_bytes.max(1)
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let Unit { file, compression, decoded_bytes, is_cut } = &self.units[unit.0 as usize];
        let stored = stored.first().map_or(&[][..], |stored| &stored[..]);
        // Fits: the caller has allocated this much.
        let whole = (*decoded_bytes as usize).min(out.len());
        let decoded = if *is_cut {
            // What follows cannot be decoded.
            compression.reader(stored).and_then(|mut reader| reader.read_exact(&mut out[..whole])).map(|()| whole)
        } else {
            compression.decode(stored, &mut out[..whole])
        };
        match decoded {
            Ok(bytes) if bytes as u64 == *decoded_bytes => Ok(bytes),
            Ok(bytes) => {
                let what = format!("the file decodes to {bytes} bytes, and its index says {decoded_bytes}");
                Err(Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(*file)).with_offset(0))
            }
            Err(error) => {
                let what = format!("cannot decode the {} stream", compression.name());
                let error = Error::new(ErrorKind::Corrupt, what).with_source(error);
                Err(error.with_path(self.files().path(*file)).with_offset(0))
            }
        }
    }
}

//! Shards that are compressed, or have sparse members, as units: read and decoded as a whole.

use super::{Tar, packed};
use crate::dataset::{Dataset, SampleId, Span, UnitId, Units};
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

impl Units for Tar {
    fn count(&self) -> u32 {
        // Fits: there are no more units than files, of which a table has fewer than 2^32.
        self.packed.len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.shards[self.index.locate(id).0.0 as usize].unit);
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let file = self.packed[unit.0 as usize];
        out.push(Span { file, offset: 0, len: self.files().size(file) });
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        let file = self.packed[unit.0 as usize];
        // A shard with a sample has at least a header. If an index says otherwise, no sample can be read from the one
        // byte.
        self.shards[file.0 as usize].sidecar.decoded().map_or(1, |(_, bytes)| bytes.max(1))
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let file = self.packed[unit.0 as usize];
        let path = || self.files().path(file);
        let broken = |what: String| Error::new(ErrorKind::Corrupt, what).with_path(path()).with_offset(0);
        let decoded = self.shards[file.0 as usize].sidecar.decoded().zip(stored.first());
        let Some(((coding, bytes), stored)) = decoded else {
            return Err(broken("nothing was read of a compressed archive".into()));
        };
        let len = packed::decode(coding, stored, out)
            .map_err(|error| packed::undecodable(coding, error).with_path(path()).with_offset(0))?;
        if len as u64 != bytes {
            let what = format!("the archive decodes to {len} bytes, and its index says {bytes}");
            return Err(broken(what).with_remedy("build the index again with `uringload index --rebuild`"));
        }
        Ok(len)
    }
}

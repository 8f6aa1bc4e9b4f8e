//! Deflated arrays as units: read and inflated as a whole.

use super::Arrays;
use super::table::{At, Unit};
use crate::compression::Compression;
use crate::npz::SUFFIX;
use crate::{Dataset, SampleId, Span, UnitId, Units};
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

impl Arrays {
    fn unit(&self, unit: UnitId) -> &Unit {
        &self.table.units()[unit.0 as usize]
    }
}

impl Units for Arrays {
    fn count(&self) -> u32 {
        // Fits: the table made sure of it.
        self.table.units().len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.table.places(id.0).filter_map(|(at, _)| match at {
            At::File(_) => None,
            At::Unit(unit, _) => Some(unit),
        }));
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let Unit { file, deflated, .. } = *self.unit(unit);
        out.push(Span { file, offset: deflated.start, len: deflated.stored });
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.unit(unit).deflated.bytes
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let unit = self.unit(unit);
        let broken = |what: &str| {
            let what = format!("member \"{}{SUFFIX}\" {what}", self.table.unit_name(unit).escape_debug());
            let error = Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(unit.file));
            error.with_offset(unit.deflated.start).with_remedy("fetch or write the file again")
        };
        let stored = stored.first().ok_or_else(|| broken("was not read"))?;
        let inflated = Compression::Deflate.decode(stored, out);
        let len = inflated.map_err(|error| broken("cannot be inflated").with_source(error))?;
        if len as u64 != unit.deflated.bytes {
            return Err(broken(&format!("inflates to {len} bytes, and the directory says {}", unit.deflated.bytes)));
        }
        let mut crc = flate2::Crc::new();
        crc.update(out.get(..len).unwrap_or_default());
        if crc.sum() != unit.deflated.crc {
            let (found, wanted) = (crc.sum(), unit.deflated.crc);
            return Err(broken(&format!("has the checksum {found:08x}, and the directory says {wanted:08x}")));
        }
        Ok(len)
    }
}

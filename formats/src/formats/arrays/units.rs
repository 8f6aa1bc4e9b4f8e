//! Deflated arrays, and those in Fortran order, as units: read and made plain as a whole.

use super::Arrays;
use super::npz::SUFFIX;
use super::order::c_order;
use super::table::{At, Unit};
use crate::dataset::{Dataset, SampleId, Span, UnitId, Units};
use crate::formats::endian::turn;
use crate::formats::zip::directory;
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

impl Arrays {
    fn unit(&self, unit: UnitId) -> &Unit {
        &self.table.units()[unit.0 as usize]
    }

    /// Inflates a deflated member into `out`, which is as long as it.
    fn inflate(&self, unit: &Unit, stored: &[u8], out: &mut [u8]) -> Result<()> {
        directory::inflate(stored, out, unit.packed.bytes, unit.packed.crc).map_err(|what| {
            let what = format!("member \"{}{SUFFIX}\" {what}", self.table.unit_name(unit).escape_debug());
            let error = Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(unit.file));
            error.with_offset(unit.packed.start).with_remedy("fetch or write the file again")
        })
    }
}

impl Units for Arrays {
    fn count(&self) -> u32 {
        // Fits: the table made sure of it.
        self.table.units().len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.table.places(id.0).filter_map(|value| match value.at {
            At::File(_) => None,
            At::Unit(unit, _) => Some(unit),
        }));
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let Unit { file, packed, .. } = *self.unit(unit);
        out.push(Span { file, offset: packed.start, len: packed.stored });
    }

    /// An array that is deflated and in Fortran order is inflated after its place, and then put there.
    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        let unit = self.unit(unit);
        match (unit.is_deflated, unit.is_fortran) {
            (false, _) => unit.array_bytes.max(1),
            (true, false) => unit.packed.bytes,
            (true, true) => unit.packed.bytes.saturating_add(unit.array_bytes),
        }
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let unit = self.unit(unit);
        let stored = stored.first().map_or(&[][..], |stored| &stored[..]);
        // Fits: the caller has allocated this much.
        let (header, array, element) = (unit.header as usize, unit.array_bytes as usize, unit.element_bytes);
        let whole = match (unit.is_deflated, unit.is_fortran) {
            (true, false) => {
                self.inflate(unit, stored, out)?;
                header + array
            }
            (true, true) => {
                let (out, inflated) = out.split_at_mut(array.min(out.len()));
                self.inflate(unit, stored, inflated)?;
                c_order(&inflated[header..], self.table.unit_shape(unit), element, out);
                array
            }
            (false, _) if stored.len() == array && array <= out.len() => {
                c_order(stored, self.table.unit_shape(unit), element, &mut out[..array]);
                array
            }
            (false, _) => {
                let what = format!("an array of {array} bytes was read as {}", stored.len());
                return Err(Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(unit.file)));
            }
        };
        if unit.is_big_endian {
            turn(&mut out[whole - array..whole], element);
        }
        Ok(whole)
    }
}

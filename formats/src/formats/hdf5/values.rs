//! Values of variable length: an element says which collection of the file's global heap contains its bytes.
//!
//! Source: "HDF5 File Format Specification Version 3.0", sections III.E (global heap) and VIII.B.

use super::bands::Bands;
use super::meta::Meta;
use crate::index::headers::u32_at;
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

/// A collection up to this long is read at once; of a longer one, only the part before its objects.
const WHOLE_BYTES: u64 = 1 << 20;
const WHAT: &str = "a collection of the global heap";
/// Before an object: number, references, padding and length.
const OBJECT_HEAD_BYTES: u64 = 8;
/// Objects begin at multiples of this.
const OBJECT_UNIT: u64 = 8;

/// The place of each row's value in the file, and its bytes.
#[derive(Debug, Default)]
pub(super) struct Values(pub(super) Vec<(u64, u32)>);

impl Values {
    /// Bytes of all values.
    pub(super) fn bytes(&self) -> u64 {
        self.lens().sum()
    }

    pub(super) fn lens(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|&(_, len)| u64::from(len))
    }
}

/// What an element says: bytes of the value, the collection's address, and the object's number there.
#[derive(Clone, Copy)]
struct Reference {
    row: usize,
    len: u64,
    collection: u64,
    object: u64,
}

/// Bytes of a reference.
pub(super) fn reference_bytes(meta: &Meta<'_>) -> u64 {
    8 + meta.address_bytes as u64
}

/// The stored references of all rows of `bands`, decoded.
pub(super) fn decoded(meta: &Meta<'_>, bands: &Bands) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for band in 0..bands.count() {
        let stored = bands.chunks_of(band).iter().map(|chunk| {
            // Fits: a chunk has less than 4 GiB, and is in the file.
            meta.source.bytes(chunk.offset, chunk.len as usize, "a chunk").map(Bytes::from)
        });
        let stored = stored.collect::<Result<Vec<_>>>()?;
        let at = all.len();
        // Fits: the caller has bounded the rows.
        all.resize(at + (bands.rows_of(band).1 * bands.row_bytes()) as usize, 0);
        bands.decode(band, &stored, &mut all[at..]).map_err(|bad| {
            let error = meta.source.corrupt(bad.offset, "cannot decode a chunk").with_source(bad.cause);
            error.with_remedy("fetch or write the file again")
        })?;
    }
    Ok(all)
}

/// The places of the values to which `stored` refers; each element has `element_bytes`.
pub(super) fn locate(meta: &Meta<'_>, stored: &[u8], element_bytes: u64) -> Result<Values> {
    // Fits: a reference has at most 16 bytes.
    let references = stored.chunks_exact(reference_bytes(meta) as usize).enumerate().map(|(row, bytes)| {
        let mut address = [0; 8];
        address[..meta.address_bytes].copy_from_slice(&bytes[4..4 + meta.address_bytes]);
        Reference {
            row,
            len: u64::from(u32_at(bytes, 0)) * element_bytes,
            collection: u64::from_le_bytes(address),
            object: u32_at(bytes, 4 + meta.address_bytes).into(),
        }
    });
    let mut references: Vec<Reference> = references.collect();
    let mut values = Values(vec![(0, 0); references.len()]);
    let nowhere = u64::MAX >> (64 - 8 * meta.address_bytes);
    references.retain(|reference| reference.len > 0 && ![0, nowhere].contains(&reference.collection));
    // Collection by collection, so that each is looked through once, and one is in memory.
    references.sort_unstable_by_key(|reference| (reference.collection, reference.object));
    for of_one in references.chunk_by(|a, b| a.collection == b.collection) {
        let address = of_one[0].collection;
        let mut objects = objects(meta, address)?;
        objects.sort_unstable();
        for reference in of_one {
            let found = objects.binary_search_by_key(&reference.object, |&(number, ..)| number);
            let place = found.ok().map(|found| objects[found]).filter(|&(_, _, len)| reference.len <= len);
            let (Some((_, offset, _)), Ok(len)) = (place, u32::try_from(reference.len)) else {
                let what = format!("the value of row {} is not where its element says", reference.row);
                return Err(meta.source.corrupt(meta.base.saturating_add(address), what));
            };
            values.0[reference.row] = (offset, len);
        }
    }
    Ok(values)
}

/// Number, offset in the file and length of each object of a collection.
fn objects(meta: &Meta<'_>, address: u64) -> Result<Vec<(u64, u64, u64)>> {
    let head_bytes = OBJECT_HEAD_BYTES + meta.length_bytes as u64;
    let mut head = meta.signed(address, head_bytes, b"GCOL", 1, WHAT)?;
    head.skip(3)?;
    let all = meta.length(&mut head)?;
    let end = meta.base.checked_add(address).and_then(|start| start.checked_add(all));
    if end.is_none_or(|end| end > meta.source.size()) {
        let what = "a collection of the global heap ends past the end of the file";
        let error = Error::new(ErrorKind::Truncated, what).with_path(meta.source.path());
        return Err(error.with_offset(meta.base.saturating_add(address)));
    }
    let mut whole = (all <= WHOLE_BYTES).then(|| meta.read(address, all, WHAT)).transpose()?;
    if let Some(whole) = &mut whole {
        whole.skip((head_bytes as usize).min(whole.left()))?;
    }
    let (mut objects, mut at) = (Vec::new(), head_bytes);
    while at.checked_add(head_bytes).is_some_and(|next| next <= all) {
        let mut object = match &mut whole {
            Some(whole) => whole.part(head_bytes as usize, WHAT)?,
            None => meta.read(address + at, head_bytes, WHAT)?,
        };
        let number = u64::from(object.u16()?);
        object.skip(6)?;
        let len = meta.length(&mut object)?;
        // The rest is free.
        if number == 0 {
            break;
        }
        let next = len.checked_next_multiple_of(OBJECT_UNIT).and_then(|len| len.checked_add(at + head_bytes));
        let Some(next) = next.filter(|&next| next <= all) else {
            return Err(object.corrupt("an object of the global heap reaches over the end of its collection"));
        };
        objects.push((number, meta.base + address + at + head_bytes, len));
        if let Some(whole) = &mut whole {
            // Fits: it is in what was read.
            whole.skip((next - at - head_bytes) as usize)?;
        }
        at = next;
    }
    Ok(objects)
}

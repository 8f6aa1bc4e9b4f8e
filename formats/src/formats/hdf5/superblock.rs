//! The superblock: where a file begins, the widths of its numbers, and the address of its root group.

use super::header::{self, CACHE_IMAGE, DRIVER};
use super::meta::Meta;
use crate::index::headers::Source;
use crate::place::Place;
use uringload_core::{ErrorKind, Result};

/// The first bytes of a superblock.
pub(super) const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// The first offset after 0 at which a superblock may be; each further one is twice the previous.
const USER_BLOCK_BYTES_MIN: u64 = 512;

const WHAT: &str = "the superblock";

/// The place of the signature: 0, or after a user block of 512 bytes, 1024, 2048 and so on.
fn find(source: &Source) -> Result<Option<u64>> {
    let (mut at, size) = (0, source.size());
    while at < size && size - at >= SIGNATURE.len() as u64 {
        let mut found = [0; 8];
        source.read(at, &mut found, WHAT)?;
        if found == *SIGNATURE {
            return Ok(Some(at));
        }
        at = if at == 0 { USER_BLOCK_BYTES_MIN } else { at.saturating_mul(2) };
    }
    Ok(None)
}

/// Whether a file has a superblock.
pub(super) fn is_there(place: &Place) -> bool {
    place.open().and_then(|source| find(&source)).is_ok_and(|at| at.is_some())
}

/// Reads the superblock: the file with its number widths, and the address of the root group.
pub(super) fn read(source: &Source) -> Result<(Meta<'_>, u64)> {
    let Some(at) = find(source)? else {
        let error = source.corrupt(0, "there is no HDF5 superblock");
        return Err(error.with_remedy("check that this is an HDF5 file"));
    };
    let head = source.bytes(at, 16, WHAT)?;
    let version = head[8];
    let widths = match version {
        0 | 1 => [head[13], head[14]],
        2 | 3 => [head[9], head[10]],
        _ => {
            let error = source.unavailable(at + 8, format!("the superblock has the unknown version {version}"));
            return Err(error.with_remedy("write the file with libver=\"v110\", or with h5repack --high=2"));
        }
    };
    if !widths.iter().all(|width| [2, 4, 8].contains(width)) {
        return Err(source.corrupt(at + 9, format!("addresses and lengths cannot have {widths:?} bytes")));
    }
    let meta = Meta::new(source, at, widths[0].into(), widths[1].into());
    let (stored_base, end, extension, root) =
        if version < 2 { read_old(&meta, version)? } else { read_new(&meta, version)? };
    // The end is relative to where the writer saw the file begin. That moved if a user block was added since.
    let end = end.saturating_sub(stored_base).saturating_add(at);
    if end > source.size() {
        let size = source.size();
        let what = format!("the file has {size} bytes, and had {end} when it was closed");
        return Err(uringload_core::Error::new(ErrorKind::Truncated, what)
            .with_path(source.path())
            .with_offset(size)
            .with_remedy("copy the file again; if it was being written, wait for the end"));
    }
    if let Some(extension) = extension {
        for message in header::messages(&meta, extension)? {
            match message.kind {
                DRIVER => return Err(split(&meta)),
                CACHE_IMAGE => {
                    let error = message.body.unavailable("the file keeps its metadata in a cache image");
                    return Err(error.with_remedy("open it for writing once, or write it again with h5repack"));
                }
                _ => {}
            }
        }
    }
    Ok((meta, root))
}

type Found = (u64, u64, Option<u64>, u64);

fn read_old(meta: &Meta<'_>, version: u8) -> Result<Found> {
    let fixed = if version == 0 { 24 } else { 28 };
    let mut block = meta.read(0, fixed + 6 * meta.address_bytes as u64, WHAT)?;
    block.skip(fixed as usize)?;
    let base = block.number(meta.address_bytes)?;
    block.skip(meta.address_bytes)?;
    let end = block.number(meta.address_bytes)?;
    if meta.address(&mut block)?.is_some() {
        return Err(split(meta));
    }
    // The root's symbol table entry: a name offset, which has no meaning here, then its address.
    block.skip(meta.address_bytes)?;
    let root = meta.address(&mut block)?.ok_or_else(|| block.corrupt("there is no root group"))?;
    Ok((base, end, None, root))
}

fn read_new(meta: &Meta<'_>, version: u8) -> Result<Found> {
    let mut block = meta.read(0, 16 + 4 * meta.address_bytes as u64, WHAT)?;
    block.check()?;
    block.skip(11)?;
    let flags = block.u8()?;
    // Bits 0 and 2: opened for writing, and opened for single-writer/multiple-reader access.
    if version == 3 && flags & 0b101 != 0 {
        let error = block.unavailable("the file is marked as being written");
        return Err(error.with_remedy("wait for the writer to close it; if there is none, run h5clear --status"));
    }
    let base = block.number(meta.address_bytes)?;
    let extension = meta.address(&mut block)?;
    let end = block.number(meta.address_bytes)?;
    let root = meta.address(&mut block)?.ok_or_else(|| block.corrupt("there is no root group"))?;
    Ok((base, end, extension, root))
}

fn split(meta: &Meta<'_>) -> uringload_core::Error {
    let error = meta.source.unavailable(meta.base, "a file driver has split the file");
    error.with_remedy("write it again as one file with h5repack")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_may_stand_behind_a_user_block() {
        let file_of = |at: usize, size: usize| {
            let mut bytes = vec![0; size];
            bytes[at..at + 8].copy_from_slice(SIGNATURE);
            bytes
        };
        let found = |bytes: &[u8]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            find(&Place::new(file.path()).open().unwrap()).unwrap()
        };
        assert_eq!(found(&file_of(0, 8)), Some(0));
        assert_eq!(found(&file_of(512, 520)), Some(512));
        assert_eq!(found(&file_of(4096, 5000)), Some(4096));
        assert_eq!(found(&file_of(100, 5000)), None);
        assert_eq!(found(&[0; 7]), None);
    }
}

//! Bytes that are a function of (key, offset), so that any piece of any file can be checked by itself.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const WORD: u64 = 8;
const CHUNK_BYTES: usize = 1 << 20;

/// The key of a file: FNV-1a of its name.
pub fn key_of(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Fills `out` with the content of the file `key` from `offset` on.
pub fn fill(key: u64, offset: u64, out: &mut [u8]) {
    let mut at = offset;
    let mut rest = out;
    while !rest.is_empty() {
        let word = word(key, at / WORD).to_le_bytes();
        let skip = (at % WORD) as usize;
        let len = rest.len().min(WORD as usize - skip);
        let (head, tail) = rest.split_at_mut(len);
        head.copy_from_slice(&word[skip..skip + len]);
        rest = tail;
        at += len as u64;
    }
}

/// `len` bytes of the content of the file `key` from `offset` on.
pub fn content(key: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(key, offset, &mut bytes);
    bytes
}

/// The first index at which two slices differ, which may be that of the end of the shorter one.
pub fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        return None;
    }
    let common = one.iter().zip(other).position(|(one, other)| one != other);
    Some(common.unwrap_or(one.len().min(other.len())))
}

/// The first offset where `bytes` differ from the content of the file `key` from `offset` on.
pub fn first_wrong(key: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let mut wanted = [0; 4096];
    for (chunk, bytes) in bytes.chunks(wanted.len()).enumerate() {
        let start = offset + (chunk * wanted.len()) as u64;
        let wanted = &mut wanted[..bytes.len()];
        fill(key, start, wanted);
        if let Some(at) = first_difference(wanted, bytes) {
            return Some(start + at as u64);
        }
    }
    None
}

/// Writes a file of `size` bytes, with its own name as the key.
pub fn write_file(path: &Path, size: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let key = key_of(name_of(path));
    let mut chunk = vec![0; CHUNK_BYTES.min(size as usize)];
    let mut offset = 0;
    while offset < size {
        let len = chunk.len().min((size - offset) as usize);
        fill(key, offset, &mut chunk[..len]);
        file.write_all(&chunk[..len])?;
        offset += len as u64;
    }
    Ok(())
}

/// Writes a file, or overwrites the one that exists. It does not truncate that one first: ext4 would write it to the
/// disk at once, which is slow in a test that does it thousands of times.
pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = File::options().create(true).write(true).truncate(false).open(path)?;
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

/// Makes a file of `size` bytes that has its content in `ranges` of (offset, length) and is a hole elsewhere.
pub fn write_sparse(path: &Path, size: u64, ranges: &[(u64, usize)]) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(size)?;
    let key = key_of(name_of(path));
    for &(offset, len) in ranges {
        file.write_all_at(&content(key, offset, len), offset)?;
    }
    file.sync_all()
}

/// The last component of a path, in bytes.
pub fn name_of(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.file_name().expect("a path to a file has a name"))
}

/// SplitMix64's mixer: no word tells anything about its neighbours.
fn word(key: u64, index: u64) -> u64 {
    let mut z = key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

//! Writes headers of members: ustar, preceded by a PAX header if a name, a size or a boundary requires one.
//!
//! Sources: POSIX.1-2017 `pax` ("ustar Interchange Format", "pax Extended Header"), and Python's `tarfile`, whose
//! archives webdataset's `ShardWriter` writes.

use std::io::Write;

/// Bytes of a header. Everything in an archive is a multiple of this.
pub(super) const BLOCK_BYTES: u64 = 512;

/// The longest name that fits in a ustar header.
const NAME_BYTES: usize = 100;
/// The largest size that fits in eleven octal digits.
const SIZE_MAX: u64 = (1 << 33) - 1;
/// The name that Python's `tarfile` gives PAX headers.
const PAX_NAME: &[u8] = b"././@PaxHeader";
/// Owner of members, as in webdataset's `ShardWriter`.
const OWNER: &[u8] = b"bigdata";
/// All users may read a member, as in webdataset's `ShardWriter`.
const MODE: &[u8] = b"0000444\0";

/// Bytes before the content of a member without padding.
pub(super) fn least_bytes(name: &[u8], size: u64) -> u64 {
    match records_bytes(name, size) {
        0 => BLOCK_BYTES,
        records => 2 * BLOCK_BYTES + records.next_multiple_of(BLOCK_BYTES),
    }
}

/// Whether padding of this many bytes, a multiple of a block, is possible before a member.
pub(super) fn can_pad(name: &[u8], size: u64, padding: u64) -> bool {
    // A PAX header that only serves as padding has a header and a body.
    padding == 0 || padding >= 2 * BLOCK_BYTES || records_bytes(name, size) > 0
}

/// Appends everything before the content: `least_bytes` and `padding` bytes.
pub(super) fn write(name: &[u8], size: u64, padding: u64, out: &mut Vec<u8>) {
    let mut records = Vec::new();
    if name.len() > NAME_BYTES {
        push_record(&mut records, b"path", name);
    }
    if size > SIZE_MAX {
        push_record(&mut records, b"size", size.to_string().as_bytes());
    }
    let room = match records.len() as u64 {
        0 => padding.saturating_sub(BLOCK_BYTES),
        records => records.next_multiple_of(BLOCK_BYTES) + padding,
    };
    if padding > 0 {
        push_filler(&mut records, room);
    }
    if !records.is_empty() {
        out.extend(block(PAX_NAME, b'x', records.len() as u64));
        let end = out.len() + records.len().next_multiple_of(BLOCK_BYTES as usize);
        out.append(&mut records);
        out.resize(end, 0);
    }
    out.extend(block(name, b'0', size));
}

/// Bytes of the records that a member needs.
fn records_bytes(name: &[u8], size: u64) -> u64 {
    let path = if name.len() > NAME_BYTES { record_bytes(b"path".len() + name.len()) } else { 0 };
    let size = if size > SIZE_MAX { record_bytes(b"size".len() + size.to_string().len()) } else { 0 };
    (path + size) as u64
}

/// Bytes of a record with this length of key and value: its length, which includes itself, a blank, "=" and a newline.
fn record_bytes(key_and_value: usize) -> usize {
    let rest = key_and_value + 3;
    let mut len = rest + 1;
    while len != rest + digits(len) {
        len = rest + digits(len);
    }
    len
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn push_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let len = record_bytes(key.len() + value.len());
    write!(records, "{len} ").expect("a Vec takes everything");
    records.extend([key, b"=", value, b"\n"].concat());
}

/// Fills `records` up to `room` bytes with a comment, which readers ignore. At least a block is missing.
fn push_filler(records: &mut Vec<u8>, room: u64) {
    // Fits: a few blocks, and names are shorter than 64 KiB.
    let len = room as usize - records.len();
    let head = format!("{len} comment=");
    records.extend(head.as_bytes());
    records.resize(room as usize - 1, b'.');
    records.push(b'\n');
}

/// A ustar header. Values that do not fit are in the records before it, and are cut or 0 here, as in Python.
fn block(name: &[u8], kind: u8, size: u64) -> [u8; BLOCK_BYTES as usize] {
    let mut block = [0; BLOCK_BYTES as usize];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name[..name.len().min(NAME_BYTES)]);
    put(100, MODE);
    put(108, b"0000000\x000000000\0");
    put(124, format!("{:011o}", if size > SIZE_MAX { 0 } else { size }).as_bytes());
    put(136, b"00000000000\0        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(265, OWNER);
    put(297, OWNER);
    put(329, b"0000000\x000000000\0");
    // The sum counts its own field as blanks, which are still there.
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tests/pack` checks how GNU tar 1.34, Python's tarfile and our own reader parse these bytes.
    #[test]
    fn padding_has_the_length_that_is_asked_for() {
        let names = [b"a.jpg".to_vec(), vec![b'n'; 100], vec![b'n'; 101], vec![b'n'; 490], vec![b'n'; 5000]];
        for name in &names {
            for size in [0, 1, SIZE_MAX, SIZE_MAX + 1, u64::MAX] {
                for padding in (0..40).map(|blocks| blocks * BLOCK_BYTES) {
                    if !can_pad(name, size, padding) {
                        assert_eq!(padding, BLOCK_BYTES);
                        continue;
                    }
                    let mut out = Vec::new();
                    write(name, size, padding, &mut out);
                    let wanted = least_bytes(name, size) + padding;
                    assert_eq!(out.len() as u64, wanted, "{} {size} {padding}", name.len());
                    check(&out, name, size);
                }
            }
        }
    }

    /// Header, records, header; the records contain their own lengths.
    fn check(bytes: &[u8], name: &[u8], size: u64) {
        let octal = |at: usize| u64::from_str_radix(std::str::from_utf8(&bytes[at..at + 11]).unwrap(), 8).unwrap();
        let (mut path, mut told) = (name[..name.len().min(100)].to_vec(), octal(bytes.len() - 512 + 124));
        if bytes.len() > 512 {
            let mut records = &bytes[512..512 + octal(124) as usize];
            assert_eq!(bytes[156], b'x');
            while !records.is_empty() {
                let blank = records.iter().position(|&byte| byte == b' ').unwrap();
                let len: usize = std::str::from_utf8(&records[..blank]).unwrap().parse().unwrap();
                let record = records[blank + 1..len].strip_suffix(b"\n").unwrap();
                let equals = record.iter().position(|&byte| byte == b'=').unwrap();
                match &record[..equals] {
                    b"path" => path = record[equals + 1..].to_vec(),
                    b"size" => told = std::str::from_utf8(&record[equals + 1..]).unwrap().parse().unwrap(),
                    key => assert_eq!(key, b"comment"),
                }
                records = &records[len..];
            }
        }
        assert_eq!((&path[..], told), (name, size));
    }
}

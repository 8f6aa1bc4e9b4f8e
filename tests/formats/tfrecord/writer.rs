//! A writer of the format, byte for byte TensorFlow's.

use super::Row;
use std::io::Write;

/// CRC-32C, bit by bit from its polynomial: nothing that the library uses.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    let crc = crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// A header that claims a length, with the right checksum.
pub fn header(len: u64) -> Vec<u8> {
    let len = len.to_le_bytes();
    [&len[..], &masked(&len)].concat()
}

/// A record in its frame.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    [&header(payload.len() as u64)[..], payload, &masked(payload)].concat()
}

/// A file of records.
pub fn file(payloads: &[impl AsRef<[u8]>]) -> Vec<u8> {
    payloads.iter().flat_map(|payload| frame(payload.as_ref())).collect()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

pub fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// A number as protobuf writes it.
pub fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// A field of bytes.
pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(bytes.len() as u64), bytes].concat()
}

/// A feature of byte strings.
pub fn strings(values: &[&[u8]]) -> Vec<u8> {
    field(1, &values.iter().flat_map(|value| field(1, value)).collect::<Vec<u8>>())
}

/// A feature of floats. Where there is none, no list of them is written either.
pub fn floats(bytes: &[u8]) -> Vec<u8> {
    field(2, &if bytes.is_empty() { Vec::new() } else { field(1, bytes) })
}

/// A feature of integers.
pub fn integers(values: &[i64]) -> Vec<u8> {
    let packed: Vec<u8> = values.iter().flat_map(|&value| varint(value as u64)).collect();
    field(3, &if packed.is_empty() { packed } else { field(1, &packed) })
}

/// An example of these features, in this order.
pub fn features(features: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entry = |(name, feature): &(&str, Vec<u8>)| field(1, &[field(1, name.as_bytes()), field(2, feature)].concat());
    field(1, &features.iter().flat_map(entry).collect::<Vec<u8>>())
}

/// An example as make_tfrecord.py writes it.
pub fn example(row: &Row) -> Vec<u8> {
    let feature = |(name, value): (&String, &Vec<u8>)| match &**name {
        "image" | "text/ü" => strings(&[value]),
        "box" | "scores" => floats(value),
        _ => integers(&value.chunks(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect::<Vec<_>>()),
    };
    let all: Vec<(&str, Vec<u8>)> = row.iter().map(|(name, value)| (&**name, feature((name, value)))).collect();
    features(&all)
}

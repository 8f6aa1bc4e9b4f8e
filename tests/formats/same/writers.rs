//! Formats written by hand, in their simplest form.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Samples in a shard.
const SHARD: usize = 23;

/// CRC-32C, bit by bit from its polynomial.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// The CRC-32 of zip, likewise.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

fn u32s(numbers: impl IntoIterator<Item = usize>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| (number as u32).to_le_bytes()).collect()
}

/// A table of offsets and the samples after it, each with the length of its one value.
fn table(samples: &[Vec<u8>], config: &[u8]) -> Vec<u8> {
    let mut at = 4 * (samples.len() + 2) + config.len();
    let mut offsets = vec![at];
    for sample in samples {
        at += 4 + sample.len();
        offsets.push(at);
    }
    let mut out = [u32s([samples.len()]), u32s(offsets), config.to_vec()].concat();
    for sample in samples {
        out.extend(u32s([sample.len()]));
        out.extend(sample);
    }
    out
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("a frame")
}

/// An MDS dataset.
pub fn mds(samples: &[Vec<u8>], zipped: bool, folder: &Path) -> PathBuf {
    fs::create_dir(folder).expect("a folder");
    let mut shards = Vec::new();
    for (number, samples) in samples.chunks(SHARD).enumerate() {
        let raw = table(samples, b"{}");
        let name = format!("shard.{number:05}.mds");
        let mut zip = serde_json::Value::Null;
        if zipped {
            let stored = zstd(&raw);
            let basename = format!("{name}.zstd");
            fs::write(folder.join(&basename), &stored).expect("a shard");
            zip = serde_json::json!({ "basename": basename, "bytes": stored.len(), "hashes": {} });
        } else {
            fs::write(folder.join(&name), &raw).expect("a shard");
        }
        shards.push(serde_json::json!({
            "column_encodings": ["bytes"], "column_names": ["x"], "column_sizes": [null], "format": "mds",
            "compression": zipped.then_some("zstd:1"), "hashes": [], "samples": samples.len(), "size_limit": 1 << 26,
            "raw_data": { "basename": name, "bytes": raw.len(), "hashes": {} }, "zip_data": zip, "version": 2,
        }));
    }
    let index = serde_json::json!({ "version": 2, "shards": shards });
    fs::write(folder.join("index.json"), index.to_string()).expect("an index");
    folder.to_owned()
}

/// A LitData dataset.
pub fn litdata(samples: &[Vec<u8>], zipped: bool, folder: &Path) -> PathBuf {
    fs::create_dir(folder).expect("a folder");
    let mut chunks = Vec::new();
    for (number, samples) in samples.chunks(SHARD).enumerate() {
        let raw = table(samples, b"");
        let stored = if zipped { zstd(&raw) } else { raw.clone() };
        let name = format!("chunk-0-{number}.{}bin", if zipped { "zstd." } else { "" });
        fs::write(folder.join(&name), stored).expect("a chunk");
        chunks.push(serde_json::json!({
            "chunk_bytes": raw.len(), "chunk_size": samples.len(), "dim": null, "filename": name,
        }));
    }
    let spec = r#"[1, {"type": "builtins.list", "context": "null", "children_spec": [
        {"type": null, "context": null, "children_spec": []}]}]"#;
    let index = serde_json::json!({
        "chunks": chunks,
        "config": {
            "compression": zipped.then_some("zstd"), "chunk_size": null, "chunk_bytes": 1 << 26,
            "data_format": ["bytes"], "data_spec": spec, "encryption": null, "item_loader": "PyTreeLoader",
        },
    });
    fs::write(folder.join("index.json"), index.to_string()).expect("an index");
    folder.to_owned()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// Field `number` of a message, of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(bytes.len()), bytes].concat()
}

/// Records of `tf.train.Example` with one feature "x".
pub fn tfrecord(samples: &[Vec<u8>]) -> Vec<u8> {
    let masked = |bytes: &[u8]| crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let frame = |payload: Vec<u8>| {
        let len = (payload.len() as u64).to_le_bytes();
        [&len[..], &masked(&len), &payload, &masked(&payload)].concat()
    };
    let example = |sample: &Vec<u8>| {
        let feature = field(1, &field(1, sample));
        field(1, &field(1, &[field(1, b"x"), field(2, &feature)].concat()))
    };
    samples.iter().flat_map(|sample| frame(example(sample))).collect()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).expect("memory");
    writer.finish().expect("memory")
}

/// FFCV's format with one field of bytes, in one page.
pub fn beton(samples: &[Vec<u8>]) -> Vec<u8> {
    const PAGE: usize = 2 << 20;
    let mut descriptor = [0; 1041];
    descriptor[0] = 3;
    descriptor[1] = b'x';
    let (mut records, mut page, mut allocations) = (Vec::new(), Vec::new(), Vec::new());
    let start = (24 + descriptor.len() + 16 * samples.len()).next_multiple_of(PAGE);
    for (number, sample) in samples.iter().enumerate() {
        let place = [(start + page.len()) as u64, sample.len() as u64];
        records.extend(place.iter().flat_map(|number| number.to_le_bytes()));
        allocations.extend([number as u64, place[0], place[1]].iter().flat_map(|number| number.to_le_bytes()));
        page.extend(sample);
    }
    page.resize(PAGE, 0);
    let mut head = [&2_u16.to_le_bytes()[..], &1_u16.to_le_bytes(), &(PAGE as u32).to_le_bytes()].concat();
    head.extend((samples.len() as u64).to_le_bytes());
    head.extend(((start + PAGE) as u64).to_le_bytes());
    head.extend(descriptor);
    head.extend(records);
    head.resize(start, 0);
    [head, page, allocations].concat()
}

/// An array of bytes, a row a sample.
pub fn npy(samples: &[Vec<u8>]) -> Vec<u8> {
    npy_of("|u1", "False", samples.len(), samples[0].len(), &samples.concat())
}

/// Column by column.
pub fn npy_fortran(samples: &[Vec<u8>]) -> Vec<u8> {
    let columns = (0..samples[0].len()).flat_map(|at| samples.iter().map(move |sample| sample[at]));
    npy_of("|u1", "True", samples.len(), samples[0].len(), &columns.collect::<Vec<u8>>())
}

/// Numbers of two bytes, which are as they were once they are little endian.
pub fn npy_big_endian(samples: &[Vec<u8>]) -> Vec<u8> {
    let swapped: Vec<u8> = samples.concat().chunks(2).flat_map(|pair| [pair[1], pair[0]]).collect();
    npy_of(">u2", "False", samples.len(), samples[0].len() / 2, &swapped)
}

fn npy_of(descr: &str, is_fortran: &str, rows: usize, width: usize, data: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': {is_fortran}, 'shape': ({rows}, {width}), }}");
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), data].concat()
}

/// An archive of one array.
pub fn npz(npy: &[u8], deflated: bool) -> Vec<u8> {
    let mut stored = npy.to_vec();
    if deflated {
        let mut writer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(npy).expect("memory");
        stored = writer.finish().expect("memory");
    }
    let name = b"x.npy";
    let method = if deflated { 8_u16 } else { 0 };
    // APPNOTE.TXT, 4.3.7 and 4.3.12, from the version that is needed on; a date is not of interest.
    let mut common = [20_u16, 0, method, 0, 0x21].iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    common.extend(u32s([crc32(npy) as usize, stored.len(), npy.len()]));
    common.extend((name.len() as u16).to_le_bytes());
    common.extend(0_u16.to_le_bytes());
    let mut out = [&b"PK\x03\x04"[..], &common, name, &stored].concat();
    let directory = out.len();
    out.extend([&b"PK\x01\x02"[..], &20_u16.to_le_bytes(), &common, &[0; 14], name].concat());
    let directory_bytes = out.len() - directory;
    out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    out.extend(u32s([directory_bytes, directory]));
    out.extend([0, 0]);
    out
}

/// One tensor of bytes.
pub fn safetensors(samples: &[Vec<u8>]) -> Vec<u8> {
    let bytes = samples.concat();
    let shape = [samples.len(), samples[0].len()];
    let head = serde_json::json!({ "x": { "dtype": "U8", "shape": shape, "data_offsets": [0, bytes.len()] } });
    let mut head = head.to_string();
    while !head.len().is_multiple_of(8) {
        head.push(' ');
    }
    [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &bytes].concat()
}

//! ArrayRecord files: the input is everything before the last block, and the offset in its first two bytes is where a
//! footer ends it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload_fuzz::{files, walk};

const BLOCK: usize = 64 << 10;

/// The last block: a chunk whose one record says where the footer lies.
fn last(footer: u16) -> Vec<u8> {
    let varint = |mut number: u64| {
        let mut out = Vec::new();
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
        out
    };
    let record = [&[8][..], &varint(footer.into()), &[16], &varint(0x7193_0e70_4fda_e05e)].concat();
    let data = [&[0, 1, record.len() as u8][..], &record].concat();
    let mut block = vec![0; 24 + 8];
    block.extend((data.len() as u64).to_le_bytes());
    block.extend([0; 8]);
    block.extend((u64::from(b'r') | 1 << 8).to_le_bytes());
    block.extend((record.len() as u64).to_le_bytes());
    block.extend(data);
    block.resize(BLOCK, 0);
    block
}

fuzz_target!(|data: &[u8]| {
    let Some((footer, data)) = data.split_first_chunk() else { return };
    let mut file = data[..data.len().min(BLOCK)].to_vec();
    file.resize(BLOCK, 0);
    file.extend(last(u16::from_le_bytes(*footer)));
    let path = files(&[("a.array_record", &file)]).join("a.array_record");
    walk(dataset::open(&[&path], &Options::new().format("array_record").threads(1)));
});

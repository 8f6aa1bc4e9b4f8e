//! How little of a file is read to index it, and columns of examples of arbitrary bytes.

use super::Shapes;
use super::example::{Columns, Learned};
use super::frame::{FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, masked, scan};
use crate::dataset::{Sample, Value};
use crate::index::window::Sparse;
use crate::options::{Missing, OptionType};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

/// The length of a file of records of these lengths, with made-up payloads, and how much is read to find all frames.
fn read_of(lens: impl Iterator<Item = u64>) -> (u64, u64) {
    let (mut pieces, mut payloads, mut size) = (Vec::new(), Vec::new(), 0);
    for len in lens {
        pieces.push((size, [&len.to_le_bytes()[..], &masked(&len.to_le_bytes()).to_le_bytes()].concat()));
        payloads.push((size + HEADER_BYTES, len));
        size += FRAME_BYTES + len;
    }
    let mut found = Vec::new();
    let read = scan(&mut Sparse { pieces, size }, |offset, len| found.push((offset, len))).unwrap();
    assert_eq!(found, payloads);
    (size, read)
}

/// 200 MB of images: only the pages with headers are read.
#[test]
fn only_headers_are_read_between_long_records() {
    let (size, read) = read_of((0..1800).map(|number| 110_000 + number * 7));
    assert!(size > 200_000_000);
    println!("{read} of {size} bytes read, {:.2} %", 100.0 * read as f64 / size as f64);
    assert!(read * 20 < size, "{read} of {size}: more than 5 %");
}

/// Between short records everything is read, once and in large pieces.
#[test]
fn everything_is_read_once_between_short_records() {
    let (size, read) = read_of(0..4000);
    assert!(read <= size + size / 50, "{read} of {size}");
}

/// Columns of a string, a list of integers and a list of floats.
fn some() -> Columns {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8][..], bytes].concat();
    let entry = |name: &[u8], kind: u8, list: &[u8]| {
        field(1, &[field(1, name), field(2, &field(kind, &field(1, list)))].concat())
    };
    let record = field(1, &[entry(b"a", 1, b"hi"), entry(b"i", 3, &[5]), entry(b"f", 2, &[0; 4])].concat());
    let mut learned = Learned::default();
    learned.add(&Bytes::from(record)).unwrap();
    learned.columns(&[], &[], Missing::Empty).unwrap_or_else(|refused| panic!("{refused:?}"))
}

proptest! {
    /// Whatever a record contains, its values are slices of it or its numbers, or it is refused.
    #[test]
    fn no_record_panics(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..80),
            // What messages consist of: tags, short lengths, names.
            vec(prop_oneof![Just(0x0a_u8), Just(0x12), Just(0x1a), Just(8), Just(13), 0..12_u8, b'a'..b'k'], 0..60),
        ],
    ) {
        let record = Bytes::from(bytes);
        let mut sample = Sample::default();
        if some().split(&record, &mut sample).is_ok() {
            prop_assert_eq!(sample.values.len(), 3);
            for value in sample.values {
                let Value::Bytes(value) = value else { panic!("no column is a scalar") };
                prop_assert!(value.len() <= 8 * record.len());
            }
        }
        if let Err(fault) = Learned::default().add(&record) {
            prop_assert!(fault.at <= record.len());
        }
    }

    /// Files with some wrong bytes: each reported record is in the file.
    #[test]
    fn no_file_leads_out_of_itself(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        sealed in any::<bool>(),
        len in any::<prop::sample::Index>(),
    ) {
        let mut file = Vec::new();
        for number in 0..6_u64 {
            let mut header = [&(number * 9).to_le_bytes()[..], &[0; 4]].concat();
            changes.iter().for_each(|(at, byte)| header[at.index(8)] = *byte);
            let check = masked(&header[..8]) ^ u32::from(!sealed && number == 3);
            header[8..].copy_from_slice(&check.to_le_bytes());
            file.extend(header);
            file.resize(file.len() + number as usize * 9 + 4, b'5');
        }
        file.truncate(len.index(file.len()) + 1);
        let mut found = Vec::new();
        let _ = scan(&mut &file[..], |offset, len| found.push((offset, len)));
        for (offset, len) in found {
            prop_assert!(offset + len + FOOTER_BYTES <= file.len() as u64);
        }
    }
}

#[test]
fn shapes_are_read_from_text() {
    let shapes = Shapes::of(&"label:,box:2x3,a:b:4".into());
    let wanted = [("label", vec![]), ("box", vec![2, 3]), ("a:b", vec![4])];
    let wanted = Shapes(wanted.map(|(name, shape)| (name.to_owned(), shape)).into());
    assert_eq!(shapes, Some(wanted));
    assert_eq!((Shapes::of(&"label".into()), Shapes::of(&"box:2x".into())), (None, None));
}

//! Recognizes TFRecord files by name and by their first bytes.

use super::frame::{HEADER_BYTES, Header, compression, length};
use crate::find::names::ends_like;
use crate::place::Place;
use std::io::{BufReader, Read};

/// Whether a file is named like a TFRecord file. `-00000-of-00010`, which TensorFlow appends to names, is enough: the
/// first record exposes other files.
pub(super) fn is_shard(name: &[u8]) -> bool {
    let packed = [&b".gz"[..], b".gzip", b".zlib"].into_iter().find(|ending| ends_like(name, ending));
    let plain = &name[..name.len() - packed.map_or(0, <[u8]>::len)];
    [&b"tfrecord"[..], b"tfrecords", b"tfrec"].into_iter().any(|ending| ends_like(plain, ending)) || is_numbered(plain)
}

/// Whether a name ends in `-NUMBER-of-NUMBER`, each of five digits or more.
fn is_numbered(name: &[u8]) -> bool {
    let without_number = |name: &[u8]| {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        (digits >= 5).then(|| name.len() - digits)
    };
    let of = without_number(name).filter(|&end| ends_like(&name[..end], b"-of-"));
    of.and_then(|end| without_number(&name[..end - 4])).is_some_and(|end| name[..end].ends_with(b"-"))
}

/// Whether a file begins with the header of a record, decoded if necessary.
pub(super) fn begins_with_a_record(place: &Place) -> bool {
    let header = |reader: &mut dyn Read| {
        let mut header: Header = [0; HEADER_BYTES as usize];
        reader.read_exact(&mut header).is_ok().then_some(header)
    };
    let open = || place.reader().map(BufReader::new).ok();
    let head = open().and_then(|mut stored| header(&mut stored));
    match head.map(|head| compression(&head)) {
        Some(Ok(None)) => true,
        Some(Ok(Some(compression))) => {
            let decoder = open().and_then(|stored| compression.reader(stored).ok());
            decoder.and_then(|mut decoder| header(&mut decoder)).is_some_and(|header| length(&header).is_ok())
        }
        Some(Err(_)) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_records_are_given() {
        for name in [
            "a.tfrecord",
            "x/y.TFRecords",
            "a.tfrec",
            "mnist-train.tfrecord-00000-of-00001",
            "train-00000-of-01024",
            "tfrecord-00000-of-00010",
            "a.tfrecord.gz",
            "train-00000-of-01024.zlib",
            "train-000000-of-102400",
        ] {
            assert!(is_shard(name.as_bytes()), "{name}");
        }
        for name in
            ["a.tar", "a.tfrecord.idx", "a.tfrecord.uidx", "a-0-of-2", "a-00000-of-", "00000-of-00001", "", "of"]
        {
            assert!(!is_shard(name.as_bytes()), "{name}");
        }
    }
}

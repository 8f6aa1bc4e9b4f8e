//! Bad files of arrays and tokens: cut at every byte, mutated, with sizes of 2^60. None panics, none has memory taken
//! by what a header claims, and what is accepted lies within its file.

use super::memory::{LARGEST, ON_THIS_THREAD};
use crate::common::content::put;
use crate::common::direct;
use proptest::prelude::*;
use proptest::sample::Index;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use uringload::dataset::{self, Dataset, Options, SampleId, UnitId};
use uringload::{Error, ErrorKind};

/// No file here is larger than some kilobytes; tables of an index are read in chunks of 256 KiB at most.
const ALLOCATION_MAX: usize = 512 << 10;

/// What `open` returns, if it took no more memory at once than that. It works in this thread alone.
fn frugal<T>(open: impl FnOnce() -> T) -> T {
    LARGEST.set(0);
    let opened = open();
    let largest = LARGEST.get();
    assert!(largest <= ALLOCATION_MAX, "{largest} bytes were allocated at once");
    opened
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arrays").join(name)
}

const SAMPLES: [&str; 3] = ["files", "rows", "arrays"];

/// The good files of each format.
const ARRAYS: [(&str, &str); 10] = [
    ("npy", "golden.npy"),
    ("npy", "version_2.npy"),
    ("npy", "version_3.npy"),
    ("npy", "empty.npy"),
    ("npz", "stored.npz"),
    ("npz", "wide.npz"),
    ("npz", "other.npz"),
    ("npz", "deflated.npz"),
    ("npz", "mixed.npz"),
    ("safetensors", "tensors.safetensors"),
];

fn open(format: &str, path: &Path, samples: &str) -> Result<Arc<dyn Dataset>, Error> {
    frugal(|| {
        dataset::open(
            &[path],
            &Options::new().set("samples", samples).threads(1).format(format).timeout(ON_THIS_THREAD),
        )
    })
}

fn open_tokens(path: &Path, documents: bool) -> Result<Arc<dyn Dataset>, Error> {
    let options = Options::new().format("tokens").set("documents", documents).set("window_tokens", 4).threads(1);
    frugal(|| dataset::open(&[path], &options.timeout(ON_THIS_THREAD)))
}

/// Whatever was accepted can be asked for everything, and lies within its file.
fn is_sound(dataset: &dyn Dataset) {
    let mut spans = Vec::new();
    let mut key = Vec::new();
    let last = dataset.len() - 1;
    for id in (0..dataset.len().min(100)).chain([last / 2, last]).map(SampleId) {
        spans.clear();
        dataset.spans(id, &mut spans);
        for span in &spans {
            assert!(span.offset.checked_add(span.len).is_some_and(|end| end <= dataset.files().size(span.file)));
        }
        let lengths = dataset.schema().fields.iter().enumerate().map(|(field, column)| {
            dataset.length(id, field).expect("the index tells every length") * column.dtype.size()
        });
        if dataset.units().is_none() {
            assert!(lengths.eq(spans.iter().map(|span| span.len)));
        } else if let Err(error) = direct::sample(dataset, id.0) {
            assert!(error.kind() == ErrorKind::Corrupt && error.path().is_some(), "{error}");
        }
        dataset.key(id, &mut key);
    }
    if let Some(units) = dataset.units() {
        for unit in (0..units.count()).map(UnitId) {
            spans.clear();
            units.stored(unit, &mut spans);
            assert!(
                spans[0].offset.checked_add(spans[0].len).is_some_and(|end| end <= dataset.files().size(spans[0].file))
            );
            assert!(units.decoded_bytes(unit) <= 1032 * spans[0].len, "no more than deflate can make of it");
        }
    }
    assert!(dataset.largest(1) <= dataset.bytes() || dataset.format() == "tokens");
    dataset.fingerprint();
}

#[test]
fn files_cut_at_any_byte_are_errors_that_name_them() {
    let folder = TempDir::new().unwrap();
    for (format, name) in ARRAYS {
        let whole = fs::read(data(name)).unwrap();
        let path = folder.path().join(name);
        for len in 0..whole.len() {
            put(&path, &whole[..len]).unwrap();
            let error = open(format, &path, "files").expect_err(name);
            assert_eq!(error.path(), Some(&*path), "{name} of {len} bytes: {error}");
            if format == "npz" {
                // A beginning may end in what looks like the archive's end.
                assert!(matches!(error.kind(), ErrorKind::Truncated | ErrorKind::Corrupt), "{name} {len}: {error}");
            } else {
                assert_eq!((error.kind(), error.offset()), (ErrorKind::Truncated, Some(len as u64)), "{name}: {error}");
            }
        }
        put(&path, &[&whole[..], b"x"].concat()).unwrap();
        let error = open(format, &path, "files").expect_err(name);
        assert!(matches!(error.kind(), ErrorKind::Truncated | ErrorKind::Corrupt), "{name} and a byte: {error}");
    }
}

#[test]
fn indices_and_tokens_cut_at_any_byte_are_errors() {
    let folder = TempDir::new().unwrap();
    let [index, bin] = ["t.idx", "t.bin"].map(|name| folder.path().join(name));
    let [whole_index, whole_bin] = ["megatron_u2.idx", "megatron_u2.bin"].map(|name| fs::read(data(name)).unwrap());
    put(&bin, &whole_bin).unwrap();
    for len in 0..whole_index.len() {
        put(&index, &whole_index[..len]).unwrap();
        let error = open_tokens(&bin, true).expect_err("a cut index");
        assert_eq!((error.kind(), error.path()), (ErrorKind::Truncated, Some(&*index)), "{len}: {error}");
    }
    put(&index, &whole_index).unwrap();
    for len in 0..whole_bin.len() {
        put(&bin, &whole_bin[..len]).unwrap();
        let error = open_tokens(&bin, true).expect_err("cut tokens");
        assert_eq!((error.kind(), error.path()), (ErrorKind::Truncated, Some(&*bin)), "{len}: {error}");
    }
    put(&bin, &[&whole_bin[..], &[0, 0]].concat()).unwrap();
    assert_eq!(open_tokens(&bin, true).expect_err("a token too many").kind(), ErrorKind::Corrupt);
}

/// A file with a header and no data that claims what no file has.
fn claims() -> Vec<(&'static str, Vec<u8>)> {
    let npy = |shape: &str| {
        let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
        [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), &[0; 64]].concat()
    };
    let tensors = |json: &str| [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &[0; 8]].concat();
    let mut zip = fs::read(data("wide.npz")).unwrap();
    let end_64 = zip.windows(4).position(|four| four == b"PK\x06\x06").unwrap();
    zip[end_64 + 24..end_64 + 40].copy_from_slice(&[&(1_u64 << 60).to_le_bytes()[..]; 2].concat());
    let mut member = fs::read(data("wide.npz")).unwrap();
    let entry = member.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    member[entry + 46 + 5 + 4..entry + 46 + 5 + 20].copy_from_slice(&[&(1_u64 << 60).to_le_bytes()[..]; 2].concat());
    let billion = [b"PK\x05\x06\0\0\0\0\xfe\xff\xfe\xff", &[0; 10][..]].concat();
    vec![
        ("a.npy", npy("(1152921504606846976,)")),
        ("b.npy", npy("(4294967296, 4294967296)")),
        ("c.npy", npy("(0, 18446744073709551615)")),
        ("d.npy", npy("(2305843009213693951,)")),
        ("e.npy", [b"\x93NUMPY\x02\0\xff\xff\xff\xff", &[b' '; 64][..]].concat()),
        ("f.safetensors", tensors(r#"{"a":{"dtype":"U8","shape":[1152921504606846976],"data_offsets":[0,8]}}"#)),
        ("g.safetensors", tensors(r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,1152921504606846976]}}"#)),
        (
            "h.safetensors",
            tensors(r#"{"a":{"dtype":"U8","shape":[1152921504606846976],"data_offsets":[0,1152921504606846976]}}"#),
        ),
        ("i.safetensors", tensors(r#"{"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#)),
        ("j.safetensors", [&100_000_000_u64.to_le_bytes()[..], b"{"].concat()),
        ("k.safetensors", [&[0xff; 8][..], b"{"].concat()),
        ("l.npz", zip),
        ("m.npz", member),
        ("n.npz", billion),
    ]
}

#[test]
fn sizes_that_no_file_has_are_refused_without_memory() {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in claims() {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let all = ["npy", "npz", "safetensors"];
        let format = all.into_iter().find(|format| name.ends_with(&format!(".{}", format)));
        for samples in SAMPLES {
            let error = open(format.unwrap(), &path, samples).expect_err(name);
            assert!(matches!(error.kind(), ErrorKind::Truncated | ErrorKind::Corrupt), "{name}: {error}");
            assert!(error.path() == Some(&*path) && error.offset().is_some(), "{name}: {error}");
        }
    }
    let [index, bin] = ["t.idx", "t.bin"].map(|name| folder.path().join(name));
    fs::write(&bin, [0; 48]).unwrap();
    for (at, value) in [(18, 1_u64 << 60), (26, 1 << 60), (18, u64::MAX), (26, u64::MAX), (18, u64::MAX / 12)] {
        let mut bytes = fs::read(data("megatron_u2.idx")).unwrap();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        fs::write(&index, bytes).unwrap();
        assert_eq!(open_tokens(&bin, true).expect_err("a huge index").kind(), ErrorKind::Truncated);
    }
}

#[test]
fn tensors_with_holes_overlaps_and_one_name_are_corrupt() {
    let tensor = |name: &str, dtype: &str, len: u64, from: u64, to: u64| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":[{len}],"data_offsets":[{from},{to}]}}"#)
    };
    let bad = [
        (vec![tensor("a", "U8", 4, 0, 4), tensor("b", "U8", 3, 5, 8)], "before it end at"),
        (vec![tensor("a", "U8", 4, 0, 4), tensor("b", "U8", 5, 3, 8)], "before it end at"),
        (vec![tensor("a", "U8", 7, 1, 8)], "before it end at"),
        (vec![tensor("a", "U8", 4, 0, 4), tensor("a", "U8", 4, 4, 8)], "two tensors"),
        (vec![tensor("a", "U16", 8, 0, 8)], "takes 16 bytes"),
        (vec![tensor("a", "U8", 4, 0, 4)], "follow the last tensor"),
        (vec![tensor("a", "X8", 8, 0, 8)], "unknown dtype"),
        (vec![tensor("a", "F4", 15, 0, 8)], "ends within a byte"),
        (vec![r#""__metadata__":{"k":1}"#.to_owned(), tensor("a", "U8", 8, 0, 8)], "string"),
    ];
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.safetensors");
    let write = |tensors: &[String]| {
        let json = format!("{{{}}}", tensors.join(","));
        fs::write(&path, [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &[7; 8]].concat()).unwrap();
    };
    for (tensors, word) in bad {
        write(&tensors);
        let error = open("safetensors", &path, "files").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(word) && error.offset().is_some(), "{word} in {error}");
    }
    // Sound, of a type that no column has; and in the way only of who wants it.
    write(&[tensor("a", "F4", 8, 0, 4), tensor("b", "U8", 4, 4, 8)]);
    let error = open("safetensors", &path, "files").unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("F4"), "{error}");
    let b = Options::new().format("safetensors").set("samples", "files").set("tensors", ["b"]);
    is_sound(&*dataset::open(&[&path], &b).unwrap());
}

/// What is wrong with an archive: bytes put at a place after the start of a header, and the error.
type Flaw = (&'static [u8; 4], usize, &'static [u8], ErrorKind, &'static str);

#[test]
fn archives_that_break_the_format_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.npz");
    let good = fs::read(data("stored.npz")).unwrap();
    let (member, entry, end) = (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06");
    // The last of each kind of header: that of "y.npy".
    let flaws: [Flaw; 20] = [
        (entry, 8, &[1], ErrorKind::Unavailable, "encrypted"),
        (entry, 10, &[99], ErrorKind::Unavailable, "with AES encryption"),
        (entry, 10, &[12], ErrorKind::Unavailable, "with bzip2"),
        (entry, 10, &[14], ErrorKind::Unavailable, "with lzma"),
        (entry, 10, &[93], ErrorKind::Unavailable, "with zstd"),
        (entry, 10, &[77], ErrorKind::Unavailable, "with zip method 77"),
        (entry, 20, &[0], ErrorKind::Corrupt, "two sizes"),
        (entry, 20, &[255, 0, 0, 0, 255, 0, 0, 0], ErrorKind::Corrupt, "reaches into"),
        (entry, 42, &[0, 0, 0, 0], ErrorKind::Corrupt, "reaches into"),
        (entry, 42, &[0xff, 0xff, 0xff, 0x7f], ErrorKind::Corrupt, "reaches into"),
        (entry, 46, b"x", ErrorKind::Corrupt, "two members"),
        (entry, 46, b"z", ErrorKind::Corrupt, "is not what the directory says"),
        (entry, 46, &[0xff], ErrorKind::Corrupt, "UTF-8"),
        (member, 0, b"X", ErrorKind::Corrupt, "does not begin as one"),
        (member, 28, &[0xff, 0xff], ErrorKind::Corrupt, "leaves no room"),
        (end, 10, &[3], ErrorKind::Unavailable, "several disks"),
        (end, 8, &[3, 0, 3], ErrorKind::Corrupt, "3 members in 102 bytes"),
        (end, 8, &[1, 0, 1], ErrorKind::Corrupt, "follow the last member"),
        (end, 12, &[103], ErrorKind::Corrupt, "does not end at"),
        // As if a byte stood before the archive.
        (end, 12, &[101], ErrorKind::Corrupt, "no member where one should be"),
    ];
    for (header, at, bytes, kind, word) in flaws {
        let mut bad = good.clone();
        let start = bad.windows(4).rposition(|four| four == header).unwrap() + at;
        bad[start..start + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, bad).unwrap();
        let error = open("npz", &path, "files").expect_err(word);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word) && error.offset().is_some(), "{word} in {error}");
        assert_eq!(error.path(), Some(&*path), "{error}");
    }
}

#[test]
fn deflated_members_that_break_the_format_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.npz");
    let good = fs::read(data("deflated.npz")).unwrap();
    let entry = good.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    let local = good.windows(4).rposition(|four| four == b"PK\x03\x04").unwrap();
    let extra = usize::from(good[local + 28]);
    let start = local + 30 + 5 + extra;
    let stored = u32::from_le_bytes(good[entry + 20..entry + 24].try_into().unwrap());
    let at_most = stored * 1032;
    let put = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, bad).unwrap();
        open("npz", &path, "files")
    };
    // When it is opened.
    let flaws: [(usize, &[u8], &str); 7] = [
        (entry + 24, &(at_most + 1).to_le_bytes(), "deflated bytes cannot hold"),
        (entry + 24, &i32::MAX.to_le_bytes(), "deflated bytes cannot hold"),
        (entry + 24, &at_most.to_le_bytes(), "bytes follow the array"),
        (entry + 24, &100_u32.to_le_bytes(), "longer than the archive's member"),
        (entry + 24, &3_u32.to_le_bytes(), "longer than the archive's member"),
        (start, &[0xff; 4], "cannot be inflated"),
        // A stored block of no byte, the last one.
        (start, &[1, 0, 0, 0xff, 0xff], "longer than the archive's member"),
    ];
    for (at, bytes, word) in flaws {
        let error = put(at, bytes).expect_err(word);
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*path)), "{word}: {error}");
        assert!(error.to_string().contains(word) && error.offset().is_some(), "{word} in {error}");
    }
    // When it is inflated.
    let end = start + stored as usize;
    for (at, bytes, word) in
        [(entry + 16, [0; 4], "has the checksum"), (end - 4, [0; 4], "\"y.npy\""), (end - 12, [0x55; 4], "\"y.npy\"")]
    {
        let arrays = put(at, &bytes).unwrap_or_else(|error| panic!("{word}: {error}"));
        let error = direct::decoded(&*arrays, arrays.units().unwrap(), UnitId(1)).expect_err(word);
        let place = (error.kind(), error.path(), error.offset());
        assert_eq!(place, (ErrorKind::Corrupt, Some(&*path), Some(start as u64)), "{error}");
        assert!(error.to_string().contains(word) && error.to_string().contains("y.npy"), "{word} in {error}");
        assert!(direct::decoded(&*arrays, arrays.units().unwrap(), UnitId(0)).is_ok(), "the other is as it was");
    }
}

#[test]
fn golden_safetensors() {
    let json = concat!(
        r#"{"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"#,
        r#""a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}     "#
    );
    let bytes = [&[0x88, 0, 0, 0, 0, 0, 0, 0], json.as_bytes(), &[1, 2, 3, 4, 5, 6]].concat();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.safetensors");
    fs::write(&path, &bytes).unwrap();
    let tensors = open("safetensors", &path, "files").unwrap();
    let mut spans = Vec::new();
    tensors.spans(SampleId(0), &mut spans);
    assert_eq!(spans.iter().map(|span| (span.offset, span.len)).collect::<Vec<_>>(), [(144, 4), (148, 2)]);
    assert_eq!(tensors.schema().fields.iter().map(|field| &*field.name).collect::<Vec<_>>(), ["b", "a"]);
}

/// What is done to a file: at a place, a number of bytes are replaced by others.
fn mutation() -> impl Strategy<Value = Vec<(Index, usize, Vec<u8>)>> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"0123456789{}[](),:'\" -".to_vec()), Just(0), Just(0xff)];
    prop::collection::vec((any::<Index>(), 0..5_usize, prop::collection::vec(byte, 0..5)), 1..4)
}

fn mutated(mut bytes: Vec<u8>, mutations: &[(Index, usize, Vec<u8>)]) -> Vec<u8> {
    for (place, removed, added) in mutations {
        let at = place.index(bytes.len() + 1);
        let end = bytes.len().min(at + removed);
        bytes.splice(at..end, added.iter().copied());
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_arrays_are_sound_or_errors(which in 0..ARRAYS.len(), mutations in mutation()) {
        let (format, name) = ARRAYS[which];
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, mutated(fs::read(data(name)).unwrap(), &mutations)).unwrap();
        for samples in SAMPLES {
            match open(format, &path, samples) {
                Ok(arrays) => is_sound(&*arrays),
                Err(error) => prop_assert!(error.path().is_some(), "{}", error),
            }
        }
    }

    #[test]
    fn mutated_indices_are_sound_or_errors(mutations in mutation(), documents in any::<bool>()) {
        let folder = TempDir::new().unwrap();
        let [index, bin] = ["t.idx", "t.bin"].map(|name| folder.path().join(name));
        fs::write(&index, mutated(fs::read(data("megatron_i4.idx")).unwrap(), &mutations)).unwrap();
        fs::copy(data("megatron_i4.bin"), &bin).unwrap();
        match open_tokens(&bin, documents) {
            Ok(tokens) => is_sound(&*tokens),
            Err(error) => prop_assert!(error.path().is_some(), "{}", error),
        }
    }

    /// What the reference reader takes is taken, but for types without a column and names that come twice; and what it
    /// refuses is refused.
    #[test]
    fn safetensors_as_the_reference_reader(
        tensors in prop::collection::vec(
            (0..3_u8, prop::sample::select(TYPES.to_vec()), prop::collection::vec(0..5_u64, 0..3), 0..12_i8, 0..12_i8),
            0..4,
        ),
        data_bytes in 0..20_i8,
    ) {
        let mut at = 0;
        let mut json = Vec::new();
        for (name, (dtype, bits), shape, begin, end) in tensors {
            let bytes = shape.iter().product::<u64>() * bits / 8;
            // Mostly right, sometimes off by one.
            let off = |by: i8| i64::from(by == 0) - i64::from(by == 1);
            let (from, to) = ((at + off(begin)).max(0), (at + bytes as i64 + off(end)).max(0));
            json.push(format!(r#""t{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{from},{to}]}}"#));
            at += bytes as i64;
        }
        let json = format!("{{{}}}", json.join(","));
        let len = (at + i64::from(data_bytes == 0)) as usize;
        let file = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &vec![0; len]].concat();
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("t.safetensors");
        fs::write(&path, &file).unwrap();
        let reference = safetensors::SafeTensors::deserialize(&file);
        match (open("safetensors", &path, "files"), reference) {
            (Ok(ours), Ok(reference)) => {
                is_sound(&*ours);
                let mut spans = Vec::new();
                ours.spans(SampleId(0), &mut spans);
                prop_assert_eq!(ours.schema().fields.len(), reference.len());
                for (field, span) in ours.schema().fields.iter().zip(spans) {
                    let tensor = reference.tensor(&field.name).unwrap();
                    prop_assert_eq!(tensor.data().len() as u64, span.len);
                    let from = tensor.data().as_ptr() as usize - file.as_ptr() as usize;
                    prop_assert_eq!(from as u64, span.offset);
                }
            }
            (Ok(_), Err(error)) => prop_assert!(false, "the reference refuses {}: {}", json, error),
            (Err(error), Ok(reference)) => prop_assert!(
                error.kind() == ErrorKind::Unavailable
                    || error.to_string().contains("two tensors")
                    || reference.is_empty() && error.kind() == ErrorKind::InvalidArgument,
                "{}", error
            ),
            (Err(_), Err(_)) => {}
        }
    }
}

/// Names and bits of types, some of which have no column.
const TYPES: [(&str, u64); 7] =
    [("U8", 8), ("F32", 32), ("BF16", 16), ("I64", 64), ("F4", 4), ("F8_E8M0", 8), ("F8_E4M3", 8)];

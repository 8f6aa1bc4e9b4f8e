//! Files cut off at every byte, and files with any bytes changed: an error or other values, never a panic, and never an
//! allocation of what a header claims.

use super::*;
use crate::formats::memory::Limit;
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use uringload::dataset::{self, Dataset, Options};

/// Opens and reads everything; whether all was well.
fn drained(dataset: Result<Arc<dyn Dataset>, Error>) -> bool {
    match dataset {
        Ok(dataset) => {
            assert!(dataset.len() < 1 << 20);
            let mut spans = Vec::new();
            (0..dataset.len()).for_each(|id| dataset.spans(SampleId(id), &mut spans));
            for span in &spans {
                assert!(
                    span.len == 0 || span.offset + span.len <= dataset.files().size(span.file),
                    "inside of the file"
                );
            }
            assert!(dataset.largest(1) <= dataset.bytes());
            dataset.fingerprint();
            (0..dataset.len()).all(|id| lenient(&*dataset, id).is_ok())
        }
        Err(error) => {
            assert!(error.to_string().lines().count() == 1 + usize::from(error.remedy().is_some()), "{error}");
            false
        }
    }
}

/// Reads one sample without asking whether its length is what the index foretells: the bytes may belie it.
fn lenient(dataset: &dyn Dataset, id: u64) -> Result<(), Error> {
    let mut spans = Vec::new();
    dataset.spans(SampleId(id), &mut spans);
    let mut raw = Vec::new();
    for span in &spans {
        let mut bytes = vec![0; span.len as usize];
        if span.len > 0 {
            File::open(dataset.files().path(span.file)).unwrap().read_exact_at(&mut bytes, span.offset).unwrap();
        }
        raw.push(bytes.into());
    }
    if let Some(units) = dataset.units() {
        let mut of = Vec::new();
        units.of(SampleId(id), &mut of);
        for unit in of {
            raw.push(decoded(dataset, units, unit)?);
        }
    }
    for field in 0..dataset.schema().fields.len() {
        dataset.length(SampleId(id), field);
    }
    dataset.parse(SampleId(id), &raw, &mut Sample::default())
}

/// Shards of a dataset and how to open it.
struct Subject {
    root: TempDir,
    shard: Vec<u8>,
    open: fn(&Path) -> bool,
    /// The index, for a shard of that length.
    index: fn(usize) -> Vec<u8>,
}

thread_local! {
    /// Made once for each test, which has a thread of its own.
    static SUBJECTS: Vec<Subject> = all_subjects().collect();
}

fn all_subjects() -> impl Iterator<Item = Subject> {
    golden_subjects().into_iter().chain(array_subjects()).chain(zipped_subjects())
}

fn golden_subjects() -> [Subject; 2] {
    let arrays = |bytes: usize| {
        let columns = [("a", "ndarray:uint8:2", Some(2)), ("x", "int", Some(8)), ("y", "str", None)];
        mds::index(&[mds::entry("shard", &columns, bytes, 2)])
    };
    let leaves = |bytes: usize| litdata::index(&[("shard", bytes, 2, None)], &["int", "str"]).to_string().into_bytes();
    [
        Subject { root: folder(&[]), shard: mds::golden(), open: |root| drained(mds::open(root)), index: arrays },
        Subject {
            root: folder(&[]),
            shard: litdata::golden(),
            open: |root| drained(litdata::open(root)),
            index: leaves,
        },
    ]
}

/// MDS with all kinds of arrays, and LitData with those and scalars, for headers within samples.
fn array_subjects() -> [Subject; 2] {
    let sample = |number: u8| {
        let arrays = [hex("11 08 01 03 0100 0200 2c01"), vec![0x05, 2, 0, number, 0, 1, 0], b"abc".to_vec()];
        let mut sample: Vec<u8> = arrays.iter().flat_map(|array| (array.len() as u32).to_le_bytes()).collect();
        arrays.iter().for_each(|array| sample.extend(array));
        sample
    };
    let item = |number: u8| {
        let leaves = [
            hex("00000010 00000002 00000001 00000002 0100000002000000"),
            hex("09000000 01000000 01000000 00000000"),
            vec![number; 8],
            vec![number; 16],
        ];
        let mut item: Vec<u8> = leaves.iter().flat_map(|leaf| (leaf.len() as u32).to_le_bytes()).collect();
        leaves.iter().for_each(|leaf| item.extend(leaf));
        item
    };
    let shard = |sample: &dyn Fn(u8) -> Vec<u8>| {
        let (first, second) = (sample(1), sample(2));
        let ends = [16, 16 + first.len() as u32, 16 + (first.len() + second.len()) as u32];
        [&2_u32.to_le_bytes()[..], &ends.map(u32::to_le_bytes).concat(), &first, &second].concat()
    };
    let columns = |bytes: usize| {
        let columns = [("a", "ndarray", None), ("b", "ndarray:uint16", None), ("c", "bytes", None)];
        mds::index(&[mds::entry("shard", &columns, bytes, 2)])
    };
    let leaves = |bytes: usize| {
        let leaves = ["tensor", "numpy", "int", "no_header_tensor:18"];
        litdata::index(&[("shard", bytes, 2, None)], &leaves).to_string().into_bytes()
    };
    [
        Subject { root: folder(&[]), shard: shard(&sample), open: |root| drained(mds::open(root)), index: columns },
        Subject { root: folder(&[]), shard: shard(&item), open: |root| drained(litdata::open(root)), index: leaves },
    ]
}

/// A compressed shard of MDS, and chunks of LitData that are compressed inside.
fn zipped_subjects() -> [Subject; 3] {
    let [(_, each), (_, framed)] = zipped::golden_chunks();
    let open = |root: &Path| drained(litdata::open(root));
    let zip = |bytes: usize| {
        let mut entry = mds::entry("raw", &mds::GOLDEN, 253, 2);
        entry["compression"] = json!("zstd");
        entry["zip_data"] = json!({ "basename": "shard", "bytes": bytes });
        mds::index(&[entry])
    };
    fn index_of(level: &str, full_bytes: Option<u64>, bytes: usize) -> Vec<u8> {
        let mut index = zipped::chunk_index(level, full_bytes, bytes);
        index["chunks"][0]["filename"] = json!("shard");
        index.to_string().into_bytes()
    }
    let shard = zipped::compressed("zstd", &mds::golden());
    [
        Subject { root: folder(&[]), shard, open: |root| drained(mds::open(root)), index: zip },
        Subject { root: folder(&[]), shard: each, open, index: |bytes| index_of("sample", Some(20), bytes) },
        Subject { root: folder(&[]), shard: framed, open, index: |bytes| index_of("batch", None, bytes) },
    ]
}

#[test]
fn a_shard_cut_off_at_every_byte_is_an_error() {
    for Subject { root, shard, open, index } in
        golden_subjects().into_iter().chain(array_subjects()).chain(zipped_subjects())
    {
        let write = |len: usize, claimed: usize| {
            put(root.path(), "shard", &shard[..len]);
            put(root.path(), "index.json", &index(claimed));
            open(root.path())
        };
        assert!(write(shard.len(), shard.len()), "whole it is good");
        for len in 0..shard.len() {
            assert!(!write(len, shard.len()), "cut at {len}");
            assert!(!write(len, len), "cut at {len}, and the index knows");
        }
        put(root.path(), "shard", &shard);
        let text = index(shard.len());
        for len in 0..text.len() {
            put(root.path(), "index.json", &text[..len]);
            assert!(!open(root.path()), "index cut at {len}");
        }
    }
    assert_small();
}

#[test]
fn a_beton_cut_off_is_an_error() {
    a_beton_cut_off(7);
}

#[test]
#[ignore = "slow: cuts at every byte"]
fn a_beton_cut_off_anywhere_is_an_error() {
    a_beton_cut_off(1);
}

fn a_beton_cut_off(every: usize) {
    let root = folder(&[]);
    let path = root.path().join("x.beton");
    let made = beton::all_fields().0;
    made.write(&path);
    let whole = fs::metadata(&path).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Pages are zeros for the most part: their inside is cut in strides.
    let pages = (made.head.len() as u64..made.end).step_by(99_991);
    let cuts: Vec<u64> = (0..made.head.len() as u64).chain(pages).chain(made.end..whole).collect();
    assert!(drained(beton::open(&path)));
    for len in cuts.into_iter().rev().step_by(every) {
        file.set_len(len).unwrap();
        assert!(!drained(beton::open(&path)), "cut at {len}");
    }
    assert_small();
}

/// A place and what is put there; small numbers and large ones, since those are what counts and offsets are made of.
fn change(len: usize) -> impl Strategy<Value = (usize, Vec<u8>)> {
    let byte = any::<u8>().prop_map(|byte| vec![byte]);
    let word = prop_oneof![0..300_u32, any::<u32>(), Just(u32::MAX)].prop_map(|word| word.to_le_bytes().to_vec());
    let long =
        prop_oneof![Just(1_u64 << 60), Just(u64::MAX), any::<u64>()].prop_map(|long| long.to_le_bytes().to_vec());
    (0..len, prop_oneof![byte, word, long])
}

fn changed(bytes: &[u8], changes: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, put) in changes {
        let end = bytes.len().min(at + put.len());
        bytes[*at..end].copy_from_slice(&put[..end - at]);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_shards_never_panic(changes in prop::collection::vec(change(100), 1..5)) {
        SUBJECTS.with(|subjects| for Subject { root, shard, open, index } in subjects {
            let changes: Vec<_> = changes.iter().map(|(at, put)| (at * shard.len() / 100, put.clone())).collect();
            put(root.path(), "shard", &changed(shard, &changes));
            put(root.path(), "index.json", &index(shard.len()));
            open(root.path());
        });
        assert_small();
    }

    #[test]
    fn changed_indexes_never_panic(
        changes in prop::collection::vec((0..1000_usize, "[0-9\\[\\]{}\",:a-z]{0,3}"), 1..4),
    ) {
        SUBJECTS.with(|subjects| for Subject { root, shard, open, index } in subjects {
            let mut text = String::from_utf8(index(shard.len())).unwrap();
            for (at, put) in &changes {
                let at = at * text.len() / 1000;
                text.replace_range(at..(at + 1).min(text.len()), put);
            }
            put(root.path(), "shard", shard);
            put(root.path(), "index.json", text.as_bytes());
            open(root.path());
        });
        assert_small();
    }

    #[test]
    fn changed_numbers_in_indexes_never_panic(
        which in 0..12_usize,
        number in prop_oneof![0..600_u64, Just(1 << 60), Just(u64::MAX), any::<u64>()],
    ) {
        SUBJECTS.with(|subjects| for Subject { root, shard, open, index } in subjects {
            let text = String::from_utf8(index(shard.len())).unwrap();
            let starts: Vec<usize> = text
                .char_indices()
                .zip(text.chars().skip(1))
                .filter(|((_, before), digit)| digit.is_ascii_digit() && !before.is_ascii_digit())
                .map(|((at, _), _)| at + 1)
                .collect();
            let start = starts[which % starts.len()];
            let len = text[start..].chars().take_while(char::is_ascii_digit).count();
            let text = format!("{}{number}{}", &text[..start], &text[start + len..]);
            put(root.path(), "shard", shard);
            put(root.path(), "index.json", text.as_bytes());
            open(root.path());
        });
        assert_small();
    }

    #[test]
    fn changed_betons_never_panic(changes in prop::collection::vec(change(10_000), 1..4), in_table in any::<bool>()) {
        let root = folder(&[]);
        let path = root.path().join("x.beton");
        let mut made = beton::all_fields().0;
        if in_table {
            let bytes: Vec<u8> = made.allocations.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
            let changes: Vec<_> = changes.iter().map(|(at, put)| (at * bytes.len() / 10_000, put.clone())).collect();
            let bytes = changed(&bytes, &changes);
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            made.allocations = (0..bytes.len() / 24).map(|n| [0, 8, 16].map(|at| number(24 * n + at))).collect();
        } else {
            // Half of them in the header and the records, which are the smaller part of the head.
            let (records, len) = (24 + 1041 * 8, made.head.len());
            let place = |at: usize| match at {
                0..1000 => at * 24 / 1000,
                1000..6000 => records + (at - 1000) * (len - records) / 5000,
                _ => at * len / 10_000,
            };
            let changes: Vec<_> = changes.iter().map(|(at, put)| (place(*at).min(len - 1), put.clone())).collect();
            made.head = changed(&made.head, &changes);
        }
        made.write(&path);
        drained(dataset::open(&[&path], &Options::new().format("beton")));
        assert_small();
    }
}

/// An index of nothing but opened brackets, and one that says the same column a million times.
#[test]
fn indexes_that_grow_are_bounded() {
    let _limit = Limit::new(32 << 20);
    let names = vec!["a"; 100_000];
    let many = json!({ "version": 2, "shards": [{
        "version": 2, "format": "mds", "column_names": names, "column_encodings": vec!["int"; 100_000],
        "column_sizes": vec![8; 100_000], "samples": 1, "raw_data": { "basename": "s", "bytes": 1 }, "zip_data": null,
    }]});
    for text in ["[".repeat(1 << 20), format!("{{\"shards\": {}", "[".repeat(1 << 20)), many.to_string()] {
        let root = folder(&[("index.json", text.as_bytes())]);
        assert_error(mds::open(root.path()), ErrorKind::Corrupt, &[]);
        assert_error(litdata::open(root.path()), ErrorKind::Corrupt, &["index.json"]);
    }
    assert_small();
}

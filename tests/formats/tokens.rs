//! Windows of tokens, raw and of Megatron-LM: each is where counting says, and every engine delivers its bytes.

use crate::common::check::{WAYS, conforms};
use crate::common::content::write_file;
use crate::common::direct::place;
use crate::common::within;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::Loader;
use uringload::batch::Data;
use uringload::config::Collate;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, DType, Dataset, Options, SampleId, Shape};
use uringload::inspect::{Sequential, Shuffled};

const BOUND: Duration = Duration::from_secs(120);

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arrays").join(name)
}

/// Windows of raw tokens behind a header.
fn raw(dtype: DType, header_bytes: u64, window_tokens: u64) -> Options {
    Options::new()
        .format("tokens")
        .set("token_dtype", dtype)
        .set("header_bytes", header_bytes)
        .set("window_tokens", window_tokens)
}

fn u16s(window_tokens: u64) -> Options {
    raw(DType::U16, 0, window_tokens)
}

fn megatron(documents: bool, window_tokens: u64) -> Options {
    Options::new().format("tokens").set("documents", documents).set("window_tokens", window_tokens)
}

/// Whether the path shows that it has Megatron-LM's tokens.
fn shows_tokens(path: &Path) -> bool {
    detect(&[path], &Options::new()).expect("a format").name == "tokens"
}

/// First token of each window.
fn starts(tokens: &dyn Dataset) -> Vec<u64> {
    let Shape::Fixed(shape) = &tokens.schema().fields[0].shape else { panic!("windows have one length") };
    let size = tokens.schema().fields[0].dtype.size();
    let mut spans = Vec::new();
    let start = |id| {
        spans.clear();
        tokens.spans(SampleId(id), &mut spans);
        assert_eq!((spans.len(), spans[0].len), (1, shape[0] * size));
        spans[0].offset / size
    };
    (0..tokens.len()).map(start).collect()
}

/// By counting and not by arithmetic: windows of a stretch that begins at `first`, and tokens that are in none.
fn by_hand(first: u64, tokens: u64, window: u64, stride: u64) -> (Vec<u64>, u64) {
    let mut covered = vec![false; tokens as usize];
    let mut starts = Vec::new();
    let mut start = 0;
    while start + window <= tokens {
        starts.push(first + start);
        covered[start as usize..(start + window) as usize].fill(true);
        start += stride;
    }
    // What a stride longer than the window passes over is meant to be passed over.
    let rest = (start..tokens).filter(|&at| !covered[at as usize]).count();
    (starts, rest as u64)
}

#[test]
fn windows_of_a_raw_stream_are_where_counting_says() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("tokens.bin");
    for tokens in [1_u64, 4, 5, 9, 10, 17, 64] {
        fs::write(&path, vec![0; tokens as usize * 2]).unwrap();
        for window in 1..=6 {
            for stride in 1..=8 {
                let (wanted, rest) = by_hand(0, tokens, window, stride);
                let place = format!("{tokens} tokens, windows of {window}, {stride} apart");
                match dataset::open(&[&path], &u16s(window).set("stride", stride)) {
                    Err(error) => assert!(wanted.is_empty() && error.kind() == ErrorKind::Empty, "{place}: {error}"),
                    Ok(opened) => {
                        assert_eq!((starts(&*opened), opened.index().dropped_elements), (wanted, rest), "{place}");
                        assert_eq!(opened.index().left_out.len() as u64, rest.min(1), "{place}");
                    }
                }
                let strict = u16s(window).set("stride", stride).set("whole_windows", true);
                match dataset::open(&[&path], &strict) {
                    Ok(_) => assert_eq!(rest, 0, "{place}"),
                    Err(error) => assert_eq!(
                        (error.kind(), error.offset()),
                        (ErrorKind::Truncated, Some((tokens - rest) * 2)),
                        "{place}: {error}"
                    ),
                }
            }
        }
    }
    // By default each token but the first is predicted once.
    let default = dataset::open(&[&path], &u16s(8)).unwrap();
    assert_eq!(starts(&*default), [0, 7, 14, 21, 28, 35, 42, 49, 56]);
    assert_eq!(
        (default.index().plain_field, default.length(SampleId(0), 0), default.largest(2)),
        (Some(0), Some(8), 32)
    );
}

/// Tokens of the documents that tests/data/make_arrays.py writes.
const DOCUMENTS: [u64; 5] = [11, 0, 1, 0, 12];

#[test]
fn documents_of_megatron_are_kept_apart_or_joined() {
    for (name, dtype) in [("megatron_u1", DType::U8), ("megatron_u2", DType::U16), ("megatron_i4", DType::I32)] {
        for (window, stride) in [(1, 1), (4, 3), (5, 5), (11, 10), (12, 1), (3, 7)] {
            let path = data(&format!("{name}.bin"));
            let joined = dataset::open(&[&path], &megatron(false, window).set("stride", stride)).unwrap();
            assert_eq!(joined.schema().fields[0].dtype, dtype);
            let (wanted, rest) = by_hand(0, 24, window, stride);
            assert_eq!((starts(&*joined), joined.index().dropped_elements), (wanted, rest), "{name} {window} {stride}");

            let apart = dataset::open(&[&path], &megatron(true, window).set("stride", stride)).unwrap();
            let mut first = 0;
            let (mut wanted, mut dropped, mut incomplete) = (Vec::new(), 0, 0);
            for tokens in DOCUMENTS {
                let (starts, rest) = by_hand(first, tokens, window, stride);
                wanted.extend(starts);
                dropped += rest;
                incomplete += u64::from(rest > 0);
                first += tokens;
            }
            assert_eq!(
                (starts(&*apart), apart.index().dropped_elements),
                (wanted, dropped),
                "{name} {window} {stride}"
            );
            let told: u64 = apart.index().left_out.iter().map(|skipped| skipped.count).sum();
            assert_eq!(told, incomplete, "{name} {window} {stride}");
            assert!(apart.index().left_out.iter().all(|skipped| skipped.what == "incomplete last windows"));
            assert_eq!(apart.shards(), [apart.len()]);
            assert!(apart.fingerprint() != joined.fingerprint() || starts(&*apart) == starts(&*joined));
        }
    }
}

#[test]
fn a_pair_has_three_names_and_folders_have_pairs() {
    let opened = |path: PathBuf| dataset::open(&[path], &megatron(true, 4));
    let one = opened(data("megatron_u2.bin")).unwrap();
    for name in ["megatron_u2.idx", "megatron_u2"] {
        let same = opened(data(name)).unwrap();
        assert_eq!((starts(&*same), same.fingerprint()), (starts(&*one), one.fingerprint()), "{name}");
    }
    let root = TempDir::new().unwrap();
    for name in ["a.bin", "b.c.bin"] {
        fs::copy(data("megatron_u2.bin"), root.path().join(name)).unwrap();
        fs::copy(data("megatron_u2.idx"), root.path().join(name).with_extension("idx")).unwrap();
    }
    let pair = [data("megatron_u2"), data("megatron_u2.bin"), data("megatron_u2.idx"), root.path().to_path_buf()];
    assert!(pair.iter().all(|path| shows_tokens(path)) && !shows_tokens(&data("golden.npy")));
    fs::write(root.path().join("notes.txt"), "x").unwrap();
    assert!(shows_tokens(root.path()), "not alone");
    let both = opened(root.path().to_path_buf()).unwrap();
    assert_eq!((both.len(), both.shards()), (2 * one.len(), &[one.len(), 2 * one.len()][..]));
    assert_eq!(place(&*both, one.len()).0, 1);
    assert!(both.index().left_out.iter().any(|skipped| skipped.what == "companions of the data" && skipped.count == 1));
    fs::remove_file(root.path().join("a.idx")).unwrap();
    let error = opened(root.path().to_path_buf()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(&*root.path().join("a.idx"))), "{error}");
}

#[test]
fn indices_that_break_the_format_are_named() {
    let root = TempDir::new().unwrap();
    let [index, bin] = ["t.idx", "t.bin"].map(|name| root.path().join(name));
    fs::copy(data("megatron_u2.bin"), &bin).unwrap();
    let good = fs::read(data("megatron_u2.idx")).unwrap();
    // Header, then 5 lengths from 34 on, 5 places from 54, 6 borders from 94.
    let bad: [(usize, &[u8], ErrorKind, u64); 9] = [
        (0, b"X", ErrorKind::Corrupt, 0),
        (9, &[2], ErrorKind::Unavailable, 9),
        (17, &[6], ErrorKind::Unavailable, 17),
        (17, &[99], ErrorKind::Corrupt, 17),
        (34, &(-1_i32).to_le_bytes(), ErrorKind::Corrupt, 34),
        (62, &11_u64.to_le_bytes(), ErrorKind::Corrupt, 62),
        (94, &1_u64.to_le_bytes(), ErrorKind::Corrupt, 94),
        (134, &4_u64.to_le_bytes(), ErrorKind::Corrupt, 94),
        (134, &6_u64.to_le_bytes(), ErrorKind::Corrupt, 134),
    ];
    for (at, bytes, kind, offset) in bad {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&index, bad).unwrap();
        let error = dataset::open(&[&bin], &megatron(true, 4)).unwrap_err();
        assert_eq!((error.kind(), error.offset(), error.path()), (kind, Some(offset), Some(&*index)), "{error}");
    }
    fs::write(&index, [&good[..], &[0; 5]].concat()).unwrap();
    let modes = dataset::open(&[&bin], &megatron(true, 4)).unwrap_err();
    assert!(modes.kind() == ErrorKind::Unavailable && modes.to_string().contains("multimodal"), "{modes}");
}

#[test]
fn what_cannot_be_windows_is_refused() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("t.bin");
    fs::write(&path, [0; 33]).unwrap();
    for (window, stride) in [(0, 1), (4, 0), (1 << 61, 1), (4, u64::MAX)] {
        let error = dataset::open(&[&path], &u16s(window).set("stride", stride)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{window} {stride}: {error}");
    }
    let floats = raw(DType::F32, 0, 4);
    assert_eq!(dataset::open(&[&path], &floats).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let half = dataset::open(&[&path], &u16s(4).set("stride", 4)).unwrap_err();
    assert_eq!((half.kind(), half.offset()), (ErrorKind::Truncated, Some(32)), "{half}");
    let header = raw(DType::U16, 34, 4);
    assert_eq!(dataset::open(&[&path], &header).unwrap_err().kind(), ErrorKind::Truncated);
    let opened = dataset::open(&[&path], &raw(DType::U16, 3, 5).set("stride", 5)).unwrap();
    let both = raw(DType::U16, 3, 5).set("documents", true);
    assert_eq!(dataset::open(&[&path], &both).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(place(&*opened, 2).1, 3 + 2 * 5 * 2);
}

#[test]
fn windows_by_every_engine_are_the_bytes_of_the_files() {
    within(BOUND, || {
        let root = TempDir::new().unwrap();
        for (name, tokens) in [("a", 50_000_u64), ("b", 100), ("c", 31_234)] {
            write_file(&root.path().join(name), 1024 + tokens * 2).unwrap();
        }
        let tokens = dataset::open(&[root.path()], &raw(DType::U16, 1024, 129)).unwrap();
        assert_eq!(tokens.shards(), [390, 390, 634]);
        let dataset = tokens;
        for way in WAYS {
            let shuffled = Arc::new(Shuffled::new(dataset.len(), 5));
            conforms(Arc::clone(&dataset), shuffled, way, |builder| builder.batch_size(32).collate(Collate::Views));
            let sequential = Arc::new(Sequential::new(dataset.len()));
            conforms(Arc::clone(&dataset), sequential, way, |builder| builder.batch_size(100).collate(Collate::Views));
        }
    });
}

#[test]
fn a_batch_is_one_tensor_of_the_tokens_type() {
    let tokens = dataset::open(&[data("megatron_i4")], &megatron(true, 5).set("stride", 4)).unwrap();
    let dataset = tokens;
    let mut loader = Loader::builder(dataset).batch_size(4).epochs(1).build().unwrap();
    let batch = loader.next().unwrap().unwrap();
    let column = batch.column("tokens").unwrap();
    assert_eq!(column.dtype, DType::I32);
    let Data::Dense { shape, bytes } = &column.data else { panic!("windows have one shape: {:?}", column.data) };
    assert_eq!(shape, &[5]);
    let numbers: Vec<i32> = bytes.chunks_exact(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap())).collect();
    // Documents of 11, 0, 1, 0 and 12 tokens that count from 0.
    let wanted = [0, 4, 12, 16].map(|first| (first..first + 5).collect::<Vec<i32>>()).concat();
    assert_eq!(numbers, wanted);
}

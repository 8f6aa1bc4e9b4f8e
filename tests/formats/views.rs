//! Datasets made of datasets: parts end to end, subsets and repeats are what the underlying dataset is, sample by
//! sample.

use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use uringload::dataset::{
    self, Concat, DType, Dataset, Field, FileTable, Index, Options, Sample, SampleId, Schema, Shape, Span, Value, View,
};
use uringload::{Error, ErrorKind, Result};

/// Files of these sizes, in two roots.
fn folder(root: &str, sizes: &[u64]) -> Arc<dyn Dataset> {
    let mut files = FileTable::new();
    for (half, sizes) in sizes.chunks(sizes.len().div_ceil(2).max(1)).enumerate() {
        files.push_root(format!("/{root}/{half}"));
        for (number, &size) in sizes.iter().enumerate() {
            files.push(format!("{number}").as_bytes(), size).expect("room");
        }
    }
    dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap()
}

/// Files of so many records.
fn records(root: &str, record_bytes: u64, counts: &[u64]) -> Arc<dyn Dataset> {
    let mut files = FileTable::new();
    files.push_root(format!("/{root}"));
    for (number, count) in counts.iter().enumerate() {
        files.push(format!("{number}").as_bytes(), 3 + count * record_bytes).expect("room");
    }
    let options = Options::new().format("records").set("record_bytes", record_bytes).set("header_bytes", 3);
    dataset::inspect::of_files(files, &options).expect("records")
}

/// Columns of the test's choice without a sample behind them but the values of `parse`.
struct Made {
    index: Index,
    values: Vec<Value>,
}

fn made(fields: &[(&str, DType, Shape)], values: Vec<Value>) -> Arc<dyn Dataset> {
    let field = |(name, dtype, shape): &(&str, DType, Shape)| Field {
        name: (*name).into(),
        dtype: *dtype,
        shape: shape.clone(),
    };
    let schema = Schema { fields: fields.iter().map(field).collect() };
    Arc::new(Made { index: Index::new("made", FileTable::new(), schema, 2), values })
}

impl Dataset for Made {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}
    fn parse(&self, _id: SampleId, _raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.clone_from(&self.values);
        Ok(())
    }
}

fn spans(dataset: &dyn Dataset, id: u64) -> Vec<Span> {
    let mut spans = vec![];
    dataset.spans(SampleId(id), &mut spans);
    spans
}

/// What a sample is, in words: its files, its bytes, its key, its values and where it comes from.
fn sample(dataset: &dyn Dataset, id: u64) -> String {
    let read = |span: &Span| format!("bytes at {} of {:?}", span.offset, dataset.files().path(span.file)).into();
    let raw: Vec<Bytes> = spans(dataset, id).iter().map(read).collect();
    let (mut parsed, mut key) = (Sample::default(), Vec::new());
    dataset.parse(SampleId(id), &raw, &mut parsed).expect("a sample");
    dataset.key(SampleId(id), &mut key);
    let spans: Vec<_> = spans(dataset, id)
        .iter()
        .map(|span| (dataset.files().path(span.file), dataset.files().size(span.file), span.offset, span.len))
        .collect();
    let lengths: Vec<_> = (0..dataset.schema().fields.len()).map(|field| dataset.length(SampleId(id), field)).collect();
    format!("{spans:?} {key:?} {parsed:?} {lengths:?} {:?}", dataset.origin(SampleId(id)))
}

fn bytes_of(dataset: &dyn Dataset, id: u64) -> u64 {
    spans(dataset, id).iter().map(|span| span.len).sum()
}

/// Checks `view` against the samples that it is to have: which dataset, and which sample there.
fn check(view: &dyn Dataset, wanted: &[(&dyn Dataset, u64)]) {
    assert_eq!(view.len(), wanted.len() as u64);
    for (id, (dataset, inner)) in (0..).zip(wanted) {
        assert_eq!(sample(view, id), sample(*dataset, *inner), "sample {id}");
    }
    let mut sizes: Vec<u64> = (0..view.len()).map(|id| bytes_of(view, id)).collect();
    assert_eq!(view.bytes(), sizes.iter().sum::<u64>());
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    for count in 0..=sizes.len() + 2 {
        let largest: u64 = sizes.iter().take(count).sum();
        assert!(view.largest(count as u64) >= largest, "{count} samples have {largest} bytes");
    }
    assert!(view.largest(u64::MAX) >= view.bytes());
    check_shards(view, wanted);
}

/// Shards hold whole shards, or what is left of one, of a single dataset.
fn check_shards(view: &dyn Dataset, wanted: &[(&dyn Dataset, u64)]) {
    let ends = view.shards();
    if wanted.iter().all(|(dataset, _)| dataset.shards().is_empty()) {
        assert!(ends.is_empty(), "{ends:?}");
    }
    if ends.is_empty() {
        return;
    }
    assert!(ends.is_sorted() && ends.last() == Some(&view.len()), "{ends:?}");
    let shard = |id: u64| ends.partition_point(|&end| end <= id);
    let inner_shard = |id: u64| {
        let (dataset, inner) = wanted[id as usize];
        let ends = dataset.shards();
        (std::ptr::from_ref(dataset).cast::<()>(), ends.partition_point(|&end| end <= inner))
    };
    for id in 1..view.len() {
        let (same, inner_same) = (shard(id - 1) == shard(id), inner_shard(id - 1) == inner_shard(id));
        let starts_over = wanted[id as usize].1 <= wanted[id as usize - 1].1;
        assert!(!same || inner_same, "samples of two shards in one, before {id}");
        assert!(same || !inner_same || starts_over, "a shard is cut before {id}");
    }
}

fn all(dataset: &Arc<dyn Dataset>) -> impl Iterator<Item = (&dyn Dataset, u64)> {
    (0..dataset.len()).map(|id| (&**dataset, id))
}

#[test]
fn parts_end_to_end_are_their_samples() {
    let parts = vec![folder("a", &[5, 0, 7_000_000, 3]), folder("b", &[1]), folder("a", &[9, 9, 9])];
    let wanted: Vec<_> = parts.iter().flat_map(all).collect();
    let concat = Concat::new(parts.clone()).unwrap();
    check(&concat, &wanted);
    assert_eq!(
        [0, 1, 2, 4, 8, 9].map(|count| concat.largest(count)),
        [0, 7_000_000, 7_000_009, 7_000_027, 7_000_036, 7_000_036]
    );
    assert_eq!((concat.format(), concat.index().plain_field, concat.ends()), ("folder", Some(0), &[4, 5, 8][..]));
    assert_eq!(concat.locate(SampleId(4)), (1, SampleId(0)));
    assert_eq!(concat.schema(), parts[0].schema());
    assert_eq!(concat.files().roots().len(), 5);

    let parts = vec![records("a", 10, &[3, 0, 4]), records("b", 10, &[2, 2])];
    let wanted: Vec<_> = parts.iter().flat_map(all).collect();
    let concat = Concat::new(parts.clone()).unwrap();
    check(&concat, &wanted);
    assert_eq!(concat.shards(), [3, 3, 7, 9, 11]);
    assert_eq!((concat.schema(), concat.largest(3)), (parts[0].schema(), 30));
}

/// Records of two sizes and files: any length, and where only some lie in shards the others are cut to pieces.
#[test]
fn parts_of_several_formats_are_ragged() {
    let parts = vec![records("a", 10, &[2, 3]), folder("b", &vec![20; 5000]), records("c", 7, &[1])];
    let concat = Concat::new(parts.clone()).unwrap();
    let wanted: Vec<_> = parts.iter().flat_map(all).collect();
    for id in [0, 4, 5, 5004, 5005] {
        assert_eq!(sample(&concat, id), sample(wanted[id as usize].0, wanted[id as usize].1));
    }
    assert_eq!((concat.format(), concat.index().plain_field), ("concat", Some(0)));
    assert_eq!(concat.schema().fields[0].shape, Shape::Ragged);
    assert_eq!(concat.shards(), [2, 5, 5 + 4096, 5005, 5006]);
    assert_eq!(concat.length(SampleId(0), 0), Some(10));
    assert_eq!(concat.bytes(), 50 + 100_000 + 7);
}

#[test]
fn parts_that_do_not_fit_are_refused_in_words() {
    let bytes = ("data", DType::U8, Shape::Ragged);
    let label = ("label", DType::I64, Shape::Fixed(vec![]));
    let made = |fields: &[(&str, DType, Shape)]| made(fields, vec![]);
    let first = made(&[bytes.clone(), label.clone()]);
    for (other, word) in [
        (made(std::slice::from_ref(&bytes)), "\"data\", \"label\", and dataset 1 \"data\""),
        (made(&[bytes.clone(), ("class", DType::I64, Shape::Fixed(vec![]))]), "\"class\""),
        (made(&[bytes.clone(), ("label", DType::I32, Shape::Fixed(vec![]))]), "i32"),
        (made(&[bytes.clone(), ("label", DType::I64, Shape::Fixed(vec![2]))]), "[2]"),
        (made(&[("data", DType::F32, Shape::Ragged), label.clone()]), "f32"),
    ] {
        let error = Concat::new(vec![Arc::clone(&first), other]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(word) && error.remedy().is_some(), "{error}");
    }
    assert!(Concat::new(vec![Arc::clone(&first), first]).is_ok());
    assert_eq!(Concat::new(Vec::new()).unwrap_err().kind(), ErrorKind::Empty);
}

/// A number that one dataset reads and another one knows is a number in both.
#[test]
fn numbers_are_numbers_wherever_they_come_from() {
    let label = [("label", DType::I64, Shape::Fixed(vec![]))];
    let read = made(&label, vec![Value::Bytes((-5_i64).to_le_bytes().to_vec().into())]);
    let known = made(&label, vec![Value::I64(9)]);
    let concat = Concat::new(vec![read, known]).unwrap();
    let value = |id| {
        let mut sample = Sample::default();
        concat.parse(SampleId(id), &[], &mut sample).unwrap();
        sample.values
    };
    assert_eq!([value(1), value(2)], [[Value::I64(-5)], [Value::I64(9)]]);
}

#[test]
fn fingerprints_tell_views_apart() {
    let (a, b) = (folder("a", &[5, 6, 7]), folder("b", &[1, 2]));
    let concat = |parts: &[&Arc<dyn Dataset>]| {
        Concat::new(parts.iter().map(|part| Arc::clone(part)).collect()).unwrap().fingerprint()
    };
    let of = |ids: &[u64]| View::of(Arc::clone(&a), ids.to_vec()).unwrap().fingerprint();
    let range = |start, end| View::range(Arc::clone(&a), start..end).unwrap().fingerprint();
    let without = |ids: &[u64]| View::without(Arc::clone(&a), ids.to_vec()).unwrap().fingerprint();
    let repeat = |dataset: &Arc<dyn Dataset>, times| View::repeat(Arc::clone(dataset), times).unwrap().fingerprint();
    let prints = [
        a.fingerprint(),
        b.fingerprint(),
        concat(&[&a]),
        concat(&[&a, &b]),
        concat(&[&b, &a]),
        concat(&[&a, &a]),
        of(&[0, 1]),
        of(&[1, 0]),
        of(&[0, 1, 1]),
        range(0, 1),
        range(0, 2),
        range(1, 2),
        without(&[]),
        without(&[0]),
        without(&[0, 1]),
        repeat(&a, 1),
        repeat(&a, 2),
        repeat(&b, 2),
    ];
    for (number, print) in prints.iter().enumerate() {
        assert!(!prints[..number].contains(print), "{number}");
    }
    assert_eq!(without(&[2, 0, 2]), without(&[0, 2]), "the order of what is left out does not matter");
}

#[test]
fn views_that_cannot_be_are_refused_in_words() {
    let dataset = || records("a", 10, &[3, 4]);
    let refused: [(Result<View>, ErrorKind, &str); 7] = [
        (
            View::of(dataset(), vec![0, 7, 9]),
            ErrorKind::InvalidArgument,
            "sample 7 is named, and the dataset has 7 samples",
        ),
        (View::without(dataset(), vec![1, u64::MAX]), ErrorKind::InvalidArgument, "18446744073709551615"),
        (View::range(dataset(), 3..8), ErrorKind::InvalidArgument, "sample 7 is named"),
        (View::of(dataset(), vec![]), ErrorKind::Empty, "no samples"),
        (View::range(dataset(), 7..7), ErrorKind::Empty, "no samples"),
        #[expect(clippy::reversed_empty_ranges, reason = "what a caller could give")]
        (View::range(dataset(), 5..2), ErrorKind::Empty, "no samples"),
        (View::without(dataset(), (0..7).rev().collect()), ErrorKind::Empty, "no samples"),
    ];
    let check = |error: Error, kind, word| {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word) && error.remedy().is_some(), "{error}");
    };
    for (result, kind, word) in refused {
        check(result.unwrap_err(), kind, word);
    }
    check(View::repeat(dataset(), 0).unwrap_err(), ErrorKind::Empty, "0 times");
    check(View::repeat(dataset(), u64::MAX / 2).unwrap_err(), ErrorKind::InvalidArgument, "2^64");
    assert!(View::repeat(dataset(), u64::MAX / 7).unwrap().shards().is_empty(), "no table for so many shards");
}

/// A view of a view is one of the dataset behind: also its origins.
#[test]
fn views_of_views_are_views() {
    let inner = folder("a", &[1, 2, 3, 4, 5, 6]);
    let even: Arc<dyn Dataset> = Arc::new(View::of(Arc::clone(&inner), vec![0, 2, 4]).unwrap());
    let twice: Arc<dyn Dataset> = Arc::new(View::repeat(even, 2).unwrap());
    let both = Concat::new(vec![twice, Arc::clone(&inner)]).unwrap();
    let some = View::without(Arc::new(both), vec![1, 6, 7]).unwrap();
    let wanted: Vec<(&dyn Dataset, u64)> = [0, 4, 0, 2, 4, 2, 3, 4, 5].map(|id| (&*inner, id)).into();
    check(&some, &wanted);
    assert_eq!(some.origin(SampleId(1)).id, SampleId(4));
    assert_eq!(some.origin(SampleId(1)).fingerprint, inner.fingerprint());
}

proptest! {
    #[test]
    fn subsets_and_repeats_are_the_samples_behind(
        counts in prop::collection::vec(0..6_u64, 1..6), sizes in prop::collection::vec(0..1000_u64, 1..20),
        picks in prop::collection::vec(any::<u64>(), 1..30), sorted: bool, ends in (any::<u64>(), any::<u64>()),
        times in 1..5_u64, is_folder: bool,
    ) {
        prop_assume!(counts.iter().any(|&count| count > 0));
        let dataset = if is_folder { folder("a", &sizes) } else { records("a", 10, &counts) };
        let inner = || Arc::clone(&dataset);
        let len = dataset.len();
        let mut ids: Vec<u64> = picks.iter().map(|pick| pick % len).collect();
        if sorted {
            ids.sort_unstable();
        }
        let wanted = |ids: &[u64]| ids.iter().map(|&id| (&*dataset, id)).collect::<Vec<_>>();

        check(&View::of(inner(), ids.clone()).unwrap(), &wanted(&ids));
        let (start, end) = (ends.0 % len, ends.1 % len + 1);
        if start < end {
            let all: Vec<u64> = (start..end).collect();
            check(&View::range(inner(), start..end).unwrap(), &wanted(&all));
        }
        let left: Vec<u64> = (0..len).filter(|id| !ids.contains(id)).collect();
        match View::without(inner(), ids) {
            Ok(subset) => check(&subset, &wanted(&left)),
            Err(error) => prop_assert!(left.is_empty() && error.kind() == ErrorKind::Empty, "{}", error),
        }
        let again: Vec<u64> = (0..times).flat_map(|_| 0..len).collect();
        check(&View::repeat(inner(), times).unwrap(), &wanted(&again));
    }
}

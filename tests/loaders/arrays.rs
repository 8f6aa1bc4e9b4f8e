//! Arrays of numbers on their way to a batch: parts of them, from every format that knows their shapes.

use crate::common::within;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::Data;
use uringload::config::OnError;
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::transform::Array;
use uringload::{Builder, ErrorKind, Loader};

/// An npy file of i32 that are their numbers.
fn npy(path: &Path, shape: &[u64]) {
    let sides: String = shape.iter().map(|side| format!("{side}, ")).collect();
    let mut header = format!("{{'descr': '<i4', 'fortran_order': False, 'shape': ({sides}), }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend((0..shape.iter().product::<u64>() as i32).flat_map(i32::to_le_bytes));
    fs::write(path, file).expect("a file");
}

/// Volumes of several shapes.
fn scans(count: u64) -> (TempDir, Arc<dyn Dataset>) {
    let root = tempfile::tempdir().expect("a folder");
    for number in 0..count {
        npy(&root.path().join(format!("{number:03}.npy")), &[4 + number % 3, 5 + number % 5, 6]);
    }
    let dataset = dataset::open(&[root.path()], &Options::new().format("npy")).expect("a dataset");
    (root, dataset)
}

fn loader(dataset: &Arc<dyn Dataset>, text: &str) -> Builder {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(7).shuffle(true).seed(3);
    builder.array("data", text.parse::<Array>().expect("steps"))
}

/// Each sample's numbers, of all epochs.
fn seen(builder: Builder) -> Vec<(u64, Vec<f32>)> {
    let mut all = Vec::new();
    for batch in builder.build().expect("a loader") {
        let batch = batch.expect("a batch");
        let column = batch.column("data").expect("a column");
        let Data::Dense { shape, .. } = &column.data else { panic!("{column:?}") };
        assert_eq!((&shape[..], column.dtype), (&[2, 3, 4][..], DType::F32));
        for (index, id) in batch.ids.iter().enumerate() {
            let bytes = column.bytes_of(index).expect("a value");
            all.push((id.0, bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()));
        }
    }
    all
}

#[test]
fn crops_of_volumes_are_parts_of_them_on_any_thread() {
    within(Duration::from_secs(60), || {
        let (_root, dataset) = scans(40);
        let builder = || loader(&dataset, "array(random_crop(2x3x4), cast(f32))").epochs(3);
        let first = seen(builder().num_threads(1));
        assert_eq!(first.len(), 120);
        for (id, numbers) in &first {
            let rows = 5 + id % 5;
            let corner = numbers[0];
            for (at, &number) in numbers.iter().enumerate() {
                let (z, y, x) = (at as u64 / 12, at as u64 / 4 % 3, at as u64 % 4);
                assert_eq!(number, corner + (z * rows * 6 + y * 6 + x) as f32, "sample {id}");
            }
        }
        let corners = |epoch: usize| first[epoch * 40..(epoch + 1) * 40].iter().map(|(_, numbers)| numbers[0] as u64);
        assert!(corners(0).sum::<u64>() != corners(1).sum::<u64>(), "other parts in each epoch");
        for threads in [0, 3] {
            assert!(seen(builder().num_threads(threads)) == first, "{threads} threads");
        }
    });
}

#[test]
fn an_array_that_is_too_small_is_an_error_of_its_sample() {
    within(Duration::from_secs(60), || {
        let (root, _) = scans(12);
        npy(&root.path().join("small.npy"), &[1, 9, 9]);
        let dataset = dataset::open(&[root.path()], &Options::new().format("npy")).expect("a dataset");
        let builder = || loader(&dataset, "array(random_crop(2x3x4), cast(f32))").epochs(1);
        assert_eq!(seen(builder().on_error(OnError::Skip)).len(), 12);
        let error = builder().build().expect("a loader").find_map(Result::err).expect("an error");
        let text = error.to_string();
        assert!(
            error.kind() == ErrorKind::Corrupt && text.contains("small.npy") && text.contains("[1, 9, 9]"),
            "{text}"
        );
    });
}

/// Labels and boxes of messages beside each other, on any thread; one that is broken is an error of its sample.
#[test]
fn numbers_of_messages_are_columns() {
    within(Duration::from_secs(60), || {
        let root = tempfile::tempdir().expect("a folder");
        for number in 0..30 {
            let message = format!(r#"{{"label": {number}, "box": [{number}, 2.5]}}"#);
            let message = if number == 11 { message.replace('[', "{") } else { message };
            fs::write(root.path().join(format!("{number:02}.dat")), message).expect("a file");
        }
        let dataset = dataset::open(&[root.path()], &Options::new()).expect("a dataset");
        let read = |text: &str, threads: usize| {
            let builder = Loader::builder(Arc::clone(&dataset)).shuffle(true).seed(3).on_error(OnError::Skip);
            let builder = builder.num_threads(threads).transform_by("data", text).expect("numbers");
            let mut all = Vec::new();
            for batch in builder.build().expect("a loader") {
                let batch = batch.expect("a batch");
                let column = batch.column("data").expect("a column");
                all.extend((0..batch.len()).map(|at| (batch.ids[at].0, column.bytes_of(at).expect("one").to_vec())));
            }
            all.sort();
            all
        };
        let ids = || (0..30_u64).filter(|&id| id != 11);
        for threads in [0, 1, 3] {
            let labels = ids().map(|id| (id, id.to_le_bytes().to_vec())).collect::<Vec<_>>();
            assert_eq!(read("json(label, i64)", threads), labels);
            let pair = |id: u64| [id as f32, 2.5].map(f32::to_le_bytes).as_flattened().to_vec();
            let boxes = ids().map(|id| (id, pair(id))).collect::<Vec<_>>();
            assert_eq!(read("json(box, f32, 2)", threads), boxes);
            assert_eq!(read("json(box, f32, most=9)", threads), boxes);
        }
        let builder = Loader::builder(Arc::clone(&dataset)).transform_by("data", "json(label, i64)").expect("numbers");
        let error = builder.build().expect("a loader").find_map(Result::err).expect("an error");
        let text = error.to_string();
        assert!(error.kind() == ErrorKind::Corrupt && text.contains("11.dat") && text.contains("JSON"), "{text}");
        let wrong = Loader::builder(dataset).transform_by("data", "json(label)").expect_err("no type");
        assert!(wrong.kind() == ErrorKind::InvalidArgument && wrong.remedy().is_some(), "{wrong}");
    });
}

#[test]
fn what_cannot_work_is_refused_when_it_is_built() {
    let (_root, dataset) = scans(3);
    let refused = |builder: Builder, words: &str| {
        let error = builder.build().expect_err(words);
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(words), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    };
    refused(loader(&dataset, "array(cast(f32))"), "differ in shape");
    refused(
        loader(&dataset, "array(random_crop(2))").array("data", Array::default().center_crop([2])),
        "two transforms",
    );
    let builder = Loader::builder(Arc::clone(&dataset)).array("volume", Array::default().center_crop([2]));
    refused(builder, "\"volume\", which is no column");
    let error = Loader::builder(dataset).transform_by("data", "array(crop(3))").expect_err("an error");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("random_crop")), "{error}");
}

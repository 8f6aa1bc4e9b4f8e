//! Small columns that are apart from the rest of their samples: read once and kept, with the same values, orders and
//! errors as if each value were read by itself.

use crate::common::check::ways_to;
use crate::common::device::same;
use crate::common::within;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::{Batch, Data};
use uringload::config::Config;
use uringload::config::{Cause, Collate, Device, OnError, Shuffle};
use uringload::dataset::{self, Concat, Dataset, Options, View};
use uringload::{ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(60);
const ROWS: u64 = 1500;
const ROW_BYTES: u64 = 3000;

/// A file with a row of bytes and a number for each sample: all rows, and behind them all numbers.
fn write(path: &Path, first: u64) {
    let (images, labels) = (ROWS * ROW_BYTES, ROWS * 8);
    let header = format!(
        concat!(
            r#"{{"image":{{"dtype":"U8","shape":[{},{}],"data_offsets":[0,{}]}},"#,
            r#""label":{{"dtype":"I64","shape":[{}],"data_offsets":[{},{}]}}}}"#
        ),
        ROWS,
        ROW_BYTES,
        images,
        ROWS,
        images,
        images + labels
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    (first..first + ROWS).for_each(|row| bytes.extend(image(row)));
    (first..first + ROWS).for_each(|row| bytes.extend((row * row).to_le_bytes()));
    std::fs::write(path, bytes).expect("a file of tensors");
}

fn image(row: u64) -> Vec<u8> {
    (0..ROW_BYTES).map(|byte| ((row * 7 + byte) % 251) as u8).collect()
}

fn tensors(files: u64) -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    (0..files).for_each(|file| write(&root.path().join(format!("{file}.safetensors")), file * ROWS));
    let dataset = dataset::open(&[root.path()], &Options::new().format("safetensors").set("rows", true));
    (root, dataset.expect("rows"))
}

fn config() -> Config {
    Config { batch_size: 32, shuffle: Shuffle::Full, seed: 5, epochs: Some(2), ..Config::default() }
}

fn build(dataset: &Arc<dyn Dataset>, config: Config) -> Loader {
    Loader::builder(Arc::clone(dataset)).config(config).build().expect("a loader")
}

/// The sample of each row of a batch, after comparing its values with what `row_of` says it is.
fn checked(batch: &Batch, row_of: &dyn Fn(u64) -> u64) -> Vec<u64> {
    let value = |column: usize, row: usize| match &batch.columns[column].data {
        Data::Views(views) => views[row].to_vec(),
        Data::Dense { bytes, .. } => {
            let each = bytes.len() / batch.ids.len();
            bytes[row * each..][..each].to_vec()
        }
        // Of several datasets, numbers are one kind of value.
        Data::I64(numbers) => numbers[row].to_le_bytes().to_vec(),
        other => panic!("{other:?}"),
    };
    for (place, id) in batch.ids.iter().enumerate() {
        let row = row_of(id.0);
        assert!(value(0, place) == image(row), "image of {row}");
        assert_eq!(value(1, place), (row * row).to_le_bytes(), "label of {row}");
    }
    batch.ids.iter().map(|id| id.0).collect()
}

fn drain(loader: &mut Loader, row_of: &dyn Fn(u64) -> u64) -> Vec<u64> {
    loader.by_ref().flat_map(|batch| checked(&batch.expect("a batch"), row_of)).collect()
}

#[test]
fn labels_are_read_once_over_every_way() {
    within(BOUND, || {
        let (_root, dataset) = tensors(2);
        for (engine, io) in ways_to(&dataset) {
            for collate in [Collate::Views, Collate::Auto] {
                let mut loader = build(&dataset, Config { engine, io, collate, ..config() });
                assert!(!loader.keeps_stretches(), "labels are copied, so each batch has its own");
                let said = loader.route().to_string();
                assert!(said.contains("small columns read once"), "{said}");
                let mut ids = drain(&mut loader, &|id| id);
                let samples = 2 * dataset.len();
                assert_eq!(ids.len() as u64, samples);
                ids.sort_unstable();
                assert!(ids.chunks(2).enumerate().all(|(id, pair)| pair == [id as u64; 2]));
                let count = loader.stats().snapshot().count;
                // And the images that lie in the same stretches.
                let saved = count.reads_saved - samples;
                assert!(saved < 60, "{engine:?} {io:?}: {saved} reads but those of labels were saved");
                assert!(count.reads < samples + 40, "{engine:?} {io:?}: {} reads", count.reads);
            }
        }
    });
}

#[test]
fn batches_for_devices_have_labels_that_were_read_once() {
    within(BOUND, || {
        let (_root, dataset) = tensors(2);
        let config = Config { collate: Collate::Ragged, ..config() };
        let host = build(&dataset, config.clone());
        let device = Loader::builder(Arc::clone(&dataset)).config(config).device(Device::host());
        let mut device = device.build().expect("a loader");
        assert!(device.route().to_string().contains("small columns read once"), "{}", device.route());
        for batch in host {
            same(&batch.expect("a batch"), &device.next().expect("as many").expect("a batch"));
        }
        let (count, samples) = (device.stats().snapshot().count, 2 * dataset.len());
        assert!(device.next().is_none() && count.reads < samples + 40, "{} reads", count.reads);
    });
}

#[test]
fn views_mixtures_ranks_and_resumed_runs_keep_them_too() {
    within(BOUND, || {
        let (_root, dataset) = tensors(1);
        let (_other, other) = tensors(2);
        let odd: Vec<u64> = (0..dataset.len()).filter(|id| id % 2 == 1).rev().collect();
        let view: Arc<dyn Dataset> = Arc::new(View::of(Arc::clone(&dataset), odd).expect("a view"));
        let both: Arc<dyn Dataset> = Arc::new(Concat::new(vec![dataset, other]).expect("both"));
        let of_view = |id: u64| ROWS - 1 - 2 * id;
        let of_both = |id: u64| if id < ROWS { id } else { id - ROWS };
        for (dataset, row_of) in [(&view, &of_view as &dyn Fn(u64) -> u64), (&both, &of_both)] {
            let mut all = Vec::new();
            for rank in 0..2 {
                let config = Config { rank, world_size: 2, epochs: Some(1), ..config() };
                let mut whole = build(dataset, config.clone());
                let begun: Vec<u64> =
                    whole.by_ref().take(3).flat_map(|batch| checked(&batch.expect("a batch"), row_of)).collect();
                let state = whole.state();
                drop(whole);
                let resumed = Loader::builder(Arc::clone(dataset)).config(config).resume(&state).build();
                let mut resumed = resumed.expect("the same order");
                let rest = drain(&mut resumed, row_of);
                assert!(resumed.stats().snapshot().count.reads_saved >= rest.len() as u64);
                all.extend(begun.into_iter().chain(rest));
            }
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len() as u64, dataset.len());
        }
    });
}

#[test]
fn where_memory_is_short_it_is_said() {
    let (_root, dataset) = tensors(1);
    let mut loader = build(&dataset, Config { memory_limit: Some(400 << 10), collate: Collate::Views, ..config() });
    let route = loader.route();
    let step = route.fallbacks.iter().find(|step| step.cause == Cause::Locality).expect("it is said");
    assert!(step.remedy.contains("raise memory_limit to"), "{step}");
    assert_eq!(drain(&mut loader, &|id| id).len() as u64, 2 * dataset.len());
    assert_eq!(loader.stats().snapshot().count.reads_saved, 0);
}

/// A number within each row lies with its row, and numbers of samples that have nothing else are the samples.
#[test]
fn what_lies_with_its_sample_is_not_kept_apart() {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    std::fs::write(root.path().join("numbers.bin"), vec![7; 8 * 4000]).expect("a file");
    let numbers = dataset::open(&[root.path()], &Options::new().format("records").set("record_bytes", 8));
    let loader = build(&numbers.expect("numbers"), config());
    assert!(loader.route().locality.is_empty());
}

/// A file that is replaced fails its samples whether or not their labels were asked for before.
#[test]
fn a_file_that_changed_is_told() {
    within(BOUND, || {
        let (root, dataset) = tensors(1);
        let path = root.path().join("0.safetensors");
        write(&path, 9);
        let mut loader = build(&dataset, Config { on_error: OnError::Skip, epochs: Some(1), ..config() });
        let failed: Vec<_> = loader.by_ref().flat_map(|batch| batch.expect("a batch").failed).collect();
        assert_eq!(failed.len() as u64, dataset.len());
        assert!(failed.iter().all(|failed| failed.error.kind() == ErrorKind::Changed), "{}", failed[0].error);
    });
}

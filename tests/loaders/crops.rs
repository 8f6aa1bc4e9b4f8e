//! Crops of volumes that read only the rows that they need: the same bytes as from whole volumes, for every format and
//! in every order, and as many bytes fewer as reported.

use crate::common::check::ways_to;
use crate::common::within;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::Batch;
use uringload::config::{Cache, EngineChoice, IoChoice, OnError, Shuffle};
use uringload::dataset::{self, Concat, Dataset, KnownColumn, Options, View, WithColumns};
use uringload::{Builder, ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(120);
const SEED: u64 = 9;
/// Elements of a volume of [`DEEP`] or [`WIDE`].
const ELEMENTS: u64 = 32 * 64 * 64;
/// Volumes whose crops are rows that lie together.
const DEEP: [u64; 3] = [32, 64, 64];
/// Volumes whose rows are long, so that what lies between parts of two rows is left out.
const WIDE: [u64; 3] = [2, 1024, 64];

/// The elements of volume `number`.
fn elements(number: u64) -> impl Iterator<Item = i32> {
    (0..ELEMENTS as i32).map(move |element| element.wrapping_mul(31) ^ (number as i32) << 20)
}

fn bytes(number: u64) -> Vec<u8> {
    elements(number).flat_map(i32::to_le_bytes).collect()
}

/// A file of named tensors: the volume, and a mask of a byte for each of its elements.
fn safetensors(path: &Path, number: u64, [z, y, x]: [u64; 3]) {
    let (image, mask) = (ELEMENTS * 4, ELEMENTS);
    let tensor = |name: &str, dtype: &str, start: u64, end: u64| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":[{z},{y},{x}],"data_offsets":[{start},{end}]}}"#)
    };
    let (first, second) = (tensor("image", "I32", 0, image), tensor("mask", "U8", image, image + mask));
    let mut header = format!("{{{first},{second}}}");
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(bytes(number));
    file.extend(elements(number).map(|element| element as u8));
    fs::write(path, file).expect("a file");
}

/// Volumes with masks, in a file each.
fn pairs(count: u64, shape: [u64; 3]) -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new().expect("a folder");
    for number in 0..count {
        safetensors(&root.path().join(format!("{number:02}.safetensors")), number, shape);
    }
    let options = Options::new().format("safetensors").set("tensors", ["image", "mask"]);
    let dataset = dataset::open(&[root.path()], &options).expect("a dataset");
    (root, dataset)
}

/// Volumes end to end in a file, behind a header.
fn records(count: u64, shape: [u64; 3]) -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new().expect("a folder");
    let mut file = vec![7; 24];
    (0..count).for_each(|number| file.extend(bytes(number)));
    fs::write(root.path().join("volumes.bin"), file).expect("a file");
    let options = Options::new().format("records").set("record_bytes", ELEMENTS * 4).set("header_bytes", 24_u64);
    let options = options.set("dtype", dataset::DType::I32).set("shape", shape.to_vec());
    let dataset = dataset::open(&[root.path()], &options).expect("a dataset");
    (root, dataset)
}

fn builder(dataset: &Arc<dyn Dataset>, steps: &str) -> Builder {
    let mut builder = Loader::builder(Arc::clone(dataset)).batch_size(3).seed(SEED).epochs(2);
    for field in &dataset.schema().fields {
        if field.name != "label" {
            builder = builder.transform_by(&field.name, steps).expect("steps");
        }
    }
    builder
}

/// What the samples of an epoch became, by epoch and sample: the bytes of all columns.
type Seen = BTreeMap<(u64, u64), Vec<Vec<u8>>>;

fn add(seen: &mut Seen, batch: &Batch) {
    for (index, id) in batch.ids.iter().enumerate() {
        let columns = batch.columns.iter().filter(|column| column.name != "label");
        let bytes = columns.map(|column| column.bytes_of(index).expect("a value").to_vec()).collect();
        assert!(seen.insert((batch.cursor.epoch, id.0), bytes).is_none(), "sample {id:?} came twice");
    }
}

/// What came, the bytes that were read, and what the route says of rows.
fn read(builder: Builder) -> (Seen, u64, Option<String>) {
    let mut loader = builder.build().expect("a loader");
    let stats = loader.stats();
    let told = loader.route().locality.iter().find(|told| told.contains("only the rows")).map(ToString::to_string);
    let mut seen = Seen::new();
    loader.by_ref().for_each(|batch| add(&mut seen, &batch.expect("a batch")));
    (seen, stats.snapshot().count.bytes_read, told)
}

/// Holds crops to those of whole volumes, which are kept in memory, and what is read to the share that was told.
fn same(dataset: &Arc<dyn Dataset>, steps: &str, percent: u64) {
    let whole = dataset.bytes() * 2;
    let (wanted, _, told) = read(builder(dataset, steps).cache(Cache::Memory));
    assert!(told.is_none() && wanted.len() as u64 == 2 * dataset.len(), "whole files are kept: {told:?}");
    for (engine, io) in ways_to(dataset) {
        for shuffle in [Shuffle::Off, Shuffle::Full, Shuffle::Window(7)] {
            let (seen, bytes, told) = read(builder(dataset, steps).engine(engine).io(io).shuffle(shuffle));
            let what = format!("{engine:?} {io:?} {shuffle:?}: {bytes} of {whole} bytes, {told:?}");
            assert!(seen == wanted, "{what}");
            assert!(told.is_some_and(|told| told.ends_with(&format!("({percent} % of the bytes)"))), "{what}");
            // Reads past the page cache begin and end with pages.
            let (least, most) = (whole * percent / 100, whole * (percent + 4) / 100);
            assert!(bytes >= least - least / 50 && bytes <= most, "{what}");
        }
    }
}

#[test]
fn rows_of_volumes_and_of_their_masks_are_read() {
    within(BOUND, || {
        let (_root, dataset) = pairs(20, DEEP);
        same(&dataset, "array(random_crop(8x64x64), random_flip(0))", 25);
        let (_root, dataset) = records(11, DEEP);
        same(&dataset, "array(random_crop(8x64x64), random_flip(0), cast(f32))", 25);
    });
}

#[test]
fn parts_of_long_rows_are_read() {
    within(BOUND, || {
        let (_root, dataset) = records(11, WIDE);
        same(&dataset, "array(random_crop(2x256x64))", 25);
        let (_root, dataset) = pairs(11, WIDE);
        // Between the rows of a mask lies too little: from its first to its last is read.
        let seen = read(builder(&dataset, "array(random_crop(2x256x64))")).0;
        assert!(seen == read(builder(&dataset, "array(random_crop(2x256x64))").cache(Cache::Memory)).0);
    });
}

/// Whatever stands between the loader and the format, it tells where arrays lie.
#[test]
fn rows_are_read_of_views_of_datasets_with_more_columns() {
    within(BOUND, || {
        let ((_one, one), (_two, two)) = (pairs(6, DEEP), pairs(5, DEEP));
        let both: Arc<dyn Dataset> = Arc::new(Concat::new(vec![one, two]).expect("both"));
        let view: Arc<dyn Dataset> = Arc::new(View::of(both, vec![10, 3, 0, 7, 5]).expect("a view"));
        let label = KnownColumn::of_numbers("label", (0..5).collect());
        let dataset: Arc<dyn Dataset> = Arc::new(WithColumns::new(view, vec![label]).expect("labels"));
        same(&dataset, "array(random_crop(8x64x64))", 25);
    });
}

#[test]
fn ranks_and_resumed_loaders_read_the_same_rows() {
    within(BOUND, || {
        let (_root, dataset) = pairs(20, DEEP);
        let builder = || builder(&dataset, "array(random_crop(8x40x30))").shuffle(true);
        let wanted = read(builder().cache(Cache::Memory)).0;
        for cut in [1, 3, 5] {
            let mut seen = Seen::new();
            for rank in 0..2 {
                let mut loader =
                    builder().rank(rank, 2).drop_last(false).num_threads(rank as usize).build().expect("one");
                let of_rank = |batch: &Batch| batch.padding.clone().unwrap_or_else(|| vec![false; batch.ids.len()]);
                let mut add_own = |batch: Batch| {
                    let padding = of_rank(&batch);
                    let columns =
                        |index| batch.columns.iter().map(|c| c.bytes_of(index).expect("one").to_vec()).collect();
                    for (index, id) in batch.ids.iter().enumerate().filter(|(index, _)| !padding[*index]) {
                        assert!(seen.insert((batch.cursor.epoch, id.0), columns(index)).is_none());
                    }
                };
                loader.by_ref().take(cut).for_each(|batch| add_own(batch.expect("a batch")));
                let state = loader.state();
                drop(loader);
                let resumed = builder().rank(rank, 2).resume(&state).build().expect("it goes on");
                resumed.for_each(|batch| add_own(batch.expect("a batch")));
            }
            assert!(seen == wanted, "cut after {cut}");
        }
    });
}

#[test]
fn rows_that_cannot_be_read_are_errors_of_their_samples() {
    within(BOUND, || {
        for (engine, io) in [(EngineChoice::Auto, IoChoice::Buffered), (EngineChoice::Threads, IoChoice::Auto)] {
            let (root, dataset) = pairs(20, DEEP);
            let wanted = read(builder(&dataset, "array(random_crop(8x64x64))").cache(Cache::Memory)).0;
            let file = File::options().write(true).open(root.path().join("07.safetensors")).expect("the file");
            file.set_len(1000).expect("it shrinks");
            let build = |on_error| {
                let builder = builder(&dataset, "array(random_crop(8x64x64))").engine(engine).io(io).epochs(1);
                builder.on_error(on_error).build().expect("a loader")
            };
            let (mut seen, mut failed) = (Seen::new(), Vec::new());
            for batch in build(OnError::Skip) {
                let batch = batch.expect("a batch");
                add(&mut seen, &batch);
                failed.extend(batch.failed);
            }
            assert_eq!((seen.len(), failed.len(), failed[0].id.0), (19, 1, 7));
            assert_eq!(failed[0].error.kind(), ErrorKind::Truncated);
            assert!(seen.iter().all(|(of, bytes)| wanted[of] == *bytes));
            // What stands in is read whole, and cropped as the sample that it is.
            let replaced = build(OnError::Replace).map(|batch| batch.expect("a batch"));
            let replaced: Vec<Batch> = replaced.filter(|batch| !batch.failed.is_empty()).collect();
            let [batch] = &replaced[..] else { panic!("{replaced:?}") };
            let by = batch.failed[0].replaced_by.expect("another");
            let index = batch.ids.iter().position(|id| *id == by).expect("it is there");
            let bytes: Vec<_> =
                batch.columns.iter().map(|column| column.bytes_of(index).expect("one").to_vec()).collect();
            assert!(wanted[&(0, by.0)] == bytes, "{by:?}");
        }
    });
}

#[test]
fn what_a_crop_does_not_save_is_read() {
    within(BOUND, || {
        let (_root, dataset) = records(4, DEEP);
        let told = |steps: &str| read(builder(&dataset, steps).epochs(1)).2;
        assert!(told("array(random_crop(25x64x64))").is_none(), "less than a quarter");
        assert!(told("array(random_crop(24x64x64))").is_some_and(|told| told.contains("75 %")));
        assert!(told("array(cast(f32))").is_none());
        // Where samples are longer than reads are worth, these are not left out.
        let far = builder(&dataset, "array(random_crop(8x64x64))").coalesce_gap(1 << 20);
        assert!(read(far).2.is_none());
        let closure = |value: &uringload::transform::Input<'_>, out: &mut [u8]| {
            out.copy_from_slice(&value.bytes[..8]);
            Ok(8)
        };
        let output = uringload::transform::MapOutput::fixed(dataset::DType::U8, [8]);
        let mapped = Loader::builder(Arc::clone(&dataset)).seed(SEED).map("data", output, closure);
        let (seen, _, told) = read(mapped.epochs(1));
        assert!(told.is_none() && seen.len() == 4, "a closure gets all of a value");
    });
}

//! Through the loader: every byte, on each engine, and a record that is damaged.

use super::writer::{features, file, integers, strings};
use super::{bytes, data, folder, quiet};
use crate::common::check::ways_to;
use crate::common::direct::{Row, samples};
use std::sync::Arc;
use uringload::Loader;
use uringload::batch::{Column, Data};
use uringload::config::OnError;
use uringload::dataset::{self, Dataset, SampleId};

/// Checks that every way to read through a loader gives what the dataset gives without one, in a shuffled order too.
fn loads(dataset: Arc<dyn Dataset>) {
    let rows: Vec<Row> = samples(&*dataset).into_iter().map(Result::unwrap).collect();
    for (engine, io) in ways_to(&dataset) {
        for shuffle in [false, true] {
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(3).epochs(1).shuffle(shuffle);
            let mut seen = 0;
            for batch in builder.engine(engine).io(io).build().unwrap() {
                let batch = batch.unwrap();
                for (index, id) in batch.ids.iter().enumerate() {
                    let value = |column: &Column| match &column.data {
                        Data::I64(numbers) => numbers[index].to_le_bytes().to_vec(),
                        _ => column.bytes_of(index).unwrap().to_vec(),
                    };
                    let row: Row = batch.columns.iter().map(|column| (column.name.clone(), value(column))).collect();
                    assert_eq!(row, rows[id.0 as usize], "{engine:?} {io:?}: sample {}", id.0);
                    seen += 1;
                }
            }
            assert_eq!(seen, rows.len(), "{engine:?} {io:?}: every sample once");
        }
    }
}

#[test]
fn every_way_gives_every_sample() {
    loads(dataset::open(&[data("examples")], &quiet()).unwrap());
    loads(dataset::open(&[data("bytes")], &quiet()).unwrap());
    loads(dataset::open(&[data("bytes")], &bytes().set("verify_crc", false)).unwrap());
    let fixed = quiet().set("fixed", ["label:", "box:4"]);
    loads(dataset::open(&[data("examples")], &fixed).unwrap());
    // Records of many pages, in several files.
    let record = |number: u64| {
        let image: Vec<u8> = (0..number * number * 97 % 60_000).map(|at| (at * 31 + number) as u8).collect();
        features(&[("image", strings(&[&image])), ("label", integers(&[number as i64 - 20]))])
    };
    let shard = |shard: u64| file(&(shard * 20..shard * 20 + 20).map(record).collect::<Vec<_>>());
    let folder = folder(&[("train-00000-of-00002", &shard(0)), ("train-00001-of-00002", &shard(1))]);
    loads(dataset::open(&[folder.path()], &quiet()).unwrap());
}

/// A wrong checksum is the error of its sample alone; `on_error` decides about it as about any other.
#[test]
fn a_damaged_record_is_the_error_of_its_sample() {
    let mut file = file(&[b"first", b"other", b"third"]);
    file[21 + 12] ^= 1;
    let folder = folder(&[("a.tfrecord", &file)]);
    let dataset = dataset::open(&[folder.path()], &bytes()).unwrap();
    let loader = Loader::builder(dataset).batch_size(8).epochs(1).on_error(OnError::Skip).build().unwrap();
    let batches: Vec<_> = loader.map(Result::unwrap).collect();
    assert_eq!(batches[0].ids, [SampleId(0), SampleId(2)]);
    let error = &batches[0].failed[0].error;
    assert!(error.to_string().contains("record 1: its checksum is") && error.offset() == Some(21 + 12 + 5), "{error}");
}

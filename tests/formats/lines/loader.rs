//! Through the loader: every value, by every way to read and in every order.

use super::*;
use crate::common::check::{WAYS, ways_to};
use std::sync::Arc;
use uringload::Loader;
use uringload::batch::{Batch, Data};
use uringload::config::{Collate, OnError, Shuffle};

const ORDERS: [Shuffle; 4] = [Shuffle::Off, Shuffle::Full, Shuffle::Window(4), Shuffle::Shards { mixed: 2 }];

fn values(batch: &Batch, index: usize) -> Row {
    let value = |column: &uringload::batch::Column| match &column.data {
        Data::I64(numbers) => numbers[index].to_le_bytes().to_vec(),
        _ => column.bytes_of(index).expect("bytes").to_vec(),
    };
    batch.columns.iter().map(|column| (column.name.clone(), value(column))).collect()
}

/// Checks that every way to read through a loader gives what is read and parsed one by one.
pub fn loads(lines: Arc<dyn Dataset>, collate: Collate) {
    let rows: Vec<Row> = samples(&*lines).into_iter().map(Result::unwrap).collect();
    let dataset = lines;
    assert!(WAYS.len() >= 4 && rows.len() > 50);
    for (engine, io) in ways_to(&dataset) {
        for shuffle in ORDERS {
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(7).epochs(1).shuffle(shuffle);
            let loader = builder.engine(engine).io(io).collate(collate).build().expect("a loader");
            let mut seen = vec![0; rows.len()];
            for batch in loader {
                let batch = batch.expect("a batch");
                for (index, id) in batch.ids.iter().enumerate() {
                    assert_eq!(values(&batch, index), rows[id.0 as usize], "{engine:?} {io:?} {shuffle:?}: {}", id.0);
                    seen[id.0 as usize] += 1;
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{engine:?} {io:?} {shuffle:?}: every sample once");
        }
    }
}

/// Five files of some lines each, one of them empty.
pub fn files(extension: &str, line: impl Fn(usize) -> String, header: &str) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for (file, count) in [12, 0, 31, 1, 17].into_iter().enumerate() {
        let lines: String = (0..count).map(|number| line(file * 40 + number)).collect();
        fs::write(place.path().join(format!("{file}.{extension}")), format!("{header}{lines}")).unwrap();
    }
    place
}

#[test]
fn text_in_every_form() {
    let place = files("txt", |number| format!("{}\n", "text ".repeat(number * 7 % 50)), "");
    for collate in [Collate::Auto, Collate::Ragged] {
        let lines = dataset::open(&[place.path()], &quiet("text")).unwrap();
        assert_eq!(lines.shards(), [12, 12, 43, 44, 61]);
        loads(lines, collate);
    }
}

#[test]
fn fields_of_json() {
    let line = |number: usize| {
        let ids: Vec<usize> = (0..number % 9).collect();
        let text = if number.is_multiple_of(2) { "plain" } else { "\\u00e9scaped" };
        format!("{{\"ids\": {ids:?}, \"score\": {number}.5, \"text\": \"{text}{number}\", \"label\": -{number}}}\n")
    };
    let place = files("jsonl", line, "");
    for collate in [Collate::Auto, Collate::Ragged] {
        let options = columns("jsonl", &["text", "label", "score:f32", "ids"]);
        loads(dataset::open(&[place.path()], &options).unwrap(), collate);
    }
    loads(dataset::open(&[place.path()], &quiet("jsonl")).unwrap(), Collate::Auto);
}

#[test]
fn rows_of_tables() {
    let line = |number: usize| format!("{number},\"line\n\"\"{number}\"\"\",plain {number}\n");
    let place = files("csv", line, "number,quoted,plain\n");
    for collate in [Collate::Auto, Collate::Ragged] {
        let options = columns("csv", &["number:i64", "quoted", "plain"]);
        loads(dataset::open(&[place.path()], &options).unwrap(), collate);
    }
}

/// A line that cannot be read fails by itself; `on_error` decides about it as about any other.
#[test]
fn a_bad_line_is_the_error_of_its_sample() {
    let place = folder(&[("a.jsonl", b"{\"a\": 1}\n{\"a\": \"x\"}\n{\"a\": 3}\n{\n")]);
    let lines = dataset::open(&[place.path()], &columns("jsonl", &["a"])).unwrap();
    let loader = Loader::builder(lines).batch_size(8).epochs(1).on_error(OnError::Skip).build().unwrap();
    let batches: Vec<Batch> = loader.map(Result::unwrap).collect();
    assert_eq!(batches[0].ids, [SampleId(0), SampleId(2)]);
    let Data::I64(numbers) = &batches[0].columns[0].data else { panic!("integers") };
    assert_eq!(numbers, &[1, 3]);
    let failed: Vec<String> = batches[0].failed.iter().map(|failed| failed.error.to_string()).collect();
    assert!(failed[0].contains("\"a\" is a string") && failed[1].contains("no JSON object"), "{failed:?}");
}

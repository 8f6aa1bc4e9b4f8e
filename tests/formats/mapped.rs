//! What the loader's threads make of values, whichever format they are stored in.

use super::same::{SAMPLES, every, payload, writers};
use crate::common::content::put;
use std::sync::Arc;
use uringload::Loader;
use uringload::batch::Data;
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::transform::{Chain, Input, MapOutput};
use uringload_images::{Decoding, Scratch, decode};

/// The value backwards, with the sample's number in front.
fn backwards(value: &Input<'_>, out: &mut [u8]) -> uringload::Result<usize> {
    // A nested column has the payload as the only text of a list.
    let inside = value.bytes.strip_prefix(b"[\"").and_then(|bytes| bytes.strip_suffix(b"\"]"));
    let bytes = inside.unwrap_or(value.bytes);
    out[..8].copy_from_slice(&value.id.0.to_le_bytes());
    out[8..8 + bytes.len()].copy_from_slice(bytes);
    out[8..].reverse();
    Ok(8 + bytes.len())
}

#[test]
fn closures_get_the_values_of_every_format() {
    let root = tempfile::tempdir().unwrap();
    let bytes = 8 + payload(0).len();
    for (name, dataset, column) in every(&root) {
        // Of a row of one array, whatever it is called.
        let column = if column.is_empty() { dataset.schema().fields[0].name.clone() } else { column.to_owned() };
        let column = &*column;
        let mut samples = 0;
        let output = MapOutput::fixed(DType::U8, [bytes as u64]);
        let builder = Loader::builder(dataset).batch_size(7).shuffle(true).num_threads(2);
        for batch in builder.map(column, output, backwards).build().unwrap_or_else(|error| panic!("{name}: {error}")) {
            let batch = batch.unwrap_or_else(|error| panic!("{name}: {error}"));
            let mapped = batch.column(column).expect("the column");
            assert!(matches!(mapped.data, Data::Dense { .. }), "{name}");
            for (index, id) in batch.ids.iter().enumerate() {
                let value = mapped.bytes_of(index).expect("a value");
                let (number, reversed) = value.split_at(8);
                assert_eq!(number, id.0.to_le_bytes(), "{name}");
                assert!(reversed.iter().rev().eq(&payload(id.0)), "{name}: sample {}", id.0);
                samples += 1;
            }
        }
        assert_eq!(samples, SAMPLES, "{name}");
    }
}

const FILES: [&[u8]; 4] = [
    include_bytes!("../../images/tests/data/photo.jpg"),
    include_bytes!("../../images/tests/data/420.jpg"),
    include_bytes!("../../images/tests/data/coffee.png"),
    include_bytes!("../../images/tests/data/progressive.jpg"),
];

#[test]
fn images_in_records_and_shards_become_tensors() {
    let root = tempfile::tempdir().unwrap();
    let files: Vec<Vec<u8>> = (0..30).map(|number| FILES[number % FILES.len()].to_vec()).collect();
    let at = |name: &str, bytes: &[u8]| {
        let path = root.path().join(name);
        put(&path, bytes).expect("a file");
        path
    };
    let records = writers::tfrecord(&files);
    let paths = [
        writers::mds(&files, false, &root.path().join("mds")),
        writers::mds(&files, true, &root.path().join("mds-zstd")),
        writers::litdata(&files, false, &root.path().join("litdata")),
        writers::litdata(&files, true, &root.path().join("litdata-zstd")),
        at("train.tfrecord", &records),
        at("train.tfrecord.gz", &writers::gzip(&records)),
        at("train.beton", &writers::beton(&files)),
    ];
    let chain: Chain = "random_resized_crop(16), hflip, to_tensor(u8)".parse().expect("a chain");
    let by_hand = |(file, id): (&Vec<u8>, u64)| {
        let image = decode(file, &Decoding::default()).expect("an image");
        let plan = chain.draw(3, 0, id, image.height(), image.width()).expect("a plan");
        let mut tensor = vec![0; plan.output(3).bytes()];
        plan.run(&image, &mut tensor, &mut Scratch::default()).expect("a tensor");
        tensor
    };
    let by_hand: Vec<Vec<u8>> = files.iter().zip(0..).map(by_hand).collect();
    for path in paths {
        let dataset: Arc<dyn Dataset> = dataset::open(&[&path], &Options::new()).expect("a dataset");
        let column = dataset.schema().fields[0].name.clone();
        let builder = Loader::builder(dataset).batch_size(8).shuffle(true).seed(3).transform(&column, chain.clone());
        let mut samples = 0;
        for batch in builder.build().unwrap() {
            let batch = batch.unwrap();
            for (index, id) in batch.ids.iter().enumerate() {
                let tensor = batch.column(&column).unwrap().bytes_of(index).unwrap();
                assert!(*tensor == by_hand[id.0 as usize], "{}: sample {}", path.display(), id.0);
                samples += 1;
            }
        }
        assert_eq!(samples, 30, "{}", path.display());
    }
}

use crate::{BurnLoader, dtype, tensor_data, tensor_data_in};
use burn_core::data::dataloader::DataLoader;
use burn_core::tensor::{AllocationProperty, Device};
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::batch::{Batch, Column, Data};
use uringload::config::Collate;
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::{Builder, Loader, Result};

const RECORDS: u8 = 20;

fn records() -> (TempDir, Arc<dyn Dataset>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.bin");
    std::fs::write(&path, (0..RECORDS).flat_map(|n| [n; 8]).collect::<Vec<u8>>()).expect("a file");
    let options = Options::new().format("records").set("record_fields", "number:u8, rest:u8[7]");
    let dataset = dataset::open(&[path], &options).expect("records");
    (folder, dataset)
}

fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(6).collate(Collate::Ragged).shuffle(true).seed(3)
}

/// The numbers of the records of a batch.
fn numbers(batch: Batch, _: &Device) -> Result<Vec<u8>> {
    Ok(batch.column("number").and_then(Column::as_slice::<u8>).expect("numbers").to_vec())
}

fn epoch(loader: &dyn DataLoader<Vec<u8>>) -> Vec<u8> {
    loader.iter().flat_map(|batch| batch.expect("no error")).collect()
}

#[test]
fn each_iter_is_an_epoch_of_its_own() {
    let (_folder, dataset) = records();
    let loader = BurnLoader::new(builder(&dataset), numbers).expect("a loader");
    let wanted: Vec<Vec<u8>> = (0..3)
        .map(|epoch| {
            let order = builder(&dataset).epochs(3).order().expect("an order");
            let batches = order.batches().filter(|batch| batch.cursor.epoch == epoch);
            batches.flat_map(|batch| batch.ids).map(|id| id.0 as u8).collect()
        })
        .collect();
    assert_eq!([epoch(&loader), epoch(&loader), epoch(&loader)], wanted[..]);

    // An epoch that is broken off is over.
    let loader = BurnLoader::new(builder(&dataset), numbers).expect("a loader");
    assert_eq!(loader.iter().next().expect("a batch").expect("no error"), wanted[0][..6]);
    assert_eq!(epoch(&loader), wanted[1]);
    // Two at once are two epochs.
    let mut first = loader.iter();
    assert_eq!(first.next().expect("a batch").expect("no error")[..], wanted[2][..6]);
    assert_ne!(epoch(&loader), wanted[2]);
    assert_eq!(first.map(|batch| batch.expect("no error").len()).sum::<usize>(), 14);
}

#[test]
fn progress_counts_items() {
    let (_folder, dataset) = records();
    let loader = BurnLoader::new(builder(&dataset), numbers).expect("a loader");
    assert_eq!(loader.num_items(), 20);
    let mut batches = loader.iter();
    let mut seen = Vec::new();
    while let Some(batch) = batches.next() {
        batch.expect("no error");
        seen.push((batches.progress().items_processed, batches.progress().items_total));
    }
    assert_eq!(seen, [(6, 20), (12, 20), (18, 20), (20, 20)]);
}

/// Slices share each epoch: together they have every sample once, and each has others in each epoch.
#[test]
fn slices_share_every_epoch() {
    let (_folder, dataset) = records();
    let loader = BurnLoader::new(builder(&dataset), numbers).expect("a loader");
    let slices = [loader.slice(0, 7), loader.slice(7, 20)];
    assert_eq!(slices.each_ref().map(|slice| slice.num_items()), [7, 13]);
    let mut of_first = HashSet::new();
    for _ in 0..3 {
        let [first, second] = slices.each_ref().map(|slice| epoch(&**slice));
        assert_eq!((first.len(), second.len()), (7, 13));
        assert_eq!(first.iter().chain(&second).collect::<HashSet<_>>().len(), 20);
        of_first.insert(first);
    }
    assert_eq!(of_first.len(), 3);
    // Of a slice, and past the end.
    assert_eq!(slices[1].slice(10, 99).num_items(), 3);
    assert_eq!(epoch(&*slices[1].slice(10, 99)).len(), 3);
    assert_eq!(epoch(&*loader.to_device(&Device::default())).len(), 20);
}

#[test]
fn a_run_goes_on_where_it_was_saved() {
    let (_folder, dataset) = records();
    let loader = BurnLoader::new(builder(&dataset), numbers).expect("a loader");
    assert!(loader.state().is_none());
    let first = epoch(&loader);
    let mut batches = loader.iter();
    let mut second = batches.next().expect("a batch").expect("no error");
    let state = loader.state().expect("a state");
    let again = BurnLoader::new(builder(&dataset), numbers).and_then(|new| new.resume(&state)).expect("a loader");
    second.extend(epoch(&again));
    assert_eq!(second.iter().collect::<HashSet<_>>().len(), 20);
    assert_ne!(first, second);
    let mut rest = Vec::new();
    batches.for_each(|batch| rest.extend(batch.expect("no error")));
    assert_eq!(second[6..], rest);
}

#[test]
fn what_cannot_work_is_refused() {
    let (folder, dataset) = records();
    let error = BurnLoader::new(builder(&dataset).rank(0, 2), numbers).expect_err("ranks");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("slice")), "{error}");
    let loader = BurnLoader::new(builder(&dataset), numbers).expect("a loader");
    std::fs::remove_file(folder.path().join("a.bin")).expect("a file");
    let errors: Vec<String> = loader.iter().filter_map(|batch| batch.err()).map(|error| error.to_string()).collect();
    assert!(!errors.is_empty() && errors[0].contains("a.bin"), "{errors:?}");
}

#[test]
fn data_is_not_copied() {
    let bytes = Bytes::from([1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let column = Column::new("x", DType::F32, Data::Dense { shape: vec![2], bytes: bytes.clone() });
    let data = tensor_data(&column).expect("data");
    assert_eq!((data.shape().as_slice(), data.bytes().as_ptr()), (&[2, 2][..], bytes.as_ptr()));
    assert!(matches!(data.bytes().property(), AllocationProperty::Native));
    let pinned = tensor_data_in(&column, AllocationProperty::Pinned).expect("data");
    assert!(matches!(pinned.bytes().property(), AllocationProperty::Pinned));

    let lengths = Data::Padded { length: 2, values: bytes.clone(), lengths: vec![1, 2] };
    assert_eq!(tensor_data(&Column::new("x", DType::F32, lengths)).expect("data").shape().as_slice(), [2, 2]);
    let labels = Column::new("label", DType::I64, Data::I64(vec![4, -4]));
    assert_eq!(tensor_data(&labels).expect("data").try_to_vec::<i64>().expect("numbers"), [4, -4]);
}

#[test]
fn what_is_no_tensor_is_refused_by_name() {
    let of = |dtype, data| tensor_data(&Column::new("x", dtype, data)).expect_err("no tensor").to_string();
    assert!(of(DType::U8, Data::Views(vec![])).contains("lie apart"));
    let dense = |len| Data::Dense { shape: vec![4], bytes: Bytes::from(vec![0; len]) };
    assert!(of(DType::F8E4M3, dense(4)).contains("no such type"));
    assert!(of(DType::U8, dense(6)).contains("\"x\""));
    assert_eq!(DType::ALL.iter().filter(|&&column| dtype(column).is_none()).count(), 2);
}

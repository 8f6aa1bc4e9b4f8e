//! Whole loaders, from files to the GPU and back, held against loaders of the same data without a GPU: the same batches
//! in the same order, with the same digest and the same bytes in every column.

use crate::common::archive::Archive;
use crate::common::content::{content, key_of, write_file};
use crate::common::device::{folder, records, same};
use crate::machine::{folder as new_folder, gpu, seed};
use std::path::Path;
use std::sync::Arc;
use uringload::DeviceLoader;
use uringload::config::Batching;
use uringload::config::Config;
use uringload::config::{Collate, Device, EngineChoice, PackMethod, Packing, PadValue, Padding, Shuffle};
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::device::DeviceBatch;
use uringload::transform::OnDevice;
use uringload::transform::{Crop, Images, Tokens};
use uringload::{ErrorKind, Loader};

pub fn config(seed: u64, collate: Collate) -> Config {
    Config { batch_size: 8, shuffle: Shuffle::Full, seed, collate, index: true, ..Config::default() }
}

pub fn on_gpu(dataset: &Arc<dyn Dataset>, config: &Config) -> DeviceLoader {
    let builder = Loader::builder(Arc::clone(dataset)).config(config.clone());
    builder.device(Device::cuda(0)).build().expect("a loader")
}

/// Samples of two fields in two archives, of which the first ends in the middle of a block of reads.
pub fn archive(root: &Path) -> Arc<dyn Dataset> {
    for shard in 0..2 {
        let mut archive = Archive::new();
        for number in 0..30_usize {
            let name = format!("{shard}{number:03}");
            let pixels = content(key_of(name.as_bytes()), 0, number * 1234 + shard);
            archive = archive.file(&format!("{name}.bin"), &pixels).file(&format!("{name}.cls"), name.as_bytes());
        }
        archive.0.resize(archive.0.len() + 1024, 0);
        std::fs::write(root.join(format!("{shard}.tar")), archive.0).expect("an archive");
    }
    let options = Options::new().format("tar").sidecars(false);
    dataset::open(&[root], &options).expect("archives")
}

/// Reads everything with both; returns how many batches there were.
fn compare(dataset: &Arc<dyn Dataset>, config: &Config) -> u64 {
    let mut host = Loader::builder(Arc::clone(dataset)).config(config.clone()).build().expect("a loader");
    let mut device = on_gpu(dataset, config);
    assert_eq!(device.remaining(), host.remaining());
    let mut batches = 0;
    for batch in host.by_ref() {
        let got = device.next().expect("as many batches").expect("a batch");
        assert_eq!(got.device(), Some(0));
        same(&batch.expect("a batch"), &got);
        batches += 1;
    }
    assert!(device.next().is_none());
    assert_eq!((host.digest(), host.last_digest()), (device.digest(), device.last_digest()));
    let count = device.stats().snapshot().count;
    assert_eq!(count.batches, batches);
    assert!(count.copies >= batches && count.bytes_copied > 0 && count.kernel_nanos > 0, "{count:?}");
    batches
}

#[test]
fn every_form_of_a_column_is_that_of_the_host() {
    let Some(_) = gpu("every_form_of_a_column_is_that_of_the_host") else { return };
    let seed = seed("every_form_of_a_column_is_that_of_the_host");
    let padded = |max_length, multiple_of| {
        Collate::Padded(Padding::default().value(PadValue::Int(7)).max_length(max_length).multiple_of(multiple_of))
    };
    for dtype in [DType::U8, DType::U16, DType::I32, DType::F64] {
        let roots = [new_folder(), new_folder()];
        let ragged = folder(roots[0].path(), dtype);
        let fixed = records(roots[1].path(), dtype, &[5, 33]);
        for (dataset, collate) in [
            (&ragged, Collate::Ragged),
            (&ragged, Collate::Views),
            (&ragged, padded(None, 1)),
            (&ragged, padded(Some(900), 16)),
            (&fixed, Collate::Dense),
            (&fixed, Collate::Ragged),
            (&fixed, padded(Some(20), 1)),
        ] {
            let config = Config { key: true, ..config(seed, collate) };
            assert!(compare(dataset, &config) >= 6, "{dtype} {collate:?}");
        }
        for method in [PackMethod::FirstFit, PackMethod::BestFit, PackMethod::Concat] {
            let packing = Packing::new(4000).method(method).pad(PadValue::Int(3));
            let batching = Batching::Packed(packing);
            let config = Config { batching, batch_size: 4, ..config(seed, Collate::Ragged) };
            assert!(compare(&ragged, &config) >= 1, "{dtype} {method:?}");
        }
    }
}

/// Batches of many blocks, of less than one, and of samples longer than a block; two epochs; both engines.
#[test]
fn order_digest_and_bytes_are_those_of_the_host() {
    let Some(_) = gpu("order_digest_and_bytes_are_those_of_the_host") else { return };
    let seed = seed("order_digest_and_bytes_are_those_of_the_host");
    let roots = [new_folder(), new_folder(), new_folder(), new_folder()];
    let long = roots[3].path().join("long");
    write_file(&long, 5 * 30_000_000).expect("a file");
    let options = Options::new().format("records").set("record_bytes", 30_000_000);
    let datasets: [(&str, Arc<dyn Dataset>); 4] = [
        ("folder", folder(roots[0].path(), DType::U8)),
        ("records", records(roots[1].path(), DType::U8, &[150_528])),
        ("tar", archive(roots[2].path())),
        ("long records", dataset::open(&[&long], &options).expect("records")),
    ];
    for (name, dataset) in &datasets {
        for engine in [EngineChoice::Auto, EngineChoice::Threads] {
            for batch_size in [1, 3, 64] {
                if *name == "long records" && batch_size > 3 {
                    continue;
                }
                let config = Config { batch_size, engine, epochs: Some(2), ..config(seed, Collate::Auto) };
                let config = Config { collate: Collate::Ragged, drop_last: batch_size == 3, ..config };
                let batches = compare(dataset, &config);
                assert!(batches >= 2, "{name} {engine:?} {batch_size}: {batches} batches");
            }
        }
    }
}

/// The same transform on the GPU and on the host: all columns, to the bit.
fn transformed(dataset: &Arc<dyn Dataset>, config: &Config, transform: &OnDevice) {
    let name = dataset.schema().fields[0].name.clone();
    let loader = |device: Device| {
        let builder = Loader::builder(Arc::clone(dataset)).config(config.clone()).device(device);
        builder.on_device(&name, transform.clone()).build().expect("a loader")
    };
    let (host, mut gpu) = (loader(Device::host()), loader(Device::cuda(0)));
    for batch in host {
        let (batch, got) = (batch.expect("a batch"), gpu.next().expect("as many batches").expect("a batch"));
        assert_eq!((&batch.host.ids, batch.host.digest), (&got.host.ids, got.host.digest));
        assert_eq!(batch.columns.len(), got.columns.len());
        for (expected, column) in batch.columns.iter().zip(&got.columns) {
            assert_eq!((&expected.name, expected.dtype), (&column.name, column.dtype));
            assert_eq!(expected.shape(), column.shape());
            let is_same = expected.memory.to_host().expect("bytes") == column.memory.to_host().expect("bytes");
            assert!(is_same, "column {} of {:?} by {transform:?}", column.name, batch.host.cursor);
        }
    }
    assert!(gpu.next().is_none());
}

#[test]
fn transforms_make_what_they_make_on_the_host() {
    let Some(_) = gpu("transforms_make_what_they_make_on_the_host") else { return };
    let seed = seed("transforms_make_what_they_make_on_the_host");
    let root = new_folder();
    let photos = records(root.path(), DType::U8, &[37, 51, 3]);
    let resized = Crop::RandomResized { scale: (0.08, 1.0), ratio: (0.75, 1.34) };
    for dtype in [DType::U8, DType::F32, DType::F16, DType::BF16] {
        for crop in [Crop::None, Crop::Center, Crop::Random, resized] {
            for channels_last in [false, true] {
                let (mean, std) = match dtype {
                    DType::U8 => (vec![], vec![]),
                    _ => (vec![0.485, 0.456, 0.406], vec![0.229, 0.224, 0.225]),
                };
                let size = Some((24, 32));
                let images = Images::default()
                    .size(size)
                    .crop(crop)
                    .flip(0.5)
                    .mean(mean)
                    .std(std)
                    .dtype(dtype)
                    .channels_last(channels_last);
                transformed(&photos, &config(seed, Collate::Auto), &images.into());
            }
        }
    }
    for dtype in [DType::U16, DType::U32] {
        let roots = [new_folder(), new_folder()];
        let texts = [folder(roots[0].path(), dtype), records(roots[1].path(), dtype, &[129])];
        for dataset in &texts {
            for (seq_len, labels) in [(None, true), (Some(128), true), (Some(3000), true), (Some(100), false)] {
                let tokens = Tokens::default().labels(labels).pad_id(-7).seq_len(seq_len);
                transformed(dataset, &config(seed, Collate::Auto), &tokens.into());
            }
        }
    }
}

#[test]
fn two_loaders_run_at_once() {
    let Some(_) = gpu("two_loaders_run_at_once") else { return };
    let seed = seed("two_loaders_run_at_once");
    let roots = [new_folder(), new_folder()];
    let datasets = [folder(roots[0].path(), DType::U8), records(roots[1].path(), DType::U8, &[150_528])];
    std::thread::scope(|scope| {
        for dataset in &datasets {
            scope.spawn(|| {
                let config = Config { epochs: Some(8), ..config(seed, Collate::Ragged) };
                assert!(compare(dataset, &config) > 40);
            });
        }
    });
}

#[test]
fn what_cannot_be_had_is_an_error() {
    let Some(context) = gpu("what_cannot_be_had_is_an_error") else { return };
    let root = new_folder();
    let dataset = records(root.path(), DType::U8, &[150_528]);
    let kind = |device: Device| {
        let built = Loader::builder(Arc::clone(&dataset)).device(device).build();
        built.map(|_| ()).expect_err("it is not available").kind()
    };
    assert_eq!(kind(Device::cuda(context.driver().devices())), ErrorKind::Unavailable);
    assert_eq!(kind(Device::cuda(0).memory_limit(1 << 20)), ErrorKind::MemoryLimit);
}

/// The bytes of the first column.
pub fn first(batch: &DeviceBatch) -> Vec<u8> {
    batch.columns[0].memory.to_host().expect("bytes").to_vec()
}

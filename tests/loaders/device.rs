//! Batches for a device, on a machine that has none: the same loader, the same values, columns on the host. What a
//! driver does is tested with a mock of it, in `tests/mocks`.

use crate::common::content::{content, key_of, write_file};
use crate::common::device::{folder, records, same};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::DeviceLoader;
use uringload::config::Config;
use uringload::config::{Cache, Cause, Collate, Device, PadValue, Padding, Shuffle};
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::transform::OnDevice;
use uringload::transform::{Crop, Images, Tokens};
use uringload::{Error, ErrorKind, Loader};

const SEED: u64 = 5;

fn root() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn config(collate: Collate) -> Config {
    Config { batch_size: 8, shuffle: Shuffle::Full, seed: SEED, collate, index: true, ..Config::default() }
}

fn on_host(dataset: &Arc<dyn Dataset>, config: &Config) -> DeviceLoader {
    Loader::builder(Arc::clone(dataset)).config(config.clone()).device(Device::host()).build().expect("a loader")
}

#[test]
fn the_host_gives_the_batches_of_an_ordinary_loader() {
    let padding = Padding::default().value(PadValue::Int(7)).max_length(900).multiple_of(16);
    let roots = [root(), root()];
    let (ragged, fixed) = (folder(roots[0].path(), DType::U16), records(roots[1].path(), DType::F32, &[5, 33]));
    for (dataset, collate) in [
        (&ragged, Collate::Ragged),
        (&ragged, Collate::Padded(padding)),
        (&fixed, Collate::Dense),
        (&fixed, Collate::Ragged),
    ] {
        let config = config(collate);
        let host = Loader::builder(Arc::clone(dataset)).config(config.clone()).build().expect("a loader");
        let mut device = on_host(dataset, &config);
        assert_eq!(device.remaining(), host.remaining());
        let mut batches = 0;
        for batch in host {
            same(&batch.expect("a batch"), &device.next().expect("as many").expect("a batch"));
            batches += 1;
        }
        assert!(device.next().is_none() && batches > 4);
        assert_eq!(device.stats().snapshot().count.batches, batches);
        assert!(device.route().devices.is_empty() && device.route().fallbacks.iter().all(|step| !step.is_degraded()));
    }
}

/// What is kept, of windows that are read whole and of all files, is the same batches in a fraction of the reads.
#[test]
fn what_is_kept_goes_to_devices_too() {
    let root = root();
    for shard in 0..2 {
        write_file(&root.path().join(format!("{shard}.bin")), 300 * 21_200).expect("a file");
    }
    let options = Options::new().format("records").set("record_bytes", 21_200);
    let dataset = dataset::open(&[root.path()], &options).expect("records");
    let windows = Config { shuffle: Shuffle::Window(200), operation_bytes: Some(800_000), ..config(Collate::Dense) };
    let cache = Config { cache: Cache::Memory, ..config(Collate::Dense) };
    for kept in [windows, cache] {
        let kept = Config { epochs: Some(2), key: true, ..kept };
        let plain = Config { cache: Cache::Off, operation_bytes: Some(0), ..kept.clone() };
        let host = Loader::builder(Arc::clone(&dataset)).config(plain).build().expect("a loader");
        let (mut device, stats) = (on_host(&dataset, &kept), host.stats());
        assert!(device.route().fallbacks.iter().all(|step| step.cause != Cause::Cache), "{:?}", device.route());
        for batch in host {
            same(&batch.expect("a batch"), &device.next().expect("as many").expect("a batch"));
        }
        assert!(device.next().is_none());
        let (plain, count) = (stats.snapshot().count, device.stats().snapshot().count);
        assert!(count.reads * 8 < plain.reads, "{} of {} reads", count.reads, plain.reads);
        assert!(count.reads_saved > 1000, "{count:?}");
    }
}

#[test]
fn a_state_goes_on_from_a_batch_of_either_kind() {
    let root = root();
    let dataset = records(root.path(), DType::U8, &[100]);
    let config = config(Collate::Dense);
    let mut device = on_host(&dataset, &config);
    let first: Vec<_> = device.by_ref().take(2).map(|batch| batch.expect("a batch").host.ids).collect();
    let state = device.state();
    assert_eq!(first.len(), 2);
    let resumed = Loader::builder(dataset).config(config).resume(&state).build().expect("a loader");
    let rest: Vec<_> = resumed.map(|batch| batch.expect("a batch").ids).collect();
    let left: Vec<_> = device.map(|batch| batch.expect("a batch").host.ids).collect();
    assert_eq!((rest.len(), &rest), (4, &left));
}

#[test]
fn transforms_run_without_a_gpu() {
    let root = root();
    let dataset = records(root.path(), DType::U8, &[12, 10, 3]);
    let name = dataset.schema().fields[0].name.clone();
    let images = Images::default()
        .size((8, 6))
        .crop(Crop::Random)
        .flip(0.5)
        .mean(vec![0.5])
        .std(vec![0.25])
        .dtype(DType::F32)
        .channels_last(false);
    let loader = Loader::builder(Arc::clone(&dataset)).config(config(Collate::Auto)).device(Device::host());
    let mut flipped = 0;
    for batch in loader.on_device(&name, images.clone()).build().expect("a loader") {
        let batch = batch.expect("a batch");
        let column = batch.column(&name).expect("a column");
        assert_eq!((column.shape(), column.dtype), (vec![batch.len() as u64, 3, 8, 6], DType::F32));
        let bytes = column.memory.to_host().expect("bytes");
        let made: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        for (index, &id) in batch.host.ids.iter().enumerate() {
            let params = images.params(SEED, batch.host.cursor.epoch, id, 12, 10);
            let pixels = content(key_of(b"records"), id.0 * 360, 360);
            for (at, &value) in made[index * 144..][..144].iter().enumerate() {
                let (channel, row, column) = (at / 48, at / 6 % 8, at % 6);
                let column = if params.flip { 5 - column } else { column };
                let pixel = pixels[((row + params.y as usize) * 10 + column + params.x as usize) * 3 + channel];
                let expected = (f32::from(pixel) / 255.0 - 0.5) / 0.25;
                assert!((value - expected).abs() < 1e-5, "{value} for {expected}");
            }
            flipped += u32::from(params.flip);
        }
    }
    assert!(flipped > 5 && flipped < 36, "{flipped} of 41");
}

#[test]
fn tokens_become_ids_and_labels() {
    let root = root();
    let dataset = folder(root.path(), DType::U16);
    let name = dataset.schema().fields[0].name.clone();
    let tokens = Tokens::default().seq_len(100);
    let loader = Loader::builder(dataset).config(config(Collate::Auto)).device(Device::host());
    for batch in loader.on_device(&name, tokens).build().expect("a loader") {
        let batch = batch.expect("a batch");
        let of = |name: &str| {
            let column = batch.column(name).expect("a column");
            assert_eq!((column.shape(), column.dtype), (vec![batch.len() as u64, 100], DType::I64));
            let bytes = column.memory.to_host().expect("bytes");
            bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect::<Vec<_>>()
        };
        let (ids, labels) = (of(&name), of("labels"));
        for (ids, labels) in ids.chunks(100).zip(labels.chunks(100)) {
            assert!(ids[1..].iter().zip(labels).all(|(id, label)| id == label || (*id == 0 && *label == -100)));
        }
    }
}

fn refused(asked: impl FnOnce() -> Result<DeviceLoader, Error>, kind: ErrorKind, words: &str) {
    let error = asked().expect_err("it is not available");
    assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
}

#[test]
fn what_cannot_be_had_is_an_error_or_said() {
    let root = root();
    let dataset = records(root.path(), DType::U8, &[12, 10, 3]);
    let name = dataset.schema().fields[0].name.clone();
    let builder = || Loader::builder(Arc::clone(&dataset)).batch_size(4);
    let absent = Path::new("/nonexistent/libcuda.so.1");
    let unavailable = || builder().device(Device::cuda(0).library(absent)).build();
    refused(unavailable, ErrorKind::Unavailable, "cuda:0 is not available");
    let auto = builder().device(Device::auto().library(absent)).build().expect("a loader");
    let route = auto.route();
    let step = route.fallbacks.iter().find(|step| step.cause == Cause::Device).expect("a fallback");
    assert!(step.to_string().contains("nonexistent") && step.remedy.contains("driver"), "{step}");
    assert_eq!(auto.count(), 11);
    refused(|| builder().devices([]).build(), ErrorKind::InvalidArgument, "no device");
    let mixed = || builder().devices([Device::host(), Device::cuda(0)]).build();
    refused(mixed, ErrorKind::InvalidArgument, "both GPUs and the host");
    let transform = |name: &str, transform: OnDevice| {
        let builder = builder().device(Device::host()).on_device(name, transform);
        move || builder.build()
    };
    refused(transform("absent", Images::default().into()), ErrorKind::InvalidArgument, &name);
    refused(transform(&name, Tokens::default().into()), ErrorKind::InvalidArgument, "no tokens");
    let twice = || {
        let builder = builder().device(Device::host());
        builder.on_device(&name, Images::default()).on_device(&name, Images::default()).build()
    };
    refused(twice, ErrorKind::InvalidArgument, "two transforms");
    let formed = || {
        let builder = builder().collate_column(&name, Collate::Dense).device(Device::host());
        builder.on_device(&name, Images::default()).build()
    };
    refused(formed, ErrorKind::InvalidArgument, "its own form");
}

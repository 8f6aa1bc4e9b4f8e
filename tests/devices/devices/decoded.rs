//! Columns that the loader's threads make go to the device: the same tensors as on the host; of the bytes that were
//! read, only the other columns go there.

use crate::common::{Mock, Random, within};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::{Batch, Data};
use uringload::config::{Device, Gds, OnError};
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::device::{DeviceBatch, DeviceForm};
use uringload::transform::{Crop, Images, Mask, Mix};
use uringload::{Builder, ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(100);
const CLASSES: u64 = 3;
const BATCH: u64 = 6;
const CHAIN: &str = "random_resized_crop(48), hflip, normalize(imagenet)";
const PHOTOS: [&[u8]; 3] = [
    include_bytes!("../../../images/tests/data/420.jpg"),
    include_bytes!("../../../images/tests/data/coffee.png"),
    include_bytes!("../../../images/tests/data/rgb.bmp"),
];
/// A picture that is a mask as well.
const GRAY: &[u8] = include_bytes!("../../../images/tests/data/gray.png");

/// Images in folders of classes; those in `broken` are none.
fn photos(count: usize, broken: &[usize]) -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for number in 0..count {
        let file = if broken.contains(&number) { &b"no image"[..] } else { PHOTOS[number % PHOTOS.len()] };
        let path = root.path().join(format!("class{}/{number:03}.jpg", number as u64 % CLASSES));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, file).expect("a file");
    }
    let dataset = open(root.path());
    (root, dataset)
}

fn open(path: &Path) -> Arc<dyn Dataset> {
    dataset::open(&[path], &Options::new()).expect("a dataset")
}

fn builder(dataset: &Arc<dyn Dataset>, chain: &str) -> Builder {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(BATCH).shuffle(true).seed(5).epochs(2);
    builder.num_threads(2).transform("data", chain.parse().expect("a chain"))
}

/// A column: name, type, shape of a value or none, and bytes.
type Seen = (String, DType, Option<Vec<u64>>, Vec<u8>);

fn on_host(batch: &Batch) -> Vec<Seen> {
    let one = |column: &uringload::batch::Column| {
        let (shape, bytes) = match &column.data {
            Data::I64(values) => (Some(vec![]), values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Data::Dense { shape, bytes } => (Some(shape.clone()), bytes.to_vec()),
            Data::Ragged { values, .. } => (None, values.to_vec()),
            other => panic!("{other:?}"),
        };
        (column.name.clone(), column.dtype, shape, bytes)
    };
    batch.columns.iter().map(one).collect()
}

fn on_device(batch: &DeviceBatch) -> Vec<Seen> {
    let one = |column: &uringload::device::DeviceColumn| {
        let shape = match &column.form {
            DeviceForm::Dense { shape } => Some(shape.clone()),
            _ => None,
        };
        (column.name.clone(), column.dtype, shape, column.memory.to_host().expect("bytes").to_vec())
    };
    batch.columns.iter().map(one).collect()
}

/// Holds each batch of a loader to the mock's device against the host's. Returns how many samples came.
fn same(mock: &Mock, builder: &Builder) -> usize {
    let mut host = builder.clone().build().expect("a loader to the host");
    let mut loader = builder.clone().device(Device::cuda(0).library(mock.path())).build().expect("a loader");
    let mut samples = 0;
    for wanted in host.by_ref() {
        let (wanted, batch) = (wanted.expect("a batch"), loader.next().expect("as many").expect("a batch"));
        assert_eq!(batch.device(), Some(0));
        assert_eq!((&batch.host.ids, batch.host.failed.len()), (&wanted.ids, wanted.failed.len()));
        assert!(on_device(&batch) == on_host(&wanted), "batch of {:?}", wanted.ids);
        samples += wanted.ids.len();
    }
    assert!(loader.next().is_none(), "it goes on after its end");
    samples
}

#[test]
fn decoded_images_are_those_on_the_host() {
    within(BOUND, || {
        let (_root, dataset) = photos(40, &[]);
        for settings in ["", "copy_us=300,jitter_us=500,seed=2", "pinnable=0"] {
            let mock = Mock::new(settings);
            for builder in [builder(&dataset, CHAIN), builder(&dataset, CHAIN).num_threads(0).drop_last(true)] {
                assert!(same(&mock, &builder) >= 72);
            }
            mock.assert_clean();
        }
    });
}

/// Pixels go there, and a kernel makes the elements that the host would make, whatever the numbers; but for erasing,
/// mixing, a form that is asked for and numbers that it does not divide by exactly.
#[test]
fn elements_are_made_there() {
    within(BOUND, || {
        let (_root, dataset) = photos(12, &[]);
        let mut random = Random::new(11);
        let mut number = |least: f32, most: f32| least + (most - least) * random.below(1 << 24) as f32 / 16_777_216.0;
        let mut kinds = Vec::new();
        for (index, dtype) in ["f32", "f16", "bf16", "f32, hwc", "bf16, hwc", "u8"].iter().cycle().take(30).enumerate()
        {
            let count = if index % 4 == 0 { 1 } else { 3 };
            let mut numbers = |least, most| {
                let numbers: Vec<_> = (0..count).map(|_| number(least, most).to_string()).collect();
                numbers.join(":")
            };
            let normal = match *dtype {
                "u8" => String::new(),
                _ => format!("normalize(mean={}, std={}), ", numbers(-3.0, 3.0), numbers(0.001, 4.0)),
            };
            kinds.push((format!("random_resized_crop(48), hflip, {normal}to_tensor({dtype})"), true));
        }
        kinds.push(("resize(48x48), random_erasing".into(), false));
        kinds.push(("resize(48x48), normalize(mean=0.5, std=1e-9)".into(), false));
        kinds.push(("resize(48x48), normalize(mean=2e9, std=1)".into(), false));
        kinds.push(("resize(48x48), to_tensor(u8, hwc)".into(), false));
        for (chain, is_made) in kinds {
            let mock = Mock::new("");
            let builder = builder(&dataset, &chain).epochs(1);
            assert_eq!(same(&mock, &builder), 12, "{chain}");
            assert_eq!(mock.count("kernels") > 0, is_made, "{chain}");
            let mut loader = builder.device(Device::cuda(0).library(mock.path())).build().expect("a loader");
            let (batches, pixels) = (loader.by_ref().inspect(|batch| assert!(batch.is_ok())).count(), 12 * 48 * 48 * 3);
            let copied = loader.stats().snapshot().count.bytes_copied;
            let is_less = (pixels..pixels + 4096 * batches as u64).contains(&copied);
            assert!(is_less || !is_made, "{chain}: {copied} bytes for {pixels}");
            drop(loader);
            mock.assert_clean();
        }
        let mock = Mock::new("");
        let mix = Mix::new("data", "label", CLASSES).mixup(0.4);
        assert_eq!(same(&mock, &builder(&dataset, CHAIN).mix(mix)), 24);
        assert_eq!(mock.count("kernels"), 0, "tensors that are mixed are made on the host");
        mock.assert_clean();
    });
}

/// Of volumes only the rows that their crops need are read, on their way to a device too.
#[test]
fn crops_of_volumes_go_there() {
    within(BOUND, || {
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let volumes: Vec<u8> = (0..13 * 32 * 64 * 64_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(root.path().join("volumes.bin"), volumes).expect("a file");
        let options = Options::new().format("records").set("record_bytes", 32 * 64 * 64 * 4_u64);
        let options = options.set("dtype", DType::I32).set("shape", vec![32_u64, 64, 64]);
        let dataset = dataset::open(&[root.path()], &options).expect("a dataset");
        for (steps, percent) in [("array(random_crop(8x64x64), cast(f32))", 25), ("array(random_crop(32x64x64))", 100)]
        {
            let mock = Mock::new("copy_us=100,jitter_us=200,seed=3");
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(4).shuffle(true).seed(5).epochs(2);
            let builder = builder.transform_by("data", steps).expect("steps");
            assert_eq!(same(&mock, &builder), 26);
            let mut loader = builder.device(Device::cuda(0).library(mock.path())).build().expect("a loader");
            let told = loader.route().locality.iter().any(|told| told.contains("only the rows"));
            assert_eq!(told, percent < 100);
            assert_eq!(loader.by_ref().map(|batch| batch.expect("a batch").host.ids.len()).sum::<usize>(), 26);
            let (read, all) = (loader.stats().snapshot().count.bytes_read, 2 * dataset.bytes());
            drop(loader);
            assert!((all * percent / 100..=all * (percent + 5) / 100).contains(&read), "{read} of {all}");
            mock.assert_clean();
        }
    });
}

#[test]
fn masks_and_mixed_labels_go_there_too() {
    within(BOUND, || {
        let (_root, dataset) = photos(40, &[]);
        let mock = Mock::new("copy_us=100,jitter_us=200,seed=3");
        let mix = Mix::new("data", "label", CLASSES).mixup(0.4).cutmix(1.0);
        assert_eq!(same(&mock, &builder(&dataset, CHAIN).mix(mix)), 80);
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let mut shard = Vec::new();
        for number in 0..12 {
            // Other bytes of each sample go to the device as they were read.
            for (name, bytes) in [("jpg", GRAY), ("png", GRAY), ("txt", &b"a caption"[..number % 9])] {
                put_member(&mut shard, &format!("{number:03}.{name}"), bytes);
            }
        }
        shard.resize(shard.len() + 1024, 0);
        fs::write(root.path().join("scenes.tar"), shard).expect("a shard");
        let scenes =
            dataset::open(&[root.path()], &Options::new().set("fields", ["jpg", "png", "txt"])).expect("scenes");
        let chain = "resize(60), random_crop(48), hflip, normalize(half)".parse().expect("a chain");
        let builder =
            Loader::builder(scenes).batch_size(5).seed(1).epochs(1).collate(uringload::config::Collate::Ragged);
        let builder = builder.transform("jpg", chain).follow("png", Mask::of("jpg").dtype(DType::I64));
        assert_eq!(same(&mock, &builder), 12);
        mock.assert_clean();
    });
}

/// A member of a tar.
pub fn put_member(shard: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    shard.extend_from_slice(&header);
    shard.extend_from_slice(bytes);
    shard.resize(shard.len().next_multiple_of(512), 0);
}

#[test]
fn the_host_decodes_and_the_device_crops_and_scales() {
    within(BOUND, || {
        let (_root, dataset) = photos(40, &[7]);
        let builder = builder(&dataset, "resize(64x56), to_tensor(u8, hwc)").on_error(OnError::Skip);
        let images = || {
            Images::default()
                .size((40, 32))
                .crop(Crop::RandomResized { scale: (0.2, 1.0), ratio: (0.75, 1.333) })
                .flip(0.5)
                .mean([0.485, 0.456, 0.406])
                .std([0.229, 0.224, 0.225])
                .dtype(DType::BF16)
        };
        let mock = Mock::new("copy_us=200,jitter_us=300,seed=4");
        let to = |device: Device| builder.clone().device(device).on_device("data", images()).build().expect("a loader");
        let (mut there, mut here) = (to(Device::cuda(0).library(mock.path())), to(Device::host()));
        let mut samples = 0;
        for wanted in here.by_ref() {
            let (wanted, batch) = (wanted.expect("a batch"), there.next().expect("as many").expect("a batch"));
            assert_eq!(batch.host.ids, wanted.host.ids);
            let seen = on_device(&batch);
            assert!(seen == on_device(&wanted), "batch of {:?}", batch.host.ids);
            assert_eq!((seen[0].1, seen[0].2.as_deref()), (DType::BF16, Some(&[3, 40, 32][..])));
            samples += batch.host.ids.len();
        }
        assert_eq!(samples, 78, "one is no image");
        assert!(there.next().is_none() && mock.count("kernels") > 0);
        drop(there);
        mock.assert_clean();
        // Of floats nothing is cropped, and the reason names the column.
        let floats = Loader::builder(Arc::clone(&dataset)).transform("data", CHAIN.parse().expect("a chain"));
        let error = floats.device(Device::host()).on_device("data", images()).build().expect_err("an error");
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("\"data\""), "{error}");
    });
}

#[test]
fn samples_that_do_not_decode_follow_on_error() {
    within(BOUND, || {
        let (_root, dataset) = photos(40, &[4, 11, 29]);
        let mock = Mock::new("copy_us=100,jitter_us=200,seed=5");
        for (on_error, samples) in [(OnError::Skip, 74), (OnError::Replace, 80)] {
            assert_eq!(same(&mock, &builder(&dataset, CHAIN).on_error(on_error)), samples);
        }
        mock.assert_clean();
    });
}

#[test]
fn the_device_has_room_for_tensors_and_not_for_what_was_read() {
    within(BOUND, || {
        let mock = Mock::new("");
        let (_root, dataset) = photos(24, &[]);
        let bytes = |builder: Builder, images: Option<Images>| {
            let builder = builder.device(Device::cuda(0).library(mock.path()));
            let builder = images.into_iter().fold(builder, |builder, images| builder.on_device("data", images));
            builder.build().expect("a loader").route().devices[0].memory_bytes
        };
        // Pixels beside the tensors that a kernel makes of them.
        let tensors = 3 * BATCH * 3 * 48 * 48 * 5;
        let plain = bytes(builder(&dataset, CHAIN), None);
        assert!((tensors..tensors + (1 << 16)).contains(&plain), "{plain} for {tensors}");
        let mut three =
            builder(&dataset, CHAIN).device(Device::cuda(0).library(mock.path())).build().expect("a loader");
        let held: Vec<_> = three.by_ref().take(3).collect();
        assert!(held.len() == 3 && held.iter().all(Result::is_ok), "there is room for three of them");
        let pixels = 3 * BATCH * 64 * 56 * 3;
        let small = Images::default().size((8, 8)).dtype(DType::U8);
        let kernel = bytes(builder(&dataset, "resize(64x56), to_tensor(u8, hwc)"), Some(small));
        assert!((pixels..pixels + (1 << 17)).contains(&kernel), "{kernel} for {pixels}");
        let device = Device::cuda(0).library(mock.path()).gds(Gds::On);
        let error = builder(&dataset, CHAIN).device(device).build().expect_err("an error");
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("on the host"), "{error}");
    });
}

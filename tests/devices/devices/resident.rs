//! Pixels that stay on the GPU which decoded them: the same batches as on the host, with any columns between them.

use super::decoded::put_member;
use super::nvjpeg::{BOUND, CHAIN, CHAINS, PHOTOS, PIXELS, builder_of, device, photograph, photos, photos_of, steps};
use crate::common::nvjpeg::Nvjpeg;
use crate::common::{Mock, Random, within};
use mock_nvjpeg::Knob;
use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::config::{Collate, Device, OnError};
use uringload::dataset::{self, DType, Options};
use uringload::device::DeviceBatch;
use uringload::transform::{Images, Mask};
use uringload::{Builder, DeviceBuilder, DeviceLoader, Loader};

/// Holds batches whose column a kernel makes of pixels against those of the host. Returns the number of samples, and
/// the bytes that were looked at.
fn same_pixels(builder: &Builder, device: Device, look: impl FnMut(&mut DeviceLoader)) -> (usize, usize) {
    let images = Images::default().size((40, 32)).flip(0.5).mean([0.4, 0.5, 0.6]).dtype(DType::BF16);
    same(|device| builder.clone().device(device).on_device("data", images.clone()), device, look)
}

fn same(
    to: impl Fn(Device) -> DeviceBuilder,
    device: Device,
    mut look: impl FnMut(&mut DeviceLoader),
) -> (usize, usize) {
    let to = |device| to(device).build().expect("a loader");
    let (mut there, mut samples, mut bytes) = (to(device), 0, 0);
    for wanted in to(Device::host()) {
        let (wanted, batch) = (wanted.expect("a batch"), there.next().expect("as many").expect("a batch"));
        assert_eq!(batch.host.ids, wanted.host.ids);
        let seen = batch.columns[0].memory.to_host().expect("bytes");
        assert!(seen == wanted.columns[0].memory.to_host().expect("bytes"), "batch of {:?}", batch.host.ids);
        (samples, bytes) = (samples + batch.host.ids.len(), bytes + seen.len());
    }
    assert!(there.next().is_none(), "it goes on after its end");
    look(&mut there);
    (samples, bytes)
}

/// Not one byte of pixels crosses the bus, but for what the processor decodes.
#[test]
fn pixels_stay_on_the_gpu_that_decoded_them() {
    within(BOUND, || {
        let (_root, dataset) = photos_of(&["420.jpg", "444.jpg"], 96, &[]);
        for (share, threads, delay, is_usual) in
            [(1.0, 0, 0, false), (0.5, 2, 300, false), (0.25, 1, 0, true), (1.0, 0, 0, true), (0.5, 2, 300, true)]
        {
            let mock = Mock::new("copy_us=20,kernel_us=30,jitter_us=50,seed=6");
            let nvjpeg = Nvjpeg::new(&mock);
            nvjpeg.set(Knob::Hardware, 1);
            nvjpeg.set(Knob::DelayMicros, delay);
            let mut copied = 0;
            let look = |loader: &mut DeviceLoader| {
                assert_eq!(steps(loader), [""; 0]);
                let count = loader.stats().snapshot().count;
                assert_eq!((count.samples_decoded, count.bytes_decoded), (192, 192 * 48 * 48 * 3));
                copied = count.bytes_copied - (count.samples_decoded - count.samples_decoded_on_device) * 48 * 48 * 3;
            };
            // Of pixels, and of the usual chain, whose last step is the device's.
            let device = device(&mock, &nvjpeg, share);
            let (samples, looked_at) = if is_usual {
                let builder = builder_of(&dataset, CHAIN).num_threads(threads);
                same(|device| builder.clone().device(device), device, look)
            } else {
                same_pixels(&builder_of(&dataset, PIXELS).num_threads(threads), device, look)
            };
            assert_eq!(
                (samples, mock.count("read_bytes")),
                (192, looked_at as u64),
                "{share}, {is_usual}: pixels came back"
            );
            // What goes there beside them are tables.
            assert!(copied < 192 * 100, "{share}: {copied} bytes of pixels that were there went there");
            nvjpeg.assert_clean();
            mock.assert_clean();
        }
    });
}

/// A place is taken again only when its pixels were copied from there, which is slow here, and a batch waits for that.
#[test]
fn places_are_free_when_their_batch_is_made() {
    within(BOUND, || {
        let (_root, dataset) = photos_of(&["444.jpg"], 96, &[]);
        let mock = Mock::new("copy_us=4000");
        let nvjpeg = Nvjpeg::new(&mock);
        nvjpeg.set(Knob::Hardware, 1);
        let builder = builder_of(&dataset, PIXELS).batch_size(8).epochs(6).num_threads(0);
        let (samples, looked_at) = same_pixels(&builder, device(&mock, &nvjpeg, 1.0), |_| {});
        assert_eq!((samples, mock.count("read_bytes")), (576, looked_at as u64));
        nvjpeg.assert_clean();
        mock.assert_clean();
    });
}

/// Images that the GPU does not decode, or does not make, between such that stay there; samples that are left out or
/// replaced; a GPU that fails, and one that has no memory for them.
#[test]
fn pixels_that_stay_and_others_are_one_batch() {
    within(BOUND, || {
        let (_root, dataset) = photos(96, &[4, 8, 17, 40]);
        let chains = [PIXELS, "random_crop(60, 80), resize(48x48), to_tensor(u8, hwc)"];
        for (chain, on_error, samples) in [(0, OnError::Skip, 184), (0, OnError::Replace, 192), (1, OnError::Skip, 184)]
        {
            for (lost_from, threads) in [(0, 2), (20, 0), (0, 0)] {
                let mock = Mock::new("copy_us=200,jitter_us=300,seed=7");
                let nvjpeg = Nvjpeg::new(&mock);
                nvjpeg.set(Knob::LostFrom, lost_from);
                nvjpeg.set(Knob::FailEvery, 9);
                nvjpeg.set(Knob::FailCode, 3);
                let builder = builder_of(&dataset, chains[chain]).num_threads(threads).on_error(on_error);
                let (seen, _) = same_pixels(&builder, device(&mock, &nvjpeg, 0.75), |_| {});
                assert_eq!(seen, samples, "{} {on_error:?}", chains[chain]);
                nvjpeg.assert_clean();
                mock.assert_clean();
            }
        }
    });
}

/// Random photographs, chains, settings and faults: what the GPU decodes, keeps or gives back makes the batches of the
/// host, whatever the timing. `URINGLOAD_SEED` and `URINGLOAD_SEEDS` as in `anything`.
#[test]
fn any_images_decoded_by_the_gpu_are_those_of_the_host() {
    const SEEDS: u64 = 40;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = number("URINGLOAD_SEED").map(|seed| seed..seed + 1);
    let (mut samples, mut on_gpu) = (0, 0);
    for seed in seeds.unwrap_or(0..number("URINGLOAD_SEEDS").unwrap_or(SEEDS)) {
        let ran = std::panic::catch_unwind(|| within(BOUND, move || run_any(seed)));
        let (seen, decoded) = ran.unwrap_or_else(|panic| {
            eprintln!("URINGLOAD_SEED={seed}");
            std::panic::resume_unwind(panic)
        });
        (samples, on_gpu) = (samples + seen, on_gpu + decoded);
    }
    assert!(samples > 0 && on_gpu > 0, "{samples} samples, {on_gpu} of them by the GPU");
}

/// One case. Returns the number of samples that were compared, and that of images decoded by the GPU.
fn run_any(seed: u64) -> (usize, i64) {
    let random = &mut Random::new(seed);
    let of = |random: &mut Random, numbers: &[usize]| numbers[random.below(numbers.len())];
    let count = 1 + random.below(50);
    let names: Vec<&str> = (0..1 + random.below(5)).map(|_| PHOTOS[random.below(PHOTOS.len())]).collect();
    let broken: Vec<usize> = (0..random.below(4)).map(|_| random.below(count)).collect();
    let (_root, dataset) = photos_of(&names, count, &broken);
    let chains = [PIXELS, PIXELS, CHAINS[1].0, "rotate(10), resize(48x48), to_tensor(u8, hwc)", CHAIN];
    let chain = chains[random.below(chains.len())];
    let builder = builder_of(&dataset, chain)
        .batch_size(1 + random.below(20) as u64)
        .epochs(1 + random.below(10) as u64)
        .num_threads(random.below(3))
        .seed(random.next())
        .memory_limit(of(random, &[4 << 20, 16 << 20, 256 << 20]) as u64)
        .on_error([OnError::Skip, OnError::Replace, OnError::Raise][random.below(3)]);
    let (copy, kernel, jitter) =
        (of(random, &[0, 20, 300, 3000]), of(random, &[0, 30, 400]), of(random, &[0, 50, 700]));
    let mock = Mock::new(&format!("copy_us={copy},kernel_us={kernel},jitter_us={jitter},seed={seed}"));
    let nvjpeg = Nvjpeg::new(&mock);
    nvjpeg.set(Knob::Hardware, random.below(2) as i64);
    nvjpeg.set(Knob::DelayMicros, of(random, &[0, 100, 2000]) as i64);
    nvjpeg.set(Knob::FailEvery, of(random, &[0, 0, 7]) as i64);
    nvjpeg.set(Knob::FailCode, 3);
    nvjpeg.set(Knob::HardwareFailEvery, of(random, &[0, 0, 5]) as i64);
    nvjpeg.set(Knob::LostFrom, of(random, &[0, 0, 0, 15]) as i64);
    let to = |device: Device| {
        let builder = builder.clone().device(device);
        let images = Images::default().size((40, 32)).flip(0.5).mean([0.4, 0.5, 0.6]).dtype(DType::BF16);
        let builder = if chain.ends_with("hwc)") { builder.on_device("data", images) } else { builder };
        builder.build().expect("a loader")
    };
    let share = [0.25, 0.5, 0.9, 1.0][random.below(4)];
    let (mut there, mut here) = (to(device(&mock, &nvjpeg, share)), to(Device::host()));
    // The consumer may stop early, and hold batches meanwhile.
    let (most, held) = (if random.chance(4) { random.below(8) } else { usize::MAX }, random.below(3));
    let (mut samples, mut batches) = (0, VecDeque::new());
    for wanted in here.by_ref().take(most) {
        let batch = there.next().expect("as many");
        let (wanted, batch) = match (wanted, batch) {
            (Ok(wanted), Ok(batch)) => (wanted, batch),
            (Err(wanted), Err(error)) => {
                assert_eq!(error.to_string(), wanted.to_string());
                continue;
            }
            (wanted, batch) => panic!("{:?} on the host, {:?} on the GPU", wanted.err(), batch.err()),
        };
        assert_eq!(batch.host.ids, wanted.host.ids);
        let bytes = |batch: &DeviceBatch| batch.columns[0].memory.to_host().expect("bytes");
        assert!(bytes(&batch) == bytes(&wanted), "batch of {:?}", batch.host.ids);
        samples += batch.len();
        batches.push_back(batch);
        if batches.len() > held {
            batches.pop_front();
        }
    }
    assert!(most < usize::MAX || there.next().is_none(), "it goes on after its end");
    drop((there, batches));
    let decoded = nvjpeg.get(Knob::Images);
    nvjpeg.assert_clean();
    mock.assert_clean();
    (samples, decoded)
}

/// Masks follow pixels that stay, and other columns of their samples come as they do elsewhere.
#[test]
fn what_goes_with_pixels_that_stay_is_that_of_the_host() {
    within(BOUND, || {
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let mut shard = Vec::new();
        for number in 0..30 {
            let mask = if number == 7 { b"no image".to_vec() } else { photograph("gray.jpg") };
            let members = [("jpg", photograph("420.jpg")), ("seg", mask), ("txt", vec![b'a'; number % 9])];
            members.iter().for_each(|(name, bytes)| put_member(&mut shard, &format!("{number:03}.{name}"), bytes));
        }
        shard.resize(shard.len() + 1024, 0);
        fs::write(root.path().join("scenes.tar"), shard).expect("a shard");
        let options = Options::new().set("fields", ["jpg", "seg", "txt"]);
        let scenes = dataset::open(&[root.path()], &options).expect("scenes");
        for (on_error, samples) in [(OnError::Skip, 29), (OnError::Replace, 30)] {
            let mock = Mock::new("copy_us=100,jitter_us=200,seed=3");
            let nvjpeg = Nvjpeg::new(&mock);
            let builder = Loader::builder(Arc::clone(&scenes)).batch_size(5).seed(1).shuffle(true).on_error(on_error);
            let builder = builder.collate(Collate::Ragged).transform("jpg", PIXELS.parse().expect("a chain"));
            let builder = builder.follow("seg", Mask::of("jpg").dtype(DType::I64));
            let to = |device| builder.clone().device(device).on_device("jpg", Images::default()).build().expect("one");
            let (mut there, mut seen) = (to(device(&mock, &nvjpeg, 0.8)), 0);
            for wanted in to(Device::host()) {
                let (wanted, batch) = (wanted.expect("a batch"), there.next().expect("as many").expect("a batch"));
                assert_eq!((&batch.host.ids, batch.columns.len()), (&wanted.host.ids, 3));
                for (column, wanted) in batch.columns.iter().zip(&wanted.columns) {
                    let [found, wanted] = [column, wanted].map(|column| column.memory.to_host().expect("bytes"));
                    assert!(found == wanted, "column {} of {:?}", column.name, batch.host.ids);
                }
                seen += batch.len();
            }
            assert!(seen == samples && nvjpeg.get(Knob::Images) > 0, "{seen} samples");
            drop(there);
            nvjpeg.assert_clean();
            mock.assert_clean();
        }
    });
}

/// What the loader does for an image that the GPU decodes: `perf record -F 9999` of this test, and `perf report --sort
/// comm,dso` without the mocks (`libcuda.so.1`, `libnvjpeg.so.12`) and the C library, which they use too.
#[test]
#[ignore = "slow: measures time"]
fn an_image_that_stays_costs_little() {
    within(BOUND, || {
        let (_root, dataset) = photos_of(&["photo.jpg"], 512, &[]);
        let mock = Mock::new("");
        let nvjpeg = Nvjpeg::new(&mock);
        nvjpeg.set(Knob::Hardware, 1);
        // So small that no crop loses more than twice as many rows as columns: all pixels of such come back.
        let chain = "random_resized_crop(48), hflip, to_tensor(u8, hwc)";
        let builder = builder_of(&dataset, chain).batch_size(64).epochs(8).num_threads(0);
        let images = Images::default().mean([0.4, 0.5, 0.6]).dtype(DType::BF16);
        let loader = builder.device(device(&mock, &nvjpeg, 1.0)).on_device("data", images).build().expect("a loader");
        let samples: usize = loader.map(|batch| batch.expect("a batch").len()).sum();
        assert_eq!((samples as i64, mock.count("read_bytes")), (nvjpeg.get(Knob::Images), 0));
    });
}

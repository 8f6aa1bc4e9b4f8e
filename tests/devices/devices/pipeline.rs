//! The whole way of a batch to a device, on the mock: order, bytes, memory reuse, errors in their places, several
//! devices, states.

use crate::common::case::{Case, Consumer, reference};
use crate::common::{Mock, Random, dataset, within};
use std::sync::Arc;
use std::time::Duration;
use uringload::DeviceLoader;
use uringload::config::Batching;
use uringload::config::Config;
use uringload::config::{Cache, Cause, Collate, Device, OnError, PackMethod, Packing, PadValue, Padding, Shuffle};
use uringload::dataset::DType;
use uringload::transform::{Crop, Images, Tokens};
use uringload::{ErrorKind, Loader, State};
use uringload_sys::cuda::{Stream, StreamRef};

const BOUND: Duration = Duration::from_secs(100);
const TRAIN: Consumer = Consumer::Train { time: Duration::from_micros(300), held: 1 };

fn config() -> Config {
    Config { batch_size: 6, shuffle: true.into(), seed: 3, memory_limit: Some(4 << 20), ..Config::default() }
}

#[test]
fn every_form_has_the_bytes_that_the_host_has() {
    within(BOUND, || {
        let mut random = Random::new(1);
        let mock = Mock::new("copy_us=100");
        let pad =
            |value, max_length| Collate::Padded(Padding::default().value(value).max_length(max_length).multiple_of(16));
        let texts = dataset::texts(50, &mut random);
        let packing = |method| Packing::new(5000).method(method).window(30).pad(PadValue::Bits(0x0102));
        let mut cases = Vec::new();
        for collate in [
            Collate::Auto,
            Collate::Ragged,
            Collate::Views,
            pad(PadValue::Bits(7), None),
            pad(PadValue::Bits(0x0304), Some(1000)),
        ] {
            cases.push(Case::new(&texts.dataset, Config { collate, ..config() }));
        }
        for method in [PackMethod::FirstFit, PackMethod::Concat] {
            let batching = Batching::Packed(packing(method));
            let memory_limit = Some(16 << 20);
            cases.push(Case::new(&texts.dataset, Config { batching, batch_size: 3, memory_limit, ..config() }));
        }
        let mixed = dataset::mixed(50, false, &mut random);
        cases.push(Case::new(&mixed.dataset, config()));
        let named = Config { key: true, index: true, collate: Collate::Views, ..config() };
        cases.push(Case::new(
            &mixed.dataset,
            Config { collate_columns: vec![("made".into(), Collate::Dense)], ..named },
        ));
        let images = dataset::images(50, &mut random);
        cases.push(Case::new(&images.dataset, Config { collate: Collate::Dense, ..config() }));
        let table = dataset::table(50, &mut random);
        cases.push(Case::new(&table.dataset, config()));
        let numbers = dataset::numbers(50, &mut random);
        for collate in [Collate::Auto, pad(PadValue::Int(-1), None)] {
            cases.push(Case::new(&numbers.dataset, Config { collate, ..config() }));
        }
        // Values of what the host keeps lie in no block that was read for their batch.
        for made in [&texts, &mixed, &images, &table, &numbers] {
            let kept = Config { memory_limit: Some(64 << 20), epochs: Some(2), ..config() };
            cases.push(Case::new(&made.dataset, Config { cache: Cache::Memory, ..kept.clone() }));
            let shuffle = Shuffle::Window(16);
            cases.push(Case::new(&made.dataset, Config { shuffle, operation_bytes: Some(800_000), ..kept }));
        }
        let decoded = [0, 1, 2].map(dataset::decoded);
        cases.extend(decoded.iter().map(|made| Case::new(&made.dataset, Config { batch_size: 1, ..config() })));
        for case in &cases {
            for consumer in [Consumer::Look, TRAIN] {
                assert!(case.check(&mock, consumer, usize::MAX) > 5);
                mock.assert_clean();
            }
        }
    });
}

#[test]
fn every_transform_makes_what_the_twins_make() {
    within(BOUND, || {
        let mut random = Random::new(2);
        let mock = Mock::new("copy_us=50,kernel_us=100");
        let mixed = dataset::mixed(40, false, &mut random);
        let texts = dataset::texts(40, &mut random);
        let resized = Crop::RandomResized { scale: (0.1, 1.0), ratio: (0.5, 2.0) };
        let mean = vec![0.5, 0.4, 0.3];
        let std = vec![0.2, 0.3, 0.1];
        for (dtype, crop, channels_last) in [
            (DType::F32, Crop::None, false),
            (DType::BF16, Crop::Random, true),
            (DType::F16, resized, false),
            (DType::U8, Crop::Center, false),
        ] {
            let (mean, std) = if dtype == DType::U8 { (Vec::new(), Vec::new()) } else { (mean.clone(), std.clone()) };
            let size = (crop != Crop::None).then_some((7, 5));
            let images = Images::default()
                .size(size)
                .crop(crop)
                .flip(0.5)
                .mean(mean)
                .std(std)
                .dtype(dtype)
                .channels_last(channels_last);
            let tokens = Tokens::default().seq_len(40).pad_id(-1);
            let transforms = vec![("image".to_owned(), images.into()), ("text".to_owned(), tokens.into())];
            let case = Case { transforms, ..Case::new(&mixed.dataset, config()) };
            assert_eq!(case.check(&mock, TRAIN, usize::MAX), 7);
            mock.assert_clean();
        }
        for (labels, seq_len) in [(true, None), (false, None), (true, Some(1000)), (true, Some(20_000))] {
            let name = texts.dataset.schema().fields[0].name.clone();
            let tokens = Tokens::default().labels(labels).seq_len(seq_len);
            let case = Case { transforms: vec![(name, tokens.into())], ..Case::new(&texts.dataset, config()) };
            assert_eq!(case.check(&mock, Consumer::Look, usize::MAX), 7);
            mock.assert_clean();
        }
    });
}

/// The causes of a loader's device fallbacks.
fn causes(loader: &DeviceLoader) -> Vec<Cause> {
    let of_devices = [Cause::Device, Cause::Pinning, Cause::DeviceMemory, Cause::CopyFlags];
    let route = loader.route();
    let causes = route.fallbacks.iter().map(|step| step.cause).filter(|cause| of_devices.contains(cause));
    let causes: Vec<Cause> = causes.collect();
    assert!(route.fallbacks.iter().all(|step| !step.to_string().is_empty()));
    causes
}

#[test]
fn memory_of_the_device_is_used_again_only_when_its_readers_are_done() {
    within(BOUND, || {
        let mut random = Random::new(3);
        let mixed = dataset::mixed(200, false, &mut random);
        let config = Config { epochs: Some(2), ..config() };
        let mock = Mock::new("");
        let mut case = Case::new(&mixed.dataset, config);
        let loader = case.build(&mock);
        let one = loader.route().devices[0].memory_bytes / 3;
        drop(loader);
        for (limit, settings, time) in [
            (one, "copy_us=300,jitter_us=500", 700),
            (one, "kernel_us=500,jitter_us=100", 10),
            (one * 3 / 2, "copy_us=10,jitter_us=50", 1500),
            (one * 2, "copy_us=700,kernel_us=10", 0),
        ] {
            case.memory_limit = Some(limit);
            mock.configure(settings);
            let consumer = Consumer::Train { time: Duration::from_micros(time), held: 0 };
            assert_eq!(case.check(&mock, consumer, usize::MAX), 68);
            mock.assert_clean();
            mock.reset();
        }
    });
}

#[test]
fn budgets_of_device_memory_hold() {
    within(BOUND, || {
        let mut random = Random::new(4);
        let texts = dataset::texts(60, &mut random);
        let mut case = Case::new(&texts.dataset, config());
        let mock = Mock::new("");
        let wanted = case.build(&mock).route().devices[0].memory_bytes;
        let one = wanted / 3;
        case.memory_limit = Some(one - 256);
        let error = case.builder(&mock).build().map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::MemoryLimit && error.remedy().is_some(), "{error}");
        assert!(error.to_string().contains("cuda:0"), "{error}");
        // Others have taken most of it: a smaller ring, and the route says so.
        case.memory_limit = None;
        mock.configure(&format!("memory={wanted},taken={}", one / 2));
        let loader = case.build(&mock);
        assert_eq!(causes(&loader), [Cause::DeviceMemory]);
        let bytes = loader.route().devices[0].memory_bytes;
        assert!((one..wanted).contains(&bytes) && mock.count("allocated_bytes") == bytes);
        drop(loader);
        assert!(case.check(&mock, TRAIN, usize::MAX) == 10);
        mock.configure(&format!("taken={}", wanted - one + 256));
        let error = case.builder(&mock).build().map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::MemoryLimit && error.to_string().contains("are free there"), "{error}");
        mock.assert_clean();
    });
}

#[test]
fn a_consumer_that_holds_too_much_is_told_and_goes_on() {
    within(BOUND, || {
        let mut random = Random::new(5);
        let mock = Mock::new("");
        let images = dataset::images(200, &mut random);
        let config = Config { starved_after: Duration::from_millis(200), collate: Collate::Dense, ..config() };
        let mut case = Case::new(&images.dataset, config);
        case.memory_limit = Some(case.build(&mock).route().devices[0].memory_bytes / 3);
        let mut loader = case.build(&mock);
        let mut held = Vec::new();
        let error = loop {
            match loader.next().expect("an item") {
                Ok(batch) => held.push(batch),
                Err(error) => break error,
            }
        };
        assert!(error.kind() == ErrorKind::Starved && error.to_string().contains("bytes"), "{error}");
        let came = held.len();
        drop(held);
        let rest = loader.map(|batch| batch.expect("no error").len()).sum::<usize>();
        assert_eq!(came * 6 + rest, 200);
        mock.assert_clean();
    });
}

#[test]
fn what_the_driver_lacks_is_a_step_down_that_is_told() {
    within(BOUND, || {
        let mut random = Random::new(6);
        let mixed = dataset::mixed(60, false, &mut random);
        let case = Case::new(&mixed.dataset, config());
        let mock = Mock::new("copy_us=100");
        assert_eq!(causes(&case.build(&mock)), []);
        case.check(&mock, TRAIN, usize::MAX);
        assert_eq!(mock.count("pageable_copies"), 0);
        assert!(mock.count("words") > 0);
        mock.assert_clean();
        let unpinned = Mock::new("pinnable=0,copy_us=100,jitter_us=300");
        let loader = case.build(&unpinned);
        let steps = causes(&loader);
        assert!(steps.contains(&Cause::Pinning) && steps.contains(&Cause::CopyFlags), "{steps:?}");
        let device = &loader.route().devices[0];
        assert_eq!((device.pinned, device.flags), (false, false));
        drop(loader);
        case.check(&unpinned, TRAIN, usize::MAX);
        assert!(unpinned.count("pageable_copies") > 0);
        unpinned.assert_clean();
        let flagless = Mock::without("cuStreamWriteValue32_v2", "copy_us=100,jitter_us=300");
        assert_eq!(causes(&case.build(&flagless)), [Cause::CopyFlags]);
        case.check(&flagless, TRAIN, usize::MAX);
        assert_eq!(flagless.count("words"), 0);
        flagless.assert_clean();
    });
}

#[test]
fn errors_stand_in_their_places() {
    within(BOUND, || {
        let mut random = Random::new(7);
        let mock = Mock::new("devices=2,copy_us=50,jitter_us=100");
        let mixed = dataset::mixed(90, true, &mut random);
        for on_error in [OnError::Raise, OnError::Skip] {
            for consumer in [TRAIN, Consumer::Look, Consumer::Drop] {
                let case = Case { devices: 2, ..Case::new(&mixed.dataset, Config { on_error, ..config() }) };
                assert_eq!(case.check(&mock, consumer, usize::MAX), 15, "{on_error:?}");
                mock.assert_clean();
            }
        }
        let case = Case::new(&mixed.dataset, Config { on_error: OnError::Replace, ..config() });
        assert_eq!(case.check(&mock, TRAIN, usize::MAX), 15);
        mock.assert_clean();
    });
}

#[test]
fn devices_take_batches_in_turn() {
    within(BOUND, || {
        let mut random = Random::new(8);
        let mock = Mock::new("devices=3,copy_us=200,jitter_us=800");
        let mixed = dataset::mixed(100, false, &mut random);
        for held in 0..3 {
            let case = Case { devices: 3, ..Case::new(&mixed.dataset, config()) };
            let consumer = Consumer::Train { time: Duration::from_micros(400), held };
            assert_eq!(case.check(&mock, consumer, usize::MAX), 17);
            mock.assert_clean();
        }
        let twice = [0, 0].map(|index| Device::cuda(index).library(mock.path()));
        let error = Loader::builder(mixed.dataset.clone()).devices(twice).build().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let none = Loader::builder(mixed.dataset.clone()).devices([]).build().map(drop).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::InvalidArgument);
        let absent = Device::cuda(3).library(mock.path());
        let error = Loader::builder(mixed.dataset.clone()).device(absent).build().map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable && error.remedy().is_some(), "{error}");
        mock.assert_clean();
    });
}

#[test]
fn a_stream_of_another_device_is_refused() {
    within(BOUND, || {
        let mut random = Random::new(9);
        let mock = Mock::new("devices=2");
        let images = dataset::images(20, &mut random);
        let case = Case { devices: 2, ..Case::new(&images.dataset, config()) };
        let mut loader = case.build(&mock);
        let [first, second] = [(); 2].map(|()| loader.next().expect("a batch").expect("no error"));
        let there = Stream::new(second.context().expect("on a device")).expect("a stream");
        let error = first.wait_on(reference(&there)).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("cuda:0"), "{error}");
        second.wait_on(reference(&there)).expect("its own");
        drop((first, second, loader, there));
        mock.assert_clean();
    });
}

#[test]
fn a_state_goes_on_where_batches_were_handed_out() {
    within(BOUND, || {
        let mut random = Random::new(10);
        let mock = Mock::new("devices=2,copy_us=100");
        let mixed = dataset::mixed(100, false, &mut random);
        for (taken, devices) in [(0, 1), (1, 2), (7, 1), (8, 2), (16, 2)] {
            let case = Case { devices, ..Case::new(&mixed.dataset, config()) };
            let (mut loader, mut host) = (case.build(&mock), case.host());
            case.check_loader(&mock, TRAIN, taken, &mut loader, &mut host);
            let state = loader.state();
            drop(loader);
            let state = State::from_json(&state.to_json()).expect("a state");
            let builder = Loader::builder(case.dataset.clone()).config(case.config.clone()).resume(&state);
            let devices = (0..devices).map(|index| Device::cuda(index).library(mock.path()));
            let mut loader = builder.devices(devices).build().expect("a loader");
            assert_eq!(case.check_loader(&mock, TRAIN, usize::MAX, &mut loader, &mut host), 17 - taken);
            drop(loader);
            mock.assert_clean();
        }
    });
}

/// Whoever frees a column's tensor last returns the batch's memory, even while its work in the stream is pending.
#[test]
fn tensors_keep_the_memory_until_they_are_freed() {
    within(BOUND, || {
        let mut random = Random::new(11);
        let mock = Mock::new("copy_us=100");
        let images = dataset::images(120, &mut random);
        let mut case = Case::new(&images.dataset, Config { collate: Collate::Dense, ..config() });
        // Room for two batches of the largest size.
        case.memory_limit = Some(case.build(&mock).route().devices[0].memory_bytes * 2 / 3);
        let mut loader = case.build(&mock);
        let mut held = None;
        for _ in 0..15 {
            let batch = loader.next().expect("a batch").expect("no error");
            let context = batch.context().expect("on a device").clone();
            let column = batch.columns[0].clone();
            // The stream that PyTorch uses by default.
            let tensor = column.to_dlpack(StreamRef::LEGACY).expect("a tensor");
            let wanted = column.memory.to_host().expect("no error");
            let place = (column.memory.address(), column.memory.len());
            drop((batch, column));
            if let Some(((address, len), wanted, tensor)) = held.replace((place, wanted, tensor)) {
                let read = mock.consume_bytes(&context, StreamRef::LEGACY, address, len, Duration::from_millis(1));
                drop(tensor);
                assert_eq!(mock.consumed(&context, &read).expect("no error"), wanted);
            }
        }
        drop(held);
        // A tensor that outlives its loader.
        let batch = loader.next().expect("a batch").expect("no error");
        let tensor = batch.columns[0].to_dlpack(StreamRef::PER_THREAD).expect("a tensor");
        drop((loader, batch));
        assert!(mock.count("allocations") == 1);
        drop(tensor);
        mock.assert_clean();
    });
}

#[test]
fn loaders_share_devices() {
    within(BOUND, || {
        let mut random = Random::new(12);
        let mock = Mock::new("devices=2,copy_us=100,jitter_us=300");
        let made = [dataset::mixed(80, false, &mut random), dataset::texts(80, &mut random)];
        // Two loaders of each dataset: to both devices, and to the first.
        std::thread::scope(|scope| {
            for (made, devices) in made.iter().flat_map(|made| [(made, 1), (made, 2)]) {
                let case = Case { devices, ..Case::new(&made.dataset, config()) };
                let mock = &mock;
                scope.spawn(move || assert_eq!(case.check(mock, TRAIN, usize::MAX), 14));
            }
        });
        mock.assert_clean();
    });
}

/// Copies and kernels are slices of lanes of their own, as long as the device took, within the run.
#[test]
fn a_trace_has_what_the_device_does() {
    const COPY_US: f64 = 300.0;
    within(BOUND, || {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.json");
        let mock = Mock::new("copy_us=300,kernel_us=100");
        let made = dataset::texts(60, &mut Random::new(9));
        let case = Case::new(&made.dataset, Config { trace: Some(path.clone()), ..config() });
        let mut loader = case.build(&mock);
        let batches = loader.by_ref().inspect(|batch| assert!(batch.is_ok(), "a batch: {batch:?}")).count();
        let stats = loader.stats();
        drop(loader);
        let count = stats.snapshot().count;
        // Whoever holds the statistics holds the trace: only now the rest of it is written.
        drop(stats);
        let text = std::fs::read_to_string(&path).expect("the trace");
        let value = |line: &str, key: &str| {
            let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
            Some(rest.split([',', '}']).next().unwrap_or(rest).trim_matches('"').to_owned())
        };
        let lane = |name: &str| {
            let line = text.lines().find(|line| line.contains(&format!("{{\"name\":\"{name}\"")));
            value(line.unwrap_or_else(|| panic!("no {name} in {text}")), "tid").expect("a lane")
        };
        // Begin and length of each slice of a lane.
        let slices = |tid: &str| {
            let of_lane = text.lines().filter(|line| value(line, "tid").as_deref() == Some(tid));
            let (mut begun, mut found) = (None, Vec::new());
            for line in of_lane {
                let at = value(line, "ts").and_then(|at| at.parse::<f64>().ok());
                match value(line, "ph").as_deref() {
                    Some("B") => begun = at,
                    Some("E") => found.extend(begun.take().zip(at).map(|(begin, end)| (begin, end - begin))),
                    _ => {}
                }
            }
            found
        };
        let (copies, kernels) = (slices(&lane("cuda:0 copies")), slices(&lane("cuda:0 kernels")));
        assert!(copies.len() >= batches && kernels.len() >= batches, "{batches}: {copies:?} {kernels:?}");
        assert!(copies.iter().all(|(_, length)| *length >= 0.9 * COPY_US), "{copies:?}");
        let told: f64 = copies.iter().map(|(_, length)| length * 1e3).sum();
        assert!((told / count.copy_nanos as f64 - 1.0).abs() < 0.05, "{told} of {} ns", count.copy_nanos);
        let consumer: Vec<f64> = text
            .lines()
            .filter(|line| line.contains("\"name\":\"batch "))
            .filter_map(|line| value(line, "ts")?.parse().ok())
            .collect();
        // On one clock with the consumer, which says when it begins to wait for a batch.
        assert!((consumer[0] - copies[0].0).abs() < 60e6, "{} {}", copies[0].0, consumer[0]);
        assert!(text.contains("\"name\":\"batches ready\"") && text.contains("\"name\":\"kernels\""));
        mock.assert_clean();
    });
}

/// Events cost the driver's locks, which a trainer takes too: they are made for the first batches and used again.
#[test]
fn events_are_made_once() {
    within(BOUND, || {
        let mock = Mock::new("copy_us=20");
        let made = dataset::images(50, &mut Random::new(1));
        let device = Device::cuda(0).library(mock.path());
        let mut loader = Loader::builder(Arc::clone(&made.dataset))
            .config(Config { collate: Collate::Dense, epochs: Some(40), batch_size: 5, ..config() })
            .device(device)
            .build()
            .expect("a loader");
        let context = mock.context();
        let compute = Stream::new(&context).expect("a stream");
        let mut step = |batches: usize| {
            for batch in loader.by_ref().take(batches) {
                batch.expect("a batch").wait_on(reference(&compute)).expect("no error");
            }
            mock.count("events_made")
        };
        let (first, all) = (step(100), step(300));
        // As many as were ever under way at a time, which grows a little where the disk and the device are quick.
        assert!(all < first + 75, "{first} events for 100 batches, and {all} for 400");
        drop((loader, compute, context));
        mock.assert_clean();
    });
}

//! Random datasets, settings, consumers and devices: batches on devices equal those on the host, whatever the timing. A
//! failure prints its seed, which `URINGLOAD_SEED=N` runs again; `URINGLOAD_SEEDS=N` sets the number of seeds.

use crate::common::case::{Case, Consumer};
use crate::common::{Mock, Random, dataset, within};
use std::time::Duration;
use uringload::config::Batching;
use uringload::config::Config;
use uringload::config::{Collate, EngineChoice, IoChoice, OnError, PackMethod, Packing, PadValue, Padding};
use uringload::dataset::{DType, Shape};
use uringload::transform::OnDevice;
use uringload::transform::{Crop, Images, Tokens};

const SEEDS: u64 = 100;
/// The limit of one case: far more than any takes.
const BOUND: Duration = Duration::from_secs(60);

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn batches_on_devices_are_those_on_the_host() {
    let seeds = match number("URINGLOAD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("URINGLOAD_SEEDS").unwrap_or(SEEDS),
    };
    let mocks = [Mock::new(""), Mock::without("cuStreamWriteValue32_v2", "")];
    let mocks = std::sync::Arc::new(mocks);
    let (mut batches, mut refused) = (0, 0);
    for seed in seeds.clone() {
        let mocks = std::sync::Arc::clone(&mocks);
        let ran = std::panic::catch_unwind(|| within(BOUND, move || run(&mocks[(seed % 2) as usize], seed)));
        match ran {
            Ok(Some(came)) => batches += came,
            Ok(None) => refused += 1,
            Err(panic) => {
                eprintln!("URINGLOAD_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    let runs = seeds.end - seeds.start;
    assert!(runs < 10 || (batches as u64 > runs * 3 && refused * 4 < runs), "{batches} batches, {refused} refused");
}

/// Runs one case: the number of batches, or `None` if it asks for something impossible.
fn run(mock: &Mock, seed: u64) -> Option<usize> {
    let mut random = Random::new(seed);
    let settings = settings(&mut random, seed);
    mock.configure(&settings);
    let (made, case) = case(&mut random);
    let mut case = case;
    let consumer = match random.below(8) {
        0 => Consumer::Look,
        1 => Consumer::Drop,
        _ => {
            let time = Duration::from_micros([0, 50, 600][random.below(3)]);
            Consumer::Train { time, held: random.below(3) }
        }
    };
    let built = match case.builder(mock).build() {
        Ok(loader) => loader,
        Err(error) => {
            assert!(error.remedy().is_some(), "{error}");
            mock.reset();
            return None;
        }
    };
    if consumer == Consumer::Look || random.chance(2) {
        // The least memory that works, if nothing is held longer than necessary.
        let held = if let Consumer::Train { held, .. } = consumer { held as u64 } else { 1 };
        let one = built.route().devices[0].memory_bytes / 3;
        case.memory_limit = Some(one + one * held + random.below(one as usize) as u64);
    }
    drop(built);
    let count = if random.chance(4) { random.below(6) } else { usize::MAX };
    let came = case.check(mock, consumer, count);
    mock.assert_clean();
    mock.reset();
    drop(made);
    Some(came)
}

fn settings(random: &mut Random, seed: u64) -> String {
    let mut time = |most: [usize; 3]| most[random.below(3)];
    let times = [time([0, 20, 300]), time([0, 100, 3000]), time([0, 30, 400]), time([0, 50, 700])];
    let pinnable = if random.chance(8) { random.below(8 << 20) as u64 } else { u64::MAX };
    let [copy, mib, kernel, jitter] = times;
    format!(
        "devices=3,copy_us={copy},mib_us={mib},kernel_us={kernel},jitter_us={jitter},pinnable={pinnable},seed={seed}"
    )
}

fn case(random: &mut Random) -> (dataset::Made, Case) {
    let count = 1 + random.below(80);
    let bad = random.chance(3);
    let made = match random.below(6) {
        0 => dataset::texts(count, random),
        1 => dataset::images(count, random),
        2 => dataset::table(count, random),
        3 => dataset::decoded(random.below(3)),
        _ => dataset::mixed(count, bad, random),
    };
    let pad = Padding::default()
        .value(PadValue::Bits(random.next() & 0xff))
        .max_length(random.chance(2).then(|| 1 + random.below(3000) as u64))
        .multiple_of(1 + random.below(20) as u64);
    let forms = [Collate::Auto, Collate::Ragged, Collate::Views, Collate::Padded(pad)];
    let config = Config {
        batch_size: 1 + random.below(9) as u64,
        batching: batching(random, &made),
        epochs: Some(1 + random.below(2) as u64),
        shuffle: random.chance(2).into(),
        seed: random.next(),
        drop_last: random.chance(4),
        engine: [EngineChoice::Auto, EngineChoice::Threads][random.below(2)],
        io: [IoChoice::Auto, IoChoice::Buffered][random.below(2)],
        coalesce_gap: [Some(0), Some(4096), Some(60_000)][random.below(3)],
        memory_limit: Some([1 << 20, 3 << 20, 24 << 20][random.below(3)]),
        on_error: [OnError::Raise, OnError::Skip, OnError::Replace][random.below(3)],
        collate: forms[random.below(forms.len())],
        key: random.chance(4),
        index: random.chance(4),
        ..Config::default()
    };
    let devices = 1 + random.below(3) as u32;
    let mut case = Case { devices, ..Case::new(&made.dataset, config) };
    for field in &made.dataset.schema().fields {
        if let Some(transform) = transform(random, field.dtype, &field.shape)
            && case.config.batching == Batching::Samples
            && random.chance(2)
        {
            case.transforms.push((field.name.clone(), transform));
        }
    }
    (made, case)
}

fn batching(random: &mut Random, made: &dataset::Made) -> Batching {
    let is_text = made.dataset.schema().fields[0].shape == Shape::Ragged;
    if !is_text || !random.chance(3) {
        return Batching::Samples;
    }
    let method = [PackMethod::FirstFit, PackMethod::BestFit, PackMethod::Concat][random.below(3)];
    let (seq_len, window) = (200 + random.below(9000) as u64, 1 + random.below(100) as u64);
    Batching::Packed(Packing::new(seq_len).method(method).window(window).pad(PadValue::Bits(random.next() & 0xffff)))
}

fn transform(random: &mut Random, dtype: DType, shape: &Shape) -> Option<OnDevice> {
    match (dtype, shape) {
        (DType::U16, Shape::Ragged) => Some(OnDevice::Tokens(
            Tokens::default()
                .labels(random.chance(2))
                .pad_id(random.next() as i64)
                .ignore_index(-100)
                .seq_len(random.chance(2).then(|| 1 + random.below(5000) as u64)),
        )),
        (DType::U8, Shape::Fixed(shape)) if shape.len() == 3 => {
            let resized = Crop::RandomResized { scale: (0.05, 1.0), ratio: (0.3, 3.0) };
            let crop = [Crop::None, Crop::Center, Crop::Random, resized][random.below(4)];
            let dtype = [DType::U8, DType::F32, DType::F16, DType::BF16][random.below(4)];
            let size = (1 + random.below(shape[0] as usize) as u32, 1 + random.below(shape[1] as usize) as u32);
            let is_scaled = dtype != DType::U8 && random.chance(2);
            let numbers = |number: f32| if is_scaled { vec![number; shape[2] as usize] } else { Vec::new() };
            Some(OnDevice::Images(
                Images::default()
                    .size((crop != Crop::None || random.chance(2)).then_some(size))
                    .crop(crop)
                    .flip([0.0, 0.5, 1.0][random.below(3)])
                    .mean(numbers(0.45))
                    .std(numbers(0.22))
                    .dtype(dtype)
                    .channels_last(random.chance(2)),
            ))
        }
        _ => None,
    }
}

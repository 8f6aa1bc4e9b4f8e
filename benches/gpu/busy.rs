//! How busy a trainer's steps keep the device when a step takes longer than loading a batch: the time of the steps over
//! the time from the start of the first step to the end of the last, both from events in the trainer's stream.

use crate::Setting;
use crate::files;
use crate::machine::{Gpu, Limits, Outcome};
use crate::report::Report;
use crate::works::warm;
use serde_json::json;
use std::time::{Duration, Instant};
use uringload::Loader;
use uringload::config::Config;
use uringload::config::{Device, Shuffle};
use uringload::transform::{Crop, Images};
use uringload_sys::cuda::{Event, Timing};

/// Batches whose loading is timed.
const PROBED: usize = 40;
const STEPS_MOST: usize = 400;
const STEP_LEAST: Duration = Duration::from_millis(2);

pub fn run(gpu: &Gpu, setting: &Setting, limits: &Limits, report: &mut Report) -> Outcome<()> {
    files::works(&setting.folder, setting.is_tiny)?;
    let dataset = files::records(&setting.folder)?;
    warm(&setting.folder.join("records/records.bin"))?;
    let images = Images::default()
        .size((192, 192))
        .crop(Crop::Random)
        .flip(0.5)
        .mean(vec![0.485, 0.456, 0.406])
        .std(vec![0.229, 0.224, 0.225])
        .dtype(uringload::dataset::DType::BF16)
        .channels_last(false);
    let name = dataset.schema().fields[0].name.clone();
    let loader = || {
        let config = Config { batch_size: 64, epochs: None, shuffle: Shuffle::Full, ..Config::default() };
        let builder = Loader::builder(dataset.clone()).config(config).device(Device::cuda(0));
        builder.on_device(&name, images.clone()).build()
    };
    let mut begin = Instant::now();
    let mut last = None;
    for (number, batch) in loader()?.take(PROBED + 8).enumerate() {
        last = Some(batch?);
        if number == 7 {
            begin = Instant::now();
        }
    }
    last.map(|last| last.wait()).transpose()?;
    let load = begin.elapsed() / PROBED as u32;
    let wanted = (load * 3 / 2).max(STEP_LEAST);
    let floats = gpu.random_memory(if setting.is_tiny { 1 << 12 } else { 16 << 20 })?;
    let rounds = gpu.rounds_for(&floats, wanted)?;
    let end = Instant::now() + limits.all().mul_f64(0.6);
    let mut steps: Vec<(Event, Event)> = Vec::new();
    let mut loader = loader()?;
    while steps.len() < STEPS_MOST && (steps.len() < 20 || Instant::now() < end) {
        let Some(batch) = loader.next() else { break };
        let batch = batch?;
        batch.wait_on(&gpu.stream)?;
        let step = (Event::new(&gpu.context, Timing::On)?, Event::new(&gpu.context, Timing::On)?);
        step.0.record(&gpu.stream)?;
        gpu.kernels.burn(&gpu.stream, &floats, rounds)?;
        step.1.record(&gpu.stream)?;
        steps.push(step);
    }
    gpu.stream.synchronize()?;
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return Err("no batch came".into()) };
    let all = last.1.since(&first.0)?;
    let mut busy = Duration::ZERO;
    let mut gaps = Vec::new();
    for (index, (begin, end)) in steps.iter().enumerate() {
        busy += end.since(begin)?;
        if index > 0 {
            gaps.push(begin.since(&steps[index - 1].1)?.as_secs_f64());
        }
    }
    let share = busy.as_secs_f64() / all.as_secs_f64().max(1e-9);
    gaps.sort_by(f64::total_cmp);
    let count = loader.stats().snapshot().count;
    let numbers = json!({
        "load_s": load.as_secs_f64(), "step_s": busy.as_secs_f64() / steps.len() as f64,
        "wanted_step_s": wanted.as_secs_f64(), "steps": steps.len(), "busy": share,
        "gap_median_s": gaps.get(gaps.len() / 2), "gap_longest_s": gaps.last(),
        "batches_ready": count.batches_ready, "kernel_s": count.kernel_nanos as f64 / 1e9,
        "copy_s": count.copy_nanos as f64 / 1e9, "route": loader.route().to_string(),
    });
    report.put("busy", numbers);
    let measured = format!("{:.2} % of {} steps of {:.1} ms", share * 100.0, steps.len(), wanted.as_secs_f64() * 1e3);
    report.judge("GPU busy with steps of 1.5 times a batch's load", measured, ">= 99 %", share >= 0.99);
    Ok(())
}

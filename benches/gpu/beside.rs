//! How much copies to the device slow down a kernel that computes beside them.

use crate::Setting;
use crate::machine::{Gpu, Limits, Outcome, median, part, pinned, rate};
use crate::report::{Report, gb};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uringload_sys::cuda::Copies;

const BLOCK_BYTES: usize = 32 << 20;
const BLOCKS: usize = 8;
const ROUNDS: usize = 15;
/// Copies in flight at a time.
const DEPTH: usize = 4;
const STEP: Duration = Duration::from_millis(20);

pub fn run(gpu: &Gpu, setting: &Setting, limits: &Limits, report: &mut Report) -> Outcome<()> {
    let block = if setting.is_tiny { 1 << 20 } else { BLOCK_BYTES };
    let floats = gpu.random_memory(if setting.is_tiny { 1 << 12 } else { 16 << 20 })?;
    let (_pinned, bytes) = pinned(&gpu.context, block * BLOCKS)?;
    let to = gpu.memory(block * BLOCKS)?;
    let rounds = gpu.rounds_for(&floats, STEP)?;
    let (runs, stops, copied) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let step = || {
        let took = gpu.timed(&gpu.stream, || Ok(gpu.kernels.burn(&gpu.stream, &floats, rounds)?))?;
        Ok::<f64, Box<dyn std::error::Error>>(took.as_secs_f64())
    };
    let copy = || -> Outcome<()> {
        let mut copies = Copies::new(&gpu.context)?;
        let mut next = 0;
        while !stops.load(Ordering::Relaxed) {
            if !runs.load(Ordering::Relaxed) || copies.under_way() >= DEPTH {
                std::thread::sleep(Duration::from_micros(30));
            } else {
                let start = next % BLOCKS * block;
                copies.start(bytes.slice(start..start + block), &part(&to, start, block)?)?;
                next += 1;
            }
            copied.fetch_add(copies.finished()?, Ordering::Relaxed);
        }
        Ok(())
    };
    let (mut alone, mut beside, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let copier = scope.spawn(|| copy().map_err(|error| error.to_string()));
        let mut measure = || -> Outcome<()> {
            for round in 0.. {
                if !limits.goes_on(round, 2, ROUNDS) {
                    break;
                }
                runs.store(false, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(15));
                alone.push(step()?);
                runs.store(true, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
                let (before, start) = (copied.load(Ordering::Relaxed), Instant::now());
                beside.push(step()?);
                rates.push(rate(copied.load(Ordering::Relaxed) - before, start.elapsed()));
            }
            Ok(())
        };
        let measured = measure();
        stops.store(true, Ordering::Relaxed);
        match copier.join() {
            Ok(copied) => copied?,
            Err(_) => return Err("the thread that copies panicked".into()),
        }
        measured
    })?;
    let (alone, beside, copied) = (median(&alone), median(&beside), median(&rates));
    let slower = beside / alone - 1.0;
    let numbers = json!({
        "alone_s": alone, "beside_s": beside, "slower": slower, "copied_bytes_per_s": copied, "rounds": rates.len(),
    });
    report.put("beside", numbers);
    let measured = format!("{:.2} % beside {}", slower * 100.0, gb(copied));
    report.judge("a compute step slower beside copies", measured, "<= 2 %", slower <= 0.02);
    Ok(())
}

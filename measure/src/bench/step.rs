//! A training step on a GPU: kernels that compute for a requested time.

use std::time::Duration;
use uringload::{Error, ErrorKind, Result};
use uringload_sys::cuda::{Context, CudaError, DeviceMemory, Event, Kernel, Kernels, Span, Stream, Timing};

/// Length of one kernel. A step consists of many, as a trainer's does, so that the loader's work on the GPU can run in
/// between.
const KERNEL: Duration = Duration::from_millis(1);

/// Threads per multiprocessor: a quarter of its capacity, so that other kernels can run alongside.
const THREADS: usize = 512;

/// Rounds of a kernel, initially and at most.
const ROUNDS_FIRST: f64 = 256.0;
const ROUNDS_MAX: f64 = 4e9;

/// Kernels that are timed together, and the maximum number of corrections of their length.
const TIMED_KERNELS: u32 = 16;
const CORRECTIONS: usize = 16;

/// How far the length may deviate, as a fraction, and the largest single correction.
const TOLERANCE: f64 = 0.01;
const CORRECTION_MAX: f64 = 16.0;

/// The kernels of a step.
pub struct Step {
    kernels: Kernels,
    floats: Span,
    rounds: u32,
    count: u32,
}

impl Step {
    /// A step that takes `wanted`, by this GPU's own clock; `None` if no step is wanted.
    pub fn of(context: &Context, wanted: Option<Duration>) -> Result<Option<Step>> {
        wanted.map(|wanted| Step::calibrated(context, wanted).map_err(failed)).transpose()
    }

    fn calibrated(context: &Context, wanted: Duration) -> std::result::Result<Step, CudaError> {
        let bytes = (context.info().multiprocessors.max(1) as usize * THREADS * size_of::<f32>()).max(4096);
        let floats = Span::all(&DeviceMemory::new(context, bytes)?);
        let stream = Stream::for_compute(context)?;
        // At least one, and no more than a century takes.
        let count = (wanted.as_secs_f64() / KERNEL.as_secs_f64()).round().clamp(1.0, f64::from(u32::MAX)) as u32;
        let kernels = Kernels::new(context);
        kernels.prepare(&[Kernel::Burn])?;
        let mut step = Step { kernels, floats, rounds: ROUNDS_FIRST as u32, count };
        let timed = count.min(TIMED_KERNELS);
        let target = wanted.as_secs_f64() * f64::from(timed) / f64::from(count);
        for _ in 0..CORRECTIONS {
            let took = step.time(context, &stream, timed)?.as_secs_f64().max(1e-6);
            let factor = (target / took).clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX);
            if (factor - 1.0).abs() < TOLERANCE {
                break;
            }
            step.rounds = (f64::from(step.rounds) * factor).clamp(1.0, ROUNDS_MAX) as u32;
        }
        Ok(step)
    }

    /// How long this many kernels take.
    fn time(&self, context: &Context, stream: &Stream, kernels: u32) -> std::result::Result<Duration, CudaError> {
        let (begin, end) = (Event::new(context, Timing::On)?, Event::new(context, Timing::On)?);
        begin.record(stream)?;
        self.launch(stream, kernels)?;
        end.record(stream)?;
        end.wait()?;
        end.since(&begin)
    }

    fn launch(&self, stream: &Stream, kernels: u32) -> std::result::Result<(), CudaError> {
        (0..kernels).try_for_each(|_| self.kernels.burn(stream, &self.floats, self.rounds))
    }

    /// Queues the step in a stream.
    pub fn run(&self, stream: &Stream) -> std::result::Result<(), CudaError> {
        self.launch(stream, self.count)
    }
}

/// The error for a driver failure outside the loader.
pub fn failed(error: CudaError) -> Error {
    Error::new(ErrorKind::Device, "the step that bench emulates failed on the GPU")
        .with_source(error)
        .with_remedy("see nvidia-smi and the kernel's log, or leave out emulate_step (--emulate-step)")
}

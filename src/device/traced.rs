//! Traces the work of a GPU: its copies and its kernels, each in sequence, on the trace's clock.

use crate::stats::{Lane, Stats};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload_sys::cuda::{Context, CudaError, Event, Stream, Timing};

/// The driver reports the time between two events as milliseconds in 24 bits: after this long it is off by 4 us.
const ANCHORED: Duration = Duration::from_secs(60);

/// The lanes of one GPU.
pub(super) struct Traced {
    copies: Arc<Lane>,
    kernels: Arc<Lane>,
    /// A position that the device had reached at this time.
    anchor: Event,
    at: Instant,
}

impl Traced {
    /// Begins if there is a trace. Waits for the work in `stream`.
    pub(super) fn begin(stats: &Stats, context: &Context, stream: &Stream) -> Result<Option<Traced>, CudaError> {
        let index = context.info().index;
        let lane = |what: &str| stats.traced_beside(|| format!("cuda:{index} {what}"));
        let (Some(copies), Some(kernels)) = (lane("copies"), lane("kernels")) else { return Ok(None) };
        let anchor = Event::new(context, Timing::On)?;
        anchor.record(stream)?;
        anchor.wait()?;
        Ok(Some(Traced { copies, kernels, anchor, at: Instant::now() }))
    }

    /// Records finished work. Returns an event that is no longer needed here.
    pub(super) fn tell(&mut self, is_copy: bool, begin: &Event, end: Event) -> Result<Event, CudaError> {
        let began = self.at + begin.since(&self.anchor)?;
        let ended = began + end.since(begin)?;
        let lane = if is_copy { &self.copies } else { &self.kernels };
        lane.worked(is_copy, (began, ended));
        if ended.saturating_duration_since(self.at) < ANCHORED {
            return Ok(end);
        }
        self.at = ended;
        Ok(std::mem::replace(&mut self.anchor, end))
    }
}

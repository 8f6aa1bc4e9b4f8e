//! How many requests a server grants at a time that refuses those above.
//!
//! A depth at which more than a few of a hundred are refused is too much: what was answered of a round is what is
//! granted. The refused depth is remembered, and the next trials go half of the way to it, not twice as far. Each trial
//! that is refused doubles the rest before the next. A refused read waits for as long as the server asks, and its batch
//! with it, so the rest is many times as long. Near the refused depth a small step is tried, because servers grant more
//! at other times.

use super::WINDOW;
use std::time::Duration;

/// The share of requests that may be refused.
const TOLERATED: f64 = 0.02;
/// The least part of the depth that one round of refusals leaves.
const LEFT: f64 = 0.7;
/// The least step that is worth a trial between a depth and a refused one, in parts of the depth.
const STEP: usize = 16;
/// The step where there is no room for that.
const PROBE: usize = 8;
/// Windows without refusals before a trial of more: at least, and at most.
const REST: u32 = 16;
const REST_MAX: u32 = 512;
/// How many times as long as the pause that the server asks for the rest is.
const REST_PAUSES: u32 = 16;

/// What is known of a server.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// A depth that was refused lately.
    refused: Option<usize>,
    /// What was granted of it.
    granted: usize,
    /// Windows since then in which not too many were refused, and how many of them there have to be.
    calm: u32,
    rest: u32,
    /// The longest pause that it asked for.
    pause: Duration,
}

impl Throttle {
    /// Notes how long the server asks a refused read to wait.
    pub(super) fn asked(&mut self, pause: Duration) {
        self.pause = self.pause.max(pause);
    }

    /// How much of a depth is granted, of which a round had these reads `answered` and `refused`. `None`: all of it.
    /// If a trial added `extra` reads, most of these must not be refused.
    pub(super) fn granted(
        &mut self,
        depth: usize,
        (answered, refused): (usize, usize),
        extra: Option<usize>,
    ) -> Option<usize> {
        let share = refused as f64 / (answered + refused).max(depth) as f64;
        if share <= TOLERATED && !extra.is_some_and(|extra| is_most(refused, extra)) {
            return None;
        }
        let rest = if extra.is_some() { self.rest * 2 } else { REST };
        let pauses = self.pause.saturating_mul(REST_PAUSES).as_millis() / WINDOW.as_millis();
        let least = u32::try_from(pauses).unwrap_or(REST_MAX).clamp(REST, REST_MAX);
        self.rest = rest.clamp(least, REST_MAX);
        let granted = extra.map_or((depth as f64 * (1.0 - share).max(LEFT)) as usize, |extra| depth - extra);
        (self.refused, self.granted, self.calm) = (Some(depth), granted, 0);
        Some(granted)
    }

    /// Notes a window in which not too many were refused.
    pub(super) fn calm(&mut self) {
        self.calm = self.calm.saturating_add(1);
    }

    /// Notes that a greater depth was granted.
    pub(super) fn kept(&mut self, depth: usize) {
        if self.refused.is_some_and(|refused| depth >= refused) {
            *self = Throttle::default();
        }
    }

    /// The depth to try that is more than this one; the same if none is to be tried now.
    pub(super) fn more(&self, depth: usize) -> usize {
        let Some(refused) = self.refused else { return depth * 2 };
        if depth < self.granted {
            return (depth * 2).min(self.granted);
        }
        if self.calm < self.rest {
            return depth;
        }
        let half = usize::midpoint(depth, refused).min(depth * 2);
        if half >= depth + (depth / STEP).max(1) { half } else { depth + (depth / PROBE).max(1) }
    }
}

/// Whether the refused reads are most of those that a trial added.
pub(super) fn is_most(refused: usize, extra: usize) -> bool {
    2 * refused > extra
}

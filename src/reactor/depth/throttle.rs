//! How many requests a server grants at a time that refuses those above.
//!
//! A depth at which more than a few of a hundred are refused is too much: what was answered of a round is what is
//! granted. The refused depth is remembered, and the next trials go half of the way to it, not twice as far. Each trial
//! that is refused doubles the rest before the next, because a refused read waits for as long as the server asks, and
//! its batch with it. Near the refused depth a small step is tried, because servers grant more at other times.

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

/// What is known of a server.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// A depth that was refused lately.
    refused: Option<usize>,
    /// Windows since then in which not too many were refused, and how many of them there have to be.
    calm: u32,
    rest: u32,
}

impl Throttle {
    /// How much of a depth is granted, of which a round had these reads `answered` and `refused`. `None`: all of it.
    pub(super) fn granted(
        &mut self,
        depth: usize,
        (answered, refused): (usize, usize),
        is_trial: bool,
    ) -> Option<usize> {
        let share = refused as f64 / (answered + refused).max(depth) as f64;
        if share <= TOLERATED {
            return None;
        }
        self.rest = if is_trial { (self.rest * 2).clamp(REST, REST_MAX) } else { REST };
        (self.refused, self.calm) = (Some(depth), 0);
        Some((depth as f64 * (1.0 - share).max(LEFT)) as usize)
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
        if self.calm < self.rest {
            return depth;
        }
        let half = usize::midpoint(depth, refused).min(depth * 2);
        if half >= depth + (depth / STEP).max(1) { half } else { depth + (depth / PROBE).max(1) }
    }
}

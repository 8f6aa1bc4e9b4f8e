//! Gaps between samples: read along where an operation costs more than their bytes, and only there.

use super::*;

/// Adjacent samples, with a gap after each. Eight batches are planned ahead, as in the reactor.
#[derive(Clone, Copy, Debug)]
struct Row {
    sample: u64,
    gap: u64,
}

/// A planned read: bytes, bytes of samples, the gap that it was joined over, and whether it is part of a whole window.
type Planned = (u64, u64, u64, bool);

/// A read in flight: its end, its number for ties, its beginning, and its plan.
type InFlight = Reverse<(Instant, u64, Instant, Planned)>;

/// A device, a controller that may try gaps, and a row of samples.
struct Lane {
    run: Run,
    row: Row,
    planned: std::collections::VecDeque<Planned>,
    reads: BinaryHeap<InFlight>,
    useful: u64,
    /// Whether samples are mixed within windows, so that none is near another one of its batch.
    is_mixed: bool,
}

impl Lane {
    fn new(limits: Limits, row: Row, gap_most: u64, seed: u64) -> Lane {
        let mut run = Run::new(limits, adaptive(64), seed);
        let joining = Joining { most: gap_most, ..Joining::default() };
        run.depth = Depth::new(adaptive(64), READ_BYTES).with_joining(joining);
        let (planned, reads) = (std::collections::VecDeque::new(), BinaryHeap::new());
        Lane { run, row, planned, reads, useful: 0, is_mixed: false }
    }

    /// A lane whose samples are mixed within windows.
    fn mixed(limits: Limits, row: Row, may_read_whole: bool, seed: u64) -> Lane {
        let mut lane = Lane { is_mixed: true, ..Lane::new(limits, row, 0, seed) };
        let joining = Joining { may_read_whole, ..Joining::default() };
        lane.run.depth = Depth::new(adaptive(64), READ_BYTES).with_joining(joining);
        lane
    }

    /// Plans a batch of 64 samples.
    fn plan(&mut self) {
        let (Row { sample, gap }, longest) = (self.row, self.run.depth.read_bytes());
        let over = self.run.depth.gap();
        if self.run.depth.is_whole() {
            // Sixteen stretches.
            let useful = longest * sample / (sample + gap);
            (0..16).for_each(|_| self.planned.push_back((longest, useful, over, true)));
            return;
        }
        self.run.depth.planned(gap <= 64 << 10);
        if over >= gap {
            let (all, useful) = (64 * (sample + gap), 64 * sample);
            for at in (0..all).step_by(longest as usize) {
                let bytes = longest.min(all - at);
                self.planned.push_back((bytes, bytes * useful / all, over, false));
            }
        } else {
            let cut = |at| (longest.min(sample - at), longest.min(sample - at), over, false);
            (0..64).for_each(|_| self.planned.extend((0..sample).step_by(longest as usize).map(cut)));
        }
    }

    fn turn(&mut self) {
        let depth = self.run.depth.now();
        while self.reads.len() < depth {
            if self.planned.len() < 8 {
                self.plan();
            }
            let Some(read) = self.planned.pop_front() else { return };
            let end = self.run.service.end(read.0, self.run.now);
            self.reads.push(Reverse((end, self.run.issued, self.run.now, read)));
            self.run.issued += 1;
        }
        self.run.depth.started(true);
        let Some(&Reverse((end, ..))) = self.reads.peek() else { return };
        self.run.now = self.run.now.max(end) + Duration::from_micros(20);
        while let Some(&Reverse((end, _, began, (bytes, useful, gap, whole)))) = self.reads.peek()
            && end <= self.run.now
        {
            self.reads.pop();
            let (gap, whole) = ((!self.is_mixed).then_some(gap), self.is_mixed.then_some(whole));
            self.run.depth.done(Ended { bytes, useful, gap, whole, latency: self.run.now - began });
            self.useful += useful;
        }
        self.run.decisions.extend(self.run.depth.look(self.run.now));
    }

    /// Bytes of samples a second, over this many seconds.
    fn rate(&mut self, seconds: u64) -> f64 {
        let (since, before) = (self.run.now, self.useful);
        while self.run.now < since + Duration::from_secs(seconds) {
            self.turn();
        }
        (self.useful - before) as f64 / (self.run.now - since).as_secs_f64()
    }

    /// The price of an operation that was measured.
    fn price(&self) -> Option<u64> {
        self.run.decisions.iter().rev().map(|decision| decision.operation_bytes).find(|&bytes| bytes > 0)
    }
}

const JPEGS: Row = Row { sample: 115_000, gap: 1_100 };
const TINY: Row = Row { sample: 500, gap: 1_000 };
const SPARSE: Row = Row { sample: 4096, gap: 60_000 };
const MOST: u64 = 64 << 10;

#[test]
fn a_quota_of_operations_is_found_out_and_gaps_are_read_along() {
    let latency = Duration::from_millis(2);
    let quota = Limits { reads_per_second: 150, bytes_per_second: 120_000_000, latency, jitter: 20, ..NONE };
    let bucket = Limits { reads_per_second: 150, burst: 3000, ..quota };
    for (name, limits) in [("quota", quota), ("bucket of tokens", bucket)] {
        for row in [JPEGS, TINY] {
            let mut lane = Lane::new(limits, row, MOST, 3);
            lane.rate(60);
            let rate = lane.rate(60);
            let decisions = &lane.run.decisions;
            // The bytes of 150 reads, of 512 KiB or of a batch; and one sample a read without gaps.
            let longest = READ_BYTES.min(64 * (row.sample + row.gap)) as f64;
            let best = (150.0 * longest).min(120e6) * row.sample as f64 / (row.sample + row.gap) as f64;
            assert!(rate >= 0.8 * best, "{name}: {rate} of {best} {row:?}\n{decisions:#?}");
            assert_eq!(lane.run.depth.gap(), MOST, "{name} {row:?}");
            let kept = decisions.iter().find(|decision| decision.reason == "kept: it gained").unwrap();
            assert!(kept.knob == Knob::Gap && kept.to == MOST && kept.operation_bytes > 32 << 10, "{kept}");
        }
    }
    let limits = Limits { reads_per_second: 150, bytes_per_second: 0, ..quota };
    assert!(Lane::new(limits, JPEGS, 0, 3).rate(60) < 151.0 * 115_000.0, "trials are not allowed");
}

#[test]
fn where_bytes_are_what_is_scarce_no_gap_is_read_along() {
    for (latency, bytes_per_second) in [(1, 100_000_000), (10, 300_000_000), (0, 20_000_000)] {
        let limits = Limits { bytes_per_second, latency: Duration::from_millis(latency), jitter: 10, ..NONE };
        let mut lane = Lane::new(limits, SPARSE, MOST, 9);
        lane.rate(20);
        let (joined, apart) = (lane.rate(40), Lane::new(limits, SPARSE, 0, 9).rate(40));
        // Trials of it become rarer, and cost little.
        assert!(joined >= 0.95 * apart, "{joined} of {apart} at {limits:?}\n{:#?}", lane.run.decisions);
        assert_eq!(lane.run.depth.gap(), 0, "{limits:?}");
    }
}

#[test]
fn a_quota_that_comes_and_goes_is_followed() {
    let free = Limits { bytes_per_second: 200_000_000, latency: Duration::from_millis(1), jitter: 10, ..NONE };
    let quota = Limits { reads_per_second: 150, ..free };
    let row = Row { sample: 20_000, gap: 30_000 };
    let mut lane = Lane::new(free, row, MOST, 5);
    lane.rate(20);
    assert_eq!(lane.run.depth.gap(), 0, "{:#?}", lane.run.decisions);
    lane.run.service = Service::new(quota, 5, lane.run.now);
    lane.rate(60);
    assert_eq!(lane.run.depth.gap(), MOST, "{:#?}", lane.run.decisions);
    assert!(lane.rate(20) > 5.0 * 150.0 * 20_000.0);
    assert!(lane.price().is_some_and(|price| price > 200_000), "{:?}", lane.price());
    lane.run.service = Service::new(free, 5, lane.run.now);
    lane.rate(60);
    assert_eq!(lane.run.depth.gap(), 0, "{:#?}", lane.run.decisions);
}

#[test]
fn it_does_not_swing_between_gaps() {
    for seed in 0..20 {
        let limits = Limits { reads_per_second: 500, latency: Duration::from_millis(1), jitter: 30, ..NONE };
        let mut lane = Lane::new(limits, JPEGS, MOST, seed);
        lane.rate(60);
        let before = lane.run.decisions.len();
        let rates: Vec<f64> = (0..10).map(|_| lane.rate(20)).collect();
        let (least, most) = rates.iter().fold((f64::MAX, 0.0), |(a, b), &rate| (f64::min(a, rate), f64::max(b, rate)));
        let late = &lane.run.decisions[before..];
        assert!(late.len() < 20 && most / least < 1.2, "seed {seed}: {rates:?}\n{late:#?}");
    }
}

fn tries_whole(lane: &Lane) -> usize {
    lane.run.decisions.iter().filter(|decision| decision.knob == Knob::Whole && decision.to == 1).count()
}

#[test]
fn windows_are_read_whole_where_operations_are_scarce() {
    let latency = Duration::from_millis(2);
    let quota = Limits { reads_per_second: 150, bytes_per_second: 120_000_000, latency, jitter: 20, ..NONE };
    for limits in [quota, Limits { burst: 3000, ..quota }, Limits { reads_per_second: 20, ..quota }] {
        for row in [JPEGS, Row { sample: 20_000, gap: 100 }] {
            let mut lane = Lane::mixed(limits, row, true, 3);
            lane.rate(90);
            let rate = lane.rate(60);
            let decisions = &lane.run.decisions;
            let best = (limits.reads_per_second as f64 * READ_BYTES as f64).min(120e6);
            assert!(rate >= 0.8 * best && lane.run.depth.is_whole(), "{rate} of {best} {row:?}\n{decisions:#?}");
            let kept = decisions.iter().find(|decision| decision.reason == "kept: it gained").unwrap();
            assert!(kept.knob == Knob::Whole && kept.operation_bytes > 100_000, "{kept}");
        }
    }
}

#[test]
fn windows_are_read_sample_by_sample_where_that_gives_as_much() {
    // Fast: not even tried.
    let fast = Limits { bytes_per_second: 2_000_000_000, latency: Duration::from_micros(100), jitter: 20, ..NONE };
    let mut lane = Lane::mixed(fast, JPEGS, true, 5);
    lane.rate(30);
    assert_eq!(tries_whole(&lane), 0, "{:#?}", lane.run.decisions);
    // Limited by bytes, or by latency that more reads compensate for.
    for (latency, bytes_per_second) in [(1, 100_000_000), (20, 300_000_000)] {
        let limits = Limits { bytes_per_second, latency: Duration::from_millis(latency), jitter: 10, ..NONE };
        let mut lane = Lane::mixed(limits, JPEGS, true, 9);
        lane.rate(20);
        let (tried, never) = (lane.rate(40), Lane::mixed(limits, JPEGS, false, 9).rate(40));
        assert!(tried >= 0.95 * never, "{tried} of {never} at {limits:?}\n{:#?}", lane.run.decisions);
        assert!(!lane.run.depth.is_whole() && tries_whole(&lane) > 0, "{limits:?}");
    }
}

#[test]
fn whole_windows_come_and_go_with_a_quota() {
    let free = Limits { bytes_per_second: 200_000_000, latency: Duration::from_millis(1), jitter: 10, ..NONE };
    let mut lane = Lane::mixed(free, JPEGS, true, 5);
    lane.rate(20);
    for (limits, is_whole) in [(Limits { reads_per_second: 150, ..free }, true), (free, false)] {
        lane.run.service = Service::new(limits, 5, lane.run.now);
        lane.rate(90);
        assert_eq!(lane.run.depth.is_whole(), is_whole, "{limits:?}\n{:#?}", lane.run.decisions);
    }
}

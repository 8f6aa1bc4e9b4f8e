//! The search: one knob after the other, uphill.

use super::knobs::{Chosen, Knob, automatic, words};
use uringload::config::Config;
use uringload::stats::Bottleneck;

/// A value that gives less more than this is not told from noise, and where the machine is busy, one that gives less
/// more than two runs of the same settings differ by.
const STEP: f64 = 1.03;

/// A setting that gives less more than this is left to the loader.
const WORTH: f64 = 1.02;

/// Reads and gaps that are long where each operation costs much.
const LONG_READ: u64 = 4 << 20;
const LONG_GAP: u64 = 1 << 20;

/// Rounds of all knobs at most.
const PASSES: usize = 2;

/// What a measurement said.
#[derive(Clone, Debug)]
pub enum Reading {
    /// It was read.
    Seen(Shown),
    /// This machine cannot read in that way, and why.
    Refused(String),
    /// There is no time left.
    Over,
}

/// A configuration between two runs of the start.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Samples a second.
    pub rate: f64,
    /// That, over what the start gave just before and after.
    pub gain: f64,
    /// By what share two runs of the start differ.
    pub spread: f64,
    /// What the loader chose where it was free to.
    pub chosen: Chosen,
}

/// A configuration that was measured.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What was set, in words.
    pub what: String,
    /// What was set.
    pub config: Config,
    /// Samples a second; `None`: it cannot be.
    pub rate: Option<f64>,
    /// That, over what the start gave just before and after.
    pub gain: Option<f64>,
    /// Why it cannot be.
    pub why: Option<String>,
}

/// The search and what it has found.
pub struct Climb<'a> {
    measure: &'a mut dyn FnMut(&Config) -> Reading,
    /// All that was measured, in this order.
    pub tried: Vec<Tried>,
    /// The best so far.
    pub best: Config,
    /// How many times as fast as the start it is.
    gain: f64,
    /// What gives less more is no step.
    step: f64,
    /// What the loader chooses by itself, where that was seen: it is no new value.
    defaults: Vec<(Knob, u64)>,
    is_over: bool,
}

impl<'a> Climb<'a> {
    /// From a configuration that was measured.
    pub fn new(start: &Config, first: Shown, measure: &'a mut dyn FnMut(&Config) -> Reading) -> Climb<'a> {
        let (rate, gain) = (Some(first.rate), Some(1.0));
        let tried = vec![Tried { what: words(start), config: start.clone(), rate, gain, why: None }];
        let (best, defaults) = (start.clone(), Vec::new());
        let mut climb = Climb { measure, tried, best, gain: 1.0, step: STEP, defaults, is_over: false };
        climb.learn(start, &first);
        climb
    }

    /// Everything left to the loader, which is preferred to what is no better.
    pub fn leave_to_the_loader(&mut self) {
        let config = automatic(&self.best);
        if config == self.best {
            return;
        }
        if let Some(gain) = self.gain_of(&config).filter(|gain| *gain * WORTH >= self.gain) {
            (self.best, self.gain) = (config, gain);
        }
    }

    /// A configuration that something speaks for.
    pub fn consider(&mut self, config: Config) {
        let config = self.plain(config);
        if let Some(gain) = self.gain_of(&config).filter(|gain| *gain > self.gain * self.step) {
            (self.best, self.gain) = (config, gain);
        }
    }

    /// Long reads with all that lies between: either alone brings less than both, so no single knob leads there.
    pub fn read_long(&mut self) {
        let long = Knob::ReadSize.with(&self.best, Some(LONG_READ));
        self.consider(Knob::Gap.with(&long, Some(LONG_GAP)));
    }

    /// Turns the knobs in this order, and once more if that changed something: what was not the limit may be by then.
    pub fn turn(&mut self, knobs: &[Knob], chosen: &Chosen) {
        for _ in 0..PASSES {
            let before = self.best.clone();
            for &knob in knobs.iter().filter(|knob| knob.applies(chosen)) {
                self.one(knob, chosen);
            }
            if self.is_over || self.best == before {
                break;
            }
        }
    }

    /// Leaves to the loader what brings nothing.
    pub fn prune(&mut self) {
        for knob in Knob::by(Bottleneck::Unknown) {
            if knob.of(&self.best).is_none() || self.is_over {
                continue;
            }
            let without = knob.with(&self.best, None);
            if let Some(gain) = self.gain_of(&without).filter(|gain| *gain * WORTH >= self.gain) {
                (self.best, self.gain) = (without, gain.max(self.gain));
            }
        }
    }

    /// One knob: up as long as that brings more, else down; then between the best value and its neighbours.
    fn one(&mut self, knob: Knob, chosen: &Chosen) {
        let values = knob.values(chosen);
        let now = knob.of(&self.best).unwrap_or_else(|| knob.chosen(chosen));
        let above = values.iter().copied().filter(|value| *value > now);
        let below = values.iter().copied().filter(|value| *value < now).rev();
        let has_gained = self.along(knob, above);
        if !has_gained {
            self.along(knob, below);
        }
        let Some(best) = knob.of(&self.best).filter(|best| knob.has_between() && *best != now) else { return };
        self.along(knob, [best * 2].into_iter());
        if knob.of(&self.best) == Some(best) {
            self.along(knob, [best / 2].into_iter().filter(|value| *value > 0));
        }
    }

    fn along(&mut self, knob: Knob, values: impl Iterator<Item = u64>) -> bool {
        let mut has_gained = false;
        let mut flat = 0;
        for value in values {
            let config = self.plain(knob.with(&self.best, Some(value)));
            match self.gain_of(&config) {
                Some(gain) if gain > self.gain * self.step => {
                    (self.best, self.gain, has_gained, flat) = (config, gain, true, 0);
                }
                // Less: it is downhill from here.
                Some(gain) if gain * self.step < self.gain => break,
                Some(_) if flat < knob.patience() => flat += 1,
                _ => break,
            }
        }
        has_gained
    }

    fn gain_of(&mut self, config: &Config) -> Option<f64> {
        if self.is_over {
            return None;
        }
        if let Some(tried) = self.tried.iter().find(|tried| tried.config == *config) {
            return tried.gain;
        }
        let (shown, why) = match (self.measure)(config) {
            Reading::Seen(shown) => (Some(shown), None),
            Reading::Refused(why) => (None, Some(why)),
            Reading::Over => {
                self.is_over = true;
                return None;
            }
        };
        let (rate, gain) = (shown.map(|shown| shown.rate), shown.map(|shown| shown.gain));
        self.tried.push(Tried { what: words(config), config: config.clone(), rate, gain, why });
        shown.iter().for_each(|shown| self.learn(config, shown));
        gain
    }

    /// What the loader chose where this left it free, and how noisy the machine is.
    fn learn(&mut self, config: &Config, shown: &Shown) {
        self.step = STEP.max(1.0 + shown.spread);
        for knob in Knob::by(Bottleneck::Unknown) {
            let is_known = self.defaults.iter().any(|(known, _)| *known == knob);
            if let Some(value) = knob.default_of(&shown.chosen).filter(|_| !is_known && knob.of(config).is_none()) {
                self.defaults.push((knob, value));
            }
        }
    }

    /// The configuration without the settings that only say what the loader chooses anyway.
    fn plain(&self, config: Config) -> Config {
        let is_default = |config: &Config, (knob, value): (Knob, u64)| knob.of(config) == Some(value);
        self.defaults.iter().fold(config, |config, &default| {
            if is_default(&config, default) { default.0.with(&config, None) } else { config }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// A machine by the laws: reads wait, cost the device time each and for their bytes, and cost a processor time.
    struct Machine {
        latency: f64,
        operations: f64,
        bandwidth: f64,
        per_read: f64,
        decode: f64,
        processors: usize,
        crowd: f64,
        sample_bytes: f64,
        gap_bytes: f64,
    }

    impl Machine {
        fn of(random: &mut Xoshiro256PlusPlus) -> Machine {
            let mut between = |from: f64, to: f64| {
                let share = f64::from(random.next_u32()) / f64::from(u32::MAX);
                (from.ln() + (to.ln() - from.ln()) * share).exp()
            };
            Machine {
                latency: between(50e-6, 50e-3),
                operations: between(200.0, 500e3),
                bandwidth: between(50e6, 5e9),
                per_read: between(1e-6, 20e-6),
                decode: between(1e-9, 5e-3),
                processors: 8,
                crowd: between(300.0, 5000.0),
                sample_bytes: between(1e3, 1e6),
                gap_bytes: between(1e3, 1e6),
            }
        }

        fn chosen(&self) -> Chosen {
            Chosen {
                depth: 64,
                read_bytes: 256 << 10,
                memory_limit: 256 << 20,
                memory_most: 2 << 30,
                processors: self.processors,
                threads: self.processors,
                reads_by_threads: false,
                is_direct: true,
                joins: false,
                decodes: true,
            }
        }

        /// What a quiet machine shows of these rates.
        fn shows(&self, rate: f64, start: f64) -> Shown {
            Shown { rate, gain: rate / start, spread: 0.0, chosen: self.chosen() }
        }

        /// Samples a second: the least of what storage, reactor and decoding allow.
        fn rate(&self, config: &Config) -> f64 {
            let depth = config.queue_depth.unwrap_or(64) as f64;
            let most = config.read_size.unwrap_or(256 << 10) as f64;
            let joined = config.coalesce_gap.unwrap_or(0) as f64 >= self.gap_bytes;
            let (samples, bytes) =
                if joined { (2.0, 2.0 * self.sample_bytes + self.gap_bytes) } else { (1.0, self.sample_bytes) };
            let reads = (bytes / most).ceil().max(1.0);
            // Beyond what a device likes, more reads in flight cost a little.
            let crowded = 1.0 / (1.0 + (depth / self.crowd).powi(2));
            let storage =
                (depth / self.latency / reads).min(self.operations / reads).min(self.bandwidth / bytes) * crowded;
            let threads = config.num_threads.unwrap_or(self.processors).clamp(1, self.processors) as f64;
            (storage * samples).min(samples / (self.per_read * reads)).min(threads / self.decode)
        }

        /// The best of all combinations.
        fn sweep(&self) -> f64 {
            let chosen = self.chosen();
            let mut best: f64 = 0.0;
            for depth in Knob::Depth.values(&chosen) {
                for bytes in Knob::ReadSize.values(&chosen) {
                    for gap in Knob::Gap.values(&chosen) {
                        for threads in Knob::Threads.values(&chosen) {
                            let mut config = Config::default();
                            for (knob, value) in [
                                (Knob::Depth, depth),
                                (Knob::ReadSize, bytes),
                                (Knob::Gap, gap),
                                (Knob::Threads, threads),
                            ] {
                                config = knob.with(&config, Some(value));
                            }
                            best = best.max(self.rate(&config));
                        }
                    }
                }
            }
            best
        }
    }

    #[test]
    fn from_any_start_it_comes_near_the_best_of_a_sweep() {
        let (mut near, mut most) = (0, 0);
        const MACHINES: u64 = 300;
        for seed in 0..MACHINES {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let machine = Machine::of(&mut random);
            let mut start = Config::default();
            for knob in [Knob::Depth, Knob::ReadSize, Knob::Gap, Knob::Threads] {
                let values = knob.values(&machine.chosen());
                start = knob.with(&start, Some(values[random.next_u32() as usize % values.len()]));
            }
            let mut noise = random.clone();
            let first = machine.rate(&start);
            let mut measure = |config: &Config| {
                let noise = 0.99 + 0.02 * f64::from(noise.next_u32()) / f64::from(u32::MAX);
                Reading::Seen(machine.shows(machine.rate(config) * noise, first))
            };
            let mut climb = Climb::new(&start, machine.shows(first, first), &mut measure);
            climb.leave_to_the_loader();
            climb.read_long();
            climb.turn(&Knob::by(Bottleneck::Unknown), &machine.chosen());
            climb.prune();
            let found = machine.rate(&climb.best);
            near += u64::from(found >= 0.95 * machine.sweep());
            most = most.max(climb.tried.len());
        }
        assert!(near >= MACHINES * 97 / 100, "near the best on {near} of {MACHINES}");
        assert!(most <= 40, "{most} measurements");
    }

    #[test]
    fn what_brings_nothing_is_left_to_the_loader_and_the_end_of_time_ends_it() {
        let start = Config { queue_depth: Some(2), read_size: Some(64 << 10), ..Config::default() };
        // Only depth counts, and the loader's own choice of it is bad.
        let machine = Machine::of(&mut Xoshiro256PlusPlus::seed_from_u64(0));
        let rate = |config: &Config| config.queue_depth.unwrap_or(8).min(256) as f64;
        let show = |config: &Config| Reading::Seen(machine.shows(rate(config), 2.0));
        let mut measure = |config: &Config| match config.io {
            uringload::config::IoChoice::Buffered => Reading::Refused("no".to_owned()),
            _ => show(config),
        };
        let first = machine.shows(2.0, 2.0);
        let mut climb = Climb::new(&start, first, &mut measure);
        climb.leave_to_the_loader();
        climb.turn(&Knob::by(Bottleneck::Latency), &machine.chosen());
        climb.prune();
        assert_eq!(words(&climb.best), "queue_depth = 256");
        assert!(climb.tried.iter().any(|tried| tried.rate.is_none()), "what cannot be is told");
        let mut left = 2;
        let mut short = |config: &Config| {
            left -= 1;
            if left < 0 { Reading::Over } else { show(config) }
        };
        let mut climb = Climb::new(&start, first, &mut short);
        climb.leave_to_the_loader();
        climb.turn(&Knob::by(Bottleneck::Latency), &machine.chosen());
        climb.prune();
        assert_eq!((climb.tried.len(), left), (3, -1));
    }

    #[test]
    fn what_the_loader_chooses_anyway_is_no_new_value_and_noise_is_no_step() {
        let machine = Machine::of(&mut Xoshiro256PlusPlus::seed_from_u64(0));
        for spread in [0.0, 0.3] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
            // Nothing changes anything.
            let mut measure = |_: &Config| {
                let gain = 1.0 + 0.25 * f64::from(random.next_u32()) / f64::from(u32::MAX);
                Reading::Seen(Shown { rate: gain, gain, spread, chosen: machine.chosen() })
            };
            let start = Config::default();
            let first = Shown { rate: 1.0, gain: 1.0, spread, chosen: machine.chosen() };
            let mut climb = Climb::new(&start, first, &mut measure);
            // What a raw read found is what the loader found.
            climb.consider(Config { queue_depth: Some(64), read_size: Some(256 << 10), ..start.clone() });
            climb.turn(&Knob::by(Bottleneck::Unknown), &machine.chosen());
            let known = |config: &Config| {
                let says = |knob: Knob| knob.of(config) == knob.default_of(&machine.chosen());
                Knob::by(Bottleneck::Unknown).into_iter().any(|knob| knob.of(config).is_some() && says(knob))
            };
            let told = climb.tried.iter().filter(|tried| known(&tried.config)).map(|tried| &tried.what);
            assert_eq!(told.collect::<Vec<_>>(), Vec::<&String>::new());
            assert_eq!(climb.best == start, spread > 0.0, "{}", words(&climb.best));
        }
    }
}

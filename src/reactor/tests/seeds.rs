//! How many worlds the simulator makes, and which one failed.

/// Runs each seed: so many in the quick suite, and as many as `URINGLOAD_SEEDS` says in the slow one. That of a panic
/// is printed, so that the failure can be reproduced. Returns how many there were.
pub(in crate::reactor) fn each_seed(quick: u64, mut run: impl FnMut(u64)) -> u64 {
    let seeds = std::env::var("URINGLOAD_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(quick);
    (0..seeds).for_each(|seed| with_seed(seed, || run(seed)));
    seeds
}

/// Runs this one, and prints it if that panics.
pub(in crate::reactor) fn with_seed(seed: u64, run: impl FnOnce()) {
    let printed = PrintSeed(seed);
    run();
    drop(printed);
}

struct PrintSeed(u64);

impl Drop for PrintSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed at seed {}", self.0);
        }
    }
}

//! Runs the worlds of the simulator, and reports which seed failed.

/// Runs each seed: `quick` in the quick suite, and as many as `URINGLOAD_SEEDS` says in the slow one. Prints the seed
/// of a panic, which `URINGLOAD_SEED` runs alone. Returns the number of seeds.
pub(in crate::reactor) fn each_seed(quick: u64, mut run: impl FnMut(u64)) -> u64 {
    let told = |name| std::env::var(name).ok().and_then(|told| told.parse().ok());
    if let Some(seed) = told("URINGLOAD_SEED") {
        with_seed(seed, || run(seed));
        return 1;
    }
    let seeds = told("URINGLOAD_SEEDS").unwrap_or(quick);
    (0..seeds).for_each(|seed| with_seed(seed, || run(seed)));
    seeds
}

/// Runs this seed, and prints it on a panic.
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

//! Measures the cost of a state in microseconds: to take one from a loader and write it as JSON, to read it, to check
//! it, and to find the samples of the batch it stands before, in the middle of 10^9. `cargo bench --bench state`.
//!
//! Each number is the best of several runs: the one that other processes disturbed least. The program prints lengths,
//! so that the work cannot be optimized away.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use uringload::Loader;
use uringload::State;
use uringload::config::Config;
use uringload::config::EngineChoice;
use uringload::dataset::{self, Dataset, FileTable, Options};
use uringload::inspect::Identity;
use uringload::sampler::{Cursor, Order, Selection, epoch_digest, for_dataset};

const RUNS: usize = 7;
const TIMES: u32 = 1000;
const SAMPLES: u64 = 1_000_000_000;
const RECORD_BYTES: u64 = 4096;

fn main() {
    let mut files = FileTable::new();
    files.push_root("/simulated");
    files.push(b"records", SAMPLES * RECORD_BYTES).expect("a table has room");
    let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
    let dataset: Arc<dyn Dataset> = dataset::inspect::of_files(files, &options).expect("records");
    let builder = Loader::builder(Arc::clone(&dataset)).shuffle(true).seed(42).engine(EngineChoice::Sim);
    let loader = builder.start(Cursor::new(3, SAMPLES / 2)).build().expect("a loader");
    let text = loader.state().to_json();
    let state = State::from_json(&text).expect("a state");
    println!("a state has {} bytes", text.len());

    report("state", || loader.state().length);
    report("state, to_json", || loader.state().to_json().len() as u64);
    report("from_json", || State::from_json(black_box(&text)).expect("a state").length);
    report("from_json, checks, the next batch of 64", || {
        let state = State::from_json(black_box(&text)).expect("a state");
        let sampler = for_dataset(&*dataset, true.into(), 42).expect("an order");
        state.check_dataset(&Identity::of(&*dataset)).expect("this dataset");
        state.check_order(&*sampler).expect("this order");
        let config = Config { batch_size: 64, start: state.cursor(), epochs: None, ..Config::default() };
        let order = Order::new(&config, Arc::clone(&dataset), sampler).expect("an order");
        let mut batch = Selection::default();
        assert!(order.walk().next(&mut batch), "endless");
        batch.ids[0].0
    });
    let sampler = for_dataset(&*dataset, true.into(), 42).expect("an order");
    report("epoch_digest of 64 samples", || epoch_digest(&*sampler, 3, state.cursor().position..SAMPLES / 2 + 64).sum);
}

fn report(what: &str, work: impl Fn() -> u64) {
    let mut best = f64::MAX;
    let mut last = 0;
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..TIMES {
            last = black_box(work());
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES));
    }
    println!("{what:<50} {best:>8.2} us  {last:016x}");
}

//! Batches on plain threads: `cargo run --release --example threads -- DIR`.
//!
//! A loader is an iterator, so one thread needs only `for batch in loader`. Here several threads take turns: a batch
//! may go to any thread, and returns its memory when that thread drops it.

use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Instant;
use uringload::batch::Batch;
use uringload::dataset::{self, Options};
use uringload::{Loader, Result};

/// Hands every batch to `train` on one of `workers` threads. The first error ends them all.
pub fn consume(loader: Loader, workers: usize, train: impl Fn(Batch) + Sync) -> Result<()> {
    let loader = Mutex::new(loader);
    // A separate closure, so that the lock is not held while the batch is used.
    let next = || loader.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<()> {
        while let Some(batch) = next() {
            train(batch?);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let dataset = dataset::open(&[folder], &Options::new().format("folder"))?;
    let loader = Loader::builder(dataset).batch_size(64).shuffle(true).seed(42).build()?;
    let route = loader.route();
    println!("{route}");
    for step in &route.fallbacks {
        println!("{step}");
    }
    let (stats, start) = (loader.stats(), Instant::now());
    consume(loader, available_parallelism().map_or(1, Into::into), drop)?;
    let seconds = start.elapsed().as_secs_f64();
    let snapshot = stats.snapshot();
    let bytes = snapshot.count.bytes_delivered;
    println!("{} samples, {bytes} bytes, {:.0} MB/s", snapshot.count.samples, bytes as f64 / seconds / 1e6);
    println!("{}", snapshot.verdict(None).advice);
    Ok(())
}

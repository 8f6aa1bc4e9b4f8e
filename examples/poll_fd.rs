//! Batches in your own event loop: `cargo run --release --example poll_fd -- DIR`.
//!
//! `ready_fd` is readable while there is a batch to take, so it goes into the same `poll(2)` or `epoll(7)` as your
//! sockets and timers. Once you have asked for it, each batch costs one more system call.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::error::Error;
use uringload::batch::Batch;
use uringload::dataset::{self, Options};
use uringload::{Loader, Result};

/// Hands every batch to `train`, and calls `idle` whenever a tenth of a second brings none.
pub fn consume(mut loader: Loader, mut train: impl FnMut(Batch), mut idle: impl FnMut()) -> Result<(), Box<dyn Error>> {
    const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !loader.is_empty() {
        // Readability does not say how many batches are ready: take all of them.
        while let Some(batch) = loader.try_next()? {
            train(batch);
        }
        if loader.is_empty() {
            break;
        }
        let mut watched = [PollFd::from_borrowed_fd(loader.ready_fd()?, PollFlags::IN)];
        match poll(&mut watched, Some(&TICK)) {
            Ok(0) => idle(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let dataset = dataset::open(&[folder], &Options::new().format("folder"))?;
    let loader = Loader::builder(dataset).batch_size(64).shuffle(true).seed(42).build()?;
    let (mut samples, mut bytes) = (0, 0);
    let train = |batch: Batch| {
        samples += batch.len();
        bytes += batch.bytes();
    };
    consume(loader, train, || println!("waiting"))?;
    println!("{samples} samples, {bytes} bytes");
    Ok(())
}

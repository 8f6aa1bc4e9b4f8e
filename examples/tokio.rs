//! Batches on tokio, on both of its runtimes: `cargo run --release --example tokio -- DIR`.
//!
//! A loader has a [`futures_core::Stream`]: it reads on its own thread and wakes the task that awaits a batch. It needs
//! no feature of the runtime. Its drop blocks, because it waits for the reads in flight; `close` is awaited instead.

use futures_util::StreamExt;
use std::error::Error;
use std::sync::Arc;
use tokio::runtime;
use uringload::batch::Batch;
use uringload::dataset::{self, Dataset, Options};
use uringload::{Loader, Result};

/// Awaits every batch and hands it to `train`.
pub async fn consume(mut loader: Loader, mut train: impl FnMut(Batch)) -> Result<()> {
    let mut batches = loader.stream();
    while let Some(batch) = batches.next().await {
        train(batch?);
        // Awaiting a batch that is ready does not yield, so give other tasks a turn even if the disk is faster.
        tokio::task::yield_now().await;
    }
    // Dropping it would block this task until the reads in flight have ended, if there were any.
    loader.close().await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let dataset: Arc<dyn Dataset> = dataset::open(&[folder], &Options::new().format("folder"))?;
    let loader = Loader::builder(Arc::clone(&dataset)).shuffle(true).seed(42);

    let mut samples = 0;
    let runtime = runtime::Builder::new_current_thread().build()?;
    runtime.block_on(consume(loader.clone().build()?, |batch| samples += batch.len()))?;
    println!("{samples} samples on the current thread");

    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let task = runtime.spawn(async move {
        let mut bytes = 0;
        consume(loader.build()?, |batch| bytes += batch.bytes()).await?;
        uringload::Result::<u64>::Ok(bytes)
    });
    println!("{} bytes on several threads", runtime.block_on(task)??);
    Ok(())
}

//! Batches on tokio-uring: `cargo run --release --example tokio_uring -- DIR [CHECKPOINT]`.
//!
//! Two rings in one process: tokio-uring's, on the thread of the task, does the program's own I/O (here it writes down
//! how far the training is), and the loader's, on the loader's thread, reads the samples. The task awaits both.

use futures_util::StreamExt;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use tokio_uring::Runtime;
use tokio_uring::fs::File;
use uringload::Loader;
use uringload::batch::Batch;
use uringload::dataset::{self, Options};
use uringload::sampler::Cursor;

/// Awaits every batch, hands it to `train`, and writes the position after it to `checkpoint`.
pub async fn consume(
    mut loader: Loader,
    checkpoint: &Path,
    mut train: impl FnMut(Batch),
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let file = File::create(checkpoint).await?;
    let mut batches = loader.stream();
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        let next = batch.next;
        train(batch);
        save(&file, next).await?;
    }
    file.sync_all().await?;
    Ok(file.close().await?)
}

/// Writes one line of fixed length, so that a later position overwrites an earlier one completely.
async fn save(file: &File, next: Cursor) -> io::Result<()> {
    let line = format!("{:020} {:020}\n", next.epoch, next.position).into_bytes();
    let (result, _line) = file.write_all_at(line, 0).await;
    result
}

/// Runs `task` on its own tokio-uring runtime.
///
/// # Errors
/// If io_uring is not available; `tokio_uring::start` would panic.
pub fn start<T>(task: impl Future<Output = T>) -> io::Result<T> {
    Ok(Runtime::new(&tokio_uring::builder())?.block_on(task))
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().unwrap_or_else(|| ".".into());
    let checkpoint = arguments.next().map_or_else(|| std::env::temp_dir().join("uringload.checkpoint"), PathBuf::from);
    let dataset = dataset::open(&[folder], &Options::new().format("folder"))?;
    let loader = Loader::builder(dataset).batch_size(64).shuffle(true).seed(42).build()?;
    let (mut samples, mut bytes) = (0, 0);
    start(consume(loader, &checkpoint, |batch| {
        samples += batch.len();
        bytes += batch.bytes();
    }))??;
    println!("{samples} samples, {bytes} bytes; the place after them is in {}", checkpoint.display());
    Ok(())
}

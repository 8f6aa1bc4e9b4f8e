//! Batches on a plain thread: `cargo run --release --example threads -- DIR`.

use std::sync::Arc;
use std::time::Instant;
use uringload::dataset::Folder;
use uringload::loader::Loader;

fn main() -> uringload::Result<()> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let dataset = Arc::new(Folder::open(&[folder])?);
    let loader = Loader::builder(dataset).batch_size(64).shuffle(true).seed(42).build()?;
    println!("{}", loader.route());
    for step in &loader.route().fallbacks {
        println!("{step}");
    }
    let stats = loader.stats();
    let start = Instant::now();
    let (mut samples, mut bytes) = (0, 0);
    for batch in loader {
        let batch = batch?;
        samples += batch.len();
        bytes += batch.bytes();
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{samples} samples, {bytes} bytes, {:.0} MB/s", bytes as f64 / seconds / 1e6);
    println!("{}", stats.snapshot().verdict(None).advice);
    Ok(())
}

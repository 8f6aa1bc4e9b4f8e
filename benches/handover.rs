//! Measures how long a consumer takes to get a batch that is ready, in microseconds: `cargo bench --bench handover --
//! FILE RECORD_BYTES BATCH` reads batches of BATCH records of a file; without arguments, it makes a small file.
//! benches/peers/python_handover.py takes the same arguments and measures the same in Python.
//!
//! Before each batch the consumer computes until it has been read, as a trainer does, and drops the previous batch;
//! that is not timed. Most of what remains is waking the sleeping reader thread, which has room for a batch again.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::Loader;
use uringload::config::{Collate, IoChoice};
use uringload::dataset::{self, Dataset, Options};

const BATCHES: usize = 300;
const COMPUTE: Duration = Duration::from_millis(10);
/// Bytes per record of the small file.
const RECORD_BYTES: usize = 4096;
const BATCH: u64 = 64;

fn main() {
    // `cargo bench` adds arguments of its own.
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let (dense, views) = match &given[..] {
        [file, record_bytes, batch] => {
            let record_bytes = record_bytes.parse().expect("RECORD_BYTES is a number");
            measure(Path::new(file), record_bytes, batch.parse().expect("BATCH is a number"))
        }
        _ => {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            file.write_all(&vec![7; RECORD_BYTES * BATCH as usize * (BATCHES + 2)]).expect("room for 79 MB");
            measure(file.path(), RECORD_BYTES as u64, BATCH)
        }
    };
    println!("{{\"dense_us\": {dense:.3}, \"list_us\": {views:.3}}}");
}

fn measure(file: &Path, record_bytes: u64, batch: u64) -> (f64, f64) {
    let options = Options::new().format("records").set("record_bytes", record_bytes);
    let dataset: Arc<dyn Dataset> = dataset::open(&[file], &options).expect("a file of records");
    let handover = |collate| {
        let builder = Loader::builder(Arc::clone(&dataset)).batch_size(batch).io(IoChoice::Direct);
        let mut loader = builder.collate(collate).epochs(1).build().expect("a loader");
        let mut took = Vec::with_capacity(BATCHES);
        let mut got = loader.next();
        for _ in 0..BATCHES.min(loader.remaining().unwrap_or(0).saturating_sub(1) as usize) {
            drop(got.take());
            let ready = Instant::now() + COMPUTE;
            while Instant::now() < ready {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            got = loader.next();
            took.push(start.elapsed().as_secs_f64() * 1e6);
            assert!(matches!(got, Some(Ok(_))), "a batch could not be read");
        }
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    };
    (handover(Collate::Auto), handover(Collate::Views))
}

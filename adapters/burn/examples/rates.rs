//! uringload beside burn's own loader, on the same files, in turns: `cargo run --release -p uringload-burn --example
//! rates -- [FOLDER] [ROUNDS]`. Prints a line of JSON for each case: medians, and the ratio of this loader to burn's.
//!
//! - `files, cold`: 2 000 files of 110 KB, whose pages are dropped before each pass, which is one epoch. burn's dataset
//!   reads a file for each item, with two workers and with eight.
//! - `records, cached`: three epochs of 120 000 records of 784 bytes in one file, in the page cache. burn's dataset
//!   reads each by `pread`.
//! - `records, in memory`: burn's `InMemDataset` has them all as items; here they are kept by `Cache::Memory`, after an
//!   epoch that is not measured.
//!
//! Each pass has a loader of its own, so that nothing is read ahead for one while the other is measured.
//!
//! Both end in burn's `TensorData`, `[64, bytes]` of `u8`: what a backend makes of it is the same. FOLDER is where the
//! data is made and deleted again; a fast disk tells more than this one may be.

use burn_core::data::dataloader::batcher::Batcher;
use burn_core::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn_core::data::dataset::{Dataset, DatasetError, InMemDataset};
use burn_core::tensor::{Device, TensorData};
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::batch::Batch;
use uringload::config::{Cache, Collate, Padding};
use uringload::dataset::{self, Options};
use uringload::{Builder, ErrorKind, Loader};
use uringload_burn::{BurnLoader, tensor_data};
use uringload_sys::system::cpu_time;

type Failure = Box<dyn Error>;
type Loading = Arc<dyn DataLoader<TensorData>>;
/// A loader's name, and how one is made.
type Named<'a> = (&'a str, Box<dyn Fn() -> Result<Loading, Failure> + 'a>);

const FILES: usize = 2_000;
const FILE_BYTES: usize = 110 << 10;
const RECORDS: usize = 120_000;
const RECORD_BYTES: usize = 784;
const BATCH: usize = 64;

/// A file for each item, as `std` reads it.
struct Files(Vec<PathBuf>);

impl Dataset<Vec<u8>> for Files {
    fn get(&self, index: usize) -> Result<Vec<u8>, DatasetError> {
        fs::read(&self.0[index]).map_err(DatasetError::new)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Records of one file.
struct Records(File);

impl Dataset<Vec<u8>> for Records {
    fn get(&self, index: usize) -> Result<Vec<u8>, DatasetError> {
        let mut record = vec![0; RECORD_BYTES];
        self.0.read_exact_at(&mut record, (index * RECORD_BYTES) as u64).map_err(DatasetError::new)?;
        Ok(record)
    }

    fn len(&self) -> usize {
        RECORDS
    }
}

/// Items side by side.
struct Stack;

impl Batcher<Vec<u8>, TensorData> for Stack {
    fn batch(&self, items: Vec<Vec<u8>>, _: &Device) -> TensorData {
        let shape = [items.len(), items[0].len()];
        TensorData::new(items.concat(), shape)
    }
}

fn burns(dataset: impl Dataset<Vec<u8>> + 'static, workers: usize) -> Loading {
    DataLoaderBuilder::new(Stack).batch_size(BATCH).shuffle(1).num_workers(workers).build(dataset)
}

/// Files may have any length, so theirs are padded to the longest of the batch, which all are.
fn ours(builder: Builder, collate: Collate) -> Result<Loading, Failure> {
    let builder = builder.batch_size(BATCH as u64).collate(collate).shuffle(uringload::config::Shuffle::Full);
    let batcher = |batch: Batch, _: &Device| {
        let missing = || uringload::Error::new(ErrorKind::InvalidArgument, "no column \"data\"");
        tensor_data(batch.column("data").ok_or_else(missing)?)
    };
    Ok(Arc::new(BurnLoader::new(builder.seed(1), batcher)?))
}

/// So many epochs: items a second, and CPU time of the process for each item, in microseconds.
fn pass(loader: &Loading, epochs: usize) -> Result<(f64, f64), Failure> {
    let (start, cpu, mut items, mut bytes) = (Instant::now(), cpu_time(), 0, 0);
    for _ in 0..epochs {
        for data in loader.iter() {
            let data = data?;
            items += data.shape().as_slice()[0];
            // A byte of each page, as whoever uses it would.
            bytes += data.as_bytes().iter().step_by(4096).map(|&byte| u64::from(byte)).sum::<u64>();
        }
    }
    let (wall, cpu) = (start.elapsed(), cpu_time() - cpu);
    std::hint::black_box(bytes);
    let each = |time: Duration| time.as_secs_f64() / items as f64;
    Ok((1.0 / each(wall), each(cpu) * 1e6))
}

/// Drops the files' pages.
fn drop_pages(paths: &[PathBuf]) -> Result<(), Failure> {
    for path in paths {
        let file = File::open(path)?;
        uringload_sys::file::evict(file.as_fd())?;
    }
    Ok(())
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// What a pass is.
struct Pass<'a> {
    case: &'a str,
    /// Epochs that are not measured, and epochs that are.
    epochs: [usize; 2],
    /// Files whose pages are dropped before it.
    cold: &'a [PathBuf],
}

/// A pass of each loader in each round, and its result.
fn compare(&Pass { case, epochs, cold }: &Pass<'_>, loaders: &[Named<'_>], rounds: usize) -> Result<(), Failure> {
    let mut took = vec![(Vec::new(), Vec::new()); loaders.len()];
    for _ in 0..rounds {
        for ((_, make), (rates, cpu)) in loaders.iter().zip(&mut took) {
            let loader = make()?;
            drop_pages(cold)?;
            pass(&loader, epochs[0])?;
            let (rate, each) = pass(&loader, epochs[1])?;
            rates.push(rate);
            cpu.push(each);
        }
    }
    let medians: Vec<(f64, f64)> = took.into_iter().map(|(rates, cpu)| (median(rates), median(cpu))).collect();
    let (rate, cpu) = medians[0];
    for ((name, _), (other, burnt)) in loaders.iter().zip(&medians) {
        println!(
            "{{\"case\": {case:?}, \"loader\": {name:?}, \"items_per_s\": {other:.0}, \"cpu_us\": {burnt:.2}, \
             \"rate_ratio\": {:.2}, \"cpu_ratio\": {:.2}}}",
            rate / other,
            cpu / burnt
        );
    }
    Ok(())
}

/// Bytes that no compression and no cache of zeros makes shorter.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(bytes).collect()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folder = folder.join("files");
    fs::create_dir(&folder)?;
    let mut paths = Vec::with_capacity(FILES);
    for number in 0..FILES {
        let path = folder.join(format!("{number:05}.bin"));
        let mut file = File::create(&path)?;
        file.write_all(&noise(FILE_BYTES, number as u64 * 77 + 5))?;
        // Pages that are not written yet cannot be dropped.
        file.sync_data()?;
        paths.push(path);
    }
    Ok(paths)
}

fn main() -> Result<(), Failure> {
    let mut given = std::env::args().skip(1);
    let folder = given.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let rounds = given.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let folder = tempfile::tempdir_in(folder)?;

    let paths = files(folder.path())?;
    let dataset = dataset::open(&[folder.path().join("files")], &Options::new().format("folder"))?;
    let padded = Collate::Padded(Padding::default());
    let cold: [Named<'_>; 3] = [
        ("uringload", Box::new(|| ours(Loader::builder(Arc::clone(&dataset)), padded))),
        ("burn, 2 workers", Box::new(|| Ok(burns(Files(paths.clone()), 2)))),
        ("burn, 8 workers", Box::new(|| Ok(burns(Files(paths.clone()), 8)))),
    ];
    compare(&Pass { case: "files, cold", epochs: [0, 1], cold: &paths }, &cold, rounds)?;

    let path = folder.path().join("records.bin");
    fs::write(&path, noise(RECORDS * RECORD_BYTES, 9))?;
    let options = Options::new().format("records").set("record_bytes", RECORD_BYTES as u64);
    let dataset = dataset::open(&[&path], &options)?;
    let cached: [Named<'_>; 3] = [
        ("uringload", Box::new(|| ours(Loader::builder(Arc::clone(&dataset)), Collate::Dense))),
        ("burn, no worker", Box::new(|| Ok(burns(Records(File::open(&path)?), 0)))),
        ("burn, 2 workers", Box::new(|| Ok(burns(Records(File::open(&path)?), 2)))),
    ];
    compare(&Pass { case: "records, cached", epochs: [0, 3], cold: &[] }, &cached, rounds)?;

    let items: Vec<Vec<u8>> = fs::read(&path)?.chunks(RECORD_BYTES).map(<[u8]>::to_vec).collect();
    let in_memory: [Named<'_>; 3] = [
        (
            "uringload, cache = memory",
            Box::new(|| ours(Loader::builder(Arc::clone(&dataset)).cache(Cache::Memory), Collate::Dense)),
        ),
        ("burn, InMemDataset, no worker", Box::new(|| Ok(burns(InMemDataset::new(items.clone()), 0)))),
        ("burn, InMemDataset, 2 workers", Box::new(|| Ok(burns(InMemDataset::new(items.clone()), 2)))),
    ];
    compare(&Pass { case: "records, in memory", epochs: [1, 3], cold: &[] }, &in_memory, rounds)
}

//! The files to read: data like that of benches/data.py, but less of it, so that it is made in seconds. Files that
//! exist with the right size are kept.

use crate::machine::{Outcome, random};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use uringload::dataset::{self, Dataset, Options};

const RECORD_BYTES: u64 = 150_528;
const SMALL_MEAN_BYTES: f64 = 110_000.0;
const SMALL_SIGMA: f64 = 0.5;
const LARGE_BYTES: u64 = 140_000_000;
/// Bytes written by one call.
const CHUNK_BYTES: u64 = 8 << 20;
const WRITERS: usize = 8;

/// One set of data, with its batch size.
pub struct Work {
    pub name: &'static str,
    pub dataset: Arc<dyn Dataset>,
    pub batch_size: u64,
}

/// Makes the files below `folder` and opens them.
pub fn works(folder: &Path, is_tiny: bool) -> Outcome<Vec<Work>> {
    make(folder, is_tiny)?;
    let small: Arc<dyn Dataset> = dataset::open(&[folder.join("small")], &Options::new().format("folder"))?;
    let large: Arc<dyn Dataset> = dataset::open(&[folder.join("large")], &Options::new().format("folder"))?;
    Ok(vec![
        Work { name: "small", dataset: small, batch_size: 64 },
        Work { name: "records", dataset: records(folder)?, batch_size: 64 },
        Work { name: "large", dataset: large, batch_size: 1 },
    ])
}

/// The data made of images, one record each.
pub fn records(folder: &Path) -> Outcome<Arc<dyn Dataset>> {
    let shape = vec![224, 224, 3];
    let options = Options::new().format("records").set("record_bytes", RECORD_BYTES).set("shape", shape);
    Ok(dataset::open(&[folder.join("records/records.bin")], &options)?)
}

/// Writes the files that are missing; all sets of data have about as many bytes.
fn make(folder: &Path, is_tiny: bool) -> Outcome<()> {
    let (small, records, large) = if is_tiny { (500, 500, 2) } else { (20_000, 20_000, 20) };
    let mut law = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut unit = || (law.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mean = SMALL_MEAN_BYTES.ln() - SMALL_SIGMA * SMALL_SIGMA / 2.0;
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    for number in 0..small {
        // The Box-Muller transform, with 1 - u because u may be 0.
        let normal = (-2.0 * (1.0 - unit()).ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        let name = format!("small/class_{:03}/{number:05}.bin", number % 100);
        files.push((folder.join(name), (mean + SMALL_SIGMA * normal).exp().max(1.0) as u64));
    }
    files.push((folder.join("records/records.bin"), records * RECORD_BYTES));
    for number in 0..large {
        let bytes = if is_tiny { LARGE_BYTES / 10 } else { LARGE_BYTES };
        files.push((folder.join(format!("large/volume_{number:02}.bin")), bytes + 1_234_567 * (number % 7)));
    }
    let has_size = |path: &Path, size: u64| std::fs::metadata(path).is_ok_and(|found| found.len() == size);
    files.retain(|(path, size)| !has_size(path, *size));
    for (path, _) in &files {
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
    }
    write(&files)?;
    rustix::fs::sync();
    Ok(())
}

/// Writes random bytes to the files, on several threads.
fn write(files: &[(PathBuf, u64)]) -> Outcome<()> {
    let chunks = |(path, size): &(PathBuf, u64)| {
        let (path, size) = (path.clone(), *size);
        (0..size).step_by(CHUNK_BYTES as usize).map(move |start| (path.clone(), start, CHUNK_BYTES.min(size - start)))
    };
    let chunks: Vec<_> = files.iter().flat_map(chunks).collect();
    let next = AtomicUsize::new(0);
    let writer = || -> std::io::Result<()> {
        while let Some((path, start, len)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let file = File::options().write(true).create(true).truncate(false).open(path)?;
            let seed = start ^ (path.as_os_str().len() as u64) << 40 ^ len << 48;
            file.write_all_at(&random(*len as usize, seed), *start)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
        for writer in writers {
            writer.join().map_err(|_| "a thread that writes panicked")??;
        }
        Ok(())
    })
}

//! Measures a `Reader`: `cargo bench --bench reader -- [FOLDER] [ROUNDS]` makes 2 000 files of 110 KB in FOLDER,
//! deletes them again, and prints lines of JSON, medians of the rounds.
//!
//! - `one`: a file that is in the page cache, by `Reader::read` in the thread that asks, by `submit` and `next`, and by
//!   `std::fs::read`, which opens it each time. Microseconds, of wall and of CPU time.
//! - `many`: all files past the page cache in a random order, by a reader with 64 requests in flight and by a loader
//!   with batches of 64, in turns, each made anew. Files a second, CPU time a file, and the ratio of the rates.
//!
//! Without arguments, as `cargo test` runs it, it makes some small files and measures once.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::config::{IoChoice, Shuffle};
use uringload::dataset::{self, Dataset, FileId, Options, SampleId, Span};
use uringload::{Loader, Reader, ReaderOptions};
use uringload_sys::system::cpu_time;

type Failure = Box<dyn Error>;

const IN_FLIGHT: usize = 64;

/// How much is made and read.
struct Size {
    files: u64,
    bytes: u64,
    reads: u64,
    rounds: usize,
}

fn main() -> Result<(), Failure> {
    // `cargo bench` adds arguments of its own.
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match &given[..] {
        [folder, rounds @ ..] => {
            let rounds = rounds.first().map_or(Ok(7), |rounds| rounds.parse())?;
            measure(Path::new(folder), &Size { files: 2_000, bytes: 110 << 10, reads: 2_000, rounds })
        }
        [] => measure(&std::env::temp_dir(), &Size { files: 100, bytes: 20 << 10, reads: 50, rounds: 1 }),
    }
}

fn measure(folder: &Path, size: &Size) -> Result<(), Failure> {
    let folder = tempfile::tempdir_in(folder)?;
    let paths: Vec<PathBuf> = (0..size.files).map(|number| folder.path().join(format!("{number:06}.bin"))).collect();
    for (path, seed) in paths.iter().zip(1..) {
        let bytes: Vec<u8> = (0..size.bytes).map(|at| (at.wrapping_mul(seed) >> 3) as u8).collect();
        fs::write(path, bytes)?;
        fs::File::open(path)?.sync_data()?;
    }
    one(&paths[0], size)?;
    let dataset = dataset::open(&[folder.path()], &Options::new().format("folder"))?;
    many(&dataset, size)
}

/// Wall and CPU time of `work`, in seconds.
fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<(f64, f64), Failure> {
    let (start, cpu) = (Instant::now(), cpu_time());
    work()?;
    let seconds = |time: Duration| time.as_secs_f64();
    Ok((seconds(start.elapsed()), seconds(cpu_time() - cpu)))
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn medians(all: Vec<(f64, f64)>) -> (f64, f64) {
    let (wall, cpu) = all.into_iter().unzip();
    (median(wall), median(cpu))
}

fn one(path: &Path, size: &Size) -> Result<(), Failure> {
    let buffered = ReaderOptions::default().io(IoChoice::Buffered);
    let mut reader = Reader::open(&[path], &buffered)?;
    let span = [Span { file: FileId(0), offset: 0, len: size.bytes }];
    let (mut here, mut there, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        here.push(timed(|| {
            for _ in 0..size.reads {
                drop(reader.read(&span)?);
            }
            Ok(())
        })?);
        there.push(timed(|| {
            for id in 0..size.reads {
                reader.submit(id, &span)?;
                let (_, bytes) = reader.next().ok_or("nothing is in flight")?;
                drop(bytes?);
            }
            Ok(())
        })?);
        plain.push(timed(|| {
            for _ in 0..size.reads {
                drop(fs::read(path)?);
            }
            Ok(())
        })?);
    }
    for (way, all) in [("read", here), ("submit, next", there), ("std::fs::read", plain)] {
        let (wall, cpu) = medians(all);
        let each = |seconds: f64| seconds / size.reads as f64 * 1e6;
        println!(
            "{{\"figure\": \"one\", \"way\": {way:?}, \"bytes\": {}, \"us\": {:.1}, \"cpu_us\": {:.1}}}",
            size.bytes,
            each(wall),
            each(cpu)
        );
    }
    Ok(())
}

fn many(dataset: &Arc<dyn Dataset>, size: &Size) -> Result<(), Failure> {
    let (mut by_reader, mut by_loader, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..size.rounds as u64 {
        let order: Vec<SampleId> = {
            let builder = Loader::builder(Arc::clone(dataset)).shuffle(Shuffle::Full).seed(round).epochs(1);
            builder.order()?.batches().flat_map(|batch| batch.ids).collect()
        };
        let read = || {
            timed(|| {
                let mut reader = Reader::of(Arc::clone(dataset), &ReaderOptions::default().io(IoChoice::Direct))?;
                read_all(&**dataset, &mut reader, &order)
            })
        };
        let load = || {
            timed(|| {
                let builder = Loader::builder(Arc::clone(dataset)).shuffle(Shuffle::Full).seed(round).epochs(1);
                for batch in builder.io(IoChoice::Direct).batch_size(IN_FLIGHT as u64).build()? {
                    drop(batch?);
                }
                Ok(())
            })
        };
        // Who is first has no advantage.
        let (of_reader, of_loader) = if round % 2 == 0 {
            let of_reader = read()?;
            (of_reader, load()?)
        } else {
            let of_loader = load()?;
            (read()?, of_loader)
        };
        ratios.push(of_loader.0 / of_reader.0);
        by_reader.push(of_reader);
        by_loader.push(of_loader);
    }
    let ratio = median(ratios);
    for (way, all) in [("reader, 64 in flight", by_reader), ("loader", by_loader)] {
        let (wall, cpu) = medians(all);
        println!(
            "{{\"figure\": \"many\", \"way\": {way:?}, \"files_per_s\": {:.0}, \"cpu_us\": {:.1}, \
             \"rate_ratio\": {ratio:.3}}}",
            size.files as f64 / wall,
            cpu / size.files as f64 * 1e6
        );
    }
    Ok(())
}

/// Reads every sample, with so many in flight.
fn read_all(dataset: &dyn Dataset, reader: &mut Reader, order: &[SampleId]) -> Result<(), Failure> {
    let (mut wanted, mut spans, mut came) = (order.iter(), Vec::new(), 0);
    loop {
        while reader.in_flight() < IN_FLIGHT
            && let Some(&id) = wanted.next()
        {
            spans.clear();
            dataset.spans(id, &mut spans);
            reader.submit(id.0, &spans)?;
        }
        let Some((_, bytes)) = reader.next() else { break };
        drop(bytes?);
        came += 1;
    }
    if came != order.len() {
        return Err(format!("{came} of {} came", order.len()).into());
    }
    Ok(())
}

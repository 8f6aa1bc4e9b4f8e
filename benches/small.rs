//! Measures what small records cost: CPU time per sample, of the whole process, in microseconds. `cargo bench --bench
//! small -- FILE RECORD_BYTES [ROUNDS]` reads a file of records; without arguments, it makes a small one. Each way is
//! measured in every round, one after the other, and the median of the rounds is printed, as JSON.
//!
//! `pread` reads record after record in the same order with nothing around it; `gather` copies the same records out of
//! memory: the least that any loader can cost through the page cache, and from memory.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::Loader;
use uringload::config::{Cache, IoChoice, Shuffle};
use uringload::dataset::{self, Dataset, Options};
use uringload_sys::system::cpu_time;

const BATCHES: [u64; 3] = [256, 1024, 4096];
const SAMPLES_MAX: u64 = 1 << 20;

fn main() {
    // `cargo bench` adds arguments of its own.
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match &given[..] {
        [file, record_bytes, rounds @ ..] => {
            let rounds = rounds.first().map_or(5, |rounds| rounds.parse().expect("ROUNDS is a number"));
            measure(Path::new(file), record_bytes.parse().expect("RECORD_BYTES is a number"), rounds);
        }
        _ => {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            file.write_all(&vec![7; 16 << 20]).expect("room for 16 MiB");
            measure(file.path(), 1024, 1);
        }
    }
}

fn measure(file: &Path, record_bytes: u64, rounds: usize) {
    let options = Options::new().format("records").set("record_bytes", record_bytes).set("drop_tail", true);
    let dataset: Arc<dyn Dataset> = dataset::open(&[file], &options).expect("a file of records");
    let ways = [
        ("full", Shuffle::Full, Cache::Off),
        ("window:65536", Shuffle::Window(65536), Cache::Off),
        ("shards:4", Shuffle::Shards { mixed: 4 }, Cache::Off),
        ("full, cache", Shuffle::Full, Cache::Memory),
    ];
    let samples = dataset.len().min(SAMPLES_MAX) as f64;
    let mut took: BTreeMap<(u64, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for round in 0..rounds {
        let mut note = |name, batch, (cpu, wall): (Duration, Duration)| {
            let per_sample = (cpu.as_secs_f64() * 1e6 / samples, wall.as_secs_f64() * 1e6 / samples);
            took.entry((batch, name)).or_default().push(per_sample);
        };
        for batch in BATCHES {
            for (name, shuffle, cache) in ways {
                note(name, batch, load(&dataset, (shuffle, cache), batch, round as u64));
            }
            note("pread", batch, timed(|| pread(file, record_bytes, samples as u64, batch)));
            let content = std::fs::read(file).expect("a file that fits into memory");
            note("gather", batch, timed(|| gather(&content, record_bytes, samples as u64, batch)));
        }
    }
    for ((batch, name), mut all) in took {
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((cpu, wall), least, most) = (all[all.len() / 2], all[0].0, all[all.len() - 1].0);
        println!(
            "{{\"order\": {name:?}, \"batch\": {batch}, \"cpu_us\": {cpu:.3}, \"least\": {least:.3}, \"most\": \
             {most:.3}, \"wall_us\": {wall:.3}}}"
        );
    }
}

/// The second epoch of a loader.
fn load(dataset: &Arc<dyn Dataset>, (shuffle, cache): (Shuffle, Cache), batch: u64, seed: u64) -> (Duration, Duration) {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(batch).shuffle(shuffle).seed(seed).cache(cache);
    let mut loader = builder.io(IoChoice::Buffered).epochs(None).drop_last(true).build().expect("a loader");
    let batches = dataset.len().min(SAMPLES_MAX) / batch;
    for _ in 0..dataset.len() / batch {
        loader.next().expect("no end").expect("a batch");
    }
    timed(|| {
        for _ in 0..batches {
            loader.next().expect("no end").expect("a batch");
        }
    })
}

fn timed(work: impl FnOnce()) -> (Duration, Duration) {
    let (cpu, wall) = (cpu_time(), Instant::now());
    work();
    (cpu_time() - cpu, wall.elapsed())
}

/// Numbers in a random order, as of xorshift.
fn random(below: u64) -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

fn pread(file: &Path, record_bytes: u64, samples: u64, batch: u64) {
    let file = std::fs::File::open(file).expect("a file");
    let (mut next, mut into) = (random(samples), vec![0; (batch * record_bytes) as usize]);
    for sample in 0..samples {
        let at = (sample % batch * record_bytes) as usize;
        file.read_exact_at(&mut into[at..at + record_bytes as usize], next() * record_bytes).expect("a record");
    }
    std::hint::black_box(into);
}

fn gather(content: &[u8], record_bytes: u64, samples: u64, batch: u64) {
    let (mut next, mut into, bytes) =
        (random(samples), vec![0; (batch * record_bytes) as usize], record_bytes as usize);
    for sample in 0..samples {
        let (at, from) = ((sample % batch * record_bytes) as usize, (next() * record_bytes) as usize);
        into[at..at + bytes].copy_from_slice(&content[from..from + bytes]);
    }
    std::hint::black_box(into);
}

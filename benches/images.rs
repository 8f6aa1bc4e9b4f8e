//! What a loader of JPEGs costs from files to tensors, next to bare loops over the same files: CPU time an image of all
//! of the process's threads, which other work on the machine hardly changes, and wall time, which it does.
//!
//! usage: cargo bench --bench images --features uringload-images/turbojpeg-vendored -- FOLDER [ROUNDS [IMAGES]]
//!
//! FOLDER has the JPEGs (benches/photographs.py makes some). Each round runs every case once, on IMAGES images; printed
//! are the median of the rounds, the least and the greatest.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use uringload::config::ImageCache;
use uringload::dataset::{self, Dataset, Options};
use uringload::{Builder, Loader};
use uringload_images::{Chain, Decoding, Draw, Jpeg, Scratch, decode, decode_with, decoder};

const CHAIN: &str = "random_resized_crop(224), hflip, normalize(imagenet)";
const BATCH: u64 = 32;
const SEED: u64 = 1;

/// CPU and wall milliseconds an image, and the share of samples that were kept.
#[derive(Clone, Copy, Default)]
struct Cost {
    cpu: f64,
    wall: f64,
    hits: f64,
}

struct Case<'a> {
    name: &'static str,
    run: Box<dyn Fn() -> Cost + 'a>,
    costs: Vec<Cost>,
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let Some(folder) = given.first() else {
        println!("give a folder of JPEGs: see benches/photographs.py");
        return;
    };
    let number = |index: usize, default: u64| given.get(index).map_or(default, |text| text.parse().expect("a number"));
    let (rounds, images) = (number(1, 5), number(2, 512).next_multiple_of(BATCH));
    let photos = dataset::open(&[Path::new(folder)], &Options::new()).expect("a folder of JPEGs");
    let files = read(folder);
    let pixels = files.iter().map(|file| decode(file, &Decoding::default()).expect("a JPEG").pixels().len() as u64);
    let kept = pixels.sum::<u64>() / 2;
    println!("{} images, {} bytes on average; {:?}", files.len(), mean_bytes(&files), decoder());

    let default = Decoding::default();
    let exact = Decoding { exact: true, ..Decoding::default() };
    let embedded = Decoding { jpeg: Jpeg::Embedded, exact: true, ..Decoding::default() };
    let loader = |threads: usize| builder(&photos).num_threads(threads);
    let bare = |how: &Decoding| whole(&files, how, images);
    let loop_of = |how: &Decoding| ready(&files, how, images);
    let mut cases = [
        case("bare loop: full decode", Box::new(|| bare(&default))),
        case("bare loop: full decode, embedded", Box::new(|| bare(&embedded))),
        case("bare loop: all of the chain, exact", Box::new(|| loop_of(&exact))),
        case("bare loop: all of the chain, fast", Box::new(|| loop_of(&default))),
        case("bare loop: all of the chain, embedded", Box::new(|| loop_of(&embedded))),
        case("loader, 1 thread, exact", Box::new(|| load(loader(1), images))),
        case("loader, 1 thread, fast", Box::new(|| load(loader(1).fast_images(true), images))),
        case("loader, 2 threads, exact", Box::new(|| load(loader(2), images))),
        case("loader, no thread, exact", Box::new(|| load(loader(0), images))),
        case(
            "loader, 1 thread, half kept",
            Box::new(|| load(loader(1).cache_images(ImageCache::memory(kept)), images)),
        ),
    ];
    for _ in 0..rounds {
        for case in &mut cases {
            let cost = (case.run)();
            case.costs.push(cost);
        }
    }
    let full = median(&cases[0].costs, |cost| cost.cpu);
    println!("| case | CPU ms an image | least..greatest | of bare | wall ms an image | least..greatest | hits |");
    println!("|---|---|---|---|---|---|---|");
    for Case { name, costs, .. } in &cases {
        let (cpu, wall) = (median(costs, |cost| cost.cpu), median(costs, |cost| cost.wall));
        let range = |of: fn(&Cost) -> f64| {
            let all = costs.iter().map(of);
            format!("{:.3}..{:.3}", all.clone().fold(f64::INFINITY, f64::min), all.fold(0.0, f64::max))
        };
        let hits = median(costs, |cost| cost.hits);
        let (of_cpu, of_wall) = (range(|cost| cost.cpu), range(|cost| cost.wall));
        println!("| {name} | {cpu:.3} | {of_cpu} | {:.2} | {wall:.3} | {of_wall} | {hits:.3} |", full / cpu);
    }
    let digest = |builder: Builder| digest(builder.more_epochs(2));
    let same = digest(loader(2)) == digest(loader(2).cache_images(ImageCache::memory(kept)));
    println!("tensors of two epochs with half of the images kept: {}", if same { "the same" } else { "OTHERS" });
}

fn case<'a>(name: &'static str, run: Box<dyn Fn() -> Cost + 'a>) -> Case<'a> {
    Case { name, run, costs: Vec::new() }
}

fn builder(photos: &Arc<dyn Dataset>) -> Builder {
    let chain: Chain = CHAIN.parse().expect("a chain");
    Loader::builder(Arc::clone(photos)).batch_size(BATCH).seed(SEED).shuffle(true).transform("data", chain)
}

/// The cost of `images` images of a loader that is under way: after its first epoch and some batches.
fn load(builder: Builder, images: u64) -> Cost {
    let mut loader = builder.epochs(None).build().expect("a loader");
    let take = |loader: &mut Loader| loader.next().expect("a batch").expect("no error");
    while take(&mut loader).cursor.epoch == 0 {}
    (0..4).for_each(|_| drop(take(&mut loader)));
    let before = loader.stats().snapshot().count;
    let (cpu, wall) = (cpu_nanoseconds(), Instant::now());
    for _ in 0..images / BATCH {
        black_box(take(&mut loader));
    }
    let spent = cost((cpu, wall), images);
    let after = loader.stats().snapshot().count;
    let (hits, misses) = (after.cache_hits - before.cache_hits, after.cache_misses - before.cache_misses);
    Cost { hits: hits as f64 / ((hits + misses) as f64).max(1.0), ..spent }
}

fn whole(files: &[Vec<u8>], how: &Decoding, images: u64) -> Cost {
    let mut scratch = Scratch::default();
    let start = (cpu_nanoseconds(), Instant::now());
    for file in files.iter().cycle().take(images as usize) {
        let image = decode_with(file, how, &mut scratch).expect("a JPEG");
        black_box(image.pixels());
        scratch.reuse(image);
    }
    cost(start, images)
}

fn ready(files: &[Vec<u8>], how: &Decoding, images: u64) -> Cost {
    let chain: Chain = CHAIN.parse().expect("a chain");
    let (mut scratch, mut tensor) = (Scratch::default(), vec![0; 3 * 224 * 224 * 4]);
    let start = (cpu_nanoseconds(), Instant::now());
    for (sample, file) in files.iter().cycle().take(images as usize).enumerate() {
        let (epoch, sample) = (1 + (sample / files.len()) as u64, (sample % files.len()) as u64);
        chain.ready(file, how, Draw { seed: SEED, epoch, sample }, &mut tensor, &mut scratch).expect("a tensor");
        black_box(&tensor);
    }
    cost(start, images)
}

/// A checksum of every tensor, whatever the order.
fn digest(builder: Builder) -> u64 {
    let mut sum: u64 = 0;
    for batch in builder.build().expect("a loader") {
        let batch = batch.expect("no error");
        let column = batch.column("data").expect("the column");
        for (index, id) in batch.ids.iter().enumerate() {
            let tensor = column.bytes_of(index).expect("a tensor");
            let hash = tensor.iter().fold(id.0 ^ (batch.cursor.epoch << 32), |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
            sum = sum.wrapping_add(hash);
        }
    }
    sum
}

fn cost((cpu, wall): (u64, Instant), images: u64) -> Cost {
    let each = |nanoseconds: f64| nanoseconds / 1e6 / images as f64;
    Cost { cpu: each((cpu_nanoseconds() - cpu) as f64), wall: each(wall.elapsed().as_nanos() as f64), hits: 0.0 }
}

fn median(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> f64 {
    let mut all: Vec<f64> = costs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Time that the threads of this process have been on processors. Threads that have ended are not in it.
fn cpu_nanoseconds() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let of_task = |path: std::path::PathBuf| {
        let told = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        told.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.map(|task| of_task(task.path())).sum()
}

fn mean_bytes(files: &[Vec<u8>]) -> usize {
    files.iter().map(Vec::len).sum::<usize>() / files.len().max(1)
}

fn read(folder: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "jpg")).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a readable JPEG")).collect()
}

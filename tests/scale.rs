//! A hundred million samples, and a thousand million: nothing grows with their number, and every place is reached
//! equally fast. Times are printed; the slow suite bounds them.
//!
//! A binary of its own, because it measures the memory of the whole process.

mod common;

use common::skip;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::Loader;
use uringload::State;
use uringload::config::Config;
use uringload::dataset::{
    self, DType, Dataset, Field, FileId, FileTable, Index, Options, Sample, SampleId, Schema, Shape, Span, Value,
};
use uringload::inspect::Identity;
use uringload::sampler::{Cursor, Order, Selection, for_dataset};

/// How much longer than on a quiet machine, and optimised, a time may be.
const LOOSELY: u32 = 10;

/// What the process may grow by beyond the loader's memory limit: sixteen bytes a sample would be 1.6 GB.
const GROWTH_BYTES: u64 = 64 << 20;
const MEMORY_LIMIT: u64 = 64 << 20;

/// A file that is one hole; `None`, said aloud, where a filesystem has no such files.
fn hole(bytes: u64, test: &str) -> Option<TempDir> {
    let root = TempDir::new().expect("a folder");
    let made = File::create(root.path().join("hole")).and_then(|file| file.set_len(bytes));
    match made {
        Ok(()) => Some(root),
        Err(error) => {
            skip(format!("{test}: no hole of {bytes} bytes: {error}"));
            None
        }
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a resident size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Whether times are only told, or held against what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Told,
    Bounded,
}

impl Times {
    fn report(self, what: &str, took: Duration, wanted: Duration) {
        println!("{what}: {took:?}, wanted on a quiet machine: {wanted:?}");
        assert!(self == Times::Told || took <= wanted * LOOSELY, "{what}: {took:?}");
    }
}

#[test]
fn a_hundred_million_records_take_no_memory() {
    a_hundred_million_records(Times::Told);
}

#[test]
#[ignore = "slow: measures time"]
fn a_hundred_million_records_begin_at_once() {
    a_hundred_million_records(Times::Bounded);
}

fn a_hundred_million_records(times: Times) {
    const RECORDS: u64 = 100_000_000;
    const RECORD_BYTES: u64 = 4096;
    let Some(root) = hole(RECORDS * RECORD_BYTES, "a hundred million records") else { return };
    let before = resident_bytes();
    let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
    let begin = Instant::now();
    let dataset: Arc<dyn Dataset> = dataset::open(&[root.path()], &options).expect("records");
    let opened = begin.elapsed();
    let builder = Loader::builder(Arc::clone(&dataset)).shuffle(true).batch_size(256).memory_limit(MEMORY_LIMIT);
    let begin = Instant::now();
    let mut loader = builder.build().expect("a loader");
    let batch = loader.next().expect("a batch").expect("no error");
    let took = begin.elapsed();
    println!("opened in {opened:?}; route: {}", loader.route());
    times.report("build to first batch of 100 000 000 records", took, Duration::from_millis(50));
    let sampler = for_dataset(&*dataset, true.into(), 0).expect("an order");
    let wanted: Vec<SampleId> = (0..256).map(|position| sampler.at(Cursor::new(0, position))).collect();
    assert_eq!(batch.ids, wanted);
    for _ in 0..50 {
        loader.next().expect("a batch").expect("no error");
    }
    let state = loader.state();
    let grown = resident_bytes().saturating_sub(before);
    println!("grown by {grown} bytes with up to {MEMORY_LIMIT} for samples; the state has {}", state.to_json().len());
    assert!(grown < MEMORY_LIMIT + GROWTH_BYTES, "{grown} bytes");
    assert!(state.to_json().len() <= 1000);
    // What was read of the hole was nothing, but pages of it may have stayed.
    let file = File::open(root.path().join("hole")).expect("the hole");
    uringload_sys::file::evict(file.as_fd()).expect("pages of a file can be given back");
}

/// A dataset that is as long as one likes: sixteen bytes of a file for each sample.
struct Long {
    index: Index,
}

const FILE_BYTES: u64 = 1 << 30;

impl Long {
    fn new(root: &std::path::Path, len: u64) -> Long {
        let mut files = FileTable::new();
        files.push_root(root);
        files.push(b"hole", FILE_BYTES).expect("a table has room");
        let field = Field { name: "data".into(), dtype: DType::U8, shape: Shape::Fixed(vec![16]) };
        let mut index = Index::new("long", files, Schema { fields: vec![field] }, len);
        index.bytes = 16 * len;
        Long { index }
    }
}

impl Dataset for Long {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        out.push(Span { file: FileId(0), offset: id.0 * 16 % FILE_BYTES, len: 16 });
    }

    fn parse(&self, _id: SampleId, raw: &[bytes::Bytes], out: &mut Sample) -> uringload::Result<()> {
        out.values.push(Value::Bytes(raw[0].clone()));
        Ok(())
    }

    fn largest(&self, count: u64) -> u64 {
        16 * count
    }
}

#[test]
fn a_state_is_small_and_seeks_anywhere() {
    a_state_of_a_thousand_million(Times::Told);
}

#[test]
#[ignore = "slow: measures time"]
fn a_state_is_small_quick_and_seeks_anywhere() {
    a_state_of_a_thousand_million(Times::Bounded);
}

fn a_state_of_a_thousand_million(times: Times) {
    const LEN: u64 = 1_000_000_000;
    const MIDDLE: u64 = LEN / 2 + 3;
    let Some(root) = hole(FILE_BYTES, "states of 1 000 000 000 samples") else { return };
    let dataset: Arc<dyn Dataset> = Arc::new(Long::new(root.path(), LEN));
    let builder = || Loader::builder(Arc::clone(&dataset)).shuffle(true).seed(5).rank(1, 8).memory_limit(MEMORY_LIMIT);
    let mut loader = builder().start(Cursor::new(u64::MAX - 2, MIDDLE)).build().expect("a loader");
    loader.next().expect("a batch").expect("no error");

    let mut texts = Vec::with_capacity(101);
    let begin = Instant::now();
    for _ in 0..101 {
        texts.push(loader.state().to_json());
    }
    let text = texts.pop().expect("a state");
    println!("a state of 1 000 000 000 samples has {} bytes", text.len());
    assert!(text.len() <= 1000, "{text}");
    times.report("saving", begin.elapsed() / 101, Duration::from_micros(50));

    // From text to the samples of the batch that comes next: what a loader does before it can plan its reads.
    let begin = Instant::now();
    let state = State::from_json(&text).expect("a state");
    let sampler = for_dataset(&*dataset, true.into(), 5).expect("an order");
    state.check_dataset(&Identity::of(&*dataset)).expect("this dataset");
    state.check_order(&*sampler).expect("this order");
    let config = Config { rank: 1, world_size: 8, start: state.cursor(), ..Config::default() };
    let order = Order::new(&config, Arc::clone(&dataset), sampler).expect("an order");
    let mut batch = Selection::default();
    assert!(order.walk().next(&mut batch));
    times.report("loading a state and seeking to it", begin.elapsed(), Duration::from_millis(1));

    let begin = Instant::now();
    let mut resumed = builder().resume(&state).build().expect("a loader");
    let first = resumed.next().expect("a batch").expect("no error");
    println!("and with threads, rings, memory and reads: {:?} to the first batch", begin.elapsed());
    assert_eq!((first.cursor, &first.ids), (state.cursor(), &batch.ids));
    assert_eq!(loader.next().expect("a batch").expect("no error").ids, first.ids);
}

/// What states cost that know their files by some blocks: of 80 shards on a disk, out of the page cache and in it.
#[test]
fn the_first_state_of_eighty_shards_knows_their_content() {
    the_first_state_of_eighty_shards(Times::Told);
}

#[test]
#[ignore = "slow: measures time"]
fn the_first_state_of_eighty_shards_is_quick() {
    the_first_state_of_eighty_shards(Times::Bounded);
}

fn the_first_state_of_eighty_shards(times: Times) {
    const SHARDS: u64 = 80;
    let root = TempDir::new().expect("a folder");
    for shard in 0..SHARDS {
        let bytes: Vec<u8> = (0..1 << 20).map(|at: u64| (at * 31 + at / 255 + shard) as u8).collect();
        let mut file = File::create(root.path().join(format!("{shard:02}.dat"))).expect("a file");
        std::io::Write::write_all(&mut file, &bytes).and_then(|()| file.sync_all()).expect("room");
    }
    let options = Options::new().format("records").set("record_bytes", 4096_u64);
    let dataset: Arc<dyn Dataset> = dataset::open(&[root.path()], &options).expect("records");
    let builder = || Loader::builder(Arc::clone(&dataset)).shuffle(true).batch_size(64).memory_limit(1 << 20);
    for (what, is_cold) in [("out of the page cache", true), ("in the page cache", false)] {
        for file in 0..SHARDS as u32 {
            let path = dataset.files().path(FileId(file));
            let file = File::open(&path).expect("the file");
            uringload_sys::file::evict(file.as_fd()).expect("pages of a file can be given back");
            if !is_cold {
                std::fs::read(&path).expect("the file");
            }
        }
        let loader = builder().build().expect("a loader");
        let begin = Instant::now();
        let state = loader.state();
        times.report(
            &format!("the first state of {SHARDS} shards, {what}"),
            begin.elapsed(),
            Duration::from_millis(20),
        );
        assert!(state.to_json().contains("\"content\"") && state.to_json().len() <= 1000);
        let begin = Instant::now();
        (0..100).for_each(|_| assert_eq!(loader.state().cursor(), state.cursor()));
        times.report("another one", begin.elapsed() / 100, Duration::from_micros(50));
        let begin = Instant::now();
        state.check_content(&dataset, None).expect("the same files");
        times.report("comparing", begin.elapsed(), Duration::from_millis(20));
    }
}

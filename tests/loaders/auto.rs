//! The meaning of a shuffle that is left to the layout: pieces where samples are in shards, on every rank, and for a
//! state the order when it was made.

use crate::common::check::{drain, ways_to};
use crate::common::fixture::{files, made};
use crate::common::within;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::Config;
use uringload::config::Shuffle;
use uringload::dataset::{self, Dataset, Options, View};
use uringload::sampler::for_dataset;
use uringload::{ErrorKind, Loader, State};

const BOUND: Duration = Duration::from_secs(120);
const SEED: u64 = 9;

/// `samples` of one length in four shards.
fn shards(samples: u64, bytes: u64) -> (TempDir, Arc<dyn Dataset>) {
    let options = Options::new().format("records").set("record_bytes", bytes);
    let (root, dataset) = made((0..4).map(|shard| (format!("{shard}.bin"), samples / 4 * bytes)), &options);
    assert_eq!((dataset.len(), dataset.shards().len()), (samples, 4));
    (root, dataset)
}

fn order(dataset: &dyn Dataset, shuffle: Shuffle) -> String {
    for_dataset(dataset, shuffle, SEED).expect("an order").describe()
}

#[test]
fn the_layout_decides() {
    let told = |samples, bytes| {
        let (_root, dataset) = shards(samples, bytes);
        assert!(order(&*dataset, Shuffle::Full).starts_with("shuffled, seed"), "full is full");
        order(&*dataset, Shuffle::Auto)
    };
    assert!(told(4096, 100).starts_with("pieces of 4096 in random order, samples of 16 "), "tiny samples");
    assert!(told(4096, 9000).starts_with("pieces of 1024 in random order, samples of 16 "), "of about 16 MiB");
    assert!(told(4092, 100).starts_with("shuffled, seed"), "few samples");
    // Nothing is written of it: long samples.
    let (root, _) = shards(4096, 100);
    for shard in 0..4 {
        let file = std::fs::File::create(root.path().join(format!("{shard}.bin"))).expect("a file");
        file.set_len(1024 * ((1 << 20) + 512)).expect("a sparse file");
    }
    let options = Options::new().format("records").set("record_bytes", (1 << 20) + 512);
    let long = dataset::open(&[root.path()], &options).expect("records");
    assert!(order(&*long, Shuffle::Auto).starts_with("shuffled, seed"), "long samples");
    let (_root, dataset) = shards(8192, 100);
    let list = (0..8192).rev().collect();
    let view = View::of(dataset, list).expect("a view");
    assert!(order(&view, Shuffle::Auto).starts_with("shuffled, seed"), "a list of samples has no shards");
}

/// Many small files are no shards.
#[test]
fn a_folder_of_files_is_shuffled_as_a_whole() {
    let (_root, dataset) = files((0..4100).map(|number| (format!("{number:04}"), 10)));
    assert!(order(&*dataset, Shuffle::Auto).starts_with("shuffled, seed"));
}

fn config(price: u64) -> Config {
    Config { batch_size: 64, shuffle: Shuffle::Auto, seed: SEED, operation_bytes: Some(price), ..Config::default() }
}

#[test]
fn pieces_are_read_whole_where_operations_are_dear() {
    within(BOUND, || {
        // 37 MB: pieces of 9.2 MB, of which 16 are mixed: all of them.
        let (_root, dataset) = shards(4096, 9000);
        for (engine, io) in ways_to(&dataset) {
            let read = |price| {
                let config = Config { engine, io, epochs: Some(1), ..config(price) };
                let mut loader = Loader::builder(Arc::clone(&dataset)).config(config).build().expect("a loader");
                let route = loader.route().to_string();
                assert!(route.contains("16 pieces of 1024 neighbours mixed at a time"), "{route}");
                assert_eq!(route.contains("pieces of shards read whole"), price > 0, "{route}");
                let (ids, errors) = drain(&*dataset, &mut loader);
                assert!(errors.is_empty(), "{errors:?}");
                let count = loader.stats().snapshot().count;
                (ids, count.reads, count.bytes_read)
            };
            let ((ids, reads, _), (same, fewer, bytes)) = (read(0), read(800_000));
            assert_eq!(ids, same, "{engine:?} {io:?}");
            assert!(fewer * 20 < reads, "{fewer} of {reads} reads");
            assert!(bytes < 4096 * 9000 * 11 / 10, "{bytes} bytes");
            let neighbours = ids.windows(2).filter(|pair| pair[0].0 + 1 == pair[1].0).count();
            assert!(neighbours < 40, "{neighbours} of 4096 still follow their neighbour");
        }
    });
}

/// The samples behind a place, on one rank.
fn rest(dataset: &Arc<dyn Dataset>, shuffle: Shuffle, state: &State) -> Result<Vec<u64>, ErrorKind> {
    let config = Config { shuffle, epochs: Some(1), ..config(0) };
    let builder = Loader::builder(Arc::clone(dataset)).config(config).resume(state);
    let mut loader = builder.build().map_err(|error| error.kind())?;
    let (ids, errors) = drain(&**dataset, &mut loader);
    assert!(errors.is_empty(), "{errors:?}");
    Ok(ids.into_iter().map(|id| id.0).collect())
}

#[test]
fn a_state_keeps_the_order_it_was_made_in() {
    within(BOUND, || {
        let (_root, dataset) = shards(4096, 100);
        for shuffle in [Shuffle::Auto, Shuffle::Full, Shuffle::Shards { mixed: 4 }] {
            let config = Config { shuffle, epochs: Some(1), ..config(0) };
            let mut loader = Loader::builder(Arc::clone(&dataset)).config(config).build().expect("a loader");
            for _ in 0..20 {
                loader.next().expect("a batch").expect("it is read");
            }
            let state = loader.state();
            let (behind, errors) = drain(&*dataset, &mut loader);
            assert!(errors.is_empty(), "{errors:?}");
            let behind: Vec<u64> = behind.into_iter().map(|id| id.0).collect();
            assert_eq!(rest(&dataset, Shuffle::Auto, &state), Ok(behind.clone()), "{shuffle:?}");
            assert_eq!(rest(&dataset, shuffle, &state), Ok(behind), "{shuffle:?}");
        }
        // A named order is that and no other.
        let config = Config { shuffle: Shuffle::Auto, ..config(0) };
        let state = Loader::builder(Arc::clone(&dataset)).config(config).build().expect("a loader").state();
        assert_eq!(rest(&dataset, Shuffle::Full, &state), Err(ErrorKind::StateMismatch));
        let config = Config { shuffle: Shuffle::Off, ..self::config(0) };
        let state = Loader::builder(Arc::clone(&dataset)).config(config).build().expect("a loader").state();
        assert_eq!(rest(&dataset, Shuffle::Auto, &state), Err(ErrorKind::StateMismatch));
    });
}

/// Whatever is said of the disk, and by whom, the order is one.
#[test]
fn ranks_with_different_disks_share_one_order() {
    within(BOUND, || {
        let (_root, dataset) = shards(4096, 100);
        let mut all = Vec::new();
        for rank in 0..3 {
            let price = [0, 800_000, 50_000_000][rank as usize];
            let config = Config { rank, world_size: 3, epochs: Some(1), drop_last: true, ..config(price) };
            let mut loader = Loader::builder(Arc::clone(&dataset)).config(config).build().expect("a loader");
            all.extend(drain(&*dataset, &mut loader).0);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((count, all.len()), (4032, 4032), "no sample twice");
    });
}

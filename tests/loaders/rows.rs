//! Packed and bucketed batches of real files, through every way to read: each byte of each file once over all ranks, in
//! rows that no stop, world size or engine changes.

use crate::common::check::{WAYS, ways_to};
use crate::common::content::{first_wrong, key_of, name_of};
use crate::common::fixture::files;
use crate::common::within;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::{Batch, Data};
use uringload::config::Batching;
use uringload::config::Config;
use uringload::config::{Buckets, Collate, EngineChoice, IoChoice, PackMethod, Packing, Shuffle};
use uringload::dataset::{Dataset, SampleId};
use uringload::inspect::{Shuffled, Walk};
use uringload::sampler::{Cursor, Digest, Order, Selection};
use uringload::{Error, ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(120);
const FILES: u64 = 60;
const EPOCHS: u64 = 2;

/// Files of 0 to 10 kB.
fn folder() -> (TempDir, Arc<dyn Dataset>) {
    let size = |number| if number % 9 == 0 { number * 170 } else { number * number * 7919 % 1500 };
    files((0..FILES).map(|number| (format!("{number:02}"), size(number))))
}

fn packed(method: PackMethod) -> Batching {
    Batching::Packed(Packing::new(1000).method(method).window(25))
}

fn buckets() -> Batching {
    Batching::Buckets(Buckets::new(vec![200, 700, 1100], vec![8, 5, 3, 2]).window(25))
}

fn config(batching: Batching, batch_size: u64, world_size: u64, start: Cursor) -> Config {
    Config {
        batching,
        batch_size,
        world_size,
        shuffle: Shuffle::Full,
        seed: 9,
        epochs: Some(EPOCHS - start.epoch),
        start,
        memory_limit: Some(8 << 20),
        collate: Collate::Views,
        ..Config::default()
    }
}

/// What is to come.
fn walk(dataset: &Arc<dyn Dataset>, config: &Config) -> Walk {
    let sampler = Arc::new(Shuffled::new(dataset.len(), config.seed));
    Order::new(config, Arc::clone(dataset), sampler).expect("an order").walk()
}

/// A piece: epoch, sample, first byte and length.
type Taken = (u64, SampleId, u64, u64);

/// The pieces of one batch without padding, each compared with its file.
fn checked(dataset: &dyn Dataset, batch: &Batch, rows: &Selection) -> Vec<Taken> {
    assert_eq!((batch.cursor, batch.next), (rows.cursor, rows.next));
    assert_eq!(batch.ids, rows.ids);
    let marks: Vec<bool> = rows.positions.iter().map(|position| position.padding).collect();
    assert_eq!(batch.padding, marks.contains(&true).then_some(marks));
    if let Data::Packed(packed) = &batch.columns[0].data {
        assert_eq!(packed.rows, rows.row_ends.len() as u64);
        assert_eq!(packed.segments.len(), rows.ids.len());
    }
    let (mut taken, mut digest) = (Vec::new(), Digest::default());
    for (index, &id) in rows.ids.iter().enumerate() {
        let view = batch.columns[0].bytes_of(index).expect("a value for each piece");
        let (start, len) = match rows.pieces.get(index) {
            Some(piece) => (piece.start, piece.len),
            None => (0, dataset.length(id, 0).expect("files have lengths")),
        };
        let path = dataset.files().path(uringload::dataset::FileId(id.0 as u32));
        assert_eq!(view.len() as u64, len, "{path:?} from {start}");
        assert_eq!(first_wrong(key_of(name_of(&path)), start, &view), None, "{path:?} from {start}");
        let position = rows.positions[index];
        if !position.padding {
            digest.add(position.position, id, start);
            taken.push((batch.cursor.epoch, id, start, len));
        }
    }
    assert_eq!(batch.digest, digest);
    taken
}

/// All ranks, for at most `rounds` batches each: what they got, and the cursor after it.
fn deliver(
    dataset: &Arc<dyn Dataset>,
    config: &Config,
    (engine, io): (EngineChoice, IoChoice),
    rounds: usize,
) -> (Vec<Taken>, Cursor) {
    let mut all = Vec::new();
    let mut ends = Vec::new();
    for rank in 0..config.world_size {
        let config = Config { rank, engine, io, ..config.clone() };
        let mut walk = walk(dataset, &config);
        let mut rows = Selection::default();
        let mut loader = Loader::builder(Arc::clone(dataset)).config(config.clone()).build().expect("a loader");
        let mut count = 0;
        while count < rounds {
            if config.epochs != Some(0) {
                assert!(loader.remaining().is_none() && !loader.is_empty(), "the end is not known");
            }
            let Some(batch) = loader.next() else {
                assert!(!walk.next(&mut rows), "an early end");
                assert!(loader.remaining() == Some(0) && loader.is_empty());
                break;
            };
            assert!(walk.next(&mut rows), "a batch too many");
            all.extend(checked(&**dataset, &batch.expect("no error"), &rows));
            count += 1;
        }
        ends.push((count, loader.cursor()));
    }
    assert!(ends.iter().all(|end| *end == ends[0]), "equal steps, to one place: {ends:?}");
    (all, ends[0].1)
}

/// Each byte of each file comes once an epoch.
fn assert_complete(dataset: &dyn Dataset, mut taken: Vec<Taken>) {
    taken.sort_unstable();
    let mut rest = &taken[..];
    for epoch in 0..EPOCHS {
        for id in (0..FILES).map(SampleId) {
            let count = rest.iter().take_while(|taken| (taken.0, taken.1) == (epoch, id)).count();
            let (pieces, behind) = rest.split_at(count);
            let mut end = 0;
            for piece in pieces {
                assert_eq!(piece.2, end, "{id:?} of epoch {epoch}: {pieces:?}");
                end += piece.3;
            }
            assert!(count > 0 && Some(end) == dataset.length(id, 0), "{id:?} of epoch {epoch}: {pieces:?}");
            rest = behind;
        }
    }
    assert_eq!(rest, []);
}

#[test]
fn every_byte_comes_once_through_every_engine() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        for way in ways_to(&dataset) {
            let batchings =
                [packed(PackMethod::FirstFit), packed(PackMethod::BestFit), packed(PackMethod::Concat), buckets()];
            for batching in batchings {
                for (batch_size, world_size) in [(4, 1), (3, 2)] {
                    let config = config(batching.clone(), batch_size, world_size, Cursor::default());
                    let (taken, cursor) = deliver(&dataset, &config, way, usize::MAX);
                    assert_complete(&*dataset, taken);
                    assert_eq!(cursor, Cursor::new(EPOCHS, 0));
                }
            }
        }
    });
}

#[test]
fn a_stop_at_any_batch_goes_on_with_other_sizes_and_another_engine() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        let ways = ways_to(&dataset);
        let (before, after) = (ways[ways.len() - 1], ways[0]);
        for batching in [packed(PackMethod::FirstFit), packed(PackMethod::BestFit), buckets()] {
            for stop in 1.. {
                let first = config(batching.clone(), 4, 2, Cursor::default());
                let (mut taken, cursor) = deliver(&dataset, &first, before, stop);
                let second = config(batching.clone(), 3, 3, cursor);
                let (rest, _) = deliver(&dataset, &second, after, usize::MAX);
                let is_end = rest.is_empty();
                taken.extend(rest);
                assert_complete(&*dataset, taken);
                if is_end {
                    break;
                }
            }
        }
    });
}

fn refused(dataset: &Arc<dyn Dataset>, config: Config, kind: ErrorKind) -> Error {
    match Loader::builder(Arc::clone(dataset)).config(config).build() {
        Ok(_) => panic!("built, though it cannot work"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.remedy().is_some(), "{error}");
            error
        }
    }
}

#[test]
fn rows_of_a_cursor_are_refused_where_there_are_none() {
    let (_root, dataset) = folder();
    let at = |rows| Cursor { epoch: 0, position: 25, rows };
    let error = refused(&dataset, config(Batching::Samples, 4, 1, at(1)), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("row 1 of a window"), "{error}");
    for batching in [packed(PackMethod::Concat), buckets()] {
        let error = refused(&dataset, config(batching, 4, 1, at(1000)), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("row 1000 of the window at position 25"), "{error}");
    }
    let endless = Batching::Packed(Packing::new(0).method(PackMethod::Concat).window(1));
    refused(&dataset, config(endless, 4, 1, Cursor::default()), ErrorKind::InvalidArgument);
}

/// What the error about memory asks for is enough for every batch, however its pieces lie.
#[test]
fn the_memory_that_is_asked_for_is_enough() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        for (batching, word) in [(packed(PackMethod::BestFit), "batch_size (now 4)"), (buckets(), "batch_sizes")] {
            let config = config(batching, 4, 1, Cursor::default());
            let small = Config { memory_limit: Some(4096), ..config.clone() };
            let error = refused(&dataset, small, ErrorKind::MemoryLimit);
            let remedy = error.remedy().expect("a remedy");
            assert!(remedy.contains(word), "{remedy}");
            let bytes = remedy.split(' ').find_map(|word| word.parse().ok()).expect("a number");
            let enough = Config { memory_limit: Some(bytes), ..config };
            for way in ways_to(&dataset) {
                assert_complete(&*dataset, deliver(&dataset, &enough, way, usize::MAX).0);
            }
        }
    });
}

#[test]
fn no_epochs_are_no_batches() {
    let (_root, dataset) = folder();
    let (engine, io) = WAYS[3];
    let builder = Loader::builder(dataset).batching(buckets()).epochs(0).engine(engine).io(io);
    let mut loader = builder.build().expect("a loader");
    assert_eq!(loader.remaining(), Some(0));
    assert!(loader.next().is_none());
}

//! Stopping at every batch and going on from its cursor with other sizes: what all ranks together get is the epoch, in
//! its order, whatever the world size, the batch size, the engine and the depth were before and are after.

use crate::common::check::checked;
use crate::common::content::write_file;
use crate::common::{skip, within};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::config::{EngineChoice, IoChoice};
use uringload::dataset::{self, Dataset, Options, SampleId};
use uringload::inspect::{Sequential, Shuffled};
use uringload::sampler::{Cursor, Sampler};
use uringload::{Builder, Loader};

const BOUND: Duration = Duration::from_secs(120);
const EPOCHS: u64 = 2;
const SEED: u64 = 11;

/// How one run reads.
#[derive(Clone, Copy, Debug)]
struct Run {
    world_size: u64,
    batch_size: u64,
    drop_last: bool,
    engine: EngineChoice,
    io: IoChoice,
    depth: Option<usize>,
}

/// Equal batches of all ranks, one of each.
struct Round {
    /// Without padding, in the order in which the ranks stand in turn.
    samples: Vec<(u64, SampleId)>,
    next: Cursor,
}

/// A dataset in an order.
#[derive(Clone)]
struct Work {
    dataset: Arc<dyn Dataset>,
    shuffle: bool,
    _root: Arc<TempDir>,
}

impl Work {
    /// Files of 0 to 3 kB.
    fn folder(files: u64, shuffle: bool) -> Work {
        let root = TempDir::new().expect("a folder");
        for number in 0..files {
            write_file(&root.path().join(format!("{number:03}")), number * 37 % 3001).expect("a file");
        }
        Work {
            dataset: dataset::open(&[root.path()], &Options::new().format("folder")).expect("a folder"),
            shuffle,
            _root: Arc::new(root),
        }
    }

    /// Records of 700 bytes in files of several lengths.
    fn records(records: &[u64], shuffle: bool) -> Work {
        let options = Options::new().format("records").set("record_bytes", 700).set("header_bytes", 9);
        let root = TempDir::new().expect("a folder");
        for (number, records) in records.iter().enumerate() {
            write_file(&root.path().join(format!("{number}")), 9 + 700 * records).expect("a file");
        }
        let dataset = dataset::open(&[root.path()], &options).expect("records");
        Work { dataset, shuffle, _root: Arc::new(root) }
    }

    fn builder(&self, run: &Run, rank: u64, start: Cursor, epochs: u64) -> Builder {
        let builder = Loader::builder(Arc::clone(&self.dataset)).shuffle(self.shuffle).seed(SEED);
        let builder = builder.rank(rank, run.world_size).batch_size(run.batch_size).drop_last(run.drop_last);
        let builder = builder.engine(run.engine).io(run.io).memory_limit(2 << 20).start(start).more_epochs(epochs);
        match run.depth {
            Some(depth) => builder.queue_depth(depth),
            None => builder,
        }
    }

    /// The samples that all ranks together must get from `start` on.
    fn expected(&self, run: &Run, start: Cursor) -> Vec<(u64, SampleId)> {
        let len = self.dataset.len();
        let sampler: Box<dyn Sampler> =
            if self.shuffle { Box::new(Shuffled::new(len, SEED)) } else { Box::new(Sequential::new(len)) };
        let round = run.world_size * run.batch_size;
        let mut expected = Vec::new();
        for epoch in start.epoch..EPOCHS {
            let from = if epoch == start.epoch { start.position } else { 0 };
            let to = if run.drop_last { from + (len - from) / round * round } else { len };
            expected.extend((from..to).map(|position| (epoch, sampler.at(Cursor::new(epoch, position)))));
        }
        expected
    }

    /// All ranks, side by side, for at most `rounds` batches; then their loaders are dropped, whatever they are at.
    fn deliver(&self, run: &Run, start: Cursor, rounds: usize) -> Vec<Round> {
        let build = |rank| self.builder(run, rank, start, EPOCHS - start.epoch).build().expect("a loader");
        let mut loaders: Vec<Loader> = (0..run.world_size).map(build).collect();
        let mut delivered = Vec::new();
        let mut cursor = start;
        while delivered.len() < rounds {
            let left = loaders[0].remaining().expect("an end");
            assert!(loaders.iter().all(|loader| loader.remaining() == Some(left)), "the same number on every rank");
            assert_eq!(loaders[0].is_empty(), left == 0);
            let batches: Vec<_> = loaders.iter_mut().filter_map(Iterator::next).collect();
            if batches.is_empty() {
                assert_eq!(left, 0, "an early end");
                assert!(loaders.iter_mut().all(|loader| loader.next().is_none()), "it stays at its end");
                break;
            }
            assert_eq!(batches.len(), loaders.len(), "a rank ended before the others");
            let batches: Vec<_> = batches.into_iter().map(|batch| batch.expect("no error")).collect();
            let (at, next) = (batches[0].cursor, batches[0].next);
            assert!(batches.iter().all(|batch| (batch.cursor, batch.next) == (at, next)), "one cursor for all ranks");
            assert!(at >= cursor && next > at, "{cursor:?} {at:?} {next:?}");
            assert!(loaders.iter().all(|loader| loader.cursor() == next && loader.remaining() == Some(left - 1)));
            delivered.push(Round { samples: self.in_turn(run, &batches), next });
            cursor = next;
        }
        delivered
    }

    /// The samples of one batch of each rank in their global order, checked byte by byte, without padding.
    fn in_turn(&self, run: &Run, batches: &[uringload::batch::Batch]) -> Vec<(u64, SampleId)> {
        let ids: Vec<Vec<SampleId>> = batches.iter().map(|batch| checked(&*self.dataset, batch)).collect();
        assert!(ids.iter().all(|of_rank| of_rank.len() == ids[0].len() && !of_rank.is_empty()), "equal batches");
        assert!(ids[0].len() as u64 <= run.batch_size);
        let is_padding = |rank: usize, place: usize| batches[rank].padding.as_ref().is_some_and(|marks| marks[place]);
        let mut samples = Vec::new();
        let mut padding = 0;
        for place in 0..ids[0].len() {
            for (rank, ids) in ids.iter().enumerate() {
                if is_padding(rank, place) {
                    padding += 1;
                } else {
                    assert_eq!(padding, 0, "padding comes last");
                    samples.push((batches[rank].cursor.epoch, ids[place]));
                }
            }
        }
        assert!(padding < run.world_size && (padding == 0 || !run.drop_last), "{padding} of {}", run.world_size);
        let marked = batches.iter().filter(|batch| batch.padding.is_some()).count() as u64;
        assert_eq!(marked, padding, "marks only where there is something to mark");
        samples
    }

    /// Stops `before` behind each of its batches and goes on as `after`.
    fn stop_everywhere(&self, before: &Run, after: &Run) {
        let whole = self.deliver(before, Cursor::default(), usize::MAX);
        assert_eq!(flat(&whole), self.expected(before, Cursor::default()), "{before:?}");
        assert_eq!(whole.last().map(|round| round.next), Some(Cursor::new(EPOCHS, 0)));
        for stop in 1..=whole.len() {
            let first = self.deliver(before, Cursor::default(), stop);
            let cursor = first[stop - 1].next;
            let mut got = flat(&first);
            assert_eq!(got, flat(&whole[..stop]), "{before:?}: the same samples again");
            got.extend(flat(&self.deliver(after, cursor, usize::MAX)));
            let mut wanted = flat(&whole[..stop]);
            wanted.extend(self.expected(after, cursor));
            assert_eq!(got, wanted, "{before:?} stopped at {cursor:?}, then {after:?}");
            if !before.drop_last && !after.drop_last {
                assert_eq!(got, self.expected(before, Cursor::default()), "every sample of every epoch once");
            }
        }
    }
}

fn flat(rounds: &[Round]) -> Vec<(u64, SampleId)> {
    rounds.iter().flat_map(|round| round.samples.iter().copied()).collect()
}

fn threads(world_size: u64, batch_size: u64, drop_last: bool) -> Run {
    let (engine, io) = (EngineChoice::Threads, IoChoice::Buffered);
    Run { world_size, batch_size, drop_last, engine, io, depth: Some(2) }
}

/// Past the page cache through a ring, or how it is read if one of them is not available.
fn ring(work: &Work, world_size: u64, batch_size: u64, drop_last: bool) -> Run {
    let wish = Run { engine: EngineChoice::Uring, io: IoChoice::Direct, ..threads(world_size, batch_size, drop_last) };
    match work.builder(&wish, 0, Cursor::default(), 1).build() {
        Ok(_) => wish,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip(format!("resuming through io_uring with O_DIRECT: {error}"));
            Run { engine: EngineChoice::Auto, io: IoChoice::Auto, ..wish }
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_folder_goes_on_with_other_sizes_and_another_engine() {
    within(BOUND, || {
        let work = Work::folder(37, true);
        let ring = |world_size, batch_size, drop_last| ring(&work, world_size, batch_size, drop_last);
        work.stop_everywhere(&threads(1, 4, false), &Run { depth: None, ..ring(3, 5, false) });
        work.stop_everywhere(&ring(2, 3, false), &threads(1, 7, false));
        work.stop_everywhere(&ring(3, 2, true), &Run { depth: Some(1), ..ring(2, 4, false) });
        work.stop_everywhere(&threads(2, 5, false), &ring(3, 3, true));
        work.stop_everywhere(&ring(4, 50, false), &threads(2, 1, false));
    });
}

#[test]
fn records_go_on_with_other_sizes_and_another_engine() {
    within(BOUND, || {
        let work = Work::records(&[10, 0, 1, 30], true);
        let ring = |world_size, batch_size, drop_last| ring(&work, world_size, batch_size, drop_last);
        work.stop_everywhere(&ring(1, 8, true), &threads(4, 2, true));
        work.stop_everywhere(&threads(3, 4, false), &Run { depth: None, ..ring(2, 6, false) });
        let work = Work::records(&[10, 0, 1, 30], false);
        work.stop_everywhere(&ring(1, 5, false), &threads(3, 2, false));
    });
}

#[test]
fn a_batch_of_each_size_and_one_sample() {
    within(BOUND, || {
        let work = Work::folder(9, true);
        for batch_size in [1, 8, 9, 10, 100] {
            for drop_last in [false, true] {
                let before = threads(1, batch_size, drop_last);
                if !work.expected(&before, Cursor::default()).is_empty() {
                    work.stop_everywhere(&before, &threads(2, 2, drop_last));
                }
            }
        }
        let work = Work::folder(1, true);
        work.stop_everywhere(&threads(3, 2, false), &threads(2, 1, false));
    });
}

/// Every position of an epoch is a place to start from, also the one behind its last sample.
#[test]
fn every_cursor_of_an_epoch_is_valid() {
    within(BOUND, || {
        let work = Work::folder(13, true);
        for position in 0..=13 {
            for run in [threads(2, 3, false), threads(2, 3, true)] {
                let start = Cursor::new(0, position);
                let delivered = self::flat(&work.deliver(&run, start, usize::MAX));
                assert_eq!(delivered, work.expected(&run, start), "from {position}, {run:?}");
            }
        }
    });
}

#[test]
fn too_few_samples_for_a_full_batch_are_an_empty_run() {
    let work = Work::folder(5, true);
    let run = threads(2, 3, true);
    let mut loader = work.builder(&run, 1, Cursor::default(), 3).build().expect("a loader");
    assert_eq!(loader.remaining(), Some(0));
    assert!(loader.next().is_none());
}

#[test]
fn a_cursor_behind_the_epoch_is_refused() {
    let work = Work::folder(13, true);
    let start = Cursor::new(0, 14);
    let Err(error) = work.builder(&threads(1, 4, false), 0, start, 1).build() else { panic!("14 of 13 samples") };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("14") && error.to_string().contains("13"), "{error}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("dataset")), "{error}");
}

/// The largest cursor that there is ends at once instead of counting over.
#[test]
fn the_last_epoch_of_all_ends() {
    within(BOUND, || {
        let work = Work::folder(3, false);
        let start = Cursor::new(u64::MAX, 3);
        let mut loader = work.builder(&threads(1, 4, false), 0, start, 1).build().expect("a loader");
        assert!(loader.next().is_none());
        assert_eq!(loader.remaining(), Some(0));
    });
}

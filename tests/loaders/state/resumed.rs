//! Going on from states and cursors: with other world sizes, batch sizes, engines and depths, at every batch, behind
//! errors. What all ranks together get is the epoch, in its order.

use super::stand_at;
use crate::common::check::checked;
use crate::common::fixture;
use crate::common::{skip, within};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::batch::Batch;
use uringload::config::{EngineChoice, IoChoice, OnError, Shuffle};
use uringload::dataset::{self, Dataset, Options, SampleId};
use uringload::sampler::{Cursor, Digest, EpochDigest, Sampler, epoch_digest, for_dataset};
use uringload::{Builder, Loader};
use uringload::{ErrorKind, State};

const BOUND: Duration = Duration::from_secs(120);
const SEED: u64 = 7;
const EPOCHS: u64 = 2;
const BEGIN: From<'static> = From::Cursor(Cursor { epoch: 0, position: 0, rows: 0 });

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

/// Where a run begins.
#[derive(Clone, Copy)]
enum From<'a> {
    Cursor(Cursor),
    /// One for all ranks, or one of each.
    States(&'a [State]),
}

#[derive(Clone)]
struct Work {
    dataset: Arc<dyn Dataset>,
    shuffle: Shuffle,
    _root: Arc<TempDir>,
}

/// What all ranks together got, in order, and where they then stood.
struct Got {
    samples: Vec<(u64, u64, SampleId)>,
    /// One of each rank.
    states: Vec<State>,
    digests: Vec<EpochDigest>,
}

impl Work {
    fn folder(files: u64, shuffle: Shuffle) -> Work {
        let (root, dataset) = fixture::files((0..files).map(|number| (format!("{number:03}"), number * 37 % 3001)));
        Work { dataset, shuffle, _root: Arc::new(root) }
    }

    /// The same, but file 13 is a link to one in the hidden folder `.there`.
    fn folder_with_link(files: u64, shuffle: Shuffle) -> Work {
        let work = Work::folder(files, shuffle);
        let [file, there] = ["013", ".there"].map(|name| work._root.path().join(name));
        fs::create_dir(&there).and_then(|()| fs::rename(&file, there.join("013"))).expect("moved");
        std::os::unix::fs::symlink(".there/013", &file).expect("a link");
        let dataset = dataset::open(&[work._root.path()], &Options::new().format("folder")).expect("a folder");
        Work { dataset, ..work }
    }

    /// Records of 700 bytes in files of several lengths.
    fn records(records: &[u64], shuffle: Shuffle) -> Work {
        let options = Options::new().format("records").set("record_bytes", 700).set("header_bytes", 9);
        let files = records.iter().enumerate().map(|(number, records)| (format!("{number}"), 9 + 700 * records));
        let (root, dataset) = fixture::made(files, &options);
        Work { dataset, shuffle, _root: Arc::new(root) }
    }

    /// `None`, said aloud, where nothing shuffles so.
    fn builds(self) -> Option<Work> {
        match Loader::builder(Arc::clone(&self.dataset)).shuffle(self.shuffle).build() {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                skip(format!("states of a shuffle {:?}: {error}", self.shuffle));
                None
            }
            _ => Some(self),
        }
    }

    fn sampler(&self) -> Arc<dyn Sampler> {
        for_dataset(&*self.dataset, self.shuffle, SEED).expect("an order")
    }

    fn builder(&self, run: &Run, rank: u64) -> Builder {
        let builder = Loader::builder(Arc::clone(&self.dataset)).shuffle(self.shuffle).seed(SEED);
        let builder = builder.rank(rank, run.world_size).batch_size(run.batch_size).drop_last(run.drop_last);
        let builder = builder.engine(run.engine).io(run.io).memory_limit(2 << 20);
        match run.depth {
            Some(depth) => builder.queue_depth(depth),
            None => builder,
        }
    }

    /// All ranks, side by side, for at most `rounds` batches; then their loaders are dropped, whatever they are at.
    fn deliver(&self, run: &Run, from: From<'_>, rounds: usize) -> Got {
        let build = |rank: u64| {
            let builder = self.builder(run, rank);
            let builder = match from {
                From::Cursor(start) => builder.start(start).more_epochs(EPOCHS - start.epoch),
                From::States(states) => builder.epochs(EPOCHS).resume(states.get(rank as usize).unwrap_or(&states[0])),
            };
            builder.build().expect("a loader")
        };
        let mut loaders: Vec<Loader> = (0..run.world_size).map(build).collect();
        let (mut samples, mut cursor) = (Vec::new(), loaders[0].cursor());
        for _ in 0..rounds {
            let left = loaders[0].remaining().expect("an end");
            assert!(loaders.iter().all(|loader| loader.remaining() == Some(left)), "the same number on every rank");
            assert_eq!(loaders[0].is_empty(), left == 0);
            let batches: Vec<_> = loaders.iter_mut().filter_map(Iterator::next).map(Result::unwrap).collect();
            let Some(first) = batches.first() else {
                assert_eq!(left, 0, "an early end");
                assert!(loaders.iter_mut().all(|loader| loader.next().is_none()), "it stays at its end");
                break;
            };
            assert_eq!(batches.len() as u64, run.world_size, "equal steps");
            let (at, next) = (first.cursor, first.next);
            assert!(batches.iter().all(|batch| (batch.cursor, batch.next) == (at, next)), "one cursor for all ranks");
            assert!(at >= cursor && next > at, "{cursor:?} {at:?} {next:?}");
            assert!(loaders.iter().all(|loader| loader.cursor() == next && loader.remaining() == Some(left - 1)));
            let places = at.position..;
            samples.extend(places.zip(self.in_turn(run, &batches)).map(|(position, id)| (at.epoch, position, id)));
            let states: Vec<State> = loaders.iter().map(Loader::state).collect();
            let shared = |state: &State| State::without_delivered(state);
            assert!(states.iter().all(|state| shared(state) == shared(&states[0])), "the same on every rank");
            assert_eq!(states[0].cursor(), next);
            cursor = next;
        }
        let digests = loaders.iter().map(Loader::digest).collect();
        Got { samples, states: loaders.iter().map(Loader::state).map(through_json).collect(), digests }
    }

    /// The samples of one batch of each rank in their global order, checked byte by byte, without padding.
    fn in_turn(&self, run: &Run, batches: &[Batch]) -> Vec<SampleId> {
        let ids: Vec<Vec<SampleId>> = batches.iter().map(|batch| checked(&*self.dataset, batch)).collect();
        assert!(ids.iter().all(|of_rank| of_rank.len() == ids[0].len() && !of_rank.is_empty()), "equal batches");
        assert!(ids[0].len() as u64 <= run.batch_size);
        let is_padding = |rank: usize, place: usize| batches[rank].padding.as_ref().is_some_and(|marks| marks[place]);
        let (mut samples, mut padding) = (Vec::new(), 0);
        for place in 0..ids[0].len() {
            for (rank, ids) in ids.iter().enumerate() {
                if is_padding(rank, place) {
                    padding += 1;
                } else {
                    assert_eq!(padding, 0, "padding comes last");
                    samples.push(ids[place]);
                }
            }
        }
        assert!(padding < run.world_size && (padding == 0 || !run.drop_last), "{padding} of {}", run.world_size);
        let marked = batches.iter().filter(|batch| batch.padding.is_some()).count() as u64;
        assert_eq!(marked, padding, "marks only where there is something to mark");
        samples
    }

    /// Positions of `epoch` that `run` delivers from `from` on.
    fn end(&self, run: &Run, from: u64) -> u64 {
        let (len, round) = (self.sampler().len(), run.world_size * run.batch_size);
        if run.drop_last { from + (len - from) / round * round } else { len }
    }

    fn expected(&self, run: &Run, start: Cursor) -> Vec<(u64, u64, SampleId)> {
        let sampler = self.sampler();
        let mut expected = Vec::new();
        for epoch in start.epoch..EPOCHS {
            let from = if epoch == start.epoch { start.position } else { 0 };
            let at = |position| (epoch, position, sampler.at(Cursor::new(epoch, position)));
            expected.extend((from..self.end(run, from)).map(at));
        }
        expected
    }

    /// Stops `before` at each batch, saves, and goes on as `after` from the cursor and from one state, and as `before`
    /// from each rank's own state.
    fn stop_everywhere(&self, before: &Run, after: &Run) {
        let whole = self.deliver(before, BEGIN, usize::MAX);
        assert_eq!(whole.samples, self.expected(before, Cursor::default()), "{before:?}");
        assert_eq!(whole.states[0].cursor(), Cursor::new(EPOCHS, 0));
        self.assert_sum(&whole.digests, 0, self.end(before, 0));
        let rounds = EPOCHS as usize * whole_rounds(self.sampler().len(), before);
        for stop in 1..=rounds {
            let first = self.deliver(before, BEGIN, stop);
            assert!(whole.samples.starts_with(&first.samples), "{before:?}: the same samples again");
            let cursor = first.states[0].cursor();
            let (last_epoch, last_position, _) = *first.samples.last().expect("samples");
            assert!(first.digests.iter().all(|digest| (digest.epoch, digest.since) == (last_epoch, 0)));
            self.assert_sum(&first.digests, 0, last_position + 1);

            let one = &first.states[stop % first.states.len()];
            let rest = self.deliver(after, From::States(std::slice::from_ref(one)), usize::MAX);
            assert_eq!(rest.samples, self.expected(after, cursor), "{before:?} stopped at {cursor:?}, then {after:?}");
            let by_cursor = self.deliver(after, From::Cursor(cursor), usize::MAX);
            assert_eq!(by_cursor.samples, rest.samples, "{before:?} stopped at {cursor:?}, then {after:?}");
            let all = [&first.samples[..], &rest.samples].concat();
            if !before.drop_last && !after.drop_last {
                assert_eq!(all, whole.samples, "each sample of each epoch once");
            }
            if cursor.epoch < EPOCHS - 1 {
                self.assert_sum(&rest.digests, 0, self.end(after, 0));
            } else if cursor.epoch < EPOCHS && after.world_size != before.world_size {
                self.assert_sum(&rest.digests, cursor.position, self.end(after, cursor.position));
            }

            let again = self.deliver(before, From::States(&first.states), usize::MAX);
            assert_eq!(again.samples, self.expected(before, cursor));
            self.assert_sum(&again.digests, 0, self.end(before, 0));
        }
    }

    /// The digests of all ranks add up to those positions of their epoch.
    fn assert_sum(&self, digests: &[EpochDigest], since: u64, end: u64) {
        let mut sum = Digest::default();
        for digest in digests {
            assert_eq!((digest.epoch, digest.since), (digests[0].epoch, since), "{digests:?}");
            sum += digest.passed();
        }
        assert_eq!(sum, epoch_digest(&*self.sampler(), digests[0].epoch, since..end), "{since}..{end}: {digests:?}");
    }
}

/// Batches of each rank in an epoch.
fn whole_rounds(len: u64, run: &Run) -> usize {
    let round = run.world_size * run.batch_size;
    (if run.drop_last { len / round } else { len.div_ceil(round) }) as usize
}

/// What a program that saves and loads would have.
fn through_json(state: State) -> State {
    let loaded = State::from_json(&state.to_json()).expect("what was written is read");
    assert_eq!(loaded, state);
    loaded
}

trait WithoutDelivered {
    fn without_delivered(&self) -> State;
}

impl WithoutDelivered for State {
    fn without_delivered(&self) -> State {
        let mut state = self.clone();
        state.delivered = None;
        state
    }
}

fn threads(world_size: u64, batch_size: u64, drop_last: bool) -> Run {
    let (engine, io) = (EngineChoice::Threads, IoChoice::Buffered);
    Run { world_size, batch_size, drop_last, engine, io, depth: Some(2) }
}

fn auto(world_size: u64, batch_size: u64, drop_last: bool) -> Run {
    let (engine, io) = (EngineChoice::Auto, IoChoice::Auto);
    Run { engine, io, depth: None, ..threads(world_size, batch_size, drop_last) }
}

/// Past the page cache through a ring, or how it is read where one of them is not available.
fn ring(work: &Work, world_size: u64, batch_size: u64, drop_last: bool) -> Run {
    let wish = Run { engine: EngineChoice::Uring, io: IoChoice::Direct, ..threads(world_size, batch_size, drop_last) };
    match work.builder(&wish, 0).build() {
        Ok(_) => wish,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip(format!("resuming through io_uring with O_DIRECT: {error}"));
            Run { depth: Some(2), ..auto(world_size, batch_size, drop_last) }
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_stop_in_a_folder_goes_on_with_other_sizes_and_another_engine() {
    within(BOUND, || {
        for shuffle in [Shuffle::Off, Shuffle::Full, Shuffle::Window(8), Shuffle::Shards { mixed: 2 }] {
            let Some(work) = Work::folder(29, shuffle).builds() else { continue };
            let ring = |world_size, batch_size, drop_last| ring(&work, world_size, batch_size, drop_last);
            work.stop_everywhere(&threads(2, 3, false), &Run { depth: None, ..ring(3, 4, false) });
            work.stop_everywhere(&ring(3, 2, true), &threads(2, 3, false));
            work.stop_everywhere(&auto(1, 7, false), &threads(4, 1, true));
            work.stop_everywhere(&ring(4, 50, false), &Run { depth: Some(1), ..ring(2, 4, false) });
        }
    });
}

#[test]
fn every_stop_in_records_goes_on_with_other_sizes_and_another_engine() {
    within(BOUND, || {
        for shuffle in [Shuffle::Off, Shuffle::Full, Shuffle::Window(5), Shuffle::Shards { mixed: 1 }] {
            let Some(work) = Work::records(&[10, 0, 1, 30], shuffle).builds() else { continue };
            let ring = |world_size, batch_size, drop_last| ring(&work, world_size, batch_size, drop_last);
            work.stop_everywhere(&ring(4, 3, false), &threads(1, 5, false));
            work.stop_everywhere(&threads(2, 50, false), &auto(3, 6, true));
            work.stop_everywhere(&ring(1, 8, true), &threads(4, 2, true));
        }
    });
}

#[test]
fn a_batch_of_each_size_and_one_sample() {
    within(BOUND, || {
        let work = Work::folder(9, Shuffle::Full);
        for batch_size in [1, 8, 9, 10, 100] {
            for drop_last in [false, true] {
                let before = threads(1, batch_size, drop_last);
                if !work.expected(&before, Cursor::default()).is_empty() {
                    work.stop_everywhere(&before, &threads(2, 2, drop_last));
                }
            }
        }
        let work = Work::folder(1, Shuffle::Full);
        work.stop_everywhere(&threads(3, 2, false), &threads(2, 1, false));
    });
}

/// Every position of an epoch is a place to start from, also the one behind its last sample.
#[test]
fn every_cursor_of_an_epoch_is_valid() {
    within(BOUND, || {
        let work = Work::folder(13, Shuffle::Full);
        for position in 0..=13 {
            for run in [threads(2, 3, false), threads(2, 3, true)] {
                let start = Cursor::new(0, position);
                let delivered = work.deliver(&run, From::Cursor(start), usize::MAX);
                assert_eq!(delivered.samples, work.expected(&run, start), "from {position}, {run:?}");
            }
        }
    });
}

#[test]
fn too_few_samples_for_a_full_batch_are_an_empty_run() {
    let work = Work::folder(5, Shuffle::Full);
    let run = threads(2, 3, true);
    let mut loader = work.builder(&run, 1).more_epochs(3).build().expect("a loader");
    assert_eq!(loader.remaining(), Some(0));
    assert!(loader.next().is_none());
}

#[test]
fn a_cursor_behind_the_epoch_is_refused() {
    let work = Work::folder(13, Shuffle::Full);
    let start = Cursor::new(0, 14);
    let Err(error) = work.builder(&threads(1, 4, false), 0).start(start).more_epochs(1).build() else {
        panic!("14 of 13 samples")
    };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("14") && error.to_string().contains("13"), "{error}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("dataset")), "{error}");
}

/// The largest cursor that there is ends at once instead of counting over.
#[test]
fn the_last_epoch_of_all_ends() {
    within(BOUND, || {
        let work = Work::folder(3, Shuffle::Off);
        let start = Cursor::new(u64::MAX, 3);
        let mut loader = work.builder(&threads(1, 4, false), 0).start(start).more_epochs(1).build().expect("a loader");
        assert!(loader.next().is_none());
        assert_eq!(loader.remaining(), Some(0));
    });
}

/// The state is that of the batch that the consumer holds, though all others were read by then.
#[test]
fn what_was_read_ahead_is_not_in_the_state() {
    within(BOUND, || {
        let work = Work::folder(40, Shuffle::Full);
        let mut loader = work.builder(&threads(1, 2, false), 0).build().expect("a loader");
        for held in 0..19 {
            let batch = loader.next().expect("a batch").expect("no error");
            let asked = Instant::now();
            // The pool holds all of the folder, so it is read to its end without anybody asking for more.
            while loader.stats().snapshot().count.reads < 39 {
                assert!(asked.elapsed() < BOUND / 2, "it does not read ahead");
                std::thread::sleep(Duration::from_millis(1));
            }
            let state = loader.state();
            assert_eq!(state.cursor(), batch.next);
            assert_eq!(state.cursor(), Cursor::new(0, 2 * held + 2));
            assert_eq!(state.delivered.unwrap().digest.delivered.samples, 2 * held + 2);
            let mut rest = work.builder(&threads(1, 2, false), 0).resume(&state).build().expect("a loader");
            assert_eq!(rest.state(), state, "nothing has come since");
            assert_eq!(rest.next().unwrap().unwrap().cursor, batch.next);
        }
    });
}

/// An error that was raised leaves the state before its batch, so that it is tried again; who goes on after it has
/// lost those samples, and the digest says so.
#[test]
fn a_raised_error_is_tried_again_or_counts_as_lost() {
    within(BOUND, || {
        let work = Work::folder_with_link(20, Shuffle::Full);
        let sampler = work.sampler();
        // Not the one empty file, which needs no read.
        let bad = (0..20).find(|&position| sampler.at(Cursor::new(0, position)).0 == 13).expect("a position");
        // A folder goes away and comes back, as a mount does: a file that is renamed itself has another time of change.
        let [there, away] = [".there", ".away"].map(|name| work._root.path().join(name));
        fs::rename(&there, &away).expect("renamed");
        let run = threads(2, 2, false);
        let mut loaders: Vec<Loader> = (0..2).map(|rank| work.builder(&run, rank).build().unwrap()).collect();
        let mut failed = 0;
        for loader in &mut loaders {
            while let Some(next) = loader.next() {
                match next {
                    Ok(batch) => assert_eq!(loader.state().cursor(), batch.next),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                        failed += 1;
                        let state = loader.state();
                        assert_eq!(state.cursor(), Cursor::new(0, bad / 4 * 4), "before the batch");
                        assert_eq!(state.delivered.unwrap().digest.lost, Digest::default());
                        fs::rename(&away, &there).expect("renamed");
                        let rank = state.delivered.unwrap().rank;
                        let mut again = work.builder(&run, rank).resume(&state).build().expect("a loader");
                        let batch = again.next().expect("a batch").expect("the file is back");
                        assert!(batch.ids.contains(&SampleId(13)));
                        fs::rename(&there, &away).expect("renamed");
                    }
                }
            }
        }
        assert_eq!(failed, 1);
        let digests: Vec<EpochDigest> = loaders.iter().map(Loader::digest).collect();
        let lost: u64 = digests.iter().map(|digest| digest.lost.samples).sum();
        // In the last batch no thread has gone on after it.
        let (lost_here, end) = if bad >= 16 { (0, 16) } else { (2, 20) };
        assert_eq!(lost, lost_here, "{digests:?}");
        if bad < 16 {
            work.assert_sum(&digests, 0, end);
        }
        assert!(bad < 16, "the seed was chosen so that there is a batch after the bad one: {bad}");
    });
}

#[test]
fn what_is_skipped_is_lost_and_adds_up() {
    within(BOUND, || {
        let work = Work::folder(20, Shuffle::Full);
        for bad in ["007", "013"] {
            fs::remove_file(work._root.path().join(bad)).expect("removed");
        }
        let run = threads(3, 2, false);
        let build = |rank| work.builder(&run, rank).on_error(OnError::Skip).build().expect("a loader");
        let mut loaders: Vec<Loader> = (0..3).map(build).collect();
        let delivered: u64 = loaders.iter_mut().flatten().map(|batch| batch.unwrap().digest.samples).sum();
        assert_eq!(delivered, 18);
        let digests: Vec<EpochDigest> = loaders.iter().map(Loader::digest).collect();
        assert_eq!(digests.iter().map(|digest| digest.lost.samples).sum::<u64>(), 2);
        work.assert_sum(&digests, 0, 20);
    });
}

/// `epochs` is the length of the run: a state, new or old, takes nothing off it and adds nothing to it.
#[test]
fn epochs_count_from_the_beginning_of_the_run() {
    within(BOUND, || {
        let work = Work::folder(10, Shuffle::Full);
        let run = threads(1, 4, false);
        let builder = || work.builder(&run, 0);
        let epochs_of = |builder: Builder| -> Vec<u64> {
            let loader = builder.build().expect("a loader");
            loader.map(|batch| batch.expect("no error").cursor.epoch).collect()
        };
        let mut loader = builder().epochs(3).build().expect("a loader");
        (0..4).for_each(|_| drop(loader.next().expect("a batch").expect("no error")));
        let new = loader.state();
        assert_eq!(new.cursor(), Cursor::new(1, 4));
        // As a state of a version before: without a look at the content, and without a checksum.
        let mut old: serde_json::Value = serde_json::from_str(&new.to_json()).expect("JSON");
        old["dataset"].as_object_mut().expect("an object").remove("content");
        old.as_object_mut().expect("an object").remove("checksum");
        let old = State::from_json(&old.to_string()).expect("an old state");
        for state in [&new, &old] {
            let resumed = || builder().resume(state);
            assert_eq!(epochs_of(resumed().epochs(3)), [1, 1, 2, 2, 2], "the rest of a run of 3");
            assert_eq!(epochs_of(resumed().epochs(2)), [1, 1]);
            assert!(epochs_of(resumed().epochs(1)).is_empty(), "such a run is complete");
            assert_eq!(epochs_of(resumed().more_epochs(3)), [1, 1, 2, 2, 2, 3, 3, 3]);
            assert!(epochs_of(resumed().more_epochs(0)).is_empty());
            assert_eq!(epochs_of(resumed()), [1, 1], "to the end of the epoch");
            assert_eq!(epochs_of(builder().start(state.cursor()).epochs(2)), [1, 1], "as a bare cursor");
            assert_eq!(resumed().epochs(3).order().expect("an order").remaining(), Some(5));
            let endless = resumed().epochs(None).build().expect("a loader");
            assert_eq!(endless.remaining(), None);
        }
    });
}

#[test]
fn each_epoch_has_a_digest_of_its_own() {
    within(BOUND, || {
        let work = Work::folder(10, Shuffle::Full);
        let run = threads(1, 4, false);
        let mut loader = work.builder(&run, 0).epochs(2).build().expect("a loader");
        let of = |epoch, end| epoch_digest(&*work.sampler(), epoch, 0..end);
        assert_eq!((loader.digest().passed(), loader.last_digest()), (Digest::default(), None));
        for _ in 0..3 {
            loader.next().expect("a batch").expect("no error");
        }
        assert_eq!((loader.digest().passed(), loader.last_digest()), (of(0, 10), None), "still that of what was held");
        let state = loader.state();
        assert_eq!(state.cursor(), Cursor::new(1, 0));
        assert_eq!(state.delivered.unwrap().digest.passed(), of(0, 10), "a whole epoch can be proved from its states");
        loader.next().expect("a batch").expect("no error");
        assert_eq!(loader.digest().passed(), of(1, 4));
        assert_eq!(loader.last_digest().unwrap().passed(), of(0, 10));
        // Through a state at the border, too.
        let mut loader = work.builder(&run, 0).resume(&state).build().expect("a loader");
        loader.next().expect("a batch").expect("no error");
        assert_eq!(loader.digest().passed(), of(1, 4));
        assert_eq!(loader.last_digest().unwrap().passed(), of(0, 10));
    });
}

/// What may be different is different: all of it at once.
#[test]
fn means_of_reading_are_no_part_of_a_state() {
    within(BOUND, || {
        let work = Work::folder(10, Shuffle::Full);
        let state = stand_at(work.builder(&threads(1, 4, false), 0), 1);
        let builder = work.builder(&threads(2, 3, true), 1).queue_depth(1).io(IoChoice::Buffered);
        let mut loader = builder.memory_limit(64 << 20).resume(&state).build().expect("a loader");
        let digest = loader.digest();
        assert_eq!((digest.since, digest.passed()), (4, Digest::default()), "counted anew from there on");
        assert_eq!(loader.next().unwrap().unwrap().cursor, state.cursor());
    });
}

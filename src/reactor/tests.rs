//! The simulator: runs the whole reactor over a disk that lies, all from one seed. The oracle knows every byte of the
//! disk, so it can check that each sample comes exactly once, in order, byte-exact or as its error, and that no memory
//! is lost.

mod drive;
mod outages;
mod rows;
pub(super) mod seeds;
mod service;
mod stretches;
mod units;

use super::*;
use crate::ErrorKind;
use crate::batch::{Column, Data, FailedSample};
use crate::collate::Collation;
use crate::config::{Collate, Config, MaxFailures, PadValue, Padding};
use crate::dataset::{self, DType, FileId, FileTable, Options, SampleId, Shape};
use crate::engine::ABANDONED_MAX;
use crate::engine::sim::{self, Faults, Sim, byte_at};
use crate::patience::Patience;
use crate::plan::BatchPlan;
use crate::plan::{Grid, Joining, Keep};
use crate::queue::{NoItem, Receiver, bounded};
use crate::sampler::{Cursor, Digest, Order, Position, Sampler, Sequential, Shuffled, replacement};
use bytes::Bytes;
use drive::{comes_home, drive, faults};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use seeds::each_seed;
use uringload_sys::Arena;

/// Seeds of the quick suite. The slow suite runs more (`URINGLOAD_SEEDS`).
const SEEDS: u64 = 500;
/// This many seeds show everything that can happen.
const SEEDS_THAT_SHOW_ALL: u64 = 5_000;

/// How long a world waits for its disk, in its own time.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(1200);

/// A world that takes more turns than this has hung.
const TURNS_MAX: usize = 200_000;

/// One simulated run.
struct World {
    seed: u64,
    random: Xoshiro256PlusPlus,
    dataset: Arc<dyn crate::dataset::Dataset>,
    order: Order,
    layout: Layout,
    /// The columns' configuration.
    config: Config,
    collation: Arc<Collation>,
    rules: Rules,
    max_failures: Option<MaxFailures>,
    faults: Faults,
    pool_bytes: usize,
    reserve_bytes: usize,
    queue_capacity: usize,
    /// Number of truncated values.
    cut: u64,
    /// What the consumer has received so far.
    heard: Heard,
    /// Blocks that arrived before their batches.
    early: Vec<Told>,
    /// The errno of an outage that ends the run.
    ends_by: Option<i32>,
    /// The stretches of files that are read whole, and which are kept.
    stretches: Option<(Grid, Keep)>,
    joining: Joining,
}

/// A block that arrived before its batch and is back in the pool.
struct Told {
    batch: u64,
    known_as: Bytes,
    content: Vec<u8>,
}

#[derive(Default)]
struct Heard {
    /// Samples and batches that failed.
    failures: u64,
    /// Whether it received an error that memory ran out.
    starved: bool,
    /// Batches that had both timeouts and samples.
    holes: u64,
    irreplaceable: u64,
}

/// What happened in at least one world. A suite in which nothing goes wrong proves nothing.
#[derive(Debug, Default)]
struct Seen {
    timeouts: u64,
    abandoned: u64,
    holes: u64,
    replaced: u64,
    irreplaceable: u64,
    starved: u64,
    too_many_failures: u64,
    late: u64,
    early: u64,
    saved: u64,
    /// Bundles: those that came back whole, and those that did not.
    bundles: [u64; 2],
}

/// The batch with its values, where collation was deferred. For blocks that came `early`, the batch may know only the
/// echo.
fn collected(mut batch: Batch, early: &[Told]) -> Batch {
    let Some(mut deferred) = batch.deferred.take() else { return batch };
    for (column, pieces) in batch.columns.iter_mut().zip(&mut deferred.columns) {
        let Some(pieces) = pieces else { continue };
        for (_, piece) in &mut pieces.pieces {
            let lies_in = |told: &&Told| {
                let (start, at) = (told.known_as.as_ptr().addr(), piece.as_ptr().addr());
                start <= at && at + piece.len() <= start + told.known_as.len()
            };
            if let Some(told) = early.iter().find(lies_in) {
                let start = piece.as_ptr().addr() - told.known_as.as_ptr().addr();
                *piece = Bytes::copy_from_slice(&told.content[start..start + piece.len()]);
            }
        }
        match &mut column.data {
            Data::Dense { bytes, .. } => *bytes = pieces.collect(),
            Data::Ragged { values, .. } | Data::Padded { values, .. } => *values = pieces.collect(),
            Data::Packed(packed) => packed.values = pieces.collect(),
            Data::Views(_) | Data::I64(_) => panic!("pieces of what is there"),
        }
    }
    batch
}

/// Whether this is an outage that lasted too long.
fn is_outage(error: &Error) -> bool {
    error.remedy().is_some_and(|remedy| remedy.contains("outage_timeout"))
}

/// A sample of an expected batch.
#[derive(Clone, Copy)]
struct Wanted {
    id: SampleId,
    position: Position,
}

/// Column configurations that the dataset of a world allows.
fn any_columns(pick: &mut impl FnMut(u64) -> u64, dtype: DType, is_records: bool) -> Config {
    let padding = Padding {
        value: PadValue::Int(pick(2) as i64 * 77),
        max_length: [None, Some(1), Some(3000)][pick(3) as usize],
        multiple_of: [1, 7, 64][pick(3) as usize],
    };
    let value = if dtype == DType::BF16 { PadValue::Bits(0xfedc) } else { padding.value };
    let padded = Collate::Padded(Padding { value, ..padding });
    let dense = if is_records { Collate::Dense } else { Collate::Ragged };
    Config {
        collate: [Collate::Auto, Collate::Views, Collate::Ragged, dense, padded][pick(5) as usize],
        key: pick(4) == 0,
        index: pick(4) == 0,
        ..Config::default()
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pick = |below: u64| random.next_u64() % below;
        let alignment = [1, 512, 4096][pick(3) as usize];
        let mut files = FileTable::new();
        files.push_root("/sim");
        let is_records = pick(2) == 0;
        let record_bytes = [1, 7, 512, 1000, 4096, 5000, 20_000][pick(7) as usize];
        let header_bytes = [0, 0, 3, 512][pick(4) as usize];
        let dtype = [DType::U8, DType::U8, DType::BF16, DType::I32][pick(4) as usize];
        for index in 0..1 + pick(12) {
            let size = match pick(6) {
                0 if !is_records => 0,
                1 => 1 + pick(600),
                2 => 512 * (1 + pick(20)),
                3 => pick(300_000),
                _ => pick(30_000),
            };
            let of_records = header_bytes + (1 + (size / record_bytes).min(200)) * record_bytes;
            let size = if is_records { of_records } else { size.next_multiple_of(dtype.size()) };
            files.push(format!("f{index}").as_bytes(), size).unwrap();
        }
        let dataset: Arc<dyn crate::dataset::Dataset> = if is_records {
            let options = Options::new().format("records").set("record_bytes", record_bytes);
            dataset::inspect::of_files(files, &options.set("header_bytes", header_bytes)).unwrap()
        } else {
            let options = Options::new().format("folder").set("labels", false).set("dtype", dtype).threads(1);
            dataset::inspect::of_files(files, &options).unwrap()
        };
        let len = dataset.len();
        let (world_size, batch_size) = (1 + pick(3), 1 + pick(20));
        let (rank, drop_last) = (pick(world_size), pick(2) == 0);
        let sampler: Arc<dyn Sampler> =
            if pick(2) == 0 { Arc::new(Shuffled::new(len, seed)) } else { Arc::new(Sequential::new(len)) };
        let coalesce_gap = [0, 0, 0, 1024, 100_000][pick(5) as usize];
        let (start, epochs) = (Cursor::new(pick(3), [0, pick(len + 1)][pick(2) as usize]), Some(1 + pick(2)));
        let asked = Config { rank, world_size, batch_size, drop_last, start, epochs, ..Config::default() };
        let order = Order::new(&asked, Arc::clone(&dataset), sampler).unwrap();
        let layout = Layout { alignment, read_bytes: alignment.max(4096) * (1 + pick(8)), coalesce_gap, border: 0 };
        let config = any_columns(&mut pick, dtype, is_records);
        let collation = Collation::new(&config, &*dataset).unwrap();
        let is_deferred = seed.is_multiple_of(3);
        let lies = pick(4) > 0;
        let mut chance = |most: u64| if lies { pick(most) as u8 } else { 0 };
        let stuck = [0, 0, chance(30)][chance(3) as usize];
        let faults = Faults {
            short: chance(80),
            momentary: chance(60),
            device: chance(40),
            lasting: chance(128),
            delay: chance(200),
            shrunk: chance(40),
            stuck,
            deaf: chance(256),
            reorder: lies,
            throttled: [0, 0, chance(100)][chance(3) as usize],
            ..Faults::default()
        };
        let rules = Rules {
            width: Width { start: 1 + pick(20) as usize, most: 1 + pick(20) as usize, fixed: pick(2) == 0 },
            read_bytes: layout.read_bytes,
            on_error: [OnError::Skip, OnError::Raise, OnError::Warn, OnError::Replace][pick(4) as usize],
            seed,
            // Reads that never end must be given up, or the run would not end either.
            timeout: (stuck > 0 || pick(4) == 0).then(|| Duration::from_millis([2, 50, 2000][pick(3) as usize])),
            outage_timeout: Some(OUTAGE_TIMEOUT),
            starved_after: Duration::from_secs(60),
        };
        let gathered = collation.target_bound(&*dataset, coalesce_gap, batch_size, 0);
        let bound = (dataset.largest(batch_size) + batch_size * (2 * 4096 + coalesce_gap)) * 2 + (1 << 20);
        let reserve_bytes = if rules.on_error == OnError::Replace { dataset.largest(1) + 3 * 4096 } else { 0 } as usize;
        // With room for one batch only, memory that is not returned shows up.
        let tight = dataset.largest(batch_size) + batch_size * (2 * 4096 + coalesce_gap) + 4 * 4096;
        let bytes = if pick(4) == 0 { tight } else { bound + pick(4) * bound };
        let pool_bytes = (bytes + gathered) as usize + reserve_bytes;
        let max_failures = [None, None, Some(MaxFailures::Count(pick(30)))][pick(3) as usize];
        let queue_capacity = 1 + pick(4) as usize;
        World {
            seed,
            random,
            dataset,
            order,
            layout,
            config,
            collation: Arc::new(if is_deferred { collation.deferred() } else { collation }),
            rules,
            max_failures,
            faults,
            pool_bytes,
            reserve_bytes,
            queue_capacity,
            cut: 0,
            heard: Heard::default(),
            early: Vec::new(),
            ends_by: None,
            stretches: None,
            joining: Joining::default(),
        }
        .with_locality()
    }

    /// The expected batches.
    fn expected(&self) -> Vec<(Cursor, Vec<Wanted>)> {
        let mut expected = Vec::new();
        let (sampler, strided, from) = (self.order.sampler(), self.order.strided(), self.order.start());
        let len = sampler.len();
        for epoch in from.epoch..self.order.end().unwrap() {
            let position = if epoch == from.epoch { from.position } else { 0 };
            let start = Cursor::new(epoch, position);
            for index in 0..strided.batches(len - position) {
                let mut positions = Vec::new();
                strided.batch(start, len, index, &mut positions);
                let cursor = if index == 0 { start } else { strided.cursor_after(start, len, index - 1) };
                let wanted =
                    |&position: &Position| Wanted { id: sampler.at(Cursor::new(epoch, position.position)), position };
                expected.push((cursor, positions.iter().map(wanted).collect()));
            }
        }
        expected
    }

    fn chance(&mut self, of_100: u64) -> bool {
        self.random.next_u64() % 100 < of_100
    }

    /// Returns how many reads an outage failed.
    fn run(mut self, seen: &mut Seen) -> u64 {
        let expected = self.expected();
        let bell = Arc::new(Bell::new());
        let (sender, mut receiver) = bounded(self.queue_capacity, Arc::clone(&bell));
        let planner = self.order.planner(self.layout).with_collation(Arc::clone(&self.collation));
        let kept = self
            .stretches
            .as_ref()
            .map(|(grid, keep)| KeptStretches::new(grid.clone(), keep.room(), Arc::clone(&bell)));
        let planner = planner.with_stretches(self.stretches.take()).with_joining(self.joining);
        let mut pool = Pool::new(self.pool_bytes, self.dataset.largest(1) as usize, Arc::clone(&bell)).unwrap();
        pool.reserve(self.reserve_bytes);
        let failures = Failures::new(self.max_failures, None, self.order.clone());
        let stats = Arc::new(Stats::new());
        let (tell_early, mut early) = bounded(3, Arc::new(Bell::new()));
        let echoes =
            !self.dataset.index().parse_reads_bytes && !self.collation.keeps_views() && !self.seed.is_multiple_of(2);
        let echoes = echoes.then(|| Bytes::from_owner(Arena::shadow(pool.arena().len()).unwrap().1));
        let early_told = self.collation.is_deferred().then(|| Early::new(tell_early, echoes));
        let reactor = Reactor::new(planner, pool, sender, bell, Arc::clone(&stats), self.rules, failures);
        let mut reactor = reactor.with_early(early_told).with_kept(kept);
        let mut sim =
            Sim::new(Arc::clone(&self.dataset), self.rules.width.most, self.layout.alignment, self.seed, self.faults);
        if let Some(limits) = self.service() {
            sim = sim.with_service(limits);
        }
        reactor.reads.bundles = self.rules.timeout.is_none() && !self.seed.is_multiple_of(3);
        let (mut held, mut next) = (Vec::new(), 0);
        let (mut finished, mut ended_by) = (false, None);
        for _ in 0..TURNS_MAX {
            self.turn_whole(&mut reactor);
            if !finished && ended_by.is_none() {
                let turn = match reactor.turn(&mut sim) {
                    Ok(turn) => turn,
                    Err(error) => {
                        ended_by = Some(error);
                        continue;
                    }
                };
                match turn {
                    // Like the loader: at once if the route stays the same, otherwise when nothing is in flight.
                    Turn::Epoch { epoch, idle } if idle || self.seed.is_multiple_of(2) => {
                        if self.seed.is_multiple_of(7) {
                            // None of the files exists on disk, so all stretches are read again.
                            reactor.look_at_kept(epoch, &mut sim, &Patience::new(Duration::from_secs(60)));
                        }
                        reactor.start_epoch(epoch);
                    }
                    Turn::Epoch { .. } => {}
                    Turn::Finished => finished = true,
                    Turn::Running => {}
                    Turn::Abandoned => panic!("the consumer has not left"),
                }
            }
            if self.chance(60) {
                held.clear();
            }
            if finished || ended_by.is_some() || self.chance(50) {
                held.extend(self.receive((&mut receiver, &mut early), &expected, &mut next, &sim));
            }
            if self.chance(50) {
                seen.early += self.receive_early(&mut early, next as u64);
            }
            seen.abandoned += u64::from(reactor.has_abandoned());
            if std::mem::take(&mut self.heard.starved) {
                seen.starved += 1;
                // Reads that never end, or this consumer, may hold all memory. That is reported, and then the reads
                // end.
                assert!(reactor.has_abandoned() || !held.is_empty());
                sim.release();
            }
            if (finished && next == expected.len()) || (ended_by.is_some() && receiver.is_empty()) {
                break;
            }
        }
        self.check_failures(ended_by.as_ref(), &reactor, &sim);
        seen.timeouts += stats.count.timeouts.get();
        seen.saved += stats.count.reads_saved.get();
        (0..2).for_each(|which| seen.bundles[which] += sim.bundles[which]);
        seen.replaced += stats.count.samples_replaced.get();
        seen.holes += self.heard.holes;
        seen.irreplaceable += self.heard.irreplaceable;
        seen.too_many_failures += u64::from(ended_by.is_some());
        if ended_by.is_some() {
            return sim.failed_by_outage;
        }
        assert_eq!(next, expected.len(), "batches are missing: a hang or a loss");
        assert!(finished);
        held.clear();
        seen.early += self.receive_early(&mut early, next as u64);
        seen.late += u64::from(reactor.has_abandoned());
        comes_home(&mut reactor, &mut sim);
        assert!(!reactor.has_abandoned(), "what was given up comes home when it ends");
        assert_eq!(stats.count.samples_truncated.get(), self.cut, "values are cut in silence");
        assert_eq!(sim.in_flight(), 0);
        assert!(reactor.outages.is_quiet());
        sim.failed_by_outage
    }

    /// Checks that a loader ends early only for a reason, and that a reason always ends it.
    fn check_failures(&self, ended_by: Option<&Error>, reactor: &Reactor, sim: &Sim) {
        let limit = match self.max_failures {
            Some(MaxFailures::Count(limit)) => limit,
            _ => u64::MAX,
        };
        assert!(self.heard.failures <= limit, "{} failures were let pass", self.heard.failures);
        let Some(error) = ended_by else { return };
        match error.kind() {
            ErrorKind::TooManyFailures => {
                let broke = self.max_failures.is_none() && error.what().contains(" of the last ");
                assert!(reactor.failures.total() > limit || broke, "{error}");
                assert!(error.path().is_some() && error.offset().is_some(), "{error}");
            }
            ErrorKind::Timeout => assert!(reactor.timeouts.abandoned().0 > ABANDONED_MAX, "{error}"),
            _ if self.ends_by.is_some() || sim.is_all_bad() => {
                assert!(self.heard.failures == 0 || sim.is_all_bad(), "{error}");
                assert!(is_outage(error), "{error}");
            }
            _ => panic!("{error}"),
        }
    }

    /// Takes the blocks that arrived before their batches. Returns how many.
    fn receive_early(&mut self, early: &mut Receiver<EarlyBlock>, next: u64) -> u64 {
        let mut blocks = 0;
        while let Ok(block) = early.try_recv() {
            assert!(block.bytes.len() as u64 <= block.batch_bytes && block.blocks > 0);
            assert!(block.batch < next + PENDING_BATCHES as u64 + self.queue_capacity as u64);
            blocks += 1;
            let EarlyBlock { batch, known_as, bytes, .. } = block;
            assert_eq!(known_as.len(), bytes.len());
            self.early.push(Told { batch, known_as, content: bytes.to_vec() });
        }
        blocks
    }

    /// Takes one batch, checks it against the oracle, and keeps it for a while.
    fn receive(
        &mut self,
        (receiver, early): (&mut Receiver<Result<Batch>>, &mut Receiver<EarlyBlock>),
        expected: &[(Cursor, Vec<Wanted>)],
        next: &mut usize,
        sim: &Sim,
    ) -> Option<Batch> {
        let batch = match receiver.try_recv() {
            Err(NoItem::Empty | NoItem::Closed) => return None,
            Ok(Err(error)) if error.kind() == ErrorKind::Starved => {
                self.heard.starved = true;
                return None;
            }
            Ok(received) => received,
        };
        let (cursor, samples) = &expected[*next];
        let number = *next as u64;
        *next += 1;
        self.receive_early(early, number);
        let of_batch: Vec<Told> = self.early.extract_if(.., |told| told.batch <= number).collect();
        let told = of_batch.into_iter().filter(|told| told.batch == number).collect::<Vec<_>>();
        let batch = match batch {
            Ok(batch) => collected(batch, &told),
            Err(error) => {
                assert!(matches!(self.rules.on_error, OnError::Raise | OnError::Replace), "{error}");
                assert!(samples.iter().any(|wanted| self.may_fail(wanted.id, &error, sim)), "a made-up error: {error}");
                self.heard.failures += 1;
                self.heard.irreplaceable += u64::from(self.rules.on_error == OnError::Replace);
                return None;
            }
        };
        assert_eq!(batch.cursor, *cursor);
        self.heard.failures += batch.failed.len() as u64;
        for failed in &batch.failed {
            self.check_failed(failed, sim);
        }
        let is_timeout = |failed: &FailedSample| failed.error.kind() == ErrorKind::Timeout;
        self.heard.holes += u64::from(batch.failed.iter().any(is_timeout) && !batch.is_empty());
        // The expected samples, including replacements.
        let mut failed = batch.failed.iter().peekable();
        let mut there = Vec::new();
        let (mut digest, mut lost) = (Digest::default(), Digest::default());
        for &Wanted { id, position } in samples {
            let missing = failed.next_if(|failed| failed.id == id && failed.position == position.position);
            if !position.padding {
                let digest = if missing.is_some() { &mut lost } else { &mut digest };
                digest.add(position.position, id, 0);
            }
            match missing {
                None => there.push((id, position.padding)),
                Some(missing) => there.extend(missing.replaced_by.map(|by| (by, position.padding))),
            }
        }
        assert!(failed.next().is_none(), "a failure of no sample of the batch");
        assert_eq!((batch.digest, batch.lost), (digest, lost));
        assert_eq!(batch.ids, there.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        if samples.iter().any(|wanted| wanted.position.padding) {
            assert_eq!(batch.padding, Some(there.iter().map(|(_, padding)| *padding).collect()));
        } else {
            assert_eq!(batch.padding, None);
        }
        let stands_in = batch.failed.iter().any(|failed| failed.replaced_by.is_some());
        self.check_form(&batch.columns[0], batch.len(), stands_in);
        if self.rules.on_error == OnError::Replace {
            assert_eq!(batch.len(), samples.len(), "ranks stay aligned");
        }
        for (index, &id) in batch.ids.iter().enumerate() {
            assert!(!self.must_fail(id, sim), "sample {id:?} cannot have been read");
            self.check_bytes(id, &batch.columns[0].bytes_of(index).unwrap());
        }
        let mut added = batch.columns[1..].iter();
        if self.config.key {
            let (column, mut key) = (added.next().unwrap(), Vec::new());
            for (index, &id) in batch.ids.iter().enumerate() {
                key.clear();
                self.dataset.key(id, &mut key);
                assert_eq!(column.bytes_of(index).unwrap(), key);
            }
        }
        if self.config.index {
            let Data::I64(numbers) = &added.next().unwrap().data else { panic!("integers") };
            assert!(numbers.iter().copied().eq(batch.ids.iter().map(|id| id.0 as i64)));
        }
        assert_eq!(added.count(), 0);
        Some(batch)
    }

    /// Checks that the column has the requested form, even if samples were skipped.
    fn check_form(&self, column: &Column, samples: usize, stands_in: bool) {
        let is_fixed = self.is_fixed();
        match (&column.data, self.config.collate) {
            (Data::Views(views), Collate::Views) => assert_eq!(views.len(), samples),
            (Data::Views(views), Collate::Auto) if !is_fixed => assert_eq!(views.len(), samples),
            (Data::Dense { bytes, .. }, Collate::Auto | Collate::Dense | Collate::Ragged | Collate::Padded(_))
                if is_fixed =>
            {
                assert_eq!(bytes.len() as u64, samples as u64 * self.dataset.largest(1));
            }
            (Data::Ragged { values, offsets }, Collate::Ragged) => {
                assert_eq!((offsets.len(), offsets[0]), (samples + 1, 0));
                assert_eq!(values.len() as u64, offsets[samples] * column.dtype.size());
            }
            (Data::Padded { length, values, lengths }, Collate::Padded(padding)) => {
                // A heap buffer is not always aligned like this. So the reserved memory sufficed, unless a replacement
                // is longer than the planned sample or collation is deferred.
                let is_heap = stands_in || self.collation.is_deferred();
                assert!(values.is_empty() || is_heap || values.as_ptr().addr().is_multiple_of(64));
                let longest = lengths.iter().copied().max().unwrap_or(0);
                assert_eq!(*length, longest.next_multiple_of(padding.multiple_of));
                assert_eq!(values.len() as u64, samples as u64 * length * column.dtype.size());
                self.check_padding(*length, values, lengths, padding.value);
            }
            (data, collate) => panic!("{collate:?} was asked for, and came as {data:?}"),
        }
    }

    fn check_padding(&self, length: u64, values: &[u8], lengths: &[u64], value: PadValue) {
        let dtype = self.dataset.schema().fields[0].dtype;
        let element = match value {
            PadValue::Int(number) => number.to_le_bytes(),
            PadValue::Bits(bits) => bits.to_le_bytes(),
        };
        let size = dtype.size() as usize;
        for (row, &kept) in lengths.iter().enumerate() {
            let start = (row as u64 * length + kept) as usize * size;
            let rest = &values[start..(row as u64 + 1) as usize * length as usize * size];
            assert!(rest.chunks(size).all(|filled| *filled == element[..size]), "row {row} is not filled up");
        }
    }

    fn check_failed(&self, failed: &FailedSample, sim: &Sim) {
        let FailedSample { id, error, replaced_by, .. } = failed;
        assert!(self.may_fail(*id, error, sim), "a made-up error: {error}");
        assert!(error.path().is_some() && error.offset().is_some(), "{error}");
        assert_eq!(replaced_by.is_some(), self.rules.on_error == OnError::Replace);
        let Some(by) = *replaced_by else { return };
        let mut tries = (0..16).map(|attempt| replacement(self.seed, *id, attempt, self.dataset.len()).unwrap());
        // The candidates before it must have failed, or it would not have been used.
        let before: Vec<SampleId> = tries.by_ref().take_while(|tried| *tried != by).collect();
        assert!(before.len() < 16, "{by:?} in the place of {id:?}");
        assert!(before.iter().all(|tried| self.may_fail(*tried, error, sim) || self.rules.timeout.is_some()));
    }

    fn check_bytes(&mut self, id: SampleId, bytes: &[u8]) {
        let mut spans = Vec::new();
        self.dataset.spans(id, &mut spans);
        let span = spans[0];
        let size = self.dataset.schema().fields[0].dtype.size();
        match self.config.collate {
            Collate::Padded(Padding { max_length: Some(most), .. }) if size * most < span.len && !self.is_fixed() => {
                assert_eq!(bytes.len() as u64, size * most);
                self.cut += 1;
            }
            _ => assert_eq!(bytes.len() as u64, span.len),
        }
        for (byte, position) in bytes.iter().zip(span.offset..) {
            assert_eq!(*byte, byte_at(span.file, position), "sample {id:?}, byte {position} of {:?}", span.file);
        }
    }

    fn is_fixed(&self) -> bool {
        matches!(self.dataset.schema().fields[0].shape, Shape::Fixed(_))
    }

    fn must_fail(&self, id: SampleId, sim: &Sim) -> bool {
        let mut spans = Vec::new();
        self.dataset.spans(id, &mut spans);
        spans.iter().any(|span| span.len > 0 && sim.size(span.file) < span.offset + span.len)
    }

    /// Whether a disk error near the sample explains its error: joined reads span several samples. Any sample may time
    /// out.
    fn may_fail(&self, id: SampleId, error: &Error, sim: &Sim) -> bool {
        if self.must_fail(id, sim) || (error.kind() == ErrorKind::Timeout && self.rules.timeout.is_some()) {
            return true;
        }
        let mut spans = Vec::new();
        self.dataset.spans(id, &mut spans);
        let bad =
            |file: FileId, from: u64, to: u64| (from / 4096..=to / 4096).any(|page| sim.is_bad(file, page * 4096));
        let reach = self.layout.read_bytes + self.layout.coalesce_gap + self.joining.gap;
        spans.iter().any(|span| bad(span.file, span.offset.saturating_sub(reach), span.offset + span.len + reach))
            || (error.kind() == ErrorKind::Io && spans.iter().any(|span| sim.may_be_held_up(span.file)))
    }
}

#[test]
fn every_sample_once_in_order_and_byte_exact_over_a_disk_that_lies() {
    let mut seen = Seen::default();
    let seeds = each_seed(SEEDS, |seed| {
        World::new(seed).run(&mut seen);
    });
    println!("{seen:?}");
    let Seen { timeouts, abandoned, holes, replaced, irreplaceable, starved, too_many_failures, .. } = seen;
    let Seen { late, early, saved, bundles, .. } = seen;
    let all = [timeouts, abandoned, holes, replaced, irreplaceable, starved, too_many_failures, late, early, saved];
    assert!(
        seeds < SEEDS_THAT_SHOW_ALL || ![&all[..], &bundles].concat().contains(&0),
        "{seeds} seeds have not shown everything: {seen:?}"
    );
}

/// Long blocks get as much room as the longest one if there is room to spare. A batch that has the whole pool to itself
/// gets exactly what it needs: otherwise it would wait forever for room that no other batch holds.
#[test]
fn a_batch_that_fits_into_the_pool_gets_its_memory() {
    const MIB: usize = 1 << 20;
    let mut pool = Pool::new(120 * MIB, 50 * MIB, Arc::new(Bell::new())).unwrap();
    let plan =
        BatchPlan { blocks: vec![30, 50, 40].into_iter().map(|mib| mib << 20).collect(), ..BatchPlan::default() };
    let mut pending = Pending::default();
    assert!(pending.take_memory(&mut pool, &plan));
    assert_eq!(pool.free_bytes(), 0);
    let mut other = Pending::default();
    assert!(!other.take_memory(&mut pool, &plan), "all or nothing");
}

//! The simulator where only the rows that crops need are read, over a disk that lies: the output equals that of the
//! whole arrays, and no more is read than needed.

use super::*;
use crate::dataset::{Dataset, Span};
use crate::plan::Rows;
use crate::stage::{Maps, Stage};
use crate::transform::{Array, DecodeMemory, Map, MapScratch};

/// What must happen in some runs.
#[derive(Debug, Default)]
struct Happened {
    good: u64,
    failed: u64,
    replaced: u64,
    /// Bytes of all samples, of those that were needed, and of those that were read.
    bytes: [u64; 3],
    timeouts: u64,
}

struct Run {
    dataset: Arc<dyn Dataset>,
    shape: [u64; 3],
    map: Map,
    rows: Rows,
    order: Order,
    collation: Arc<Collation>,
    layout: Layout,
    rules: Rules,
    faults: Faults,
    threads: usize,
    pool_bytes: usize,
    reserve_bytes: usize,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pick = |below: u64| random.next_u64() % below;
        let dtype = [DType::U8, DType::I16, DType::F32][pick(3) as usize];
        let shape = [1 + pick(7), 1 + pick(14), 1 + pick(60)];
        let record_bytes = shape.iter().product::<u64>() * dtype.size();
        let mut files = FileTable::new();
        files.push_root("/sim");
        for index in 0..1 + pick(4) {
            files.push(format!("f{index}").as_bytes(), 24 + (1 + pick(20)) * record_bytes).unwrap();
        }
        let options = Options::new().format("records").set("record_bytes", record_bytes).set("header_bytes", 24);
        let options = options.set("shape", shape.to_vec()).set("dtype", dtype);
        let dataset: Arc<dyn Dataset> = dataset::inspect::of_files(files, &options).unwrap();
        let axes = pick(3) as usize;
        let sides: Vec<u64> = shape[axes..].iter().map(|&side| 1 + pick(side)).collect();
        let mut array = Array::default();
        if pick(3) == 0 {
            array = array.random_flip(0, 0.5);
        }
        array = if pick(4) == 0 { array.center_crop(sides) } else { array.random_crop(sides) };
        if pick(3) == 0 {
            array = array.random_flip(2, 0.5).slice([(Some(0), None), (None, Some(-1 + pick(2) as i64 * 9))]);
        }
        let map = match array.map(&dataset.schema().fields[0]) {
            Ok(map) => map,
            // An axis of length one has nothing left.
            Err(_) => Array::default().slice([(Some(0), Some(1))]).map(&dataset.schema().fields[0]).unwrap(),
        };
        let maps = [("data".to_owned(), map.clone())];
        let (batch_size, epochs) = (1 + pick(9), Some(2));
        let (world_size, rank) = (1 + pick(2), 0);
        let asked = Config { batch_size, epochs, world_size, rank, ..Config::default() };
        let len = dataset.len();
        let sampler: Arc<dyn Sampler> =
            if pick(2) == 0 { Arc::new(Shuffled::new(len, seed)) } else { Arc::new(Sequential::new(len)) };
        let order = Order::new(&asked, Arc::clone(&dataset), sampler).unwrap();
        let collation = Arc::new(Collation::with_maps(&Config::default(), &*dataset, &maps).unwrap());
        let alignment = [1, 1, 512][pick(3) as usize];
        let coalesce_gap = [0, 0, 700][pick(3) as usize];
        let layout = Layout { alignment, read_bytes: alignment.max(512) * (1 + pick(4)), coalesce_gap, border: 0 };
        let least = 1 + pick(500);
        let rows = Rows::new(vec![(0, Arc::clone(map.arrays().unwrap()))], seed, 0).leaving_out(least);
        let lies = pick(3) > 0;
        let timeout = (pick(3) == 0).then(|| Duration::from_millis(2));
        let faults = faults(&mut pick, lies, timeout.is_some());
        let on_error = [OnError::Skip, OnError::Warn, OnError::Replace][pick(3) as usize];
        let rules = Rules {
            width: Width { start: 1 + pick(12) as usize, most: 1 + pick(12) as usize, fixed: true },
            read_bytes: layout.read_bytes,
            on_error,
            seed,
            timeout,
            outage_timeout: Some(OUTAGE_TIMEOUT),
            starved_after: Duration::from_secs(60),
        };
        let gathered = collation.target_bound(&*dataset, coalesce_gap, batch_size, 0);
        let batch = dataset.largest(batch_size) + batch_size * (2 * 4096 + coalesce_gap) + gathered + 4 * 4096;
        let reserve_bytes = if on_error == OnError::Replace { dataset.largest(1) + 3 * 4096 } else { 0 } as usize;
        let pool_bytes = (batch * (1 + pick(3))) as usize + reserve_bytes;
        let threads = pick(2) as usize;
        Run { dataset, shape, map, rows, order, collation, layout, rules, faults, threads, pool_bytes, reserve_bytes }
    }

    /// The result for the whole array of a sample.
    fn made(&self, epoch: u64, id: SampleId) -> Vec<u8> {
        let mut spans: Vec<Span> = Vec::new();
        self.dataset.spans(id, &mut spans);
        let mut whole = vec![0; spans[0].len as usize];
        sim::fill(spans[0].file, spans[0].offset, &mut whole);
        let mut out = vec![0; self.map.output().bytes() as usize];
        let (memory, mut scratch) = (DecodeMemory::new(0, 1), MapScratch::default());
        let of = (self.rules.seed, epoch, id);
        self.map.run((&whole, &[], Some(&self.shape)), of, &mut out, (&memory, &mut scratch)).unwrap();
        out
    }

    fn run(self, seed: u64, happened: &mut Happened) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let chance = |of_100: u64| random.next_u64() % 100 < of_100;
        let bell = Arc::new(Bell::new());
        let (sender, mut receiver) = bounded(2, Arc::clone(&bell));
        let planner = self.order.planner(self.layout).with_collation(Arc::clone(&self.collation));
        let planner = planner.with_rows(Some(Arc::new(self.rows.clone())));
        let stats = Arc::new(Stats::new());
        let columns = vec![("data".to_owned(), self.map.clone())];
        let memory = DecodeMemory::new(0, 1);
        let maps = Arc::new(Maps { columns, seed: self.rules.seed, memory, prepared: None, mixer: None });
        let (dataset, of_stage) = (Arc::clone(&self.dataset), Arc::clone(&stats));
        let stage = Stage::new(Arc::clone(&dataset), Some(maps), self.threads, Arc::clone(&bell), of_stage);
        let mut pool = Pool::new(self.pool_bytes, 0, Arc::clone(&bell)).unwrap();
        pool.reserve(self.reserve_bytes);
        let failures = Failures::new(None, None, self.order.clone());
        let rules = self.rules;
        let mut reactor = Reactor::new(planner, pool, sender, bell, Arc::clone(&stats), rules, failures);
        reactor = reactor.with_stage(Some(stage));
        reactor.reads.bundles = rules.timeout.is_none() && seed.is_multiple_of(2);
        let mut sim = Sim::new(dataset, rules.width.most, self.layout.alignment, seed, self.faults);
        let (mut came, whole) = (0, self.order.remaining().unwrap());
        let take = |batch, _: &Sim| {
            came += 1;
            (self.check(batch, happened), came == whole)
        };
        let is_expected = |error: &Error, reactor: &Reactor| match error.kind() {
            ErrorKind::Timeout => reactor.has_abandoned(),
            ErrorKind::TooManyFailures => true,
            // In these small worlds, it can happen that no file can be read.
            _ => is_outage(error),
        };
        let turns = 50 * TURNS_MAX;
        if drive((&mut reactor, &mut sim), &mut receiver, (chance, turns), take, is_expected).is_none() {
            return;
        }
        happened.timeouts += stats.count.timeouts.get();
        let needed = stats.count.bytes_wanted.get();
        happened.bytes[1] += needed;
        happened.bytes[2] += stats.count.bytes_read.get();
        comes_home(&mut reactor, &mut sim);
    }

    /// Checks a batch, or the error in its place.
    fn check(&self, batch: Result<Batch>, happened: &mut Happened) -> Option<Batch> {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                assert!(self.rules.on_error == OnError::Replace, "{error}");
                return None;
            }
        };
        happened.bytes[0] += (batch.len() + batch.failed.len()) as u64 * self.dataset.largest(1);
        for failed in &batch.failed {
            let is_real = matches!(failed.error.kind(), ErrorKind::Io | ErrorKind::Truncated | ErrorKind::Timeout);
            assert!(is_real, "{}", failed.error);
            let is_replaced = failed.replaced_by.is_some();
            *(if is_replaced { &mut happened.replaced } else { &mut happened.failed }) += 1;
        }
        for (index, &id) in batch.ids.iter().enumerate() {
            let bytes = batch.columns[0].bytes_of(index).unwrap();
            assert!(*bytes == self.made(batch.cursor.epoch, id), "sample {id:?}");
            happened.good += 1;
        }
        Some(batch)
    }
}

#[test]
fn crops_of_which_the_rows_are_read_are_those_of_whole_arrays_over_a_disk_that_lies() {
    let mut happened = Happened::default();
    let seeds = each_seed(SEEDS / 3, |seed| {
        Run::new(seed).run(seed, &mut happened);
    });
    println!("{happened:?}");
    let Happened { good, failed, replaced, bytes: [whole, needed, read], timeouts } = happened;
    let all = [good, failed, replaced, timeouts];
    assert!(seeds < SEEDS / 3 || !all.contains(&0), "{seeds} seeds have not shown everything: {happened:?}");
    assert!(
        seeds < SEEDS / 3 || (3 * needed < 2 * whole && 4 * read < 3 * whole),
        "{whole} bytes, {needed} needed, {read} read"
    );
}

//! The simulator with a dataset whose samples are cut from units: the same lying disk, memory for few units, units that
//! do not decode, and batches that need more units than fit.

use super::*;
use crate::dataset::{Dataset, Field, Index, Sample, Schema, Span, UnitId, Units, Value};
use crate::plan::UnitLimits;
use crate::stage::Stage;
use bytes::Bytes;
use std::collections::BTreeSet;

/// What the decoder does to each byte.
const KEY: u8 = 0x5a;

/// One in this many units fails to decode.
const ONE_IS_BROKEN: u32 = 13;

/// Where a sample's bytes come from.
#[derive(Clone, Debug)]
enum Source {
    /// Straight from the disk.
    Span(Span),
    /// A range of a unit, followed by all of another one.
    Units(UnitId, std::ops::Range<usize>, Option<UnitId>),
}

struct Chunks {
    index: Index,
    /// The spans that store each unit.
    units: Vec<Vec<Span>>,
    samples: Vec<Source>,
    breaks: bool,
}

fn len_of(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.len).sum()
}

impl Chunks {
    fn new(pick: &mut impl FnMut(u64) -> u64) -> Chunks {
        let mut files = FileTable::new();
        files.push_root("/sim");
        let (mut units, mut samples) = (Vec::new(), Vec::new());
        for index in 0..1 + pick(5) {
            let file = FileId(index as u32);
            let mut end = 0;
            for _ in 0..1 + pick(6) {
                let start = end + pick(2) * pick(5000);
                let len = 1 + pick(9000);
                // The spans of a unit may lie apart, or there may be none.
                let parts = match pick(4) {
                    0 => vec![Span { file, offset: start, len }, Span { file, offset: start + len + 700, len: 33 }],
                    1 if pick(4) == 0 => Vec::new(),
                    _ => vec![Span { file, offset: start, len }],
                };
                end = start + len + 800;
                let decoded = len_of(&parts) as usize;
                let unit = UnitId(units.len() as u32);
                units.push(parts);
                let mut at = 0;
                for _ in 0..1 + pick(6) {
                    let next = at + pick((decoded - at) as u64 + 1) as usize;
                    let other = (pick(8) == 0 && unit.0 > 0).then(|| UnitId(pick(u64::from(unit.0)) as u32));
                    samples.push(Source::Units(unit, at..next, other));
                    at = next;
                }
            }
            files.push(format!("f{index}").as_bytes(), end + 1).unwrap();
            if pick(3) == 0 {
                samples.push(Source::Span(Span { file, offset: pick(end), len: pick(2) }));
            }
        }
        let field = Field { name: "x".into(), dtype: DType::U8, shape: Shape::Ragged };
        let mut index = Index::new("chunks", files, Schema { fields: vec![field] }, samples.len() as u64);
        index.bytes = 1;
        Chunks { index, units, samples, breaks: pick(2) == 0 }
    }

    fn is_broken(&self, unit: UnitId) -> bool {
        self.breaks && unit.0 % ONE_IS_BROKEN == 2
    }

    fn units_of(&self, id: SampleId) -> Vec<UnitId> {
        let mut of = Vec::new();
        self.of(id, &mut of);
        of
    }

    fn decoded(&self, unit: UnitId) -> Vec<u8> {
        let bytes = |&Span { file, offset, len }: &Span| (offset..offset + len).map(move |at| byte_at(file, at) ^ KEY);
        self.units[unit.0 as usize].iter().flat_map(bytes).collect()
    }

    fn content(&self, id: SampleId) -> Vec<u8> {
        match &self.samples[id.0 as usize] {
            Source::Span(span) => (span.offset..span.offset + span.len).map(|at| byte_at(span.file, at)).collect(),
            Source::Units(unit, range, other) => {
                let rest = other.map_or_else(Vec::new, |other| self.decoded(other));
                [&self.decoded(*unit)[range.clone()], &rest].concat()
            }
        }
    }
}

impl Dataset for Chunks {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        if let Source::Span(span) = &self.samples[id.0 as usize] {
            out.push(*span);
        }
    }
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let value = match &self.samples[id.0 as usize] {
            Source::Span(_) => raw[0].clone(),
            Source::Units(_, range, None) => raw[0].slice(range.clone()),
            Source::Units(_, range, Some(_)) => [&raw[0][range.clone()], &raw[1]].concat().into(),
        };
        out.values.push(Value::Bytes(value));
        Ok(())
    }
    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }
}

impl Units for Chunks {
    fn count(&self) -> u32 {
        self.units.len() as u32
    }
    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        if let Source::Units(unit, _, other) = &self.samples[id.0 as usize] {
            out.push(*unit);
            out.extend(*other);
        }
    }
    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        out.extend_from_slice(&self.units[unit.0 as usize]);
    }
    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        // An upper bound, not always the actual length.
        len_of(&self.units[unit.0 as usize]) + u64::from(unit.0 % 3) + 1
    }
    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        if self.is_broken(unit) {
            return Err(Error::new(ErrorKind::Corrupt, format!("unit {} is broken", unit.0)));
        }
        assert_eq!(out.len() as u64, self.decoded_bytes(unit));
        let mut bytes = stored.iter().flat_map(|bytes| bytes.iter());
        let mut len = 0;
        for (to, from) in out.iter_mut().zip(&mut bytes) {
            *to = from ^ KEY;
            len += 1;
        }
        assert_eq!((len as u64, bytes.next()), (len_of(&self.units[unit.0 as usize]), None));
        Ok(len)
    }
}

/// What happened across all worlds.
#[derive(Debug, Default)]
struct Happened {
    refused: u64,
    broken: u64,
    unread: u64,
    evicted: u64,
    timeouts: u64,
    abandoned: u64,
    starved: u64,
    good: u64,
}

struct Run {
    chunks: Arc<Chunks>,
    order: Order,
    batch_size: u64,
    layout: Layout,
    limits: UnitLimits,
    rules: Rules,
    faults: Faults,
    pool_bytes: usize,
    config: Config,
    collation: Arc<Collation>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pick = |below: u64| random.next_u64() % below;
        let chunks = Arc::new(Chunks::new(&mut pick));
        let len = chunks.len();
        let sampler: Arc<dyn Sampler> =
            if pick(2) == 0 { Arc::new(Shuffled::new(len, seed)) } else { Arc::new(Sequential::new(len)) };
        let batch_size = 1 + pick(12);
        let asked = Config { batch_size, epochs: Some(2), ..Config::default() };
        let order = Order::new(&asked, Arc::clone(&chunks) as Arc<dyn Dataset>, sampler).unwrap();
        let alignment = [1, 512, 4096][pick(3) as usize];
        let layout = Layout {
            alignment,
            read_bytes: alignment.max(1024) * (1 + pick(4)),
            coalesce_gap: [0, 4096][pick(2) as usize],
            border: 0,
        };
        let kept = 1 + pick(6) as usize;
        let limits = UnitLimits { kept, most: kept + pick(8) as usize };
        let lies = pick(3) > 0;
        let timeout = (pick(3) == 0).then(|| Duration::from_millis(2));
        let faults = faults(&mut pick, lies, timeout.is_some());
        let rules = Rules {
            width: Width { start: 1 + pick(12) as usize, most: 1 + pick(12) as usize, fixed: true },
            read_bytes: layout.read_bytes,
            on_error: [OnError::Skip, OnError::Raise, OnError::Warn][pick(3) as usize],
            seed,
            timeout,
            outage_timeout: Some(OUTAGE_TIMEOUT),
            starved_after: Duration::from_secs(60),
        };
        let stored = chunks.largest_stored() + 4 * 4096 + 4096;
        let batch = batch_size * 3 * 4096;
        let pool_bytes = (stored.max(batch) * (1 + pick(3))).next_multiple_of(4096) as usize;
        let collate = [Collate::Auto, Collate::Ragged][pick(2) as usize];
        let config = Config { collate, ..Config::default() };
        let collation = Arc::new(Collation::new(&config, &*chunks).unwrap());
        Run { chunks, order, batch_size, layout, limits, rules, faults, pool_bytes, config, collation }
    }

    fn run(self, seed: u64, happened: &mut Happened) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let chance = |of_100: u64| random.next_u64() % 100 < of_100;
        let bell = Arc::new(Bell::new());
        let (sender, mut receiver) = bounded(2, Arc::clone(&bell));
        let dataset = Arc::clone(&self.chunks) as Arc<dyn Dataset>;
        let planner = self.order.planner(self.layout).with_collation(Arc::clone(&self.collation));
        let planner = planner.with_units(Some(self.limits));
        let stats = Arc::new(Stats::new());
        let stage = Stage::new(Arc::clone(&dataset), None, 0, Arc::clone(&bell), Arc::clone(&stats));
        let place = self.chunks.largest_decoded().next_multiple_of(4096) as usize;
        let places = Pool::new(place * self.limits.most, 0, Arc::clone(&bell)).unwrap();
        let pool = Pool::new(self.pool_bytes, 0, Arc::clone(&bell)).unwrap();
        let failures = Failures::new(None, None, self.order.clone());
        let mut reactor = Reactor::new(planner, pool, sender, bell, Arc::clone(&stats), self.rules, failures)
            .with_decoder(Some(Decoder::new(places, place)))
            .with_stage(Some(stage));
        let mut sim = Sim::new(dataset, self.rules.width.most, self.layout.alignment, seed, self.faults);
        let (mut position, whole) = (0, 2 * self.order.sampler().len());
        let take = |batch, sim: &Sim| {
            let batch = self.check(batch, &mut position, sim, happened);
            (batch, position == whole)
        };
        let is_all_bad = sim.is_all_bad();
        let is_expected = |error: &Error, reactor: &Reactor| {
            (error.kind() == ErrorKind::Timeout && reactor.has_abandoned()) || (is_all_bad && is_outage(error))
        };
        let Some(starved) = drive((&mut reactor, &mut sim), &mut receiver, (chance, TURNS_MAX), take, is_expected)
        else {
            return;
        };
        happened.starved += starved;
        happened.timeouts += stats.count.timeouts.get();
        happened.abandoned += u64::from(reactor.has_abandoned());
        let count = &stats.count;
        let in_all = 2 * u64::from(self.chunks.count());
        assert!(self.limits.kept < self.chunks.count() as usize || count.units_decoded.get() <= in_all / 2);
        happened.evicted += count.units_decoded.get().saturating_sub(in_all / 2);
        comes_home(&mut reactor, &mut sim);
        let decoder = reactor.decoder.as_mut().unwrap();
        assert!(decoder.kept() <= self.limits.most);
        assert!(decoder.forget_all(), "the memory of units is lost");
    }

    /// Checks a batch, or the error in its place, against the oracle.
    fn check(&self, batch: Result<Batch>, position: &mut u64, sim: &Sim, happened: &mut Happened) -> Option<Batch> {
        let len = self.order.sampler().len();
        let cursor = Cursor::new(*position / len, *position % len);
        let count = self.batch_size.min(len - cursor.position);
        let ids: Vec<SampleId> = (0..count)
            .map(|index| self.order.sampler().at(Cursor::new(cursor.epoch, cursor.position + index)))
            .collect();
        *position += count;
        let units: BTreeSet<UnitId> = ids.iter().flat_map(|&id| self.chunks.units_of(id)).collect();
        let is_too_many = units.len() > self.limits.most;
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) if error.kind() == ErrorKind::MemoryLimit => {
                assert!(is_too_many, "{error}");
                happened.refused += 1;
                return None;
            }
            Err(error) => {
                assert_eq!(self.rules.on_error, OnError::Raise, "{error}");
                assert!(ids.iter().any(|&id| self.may_fail(id, &error, sim)), "a made-up error: {error}");
                return None;
            }
        };
        assert!(!is_too_many, "more units than there is memory for");
        assert_eq!((batch.cursor, batch.len() + batch.failed.len()), (cursor, ids.len()));
        for failed in &batch.failed {
            assert!(self.may_fail(failed.id, &failed.error, sim), "a made-up error: {}", failed.error);
            let is_broken = self.chunks.units_of(failed.id).iter().any(|&unit| self.chunks.is_broken(unit));
            *(if is_broken { &mut happened.broken } else { &mut happened.unread }) += 1;
        }
        let mut there = batch.ids.iter().enumerate();
        for id in ids {
            if batch.failed.iter().any(|failed| failed.id == id) {
                continue;
            }
            let (index, found) = there.next().unwrap();
            assert_eq!(*found, id);
            let bytes = batch.columns[0].bytes_of(index).unwrap();
            assert!(*bytes == self.chunks.content(id), "sample {id:?} of {:?}", self.config.collate);
            assert!(self.chunks.units_of(id).iter().all(|&unit| !self.chunks.is_broken(unit)));
            happened.good += 1;
        }
        Some(batch)
    }

    fn may_fail(&self, id: SampleId, error: &Error, sim: &Sim) -> bool {
        let units = self.chunks.units_of(id);
        let mut spans = Vec::new();
        self.chunks.spans(id, &mut spans);
        units.iter().for_each(|&unit| self.chunks.stored(unit, &mut spans));
        let reach = self.layout.read_bytes + self.layout.coalesce_gap + 4096;
        let is_bad = |span: &Span| {
            let pages = span.offset.saturating_sub(reach) / 4096..=(span.offset + span.len + reach) / 4096;
            pages.into_iter().any(|page| sim.is_bad(span.file, page * 4096))
                || sim.size(span.file) < span.offset + span.len
        };
        (error.kind() == ErrorKind::Timeout && self.rules.timeout.is_some())
            || (error.kind() == ErrorKind::Io && spans.iter().any(|span| sim.may_be_held_up(span.file)))
            || units.iter().any(|&unit| self.chunks.is_broken(unit))
            || spans.iter().any(is_bad)
    }
}

#[test]
fn samples_cut_from_units_come_once_in_order_and_byte_exact_over_a_disk_that_lies() {
    let mut happened = Happened::default();
    let seeds = each_seed(SEEDS / 2, |seed| {
        Run::new(seed).run(seed, &mut happened);
    });
    println!("{happened:?}");
    let Happened { refused, broken, unread, evicted, timeouts, abandoned, starved, good } = happened;
    let all = [refused, broken, unread, evicted, timeouts, abandoned, starved, good];
    assert!(seeds < SEEDS || !all.contains(&0), "{seeds} seeds have not shown everything: {happened:?}");
}

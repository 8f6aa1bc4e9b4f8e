//! Which units are loaded and kept, compared with a naive cache that scans everything.

use super::*;
use crate::dataset::{FileTable, Index, Sample, Schema, UnitId, Units};
use crate::{ErrorKind, Result};
use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// Sample i is cut from the units of row i.
struct Cut {
    index: Index,
    of: Vec<Vec<u32>>,
    count: u32,
}

impl Cut {
    fn new(of: Vec<Vec<u32>>, count: u32) -> Cut {
        let mut files = FileTable::new();
        files.push_root("/nowhere");
        files.push(b"units", u64::from(count) * 1000).unwrap();
        let mut index = Index::new("cut", files, Schema { fields: Vec::new() }, of.len() as u64);
        index.bytes = 1;
        Cut { index, of, count }
    }
}

impl Dataset for Cut {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}
    fn parse(&self, _id: SampleId, _raw: &[Bytes], _out: &mut Sample) -> Result<()> {
        Ok(())
    }
    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }
}

impl Units for Cut {
    fn count(&self) -> u32 {
        self.count
    }
    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.of[id.0 as usize].iter().map(|&unit| UnitId(unit)));
    }
    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        out.push(Span { file: FileId(0), offset: u64::from(unit.0) * 1000, len: 1000 });
    }
    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        u64::from(unit.0) + 1
    }
    fn decode(&self, _unit: UnitId, _stored: &[Bytes], _out: &mut [u8]) -> Result<usize> {
        Ok(0)
    }
}

/// The cached units, least recently used first.
#[derive(Default)]
struct ByHand {
    there: Vec<u32>,
    loads: u64,
}

impl ByHand {
    /// The units to load for a batch, in order, and the evicted ones.
    fn batch(&mut self, wanted: &[u32], kept: usize) -> (Vec<u32>, BTreeSet<u32>) {
        let mut loaded = Vec::new();
        for &unit in wanted {
            match self.there.iter().position(|&there| there == unit) {
                Some(place) => drop(self.there.remove(place)),
                None => loaded.push(unit),
            }
            self.there.push(unit);
        }
        let of_batch: BTreeSet<u32> = wanted.iter().copied().collect();
        let spare = self.there.len().saturating_sub(kept).min(self.there.len() - of_batch.len());
        self.loads += loaded.len() as u64;
        (loaded, self.there.drain(..spare).collect())
    }
}

#[test]
fn the_least_recently_used_go_and_every_unit_is_there_when_it_is_of_use() {
    for seed in 0..300 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pick = |below: u64| random.next_u64() % below;
        let count = 1 + pick(20) as u32;
        let of = (0..1 + pick(80)).map(|_| (0..pick(3)).map(|_| pick(u64::from(count)) as u32).collect()).collect();
        let cut = Arc::new(Cut::new(of, count));
        let kept = 1 + pick(8) as usize;
        let limits = UnitLimits { kept, most: kept + pick(4) as usize };
        let (batch, len) = (1 + pick(6), cut.len());
        let config = Config { batch_size: batch, epochs: Some(2), ..Config::default() };
        let sampler = Arc::new(Shuffled::new(len, seed));
        let order = Order::new(&config, Arc::clone(&cut) as Arc<dyn Dataset>, sampler).unwrap();
        let planner = order.planner(Layout { alignment: 512, read_bytes: 4096, coalesce_gap: 0, border: 0 });
        check(planner.with_units(Some(limits)), &cut, limits, seed);
    }
}

fn check(mut planner: Planner, cut: &Cut, limits: UnitLimits, seed: u64) {
    let (mut plan, mut by_hand) = (BatchPlan::default(), ByHand::default());
    let (mut loaded, mut gone) = (Vec::new(), BTreeSet::new());
    // The cached unit of each load.
    let mut there = std::collections::BTreeMap::new();
    let mut samples = 0;
    while planner.next(&mut plan) {
        gone.extend(plan.evicted.iter().map(|number| there.remove(number).expect("it was there")));
        if let Some(load) = plan.load {
            assert!(plan.batch.ids.is_empty() && plan.refused.is_none() && plan.uses.is_empty());
            assert_eq!((plan.slices.len(), plan.slices[0].span.offset), (1, u64::from(load.unit.0) * 1000));
            assert_eq!((load.bytes, plan.gather), (u64::from(load.unit.0) + 1, None));
            assert_eq!(there.insert(load.number, load.unit.0), None, "numbers are of one load");
            loaded.push(load.unit.0);
            assert!(there.len() <= limits.most, "seed {seed}");
            continue;
        }
        samples += plan.batch.ids.len() as u64;
        let wanted: Vec<u32> = plan.batch.ids.iter().flat_map(|id| cut.of[id.0 as usize].clone()).collect();
        if wanted.iter().collect::<BTreeSet<_>>().len() > limits.most {
            let error = plan.refused.clone().expect("too many units");
            assert_eq!((error.kind(), loaded.len()), (ErrorKind::MemoryLimit, 0), "seed {seed}");
            // Units that were already cached still count as used.
            let used: Vec<u32> = wanted.into_iter().filter(|unit| by_hand.there.contains(unit)).collect();
            let (_, goes) = by_hand.batch(&used, limits.kept);
            assert_eq!((std::mem::take(&mut gone), plan.reads.len()), (goes, 0), "seed {seed}");
            continue;
        }
        assert!(plan.refused.is_none(), "seed {seed}");
        let (load, goes) = by_hand.batch(&wanted, limits.kept);
        assert_eq!((std::mem::take(&mut loaded), std::mem::take(&mut gone)), (load, goes), "seed {seed}");
        let units = |index: usize| plan.units_of(index).iter().map(|&place| there[&plan.uses[place as usize]]);
        for (index, id) in plan.batch.ids.iter().enumerate() {
            assert!(units(index).eq(cut.of[id.0 as usize].iter().copied()), "seed {seed}, sample {id:?}");
        }
        assert_eq!(plan.uses.iter().collect::<BTreeSet<_>>().len(), plan.uses.len(), "each once");
    }
    assert_eq!(samples, 2 * cut.len());
}

#[test]
fn units_wanted_are_counted_by_batch_and_in_all() {
    let of = vec![vec![0], vec![0, 1], vec![2], vec![], vec![1]];
    let cut = Cut::new(of, 3);
    let batches = [vec![SampleId(0), SampleId(1)], vec![SampleId(2), SampleId(1), SampleId(0)], vec![SampleId(3)]];
    assert_eq!(units_wanted(&cut, batches.into_iter()), UnitsWanted { by_batch: 3, in_all: 3 });
}

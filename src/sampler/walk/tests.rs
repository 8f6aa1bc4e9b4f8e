//! A walk from any place on is the end of the walk before it, and as long as the order says.

use crate::ErrorKind;
use crate::config::{Batching, Buckets, Config, PackMethod, Packing, PadValue};
use crate::dataset::{self, Dataset, FileTable, Options, SampleId};
use crate::sampler::{
    BatchingId, Cursor, Digest, Order, OrderId, Sampler, Selection, Sequential, Shuffled, epoch_digest,
};
use std::sync::Arc;

/// Files of 0 to 12 bytes.
fn files(count: u64) -> Arc<dyn Dataset> {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    (0..count).for_each(|number| assert!(files.push(b"x", number * 7 % 13).is_some()));
    dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap()
}

fn order(config: &Config, count: u64) -> Order {
    Order::new(config, files(count), Arc::new(Shuffled::new(count, 7))).unwrap()
}

/// The batches: position, position after it, and the samples with their positions. Which samples are repeated as
/// padding depends on the start: they are `None`.
type Batches = Vec<(Cursor, Cursor, Vec<Option<(u64, SampleId)>>)>;

fn batches(order: &Order) -> Batches {
    let (mut walk, mut batch, mut all) = (order.walk(), Selection::default(), Vec::new());
    while let Some(epoch) = walk.epoch() {
        assert!(walk.next(&mut batch));
        assert_eq!(batch.cursor.epoch, epoch);
        let samples = batch.positions.iter().zip(&batch.ids);
        let samples = samples.map(|(position, &id)| (!position.padding).then_some((position.position, id)));
        all.push((batch.cursor, batch.next, samples.collect()));
    }
    for _ in 0..2 {
        assert!(!walk.next(&mut batch) && batch.ids.is_empty() && batch.positions.is_empty(), "an end is the end");
    }
    all
}

fn sizes() -> impl Iterator<Item = Config> {
    let ranks = [(0, 1), (0, 3), (2, 3)];
    let sizes = ranks.into_iter().flat_map(|rank| [1, 4, 100].map(|batch_size| (rank, batch_size)));
    sizes.flat_map(|((rank, world_size), batch_size)| {
        [false, true].map(|drop_last| Config { rank, world_size, batch_size, drop_last, ..Config::default() })
    })
}

#[test]
fn what_remains_is_what_comes() {
    for config in sizes() {
        for (count, position) in [(1, 0), (24, 0), (24, 23), (24, 24), (25, 5)] {
            for epochs in 0..4 {
                let config = Config { start: Cursor::new(2, position), epochs: Some(epochs), ..config.clone() };
                let order = order(&config, count);
                let all = batches(&order);
                assert_eq!(order.remaining(), Some(all.len() as u64), "{config:?}");
                for (index, batch) in all.iter().enumerate() {
                    let rest = order.at(batch.1);
                    assert_eq!(rest.remaining(), Some((all.len() - index) as u64 - 1), "{config:?}");
                    assert_eq!(batches(&rest), all[index + 1..], "{config:?}");
                }
                let endless = order.endless();
                assert_eq!((endless.remaining(), endless.end(), endless.start()), (None, None, order.start()));
            }
        }
    }
}

#[test]
fn windows_go_on_anywhere_and_tell_no_number() {
    let packing = Packing { method: PackMethod::BestFit, seq_len: 16, window: 9, pad: PadValue::default() };
    let buckets = Buckets { boundaries: vec![5], batch_sizes: vec![3, 2], window: 9 };
    for batching in [Batching::Packed(packing), Batching::Buckets(buckets)] {
        for config in sizes() {
            let config = Config { batching: batching.clone(), epochs: Some(2), shuffle: true.into(), ..config };
            let order = order(&config, 30);
            assert_eq!((order.remaining(), order.batching_id()), (None, &BatchingId::of(&config)));
            let all = batches(&order);
            for (index, batch) in all.iter().enumerate().step_by(3) {
                assert_eq!(batches(&order.at(batch.1)), all[index + 1..], "{config:?}");
                // The window that a start is checked against serves one walk; the next one makes it again.
                let started = Config { start: batch.1, epochs: Some(2 - batch.1.epoch), ..config.clone() };
                let started = self::order(&started, 30);
                assert_eq!(batches(&started), all[index + 1..], "{config:?}");
                assert_eq!(batches(&started), all[index + 1..], "{config:?}");
            }
            assert_eq!(order.at(Cursor::new(2, 0)).remaining(), Some(0));
        }
    }
}

#[test]
fn a_place_behind_the_end_is_the_end() {
    let config = Config { epochs: Some(1), batch_size: 4, ..Config::default() };
    let samples = order(&config, 24);
    assert_eq!(
        (batches(&samples.at(Cursor::new(0, 99))).len(), samples.at(Cursor::new(0, 99)).remaining()),
        (0, Some(0))
    );
    assert_eq!(batches(&samples.at(Cursor::new(9, 0))).len(), 0);
    let packing = Packing { method: PackMethod::FirstFit, seq_len: 16, window: 9, pad: PadValue::default() };
    let packed = order(&Config { batching: Batching::Packed(packing), ..config }, 24);
    let behind = packed.at(Cursor { epoch: 0, position: 0, rows: u64::MAX });
    let ids = |order: &Order| batches(order).into_iter().flat_map(|batch| batch.2).collect::<Vec<_>>();
    assert_eq!(ids(&behind), ids(&packed.at(Cursor::new(0, 9))));
}

/// An order whose first epoch is longer than the others.
struct Longer(Sequential);

impl Sampler for Longer {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn len_of(&self, epoch: u64) -> u64 {
        if epoch == 0 { 2 * self.len() } else { self.len() }
    }
    fn id(&self) -> OrderId {
        self.0.id()
    }
    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(cursor.position % self.len())
    }
}

#[test]
fn an_epoch_may_be_longer_than_the_others() {
    let sampler = Arc::new(Longer(Sequential::new(10)));
    let config = Config { batch_size: 3, epochs: Some(3), start: Cursor::new(0, 11), ..Config::default() };
    let order = Order::new(&config, files(10), Arc::clone(&sampler) as Arc<dyn Sampler>).unwrap();
    assert_eq!((order.remaining(), batches(&order).len()), (Some(3 + 4 + 4), 11));
    assert_eq!((order.share(0), order.share(1)), (20, 10));
    let refused = Config { start: Cursor::new(1, 11), ..config };
    let Err(error) = Order::new(&refused, files(10), sampler) else { panic!("position 11 of 10") };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("position 11 of an epoch of 10 samples") && error.remedy().is_some(), "{error}");
}

#[test]
fn walks_of_all_ranks_add_up_to_the_epoch() {
    let mut sum = Digest::default();
    for rank in 0..3 {
        let order = order(&Config { rank, world_size: 3, batch_size: 4, ..Config::default() }, 50);
        let samples = batches(&order).into_iter().flat_map(|(_, _, samples)| samples);
        samples.flatten().for_each(|(position, id)| sum.add(position, id, 0));
    }
    assert_eq!(sum, epoch_digest(&Shuffled::new(50, 7), 0, 0..50));
}

//! All ranks together get every row of every window once, in one order, for any world size and batch size, even if
//! those changed at a stop.

use crate::config::{Batching, Buckets, Config, PackMethod, Packing, PadValue, Shuffle};
use crate::dataset::{self, Dataset, FileTable, Index, Options, Sample, SampleId, Shape, Span};
use crate::sampler::rows::{Bucketer, Packer, RowPiece, Rows};
use crate::sampler::{Cursor, Digest, Order, Piece, Sampler, Selection, Sequential, Shuffled, Walk};
use crate::{ErrorKind, Result};
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;

const EPOCHS: u64 = 2;

/// Epoch, position, sample, and the start and the length of the piece.
type Taken = (u64, u64, SampleId, u64, u64);
type Row = Vec<Taken>;

/// Files of these sizes: a sample has as many elements as its file has bytes.
fn files(lengths: &[u64]) -> Arc<dyn Dataset> {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    lengths.iter().for_each(|&length| assert!(files.push(b"x", length).is_some()));
    dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap()
}

fn sampler(config: &Config, len: u64) -> Arc<dyn Sampler> {
    match config.shuffle {
        Shuffle::Off => Arc::new(Sequential::new(len)),
        _ => Arc::new(Shuffled::new(len, config.seed)),
    }
}

fn open(config: &Config, dataset: &Arc<dyn Dataset>, start: Cursor) -> Result<Order> {
    let epochs = Some(EPOCHS - start.epoch.min(EPOCHS));
    let config = Config { epochs, start, ..config.clone() };
    Order::new(&config, Arc::clone(dataset), sampler(&config, dataset.len()))
}

/// One batch of each rank.
#[derive(Clone, Debug, PartialEq)]
struct Round {
    /// Without padding, in their global order.
    rows: Vec<Row>,
    padding: Vec<Row>,
    next: Cursor,
}

/// The rows of one rank's batch, with whether they are padding.
fn split(config: &Config, batch: &Selection, lengths: &[u64]) -> Vec<(Row, bool)> {
    let count = batch.ids.len();
    let ends = match &config.batching {
        Batching::Packed(_) => {
            assert_eq!((batch.pieces.len(), batch.row_ends.last()), (count, Some(&(count as u32))));
            batch.row_ends.clone()
        }
        _ => {
            assert!(batch.pieces.is_empty() && batch.row_ends.is_empty());
            vec![count as u32]
        }
    };
    let taken = |index: usize| {
        let (position, id) = (batch.positions[index], batch.ids[index]);
        let whole = Piece { start: 0, len: lengths[id.0 as usize] };
        let piece = batch.pieces.get(index).copied().unwrap_or(whole);
        ((batch.cursor.epoch, position.position, id, piece.start, piece.len), position.padding)
    };
    let mut start = 0;
    let row = |end: u32| {
        let (row, padding): (Row, Vec<bool>) = (start..end as usize).map(taken).unzip();
        start = end as usize;
        assert!(!row.is_empty() && padding.iter().all(|mark| *mark == padding[0]), "a row is padding or not");
        (row, padding[0])
    };
    ends.into_iter().map(row).collect()
}

/// All ranks side by side, for at most `rounds` batches.
fn deliver(config: &Config, lengths: &[u64], start: Cursor, rounds: usize) -> Vec<Round> {
    let dataset = files(lengths);
    let of_rank = |rank| open(&Config { rank, ..config.clone() }, &dataset, start).expect("windows");
    let orders: Vec<Order> = (0..config.world_size).map(of_rank).collect();
    let mut ranks: Vec<Walk> = orders.iter().map(Order::walk).collect();
    let mut batches = vec![Selection::default(); ranks.len()];
    let mut delivered: Vec<Round> = Vec::new();
    let mut at = start;
    while delivered.len() < rounds {
        let epoch = ranks[0].epoch();
        assert!(ranks.iter_mut().all(|rank| rank.epoch() == epoch), "one epoch on all ranks");
        let any: Vec<bool> = ranks.iter_mut().zip(&mut batches).map(|(rank, batch)| rank.next(batch)).collect();
        assert!(any.iter().all(|any| *any == epoch.is_some()), "equal steps on all ranks");
        if epoch.is_none() {
            break;
        }
        let (cursor, next) = (batches[0].cursor, batches[0].next);
        assert!(batches.iter().all(|batch| (batch.cursor, batch.next) == (cursor, next)), "one cursor");
        assert!(cursor >= at && next > cursor && Some(cursor.epoch) == epoch, "{at:?} {cursor:?} {next:?}");
        at = next;
        let bytes = |batch: &Selection| -> u64 {
            split(config, batch, lengths).iter().flat_map(|(row, _)| row).map(|taken| taken.4).sum()
        };
        let (most, most_bytes) = orders[0].largest_batch();
        assert!(batches.iter().all(|batch| batch.ids.len() as u64 <= most && bytes(batch) <= most_bytes));
        let rows: Vec<Vec<(Row, bool)>> = batches.iter().map(|batch| split(config, batch, lengths)).collect();
        assert!(rows.iter().all(|rank| rank.len() == rows[0].len()), "equal batches on all ranks");
        let mut round = Round { rows: Vec::new(), padding: Vec::new(), next };
        for (row, padding) in (0..rows[0].len()).flat_map(|turn| rows.iter().map(move |rank| rank[turn].clone())) {
            assert!(padding || round.padding.is_empty(), "padding comes last");
            if padding { &mut round.padding } else { &mut round.rows }.push(row);
        }
        check_round(config, &round);
        delivered.push(round);
    }
    delivered
}

fn check_round(config: &Config, round: &Round) {
    let batch_rows = if matches!(config.batching, Batching::Packed(_)) { config.batch_size } else { 1 };
    let (rows, padding) = (round.rows.len() as u64, round.padding.len() as u64);
    assert!(rows > 0 && rows + padding <= batch_rows * config.world_size);
    assert!(padding < config.world_size, "no more than one each");
    assert!(rows == batch_rows * config.world_size || (!config.drop_last && round.next.position == 0));
    let again = round.rows.iter().cycle().take(round.padding.len());
    assert!(round.padding.iter().eq(again), "padding repeats the beginning of the last batches");
}

fn flat(rounds: &[Round]) -> Vec<Row> {
    rounds.iter().flat_map(|round| round.rows.iter().cloned()).collect()
}

/// The rows from `start` on, as a single rank gets them one by one, with the same `drop_last`, which leaves out batches
/// of buckets that are not full.
fn reference(config: &Config, lengths: &[u64], start: Cursor) -> Vec<Row> {
    flat(&deliver(&Config { batch_size: 1, world_size: 1, ..config.clone() }, lengths, start, usize::MAX))
}

/// Among the rows from some place on, those that fill batches of all ranks, if others are dropped.
fn not_dropped(config: &Config, rows: Vec<Row>) -> Vec<Row> {
    if !config.drop_last {
        return rows;
    }
    let batch_rows = if matches!(config.batching, Batching::Packed(_)) { config.batch_size } else { 1 };
    let global = (batch_rows * config.world_size) as usize;
    let epochs = rows.chunk_by(|a, b| a[0].0 == b[0].0);
    epochs.flat_map(|epoch| epoch[..epoch.len() / global * global].to_vec()).collect()
}

fn sorted(rows: &[Row]) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.sort();
    rows
}

/// The rows of all windows, made one after the other straight from the lengths, each window's in any order.
fn made(config: &Config, lengths: &[u64]) -> Vec<Vec<Row>> {
    let sampler = sampler(config, lengths.len() as u64);
    let mut windows = Vec::new();
    for epoch in 0..EPOCHS {
        let mut position = 0;
        while position < lengths.len() as u64 {
            let id = |position| sampler.at(Cursor::new(epoch, position));
            let length = |position: u64| lengths[id(position).0 as usize];
            let mut rows = Rows::default();
            let window = match &config.batching {
                Batching::Packed(packing) => packing.window,
                Batching::Buckets(buckets) => buckets.window,
                Batching::Samples => unreachable!(),
            };
            let mut end = (position + window).min(lengths.len() as u64);
            match &config.batching {
                Batching::Packed(packing) => {
                    let pieces =
                        |end| (position..end).map(|at| length(at).div_ceil(packing.seq_len).max(1)).sum::<u64>();
                    while end > position + 1 && pieces(end) > 8 * window {
                        end -= 1;
                    }
                    let lengths: Vec<u64> = (position..end).map(length).collect();
                    Packer::new(packing).unwrap().pack(&lengths, None, &mut rows);
                }
                Batching::Buckets(buckets) => {
                    let lengths: Vec<u64> = (position..end).map(length).collect();
                    if Bucketer::new(buckets).unwrap().bucket(&lengths, None, &mut rows) && config.drop_last {
                        rows.pop();
                    }
                }
                Batching::Samples => unreachable!(),
            }
            let taken = |piece: &RowPiece| {
                let position = position + u64::from(piece.index);
                (epoch, position, id(position), piece.piece.start, piece.piece.len)
            };
            windows.push(rows.iter().map(|row| row.iter().map(taken).collect()).collect());
            position = end;
        }
    }
    windows
}

fn any_batching() -> impl Strategy<Value = Batching> {
    let method = prop_oneof![Just(PackMethod::FirstFit), Just(PackMethod::BestFit), Just(PackMethod::Concat)];
    let packed = (method, 1..40_u64, 1..30_u64).prop_map(|(method, seq_len, window)| {
        Batching::Packed(Packing { method, seq_len, window, pad: PadValue::default() })
    });
    let sizes = prop::collection::vec(1..6_u64, 4);
    let buckets =
        (prop::collection::btree_set(1..40_u64, 0..4), sizes, 1..30_u64).prop_map(|(boundaries, sizes, window)| {
            let boundaries: Vec<u64> = boundaries.into_iter().collect();
            let batch_sizes = sizes[..=boundaries.len()].to_vec();
            Batching::Buckets(Buckets { boundaries, batch_sizes, window })
        });
    prop_oneof![3 => packed, 2 => buckets]
}

fn any_config() -> impl Strategy<Value = Config> {
    (any_batching(), any::<bool>(), any::<u64>(), any::<bool>(), 1..5_u64, 1..6_u64).prop_map(
        |(batching, shuffle, seed, drop_last, world_size, batch_size)| Config {
            batching,
            shuffle: shuffle.into(),
            seed,
            drop_last,
            world_size,
            batch_size,
            ..Config::default()
        },
    )
}

fn any_lengths() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![4 => 0..30_u64, 1 => 0..120_u64, 1 => Just(0)], 1..90)
}

/// Runs of each property; the slow suite asks for more.
fn cases() -> u32 {
    std::env::var("URINGLOAD_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// All ranks together have the rows of every window, window by window, in one order for any world and batch size.
    #[test]
    fn ranks_share_one_sequence_of_rows(config in any_config(), lengths in any_lengths()) {
        let all = reference(&config, &lengths, Cursor::default());
        let mut rest = &all[..];
        for window in made(&config, &lengths) {
            let (rows, behind) = rest.split_at(window.len());
            prop_assert_eq!(sorted(rows), sorted(&window));
            if config.shuffle == Shuffle::Off && matches!(config.batching, Batching::Packed(_)) {
                prop_assert_eq!(rows, &window[..], "in the order of their first pieces");
            }
            rest = behind;
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(flat(&deliver(&config, &lengths, Cursor::default(), usize::MAX)), not_dropped(&config, all));
    }

    /// Stopped after any batch and continued with other sizes: the remaining rows come in the same order.
    #[test]
    fn a_stop_anywhere_loses_nothing(
        config in any_config(), lengths in any_lengths(), world_size in 1..5_u64, batch_size in 1..6_u64,
        drop_after: bool, stops in prop::collection::vec(any::<prop::sample::Index>(), 8),
    ) {
        let whole = deliver(&config, &lengths, Cursor::default(), usize::MAX);
        let all = reference(&config, &lengths, Cursor::default());
        let after = Config { world_size, batch_size, drop_last: drop_after, ..config.clone() };
        let stops = stops.iter().map(|any| any.index(whole.len().max(1))).chain(whole.len().checked_sub(1));
        for (stop, round) in stops.filter_map(|stop| Some((stop, whole.get(stop)?))) {
            // If the next epoch begins, the dropped rows of this one are passed.
            let in_epoch = flat(&whole[..=stop]).iter().filter(|row| row[0].0 == round.next.epoch).count();
            let passed = all.partition_point(|row| row[0].0 < round.next.epoch) + in_epoch;
            prop_assert_eq!(&reference(&config, &lengths, round.next)[..], &all[passed..], "{:?}", round.next);
            let left = reference(&after, &lengths, round.next);
            let got = flat(&deliver(&after, &lengths, round.next, usize::MAX));
            prop_assert_eq!(&got, &not_dropped(&after, left.clone()), "{:?} to {:?}", round.next, after);
            if !drop_after || matches!(config.batching, Batching::Packed(_)) {
                // Even if batches that are not full were left out before, and no longer are.
                prop_assert!(left.iter().filter(|row| all.contains(row)).eq(&all[passed..]));
            }
        }
        if let Some(last) = whole.last() {
            prop_assert_eq!((last.next.position, last.next.rows), (0, 0), "an epoch ends with its last batch");
        }
    }
}

fn packed(method: PackMethod, seq_len: u64, window: u64) -> Config {
    let packing = Packing { method, seq_len, window, pad: PadValue::default() };
    Config { batching: Batching::Packed(packing), batch_size: 2, epochs: None, ..Config::default() }
}

fn bucketed(boundaries: &[u64], batch_sizes: &[u64], window: u64) -> Config {
    let (boundaries, batch_sizes) = (boundaries.to_vec(), batch_sizes.to_vec());
    let batching = Batching::Buckets(Buckets { boundaries, batch_sizes, window });
    Config { batching, epochs: None, ..Config::default() }
}

fn refused(config: &Config, dataset: &Arc<dyn Dataset>, start: Cursor, words: &[&str]) {
    let Err(error) = open(config, dataset, start) else { panic!("not refused: {words:?}") };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(words.iter().all(|word| error.to_string().contains(word)) && error.remedy().is_some(), "{error}");
}

#[test]
fn what_cannot_be_is_refused() {
    let dataset = files(&[5, 6, 7]);
    let start = Cursor::default();
    refused(&packed(PackMethod::FirstFit, 8, 0), &dataset, start, &["window cannot have 0"]);
    refused(&packed(PackMethod::FirstFit, 8, (1 << 24) + 1), &dataset, start, &["window cannot have 16777217"]);
    refused(&packed(PackMethod::FirstFit, 0, 8), &dataset, start, &["rows of 0 elements"]);
    refused(&bucketed(&[5, 4], &[1, 1, 1], 8), &dataset, start, &["ascend"]);
    refused(&bucketed(&[5], &[1, 1], 0), &dataset, start, &["window cannot have 0"]);
    let long = files(&[5, 1 << 40]);
    refused(&packed(PackMethod::Concat, 8, 8), &long, start, &["1099511627776 elements", "1048576 rows of 8"]);
    assert!(open(&packed(PackMethod::Concat, 1 << 20, 8), &long, start).is_ok());
}

#[test]
fn a_cursor_behind_the_rows_of_its_window_is_refused() {
    let dataset = files(&[5, 6, 7]);
    let config = packed(PackMethod::FirstFit, 8, 2);
    let at = |position, rows| Cursor { epoch: 0, position, rows };
    for (position, rows) in [(0, 2), (1, 2), (2, 1), (3, 0)] {
        assert!(open(&config, &dataset, at(position, rows)).is_ok(), "{position} {rows}");
        refused(&config, &dataset, at(position, rows + 1), &["window at position", "it has"]);
    }
    refused(&config, &dataset, at(0, u64::MAX), &["18446744073709551615"]);
}

/// A dataset whose lengths are known only by reading, and one without any lengths.
struct Unknown(Arc<dyn Dataset>, Index);

impl Dataset for Unknown {
    fn index(&self) -> &Index {
        &self.1
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        self.0.spans(id, out);
    }
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        self.0.parse(id, raw, out)
    }
}

#[test]
fn a_dataset_must_tell_lengths() {
    let known = files(&[5, 6, 7]);
    let mut index = known.index().clone();
    index.plain_field = None;
    let unknown: Arc<dyn Dataset> = Arc::new(Unknown(Arc::clone(&known), index.clone()));
    for config in [packed(PackMethod::BestFit, 8, 2), bucketed(&[4], &[1, 1], 2)] {
        refused(&config, &unknown, Cursor::default(), &["\"data\"", "does not know the lengths"]);
    }
    index.schema.fields[0].shape = Shape::Fixed(vec![1]);
    let unknown: Arc<dyn Dataset> = Arc::new(Unknown(known, index));
    refused(&packed(PackMethod::BestFit, 8, 2), &unknown, Cursor::default(), &["no column can be packed"]);
}

/// If every epoch has too few rows for a batch on all ranks, an endless loader ends.
#[test]
fn too_few_rows_for_a_batch_are_an_end() {
    let dataset = files(&[5, 6, 7]);
    for config in [packed(PackMethod::FirstFit, 8, 2), bucketed(&[4], &[9, 2], 2)] {
        let config = Config { drop_last: true, rank: 1, world_size: 2, ..config };
        let walk =
            |config: &Config| Order::new(config, Arc::clone(&dataset), sampler(config, dataset.len())).unwrap().walk();
        let mut windows = walk(&config);
        assert_eq!((windows.epoch(), windows.next(&mut Selection::default())), (None, false));
        // Over epochs that have a batch it is endless.
        let mut windows = walk(&Config { drop_last: false, ..config });
        let mut batch = Selection::default();
        assert!((0..100).all(|_| windows.next(&mut batch)) && batch.cursor.epoch >= 30);
    }
}

/// Every saved state depends on the order of rows: it must never change.
#[test]
fn the_order_of_rows_is_what_it_always_was() {
    let lengths: Vec<u64> = (0..500_u64).map(|number| number * number % 97).collect();
    let hash_of = |config: &Config| {
        let rows = reference(config, &lengths, Cursor::default());
        let mut hash = 0_u64;
        for (place, taken) in (0..).zip(rows.iter().flat_map(|row| row.iter().chain([&row[0]]))) {
            let mut digest = Digest::default();
            digest.add(taken.1 ^ place << 32, taken.2, taken.3 ^ taken.0 << 32);
            hash = hash.wrapping_add(digest.sum);
        }
        hash
    };
    let shuffled = |config: Config| Config { shuffle: Shuffle::Full, seed: 5, ..config };
    let methods = [PackMethod::FirstFit, PackMethod::BestFit, PackMethod::Concat];
    let mut hashes: Vec<u64> = methods.iter().map(|&method| hash_of(&shuffled(packed(method, 64, 100)))).collect();
    hashes.push(hash_of(&shuffled(bucketed(&[10, 30, 60], &[8, 4, 4, 2], 100))));
    let golden = [0xc041_1b0d_ea69_76f2, 0xb931_7ddb_af82_cec6, 0x55e4_9475_1e1a_d94c, 0x7a5c_8f8f_a4d5_f5b3];
    assert_eq!(hashes, golden, "{hashes:#x?}");
}

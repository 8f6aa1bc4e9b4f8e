//! Each form compared with brute force, for all lengths, types, places and failures.

use super::*;
use crate::collate::Collation;
use crate::config::{Batching, Collate, Config, PackMethod, Packing, PadValue, Padding};
use crate::dataset::{Dataset, Field, FileTable, Index, Sample, Schema, Shape, Span, Value};
use crate::pool::Pool;
use crate::queue::Bell;
use proptest::prelude::*;
use std::sync::Arc;

const POOL_BYTES: usize = 4 << 20;

/// A dataset that is only a schema.
struct Fields {
    index: Index,
}

impl Dataset for Fields {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}
    fn parse(&self, _id: SampleId, _raw: &[Bytes], _out: &mut Sample) -> crate::Result<()> {
        Ok(())
    }
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{}", id.0 % 1000).as_bytes());
    }
}

/// One planned sample: its elements in each of two columns, and whether it can be read.
#[derive(Clone, Debug)]
struct Planned {
    lengths: [u64; 2],
    good: bool,
}

/// A batch with two columns of one type, and a column of integers.
#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    collate: Collate,
    batching: Batching,
    fixed: Option<u64>,
    samples: Vec<Planned>,
    row_ends: Vec<u32>,
    /// Bytes between two values in memory, and whether values are in batch order.
    gap: usize,
    in_order: bool,
    /// Bytes of the target. Whatever does not fit goes to the heap.
    target: Option<usize>,
}

/// The result of a case.
struct Outcome {
    columns: Vec<Column>,
    /// The values of each good sample in the first two columns.
    values: Vec<[Vec<u8>; 2]>,
    cut: u64,
    /// The memory that held all values.
    block: Bytes,
    pool: Pool,
}

fn schema(case: &Case) -> Schema {
    let shape = || case.fixed.map_or(Shape::Ragged, |length| Shape::Fixed(vec![length]));
    let field = |name: &str, dtype, shape| Field { name: name.into(), dtype, shape };
    let fields = vec![
        field("one", case.dtype, shape()),
        field("two", case.dtype, shape()),
        field("label", DType::I64, Shape::Fixed(Vec::new())),
    ];
    Schema { fields }
}

fn run(case: &Case) -> Outcome {
    let dataset = Fields { index: Index::new("fields", FileTable::new(), schema(case), 1) };
    let size = case.dtype.size();
    let config = Config { collate: case.collate, batching: case.batching.clone(), ..Config::default() };
    let collation = Collation::new(&config, &dataset).unwrap();
    // Memory as reads leave it: all values of one column, then those of the other, each somewhere after the last.
    let lengths = |index: usize| case.fixed.map_or(case.samples[index].lengths, |length| [length; 2]);
    let (mut memory, mut places) = (vec![0xee; 64], [vec![0; case.samples.len()], vec![0; case.samples.len()]]);
    for (column, places) in places.iter_mut().enumerate() {
        let mut order: Vec<usize> = (0..case.samples.len()).collect();
        if !case.in_order {
            order.reverse();
        }
        for index in order {
            memory.resize(memory.len() + case.gap, 0xee);
            places[index] = memory.len();
            let seed = index * 2 + column + 1;
            memory.extend((0..lengths(index)[column] * size).map(|byte| (byte as usize * 7 + seed * 31) as u8 | 1));
        }
    }
    let block = Bytes::from(memory);
    let mut values = Vec::new();
    for (index, planned) in case.samples.iter().enumerate() {
        let bytes = |column: usize| {
            let start = places[column][index];
            block.slice(start..start + (lengths(index)[column] * size) as usize)
        };
        values.extend(if planned.good {
            [Value::Bytes(bytes(0)), Value::Bytes(bytes(1)), Value::I64(index as i64)]
        } else {
            [Value::I64(0), Value::I64(0), Value::I64(0)]
        });
    }
    let good: Vec<u32> = (0..case.samples.len() as u32).filter(|&index| case.samples[index as usize].good).collect();
    let content = |&index: &u32| [0, 1].map(|column| bytes_of(&values[index as usize * 3 + column]));
    let wanted = good.iter().map(content).collect();
    let mut pool = Pool::new(POOL_BYTES, 0, Arc::new(Bell::new())).unwrap();
    let target = case.target.and_then(|bytes| pool.take_exact(bytes));
    let samples = Samples {
        schema: dataset.schema(),
        values: &mut values,
        good: &good,
        row_ends: &case.row_ends,
        blocks: std::slice::from_ref(&block),
        made: &mut Made::default(),
    };
    let (columns, cut) = samples.into_columns(&collation, target, &pool);
    Outcome { columns, values: wanted, cut, block, pool }
}

fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::I64(_) => Vec::new(),
    }
}

/// The bytes of the padding element.
fn pad_bytes(pad: PadValue, dtype: DType) -> Vec<u8> {
    let bits = match (pad, dtype) {
        (PadValue::Int(number), DType::F32) => (number as f32).to_le_bytes().to_vec(),
        (PadValue::Int(number), DType::F64) => (number as f64).to_le_bytes().to_vec(),
        (PadValue::Int(number), _) => number.to_le_bytes().to_vec(),
        (PadValue::Bits(bits), _) => bits.to_le_bytes().to_vec(),
    };
    bits[..dtype.size() as usize].to_vec()
}

/// Checks everything that holds for all forms.
fn check_all(case: &Case, outcome: Outcome) {
    let Outcome { columns, values, block, mut pool, .. } = outcome;
    let good: Vec<i64> =
        (0..).zip(&case.samples).filter_map(|(index, planned)| planned.good.then_some(index)).collect();
    let Data::I64(labels) = &columns[2].data else { panic!("integers: {:?}", columns[2].data) };
    assert_eq!(*labels, good);
    assert!(columns[2].bytes_of(0).is_none());
    for column in &columns[..2] {
        let (bytes, alignment) = match &column.data {
            Data::Dense { bytes, .. } => (bytes, case.dtype.size()),
            Data::Ragged { values, .. } => (values, case.dtype.size()),
            Data::Padded { values, .. } => (values, case.dtype.size()),
            Data::Packed(packed) => (&packed.values, case.dtype.size()),
            _ => continue,
        };
        assert!(bytes.is_empty() || bytes.as_ptr().addr() % alignment as usize == 0, "elements are aligned");
        assert!(column.bytes_of(values.len()).is_none(), "no value after the last sample");
    }
    // The block returns with its columns, and not before.
    let is_gathered = columns.iter().any(|column| match &column.data {
        Data::Dense { bytes, .. } => is_apart(bytes, &block),
        Data::Ragged { values, .. } | Data::Padded { values, .. } => is_apart(values, &block),
        Data::Packed(packed) => is_apart(&packed.values, &block),
        _ => false,
    });
    pool.collect();
    if case.target == Some(POOL_BYTES) {
        assert_eq!(pool.is_whole(), !is_gathered);
    }
    drop(columns);
    pool.collect();
    assert!(pool.is_whole(), "memory is lost");
}

fn is_apart(bytes: &Bytes, block: &Bytes) -> bool {
    !bytes.is_empty() && !block.as_ptr_range().contains(&bytes.as_ptr())
}

/// Checks values that lie end to end: as dense or ragged columns, and without a copy if they already lie that way.
fn check_end_to_end(case: &Case) {
    let outcome = run(case);
    let size = case.dtype.size();
    for (index, column) in outcome.columns[..2].iter().enumerate() {
        let wanted: Vec<u8> = outcome.values.iter().flat_map(|values| values[index].clone()).collect();
        let bytes = match (&column.data, case.fixed) {
            (Data::Dense { shape, bytes }, Some(length)) => {
                assert_eq!(*shape, [length]);
                bytes
            }
            (Data::Ragged { values, offsets }, None) => {
                let mut end = 0;
                let ends = outcome.values.iter().map(|values| {
                    end += values[index].len() as u64 / size;
                    end
                });
                assert!(std::iter::once(0).chain(ends).eq(offsets.iter().copied()));
                values
            }
            (data, _) => panic!("{data:?}"),
        };
        assert_eq!(*bytes, wanted);
        assert_eq!(column.bytes(), wanted.len() as u64);
        let all_good = case.samples.iter().all(|planned| planned.good);
        if case.gap == 0 && case.in_order && all_good && size == 1 {
            assert!(!is_apart(bytes, &outcome.block), "copied for nothing");
        }
        if outcome.values.iter().all(|values| !values[index].is_empty()) {
            for (sample, values) in outcome.values.iter().enumerate() {
                assert_eq!(column.bytes_of(sample).unwrap(), values[index]);
            }
        }
    }
    assert_eq!(outcome.cut, 0);
    check_all(case, outcome);
}

fn check_padded(case: &Case, padding: Padding) {
    let outcome = run(case);
    let size = case.dtype.size() as usize;
    let most = padding.max_length.map_or(usize::MAX, |most| most as usize * size);
    let mut cut = 0;
    for (index, column) in outcome.columns[..2].iter().enumerate() {
        let kept: Vec<&[u8]> =
            outcome.values.iter().map(|values| &values[index][..values[index].len().min(most)]).collect();
        cut += outcome.values.iter().filter(|values| values[index].len() > most).count() as u64;
        let longest = kept.iter().map(|kept| kept.len() / size).max().unwrap_or(0);
        let wanted_length = longest.next_multiple_of(padding.multiple_of as usize);
        let Data::Padded { length, values, lengths } = &column.data else { panic!("{:?}", column.data) };
        assert_eq!(*length, wanted_length as u64);
        assert!(lengths.iter().map(|&length| length as usize * size).eq(kept.iter().map(|kept| kept.len())));
        let element = pad_bytes(padding.value, case.dtype);
        let wanted: Vec<u8> = kept
            .iter()
            .flat_map(|kept| [kept.to_vec(), element.repeat(wanted_length - kept.len() / size)].concat())
            .collect();
        assert_eq!(*values, wanted);
        assert_eq!(column.bytes() as usize, kept.iter().map(|kept| kept.len()).sum::<usize>());
        for (sample, kept) in kept.iter().enumerate() {
            assert_eq!(column.bytes_of(sample).unwrap(), *kept);
        }
    }
    assert_eq!(outcome.cut, cut);
    check_all(case, outcome);
}

fn check_packed(case: &Case, packing: Packing) {
    let outcome = run(case);
    let (size, seq_len) = (case.dtype.size() as usize, packing.seq_len as usize);
    let Data::Packed(packed) = &outcome.columns[0].data else { panic!("{:?}", outcome.columns[0].data) };
    let element = pad_bytes(packing.pad, case.dtype);
    let (mut wanted, mut ids, mut positions, mut ends) = (Vec::new(), Vec::new(), Vec::new(), vec![0]);
    let (mut planned, mut values, mut start) = (0, outcome.values.iter(), 0);
    for &end in &case.row_ends {
        let (mut id, mut filled) = (0, 0);
        for sample in &case.samples[planned..end as usize] {
            if !sample.good {
                continue;
            }
            let [value, _] = values.next().unwrap();
            let len = value.len() / size;
            id += 1;
            wanted.extend_from_slice(value);
            ids.extend(vec![id; len]);
            positions.extend(0..len as i32);
            filled += len;
            ends.push((start + filled) as i32);
        }
        let free = seq_len - filled;
        wanted.extend(element.repeat(free));
        ids.extend(vec![0; free]);
        positions.extend(vec![0; free]);
        start += seq_len;
        if free > 0 {
            ends.push(start as i32);
        }
        planned = end as usize;
    }
    assert_eq!((packed.rows, packed.seq_len), (case.row_ends.len() as u64, packing.seq_len));
    assert_eq!(packed.values, wanted);
    assert_eq!(packed.segment_ids(), ids);
    assert_eq!(packed.positions(), positions);
    assert_eq!(packed.cu_seqlens(), ends);
    for (sample, [value, _]) in outcome.values.iter().enumerate() {
        assert_eq!(outcome.columns[0].bytes_of(sample).unwrap(), *value);
        assert_eq!(packed.segments[sample].sample, sample);
    }
    assert_eq!(outcome.columns[0].bytes() as usize, outcome.values.iter().map(|[value, _]| value.len()).sum::<usize>());
    assert_eq!(outcome.cut, 0);
    check_all(case, outcome);
}

fn any_dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(DType::ALL.to_vec())
}

/// A padding value that fits the type: its low bits.
fn any_pad(dtype: DType) -> impl Strategy<Value = PadValue> {
    let bits = u64::MAX >> (64 - 8 * dtype.size());
    let bits = if dtype == DType::Bool { 1 } else { bits };
    prop_oneof![Just(PadValue::Int(0)), any::<u64>().prop_map(move |number| PadValue::Bits(number & bits))]
}

fn any_samples() -> impl Strategy<Value = Vec<Planned>> {
    let length = || prop_oneof![Just(0), 1..9_u64, 1..700_u64];
    let planned = (length(), length(), prop::bool::weighted(0.8));
    let planned = planned.prop_map(|(one, two, good)| Planned { lengths: [one, two], good });
    prop::collection::vec(planned, 0..20)
}

/// Samples of one type, anywhere in memory, with a target that holds all, some or none of them.
fn any_case() -> impl Strategy<Value = Case> {
    let target = prop_oneof![Just(None), Just(Some(POOL_BYTES)), (1..40_000_usize).prop_map(Some)];
    let gap = prop_oneof![Just(0), 1..70_usize];
    (any_dtype(), any_samples(), gap, any::<bool>(), target).prop_map(|(dtype, samples, gap, in_order, target)| Case {
        dtype,
        collate: Collate::Ragged,
        batching: Batching::Samples,
        fixed: None,
        samples,
        row_ends: Vec::new(),
        gap,
        in_order,
        target,
    })
}

proptest! {
    #[test]
    fn ragged_and_dense_columns_are_the_values_end_to_end(case in any_case(), length in 1..300_u64) {
        check_end_to_end(&case);
        check_end_to_end(&Case { fixed: Some(length), collate: Collate::Dense, ..case });
    }

    #[test]
    fn padded_columns_are_the_values_and_what_fills_up(
        (case, value) in any_case().prop_flat_map(|case| { let dtype = case.dtype; (Just(case), any_pad(dtype)) }),
        max_length in prop::option::of(1..400_u64), multiple_of in prop_oneof![Just(1_u64), 1..130_u64],
    ) {
        let padding = Padding { value, max_length, multiple_of };
        check_padded(&Case { collate: Collate::Padded(padding), ..case }, padding);
    }

    #[test]
    fn packed_columns_are_the_pieces_in_their_rows(
        (case, pad) in any_case().prop_flat_map(|case| { let dtype = case.dtype; (Just(case), any_pad(dtype)) }),
        rows in prop::collection::vec(0..5_usize, 1..12), spare in 0..3_u64,
    ) {
        // Rows take this many samples each, and the last one the rest.
        let count = case.samples.len() as u32;
        let mut row_ends = Vec::new();
        let mut end = 0;
        for (index, &samples) in rows.iter().enumerate() {
            end = if index + 1 == rows.len() { count } else { count.min(end + samples as u32) };
            row_ends.push(end);
        }
        let row = |index: usize| {
            let start = if index == 0 { 0 } else { row_ends[index - 1] as usize };
            case.samples[start..row_ends[index] as usize].iter().map(|planned| planned.lengths[0]).sum::<u64>()
        };
        let seq_len = (0..row_ends.len()).map(row).max().unwrap_or(0).max(1) + spare;
        let packing = Packing { method: PackMethod::FirstFit, seq_len, window: 1, pad };
        check_packed(&Case { row_ends, batching: Batching::Packed(packing), ..case }, packing);
    }
}

/// A replacement may be longer than the planned sample. What does not fit is truncated and counted.
#[test]
fn what_has_no_room_in_its_row_is_cut() {
    let sample = |length| Planned { lengths: [length, 0], good: true };
    let packing = Packing { method: PackMethod::FirstFit, seq_len: 10, window: 1, pad: PadValue::Int(0) };
    let case = Case {
        dtype: DType::U16,
        collate: Collate::Views,
        batching: Batching::Packed(packing),
        fixed: None,
        samples: vec![sample(6), sample(7), sample(2), sample(3)],
        row_ends: vec![2, 3],
        gap: 3,
        in_order: true,
        target: Some(POOL_BYTES),
    };
    let outcome = run(&case);
    assert_eq!(outcome.cut, 2, "7 elements where 4 are free, and a piece of no row");
    let Data::Packed(packed) = &outcome.columns[0].data else { panic!("not packed") };
    assert_eq!(packed.segments.iter().map(|segment| segment.len).collect::<Vec<_>>(), [6, 4, 2, 0]);
    assert_eq!(packed.cu_seqlens(), [0, 6, 10, 12, 20]);
}

#[test]
fn keys_share_one_buffer_and_numbers_are_integers() {
    let schema = Schema { fields: Vec::new() };
    let dataset = Fields { index: Index::new("fields", FileTable::new(), schema, 1) };
    let ids = [5, 1234, 0, 77].map(SampleId);
    let keys = key_column(&dataset, &ids);
    let of: Vec<Bytes> = (0..4).map(|index| keys.bytes_of(index).unwrap()).collect();
    assert_eq!(of, [&b"5"[..], b"234", b"0", b"77"]);
    assert!(of.windows(2).all(|pair| pair[0].as_ptr_range().end == pair[1].as_ptr()), "one buffer");
    assert_eq!((keys.name.as_str(), keys.dtype, keys.bytes()), ("key", DType::U8, 7));
    let index = index_column(&ids);
    assert!(matches!(&index.data, Data::I64(numbers) if *numbers == [5, 1234, 0, 77]));
    assert_eq!((index.name.as_str(), index.dtype), ("index", DType::I64));
}

/// Gathered columns start at cache lines, whatever precedes them.
#[test]
fn gathered_columns_begin_at_a_line() {
    let sample = |one, two| Planned { lengths: [one, two], good: true };
    let case = Case {
        dtype: DType::U8,
        collate: Collate::Ragged,
        batching: Batching::Samples,
        fixed: None,
        samples: vec![sample(33, 12), sample(1, 0), sample(7, 70)],
        row_ends: Vec::new(),
        gap: 5,
        in_order: false,
        target: Some(POOL_BYTES),
    };
    let outcome = run(&case);
    let starts = outcome.columns[..2].iter().map(|column| match &column.data {
        Data::Ragged { values, .. } => values.as_ptr().addr() % 64,
        data => panic!("{data:?}"),
    });
    assert!(starts.eq([0, 0]));
}

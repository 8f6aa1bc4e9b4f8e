//! Packed rows from a handmade plan: some samples are plain, so that only a piece was read; others are read whole.

use super::*;
use crate::Result;
use crate::batch::{Data, Packed};
use crate::config::{Batching, Config, PackMethod, Packing, PadValue};
use crate::dataset::{DType, FileId, FileTable, Index, SampleId, Span};
use crate::plan::Slice;
use crate::queue::Bell;
use crate::sampler::Position;
use std::sync::Arc;

/// Element `place` of a sample.
fn element(sample: u64, place: u64) -> u16 {
    (sample * 1000 + place) as u16
}

/// Samples of `LENGTHS` elements. Those that are not plain have a byte of another column before them.
struct Tokens {
    index: Index,
    is_plain: bool,
}

const LENGTHS: [u64; 3] = [5, 12, 7];

impl Tokens {
    fn new(is_plain: bool) -> Tokens {
        let tokens = Field { name: "tokens".into(), dtype: DType::U16, shape: Shape::Ragged };
        let kind = Field { name: "kind".into(), dtype: DType::U8, shape: Shape::Fixed(vec![1]) };
        let fields = if is_plain { vec![tokens] } else { vec![kind, tokens] };
        let mut index = Index::new("tokens", FileTable::new(), Schema { fields }, LENGTHS.len() as u64);
        index.plain_field = is_plain.then_some(0);
        Tokens { index, is_plain }
    }

    /// What the reads of a plan leave in memory.
    fn read(&self, id: SampleId, piece: Piece) -> Vec<u8> {
        let places = if self.is_plain { piece.start..piece.start + piece.len } else { 0..LENGTHS[id.0 as usize] };
        let tokens = places.flat_map(|place| element(id.0, place).to_le_bytes());
        let kind = (!self.is_plain).then_some(id.0 as u8);
        kind.into_iter().chain(tokens).collect()
    }
}

impl Dataset for Tokens {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}
    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let at = usize::from(!self.is_plain);
        let values = [(!self.is_plain).then(|| raw[0].slice(..at)), Some(raw[0].slice(at..))];
        out.values.extend(values.into_iter().flatten().map(Value::Bytes));
        Ok(())
    }
}

/// Two rows of 8: all of sample 0; two pieces of sample 1, the second in the next row; a piece of sample 2.
const PIECES: [(u64, Piece); 4] = [
    (0, Piece { start: 0, len: 5 }),
    (1, Piece { start: 0, len: 3 }),
    (1, Piece { start: 3, len: 6 }),
    (2, Piece { start: 5, len: 2 }),
];

/// The batch of `pieces`. The piece at index `failed` could not be read.
fn assembled(dataset: &Tokens, pieces: &[(u64, Piece)], failed: Option<usize>) -> Batch {
    let packing = Packing { method: PackMethod::Concat, seq_len: 8, window: 9, pad: PadValue::Int(9) };
    let config = Config { batching: Batching::Packed(packing), ..Config::default() };
    let collation = Collation::new(&config, dataset).unwrap();
    let mut plan = BatchPlan::default();
    plan.batch.row_ends = vec![2, pieces.len() as u32];
    let mut memory = vec![0xee; 3];
    for (index, &(id, piece)) in (0..).zip(pieces) {
        let id = SampleId(id);
        let bytes = dataset.read(id, piece);
        let span = Span { file: FileId(0), offset: 0, len: bytes.len() as u64 };
        plan.slices.push(Slice { span, block: 0, at: memory.len() as u64 });
        plan.ends.push(index + 1);
        plan.batch.ids.push(id);
        plan.batch.pieces.push(piece);
        plan.batch.positions.push(Position { position: u64::from(index), padding: false });
        memory.extend(bytes);
    }
    let mut errors: Vec<Option<Error>> = pieces.iter().map(|_| None).collect();
    if let Some(failed) = failed {
        errors[failed] = Some(Error::new(ErrorKind::Truncated, "it could not be read"));
    }
    let mut pool = Pool::new(1 << 20, 0, Arc::new(Bell::new())).unwrap();
    let target = pool.take(32);
    let blocks = [Bytes::from(memory)];
    let mut parsed = Parsed::default();
    parsed.parse(dataset, &collation, &plan, (&blocks, &[], None), &mut errors);
    parsed.assemble((dataset, &collation), &plan, (&blocks, &mut Made::default()), target, &pool).0
}

fn packed(batch: &Batch) -> (&Packed, Vec<u16>) {
    let Some(Data::Packed(packed)) = batch.column("tokens").map(|column| &column.data) else { panic!("not packed") };
    (packed, packed.values.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect())
}

#[test]
fn pieces_become_rows_whether_they_are_read_or_cut_out() {
    for is_plain in [true, false] {
        let dataset = Tokens::new(is_plain);
        let batch = assembled(&dataset, &PIECES, None);
        let (packed, values) = packed(&batch);
        let first = [0, 1, 2, 3, 4, 1000, 1001, 1002];
        let second = [1003, 1004, 1005, 1006, 1007, 1008, 2005, 2006];
        assert_eq!(values, [first, second].concat());
        assert_eq!(packed.positions(), [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4, 5, 0, 1]);
        assert_eq!(batch.ids, [0, 1, 1, 2].map(SampleId), "one for each piece");
        if !is_plain {
            let kinds: Vec<u8> = (0..4).map(|index| batch.columns[0].bytes_of(index).unwrap()[0]).collect();
            assert_eq!(kinds, [0, 1, 1, 2], "one value a piece");
        }
    }
}

#[test]
fn a_piece_that_failed_leaves_its_room_to_what_fills_up() {
    for is_plain in [true, false] {
        let batch = assembled(&Tokens::new(is_plain), &PIECES, Some(0));
        let (packed, values) = packed(&batch);
        assert_eq!(values[..8], [1000, 1001, 1002, 9, 9, 9, 9, 9]);
        assert_eq!((packed.rows, packed.segments.len(), batch.failed.len()), (2, 3, 1));
        assert_eq!(packed.segment_ids()[..8], [1, 1, 1, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn a_piece_that_is_not_there_is_the_error_of_its_sample() {
    let pieces = [PIECES[0], (1, Piece { start: 10, len: 3 }), (2, Piece { start: u64::MAX, len: 2 }), PIECES[3]];
    let batch = assembled(&Tokens::new(false), &pieces, None);
    assert_eq!(batch.ids, [0, 2].map(SampleId));
    let errors: Vec<_> = batch.failed.iter().map(|failed| (failed.id.0, failed.error.kind())).collect();
    assert_eq!(errors, [(1, ErrorKind::Corrupt), (2, ErrorKind::Corrupt)]);
    assert!(batch.failed[0].error.to_string().contains("before element 13"), "{}", batch.failed[0].error);
}

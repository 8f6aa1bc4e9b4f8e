//! Plans of packed and bucketed rows: only the wanted piece of a sample is read if its value can be read in parts, and
//! all of it otherwise.

use super::*;
use crate::config::{Batching, Buckets, PackMethod, Packing, PadValue};
use crate::dataset::{DType, Field, Shape};

/// Samples of 16-bit tokens with two spans each, the first of one token. Sample n is in file n.
struct Tokens {
    index: Index,
    lengths: Vec<u64>,
}

const ELEMENT_BYTES: u64 = 2;

fn tokens(lengths: Vec<u64>, is_plain: bool) -> Arc<dyn Dataset> {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    lengths.iter().for_each(|_| assert!(files.push(b"x", 1 << 40).is_some()));
    let field = |name: &str, dtype, shape| Field { name: name.into(), dtype, shape };
    let label = field("label", DType::I64, Shape::Fixed(Vec::new()));
    let fields = vec![label, field("tokens", DType::U16, Shape::Ragged)];
    let mut index = Index::new("tokens", files, Schema { fields }, lengths.len() as u64);
    index.bytes = lengths.iter().sum::<u64>() * ELEMENT_BYTES;
    index.plain_field = is_plain.then_some(1);
    Arc::new(Tokens { index, lengths })
}

impl Dataset for Tokens {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let bytes = self.lengths[id.0 as usize] * ELEMENT_BYTES;
        let head = bytes.min(ELEMENT_BYTES);
        out.extend([span(id.0 as u32, 7, head), span(id.0 as u32, 5000, bytes - head)]);
    }
    fn parse(&self, _id: SampleId, _raw: &[Bytes], _out: &mut Sample) -> crate::Result<()> {
        Ok(())
    }
    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        Some(if field == 1 { self.lengths[id.0 as usize] } else { 1 })
    }
}

/// Checks the plans of one epoch against a walk of the same order.
fn walk(dataset: &Arc<dyn Dataset>, batching: Batching, mut check: impl FnMut(&BatchPlan)) {
    let config = Config { batching, batch_size: 3, world_size: 2, ..Config::default() };
    let sampler: Arc<dyn Sampler> = Arc::new(Shuffled::new(dataset.len(), 7));
    let order = Order::new(&config, Arc::clone(dataset), sampler).unwrap();
    let layout = layout(512, 0);
    let (mut walk, mut planner) = (order.walk(), order.planner(layout));
    let (mut plan, mut batch) = (BatchPlan::default(), Selection::default());
    while walk.next(&mut batch) {
        assert_eq!(planner.epoch(), Some(batch.cursor.epoch));
        assert!(planner.next(&mut plan));
        assert_eq!((plan.batch.cursor, plan.batch.next), (batch.cursor, batch.next));
        assert_eq!((&plan.batch.positions, &plan.batch.ids), (&batch.positions, &batch.ids));
        assert_eq!((&plan.batch.pieces, &plan.batch.row_ends), (&batch.pieces, &batch.row_ends));
        check_reads(&plan, layout);
        check_slices(&plan);
        check_blocks(&plan, layout, false);
        check(&plan);
    }
    assert!(planner.epoch().is_none() && !planner.next(&mut plan), "the end");
}

/// The bytes of a sample's value that a plan reads, as offsets in the value.
fn bytes_of(dataset: &dyn Dataset, plan: &BatchPlan, index: usize) -> Vec<u64> {
    let mut whole = Vec::new();
    dataset.spans(plan.batch.ids[index], &mut whole);
    let slices = plan.slices_of(index);
    assert_eq!(slices.len(), whole.len(), "a slice for each span");
    let mut bytes = Vec::new();
    let mut before = 0;
    for (slice, whole) in slices.iter().zip(whole) {
        assert_eq!(slice.span.file, whole.file);
        assert!(slice.span.offset >= whole.offset && slice.span.offset + slice.span.len <= whole.offset + whole.len);
        let start = before + slice.span.offset - whole.offset;
        bytes.extend(start..start + slice.span.len);
        before += whole.len;
    }
    bytes
}

proptest! {
    #[test]
    fn pieces_are_read_alone_where_they_can_be(
        lengths in prop::collection::vec(0..70_u64, 1..60), seq_len in 1..30_u64, window in 1..40_u64,
    ) {
        for method in [PackMethod::FirstFit, PackMethod::BestFit, PackMethod::Concat] {
            for is_plain in [true, false] {
                let dataset = tokens(lengths.clone(), is_plain);
                let packing = Packing { method, seq_len, window, pad: PadValue::default() };
                walk(&dataset, Batching::Packed(packing), |plan| {
                    for (index, piece) in plan.batch.pieces.iter().enumerate() {
                        let length = lengths[plan.batch.ids[index].0 as usize];
                        let wanted = if is_plain { piece.start..piece.start + piece.len } else { 0..length };
                        let wanted = wanted.start * ELEMENT_BYTES..wanted.end * ELEMENT_BYTES;
                        assert!(bytes_of(&*dataset, plan, index).into_iter().eq(wanted), "{piece:?} of {length}");
                    }
                });
            }
        }
        let buckets = Buckets { boundaries: vec![20, 40], batch_sizes: vec![5, 3, 2], window };
        let dataset = tokens(lengths.clone(), true);
        walk(&dataset, Batching::Buckets(buckets), |plan| {
            for (index, id) in plan.batch.ids.iter().enumerate() {
                let wanted = 0..lengths[id.0 as usize] * ELEMENT_BYTES;
                assert!(bytes_of(&*dataset, plan, index).into_iter().eq(wanted));
            }
        });
    }
}

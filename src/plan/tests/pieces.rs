//! Plans of packed and bucketed rows: what is read of a sample is the piece of it that is wanted, where the value can
//! be read in parts, and all of it where it cannot.

use super::*;
use crate::config::{Batching, Buckets, Config, PackMethod, Packing, PadValue};
use crate::dataset::{DType, Field, Shape};

/// Samples of 16-bit tokens, of two spans each, the first of one token: those of sample n lie in file n.
struct Tokens {
    files: FileTable,
    schema: Schema,
    lengths: Vec<u64>,
    is_plain: bool,
}

const ELEMENT_BYTES: u64 = 2;

fn tokens(lengths: Vec<u64>, is_plain: bool) -> Arc<dyn Dataset> {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    lengths.iter().for_each(|_| assert!(files.push(b"x", 1 << 40).is_some()));
    let field = |name: &str, dtype, shape| Field { name: name.into(), dtype, shape };
    let label = field("label", DType::I64, Shape::Fixed(Vec::new()));
    let fields = vec![label, field("tokens", DType::U16, Shape::Ragged)];
    Arc::new(Tokens { files, schema: Schema { fields }, lengths, is_plain })
}

impl Dataset for Tokens {
    fn files(&self) -> &FileTable {
        &self.files
    }
    fn format(&self) -> &'static str {
        "tokens"
    }
    fn len(&self) -> u64 {
        self.lengths.len() as u64
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let bytes = self.lengths[id.0 as usize] * ELEMENT_BYTES;
        let head = bytes.min(ELEMENT_BYTES);
        out.extend([span(id.0 as u32, 7, head), span(id.0 as u32, 5000, bytes - head)]);
    }
    fn parse(&self, _id: SampleId, _raw: &[Bytes], _out: &mut Sample) -> crate::Result<()> {
        Ok(())
    }
    fn key(&self, _id: SampleId, _out: &mut Vec<u8>) {}
    fn bytes(&self) -> u64 {
        self.lengths.iter().sum::<u64>() * ELEMENT_BYTES
    }
    fn largest(&self, _count: u64) -> u64 {
        self.bytes()
    }
    fn fingerprint(&self) -> u64 {
        0
    }
    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        Some(if field == 1 { self.lengths[id.0 as usize] } else { 1 })
    }
    fn plain_field(&self) -> Option<usize> {
        self.is_plain.then_some(1)
    }
}

/// What the plans of one epoch, and the windows that they are of, say.
fn walk(dataset: &Arc<dyn Dataset>, batching: Batching, mut check: impl FnMut(&BatchPlan)) {
    let config = Config { batching, batch_size: 3, ..Config::default() };
    let sampler: Arc<dyn Sampler> = Arc::new(Shuffled::new(dataset.len(), 7));
    let strided = Strided::new(0, 2, config.batch_size, false).unwrap();
    let windows = || Windows::new(&config, dataset, &sampler, strided, Cursor::default()).unwrap();
    let mut alone = windows().unwrap();
    let layout = layout(512, 0);
    let mut planner =
        Planner::new(Arc::clone(dataset), Arc::clone(&sampler), strided, Cursor::default(), Some(1), layout)
            .with_windows(windows());
    let (mut plan, mut rows) = (BatchPlan::default(), RowBatch::default());
    while alone.next(&mut rows) {
        assert_eq!(planner.epoch(), Some(rows.cursor.epoch));
        assert!(planner.next(&mut plan));
        assert_eq!((plan.cursor, plan.next), (rows.cursor, rows.next));
        assert_eq!((&plan.positions, &plan.ids), (&rows.positions, &rows.ids));
        assert_eq!((&plan.pieces, &plan.row_ends), (&rows.pieces, &rows.row_ends));
        check_reads(&plan, layout);
        check_slices(&plan);
        check_blocks(&plan, layout, false);
        check(&plan);
    }
    assert!(planner.epoch().is_none() && !planner.next(&mut plan), "the end");
}

/// The bytes of a sample's value that a plan reads, by their places in it.
fn bytes_of(dataset: &dyn Dataset, plan: &BatchPlan, index: usize) -> Vec<u64> {
    let mut whole = Vec::new();
    dataset.spans(plan.ids[index], &mut whole);
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
                    for (index, piece) in plan.pieces.iter().enumerate() {
                        let length = lengths[plan.ids[index].0 as usize];
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
            for (index, id) in plan.ids.iter().enumerate() {
                let wanted = 0..lengths[id.0 as usize] * ELEMENT_BYTES;
                assert!(bytes_of(&*dataset, plan, index).into_iter().eq(wanted));
            }
        });
    }
}

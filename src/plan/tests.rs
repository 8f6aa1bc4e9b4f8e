//! Plans as arithmetic: wherever spans are, each of their bytes comes from its place in the file to its announced place
//! in memory, and reads obey the layout.

mod joining;
mod pieces;
mod rows;
mod stretches;
mod units;

use super::*;
use crate::config::{Cause, Collate, Config};
use crate::dataset::{self, DType, Dataset, Field, FileTable, Index, Options, Sample, SampleId, Schema, Shape, Value};
use crate::sampler::{Cursor, Sampler, Sequential, Shuffled};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::HashMap;

const MIB: u64 = 1 << 20;

/// Samples with arbitrary spans.
struct Spans {
    index: Index,
    samples: Vec<Vec<Span>>,
}

impl Spans {
    fn new(samples: Vec<Vec<Span>>) -> Arc<Spans> {
        let mut files = FileTable::new();
        files.push_root("/nowhere");
        let count = samples.iter().flatten().map(|span| span.file.0 + 1).max().unwrap_or(0);
        (0..count).for_each(|_| assert!(files.push(b"x", u64::MAX / 2).is_some()));
        let field = Field { name: "data".into(), dtype: DType::U8, shape: Shape::Ragged };
        let mut index = Index::new("spans", files, Schema { fields: vec![field] }, samples.len() as u64);
        index.bytes = samples.iter().flatten().map(|span| span.len).sum();
        index.plain_field = Some(0);
        Arc::new(Spans { index, samples })
    }
}

impl Dataset for Spans {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        out.extend(&self.samples[id.0 as usize]);
    }
    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> crate::Result<()> {
        out.values.extend(raw.iter().cloned().map(Value::Bytes));
        Ok(())
    }
}

fn planner(dataset: Arc<dyn Dataset>, batch_size: u64, layout: Layout, collate: Collate) -> Planner {
    let sampler = Arc::new(Sequential::new(dataset.len()));
    let config = Config { collate, batch_size, ..Config::default() };
    let collation = Arc::new(Collation::new(&config, &*dataset).unwrap());
    Order::new(&config, dataset, sampler).unwrap().planner(layout).with_collation(collation)
}

/// A collation whose values must be adjacent, or not.
fn collate(joined: bool) -> Collate {
    if joined { Collate::Ragged } else { Collate::Views }
}

/// Plans a single batch of all samples, with adjacent values or not.
fn plan(samples: Vec<Vec<Span>>, layout: Layout, joined: bool) -> BatchPlan {
    let dataset = Spans::new(samples);
    let count = dataset.len();
    let mut plan = BatchPlan::default();
    assert!(planner(dataset, count, layout, collate(joined)).next(&mut plan));
    plan
}

fn span(file: u32, offset: u64, len: u64) -> Span {
    Span { file: FileId(file), offset, len }
}

fn layout(alignment: u64, coalesce_gap: u64) -> Layout {
    Layout { alignment, read_bytes: 8 * alignment.max(512), coalesce_gap, border: 0 }
}

/// The first byte of each read in its block. Reads ascend and leave at most a page between them.
fn places(plan: &BatchPlan) -> Vec<u64> {
    let mut filled = vec![0; plan.blocks.len()];
    let place = |read: &PlannedRead| {
        let end = &mut filled[read.block as usize];
        assert!(read.at >= *end && read.at - *end < PAGE_BYTES, "{read:?} behind {end}");
        *end = read.at + read.len;
        read.at
    };
    let places = plan.reads.iter().map(place).collect();
    for (block, &bytes) in filled.iter().enumerate() {
        if plan.gather == Some(block as u32) {
            assert_eq!(bytes, 0, "nothing is read into what is gathered into");
        } else {
            assert_eq!(bytes, plan.blocks[block], "a block ends with its last read");
            assert!(bytes > 0, "no block for nothing");
        }
    }
    places
}

/// Checks that reads obey the layout and end where the last wanted byte does.
fn check_reads(plan: &BatchPlan, layout: Layout) {
    for read in &plan.reads {
        assert_eq!((read.offset % layout.alignment, read.len % layout.alignment), (0, 0), "{read:?}");
        assert!(read.len > 0 && read.len <= layout.read_bytes, "{read:?}");
        assert!(read.need > 0 && read.need <= read.len && read.len - read.need < layout.alignment, "{read:?}");
    }
    // The required bytes end with a wanted byte, or between two extents that were joined.
    let wanted = |file, byte| {
        let holds = |slice: &Slice| {
            slice.span.file == file && (slice.span.offset..slice.span.offset + slice.span.len).contains(&byte)
        };
        plan.slices.iter().any(holds)
    };
    for read in &plan.reads {
        // Spans less than an alignment unit apart are joined even without a gap, and a read may be cut right there.
        let is_between = read.need == read.len;
        assert!(is_between || wanted(read.file, read.offset + read.need - 1), "{read:?} needs an unwanted byte");
    }
    let ascends = |reads: &[PlannedRead]| reads[0].block <= reads[1].block;
    assert!(plan.reads.windows(2).all(ascends), "blocks are filled one after the other");
}

/// Checks that every byte of every span is where its slice says, and among the bytes that must arrive.
fn check_slices(plan: &BatchPlan) {
    let places = places(plan);
    let mut of_block: HashMap<u32, Vec<(u64, PlannedRead)>> = HashMap::new();
    for (&at, &read) in places.iter().zip(&plan.reads) {
        of_block.entry(read.block).or_default().push((at, read));
    }
    for slice in plan.slices.iter().filter(|slice| slice.span.len > 0) {
        let reads = &of_block[&slice.block];
        let mut at = slice.at;
        let mut offset = slice.span.offset;
        while offset < slice.span.offset + slice.span.len {
            let index = reads.partition_point(|(start, _)| *start <= at) - 1;
            let (start, read) = reads[index];
            assert_eq!((read.file, read.offset + (at - start)), (slice.span.file, offset), "{slice:?} in {read:?}");
            let end = (slice.span.offset + slice.span.len).min(read.offset + read.len);
            assert!(end <= read.offset + read.need, "{slice:?} needs more than {read:?} must bring");
            at += end - offset;
            offset = end;
        }
    }
}

/// Checks that blocks are short, that values compacted in place have a single block, and that everything stays within
/// the bound that `build` uses.
fn check_blocks(plan: &BatchPlan, layout: Layout, joined: bool) {
    let payload: u64 = plan.slices.iter().map(|slice| slice.span.len).sum();
    let spans = plan.slices.len() as u64;
    let read: u64 = plan.reads.iter().map(|read| read.len).sum();
    assert!(read <= payload + spans * (2 * layout.alignment + layout.coalesce_gap), "{read} bytes for {payload}");
    let gathered = plan.gather.map_or(0, |block| plan.blocks[block as usize]);
    let skipped = plan.block_bytes() - read - gathered;
    assert!(skipped <= spans * (PAGE_BYTES - layout.alignment), "{skipped} bytes of memory left out");
    let apart = joined && layout.coalesce_gap > 0;
    assert_eq!(plan.gather.is_some(), apart && payload > 0);
    assert_eq!(gathered, if apart { payload.next_multiple_of(64) } else { 0 });
    if joined && !apart {
        assert!(plan.blocks.len() <= 1, "what is moved in place has one block");
    } else {
        for (block, &bytes) in
            plan.blocks[..plan.gather.map_or(plan.blocks.len(), |block| block as usize)].iter().enumerate()
        {
            let mut of_block = plan.reads.iter().filter(|read| read.block == block as u32);
            let mut last = *of_block.next().expect("a read in each block");
            let joined = of_block.all(|read| {
                let joins = last.file == read.file && last.offset + last.len == read.offset;
                last = *read;
                joins
            });
            assert!(bytes <= BLOCK_BYTES || joined, "a block of {bytes} bytes that is not one extent");
        }
    }
}

/// Checks that memory keeps the batch's order, so that it can be compacted in place.
fn check_order(plan: &BatchPlan) {
    let mut end = (0, 0);
    for slice in plan.slices.iter().filter(|slice| slice.span.len > 0) {
        assert!((slice.block, slice.at) >= end, "{slice:?} lies before what was told before it, which ends at {end:?}");
        end = (slice.block, slice.at + slice.span.len);
    }
}

/// Checks that in disk order nothing is read twice, and that spans nearer than the gap form one extent.
fn check_coalesced(plan: &BatchPlan, layout: Layout) {
    let mut reads: Vec<PlannedRead> = plan.reads.clone();
    reads.sort_by_key(|read| (read.file, read.offset));
    assert_eq!(reads, plan.reads, "the order of the disk");
    for pair in reads.windows(2).filter(|pair| pair[0].file == pair[1].file) {
        let end = pair[0].offset + pair[0].len;
        assert!(pair[1].offset == end || pair[1].offset > end + layout.coalesce_gap, "{pair:?}");
    }
}

fn check(samples: Vec<Vec<Span>>, layout: Layout, joined: bool) {
    let wanted: Vec<Span> = samples.iter().flatten().copied().collect();
    let plan = plan(samples.clone(), layout, joined);
    assert_eq!(plan.slices.iter().map(|slice| slice.span).collect::<Vec<_>>(), wanted);
    for (index, spans) in samples.iter().enumerate() {
        let of_sample: Vec<Span> = plan.slices_of(index).iter().map(|slice| slice.span).collect();
        assert_eq!(of_sample, *spans, "sample {index}");
    }
    check_reads(&plan, layout);
    check_slices(&plan);
    check_blocks(&plan, layout, joined);
    let in_batch_order = layout.coalesce_gap == 0 && (joined || wanted.len() <= samples.len());
    if in_batch_order { check_order(&plan) } else { check_coalesced(&plan, layout) }
}

/// Spans that are empty, tiny, adjacent, far apart, or large.
fn any_span() -> impl Strategy<Value = Span> {
    let offset = prop_oneof![0..40_u64, 0..20_000_u64, (0..64_u64).prop_map(|n| n * 512), 0..1_u64 << 40];
    let len = prop_oneof![Just(0), 1..30_u64, 1..9000_u64, (1..20_u64).prop_map(|n| n * 512), 1..40 * MIB];
    (0..3_u32, offset, len).prop_map(|(file, offset, len)| span(file, offset, len))
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let alignment = prop_oneof![Just(1_u64), Just(512), Just(4096)];
    let gap = prop_oneof![Just(0_u64), Just(1), 1..5000_u64, 1..10 * MIB];
    (alignment, 1..40_u64, gap).prop_map(|(alignment, reads, coalesce_gap)| {
        // Reads of a few bytes would mean millions of them for the large spans.
        Layout { alignment, read_bytes: reads * 16 * 4096, coalesce_gap, border: 0 }
    })
}

proptest! {
    #[test]
    fn every_byte_comes_to_its_place(
        samples in prop::collection::vec(prop::collection::vec(any_span(), 0..4), 1..30), layout in any_layout(),
        joined in any::<bool>(),
    ) {
        check(samples, layout, joined);
    }

    /// Runs of neighbours, like records or the members of an archive.
    #[test]
    fn neighbours_come_to_their_places(
        lens in prop::collection::vec((0..3000_u64, 0..700_u64), 1..60), start in 0..5000_u64, layout in any_layout(),
        joined in any::<bool>(),
    ) {
        let mut offset = start;
        let samples = lens.iter().map(|&(len, gap)| {
            offset += gap / 2 * (gap % 2);
            let sample = vec![span(0, offset, len)];
            offset += len;
            sample
        });
        check(samples.collect(), layout, joined);
    }
}

#[test]
fn a_span_is_aligned_on_both_sides() {
    let plan = plan(vec![vec![span(0, 1000, 3000)]], layout(512, 0), false);
    let read = PlannedRead { file: FileId(0), offset: 512, len: 3584, need: 3488, block: 0, at: 0 };
    assert_eq!(plan.reads, [read]);
    assert_eq!((plan.slices[0].at, &plan.blocks[..]), (488, &[3584][..]));
}

#[test]
fn long_spans_are_cut_and_the_last_read_needs_what_is_left() {
    let plan = plan(vec![vec![span(0, 0, 10_000)]], layout(512, 0), false);
    let reads: Vec<_> = plan.reads.iter().map(|read| (read.offset, read.len, read.need)).collect();
    assert_eq!(reads, [(0, 4096, 4096), (4096, 4096, 4096), (8192, 2048, 1808)]);
}

/// Consecutive records are read as one extent, in reads of full length, although none ends at a sector boundary.
#[test]
fn sequential_records_are_one_extent() {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    files.push(b"x", 10 + 1000 * 100).unwrap();
    let options = Options::new().format("records").set("record_bytes", 100).set("header_bytes", 10);
    let records: Arc<dyn Dataset> = dataset::inspect::of_files(files, &options).unwrap();
    for alignment in [1, 512] {
        let layout = layout(alignment, 0);
        let mut planner = planner(Arc::clone(&records), 250, layout, Collate::Dense);
        let mut plan = BatchPlan::default();
        let mut batches = 0;
        while planner.next(&mut plan) {
            let bytes: u64 = plan.reads.iter().map(|read| read.len).sum();
            assert_eq!(plan.reads.len() as u64, bytes.div_ceil(layout.read_bytes), "reads of full length");
            assert!(bytes < 25_000 + 2 * alignment);
            check_slices(&plan);
            batches += 1;
        }
        assert_eq!(batches, 4);
    }
}

#[test]
fn a_gap_joins_what_is_nearer_and_only_that() {
    let samples =
        || vec![vec![span(0, 9000, 100)], vec![span(0, 0, 100)], vec![span(0, 400, 100)], vec![span(1, 0, 9)]];
    let extents = |gap| {
        let plan = plan(samples(), Layout { alignment: 1, read_bytes: MIB, coalesce_gap: gap, border: 0 }, false);
        plan.reads.iter().map(|read| (read.file.0, read.offset, read.len)).collect::<Vec<_>>()
    };
    assert_eq!(extents(0), [(0, 9000, 100), (0, 0, 100), (0, 400, 100), (1, 0, 9)], "the order of the batch");
    assert_eq!(extents(299), [(0, 0, 100), (0, 400, 100), (0, 9000, 100), (1, 0, 9)], "the order of the disk");
    assert_eq!(extents(300), [(0, 0, 500), (0, 9000, 100), (1, 0, 9)]);
    assert_eq!(extents(MIB), [(0, 0, 9100), (1, 0, 9)]);
}

/// Columns that have their own regions of a file are read column by column: in the order of the batch, each value would
/// be a read of its own.
#[test]
fn columns_are_read_one_after_the_other() {
    let samples = (0..100).map(|row| vec![span(0, 4096 + row * 2048, 2048), span(0, MIB + row * 8, 8)]).collect();
    let plan = plan(samples, Layout { alignment: 512, read_bytes: MIB, coalesce_gap: 0, border: 0 }, false);
    let reads: Vec<_> = plan.reads.iter().map(|read| (read.offset, read.len)).collect();
    assert_eq!(reads, [(4096, 100 * 2048), (MIB, 1024)]);
    check_slices(&plan);
}

/// A gap is copied from the page cache, which costs more than a read if it is long; a disk reads it along.
#[test]
fn long_gaps_are_not_copied_out_of_the_page_cache() {
    let route = |direct_io, cause: Option<Cause>| Route {
        engine: crate::config::EngineKind::Threads,
        direct_io,
        reads_once: false,
        alignment: 1,
        queue_depth: 1,
        read_bytes: 4096,
        border: 0,
        registered_buffers: false,
        backing: "".into(),
        pinned: false,
        devices: Vec::new(),
        locality: Vec::new(),
        fallbacks: cause.map(|cause| crate::config::Fallback::new(cause, "", None)).into_iter().collect(),
    };
    let gap = |route: Route, coalesce_gap| {
        Layout::new(&route, &Config { coalesce_gap: Some(coalesce_gap), ..Config::default() }).coalesce_gap
    };
    assert_eq!(gap(route(false, Some(Cause::PageCache)), MIB), 8192);
    assert_eq!(gap(route(false, Some(Cause::PageCache)), 100), 100);
    assert_eq!(gap(route(true, None), MIB), MIB);
    assert_eq!(gap(route(false, Some(Cause::DirectOpen)), MIB), MIB, "perhaps a network file system");
}

#[test]
fn empty_samples_take_nothing() {
    for gap in [0, 1000] {
        for joined in [false, true] {
            let empty = |offset| vec![span(0, offset, 0)];
            let plan = plan(vec![empty(0), empty(5), vec![], empty(u64::MAX / 4)], layout(512, gap), joined);
            assert_eq!((plan.reads.len(), plan.blocks.len(), plan.gather), (0, 0, None));
            assert_eq!(plan.ends, [1, 2, 2, 3]);
        }
    }
}

/// No other read would open such a file.
#[test]
fn an_empty_file_is_looked_at() {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    for size in [0, 700, 0, 64] {
        files.push(b"x", size).unwrap();
    }
    let folder: Arc<dyn Dataset> = dataset::inspect::of_files(files, &Options::new().format("folder")).unwrap();
    for (alignment, glance) in [(1, GLANCE_BYTES), (512, 512), (4096, 4096)] {
        for (gap, collate) in [(0, Collate::Views), (0, Collate::Ragged), (9000, Collate::Ragged)] {
            let mut plan = BatchPlan::default();
            assert!(planner(Arc::clone(&folder), 4, layout(alignment, gap), collate).next(&mut plan));
            let reads: Vec<_> = plan.reads.iter().map(|read| (read.file.0, read.offset, read.need)).collect();
            assert_eq!(reads, [(0, 0, 0), (1, 0, 700), (2, 0, 0), (3, 0, 64)]);
            assert!(plan.reads[0].len == glance && plan.reads[2].len == glance, "{:?}", plan.reads);
            assert!(plan.slices.iter().all(|slice| slice.at % 4 == 0), "{:?}", plan.slices);
            check_slices(&plan);
        }
    }
}

#[test]
fn blocks_end_before_they_are_too_long_unless_one_extent_is() {
    let sample = |file, len| vec![span(file, 0, len)];
    let samples =
        vec![sample(0, 20 * MIB), sample(1, 10 * MIB), sample(2, 20 * MIB), sample(3, 100 * MIB), sample(4, 1)];
    let layout = Layout { alignment: 512, read_bytes: MIB, coalesce_gap: 0, border: 0 };
    let plan_of = |joined| plan(samples.clone(), layout, joined);
    assert_eq!(plan_of(false).blocks, [30 * MIB, 20 * MIB, 100 * MIB, 512]);
    assert_eq!(plan_of(true).blocks, [150 * MIB + 512], "what is moved in place is one block, however long");
}

#[test]
fn dense_records_of_aligned_length_lie_end_to_end() {
    let samples: Vec<_> = [7, 3, 5, 0].iter().map(|&n| vec![span(0, n * 1024, 1024)]).collect();
    let plan = plan(samples.clone(), layout(512, 0), true);
    assert_eq!(plan.slices.iter().map(|slice| slice.at).collect::<Vec<_>>(), [0, 1024, 2048, 3072]);
    assert_eq!((plan.blocks[0], plan.gather), (4096, None));
    // In disk order they are not, and are gathered into a block of their own.
    let plan = self::plan(samples, layout(512, 1), true);
    assert_eq!((plan.gather, plan.blocks.last().copied()), (Some(1), Some(4096)));
}

/// Plans one after another in the same memory, over several epochs and an empty one, both resumed and from the start.
#[test]
fn plans_follow_each_other_to_the_last_epoch() {
    let dataset: Arc<dyn Dataset> = Spans::new((0..10).map(|n| vec![span(0, n * 100, 100)]).collect());
    let config = Config { batch_size: 4, drop_last: true, epochs: Some(2), ..Config::default() };
    let order = Order::new(&config, dataset, Arc::new(Shuffled::new(10, 7))).unwrap();
    let new = |start| order.at(start).planner(layout(512, 0));
    let mut planner = new(Cursor::default());
    let (mut plan, mut plans) = (BatchPlan::default(), Vec::new());
    while let Some(epoch) = planner.epoch() {
        assert!(planner.next(&mut plan));
        assert_eq!(plan.batch.cursor.epoch, epoch);
        check_slices(&plan);
        plans.push((plan.batch.cursor, plan.batch.next, plan.batch.ids.clone()));
    }
    assert!(!planner.next(&mut plan) && plan.batch.ids.is_empty());
    let at = |epoch, position| Cursor::new(epoch, position);
    let cursors: Vec<_> = plans.iter().map(|(cursor, next, _)| (*cursor, *next)).collect();
    let wanted = [(at(0, 0), at(0, 4)), (at(0, 4), at(1, 0)), (at(1, 0), at(1, 4)), (at(1, 4), at(2, 0))];
    assert_eq!(cursors, wanted);
    for (index, (start, _)) in wanted.into_iter().enumerate() {
        let mut resumed = new(start);
        for wanted in &plans[index..] {
            assert!(resumed.next(&mut plan));
            assert_eq!(&(plan.batch.cursor, plan.batch.next, plan.batch.ids.clone()), wanted);
        }
        assert!(!resumed.next(&mut plan));
    }
    // What remains of the first epoch from 7 on is less than a batch.
    let mut resumed = new(at(0, 7));
    assert_eq!(resumed.epoch(), Some(1));
    assert!(resumed.next(&mut plan));
    assert_eq!(plan.batch.cursor, at(1, 0));
}

#[test]
fn reads_of_an_extent_are_issued_once_each_and_never_behind_their_neighbour() {
    for count in 0..100 {
        let mut order = Vec::new();
        super::interleave(7..7 + count, &mut order);
        for group in order.chunks_exact(super::reads::INTERLEAVED as usize) {
            assert!(group.windows(2).all(|pair| pair[1] != pair[0] + 1), "{count}: {order:?}");
        }
        order.sort_unstable();
        assert_eq!(order, (7..7 + count).collect::<Vec<_>>());
    }
}

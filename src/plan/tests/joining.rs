//! Nearby spans, where an operation of the storage costs as much as many bytes.

use super::super::joining::{GAP_MAX, Joining};
use super::*;

/// Samples of `len` bytes, each `apart` bytes after the previous one.
fn row(count: u64, len: u64, apart: u64) -> Arc<Spans> {
    let span = |number| Span { file: FileId(0), offset: 100 + number * (len + apart), len };
    Spans::new((0..count).map(|number| vec![span(number)]).collect())
}

/// Plans of all batches in order.
fn plans(dataset: &Arc<Spans>, joining: Joining, collate: Collate) -> Vec<BatchPlan> {
    let dataset = Arc::clone(dataset) as Arc<dyn Dataset>;
    let layout = Layout { alignment: 512, read_bytes: MIB, coalesce_gap: 0, border: 0 };
    let mut planner = planner(dataset, 64, layout, collate).with_joining(joining);
    let mut plans = Vec::new();
    loop {
        let mut plan = BatchPlan::default();
        if !planner.next(&mut plan) {
            return plans;
        }
        plans.push(plan);
    }
}

fn read(plans: &[BatchPlan]) -> u64 {
    plans.iter().flat_map(|plan| &plan.reads).map(|read| read.len).sum()
}

#[test]
fn a_batch_in_order_is_one_read_whatever_lies_between() {
    for (len, apart) in [(115_000, 1100), (700, 3300), (100, 4096)] {
        let dataset = row(256, len, apart);
        for collate in [Collate::Views, Collate::Ragged] {
            let apart = plans(&dataset, Joining::default(), collate);
            assert!(apart.iter().all(|plan| plan.reads.len() >= 64));
            let joined = plans(&dataset, Joining::new(800_000, 64 * GAP_MAX), collate);
            let reads = |plan: &BatchPlan| plan.reads.len() as u64 <= plan.block_bytes().div_ceil(MIB) + 1;
            assert!(joined.iter().all(reads), "{len}: {}", joined[0].reads.len());
            assert!(read(&joined) <= 8 * read(&apart).max(256 * 4096));
            for plan in &joined {
                // Values that are compacted in place must keep the order of the batch.
                assert!(plan.slices.windows(2).all(|pair| pair[0].at < pair[1].at));
                for slice in &plan.slices {
                    let covers = |read: &&PlannedRead| {
                        let from = slice.span.offset.max(read.offset);
                        let to = (slice.span.offset + slice.span.len).min(read.offset + read.need);
                        let at = slice.at + (from - slice.span.offset);
                        from < to && read.block == slice.block && read.at + (from - read.offset) == at
                    };
                    assert!(plan.reads.iter().any(|read| covers(&read)), "{slice:?}");
                }
            }
        }
    }
}

#[test]
fn gaps_are_bounded_in_length_in_share_and_in_all() {
    let joining = Joining::new(800_000, 32 << 20);
    assert_eq!((joining.gap, joining.read_bytes), (GAP_MAX, MIB));
    let far = row(64, 100, GAP_MAX + 1024);
    assert_eq!(plans(&far, joining, Collate::Views)[0].reads.len(), 64, "too long");
    // Ten times the page of each sample, and more if a sample is in two pages.
    let all = plans(&row(64, 100, 40_000), joining, Collate::Views);
    assert!((9..64).contains(&all[0].reads.len()), "{}", all[0].reads.len());
    assert!(read(&all) <= 8 * 64 * 2 * 4096);
    let dataset = row(64, 4000, 20_000);
    let all = plans(&dataset, joining, Collate::Views);
    assert_eq!(all[0].reads.len() as u64, all[0].block_bytes().div_ceil(MIB));
    let few = plans(&dataset, Joining { room: 100_000, ..joining }, Collate::Views);
    let wanted = read(&plans(&dataset, Joining::default(), Collate::Views));
    assert!(few[0].reads.len() < 64 && read(&few) <= wanted + 100_000, "{}", read(&few) - wanted);
    assert_eq!(Joining::new(800_000, 1000), Joining { read_bytes: MIB, ..Joining::default() });
    assert_eq!(Joining::new(0, 1 << 30), Joining::default(), "nor is memory taken for gaps");
}

#[test]
fn gaps_of_objects_are_longer() {
    let (near, far) = (Joining::new(MIB, 64 << 20), Joining::far(MIB, 64 << 20));
    assert_eq!((near.gap, near.read_bytes), (GAP_MAX, MIB));
    assert_eq!((far.gap, far.read_bytes), (MIB, MIB));
    assert_eq!((Joining::new(1 << 30, 0).read_bytes, Joining::far(1 << 30, 0).read_bytes), (4 * MIB, 8 * MIB));
    let dataset = row(64, 100_000, 100_000 + 2 * GAP_MAX);
    assert_eq!(plans(&dataset, near, Collate::Views)[0].reads.len(), 64);
    assert!(plans(&dataset, far, Collate::Views)[0].reads.len() < 32);
}

#[test]
fn free_operations_change_nothing() {
    let dataset = row(100, 3000, 1000);
    let (apart, free) = (Joining::default(), Joining::new(0, 1 << 20));
    let reads = |joining| plans(&dataset, joining, Collate::Views).iter().flat_map(|plan| plan.reads.clone()).collect();
    let (one, other): (Vec<PlannedRead>, Vec<PlannedRead>) = (reads(apart), reads(free));
    assert_eq!(one, other);
}

#[test]
fn what_a_gap_would_join_is_told_where_it_may_be_tried() {
    let joined = |dataset: &Arc<Spans>, joining| plans(dataset, joining, Collate::Views)[0].joined;
    let (near, far) = (row(256, 115_000, 1100), row(256, 4096, 100_000));
    let unknown = Joining::unknown(64 * GAP_MAX);
    assert_eq!((unknown.gap, unknown.most), (0, GAP_MAX));
    assert!(joined(&near, unknown).could_join && !joined(&far, unknown).could_join);
    assert!(!joined(&near, unknown.settled()).could_join && !joined(&near, Joining::default()).could_join);
    assert_eq!(Joining::unknown(1000), Joining::default(), "there is no room for one");
    // The memory of a batch with gaps is that of one without, plus the gaps.
    let tried = Joining { gap: GAP_MAX, ..unknown };
    let plan = &plans(&near, tried, Collate::Views)[0];
    assert_eq!(plan.joined.gap, Some(GAP_MAX));
    assert!(plan.reads.len() < 20, "{}", plan.reads.len());
    let (bytes, wanted) = (plan.reads.iter().map(|read| read.len).sum::<u64>(), 64 * 115_000);
    assert!(plan.block_bytes() <= bytes + tried.room);
    let useful = plan.joined.useful(bytes);
    assert!(useful.abs_diff(wanted) <= 1, "{useful} of {wanted}");
    assert_eq!(joined(&near, Joining::default()).useful(1000), 1000, "not measured");
}

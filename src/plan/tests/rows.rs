//! Plans where arrays are read in part: which ranges of which span, and in which memory.

use super::*;
use crate::transform::Array;

const BYTES: u64 = 4 * 20 * 1000 * 4;

/// The plan of a batch of two arrays of shape 4x20x1000, which `steps` take a part of.
fn planned(steps: &str, least: u64, layout: Layout) -> BatchPlan {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    files.push(b"arrays", 3 * BYTES).expect("room for one");
    let options = Options::new().format("records").set("record_bytes", BYTES).set("dtype", DType::I32);
    let dataset = dataset::inspect::of_files(files, &options.set("shape", vec![4_u64, 20, 1000])).unwrap();
    let map = steps.parse::<Array>().unwrap().map(&dataset.schema().fields[0]).unwrap();
    let rows = Rows::new(vec![(0, Arc::clone(map.arrays().unwrap()))], 5, 0).leaving_out(least);
    let config = Config { batch_size: 2, ..Config::default() };
    let collation = Arc::new(Collation::with_maps(&config, &*dataset, &[("data".to_owned(), map)]).unwrap());
    let sampler = Arc::new(Sequential::new(dataset.len()));
    let planner = Order::new(&config, dataset, sampler).unwrap().planner(layout).with_collation(collation);
    let mut plan = BatchPlan::default();
    assert!(planner.with_rows(Some(Arc::new(rows))).next(&mut plan));
    plan
}

fn ranges(plan: &BatchPlan) -> Vec<(u64, u64)> {
    plan.reads.iter().map(|read| (read.offset, read.offset + read.need)).collect()
}

#[test]
fn parts_of_rows_are_reads_of_their_own() {
    const STEPS: &str = "array(slice(0:2, 0:10, 0:100))";
    let layout = Layout { alignment: 1, read_bytes: 1 << 20, coalesce_gap: 0, border: 0 };
    let starts = || (0..40_u64).map(|row| row / 20 * BYTES + row / 10 % 2 * 80_000 + row % 10 * 4000);
    let plan = planned(STEPS, 3600, layout);
    assert_eq!(ranges(&plan), starts().map(|start| (start, start + 400)).collect::<Vec<_>>());
    assert_eq!(plan.left_out, 2 * (116_400 - 20 * 400));
    assert_eq!(plan.parts, [(0, 0), (1, 0)]);
    for (slice, start) in plan.slices.iter().zip([0, BYTES]) {
        assert_eq!((slice.span.offset, slice.span.len), (start, 116_400));
        // A part has the same distance from the beginning of its value as in the file.
        let own = plan.reads.iter().filter(|read| (start..start + BYTES).contains(&read.offset));
        own.for_each(|read| assert_eq!((read.block, read.at - slice.at), (slice.block, read.offset - start)));
    }
    let plan = planned(STEPS, 3601, layout);
    let wanted = [0, 80_000, BYTES, BYTES + 80_000].map(|start| (start, start + 36_400));
    assert_eq!((ranges(&plan), plan.left_out), (wanted.to_vec(), 2 * (80_000 - 36_400)));
    let plan = planned(STEPS, 50_000, layout);
    assert_eq!((ranges(&plan), plan.left_out), (vec![(0, 116_400), (BYTES, BYTES + 116_400)], 0));
    let plan = planned("array(slice(:, 2:))", 1, layout);
    assert_eq!((ranges(&plan), plan.parts.len()), (vec![(0, 2 * BYTES)], 0), "a tenth is not left out");
}

#[test]
fn aligned_parts_share_no_pages() {
    for alignment in [512, 4096] {
        // The skipped bytes between two rows are 3600: less than the pages of the rows.
        let layout = Layout { alignment, read_bytes: 1 << 20, coalesce_gap: 0, border: 0 };
        let plan = planned("array(slice(0:2, 0:10, 0:100))", 3600, layout);
        let mut end = 0;
        for read in &plan.reads {
            assert_eq!((read.offset % alignment, read.len % alignment), (0, 0), "{read:?}");
            assert!(read.offset >= end && read.need <= read.len, "{read:?} behind {end}");
            end = read.offset + read.len;
        }
        assert_eq!(plan.reads.len(), 4, "{:?}", ranges(&plan));
    }
}

#[test]
fn samples_that_are_read_together_leave_out_what_none_needs() {
    let layout = Layout { alignment: 1, read_bytes: 1 << 20, coalesce_gap: 300_000, border: 0 };
    let plan = planned("array(slice(0:2, 0:10, 0:100))", 43_000, layout);
    let wanted = [0, 80_000, BYTES, BYTES + 80_000].map(|start| (start, start + 36_400));
    assert_eq!(ranges(&plan), wanted, "one extent with holes");
    let block = plan.slices[0].block;
    assert!(plan.slices.iter().all(|slice| slice.block == block && slice.at == slice.span.offset));
}

//! Which stretches are read before a batch, and which are in memory when it is built.

use super::super::stretches::{Grid, Keep};
use super::*;
use crate::sampler::Sequential;
use std::collections::HashSet;

const STRETCH: u64 = 256;

fn records(count: u64) -> Arc<dyn Dataset> {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    files.push(b"a", count / 2 * 50).unwrap();
    files.push(b"b", 0).unwrap();
    files.push(b"c", count.div_ceil(2) * 50).unwrap();
    let options = Options::new().format("records").set("record_bytes", 50);
    dataset::inspect::of_files(files, &options).unwrap()
}

/// Walks over all plans and checks that each byte of a batch is read by it or in memory, and that no more is kept than
/// fits. Returns how many bytes of stretches were read, and how many slices were kept.
fn check_all(planner: Planner, grid: &Grid, room: u64) -> (u64, u64) {
    check_turned(planner, grid, room, || None)
}

/// The same, where `turn` says before each plan whether to read stretches from then on.
fn check_turned(mut planner: Planner, grid: &Grid, room: u64, mut turn: impl FnMut() -> Option<bool>) -> (u64, u64) {
    let files = planner.dataset().files().clone();
    let (mut plan, mut in_memory, mut read, mut kept) = (BatchPlan::default(), HashSet::new(), 0, 0);
    loop {
        turn().into_iter().for_each(|is_whole| planner.set_whole(is_whole));
        if !planner.next(&mut plan) {
            break;
        }
        for number in &plan.given_up {
            assert!(in_memory.remove(number), "given up what was not there");
        }
        if let Some(stretch) = plan.stretch {
            assert!(in_memory.insert(stretch.number), "read twice");
            assert_eq!(plan.reads.iter().map(|read| read.need).sum::<u64>(), stretch.span.len);
            read += stretch.span.len;
            let bytes: u64 = in_memory.iter().map(|&number| grid.stretch(number, &files).span.len).sum();
            assert!(bytes <= room, "{bytes} bytes are kept, and there is room for {room}");
            continue;
        }
        kept += plan.kept;
        assert!(plan.is_plain);
        for slice in &plan.slices {
            let of = grid.of(&slice.span).0;
            assert!(!of.is_empty());
            let is_there = of.clone().all(|number| in_memory.contains(&number));
            assert!(!slice.is_kept() || is_there, "{slice:?} is not in memory");
            let reads = |read: &&PlannedRead| {
                let end = read.offset + read.need;
                read.file == slice.span.file && read.offset <= slice.span.offset && slice.span.offset < end
            };
            assert_eq!(plan.reads.iter().any(|read| reads(&read)), !slice.is_kept(), "{slice:?}");
        }
        let mut places: Vec<u64> = plan.slices.iter().map(|slice| slice.at).collect();
        places.dedup();
        assert!(places.is_sorted() && places.len() == plan.slices.len(), "each sample has its own place");
    }
    (read, kept)
}

fn planner(dataset: &Arc<dyn Dataset>, grid: &Grid, keep: Keep) -> Planner {
    let config = Config { batch_size: 7, epochs: Some(2), ..Config::default() };
    let collation = Arc::new(Collation::new(&config, &**dataset).unwrap());
    let order = Order::new(&config, Arc::clone(dataset), Arc::new(Shuffled::new(dataset.len(), 3))).unwrap();
    order.planner(layout(1, 0)).with_collation(collation).with_stretches(Some((grid.clone(), keep)))
}

#[test]
fn a_share_is_read_once_and_kept() {
    let dataset = records(101);
    let all: u64 = dataset.files().sizes().iter().sum();
    let grid = Grid::of_bytes(dataset.files(), STRETCH).unwrap();
    let mut last = 0;
    for room in [0, STRETCH, all / 3, all - 1, all, 2 * all] {
        let (share, bytes) = grid.share_that_fits(dataset.files(), room);
        assert!(bytes <= room && bytes >= last && (bytes == all) == (room >= all));
        last = bytes;
        let (read, kept) = check_all(planner(&dataset, &grid, Keep::Share(share)), &grid, bytes);
        assert_eq!(read, bytes, "each stretch once in two epochs");
        assert!(bytes < all || kept == 2 * dataset.len());
    }
}

#[test]
fn the_latest_are_kept_as_far_as_there_is_room() {
    let dataset = records(101);
    let all: u64 = dataset.files().sizes().iter().sum();
    let grid = Grid::of_bytes(dataset.files(), STRETCH).unwrap();
    for room in [0, STRETCH, 3 * STRETCH, 9 * STRETCH, all] {
        let (read, kept) = check_all(planner(&dataset, &grid, Keep::Latest(room)), &grid, room);
        assert_eq!((kept > 0, read == all), (room >= STRETCH, room == all), "{room}: {read} read, {kept} kept");
    }
}

#[test]
fn what_is_tried_is_read_while_it_is_asked_for() {
    let dataset = records(101);
    let all: u64 = dataset.files().sizes().iter().sum();
    let grid = Grid::of_bytes(dataset.files(), STRETCH).unwrap();
    for room in [STRETCH, 3 * STRETCH, 9 * STRETCH, all] {
        let tried = || planner(&dataset, &grid, Keep::Tried(room));
        assert_eq!(check_turned(tried(), &grid, room, || None), (0, 0), "never requested");
        let latest = check_all(planner(&dataset, &grid, Keep::Latest(room)), &grid, room);
        assert_eq!(check_turned(tried(), &grid, room, || Some(true)), latest);
        for every in 1..12 {
            let mut plans = 0;
            let mut turn = || {
                plans += 1;
                (plans % every == 0).then_some(plans / every % 2 == 1)
            };
            let (read, kept) = check_turned(tried(), &grid, room, &mut turn);
            assert!(read > 0 && kept > 0, "{read} read, {kept} kept, turned every {every} plans");
        }
    }
}

#[test]
fn what_is_no_longer_tried_is_given_up() {
    let dataset = records(100);
    let grid = Grid::of_bytes(dataset.files(), STRETCH).unwrap();
    let config = Config { batch_size: 5, ..Config::default() };
    let collation = Arc::new(Collation::new(&config, &*dataset).unwrap());
    let order = Order::new(&config, Arc::clone(&dataset), Arc::new(Sequential::new(dataset.len()))).unwrap();
    let planner = order.planner(layout(1, 0)).with_collation(collation);
    let mut planner = planner.with_stretches(Some((grid, Keep::Tried(9 * STRETCH))));
    let (mut plan, mut there, mut read) = (BatchPlan::default(), HashSet::new(), 0);
    planner.set_whole(true);
    while planner.next(&mut plan) {
        plan.given_up.iter().for_each(|number| assert!(there.remove(number)));
        read += plan.stretch.map_or(0, |stretch| usize::from(there.insert(stretch.number)));
        if plan.stretch.is_none() && read >= 3 {
            planner.set_whole(false);
        }
    }
    assert!((3..8).contains(&read) && there.is_empty(), "{read} were read, and {there:?} are kept");
}

/// Pairs of a long row and a number; each column is contiguous.
struct Labelled(dataset::Index);

impl Labelled {
    fn dataset(samples: u64) -> Arc<dyn Dataset> {
        let mut files = FileTable::new();
        files.push_root("/nowhere");
        files.push(b"a", samples * 1008).unwrap();
        let field = |name: &str, shape| dataset::Field { name: name.into(), dtype: dataset::DType::U8, shape };
        let fields = vec![field("row", Shape::Fixed(vec![1000])), field("label", Shape::Fixed(vec![8]))];
        Arc::new(Labelled(dataset::Index::new("own", files, dataset::Schema { fields }, samples)))
    }
}

impl Dataset for Labelled {
    fn index(&self) -> &dataset::Index {
        &self.0
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let span = |offset, len| Span { file: FileId(0), offset, len };
        out.extend([span(id.0 * 1000, 1000), span(self.0.samples * 1000 + id.0 * 8, 8)]);
    }

    fn parse(&self, _: SampleId, raw: &[bytes::Bytes], out: &mut dataset::Sample) -> Result<()> {
        out.values.extend(raw.iter().cloned().map(dataset::Value::Bytes));
        Ok(())
    }
}

#[test]
fn small_columns_are_kept_as_far_as_there_is_room_and_nothing_else_is() {
    let dataset = Labelled::dataset(500);
    let grid = Grid::of_bytes(dataset.files(), STRETCH).unwrap();
    let label_stretches = (500 * 8_u64).div_ceil(STRETCH) + 1;
    for room in [0, STRETCH, 4 * STRETCH, label_stretches * STRETCH] {
        let config = Config { batch_size: 7, epochs: Some(2), ..Config::default() };
        let order = Order::new(&config, Arc::clone(&dataset), Arc::new(Shuffled::new(500, 3))).unwrap();
        let mut planner = order.planner(layout(1, 0)).with_stretches(Some((grid.clone(), Keep::Small(room))));
        let (mut plan, mut read, mut kept) = (BatchPlan::default(), HashSet::new(), 0);
        while planner.next(&mut plan) {
            assert!(plan.given_up.is_empty(), "what is kept stays");
            if let Some(stretch) = plan.stretch {
                assert!(read.insert(stretch.number), "read twice");
                continue;
            }
            kept += plan.kept;
            for slice in plan.slices.iter().filter(|slice| slice.is_kept()) {
                assert!(grid.of(&slice.span).0.all(|number| read.contains(&number)), "{slice:?} is not in memory");
            }
        }
        assert!(read.len() as u64 * STRETCH <= room.max(1).next_multiple_of(STRETCH));
        let all = room == label_stretches * STRETCH;
        assert_eq!((kept > 0, kept >= 1000), (room > 0, all), "{kept} of 1000 labels come from memory");
    }
}

#[test]
fn what_is_forgotten_is_read_again() {
    let dataset = records(20);
    let grid = Grid::of_bytes(dataset.files(), 1 << 20).unwrap();
    let mut planner = planner(&dataset, &grid, Keep::Latest(u64::MAX));
    let mut plan = BatchPlan::default();
    let mut next = |planner: &mut Planner| {
        assert!(planner.next(&mut plan));
        plan.stretch.map(|stretch| stretch.number)
    };
    assert_eq!((next(&mut planner).is_some(), next(&mut planner).is_some()), (true, true));
    assert_eq!((next(&mut planner), next(&mut planner)), (None, None));
    planner.forget([1].into_iter());
    assert_eq!((next(&mut planner), next(&mut planner)), (Some(1), None));
}

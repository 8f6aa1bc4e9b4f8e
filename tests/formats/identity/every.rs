//! Shards of every format that are swapped while they are read.

use super::super::same::{Place, SAMPLES, payload, payload_of, places, write};
use super::{BOUND, CHANGES, Change, other};
use crate::common::check::{WAYS, ways_to};
use crate::common::random::Random;
use crate::common::within;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::Loader;
use uringload::config::{MaxFailures, OnError, Shuffle};
use uringload::dataset::Dataset;

/// Samples of a batch.
const BATCH: u64 = 50;

/// Copies a file or a folder. What is nothing but zeros becomes a hole: a file of FFCV has megabytes of them.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir(to).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder") {
            let path = entry.expect("an entry").path();
            copy(&path, &to.join(path.file_name().expect("a name")));
        }
        return;
    }
    let (bytes, mut file) = (fs::read(from).expect("the file"), File::create(to).expect("a file"));
    file.set_len(bytes.len() as u64).expect("room");
    for (at, block) in bytes.chunks(4096).enumerate().filter(|(_, block)| block.iter().any(|&byte| byte != 0)) {
        file.seek(SeekFrom::Start(at as u64 * 4096)).and_then(|_| file.write_all(block)).expect("room");
    }
}

/// What was done to which file.
type Changed = BTreeMap<PathBuf, Change>;

/// Reads an epoch. Every byte is that of its sample, every error is of a file that was changed by then, and tells how.
/// Returns the files of the errors. `turn` is called before each batch.
fn read(
    (place, dataset): (&Place, &Arc<dyn Dataset>),
    turn_of_ways: usize,
    changed: &mut Changed,
    mut turn: impl FnMut(u64, &mut Changed),
) -> BTreeSet<PathBuf> {
    let ways = ways_to(dataset);
    let (engine, io) = ways[turn_of_ways % ways.len()];
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(BATCH).shuffle(Shuffle::Auto).seed(5);
    let builder = builder
        .engine(engine)
        .io(io)
        .on_error(OnError::Skip)
        .memory_limit(16 << 20)
        .max_failures(MaxFailures::Count(u64::MAX))
        // Else who writes into a file passes for some milliseconds after a look.
        .check_every(Duration::ZERO);
    let (mut told, mut came) = (BTreeSet::new(), 0);
    for (number, batch) in builder.build().expect("a loader").enumerate() {
        let batch = batch.expect("a batch");
        let index = batch.columns.iter().position(|found| found.name == place.column).unwrap_or(0);
        for (row, id) in batch.ids.iter().enumerate() {
            let bytes = batch.columns[index].bytes_of(row).expect("bytes");
            let is_right = *payload_of(&bytes) == payload(id.0 % SAMPLES);
            assert!(is_right, "{}, {engine:?} {io:?}: sample {} has other bytes", place.name, id.0);
        }
        for failed in &batch.failed {
            let path = failed.error.path().expect("a file").to_path_buf();
            let change = changed.get(&path).unwrap_or_else(|| panic!("{}: {}", place.name, failed.error));
            assert_eq!(failed.error.kind(), change.kind(), "{}, {change:?}: {}", place.name, failed.error);
            told.insert(path);
        }
        came += (batch.ids.len() + batch.failed.len()) as u64;
        turn(number as u64, changed);
    }
    assert_eq!(came, dataset.len(), "{}, {engine:?} {io:?}: every sample once, or its error", place.name);
    told
}

/// One format, of so many shards or more, some of which are swapped in mid-epoch.
fn swap(place: &Place, one: &Path, (shards, swaps): (usize, u64), turn: usize) {
    let root = TempDir::new().expect("a folder");
    let of_one = place.open(&[one.to_path_buf()]).files().len();
    let folders: Vec<PathBuf> = (0..shards.div_ceil(of_one)).map(|at| root.path().join(format!("{at:05}"))).collect();
    for folder in &folders {
        fs::create_dir(folder).expect("a folder");
        copy(&one.join(place.path), &folder.join(place.path));
    }
    let dataset = place.open(&folders);
    let files: Vec<PathBuf> = (0..dataset.files().len() as u32)
        .map(|file| dataset.files().path(uringload::dataset::FileId(file)))
        .filter(|path| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 1))
        .collect();
    assert!(files.len() >= shards, "{}: {} shards", place.name, files.len());
    let every = (dataset.len() / BATCH / swaps).max(1);
    let mut random = Random::new(turn as u64);
    let mut changed = Changed::new();
    let mut change_one = |changed: &mut Changed| {
        let path = &files[random.below(files.len() as u64) as usize];
        if !changed.contains_key(path) {
            let change = CHANGES[random.below(CHANGES.len() as u64) as usize];
            // Reported before it happens, because it may be found while it happens.
            changed.insert(path.clone(), change);
            change.apply(path, &other(path));
        }
    };
    let told = read((place, &dataset), turn, &mut changed, |number, changed| {
        if number.is_multiple_of(every) {
            change_one(changed);
        }
    });
    // Some files come up twice, and sixty files of a folder are a batch or two.
    let fewest = swaps.min(dataset.len() / BATCH) / 3;
    assert!(changed.len() as u64 > fewest, "{}: {} changes", place.name, changed.len());
    assert!(told.iter().all(|path| changed.contains_key(path)), "{}", place.name);
    (0..swaps.div_ceil(4)).for_each(|_| change_one(&mut changed));
    let changed_files: BTreeSet<PathBuf> = changed.keys().cloned().collect();
    let told = read((place, &dataset), turn + WAYS.len() / 2, &mut changed, |_, _| ());
    assert_eq!(told, changed_files, "{}: every change is told, and nothing else", place.name);
}

/// Every format, of a number of shards, some of which are swapped.
fn swap_all(sizes: (usize, u64)) {
    let one = TempDir::new().expect("a folder");
    write(one.path());
    places().iter().enumerate().for_each(|(turn, place)| swap(place, one.path(), sizes, turn));
}

#[test]
fn swapped_shards_of_every_format_never_give_another_ones_bytes() {
    within(BOUND, || swap_all((24, 8)));
}

#[test]
#[ignore = "slow: two thousand shards of every format"]
fn two_thousand_swapped_shards_of_every_format() {
    within(40 * BOUND, || swap_all((2000, 400)));
}

//! Decoded images that are kept from epoch to epoch: the same tensors in the same order, with as many hits as fit.

use crate::common::archive::Archive;
use crate::common::writable::{Writable, Writes};
use crate::common::{child, skip, within};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::{Batch, Column, Data};
use uringload::config::{Cause, ImageCache, OnError};
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::inspect::cache;
use uringload::stats::Counts;
use uringload::transform::MapOutput;
use uringload::{Builder, ErrorKind, Loader, State};

const BOUND: Duration = Duration::from_secs(120);
const RANDOM: &str = "random_resized_crop(16), hflip, color_jitter(0.4, 0.4, 0.4), normalize(imagenet)";
const RESIZED: &str = "resize(20), random_crop(16), hflip, to_tensor(u8)";
const FIXED: &str = "resize(20), center_crop(16), normalize(imagenet)";

/// A bitmap of 24 bits, whose pixels are a function of `seed`.
fn bmp(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let row = (3 * width).next_multiple_of(4);
    let mut file = b"BM".to_vec();
    for number in [54 + row * height, 0, 54, 40, width, height, 1 | 24 << 16, 0, row * height, 2835, 2835, 0, 0] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    let level = |n: u32| (n.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 24) as u8;
    file.extend((0..row * height).map(level));
    file
}

/// Images of the size that `size` says, with a class beside each.
fn archive(count: u32, size: impl Fn(u32) -> (u32, u32)) -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut tar = Archive::new();
    for number in 0..count {
        let (width, height) = size(number);
        tar = tar.file(&format!("{number:05}.bmp"), &bmp(width, height, number));
        tar = tar.file(&format!("{number:05}.cls"), number.to_string().as_bytes());
    }
    fs::write(root.path().join("train.tar"), tar.end().0).expect("an archive");
    let dataset = dataset::open(&[root.path()], &Options::new()).expect("a dataset");
    (root, dataset)
}

fn builder(dataset: &Arc<dyn Dataset>, chain: &str) -> Builder {
    let builder = Loader::builder(Arc::clone(dataset)).seed(42).shuffle(true).batch_size(8);
    builder.transform("bmp", chain.parse().expect("a chain"))
}

/// The tensor and the class of every sample, by epoch and number.
type Seen = BTreeMap<(u64, u64), (Vec<u8>, Vec<u8>)>;

fn see(seen: &mut Seen, batch: &Batch) {
    let (images, classes) = (batch.column("bmp").expect("images"), batch.column("cls").expect("classes"));
    assert!(matches!(images.data, Data::Dense { .. }));
    for (index, id) in batch.ids.iter().enumerate() {
        let bytes = |column: &Column| column.bytes_of(index).expect("a value").to_vec();
        assert!(seen.insert((batch.cursor.epoch, id.0), (bytes(images), bytes(classes))).is_none());
    }
}

fn all(builder: Builder) -> (Seen, Counts, String, Vec<String>) {
    within(BOUND, || all_of(&mut builder.build().expect("a loader")))
}

fn all_of(loader: &mut Loader) -> (Seen, Counts, String, Vec<String>) {
    let mut seen = Seen::new();
    for batch in &mut *loader {
        see(&mut seen, &batch.expect("a batch"));
    }
    let route = loader.route();
    let told = route.fallbacks.iter().filter(|step| step.cause == Cause::Cache).map(ToString::to_string).collect();
    (seen, loader.stats().snapshot().count, loader.state().to_json(), told)
}

fn places(folder: &TempDir) -> [ImageCache; 2] {
    [ImageCache::memory(1 << 30), ImageCache::disk(folder.path(), 1 << 30)]
}

#[test]
fn the_same_batches_come_whatever_is_kept() {
    let (_root, dataset) = archive(60, |n| (20 + n % 17, 20 + n % 13));
    for chain in [RANDOM, RESIZED, FIXED] {
        let folder = tempfile::tempdir().expect("a folder");
        let (plain, count, state, _) = all(builder(&dataset, chain).epochs(3));
        assert_eq!((plain.len(), count.cache_hits, count.cache_misses), (180, 0, 0));
        assert!(plain.iter().all(|((_, id), (_, class))| *class == id.to_string().as_bytes()));
        for (cache, threads) in places(&folder).into_iter().zip([2, 0]) {
            let kept = builder(&dataset, chain).epochs(3).num_threads(threads).cache_images(cache.clone());
            let (seen, count, same, told) = all(kept.clone());
            assert!(seen == plain && state == same, "{chain} {cache:?}");
            assert_eq!((count.cache_hits, count.cache_misses, told), (120, 60, Vec::new()), "{chain} {cache:?}");
            // Neither ranks nor the rest of a state change a byte.
            let (mut ranks, ..) = all(kept.clone().rank(0, 2));
            ranks.extend(all(kept.clone().rank(1, 2)).0);
            assert!(ranks == plain, "{chain} {cache:?}");
            let mut loader = kept.clone().build().expect("a loader");
            let mut both = Seen::new();
            (0..11).for_each(|_| see(&mut both, &loader.next().expect("one more").expect("a batch")));
            let saved = State::from_json(&loader.state().to_json()).expect("a state");
            drop(loader);
            both.extend(all(kept.resume(&saved)).0);
            assert!(both == plain, "{chain} {cache:?}");
        }
        // The second run finds what the first one kept.
        let disk = builder(&dataset, chain).epochs(1).cache_images(ImageCache::disk(folder.path(), 1 << 30));
        let (seen, count, ..) = all(disk);
        assert_eq!((count.cache_hits, count.cache_misses, count.bytes_wanted), (60, 0, 0));
        assert!(seen.iter().all(|(key, value)| plain[key] == *value));
    }
}

/// A decoded image of the chain `RANDOM`, and its facts.
const MEAN: u64 = 40 * 30 * 3;

#[test]
fn as_many_are_hit_as_fit() {
    let count: u32 = 1600;
    for (chain, size) in [
        // All take the same.
        (RANDOM, (|_| (40, 30)) as fn(u32) -> (u32, u32)),
        // From a third of the mean to five thirds.
        (RANDOM, |n| (40, 10 + n.wrapping_mul(2_654_435_761) % 41)),
    ] {
        let (_root, dataset) = archive(count, size);
        // The facts of an entry, and its class.
        let room = u64::from(count) * (MEAN + 256 + 4) / 2;
        let (_, one, ..) = all(builder(&dataset, chain).epochs(1).cache_images(ImageCache::memory(room)));
        assert_eq!((one.cache_hits, one.cache_misses), (0, 1600));
        let (_, three, ..) = all(builder(&dataset, chain).epochs(3).cache_images(ImageCache::memory(room)));
        let share = three.cache_hits as f64 / 3200.0;
        // For few samples, a hash takes only about that many: the deviation is 1.3 %. The members' own test has many.
        assert!((share - 0.5).abs() < 0.04, "{share} of the samples");
        // The same ones in every epoch, in every run.
        let (_, two, ..) = all(builder(&dataset, chain).epochs(2).cache_images(ImageCache::memory(room)));
        assert_eq!(two.cache_hits * 2, three.cache_hits);
        // What is told is what comes.
        let loader = builder(&dataset, chain).cache_images(ImageCache::memory(room)).build().expect("a loader");
        let route = loader.route().to_string();
        let told = route.split("decoded images of ").nth(1).and_then(|rest| rest.split(" %").next());
        let told: f64 = told.expect("it is told").parse().expect("a number");
        assert!((told - 100.0 * share).abs() < 4.0, "{told} % are told, {share} hit");
        assert!(loader.memory_limit() > room, "the memory that is kept counts");
    }
}

/// After a resize all take the same, and those that are stored in more bytes cost more.
#[test]
fn behind_a_resize_the_dearest_are_kept() {
    let (_root, dataset) = archive(400, |n| if n % 4 == 0 { (90, 90) } else { (24, 24) });
    let room = 100 * (20 * 20 * 3 + 256 + 3);
    let with = |room| builder(&dataset, RESIZED).epochs(2).cache_images(ImageCache::memory(room));
    let (_, count, ..) = all(with(room));
    assert!((98..=100).contains(&count.cache_hits), "{}", count.cache_hits);
    let (_, plain, ..) = all(builder(&dataset, RESIZED).epochs(2));
    let saved = plain.bytes_wanted - count.bytes_wanted;
    assert!(saved >= 98 * 90 * 90 * 3, "{saved} bytes were not read: those of the large ones");
}

#[test]
fn damaged_and_missing_samples_cost_no_sample() {
    let (_root, dataset) = archive(40, |n| (20 + n, 20));
    let folder = tempfile::tempdir().expect("a folder");
    let disk = |epochs| builder(&dataset, RANDOM).epochs(epochs).cache_images(ImageCache::disk(folder.path(), 1 << 30));
    let (plain, ..) = all(builder(&dataset, RANDOM).epochs(2));
    all(disk(1));
    let path = folder.path().join("uringload-images-1/seg-0000");
    let file = fs::File::options().read(true).write(true).open(&path).expect("what is kept");
    // A flipped bit in a sample, and one in what says that there is another.
    for at in [4096 + 500, file.metadata().expect("a file").len() - 3 * 64 + 5] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).and_then(|()| file.write_all_at(&[byte[0] ^ 4], at)).expect("damaged");
    }
    let mut loader = disk(2).build().expect("a loader");
    let mut seen = Seen::new();
    for batch in &mut loader {
        see(&mut seen, &batch.expect("a batch"));
    }
    assert!(seen == plain);
    let count = loader.stats().snapshot().count;
    // Once where they were to be served, and once more where they were kept anew.
    assert!((2..=4).contains(&count.cache_misses), "{count:?}");
    let route = loader.route();
    let told: Vec<_> = route.fallbacks.iter().filter(|step| step.cause == Cause::Cache).collect();
    assert!(told.len() == 1 && told[0].to_string().contains("decoded again"), "{told:?}");
    drop(loader);
    let (seen, count, _, told) = all(disk(2));
    assert!(seen == plain && told.is_empty(), "{told:?}");
    assert!(count.cache_misses <= 2 && count.cache_hits >= 78, "{count:?}");
    // The whole folder goes while a loader lives, which has it open.
    let loader = disk(2).build().expect("a loader");
    fs::remove_dir_all(folder.path().join("uringload-images-1")).expect("removed");
    let mut seen = Seen::new();
    loader.for_each(|batch| see(&mut seen, &batch.expect("a batch")));
    assert!(seen == plain);
}

/// Ranks of a node share one budget: together they keep what fits, and none of it twice.
#[test]
fn ranks_keep_within_one_budget() {
    let (_root, dataset) = archive(400, |_| (40, 30));
    let folder = tempfile::tempdir().expect("a folder");
    // The records, and some more than half of the images, in pages.
    let budget = 200 * (4096 + 64) + (48 << 10);
    let disk = || builder(&dataset, RANDOM).cache_images(ImageCache::disk(folder.path(), budget));
    let (_, one, ..) = all(disk().epochs(1).rank(0, 2));
    let (_, two, ..) = all(disk().epochs(1).rank(1, 2));
    assert_eq!((one.cache_hits + two.cache_hits, one.cache_misses + two.cache_misses), (0, 400));
    let made = folder.path().join("uringload-images-1");
    let taken: u64 = fs::read_dir(&made)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").metadata().expect("a file").blocks() * 512)
        .sum();
    assert!(taken <= budget, "{taken} of {budget}");
    let (_, both, ..) = all(disk().epochs(1));
    assert!((180..=200).contains(&both.cache_hits), "{}", both.cache_hits);
}

/// The test below that a child runs.
const CHILD: &str = "loaders::prepared::child_keeps_images";

fn task(root: &TempDir, folder: &TempDir) -> String {
    format!("{}|{}", root.path().display(), folder.path().display())
}

#[test]
#[ignore = "a child of the tests below"]
fn child_keeps_images() {
    let Some(task) = child::task() else { return };
    let (root, folder) = task.split_once('|').expect("two paths");
    let dataset = dataset::open(&[root], &Options::new()).expect("a dataset");
    let disk = builder(&dataset, RANDOM).epochs(2).num_threads(2).cache_images(ImageCache::disk(folder, 1 << 30));
    assert!(disk.build().expect("a loader").all(|batch| batch.is_ok()));
}

/// Killed while it writes: what is there afterwards is whole, and the rest is made.
#[test]
fn a_killed_process_leaves_nothing_that_is_served() {
    let (root, dataset) = archive(300, |n| (60 + n % 40, 60));
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, ..) = all(builder(&dataset, RANDOM).epochs(1));
    for after in [30, 80, 200] {
        let mut child = child::start(CHILD, &task(&root, &folder));
        std::thread::sleep(Duration::from_millis(after));
        let _ = child.kill();
        let _ = child.wait();
    }
    let disk = builder(&dataset, RANDOM).epochs(1).cache_images(ImageCache::disk(folder.path(), 1 << 30));
    let (seen, count, _, told) = all(disk.clone());
    assert!(seen == plain && told.is_empty(), "{told:?}");
    assert_eq!(count.cache_hits + count.cache_misses, 300);
    let (seen, count, ..) = all(disk);
    assert!(seen == plain);
    assert_eq!((count.cache_hits, count.cache_misses), (300, 0));
}

#[test]
fn processes_share_a_folder() {
    let (root, dataset) = archive(200, |n| (30 + n % 40, 30));
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, ..) = all(builder(&dataset, RANDOM).epochs(2));
    let children: Vec<_> = (0..3).map(|_| child::start(CHILD, &task(&root, &folder))).collect();
    let disk = builder(&dataset, RANDOM).epochs(2).cache_images(ImageCache::disk(folder.path(), 1 << 30));
    let (seen, ..) = all(disk.clone());
    assert!(seen == plain);
    for mut child in children {
        assert!(child.wait().expect("an end").success());
    }
    let (seen, count, _, told) = all(disk);
    assert!(seen == plain && told.is_empty(), "{told:?}");
    assert_eq!((count.cache_hits, count.cache_misses), (400, 0));
    let stat = cache::stat(folder.path()).expect("a cache");
    assert_eq!((stat.datasets.len(), stat.datasets[0].entries), (1, 200));
}

#[test]
fn what_cannot_be_kept_is_refused_or_passed_over() {
    let (_root, dataset) = archive(20, |_| (24, 24));
    let cache = ImageCache::memory(1 << 20);
    let plain = Loader::builder(Arc::clone(&dataset));
    let error = plain.clone().cache_images(cache.clone()).build().expect_err("nothing is decoded");
    assert!(
        error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("no column is decoded"),
        "{error}"
    );
    let closure = plain.map("bmp", MapOutput::varying(DType::U8, 4), |_, _| Ok(0));
    assert!(closure.cache_images(cache.clone()).build().is_err());
    // A folder that is a file.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let error = builder(&dataset, RANDOM).cache_images(ImageCache::disk(file.path(), 1)).build().expect_err("a file");
    assert!(error.path().is_some_and(|path| path.starts_with(file.path())) && error.remedy().is_some(), "{error}");
    // No room for one.
    let (seen, count, ..) = all(builder(&dataset, RANDOM).epochs(2).cache_images(ImageCache::memory(100)));
    assert_eq!((seen.len(), count.cache_hits), (40, 0));
}

#[test]
fn broken_images_fail_in_every_epoch_and_are_not_kept() {
    let root = tempfile::tempdir().expect("a folder");
    for number in 0..20_u32 {
        let bytes = if number % 5 == 3 { b"no image".to_vec() } else { bmp(24, 24, number) };
        fs::write(root.path().join(format!("{number:02}.bmp")), bytes).expect("a file");
    }
    let dataset = dataset::open(&[root.path()], &Options::new()).expect("a folder");
    for on_error in [OnError::Skip, OnError::Replace] {
        let loader = Loader::builder(Arc::clone(&dataset)).batch_size(4).epochs(3).on_error(on_error);
        let loader = loader.transform("data", RANDOM.parse().expect("a chain"));
        let plain: Vec<Batch> = loader.clone().build().expect("a loader").map(|batch| batch.expect("one")).collect();
        let mut kept = loader.cache_images(ImageCache::memory(1 << 20)).build().expect("a loader");
        let same: Vec<Batch> = (&mut kept).map(|batch| batch.expect("one")).collect();
        let bytes = |batches: &[Batch]| {
            let of = |batch: &Batch| {
                let column = batch.column("data").expect("images");
                (0..batch.len()).map(|index| column.bytes_of(index).expect("one").to_vec()).collect::<Vec<_>>()
            };
            batches.iter().map(|batch| (batch.ids.clone(), of(batch))).collect::<Vec<_>>()
        };
        assert!(bytes(&plain) == bytes(&same), "{on_error:?}");
        assert_eq!(kept.stats().snapshot().count.cache_hits, 32);
    }
}

/// A shard of the same name and size took the place of the one that was decoded. Few of its blocks are looked at.
#[test]
fn a_shard_that_was_replaced_is_decoded_anew() {
    let (root, dataset) = archive(60, |_| (40, 30));
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let cached = |dataset| builder(dataset, FIXED).epochs(1).cache_images(ImageCache::disk(folder.path(), 1 << 30));
    let (before, ..) = all(cached(&dataset));
    let shard = root.path().join("train.tar");
    let mut bytes = fs::read(&shard).expect("the archive");
    // Of each label, and of each image's pixels, one byte is another.
    for number in 0..60_u32 {
        let name = format!("{number:05}.cls");
        let at = bytes.windows(name.len()).position(|window| window == name.as_bytes()).expect("its header");
        let label = &mut bytes[at + 512..at + 512 + number.to_string().len()];
        label[0] = if label[0] == b'9' { b'0' } else { label[0] + 1 };
        let name = format!("{number:05}.bmp");
        let at = bytes.windows(name.len()).position(|window| window == name.as_bytes()).expect("its header");
        bytes[at + 512 + 54..at + 512 + 54 + 3600].iter_mut().for_each(|level| *level = !*level);
    }
    let modified = fs::metadata(&shard).and_then(|data| data.modified()).expect("its time");
    fs::write(&shard, &bytes).expect("another archive");
    fs::File::options().write(true).open(&shard).and_then(|file| file.set_modified(modified)).expect("the same time");
    let now = dataset::open(&[root.path()], &Options::new()).expect("a dataset");
    let (after, count, ..) = all(cached(&now));
    assert_eq!((count.cache_hits, count.cache_misses), (0, 60));
    assert!(before.iter().all(|(key, (pixels, label))| after[key].0 != *pixels && after[key].1 != *label));
    assert!(after == all(builder(&now, FIXED).epochs(1)).0);
}

/// Calls on the folder's file system that never end hold nothing up for long: the images are decoded again.
#[test]
fn a_folder_that_stops_answering() {
    let (_root, dataset) = archive(60, |n| (20 + n % 17, 20 + n % 13));
    let plain = all(builder(&dataset, RANDOM).epochs(3)).0;
    within(BOUND, move || {
        for (stop, filled, wanted) in [
            (Writable::hang_reads as fn(&Writable), 1, "these images decoded again"),
            (|disk| disk.after(8, Writes::Hang), 0, "no more images kept"),
        ] {
            let Ok(disk) = Writable::mount().map_err(skip) else { return };
            let kept = builder(&dataset, RANDOM).timeout(Duration::from_secs(2));
            let kept = kept.cache_images(ImageCache::disk(disk.path(), 1 << 30));
            (0..filled).for_each(|_| drop(all(kept.clone().epochs(1))));
            let mut loader = kept.clone().epochs(3).build().expect("a loader");
            stop(&disk);
            let (seen, .., told) = all_of(&mut loader);
            assert!(seen == plain, "{wanted}");
            let is_told = |step: &&String| step.contains(wanted) && step.contains("did not answer within 500ms");
            assert_eq!(told.iter().filter(is_told).count(), 1, "{told:?}");
            disk.hang_lists();
            let error = kept.build().expect_err("no answer");
            assert!(error.kind() == ErrorKind::Timeout && error.path() == Some(disk.path()), "{error}");
        }
    });
}

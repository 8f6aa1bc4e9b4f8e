//! Files that change after they were indexed: every format and every engine reports every change, and no byte of
//! another file is ever taken for a sample.

mod every;

use super::same::{Made, SAMPLES, every, payload, writers};
use crate::common::archive::Archive;
use crate::common::check::ways_to;
use crate::common::random::Random;
use crate::common::{skip, within};
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use uringload::batch::Batch;
use uringload::config::{EngineChoice, IoChoice, OnError, Shuffle};
use uringload::dataset::{self, Dataset, FileId, Options, Sample, SampleId};
use uringload::{ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(120);

/// How a file becomes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// `rsync -t`, or a new image of the data set: a file of the same name, size and time takes its place.
    Replaced,
    /// `touch -r`: written in place, and its time put back.
    Rewritten,
    /// The same bytes, and some more.
    Longer,
    Shorter,
}

const CHANGES: [Change; 4] = [Change::Replaced, Change::Rewritten, Change::Longer, Change::Shorter];

impl Change {
    /// Applies it to the file at `path`, of which it makes `other`.
    fn apply(self, path: &Path, other: &[u8]) {
        let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).expect("its time");
        let in_place = || File::options().write(true).open(path).expect("the file");
        match self {
            Change::Replaced => {
                let new = path.with_extension("new");
                let mut file = File::create(&new).expect("a file");
                file.write_all(other).expect("bytes");
                set_time(&file, modified);
                fs::rename(new, path).expect("rename");
            }
            Change::Rewritten => {
                let mut file = in_place();
                file.write_all(other).expect("bytes");
                set_time(&file, modified);
            }
            Change::Longer => {
                let mut file = in_place();
                file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(b"more\n")).expect("bytes");
                set_time(&file, modified);
            }
            Change::Shorter => {
                let file = in_place();
                file.set_len(other.len() as u64 - 1).expect("shorter");
                set_time(&file, modified);
            }
        }
    }

    fn kind(self) -> ErrorKind {
        if self == Change::Shorter { ErrorKind::Truncated } else { ErrorKind::Changed }
    }
}

fn set_time(file: &File, modified: SystemTime) {
    file.set_times(FileTimes::new().set_modified(modified)).expect("its time");
}

/// Other bytes of the same length, which no format takes for the same samples.
fn other(path: &Path) -> Vec<u8> {
    fs::read(path).expect("the file").iter().map(|byte| byte ^ 1).collect()
}

/// The file of the dataset that is changed: one with samples.
fn victim(dataset: &dyn Dataset) -> FileId {
    FileId(dataset.files().len() as u32 / 2)
}

/// Reads all of it; returns how many samples of the victim failed.
fn read((name, dataset, column): &Made, victim: FileId, change: Change, way: (EngineChoice, IoChoice)) -> u64 {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(7).seed(3).on_error(OnError::Skip);
    let loader = builder.engine(way.0).io(way.1).build().expect("a loader");
    let (mut came, mut failed) = (0, 0);
    for batch in loader {
        let batch = batch.expect("a batch");
        let index = batch.columns.iter().position(|found| found.name == *column).unwrap_or(0);
        for (row, id) in batch.ids.iter().enumerate() {
            let bytes = batch.columns[index].bytes_of(row).expect("bytes");
            assert!(*bytes == payload(id.0), "{name}, {change:?}, {way:?}: sample {} has other bytes", id.0);
            came += 1;
        }
        for sample in &batch.failed {
            assert_eq!(sample.error.kind(), change.kind(), "{name}, {change:?}, {way:?}: {}", sample.error);
            assert_eq!(sample.error.path(), Some(&*dataset.files().path(victim)), "{name}: {}", sample.error);
            assert!(sample.error.remedy().is_some(), "{name}: {}", sample.error);
            failed += 1;
        }
    }
    assert_eq!(came + failed, SAMPLES, "{name}, {change:?}, {way:?}: every sample once, or its error");
    failed
}

#[test]
fn a_file_that_changed_after_the_dataset_was_opened_is_an_error_of_its_samples() {
    // Ways take turns.
    is_an_error_of_its_samples(|turn, way| way == turn % 4);
}

#[test]
#[ignore = "slow: every way"]
fn a_file_that_changed_after_the_dataset_was_opened_is_an_error_by_every_way() {
    is_an_error_of_its_samples(|_, _| true);
}

fn is_an_error_of_its_samples(has_turn: fn(usize, usize) -> bool) {
    within(BOUND, move || {
        for change in CHANGES {
            let root = TempDir::new().expect("a folder");
            for (turn, made) in every(&root).into_iter().enumerate() {
                let (name, dataset, _) = &made;
                let victim = victim(&**dataset);
                let path = dataset.files().path(victim);
                let ways = ways_to(dataset);
                change.apply(&path, &other(&path));
                for (_, way) in ways.into_iter().enumerate().filter(|(way, _)| has_turn(turn, *way)) {
                    assert!(read(&made, victim, change, way) > 0, "{name}, {change:?}, {way:?}: it is told");
                }
            }
        }
    });
}

/// What a run asks at an epoch's start: which files are others now.
#[test]
fn a_table_of_files_tells_that_it_changed() {
    within(BOUND, || {
        for change in CHANGES {
            let root = TempDir::new().expect("a folder");
            for (name, dataset, _) in every(&root) {
                let (files, path) = (dataset.files(), dataset.files().path(victim(&*dataset)));
                assert!(files.changed().is_none(), "{name}: {:?}", files.changed());
                change.apply(&path, &other(&path));
                let (count, first) = files.changed().expect("a change");
                assert_eq!((count, first.kind(), first.path()), (1, change.kind(), Some(&*path)), "{name}, {change:?}");
                fs::remove_file(&path).expect("the file");
                let (count, first) = files.changed().expect("a change");
                assert_eq!((count, first.kind()), (1, ErrorKind::NotFound), "{name}: {first}");
                fs::create_dir(&path).expect("a folder in its place");
                assert_eq!(files.changed().map(|(count, _)| count), Some(1), "{name}");
            }
        }
    });
}

/// Shards whose samples are known by their bytes, in any of several versions of the same size.
struct Swapped {
    root: TempDir,
}

const OF_A_SHARD: u64 = 6;
/// Lengths of a shard's samples; each version has them in another order.
const LENGTHS: [u64; OF_A_SHARD as usize] = [3000, 50_000, 400, 21_000, 9000, 15_000];
/// The time that all shards have, whatever happens to them.
const TIME: Duration = Duration::from_secs(1_700_000_000);

fn value(shard: u64, version: u64, number: u64) -> Vec<u8> {
    let len = LENGTHS[((number + version) % OF_A_SHARD) as usize];
    (0..len).map(|at| ((shard * 31 + version * 101 + number * 7 + at) % 251) as u8).collect()
}

fn archive(shard: u64, version: u64) -> Vec<u8> {
    let add = |archive: Archive, number| archive.file(&format!("{number}.x"), &value(shard, version, number));
    (0..OF_A_SHARD).fold(Archive::new(), add).end().0
}

fn lines(shard: u64, version: u64) -> Vec<u8> {
    let line = |number| value(shard, version, number).iter().map(|byte| (b'a' + byte % 26) as char).collect::<String>();
    (0..OF_A_SHARD).map(|number| line(number) + "\n").collect::<String>().into_bytes()
}

impl Swapped {
    fn new(shards: u64) -> Swapped {
        let swapped = Swapped { root: TempDir::new().expect("a folder") };
        (0..shards).for_each(|shard| swapped.write(shard, 0, Change::Replaced));
        swapped
    }

    fn path(&self, shard: u64) -> PathBuf {
        self.root.path().join(format!("{shard:05}.tar"))
    }

    /// Makes the shard one of this version, with the same size and time.
    fn write(&self, shard: u64, version: u64, change: Change) {
        let path = self.path(shard);
        if !path.exists() {
            fs::write(&path, []).expect("a file");
            set_time(&File::options().write(true).open(&path).expect("the file"), SystemTime::UNIX_EPOCH + TIME);
        }
        change.apply(&path, &archive(shard, version));
    }

    fn open(&self) -> Arc<dyn Dataset> {
        dataset::open(&[self.root.path()], &Options::new().format("tar")).expect("archives")
    }

    /// Checks every value of the batch against version 0, and adds the shards of failed samples to `told`.
    fn check(&self, batch: Batch, told: &mut BTreeSet<u64>) -> u64 {
        for (row, &SampleId(id)) in batch.ids.iter().enumerate() {
            let (shard, number) = (id / OF_A_SHARD, id % OF_A_SHARD);
            let bytes = batch.columns[0].bytes_of(row).expect("bytes");
            assert!(*bytes == value(shard, 0, number), "sample {number} of shard {shard} has other bytes");
        }
        for failed in &batch.failed {
            assert_eq!(failed.error.kind(), ErrorKind::Changed, "{}", failed.error);
            told.insert(failed.id.0 / OF_A_SHARD);
        }
        (batch.ids.len() + batch.failed.len()) as u64
    }
}

/// Whether the kernel gives a write another time of change than a look just before it had seen, as Linux does since
/// 6.13.
fn has_fine_times(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let path = folder.join("probe");
    let changed = || fs::metadata(&path).map(|found| (found.ctime(), found.ctime_nsec())).expect("its time");
    let is_seen = |turn: u8| {
        let before = changed();
        fs::write(&path, [turn]).expect("a file");
        before != changed()
    };
    fs::write(&path, []).expect("a file");
    let is_fine = (0..50).all(is_seen);
    fs::remove_file(&path).expect("the file");
    is_fine
}

/// No time passes between the look and the write, and neither size nor mtime nor inode tells.
#[test]
fn a_write_right_behind_the_look_is_told() {
    within(BOUND, || {
        let swapped = Swapped::new(1);
        if !has_fine_times(swapped.root.path()) {
            return skip("this kernel gives two writes within a tick of its clock one time of change");
        }
        for round in 0..30 {
            let dataset = swapped.open();
            swapped.write(0, 1 + round % (OF_A_SHARD - 1), Change::Rewritten);
            let builder = Loader::builder(dataset).batch_size(4).on_error(OnError::Skip).epochs(1);
            let mut told = BTreeSet::new();
            let came: u64 =
                builder.build().expect("a loader").map(|batch| swapped.check(batch.expect("a batch"), &mut told)).sum();
            assert_eq!((came, told.len()), (OF_A_SHARD, 1), "round {round}");
            // The index beside it is of the version that it has again now.
            swapped.write(0, 0, Change::Rewritten);
        }
    });
}

/// Shards are swapped while loaders read them: a byte of another version never comes, and every swap is told.
fn chaos(shards: u64, swaps: u64) {
    let ways = ways_to(&Swapped::new(1).open());
    for (round, way) in ways.into_iter().enumerate() {
        let swapped = Swapped::new(shards);
        let dataset = swapped.open();
        let loader = |epochs| {
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(16).on_error(OnError::Skip);
            let builder = builder.engine(way.0).io(way.1).epochs(epochs).shuffle(Shuffle::Full).memory_limit(4 << 20);
            builder.build().expect("a loader")
        };
        let mut random = Random::new(round as u64);
        let (mut told, mut changed, mut all) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let batches = 3 * shards * OF_A_SHARD / 16;
        for (number, batch) in loader(3).enumerate() {
            swapped.check(batch.expect("a batch"), &mut told);
            if (number as u64).is_multiple_of((batches / swaps).max(1)) {
                // Until memory is full, and no file was looked at just now: see `CHECK_EVERY` in config/settings.rs.
                std::thread::sleep(Duration::from_millis(20));
                let shard = random.below(shards);
                let change = [Change::Replaced, Change::Rewritten][random.below(2) as usize];
                swapped.write(shard, 1 + random.below(OF_A_SHARD - 1), change);
                changed.insert(shard);
            }
        }
        assert!(told.is_subset(&changed), "{way:?}");
        let came: u64 = loader(1).map(|batch| swapped.check(batch.expect("a batch"), &mut all)).sum();
        assert_eq!(came, shards * OF_A_SHARD, "{way:?}: every sample once, or its error");
        assert_eq!(all, changed, "{way:?}: every change is told, and nothing else");
        assert!(changed.len() as u64 > swaps / 4);
    }
}

#[test]
fn shards_that_are_swapped_in_mid_epoch_never_give_another_versions_bytes() {
    within(BOUND, || chaos(40, 20));
}

#[test]
#[ignore = "slow: thousands of shards"]
fn thousands_of_shards_that_are_swapped() {
    within(20 * BOUND, || chaos(3000, 1500));
}

/// What reading all of a folder gives, and how many of its indexes were used.
fn reopened(folder: &Path, format: &str) -> (Vec<Vec<u8>>, u64) {
    let dataset = dataset::open(&[folder], &Options::new().format(format)).expect("a dataset");
    let loader = Loader::builder(Arc::clone(&dataset)).batch_size(5).shuffle(Shuffle::Off).build().expect("a loader");
    let batches = loader.map(|batch| batch.expect("a batch"));
    let values = batches.flat_map(|batch| {
        (0..batch.ids.len()).map(|row| batch.columns[0].bytes_of(row).expect("bytes").to_vec()).collect::<Vec<_>>()
    });
    (values.collect(), dataset.index().report.as_ref().expect("indexes").current)
}

/// Copies a file with its time, as `rsync -t` and image layers do.
fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).expect("a copy");
    let modified = fs::metadata(from).and_then(|metadata| metadata.modified()).expect("its time");
    set_time(&File::options().write(true).open(to).expect("the copy"), modified);
}

/// A format's file of some version, and its samples.
type Version = (Vec<u8>, Vec<Vec<u8>>);

/// A format, the extension of its files, and what is in a file of it by number.
type Kind<'a> = (&'a str, &'a str, &'a dyn Fn(u64) -> Version);

#[test]
fn an_index_is_used_for_the_bytes_it_was_made_from_and_no_others() {
    let values = |version| (0..OF_A_SHARD).map(move |number| value(9, version, number)).collect::<Vec<_>>();
    let texts = |version| {
        let text = String::from_utf8(lines(9, version)).expect("text");
        text.lines().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>()
    };
    let records = |version| -> Version { (writers::tfrecord(&values(version)), values(version)) };
    let archives = |version| -> Version { (archive(9, version), values(version)) };
    let text = |version| -> Version { (lines(9, version), texts(version)) };
    let formats: [Kind<'_>; 3] =
        [("tar", "a.tar", &archives), ("tfrecord", "a.tfrecord", &records), ("text", "a.txt", &text)];
    for (format, name, version) in formats {
        let [(before, was), (after, is)] = [version(0), version(2)];
        assert!(before.len() == after.len() && was != is, "{format}");
        for change in [Change::Replaced, Change::Rewritten] {
            let [root, moved, other] = [(); 3].map(|()| TempDir::new().expect("a folder"));
            let path = root.path().join(name);
            fs::write(&path, &before).expect("a file");
            // As coarse as the clock of a file system can be.
            set_time(&File::options().write(true).open(&path).expect("the file"), SystemTime::UNIX_EPOCH + TIME);
            assert!(reopened(root.path(), format) == (was.clone(), 0), "{format}: scanned");
            assert!(reopened(root.path(), format) == (was.clone(), 1), "{format}: the index is used");
            let index = format!("{name}.uidx");
            for folder in [&moved, &other] {
                copy(&path, &folder.path().join(name));
                copy(&root.path().join(&index), &folder.path().join(&index));
            }
            assert!(reopened(moved.path(), format) == (was.clone(), 1), "{format}: an index moves with its file");
            change.apply(&other.path().join(name), &after);
            assert!(reopened(other.path(), format) == (is.clone(), 0), "{format}: {change:?}, and moved");
            change.apply(&path, &after);
            assert!(reopened(root.path(), format) == (is.clone(), 0), "{format}: {change:?}");
            assert!(reopened(root.path(), format) == (is.clone(), 1), "{format}: the new index is used");
        }
    }
}

/// Neither an index that is a FIFO nor one that was cut short does harm, wherever it lies.
#[test]
fn an_index_that_is_none_is_made_again() {
    within(BOUND, || {
        let was: Vec<_> = (0..OF_A_SHARD).map(|number| value(0, 0, number)).collect();
        let [cut, fifo] = [(); 2].map(|()| Swapped::new(1));
        let index = |swapped: &Swapped| swapped.root.path().join("00000.tar.uidx");
        assert!(reopened(cut.root.path(), "tar") == (was.clone(), 0));
        File::options().write(true).open(index(&cut)).and_then(|file| file.set_len(70)).expect("shorter");
        rustix::fs::mknodat(rustix::fs::CWD, index(&fifo), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a FIFO");
        for swapped in [cut, fifo] {
            assert!(reopened(swapped.root.path(), "tar") == (was.clone(), 0));
            assert!(reopened(swapped.root.path(), "tar") == (was.clone(), 1));
        }
    });
}

/// What lies between the fields of a sample is read along, and proves that they lie where the index says.
#[test]
fn the_headers_between_fields_are_compared_while_reading() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("a.tar");
    let bytes = Archive::new().file("0.cls", b"7").file("0.jpg", &[9; 3000]).end().0;
    fs::write(&path, &bytes).expect("an archive");
    let dataset = dataset::open(&[&path], &Options::new().format("tar")).expect("an archive");
    let mut spans = Vec::new();
    dataset.spans(SampleId(0), &mut spans);
    let [span] = spans[..] else { panic!("one span for both: {spans:?}") };
    let parse = |shifted: usize| {
        let start = span.offset as usize;
        let mut read = bytes[start..start + span.len as usize].to_vec();
        read.rotate_left(shifted);
        dataset.parse(SampleId(0), &[read.into()], &mut Sample::default())
    };
    parse(0).expect("the sample");
    let error = parse(512).expect_err("a sample of another archive");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Changed, Some(&*path)), "{error}");
}

/// In a cache folder, which others may use too, an index that another user may have written is not trusted.
#[test]
fn an_index_in_a_cache_that_others_may_write_is_made_again_and_said() {
    use std::os::unix::fs::PermissionsExt;
    let (swapped, cache) = (Swapped::new(1), TempDir::new().expect("a folder"));
    // So that the index cannot lie beside its shard.
    fs::create_dir(swapped.root.path().join("00000.tar.uidx")).expect("a folder");
    let open = || {
        let options = Options::new().format("tar").set("index_cache", cache.path().to_path_buf());
        dataset::open(&[swapped.path(0)], &options).expect("an archive")
    };
    let used = |dataset: &dyn Dataset| dataset.index().report.as_ref().expect("indexes").current;
    assert_eq!((used(&*open()), used(&*open())), (0, 1));
    let entry = fs::read_dir(cache.path()).expect("the cache").next().expect("an index").expect("an index").path();
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o666)).expect("its mode");
    let dataset = open();
    assert_eq!(used(&*dataset), 0);
    let said = dataset.index().fallbacks.iter().find(|step| step.reason.contains("others may write it (mode 666)"));
    assert!(said.is_some_and(|step| step.reason.contains(".uidx")), "{:?}", dataset.index().fallbacks);
    assert_eq!(used(&*open()), 1, "it was written again");
}

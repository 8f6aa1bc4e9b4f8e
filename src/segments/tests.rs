//! Entries come back as they were written or not at all, within the budget, whoever is killed and whatever is damaged.

mod care;
mod processes;

use super::*;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn key(number: u64) -> Key {
    Key { root: 7, name: number, stamp: !number, piece: number as u32 }
}

/// The bytes of entry `number`: their length and content follow from it. Each KiB begins with its place.
fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    let kib: Vec<u8> = (0..KIB / 8).flat_map(|at| hash(number << 32 ^ at).to_le_bytes()).collect();
    let mut bytes = Vec::with_capacity(len + kib.len());
    while bytes.len() < len {
        let at = bytes.len();
        bytes.extend_from_slice(&kib);
        bytes[at..at + 8].copy_from_slice(&hash(number ^ at as u64).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn open(folder: &Path, bytes: u64) -> Arc<Segments> {
    Arc::new(Segments::open(folder, RAW, bytes).expect("segments"))
}

fn news(segments: &Segments) -> HashMap<Key, Place> {
    let mut found = HashMap::new();
    // The first record of a key wins.
    segments.news(&mut |key, place| _ = found.entry(key).or_insert(place)).expect("news");
    found
}

fn whole(segments: &Arc<Segments>, place: Place) -> Vec<u8> {
    let mut bytes = vec![0; place.bytes as usize];
    segments.read(place, 0, &mut bytes).expect("an entry");
    bytes
}

fn put(segments: &Segments, number: u64, len: usize) -> Option<Place> {
    segments.put(key(number), &[&bytes_of(number, len)]).expect("written")
}

/// What the folder takes on the disk.
fn taken(folder: &Path) -> u64 {
    let of = |path: &Path| fs::metadata(path).map_or(0, |data| data.blocks() * 512);
    let files = fs::read_dir(folder).expect("a folder").map(|entry| of(&entry.expect("an entry").path()));
    of(folder) + files.sum::<u64>()
}

#[test]
fn entries_come_back_here_and_in_another_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let segments = open(folder.path(), 10 * MIB);
    assert_eq!((segments.segments_max(), news(&segments).len()), (1, 0));
    let free = segments.free_bytes();
    let bytes = bytes_of(1, 10_000);
    let place = segments.put(key(1), &[&bytes[..3], &[], &bytes[3..9000], &bytes[9000..]]).expect("written");
    let place = place.expect("there is room");
    assert_eq!((place.segment, place.page, place.bytes, place.is_sure), (0, 1, 10_000, true));
    let second = put(&segments, 2, 1).expect("there is room");
    assert_eq!((second.page, put(&segments, 3, 0).expect("there is room").page), (4, 5));
    assert_eq!(whole(&segments, place), bytes);
    assert!(place.is_of(&bytes) && !place.is_of(&bytes[1..]) && !second.is_of(&bytes[..1]));
    let mut part = [0; 100];
    segments.read(place, 9900, &mut part).expect("its end");
    assert_eq!(part, bytes[9900..]);
    assert_eq!(segments.read(place, 9901, &mut part).expect_err("too long").kind(), io::ErrorKind::InvalidInput);
    assert!((free - 64 * KIB..free).contains(&segments.free_bytes()));

    let found = news(&segments);
    assert_eq!((found.len(), found[&key(1)], found[&key(2)]), (3, place, second));
    assert_eq!(news(&segments).len(), 0, "all of it has been told");
    let again = open(folder.path(), 10 * MIB);
    assert_eq!(news(&again), found);
    assert_eq!(whole(&again, place), bytes);
    let third = put(&again, 4, 5000).expect("there is room");
    assert_eq!((third.page, news(&segments)[&key(4)]), (5, third));
    let path = segments.folder().join(Segments::file_name(0));
    assert_eq!(path.metadata().expect("a segment").mode() & 0o777, 0o600);
    assert_eq!(segments.folder(), folder.path().canonicalize().expect("a path").join("uringload-raw-1"));
}

#[test]
fn the_budget_holds_and_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let budget = SEGMENT_BYTES + 9 * MIB;
    let segments = open(folder.path(), budget);
    assert!(segments.entry_bytes_max() < SEGMENT_BYTES);
    assert!(segments.put(key(0), &[&vec![0; SEGMENT_BYTES as usize]]).expect("no error").is_none(), "too long");
    let len = 3 << 20;
    let places: Vec<Place> = (0..).map_while(|number| put(&segments, number, len)).collect();
    // Of each segment, less than an entry is lost.
    assert_eq!((places.len(), places.last().expect("a place").segment), (85 + 2, 1));
    assert!((0..).map_while(|number| put(&segments, 1000 + number, 4096)).count() > 900, "smaller ones still fit");
    let taken = taken(segments.folder());
    assert!(taken <= budget && taken > budget - 64 * KIB, "{taken} of {budget}");
    assert!(segments.free_bytes() < 64 * KIB, "{}", segments.free_bytes());
    for (number, place) in places.into_iter().enumerate() {
        assert_eq!(whole(&segments, place), bytes_of(number as u64, len));
    }
}

#[test]
fn a_folder_has_the_largest_budget_of_its_users() {
    let folder = tempfile::tempdir().expect("a folder");
    let (small, large) = (open(folder.path(), 3 * MIB), open(folder.path(), 8 * MIB));
    let fill = |segments: &Segments, from| (from..).map_while(|number| put(segments, number, 300 << 10)).count();
    let first = fill(&small, 0);
    assert!((9..=10).contains(&first), "{first}");
    assert_eq!((news(&large).len(), large.segments_max()), (first, 2), "the first one is short");
    let second = fill(&large, 100);
    assert!((15..=17).contains(&second), "{second}");
    assert_eq!(fill(&small, 200), 0);
    assert!(taken(small.folder()) <= 8 * MIB);
    assert_eq!((news(&small).len(), small.segments_max()), (first + second, 2));
    let tiny = open(folder.path(), 1000);
    assert_eq!(tiny.entry_bytes_max(), 0);
    assert_eq!(tiny.put(key(1), &[b"a"]).expect("no error"), None);
}

#[test]
fn threads_write_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let segments = open(folder.path(), 40 * MIB);
    let count: usize = thread_counts(8, |thread| {
        (0..).map_while(|number| put(&segments, thread << 32 | number, 50_000 + number as usize)).count()
    });
    let found = news(&segments);
    assert_eq!(found.len(), count);
    assert!(count > 700, "{count}");
    for (key, place) in found {
        assert_eq!(whole(&segments, place), bytes_of(key.name, place.bytes as usize));
    }
}

fn thread_counts(threads: u64, work: impl Fn(u64) -> usize + Sync) -> usize {
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let work = &work;
                    move || work(thread)
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// A segment of 10 entries, its log in bytes, and where that begins.
fn small(folder: &Path) -> (PathBuf, Vec<u8>, u64) {
    let segments = open(folder, 400 * KIB);
    (0..10).for_each(|number| _ = put(&segments, number, 9000).expect("there is room"));
    let path = segments.folder().join(Segments::file_name(0));
    let bytes = fs::read(&path).expect("a segment");
    let log = bytes.len() as u64 - 10 * RECORD_BYTES;
    (path, bytes, log)
}

/// Flips each bit of a log, and of the header and the end of it: what is found is what was written.
#[test]
fn a_damaged_log_serves_no_wrong_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, good, log) = small(folder.path());
    let file = OpenOptions::new().write(true).open(&path).expect("a segment");
    let places = (0..HEADER_BYTES as u64).chain(log - 2 * RECORD_BYTES..good.len() as u64);
    for at in places {
        let bit = 1 << (at % 8);
        file.write_all_at(&[good[at as usize] ^ bit], at).expect("damaged");
        let segments = open(folder.path(), 400 * KIB);
        let found = news(&segments);
        for (key, place) in &found {
            assert_eq!(whole(&segments, *place), bytes_of(key.name, 9000), "byte {at}");
        }
        let expected = match at {
            _ if at < HEADER_BYTES as u64 => 0,
            _ if at < log => 10,
            _ => 9,
        };
        assert_eq!(found.len(), expected, "byte {at}: all others are there");
        // Nothing is written behind a record that may have been right, or to what is no segment.
        let is_seen = at >= log - RECORD_BYTES || expected == 0;
        assert_eq!(put(&segments, 99, 9000).is_none(), is_seen, "byte {at}");
        file.write_all_at(&good, 0).expect("mended");
    }
}

#[test]
fn a_segment_that_was_cut_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, good, _) = small(folder.path());
    for len in (0..good.len()).step_by(997).chain([good.len() - 1, good.len() + 64]) {
        fs::write(&path, &good).expect("mended");
        OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(len as u64)).expect("cut");
        let segments = open(folder.path(), 400 * KIB);
        assert_eq!(news(&segments).len(), 0, "{len} bytes");
    }
}

/// The log is read while a record is being written: it is found once it is whole.
#[test]
fn half_a_record_is_looked_at_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, good, log) = small(folder.path());
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("a segment");
    file.write_all_at(&[0; 32], log + 32).expect("half of the last record");
    assert!(lock(&file, FlockOperation::NonBlockingLockExclusive, Duration::ZERO).expect("a lock"));
    let segments = open(folder.path(), 400 * KIB);
    assert_eq!(news(&segments).len(), 9);
    file.write_all_at(&good[log as usize..], log).expect("the other half");
    assert_eq!(news(&segments).len(), 1);
}

#[test]
fn what_another_boot_wrote_is_not_sure() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut segments = open(folder.path(), MIB);
    Arc::get_mut(&mut segments).expect("the only one").boot = 5;
    let place = put(&segments, 1, 100).expect("there is room");
    assert!(place.is_sure);
    let found = news(&open(folder.path(), MIB))[&key(1)];
    assert_eq!(found, Place { is_sure: false, ..place });
    Arc::get_mut(&mut segments).expect("the only one").boot = 0;
    assert!(!put(&segments, 2, 100).expect("there is room").is_sure, "the system does not tell its boot");
}

#[test]
fn a_folder_that_is_removed_ends_the_writing() {
    let folder = tempfile::tempdir().expect("a folder");
    let segments = open(folder.path(), MIB);
    let place = put(&segments, 1, 100).expect("there is room");
    fs::remove_dir_all(folder.path()).expect("removed");
    assert_eq!(whole(&segments, place), bytes_of(1, 100));
    assert_eq!(segments.put(key(2), &[b"a"]).expect_err("gone").kind(), io::ErrorKind::NotFound);
    assert_eq!(segments.news(&mut |_, _| ()).expect_err("gone").kind(), ErrorKind::NotFound);
}

/// In a shared place, what another user has made or may write to cannot be trusted.
#[test]
fn what_others_may_have_written_is_not_believed() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = tempfile::tempdir().expect("a folder");
    let made = open(folder.path(), MIB).folder().to_path_buf();
    let refused = |words: &str| {
        let error = Segments::open(folder.path(), RAW, MIB).expect_err("it is not believed");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains(words) && error.remedy().is_some(), "{error}");
    };
    fs::set_permissions(&made, fs::Permissions::from_mode(0o777)).expect("its rights");
    refused("others may write it");
    fs::set_permissions(&made, fs::Permissions::from_mode(0o700)).expect("its rights");
    if chown(&made, Some(12345), None).is_ok() {
        refused("another user (12345)");
    }
}

#[test]
fn a_folder_is_not_made_where_a_file_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, b"").expect("a file");
    let error = Segments::open(&path, RAW, MIB).expect_err("no folder");
    assert!(error.path().is_some() && error.remedy().is_some(), "{error}");
    let error = Segments::open(Path::new("/proc/self"), RAW, MIB).expect_err("nothing can be made there");
    assert!(error.path().is_some() && error.remedy().is_some(), "{error}");
    // What is no segment is passed over, without a wait.
    let made = open(folder.path(), MIB);
    let name = made.folder().join(Segments::file_name(0));
    rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
    assert_eq!(put(&made, 1, 100).expect("there is room").segment, 1);
}

#[test]
fn roots_have_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let segments = open(folder.path(), MIB);
    segments.name_root(1, "s3://bucket/a b").expect("named");
    segments.name_root(1, "s3://other").expect("named once");
    segments.name_root(2, "two\nlines").expect("named");
    fs::File::options()
        .append(true)
        .open(segments.folder().join(ROOTS))
        .and_then(|mut file| file.write_all(b"0000"))
        .expect("half a line");
    let names = roots(segments.folder()).expect("the names");
    assert_eq!(names.into_iter().collect::<Vec<_>>(), [(1, "s3://bucket/a b".into()), (2, "two?lines".into())]);
}

/// A cache of 1 TB: its log is read when it is opened.
#[test]
#[ignore = "slow: measures time"]
fn a_million_entries_are_known_in_half_a_second() {
    let (segments, each) = (4000, 250);
    let folder = tempfile::tempdir().expect("a folder");
    let made = open(folder.path(), MIB).folder().to_path_buf();
    for segment in 0..segments {
        let record = |number: u64| {
            let key = key(segment * each + number);
            record::Record { key, page: 1 + 200 * number as u32, bytes: 800_000, crc: 1, boot: 2, written: 3 }
        };
        let log: Vec<u8> = (0..each).rev().flat_map(|number| record(number).encode()).collect();
        let file = fs::File::create(made.join(Segments::file_name(segment as u32))).expect("a segment");
        file.set_len(SEGMENT_BYTES).expect("its size");
        file.write_all_at(&record::header(SEGMENT_BYTES), 0).expect("its header");
        file.write_all_at(&log, SEGMENT_BYTES - log.len() as u64).expect("its log");
    }
    let start = std::time::Instant::now();
    let opened = open(folder.path(), 2000 << 30);
    let mut found = Vec::new();
    opened.news(&mut |key, place| found.push((key, place))).expect("news");
    let opening = start.elapsed();
    assert_eq!(found.len() as u64, segments * each);
    let start = std::time::Instant::now();
    opened.news(&mut |_, _| panic!("nothing is new")).expect("news");
    println!("opened in {opening:?}; nothing new in {:?}", start.elapsed());
    assert!(opening <= Duration::from_millis(500), "{opening:?}");
}

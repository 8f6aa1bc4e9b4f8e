//! Kept samples come back as they were, or not at all.

use super::*;
use crate::segments::{PAGE_BYTES, RECORD_BYTES, SEGMENT_BYTES};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const ORIGIN: u64 = 77;

/// Room for everything.
const ROOM: u64 = 1 << 20;

const PATIENCE: Duration = Duration::from_secs(60);

fn entry(id: u8) -> Entry {
    let image = Image::new(5, 7, 3, vec![id; 5 * 7 * 3]).expect("an image");
    vec![PreparedValue::Number(-3), PreparedValue::Image(image), PreparedValue::Bytes(b"a class".to_vec())]
}

fn all() -> Members {
    let mut tally = Tally::new(false);
    tally.count(0, 1000);
    tally.see(0, 1);
    tally.members(ROOM).expect("members").0
}

fn origin(stamp: u64) -> Origin {
    Origin { root: 5, stamp, shown: "/data".into() }
}

fn on_disk(folder: &Path, stamp: u64) -> Prepared {
    Prepared::on_disk((folder, origin(stamp), PATIENCE), all(), ROOM, 3).expect("a cache")
}

/// Where samples of a folder are.
fn folder_of(folder: &Path) -> PathBuf {
    folder.join("uringload-images-1")
}

fn segment(folder: &Path) -> File {
    let path = folder_of(folder).join("seg-0000");
    File::options().read(true).write(true).open(path).expect("a segment")
}

#[test]
fn entries_come_back_in_memory_and_in_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = Prepared::in_memory(all(), ROOM, 3);
    let disk = on_disk(folder.path(), ORIGIN);
    for cache in [&memory, &disk] {
        assert!(!cache.has(SampleId(4)) && cache.get(SampleId(4)).is_none());
        cache.keep(SampleId(4), entry(4));
        assert!(cache.has(SampleId(4)));
        assert_eq!(*cache.get(SampleId(4)).expect("kept"), entry(4));
        assert!(cache.said().count() <= 1, "at most that nothing was there");
    }
    assert_eq!(memory.taken(), 105 + 7 + ENTRY_BYTES);
    // Another process finds the samples; another origin does not.
    let again = on_disk(folder.path(), ORIGIN);
    assert_eq!((again.has(SampleId(4)), again.has(SampleId(5))), (true, false));
    assert_eq!(*again.get(SampleId(4)).expect("kept"), entry(4));
    assert_eq!(again.taken(), PAGE_BYTES + RECORD_BYTES);
    assert!(!on_disk(folder.path(), 78).has(SampleId(4)));
}

#[test]
fn a_filling_is_whole_once_all_values_are_there() {
    let memory = Prepared::in_memory(all(), ROOM, 3);
    let values = || [Some(PreparedValue::Number(1)), None, None].into_iter();
    let filling = memory.fill(SampleId(9), 100, values()).expect("a member");
    assert!(filling.put(1, PreparedValue::Bytes(vec![2])).is_none());
    let (id, entry) = filling.put(2, PreparedValue::Bytes(vec![3])).expect("whole");
    assert_eq!(
        (id, &entry[..]),
        (SampleId(9), &[PreparedValue::Number(1), PreparedValue::Bytes(vec![2]), PreparedValue::Bytes(vec![3])][..])
    );
    memory.keep(id, entry);
    assert!(memory.fill(SampleId(9), 100, values()).is_none(), "it is there");
}

#[test]
fn no_more_than_the_room_is_taken() {
    let one = 105 + 7 + ENTRY_BYTES;
    let memory = Prepared::in_memory(all(), 3 * one + 10, 3);
    (0..9).for_each(|id| memory.keep(SampleId(id.into()), entry(id)));
    assert_eq!((memory.taken(), (0..9).filter(|&id| memory.has(SampleId(id))).count()), (3 * one, 3));
    assert!(memory.fill(SampleId(8), 100, std::iter::empty()).is_none(), "nothing more is asked for");
}

/// Two ranks keep what they decode in one folder, with one budget, and each finds what the other has kept.
#[test]
fn ranks_share_a_folder_and_its_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    let room = 200 << 10;
    let rank = || Prepared::on_disk((folder.path(), origin(ORIGIN), PATIENCE), all(), room, 3).expect("a cache");
    let ranks = [rank(), rank()];
    (0..100).for_each(|id| ranks[id as usize % 2].keep(SampleId(id.into()), entry(id)));
    let kept = rank();
    let found = (0..100).filter(|&id| kept.has(SampleId(id))).count() as u64;
    let each = PAGE_BYTES + RECORD_BYTES;
    assert!(kept.taken() == found * each && kept.taken() <= room && kept.taken() > room * 2 / 3, "{}", kept.taken());
    assert!(ranks.iter().all(|rank| rank.fill(SampleId(200), 100, std::iter::empty()).is_none()), "both are full");
    assert!(ranks.iter().all(|rank| rank.said().next().is_none()), "that is where the budget ends");
    // A third one has another chain, and is told why there is no room.
    let other = Prepared::on_disk((folder.path(), origin(78), PATIENCE), all(), room, 3).expect("a cache");
    other.keep(SampleId(4), entry(4));
    let said: Vec<_> = other.said().collect();
    assert!(said.len() == 1 && said[0].to_string().contains("other datasets or transforms"), "{said:?}");
}

/// A process that keeps samples finds those of others after a while, and does not keep them twice.
#[test]
fn what_others_kept_meanwhile_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (on_disk(folder.path(), ORIGIN), on_disk(folder.path(), ORIGIN));
    (0..10).for_each(|id| one.keep(SampleId(id.into()), entry(id)));
    assert!(!two.has(SampleId(4)));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    two.keep(SampleId(4), entry(4));
    assert!(two.has(SampleId(9)));
    assert_eq!((two.taken(), on_disk(folder.path(), ORIGIN).taken()), (one.taken(), one.taken()));
}

/// Changes every byte of a sample: it is never used, reported once, and made again.
#[test]
fn a_damaged_sample_is_never_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = on_disk(folder.path(), ORIGIN);
    cache.keep(SampleId(4), entry(4));
    let file = segment(folder.path());
    let mut whole = vec![0; 32 + 3 * 24 + 105 + 7];
    file.read_exact_at(&mut whole, PAGE_BYTES).expect("its bytes");
    assert!(whole.ends_with(b"a class"));
    for (at, &byte) in whole.iter().enumerate() {
        file.write_all_at(&[byte ^ 1], PAGE_BYTES + at as u64).expect("damaged");
        let cache = on_disk(folder.path(), ORIGIN);
        assert!(cache.has(SampleId(4)));
        assert!(cache.get(SampleId(4)).is_none());
        assert!(!cache.has(SampleId(4)) && cache.taken() == 0);
        let said: Vec<_> = cache.said().collect();
        assert!(said.len() == 1 && said[0].to_string().contains("decoded again instead of"), "{said:?}");
        file.write_all_at(&[byte], PAGE_BYTES + at as u64).expect("mended");
    }
    file.write_all_at(&[1], PAGE_BYTES + 9).expect("damaged");
    assert!(cache.get(SampleId(4)).is_none());
    cache.keep(SampleId(4), entry(4));
    assert_eq!(*cache.get(SampleId(4)).expect("kept anew"), entry(4));
    // A later run finds both, and uses the one that is whole.
    let again = on_disk(folder.path(), ORIGIN);
    assert_eq!(*again.get(SampleId(4)).expect("kept anew"), entry(4));
    assert_eq!((again.said().count(), again.taken()), (0, cache.taken()));
}

/// A sample that was kept for another chain, or as another one, is none, whatever its record says.
#[test]
fn a_sample_says_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = on_disk(folder.path(), ORIGIN);
    (4..6).for_each(|id| cache.keep(SampleId(id.into()), entry(id)));
    // The records change their places: each now says that the other's bytes are its own.
    let file = segment(folder.path());
    let size = ROOM.min(SEGMENT_BYTES).min(file.metadata().expect("a file").len());
    let mut log = [0; 2 * RECORD_BYTES as usize];
    file.read_exact_at(&mut log, size - 2 * RECORD_BYTES).expect("the log");
    let (second, first) = log.split_at_mut(RECORD_BYTES as usize);
    // Names are the second number of a record, and its checksum is the last.
    first[8..16].swap_with_slice(&mut second[8..16]);
    for record in [first, second] {
        let crc = crc32c::crc32c(&record[..60]);
        record[60..].copy_from_slice(&crc.to_le_bytes());
    }
    file.write_all_at(&log, size - 2 * RECORD_BYTES).expect("damaged");
    let again = on_disk(folder.path(), ORIGIN);
    assert!(again.has(SampleId(4)) && again.get(SampleId(4)).is_none() && again.get(SampleId(5)).is_none());
}

#[test]
fn a_disk_that_takes_nothing_more_ends_the_filling() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = on_disk(folder.path(), ORIGIN);
    cache.keep(SampleId(4), entry(4));
    // The folder is gone: no write succeeds, even as root.
    fs::remove_dir_all(folder_of(folder.path())).expect("removed");
    cache.keep(SampleId(5), entry(5));
    let said: Vec<_> = cache.said().collect();
    assert!(said.len() == 1 && said[0].to_string().starts_with("no more images kept instead of"), "{said:?}");
    assert!(cache.fill(SampleId(6), 100, std::iter::empty()).is_none());
    assert_eq!(*cache.get(SampleId(4)).expect("its file is open"), entry(4));
}

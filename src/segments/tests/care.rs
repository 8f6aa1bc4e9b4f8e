//! What is in a cache is told and removed as it is.

use super::*;
use crate::segments::care::{Cached, Clear, Stat};

/// Version `stamp` of piece `piece` of dataset `root`.
fn of(root: u64, piece: u32, stamp: u64) -> Key {
    Key { root, name: 9, stamp, piece }
}

fn put_of(segments: &Segments, key: Key) -> Place {
    segments.put(key, &[&bytes_of(key.stamp, 30_000)]).expect("written").expect("there is room")
}

fn told(dir: &Path) -> Vec<(&'static str, String, [u64; 4])> {
    let of = |cached: Cached| {
        (cached.kind, cached.name, [cached.entries, cached.bytes, cached.dead_entries, cached.dead_bytes])
    };
    stat(dir).expect("a cache").datasets.into_iter().map(of).collect()
}

/// Two datasets in several segments; the first has ten pieces, of which four are of an older version.
fn filled(dir: &Path) -> Segments {
    let mut small = Segments::open(dir, RAW, 200 * KIB).expect("segments");
    for (budget, pieces) in [(200, 0..4), (400, 4..8), (MIB / KIB, 8..10)] {
        small = Segments::open(dir, RAW, budget * KIB).expect("segments");
        pieces.for_each(|piece| _ = put_of(&small, of(1, piece, 100 + u64::from(piece))));
    }
    (0..3).for_each(|piece| _ = put_of(&small, of(2, piece, 300)));
    std::thread::sleep(Duration::from_millis(2));
    (0..4).for_each(|piece| _ = put_of(&small, of(1, piece, 200 + u64::from(piece))));
    // The same once more, as two processes make it.
    put_of(&small, of(2, 0, 300));
    small.name_root(1, "s3://bucket/a").expect("named");
    small
}

fn all(dir: &Path) -> HashMap<Key, Place> {
    let segments = open(dir, MIB);
    let found = news(&segments);
    found.iter().for_each(|(key, place)| assert_eq!(whole(&segments, *place), bytes_of(key.stamp, 30_000)));
    found
}

#[test]
fn a_cache_says_what_it_holds() {
    let dir = tempfile::tempdir().expect("a folder");
    assert_eq!(stat(dir.path()).expect_err("none").kind(), ErrorKind::NotFound);
    let segments = filled(dir.path());
    let images = Segments::open(dir.path(), IMAGES, MIB).expect("segments");
    put_of(&images, of(1, 0, 1));
    images.name_root(1, "/data").expect("named");
    let expected = [
        (RAW, "not named (0000000000000002)".to_owned(), [3, 90_000, 1, 30_000]),
        (RAW, "s3://bucket/a".to_owned(), [10, 300_000, 4, 120_000]),
        (IMAGES, "/data".to_owned(), [1, 30_000, 0, 0]),
    ];
    assert_eq!(told(dir.path()), expected);
    let Stat { bytes, closed, segments: count, .. } = stat(dir.path()).expect("a cache");
    assert_eq!((bytes, closed, count), (taken(segments.folder()) + taken(images.folder()), 0, 4));
}

#[test]
fn what_is_damaged_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let segments = filled(dir.path());
    let check = || {
        let mut found = Vec::new();
        let verified = verify(dir.path(), &mut |error| found.push(error)).expect("a cache");
        assert_eq!(verified.damaged, found.len() as u64);
        (verified.entries, found)
    };
    assert_eq!((check().0, check().1.len()), (18, 0));
    let place = news(&segments)[&of(1, 5, 105)];
    let path = segments.folder().join(Segments::file_name(place.segment));
    let file = OpenOptions::new().write(true).open(&path).expect("a segment");
    let at = u64::from(place.page) * PAGE_BYTES;
    file.write_all_at(b"damaged", at + 29_000).expect("damaged");
    let (entries, found) = check();
    assert_eq!((entries, found.len(), found[0].path(), found[0].offset()), (18, 1, Some(&*path), Some(at)));
    let text = found[0].to_string();
    assert!(text.contains("checksum of the entry differs (raw of 30000 bytes of s3://bucket/a)"), "{text}");
    // A damaged record hides its entry.
    let size = file.metadata().expect("a file").len();
    file.write_all_at(b"damaged", size - RECORD_BYTES).expect("damaged");
    assert_eq!((check().0, check().1.len(), stat(dir.path()).expect("a cache").closed), (17, 2, 1));
    file.set_len(size - 1).expect("cut");
    assert!(check().1[0].to_string().contains("no segment of its whole length"));
}

#[test]
fn stale_entries_are_removed_and_their_room_is_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let segments = filled(dir.path());
    let error = clear(dir.path(), &Clear::Stale).expect_err("it is used");
    assert!(error.kind() == ErrorKind::Unavailable && error.path() == Some(segments.folder()), "{error}");
    drop(segments);
    let before = all(dir.path());
    let cleared = clear(dir.path(), &Clear::Stale).expect("cleared");
    assert_eq!((cleared.entries, cleared.bytes), (5, 150_000));
    let after = all(dir.path());
    assert_eq!(after.len(), 13);
    assert!(after.keys().all(|key| before.contains_key(key) && !(100..104).contains(&key.stamp)));
    assert!(after.values().all(|place| place.is_sure));
    assert!(told(dir.path()).iter().all(|(_, _, [_, _, dead, _])| *dead == 0));
    assert_eq!(told(dir.path())[1].1, "s3://bucket/a", "names stay");
    assert_eq!(clear(dir.path(), &Clear::Stale).expect("cleared").entries, 0);
    put_of(&open(dir.path(), MIB), of(3, 0, 1));
}

#[test]
fn one_dataset_is_removed_or_all() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(filled(dir.path()));
    let error = clear(dir.path(), &Clear::Dataset("s3://bucket/b".into())).expect_err("another");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("s3://bucket/a")), "{error}");
    let cleared = clear(dir.path(), &Clear::Dataset("s3://bucket/a/".into())).expect("cleared");
    assert_eq!((cleared.entries, cleared.bytes), (14, 420_000));
    assert_eq!((all(dir.path()).len(), told(dir.path()).len()), (3, 1));
    let cleared = clear(dir.path(), &Clear::All).expect("cleared");
    assert_eq!((cleared.entries, told(dir.path()).len()), (4, 0));
    assert!(cleared.freed >= 120_000 && stat(dir.path()).expect("a cache").bytes < 32 * KIB);
    assert!(is_there(dir.path()), "a folder that is empty can be used");
}

fn is_there(dir: &Path) -> bool {
    put_of(&open(dir, MIB), of(1, 0, 1)).page == 1
}

/// What is damaged is not moved, and is no reason to keep the rest.
#[test]
fn damaged_entries_do_not_survive_a_move() {
    let dir = tempfile::tempdir().expect("a folder");
    let segments = filled(dir.path());
    let place = news(&segments)[&of(1, 0, 200)];
    let path = segments.folder().join(Segments::file_name(place.segment));
    let file = OpenOptions::new().write(true).open(&path).expect("a segment");
    file.write_all_at(b"damaged", u64::from(place.page) * PAGE_BYTES).expect("damaged");
    drop(segments);
    clear(dir.path(), &Clear::Stale).expect("cleared");
    let after = all(dir.path());
    assert!(!after.contains_key(&of(1, 0, 200)) && after.contains_key(&of(1, 9, 109)));
}

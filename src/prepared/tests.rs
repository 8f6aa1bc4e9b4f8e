//! Kept samples come back as they were, or not at all.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};

const ORIGIN: Origin = Origin(77);

/// Room for everything.
const ROOM: u64 = 1 << 30;

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

fn on_disk(folder: &Path, origin: Origin) -> Prepared {
    Prepared::on_disk((folder, origin), all(), ROOM, 3).expect("a cache")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let of = |path: &Path| fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path());
    of(folder).flat_map(|path| of(&path).collect::<Vec<_>>()).flat_map(|path| of(&path).collect::<Vec<_>>()).collect()
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
        assert!(cache.said().len() <= 1, "at most that nothing was there");
    }
    assert_eq!(memory.taken(), 105 + 7 + ENTRY_BYTES);
    // Another process finds the samples; another origin does not.
    let again = on_disk(folder.path(), ORIGIN);
    assert_eq!((again.has(SampleId(4)), again.has(SampleId(5))), (true, false));
    assert_eq!(*again.get(SampleId(4)).expect("kept"), entry(4));
    assert!(again.taken() > 112);
    assert!(!on_disk(folder.path(), Origin(78)).has(SampleId(4)));
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

/// Changes every byte of a file, and every length: it is never used, reported once, and rewritten.
#[test]
fn a_damaged_file_is_never_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = on_disk(folder.path(), ORIGIN);
    cache.keep(SampleId(4), entry(4));
    let path = files(folder.path()).pop().expect("a file");
    let whole = fs::read(&path).expect("its bytes");
    let changed = |at: usize| whole.iter().enumerate().map(move |(n, &byte)| byte ^ u8::from(n == at)).collect();
    let cut = (0..whole.len()).step_by(7).map(|len| whole[..len].to_vec());
    let longer = [whole.iter().copied().chain([0]).collect::<Vec<u8>>()];
    for bytes in (0..whole.len()).map(changed).chain(cut).chain(longer) {
        fs::write(&path, bytes).expect("damaged");
        assert!(cache.has(SampleId(4)));
        assert!(cache.get(SampleId(4)).is_none());
        assert!(!cache.has(SampleId(4)) && !path.exists());
        cache.keep(SampleId(4), entry(4));
        assert_eq!(*cache.get(SampleId(4)).expect("kept anew"), entry(4));
    }
    let said = cache.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].to_string().contains("decoded again instead of decoded images kept on disk"), "{}", said[0]);
    assert_eq!(cache.taken(), whole.len() as u64, "what was lost is not counted");
}

/// Files that a killed process leaves behind have names of their own and are removed after a while.
#[test]
fn what_a_killed_process_left_is_no_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    on_disk(folder.path(), ORIGIN).keep(SampleId(4), entry(4));
    let path = files(folder.path()).pop().expect("a file");
    let (young, old) = (path.with_file_name(".4-1-0"), path.with_file_name(".4-2-0"));
    for left in [&young, &old] {
        fs::write(left, b"half").expect("left");
    }
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    fs::File::options().append(true).open(&old).and_then(|file| file.set_modified(long_ago)).expect("aged");
    let again = on_disk(folder.path(), ORIGIN);
    assert!(again.has(SampleId(4)) && young.exists() && !old.exists());
}

#[test]
fn a_disk_that_takes_nothing_more_ends_the_filling() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = on_disk(folder.path(), ORIGIN);
    cache.keep(SampleId(4), entry(4));
    // A file replaces the folder of files: no write succeeds, even as root.
    let parent = files(folder.path()).pop().expect("a file").parent().expect("a folder").to_owned();
    let top = parent.parent().expect("a folder").to_owned();
    fs::remove_dir_all(&top).expect("removed");
    cache.keep(SampleId(5), entry(5));
    let said = cache.said();
    assert!(said.len() == 1 && said[0].to_string().starts_with("no more images kept instead of"), "{said:?}");
    assert!(cache.fill(SampleId(6), 100, std::iter::empty()).is_none());
    assert!(cache.get(SampleId(4)).is_none(), "gone with the folder");
}

/// A folder that another user has created, or may write to, in a shared place: its pixels cannot be trusted.
#[test]
fn what_others_may_have_written_is_not_believed() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = tempfile::tempdir().expect("a folder");
    let disk = on_disk(folder.path(), ORIGIN);
    disk.keep(SampleId(4), entry(4));
    drop(disk);
    assert!(on_disk(folder.path(), ORIGIN).has(SampleId(4)));
    let made = folder.path().join("images-000000000000004d");
    let refused = |words: &str| {
        let error = Prepared::on_disk((folder.path(), ORIGIN), all(), ROOM, 3).expect_err("it is not believed");
        assert_eq!(error.kind(), crate::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains(words) && error.remedy().is_some(), "{error}");
    };
    fs::set_permissions(&made, fs::Permissions::from_mode(0o777)).expect("its rights");
    refused("others may write it");
    fs::set_permissions(&made, fs::Permissions::from_mode(0o700)).expect("its rights");
    // Only root may give files away.
    if chown(made.join("04"), Some(12345), None).is_ok() {
        refused("another user (12345)");
    }
}

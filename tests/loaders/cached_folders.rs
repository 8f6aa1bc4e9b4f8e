//! Caches in folders that were not made for them: every sample comes, with its bytes, and how the cache fared is said
//! once.

use super::cached::{BOUND, MIB, builder, mixed, read_all, segments};
use crate::common::check::drain;
use crate::common::faulty::Faulty;
use crate::common::mounts::{Kind, Mounted};
use crate::common::objects::Faults;
use crate::common::sandbox::without;
use crate::common::writable::{Writable, Writes};
use crate::common::{skip, within};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::{Cause, DiskCache};
use uringload::dataset::Dataset;
use uringload::{ErrorKind, Loader};

const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;

/// Reads epochs with a cache in `folder`. Returns what the route says of it, and the share of bytes that came from it.
fn read(dataset: &Arc<dyn Dataset>, (folder, room): (&Path, u64), epochs: u64) -> (Vec<String>, f64) {
    let kept = builder(dataset).epochs(epochs).cache_disk(DiskCache::new(folder, room));
    let (digest, count, loader) = read_all(dataset, kept, "kept");
    assert_eq!(digest, read_all(dataset, builder(dataset).epochs(epochs), "plain").0);
    (told(&loader), count.bytes_cached as f64 / count.bytes_read as f64)
}

fn told(loader: &Loader) -> Vec<String> {
    let steps = loader.route().fallbacks.into_iter().filter(|step| step.cause == Cause::DiskCache);
    steps.map(|step| step.to_string()).collect()
}

/// Whether each of these is told, and nothing else.
fn assert_told(told: &[String], words: &[&str]) {
    let is_told = |words: &&str| told.iter().filter(|step| step.contains(*words)).count() == 1;
    assert!(told.len() == words.len() && words.iter().all(is_told), "{words:?} in {told:?}");
}

/// A folder of another version is another one, and a file that is no segment of this version takes room and gives
/// nothing.
#[test]
fn of_another_version() {
    within(BOUND, || {
        let (_, dataset) = mixed(11);
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (other, own) = (folder.path().join("uringload-raw-2"), folder.path().join("uringload-raw-1"));
        for made in [&other, &own] {
            fs::create_dir(made).unwrap();
            fs::write(made.join("seg-0000"), vec![7; 4 * MIB as usize]).unwrap();
        }
        for expected in [0.0, 1.0] {
            let (told, hits) = read(&dataset, (folder.path(), 64 * MIB), 1);
            assert_told(&told, &[]);
            assert!(hits >= expected, "{hits}");
        }
        assert_eq!(fs::read(other.join("seg-0000")).unwrap(), fs::read(own.join("seg-0000")).unwrap());
        assert!(fs::metadata(own.join("seg-0001")).unwrap().len() <= 60 * MIB, "the budget holds for both");
    });
}

#[test]
fn of_another_user() {
    let (_, dataset) = mixed(12);
    let folder = TempDir::new().unwrap();
    let made = folder.path().join("uringload-raw-1");
    fs::create_dir(&made).unwrap();
    if std::os::unix::fs::chown(&made, Some(12345), None).is_err() {
        return skip("only root can give a folder to another user");
    }
    let kept = builder(&dataset).cache_disk(DiskCache::new(folder.path(), MIB));
    let error = kept.build().expect_err("of another user");
    assert!(error.kind() == ErrorKind::PermissionDenied && error.remedy().is_some(), "{error}");
}

#[test]
fn read_only() {
    let Ok(disk) = Faulty::mount(Vec::new()).map_err(skip) else { return };
    let (_, dataset) = mixed(13);
    let error = builder(&dataset).cache_disk(DiskCache::new(disk.path(), MIB)).build().expect_err("read only");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("write to")), "{error}");
}

/// In memory, and soon full: the room of a segment is not there.
#[test]
fn in_memory_and_full() {
    within(BOUND, || {
        let Ok(memory) = Mounted::new(Kind::Tmpfs).map_err(skip) else { return };
        let (_, dataset) = mixed(14);
        for expected in [0.0, 1.0] {
            let (told, hits) = read(&dataset, (memory.path(), 64 * MIB), 1);
            assert_told(&told, &["is on tmpfs: memory, and no disk"]);
            assert!(hits >= expected, "{hits}");
        }
        let Ok(small) = Mounted::small(4 * MIB).map_err(skip) else { return };
        let (told, hits) = read(&dataset, (small.path(), 64 * MIB), 3);
        assert_told(&told, &["is on tmpfs", "takes no more (No space left on device"]);
        assert_eq!(hits, 0.0);
    });
}

/// Without reserved room a disk is full in the middle of a stretch. What was written before is used.
#[test]
fn full_in_the_middle() {
    within(BOUND, || {
        let Ok(small) = Mounted::small(4 * MIB).map_err(skip) else { return };
        let (_, dataset) = mixed(15);
        let (told, _) = without(&[libc::SYS_fallocate], EOPNOTSUPP, || read(&dataset, (small.path(), 64 * MIB), 3));
        assert_told(&told, &["is on tmpfs", "cannot reserve room", "takes no more (No space left on device"]);
        assert_eq!(segments(small.path()).len(), 1);
        let (_, hits) = read(&dataset, (small.path(), 64 * MIB), 1);
        assert!((0.05..0.6).contains(&hits), "{hits}");
    });
}

/// Neither `O_DIRECT` nor `fallocate(2)`, and writes that fail or never end.
#[test]
fn over_a_network() {
    within(BOUND, || {
        for (good, then, words) in [
            (u64::MAX, Writes::Good, None),
            (20, Writes::Fail(ENOSPC), Some("takes no more (No space left on device")),
            (20, Writes::Fail(EROFS), Some("takes no more (Read-only file system")),
            (20, Writes::Hang, Some("takes no more (it does not answer)")),
        ] {
            let Ok(disk) = Writable::mount().map_err(skip) else { return };
            let (_, dataset) = mixed(16);
            disk.after(good, then);
            let mut expected = vec!["cannot reserve room"];
            expected.extend(words);
            let (told, _) = read(&dataset, (disk.path(), 64 * MIB), 3);
            assert_told(&told, &expected);
            if then != Writes::Hang {
                // What waited for the file for too long is kept the next time.
                read(&dataset, (disk.path(), 64 * MIB), 1);
                let (_, hits) = read(&dataset, (disk.path(), 64 * MIB), 1);
                assert!(if then == Writes::Good { hits == 1.0 } else { hits > 0.0 && hits < 0.9 }, "{then:?}: {hits}");
            }
        }
    });
}

/// A mount whose server is gone.
#[test]
fn a_folder_that_does_not_answer() {
    within(BOUND, || {
        let Ok(disk) = Writable::mount().map_err(skip) else { return };
        let (_, dataset) = mixed(19);
        let kept = || {
            let kept = builder(&dataset).epochs(2).timeout(Duration::from_secs(2));
            kept.cache_disk(DiskCache::new(disk.path(), 64 * MIB))
        };
        let mut loader = kept().build().unwrap();
        disk.hang_lists();
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert!(errors.is_empty() && ids.len() as u64 == 2 * dataset.len(), "{errors:?}");
        let error = kept().build().expect_err("no answer");
        assert!(error.kind() == ErrorKind::Timeout && error.path() == Some(disk.path()), "{error}");
        assert!(error.to_string().contains("did not answer within 2s") && error.remedy().is_some(), "{error}");
    });
}

/// What it has is asked of the store: no sample is lost, and none waits for long, also without a timeout of reads.
#[test]
fn a_folder_whose_reads_never_end() {
    within(BOUND, || {
        for (timeout, patience) in [(Some(Duration::from_secs(2)), "500ms"), (None, "10s")] {
            let Ok(disk) = Writable::mount().map_err(skip) else { return };
            let (_, dataset) = mixed(20);
            assert_told(&read(&dataset, (disk.path(), 64 * MIB), 2).0, &["cannot reserve room"]);
            let kept = builder(&dataset).epochs(3).cache_disk(DiskCache::new(disk.path(), 64 * MIB));
            let mut loader = timeout.into_iter().fold(kept, |kept, timeout| kept.timeout(timeout)).build().unwrap();
            let first = loader.next().unwrap().unwrap().ids.len();
            disk.hang_reads();
            let (ids, errors) = drain(&*dataset, &mut loader);
            assert!(errors.is_empty(), "{errors:?}");
            assert_eq!((first + ids.len()) as u64, 3 * dataset.len());
            assert_told(&told(&loader), &[&format!("cannot be read (it did not answer within {patience})")]);
            assert!(loader.stats().snapshot().count.bytes_cached > 0, "what came before the end");
        }
    });
}

#[test]
fn removed_while_it_is_filled() {
    within(BOUND, || {
        let (store, dataset) = mixed(17);
        store.set(Faults { slow: 100, ..Faults::default() });
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let kept = builder(&dataset).epochs(3).cache_disk(DiskCache::new(folder.path(), 64 * MIB));
        let mut loader = kept.build().unwrap();
        // A file may be made in a folder that is about to go.
        while folder.path().exists() {
            fs::remove_dir_all(folder.path()).ok();
        }
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert!(errors.is_empty() && ids.len() as u64 == 3 * dataset.len(), "{errors:?}");
        assert_told(&told(&loader), &["takes no more ("]);
    });
}

/// Loaders with other budgets share a folder: the largest of them is what it takes.
#[test]
fn two_budgets_in_one_folder() {
    within(BOUND, || {
        let (_, dataset) = mixed(18);
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let taken = || segments(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
        let room = |mib| (folder.path(), mib * MIB);
        let (_, hits) = read(&dataset, room(4), 2);
        assert!(taken() <= 4 * MIB && hits < 0.4, "{hits}");
        read(&dataset, room(32), 1);
        assert!((4 * MIB..=32 * MIB).contains(&taken()), "{}", taken());
        // All is there by now, whatever this one may add.
        let (told, hits) = read(&dataset, room(4), 2);
        assert_told(&told, &[]);
        assert_eq!(hits, 1.0);
    });
}

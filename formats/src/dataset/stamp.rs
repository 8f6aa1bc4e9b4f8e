//! The identity of a file while it is read: as much of it as fits into 8 bytes in addition to its name and size.

use uringload_core::store::Version;
use uringload_core::{Error, ErrorKind};
use uringload_sys::file::Identity;

/// Hashes of a file's place (device and inode), of its time of modification and of its time of change.
///
/// A table of files has one of these for each, and a dataset may have tens of millions, so the identity itself is not
/// kept. Three hashes instead of one show which part differs. A change of content always moves the time of change,
/// whose hash has 24 bits, and most often the others too: one rewrite in 16 million that keeps inode, size and time of
/// modification would pass. 0 means that the file was not inspected. That of an object is its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// The places of the three hashes.
const CHANGED: u64 = (1 << 24) - 1;
const MODIFIED: u64 = ((1 << 20) - 1) << 24;
const PLACE: u64 = !(CHANGED | MODIFIED);

impl Stamp {
    /// That of the file with this identity.
    pub(crate) fn of(identity: &Identity) -> Stamp {
        let time = |(seconds, nanoseconds): (i64, u32)| mixed(mixed(seconds as u64) ^ u64::from(nanoseconds));
        let (major, minor) = identity.device;
        let place = mixed(mixed((u64::from(major) << 32) | u64::from(minor)) ^ identity.inode);
        let hashes = (place & PLACE) | (time(identity.modified) & MODIFIED) | (time(identity.changed) & CHANGED);
        Stamp(hashes.max(1))
    }

    /// That of an object.
    pub(crate) fn of_version(version: Option<Version>) -> Stamp {
        Stamp(version.map_or(0, Version::to_bits))
    }

    /// The version of an object, if it has one.
    pub(crate) fn version(self) -> Option<Version> {
        Version::from_bits(self.0)
    }

    /// All of it.
    pub(crate) fn whole(self) -> u64 {
        self.0
    }

    /// The one that is all of this.
    pub(crate) fn of_whole(whole: u64) -> Stamp {
        Stamp(whole)
    }

    /// Its times: the device's number may be another tomorrow.
    pub(crate) fn times(self) -> u64 {
        self.0 & !PLACE
    }

    /// What every copy that keeps its times shares.
    pub(crate) fn modified(self) -> u64 {
        self.0 & MODIFIED
    }

    /// Why the file with the identity `found` is not the one of this stamp and `size` bytes; the error names no file.
    /// Its place does not count where `inodes_vary`, which is asked only if it matters.
    pub(crate) fn change(self, size: u64, found: &Identity, inodes_vary: impl FnOnce() -> bool) -> Option<Error> {
        if self.0 == 0 {
            return None;
        }
        let differs = self.0 ^ Stamp::of(found).0;
        let (is_elsewhere, is_modified) = (differs & PLACE != 0 && !inodes_vary(), differs & MODIFIED != 0);
        let (kind, what) = if found.size < size {
            let what = format!("the file ends before byte {size}: it has changed since it was indexed");
            (ErrorKind::Truncated, format!("{what}, and has {} bytes now", found.size))
        } else if found.size > size {
            let what = format!("the file has changed since it was indexed: it had {size} bytes");
            (ErrorKind::Changed, format!("{what}, and has {} now", found.size))
        } else if is_elsewhere {
            let inode = found.inode;
            let what = "the file was replaced by another one of the same size since it was indexed";
            (ErrorKind::Changed, format!("{what} (now inode {inode}, modified {})", Time(found.modified)))
        } else if is_modified {
            let what = "the file was written to since it was indexed";
            (ErrorKind::Changed, format!("{what} (last {})", Time(found.modified)))
        } else if differs & CHANGED != 0 {
            let what = "the file may have been written to since it was indexed: its time of modification is the same";
            (ErrorKind::Changed, format!("{what}, but its time of change (ctime) is {} now", Time(found.changed)))
        } else {
            return None;
        };
        Some(Error::new(kind, what).with_remedy("restore the file, or open the dataset again"))
    }
}

/// Seconds since 1970, as `date -d` takes them.
struct Time((i64, u32));

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "@{}.{:09}", self.0.0, self.0.1)
    }
}

/// Spreads a number over 64 bits, one to one. Source: the finalizer of MurmurHash3 (Austin Appleby).
fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity =
        Identity { device: (259, 1), inode: 77, size: 5, modified: (1_700_000_000, 7), changed: (1_700_000_001, 0) };

    #[test]
    fn what_differs_is_told() {
        let stamp = Stamp::of(&FILE);
        assert!(stamp.change(5, &FILE, || false).is_none());
        let (now, changed) = ((1_700_000_009, 1), ErrorKind::Changed);
        for (found, kind, words) in [
            (Identity { size: 4, ..FILE }, ErrorKind::Truncated, "ends before byte 5"),
            (Identity { size: 6, ..FILE }, changed, "it had 5 bytes, and has 6 now"),
            (Identity { inode: 78, ..FILE }, changed, "replaced by another one"),
            (Identity { device: (259, 2), ..FILE }, changed, "replaced by another one"),
            (
                Identity { modified: now, ..FILE },
                changed,
                "written to since it was indexed (last @1700000009.000000001)",
            ),
            (Identity { changed: now, ..FILE }, changed, "its time of change (ctime) is @1700000009.000000001"),
        ] {
            let error = stamp.change(5, &found, || false).unwrap();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.what().contains(words), "{error}");
        }
    }

    #[test]
    fn inodes_count_only_where_they_stay() {
        let stamp = Stamp::of(&FILE);
        assert!(stamp.change(5, &Identity { inode: 78, ..FILE }, || true).is_none());
        assert!(stamp.change(5, &Identity { inode: 78, changed: (0, 0), ..FILE }, || true).is_some());
    }

    #[test]
    fn a_file_that_nobody_looked_at_is_any_file() {
        assert!(Stamp::default().change(5, &FILE, || false).is_none());
    }
}

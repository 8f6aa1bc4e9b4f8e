//! What is wrong with archives and with their indexes: archives are looked through afresh, and indexes held against
//! what is found.

use super::index::Archives;
use super::{Damaged, dali};
use crate::indexes::{Indexed, SCAN_THREADS, Wanted, index_all};
use crate::sidecar::{Places, RESIDENT_BYTES, Shard, Sidecar};
use crate::skipped::SkipReason;
use crate::window::Plain;
use crate::{FileId, FileTable};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use uringload_core::{Error, ErrorKind, Result};
use uringload_sys::file::{OpenFlags, Opened};

/// The faults of all archives, in their order. `in_use` is the index that each was opened with.
pub(super) fn faults<'a>(
    files: &FileTable,
    in_use: impl Iterator<Item = &'a Sidecar>,
    cache: Option<&PathBuf>,
) -> Vec<Error> {
    let places = Places { cache: cache.cloned() };
    let (damaged, threads) = (Damaged::Keep, SCAN_THREADS);
    let afresh = Wanted { places: Places::default(), no_sidecars: true, rebuild: true, damaged, threads };
    let indexed = match index_all(files, &afresh, &|_| {}, &Archives) {
        Ok(indexed) => indexed,
        Err(error) => return vec![error],
    };
    let mut faults = Vec::new();
    for ((number, indexed), in_use) in indexed.into_iter().enumerate().zip(in_use) {
        // Fits: a table has fewer than 2^32 files.
        let file = FileId(number as u32);
        let path = files.path(file);
        of_archive(&path, files.size(file), &indexed, &mut faults);
        let is_damaged = indexed.damage.is_some();
        faults.extend(indexed.damage);
        // An index is of a whole archive.
        if !is_damaged && let Err(error) = of_indexes(&path, &indexed.sidecar, in_use, &places, &mut faults) {
            faults.push(error);
        }
    }
    faults
}

/// What is wrong with the end of an archive, which readers pass over.
fn of_archive(path: &Path, size: u64, indexed: &Indexed, faults: &mut Vec<Error>) {
    for (code, ..) in indexed.sidecar.left_out() {
        let fault = match SkipReason::of_code(*code) {
            Some(SkipReason::MissingEnd) => Error::new(ErrorKind::Truncated, "two blocks of zeros do not end")
                .with_offset(size)
                .with_remedy("it may have been cut short between two members: compare it with its source"),
            Some(SkipReason::TrailingBytes) => {
                Error::new(ErrorKind::Corrupt, "something that is no archive follows the end of")
                    .with_remedy("see what it is, and cut it off")
            }
            _ => continue,
        };
        faults.push(fault.with_file(path));
    }
}

/// What is wrong with the indexes of an archive: `found` is what it really has.
fn of_indexes(path: &Path, found: &Sidecar, in_use: &Sidecar, places: &Places, faults: &mut Vec<Error>) -> Result<()> {
    let opened = uringload_sys::file::open(rustix::fs::CWD, path.as_os_str().as_bytes(), OpenFlags::default());
    let Opened { file, identity, .. } = opened.map_err(|error| Error::io("cannot open", error).with_file(path))?;
    let before = faults.len();
    let wrong = |what: String, place: &Path| {
        let remedy = "delete it, or build it again with `uringload index --rebuild`";
        Error::new(ErrorKind::Corrupt, what).with_file(place).with_remedy(remedy)
    };
    match places.find(path, &Shard::new("tar", path, &identity), &AtomicU64::new(RESIDENT_BYTES)) {
        Ok(kept) => {
            if let Some(difference) = kept.difference(found) {
                faults.push(wrong(
                    format!("the index is not that of its archive, {difference}:"),
                    kept.path().unwrap_or(path),
                ));
            }
        }
        Err(refused) => {
            let wrong =
                |(place, reason): (PathBuf, String)| wrong(format!("the index cannot be used, {reason}:"), &place);
            faults.extend(refused.into_iter().map(wrong));
        }
    }
    let mut plain = Plain { file: &file, size: identity.size };
    if found.decoded().is_none()
        && let Some((place, Err(reason))) = dali::import(path, &identity, &mut plain)
    {
        let error = Error::new(ErrorKind::Corrupt, format!("DALI's index cannot be used, {reason}:"));
        faults.push(error.with_file(place).with_remedy("write it again with wds2idx, or delete it"));
    }
    if faults.len() == before
        && let Some(difference) = in_use.difference(found)
    {
        let what = format!("the archive is not what its index said when the dataset was opened, {difference}:");
        faults.push(Error::new(ErrorKind::Corrupt, what).with_file(path).with_remedy("open the dataset again"));
    }
    Ok(())
}

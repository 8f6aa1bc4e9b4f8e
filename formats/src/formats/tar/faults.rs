//! Finds faults of archives and of their indexes: scans archives again and compares indexes with the result.

use super::index::Archives;
use crate::dataset::{FileId, FileTable, SkipReason};
use crate::index::indexes::{Indexed, Wanted, index_all, scan_threads};
use crate::index::sidecar::{Memory, Places, RESIDENT_BYTES, Shard, Sidecar};
use crate::options::Common;
use crate::place::Place;
use std::path::{Path, PathBuf};
use uringload_core::{Error, ErrorKind, Result};

/// The faults of all archives, in order. `in_use` is the index that each was opened with.
pub(super) fn faults<'a>(files: &FileTable, in_use: impl Iterator<Item = &'a Sidecar>, places: &Places) -> Vec<Error> {
    let common = Common { sidecars: false, rebuild: true, ..Common::default() };
    let (nowhere, threads) = (Places::default(), scan_threads(&common));
    let afresh = Wanted { common: &common, places: nowhere, keep_damaged: true, write_index: false, threads };
    let indexed = match index_all(files, &afresh, &Archives) {
        Ok(indexed) => indexed,
        Err(error) => return vec![error],
    };
    let mut faults = Vec::new();
    for ((number, indexed), in_use) in indexed.into_iter().enumerate().zip(in_use) {
        // Fits: a table has fewer than 2^32 files.
        let file = FileId(number as u32);
        let place = files.at(file);
        of_archive(place.path(), files.size(file), &indexed, &mut faults);
        let is_damaged = indexed.damage.is_some();
        faults.extend(indexed.damage);
        // An index describes a whole archive.
        if !is_damaged && let Err(error) = of_indexes(&place, &indexed.sidecar, in_use, places, &mut faults) {
            faults.push(error);
        }
    }
    faults
}

/// Faults at the end of an archive, which readers ignore.
fn of_archive(path: &Path, size: u64, indexed: &Indexed, faults: &mut Vec<Error>) {
    for (code, ..) in indexed.sidecar.left_out() {
        let fault = match SkipReason::of_code(*code) {
            Some(SkipReason::MissingEnd) => {
                Error::new(ErrorKind::Truncated, "the two blocks of zeros at the end are missing")
                    .with_offset(size)
                    .with_remedy("the archive may have been cut short between two members: compare it with its source")
            }
            Some(SkipReason::TrailingBytes) => Error::new(ErrorKind::Corrupt, "bytes follow the end of the archive")
                .with_remedy("see what they are, and cut them off"),
            _ => continue,
        };
        faults.push(fault.with_path(path));
    }
}

/// Faults in the indexes of an archive; `found` is what it really contains.
fn of_indexes(at: &Place, found: &Sidecar, in_use: &Sidecar, places: &Places, faults: &mut Vec<Error>) -> Result<()> {
    let (source, path) = (at.open()?, at.path());
    let before = faults.len();
    let wrong = |what: String, place: &Path| {
        let remedy = "delete it, or build it again with `uringload index --rebuild`";
        Error::new(ErrorKind::Corrupt, what).with_path(place).with_remedy(remedy)
    };
    let shard = Shard::new("tar", &source);
    match places.find(&shard, &source, &Memory::new(RESIDENT_BYTES)) {
        Ok(kept) => {
            if let Some(difference) = kept.difference(found) {
                faults.push(wrong(
                    format!("the index does not match its archive: {difference}"),
                    kept.path().unwrap_or(path),
                ));
            }
        }
        Err(refused) => {
            let wrong =
                |(place, reason): (PathBuf, String)| wrong(format!("the index cannot be used: {reason}"), &place);
            faults.extend(refused.unfit.into_iter().map(wrong));
        }
    }
    if faults.len() == before
        && let Some(difference) = in_use.difference(found)
    {
        let what = format!("the archive is not what its index said when the dataset was opened: {difference}");
        faults.push(Error::new(ErrorKind::Corrupt, what).with_path(path).with_remedy("open the dataset again"));
    }
    Ok(())
}

//! What opening shards has to tell: how their indexes were come by, what was left out, what went otherwise than wished.

use super::super::indexes::{IndexReport, StepDown};
use super::super::sidecar::Kept;
use super::super::skipped::{SkipReason, Skips};
use super::super::{FileId, FileTable};
use super::index::{Indexed, Origin};
use crate::config::{Cause, Fallback};
use crate::error::Error;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::dataset) struct Notes {
    pub(in crate::dataset) report: IndexReport,
    pub(in crate::dataset) fallbacks: Vec<Fallback>,
    pub(in crate::dataset) damaged: Vec<Error>,
}

impl Notes {
    /// What the shards have to tell; adds what they left out to `skips`.
    pub(in crate::dataset) fn of(files: &FileTable, indexed: &[Indexed], skips: &mut Skips) -> Notes {
        let mut notes = Notes::default();
        let (mut cached, mut in_memory, mut foreign) = (StepDown::default(), StepDown::default(), StepDown::default());
        let mut cache = PathBuf::new();
        let folder_of = |path: &Path| path.parent().unwrap_or(Path::new(".")).to_path_buf();
        for (number, shard) in indexed.iter().enumerate() {
            // Fits: a table has fewer than 2^32 files.
            let path = files.path(FileId(number as u32));
            let report = &mut notes.report;
            match shard.origin {
                Origin::Sidecar => report.current += 1,
                Origin::Dali => report.imported += 1,
                Origin::Scan => report.scanned += 1,
            }
            report.bytes_read += shard.bytes_read;
            report.refused.extend(shard.refused.iter().cloned());
            match &shard.kept {
                Some(Kept::Beside(_)) => report.written += 1,
                Some(Kept::InCache(place, error)) => {
                    report.written += 1;
                    cache = folder_of(place);
                    cached.add(folder_of(&path), error, io::Error::raw_os_error(error));
                }
                Some(Kept::Nowhere(error)) => in_memory.add(folder_of(&path), error, error.raw_os_error()),
                None => {}
            }
            if let Some(reason) = &shard.dali_refused {
                foreign.add(path.with_extension("idx"), reason, None);
            }
            for (code, count, first) in shard.sidecar.left_out() {
                let Some(reason) = SkipReason::of_code(*code) else { continue };
                let first = if first.is_empty() { path.clone() } else { path.join(OsStr::from_bytes(first)) };
                skips.add_many(reason, *count, &first);
            }
            if let Some(damage) = &shard.damage {
                skips.add(SkipReason::DamagedShard, &path);
                notes.damaged.push(damage.clone());
            }
        }
        notes.fallbacks.extend(cached.into_fallback(Cause::IndexPlace, format!("indexes in {cache:?}")));
        notes
            .fallbacks
            .extend(in_memory.into_fallback(Cause::IndexPlace, "indexes in memory, made at each start".into()));
        notes.fallbacks.extend(foreign.into_fallback(Cause::ForeignIndex, "a look through the shards".into()));
        notes
    }
}

//! Proves a pack by the indexes of its shards: each sample of the source is in one of them, once.

use super::manifest::{Destination, number};
use super::{Pack, PackReport, TAR_ENDING, dense, unreadable};
use crate::config::OnError;
use crate::dataset::{self, Dataset, FileId, SampleId};
use crate::{Error, ErrorKind, Result, guard};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Missing shards whose numbers an error has.
const MISSING_NAMED: usize = 20;

impl Pack {
    /// Proves that the folder has each sample of the source once, after all jobs have ended. The shards are opened as a
    /// reader opens the folder. What their own indexes name, in their order, is compared with the source's index: keys,
    /// and the bytes of each sample where the source's index knows them. MDS shards have no names in their heads, so
    /// there numbers of samples are compared. No sample is read, and no shard is written.
    ///
    /// # Errors
    /// `InvalidArgument` for a part, for the folder of another pack or one that is written to, and for shards in it
    /// that are not of this pack; `NotFound` if there are shards missing, or samples that were left out, unless
    /// `on_error` skips them; `Corrupt` for a shard with other samples than those of the plan.
    pub fn finish(&self) -> Result<PackReport> {
        let part = self.options.part;
        if !part.is_whole() {
            let what = format!("part {part} alone cannot say that all shards are there");
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("leave out the part"));
        }
        let _destination = Destination::ended(self)?;
        self.check_there()?;
        let lacking = guard::whole(&*self.dataset, "a method that describes it", || match &self.dense {
            Some(_) => self.lacking_of_heads(),
            None => self.lacking_of_archives(),
        })?;
        if let Some(first) = lacking.first.as_ref().filter(|_| self.asked.on_error == OnError::Raise) {
            let what = format!("{} samples of the source are in no shard, the first should be here", lacking.count);
            let remedy = "delete the shard and pack again, or do without them: on_error=skip (--on-error skip)";
            return Err(Error::new(ErrorKind::NotFound, what).with_path(first).with_remedy(remedy));
        }
        if let Some(dense) = &self.dense {
            dense::finish(self, dense)?;
        }
        let shards = self.shards().len() as u64;
        let samples = self.plan.samples - lacking.count;
        Ok(PackReport { samples, lacking: lacking.count, shards, shards_kept: shards, ..PackReport::default() })
    }

    /// Whether all shards are there.
    fn check_there(&self) -> Result<()> {
        let (_, missing) = self.there()?;
        let Some(&first) = missing.first() else { return Ok(()) };
        let numbers: Vec<String> = missing.iter().take(MISSING_NAMED).map(u64::to_string).collect();
        let more = if missing.len() > MISSING_NAMED { " and more" } else { "" };
        let (count, all) = (missing.len(), self.shards().len());
        let what = format!("{count} of {all} shards are missing: numbers {}{more}", numbers.join(", "));
        Err(Error::new(ErrorKind::NotFound, what)
            .with_path(self.path(first))
            .with_remedy("run the jobs again that write them: job I of N writes the shards I, I + N, I + 2 N ..."))
    }

    /// Compares the heads of MDS shards with the plan.
    fn lacking_of_heads(&self) -> Result<Lacking> {
        let mut lacking = Lacking::default();
        for shard in self.own_shards() {
            let path = self.path(shard);
            let (planned, found) = (self.samples_of(shard), self.head_of(shard)?.0);
            if found > planned {
                return Err(other(&path, &format!("the shard has {found} samples, and {planned} were planned")));
            }
            lacking.add(planned - found, &path);
        }
        Ok(lacking)
    }

    /// Compares the indexes of archives with the plan.
    fn lacking_of_archives(&self) -> Result<Lacking> {
        let mut lacking = Lacking::default();
        let tar = match dataset::open(&[&self.folder], &self.tar_options()) {
            Ok(tar) => tar,
            // All samples of all shards were left out.
            Err(error) if error.kind() == ErrorKind::Empty => {
                lacking.add(self.plan.samples, &self.path(0));
                return Ok(lacking);
            }
            Err(error) => return Err(unreadable(error)),
        };
        let shards = self.shards().len() as u64;
        let mut found = vec![0..0; self.shards().len()];
        let mut start = 0;
        for (file, &end) in (0..).map(FileId).zip(tar.shards()) {
            let name = String::from_utf8_lossy(tar.files().name(file)).into_owned();
            let shard = name.strip_suffix(TAR_ENDING).and_then(|name| number(name, &self.options.prefix));
            let Some(shard) = shard.filter(|&shard| shard < shards) else {
                let error = Error::new(ErrorKind::InvalidArgument, "a reader would take this for a shard of the pack");
                return Err(error.with_path(tar.files().path(file)).with_remedy("move it out of the folder"));
            };
            found[shard as usize] = start..end;
            start = end;
        }
        for (shard, found) in (0..).zip(found) {
            self.compare(&tar, shard, found, &mut lacking)?;
        }
        Ok(lacking)
    }

    /// Compares the samples `found` in an archive with those planned for it: the same ones in the same order, but for
    /// those that were left out.
    fn compare(&self, tar: &Arc<dyn Dataset>, shard: u64, found: Range<u64>, lacking: &mut Lacking) -> Result<()> {
        let path = self.path(shard);
        // Fits: an index into the plan.
        let planned = self.plan.shards[shard as usize].clone();
        let (mut key, mut own) = (Vec::new(), Vec::new());
        let mut next = found.start;
        let mut id = planned.start;
        while id < planned.end {
            let end = (id + 1..planned.end).find(|&id| self.names.begins(id)).unwrap_or(planned.end);
            key.clear();
            self.names.key(SampleId(id), &mut key);
            own.clear();
            if next < found.end {
                tar.key(SampleId(next), &mut own);
            }
            if own != key || next == found.end {
                lacking.add(1, &path);
            } else {
                let (bytes, wanted) = (bytes_of(&**tar, SampleId(next)), self.bytes_of(id..end, &key)?);
                if let Some(wanted) = wanted.filter(|&wanted| wanted != bytes) {
                    let key = String::from_utf8_lossy(&key);
                    return Err(other(&path, &format!("sample {key:?} has {bytes} bytes, and {wanted} in the source")));
                }
                next += 1;
            }
            id = end;
        }
        if next < found.end {
            own.clear();
            tar.key(SampleId(next), &mut own);
            let key = String::from_utf8_lossy(&own);
            return Err(other(&path, &format!("sample {key:?} is not planned there, or not in this place")));
        }
        Ok(())
    }

    /// Bytes of the members that make a sample; `None` if only reading tells.
    fn bytes_of(&self, ids: Range<u64>, key: &[u8]) -> Result<Option<u64>> {
        let (mut members, mut is_known) = (Vec::new(), self.images.is_none());
        for id in ids.clone() {
            is_known &= self.names.members(SampleId(id), id == ids.start, &mut members);
        }
        if !is_known {
            return Ok(None);
        }
        self.names.finish(key, &mut members)?;
        Ok(Some(members.iter().map(|member| member.len).sum()))
    }
}

/// Samples that no shard has.
#[derive(Default)]
struct Lacking {
    count: u64,
    /// The first shard that lacks some.
    first: Option<PathBuf>,
}

impl Lacking {
    fn add(&mut self, count: u64, shard: &Path) {
        self.count += count;
        if count > 0 && self.first.is_none() {
            self.first = Some(shard.to_path_buf());
        }
    }
}

/// Bytes of the members of a sample in an archive.
fn bytes_of(tar: &dyn Dataset, id: SampleId) -> u64 {
    (0..tar.schema().fields.len()).filter_map(|field| tar.length(id, field)).sum()
}

fn other(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, what.to_owned())
        .with_path(path)
        .with_remedy("another program wrote it: delete it and pack again")
}

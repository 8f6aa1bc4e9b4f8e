//! One shard: read through a loader of its samples, written as an archive.

use super::archive::Archive;
use super::layout::{Member, arrange};
use super::names::Filling;
use super::{Job, Pack};
use crate::batch::{Batch, Data};
use crate::dataset::{SampleId, View};
use crate::loader::Loader;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use uringload_images::Scratch;

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) samples: u64,
    pub(super) members: u64,
    /// Bytes of values.
    pub(super) payload_bytes: u64,
    /// Bytes of headers that only serve as padding.
    pub(super) padding_bytes: u64,
    /// Bytes of the archive.
    pub(super) bytes: u64,
}

/// Writes the archive of the samples `range` to `path`. `None` if the pack was stopped.
///
/// # Errors
/// Why a sample cannot be read, unless samples may be left out; why the archive cannot be written.
pub(super) fn write(pack: &Pack, job: &Job<'_>, range: Range<u64>, path: PathBuf) -> Result<Option<Written>> {
    let archive = Archive::create(path)?;
    let dataset = Arc::new(View::range(Arc::clone(&pack.dataset), range.clone())?);
    let mut loader = Loader::builder(dataset).config(pack.config.clone()).build()?;
    let mut writer = Writer {
        pack,
        job,
        range,
        archive,
        open: Open::default(),
        written: Written::default(),
        scratch: Scratch::default(),
    };
    for batch in &mut loader {
        writer.batch(&batch?)?;
        if job.tell().is_break() {
            return Ok(None);
        }
    }
    let Writer { archive, written, open, range, .. } = writer;
    debug_assert!(open.members.is_empty(), "the last sample of {range:?} has ended");
    Ok(Some(Written { bytes: archive.finish()?, ..written }))
}

struct Writer<'a> {
    pack: &'a Pack,
    job: &'a Job<'a>,
    range: Range<u64>,
    archive: Archive,
    open: Open,
    written: Written,
    /// Memory for decoding images.
    scratch: Scratch,
}

/// The sample that is being assembled.
#[derive(Default)]
struct Open {
    members: Vec<Member>,
    /// Whether it has begun.
    is_begun: bool,
    /// Why all or some of it cannot be read.
    failed: Option<Error>,
}

impl Writer<'_> {
    /// The samples of a batch, good ones and others, in the order of the source.
    fn batch(&mut self, batch: &Batch) -> Result<()> {
        let first = self.range.start;
        for_each(batch, |id, row, error| self.sample(SampleId(first + id.0), batch, row, error))?;
        // Members that continue in the next batch must not hold the memory that this one was read into.
        for member in &mut self.open.members {
            member.value = Bytes::copy_from_slice(&member.value);
        }
        Ok(())
    }

    /// A sample of the source: row number `row` of the batch, or missing.
    fn sample(&mut self, id: SampleId, batch: &Batch, row: Option<usize>, error: Option<Error>) -> Result<()> {
        let names = &self.pack.names;
        let start = self.open.members.len();
        names.members(id, !self.open.is_begun, &mut self.open.members);
        self.open.is_begun = true;
        match row {
            Some(row) => {
                for member in &mut self.open.members[start..] {
                    let value = value(batch, member.column, row).ok_or_else(|| lost(id))?;
                    let images = self.pack.images.as_ref().filter(|images| images.field == member.column);
                    let made = match images {
                        Some(images) => images.make(value, &mut self.scratch),
                        None => Ok(value),
                    };
                    match made {
                        Ok(made) => names.fill(member, made),
                        Err(error) => self.open.failed = self.open.failed.take().or(Some(error)),
                    }
                }
            }
            None => self.open.failed = self.open.failed.take().or(error),
        }
        if id.0 + 1 == self.range.end || names.begins(id.0 + 1) { self.end(id) } else { Ok(()) }
    }

    /// Writes the sample that is complete.
    fn end(&mut self, id: SampleId) -> Result<()> {
        let Open { mut members, failed, .. } = std::mem::take(&mut self.open);
        let mut key = Vec::new();
        self.pack.names.key(id, &mut key);
        let failed = failed.or_else(|| members.is_empty().then(|| without_fields(id)));
        if let Some(error) = failed {
            self.job.add_failed(&key, id, error)?;
        } else {
            self.pack.names.finish(&key, &mut members)?;
            arrange(self.pack.options.align, self.archive.position(), &mut members);
            for member in &members {
                self.archive.push(member)?;
                self.written.members += 1;
                self.written.payload_bytes += member.len;
                self.written.padding_bytes += member.padding;
                self.job.add_bytes(member.len);
            }
            self.written.samples += 1;
        }
        self.job.add_sample();
        // The next sample reuses its memory.
        members.clear();
        self.open.members = members;
        Ok(())
    }
}

/// The samples of a batch, good ones (with their row) and others (with why), in the order of the source.
pub(super) fn for_each(
    batch: &Batch,
    mut each: impl FnMut(SampleId, Option<usize>, Option<Error>) -> Result<()>,
) -> Result<()> {
    let mut good = batch.ids.iter().enumerate().peekable();
    let mut failed = batch.failed.iter().peekable();
    loop {
        let id = match (good.peek(), failed.peek()) {
            (Some(&(_, &id)), Some(other)) => id.min(other.id),
            (Some(&(_, &id)), None) => id,
            (None, Some(other)) => other.id,
            (None, None) => return Ok(()),
        };
        let row = good.next_if(|(_, next)| **next == id).map(|(row, _)| row);
        let error = failed.next_if(|next| next.id == id).map(|failed| failed.error.clone());
        each(id, row, error)?;
    }
}

/// The value of a column in a row.
pub(super) fn value(batch: &Batch, column: usize, row: usize) -> Option<Filling> {
    match &batch.columns.get(column)?.data {
        Data::I64(numbers) => numbers.get(row).copied().map(Filling::Number),
        Data::Views(views) => views.get(row).cloned().map(Filling::Bytes),
        _ => None,
    }
}

pub(super) fn lost(id: SampleId) -> Error {
    Error::new(ErrorKind::Internal, format!("sample {} was read and has no value: this is a bug of uringload", id.0))
}

fn without_fields(id: SampleId) -> Error {
    let what = format!("sample {} has none of the chosen fields", id.0);
    Error::new(ErrorKind::Corrupt, what).with_remedy("choose more fields, or leave such samples out (skip)")
}

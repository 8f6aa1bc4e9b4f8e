//! The index of an archive: the result of a scan.

use super::header::BLOCK_BYTES;
use super::is_plain;
use super::keys::Grouper;
use super::packed::{self, Stream};
use super::scan::{Entry, Sink, scan};
use crate::compression::Coding;
use crate::dataset::SkipReason;
use crate::index::indexes::{Found, Indexing, Pass};
use crate::index::packed::in_decoded;
use crate::index::sidecar::Sidecar;
use crate::index::window::{Source, Stored};
use uringload_core::{Error, ErrorKind, Result};

/// See the module documentation.
pub(super) struct Archives;

impl Indexing for Archives {
    fn name(&self) -> &'static str {
        "tar"
    }

    /// Refuses an index that is wrong about the archive's compression. If nothing hints at compression, this reads no
    /// byte of the archive.
    fn refuses(&self, pass: &Pass<'_>, index: &Sidecar) -> Result<Option<String>> {
        let told = index.decoded().and_then(|(coding, _)| coding.compression());
        if told.is_none() && is_plain(pass.path) {
            return Ok(None);
        }
        let found = packed::detect(pass.plain())?;
        Ok((found != told).then(|| "it is the index of a file that is compressed otherwise".to_owned()))
    }

    fn look(&self, pass: &Pass<'_>) -> Result<Found> {
        Ok(match packed::detect(pass.plain())? {
            Some(compression) => look_into(pass, Coding::Packed(compression)),
            None => look_through(pass),
        })
    }
}

/// Scans a plain archive.
fn look_through(pass: &Pass<'_>) -> Found {
    let mut collector = Collector::new(Some(pass));
    let result = scan(&mut pass.headers(), &mut collector);
    if collector.is_sparse {
        return look_into(pass, Coding::Expanded(None));
    }
    let builder = collector.into_grouper(result.is_ok()).builder;
    Found { builder, bytes_read: result.as_ref().map_or(0, |&bytes| bytes), damage: result.err() }
}

/// Scans the decoded content of an archive that is compressed, or has sparse members.
fn look_into(pass: &Pass<'_>, coding: Coding) -> Found {
    let mut collector = Collector::new(None);
    let mut stream = Stream::new(coding, Stored { source: pass.source, at: 0, passed: |at| pass.passed(at) });
    let result = stream.as_mut().map_err(|error| error.clone()).and_then(|stream| scan(stream, &mut collector));
    if let (true, Coding::Packed(compression)) = (collector.is_sparse, coding) {
        return look_into(pass, Coding::Expanded(Some(compression)));
    }
    // Reads past the end of the archive, too: readers need the total length, and checksums are at the very end.
    let len = match (stream, &result) {
        (Ok(mut stream), _) if !stream.is_broken() => stream.reach(u64::MAX),
        (_, Err(error)) => Err(error.clone()),
        (_, Ok(_)) => Err(Error::new(ErrorKind::Internal, "a broken stream was read to its end")),
    };
    let damage = result.and_then(|_| len.clone()).err().map(in_decoded);
    let grouper = match len {
        Ok(len) => {
            let mut grouper = collector.into_grouper(damage.is_none());
            grouper.builder.decoded(coding, len);
            grouper
        }
        // Every sample needs the whole archive decoded, so none of them can be read.
        Err(_) => Grouper::new(BLOCK_BYTES as u32),
    };
    Found { builder: grouper.builder, bytes_read: pass.size, damage }
}

/// Collects what a scan finds.
struct Collector<'a> {
    grouper: Grouper,
    left_out: Vec<(SkipReason, u64, Vec<u8>)>,
    /// Whether the scan ended at a sparse member.
    is_sparse: bool,
    /// Set if the offsets of the scan are those of the file.
    pass: Option<&'a Pass<'a>>,
}

impl<'a> Collector<'a> {
    fn new(pass: Option<&'a Pass<'a>>) -> Collector<'a> {
        Collector { grouper: Grouper::new(BLOCK_BYTES as u32), left_out: Vec::new(), is_sparse: false, pass }
    }

    /// The samples that were found; the archive may be incomplete.
    fn into_grouper(self, is_whole: bool) -> Grouper {
        let Collector { mut grouper, left_out, .. } = self;
        if !is_whole {
            // The current sample may lack members after the damage.
            grouper.drop_open();
        }
        for (reason, count, first) in left_out {
            grouper.builder.left_out(reason.code(), count, &first);
        }
        grouper
    }
}

impl Sink for Collector<'_> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<(), String> {
        if let Some(reason) = self.grouper.push(entry.name, entry.offset, entry.len)? {
            self.skip(reason, entry.name);
        }
        Ok(())
    }

    fn cut(&mut self, name: &[u8]) {
        self.grouper.end_before(name);
    }

    fn skip(&mut self, reason: SkipReason, name: &[u8]) {
        match self.left_out.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, count, _)) => *count += 1,
            None => self.left_out.push((reason, 1, name.to_vec())),
        }
    }

    fn sparse(&mut self) {
        self.is_sparse = true;
    }

    fn end(&mut self) {
        self.grouper.flush();
    }

    fn passed(&mut self, offset: u64) {
        if let Some(pass) = self.pass {
            pass.passed(offset);
        }
    }
}

//! The index of a file of records: the result of a scan.

use super::frame::{HEADER_BYTES, Header, compression, scan, scan_decoded};
use crate::compression::Compression;
use crate::index::indexes::{Found, Indexing, Pass};
use crate::index::sidecar::{Builder, Member};
use crate::index::window::{Source, Stored};
use uringload_core::{Error, Result};

/// See the module documentation.
pub(super) struct Frames;

impl Indexing for Frames {
    fn name(&self) -> &'static str {
        "tfrecord"
    }

    fn look(&self, pass: &Pass<'_>) -> Result<Found> {
        let mut head: Header = [0; HEADER_BYTES as usize];
        let have = pass.plain().read_at_least(&mut head, 0, HEADER_BYTES as usize)?;
        match compression(&head[..have]) {
            Ok(None) => Ok(look_through(pass)),
            Ok(Some(compression)) => look_into(pass, compression),
            // A file of another format has no records before the damage.
            Err(damage) => Ok(Found { builder: Builder::new(1), bytes_read: 0, damage: Some(damage) }),
        }
    }
}

/// Scans a file of plain records.
fn look_through(pass: &Pass<'_>) -> Found {
    let mut records = Records::new();
    let result = scan(&mut pass.headers(), |offset, len| {
        records.push(offset, len);
        pass.passed(offset);
    });
    Found { builder: records.builder, bytes_read: result.as_ref().map_or(0, |&bytes| bytes), damage: result.err() }
}

/// Scans the decoded content of a compressed file.
fn look_into(pass: &Pass<'_>, compression: Compression) -> Result<Found> {
    let mut records = Records::new();
    let stored = Stored { source: pass.source, at: 0, passed: |at| pass.passed(at) };
    let decoded = scan_decoded(stored, compression, |offset, len| records.push(offset, len))
        .map_err(|error| Error::io("cannot read", error))?;
    records.builder.decoded(compression, decoded.bytes);
    Ok(Found { builder: records.builder, bytes_read: pass.size, damage: decoded.damage })
}

/// An index under construction.
struct Records {
    builder: Builder,
    column: u16,
}

impl Records {
    fn new() -> Records {
        let mut builder = Builder::new(1);
        let column = builder.column("record").unwrap_or(0);
        Records { builder, column }
    }

    fn push(&mut self, offset: u64, len: u64) {
        // Keys are derived from the sample numbers.
        self.builder.push(b"", &mut [Member { column: self.column, offset, len }]);
    }
}

//! The file of a shard while its index is made: bytes that are read of it, and its table of offsets.

use crate::error::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A file while its index is made.
#[derive(Debug)]
pub(in crate::dataset) struct OpenFile {
    file: File,
    pub(in crate::dataset) path: PathBuf,
    pub(in crate::dataset) size: u64,
}

impl OpenFile {
    /// Opens a regular file: a FIFO would wait for somebody to write to it.
    pub(in crate::dataset) fn open(path: PathBuf) -> Result<OpenFile> {
        let missing = |source: io::Error| {
            let error = Error::io("cannot open the shard", source).with_file(&path);
            match error.kind() {
                ErrorKind::NotFound => error.with_remedy("bring the shard back, or make the index anew"),
                _ => error,
            }
        };
        let metadata = std::fs::metadata(&path).map_err(missing)?;
        if !metadata.is_file() {
            return Err(Error::new(ErrorKind::WrongFileType, "a shard is no regular file:").with_file(path));
        }
        let file = File::open(&path).map_err(missing)?;
        Ok(OpenFile { file, size: metadata.len(), path })
    }

    /// Whether it is as long as an index says.
    pub(in crate::dataset) fn check_size(&self, listed: u64) -> Result<()> {
        if self.size == listed {
            return Ok(());
        }
        let kind = if self.size < listed { ErrorKind::Truncated } else { ErrorKind::Corrupt };
        let doing = format!("the index says {listed} bytes, and there are {} in", self.size);
        let remedy = "copy the shard again, or make the index anew";
        Err(Error::new(kind, doing).with_file(&self.path).with_offset(self.size.min(listed)).with_remedy(remedy))
    }

    /// Fills `into` from `offset` on.
    pub(in crate::dataset) fn read(&self, into: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            let doing = format!("{} bytes are to be read behind the end of", into.len());
            return Err(Error::new(ErrorKind::Truncated, doing).with_file(&self.path).with_offset(offset));
        }
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|source| Error::io("cannot read", source).with_file(&self.path).with_offset(offset))
    }

    /// What is wrong at a place.
    pub(in crate::dataset) fn corrupt(&self, doing: impl Into<Cow<'static, str>>, offset: u64) -> Error {
        Error::new(ErrorKind::Corrupt, doing).with_file(&self.path).with_offset(offset)
    }

    /// Reads `u32 N; u32 offsets[N + 1]`, little endian, from the file's beginning. The offsets ascend, begin behind
    /// the table and end inside the file; N is `samples`.
    pub(in crate::dataset) fn read_offsets(&self, samples: u64) -> Result<Box<[u32]>> {
        let mut head = [0; 4];
        self.read(&mut head, 0)?;
        let count = u64::from(u32::from_le_bytes(head));
        if count != samples {
            return Err(self.corrupt(format!("the index says {samples} samples, and the head {count}, of"), 0));
        }
        let table_end = OFFSETS_AT + 4 * (count + 1);
        if table_end > self.size {
            let doing = format!("a table of {count} samples does not fit into the {} bytes of", self.size);
            return Err(Error::new(ErrorKind::Truncated, doing).with_file(&self.path).with_offset(self.size));
        }
        // Not more than the file, which has the table.
        let mut offsets = Vec::with_capacity((count + 1) as usize);
        let mut piece = vec![0; PIECE_BYTES.min((table_end - OFFSETS_AT) as usize)];
        let mut at = OFFSETS_AT;
        let mut least = table_end;
        while at < table_end {
            let len = piece.len().min((table_end - at) as usize);
            self.read(&mut piece[..len], at)?;
            for bytes in piece[..len].chunks_exact(4) {
                let offset = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let place = OFFSETS_AT + 4 * offsets.len() as u64;
                if u64::from(offset) < least {
                    let doing = format!("sample {} begins at {offset}, before {least}, in", offsets.len());
                    return Err(self.corrupt(doing, place));
                }
                if u64::from(offset) > self.size {
                    let doing = format!("offset {offset} lies behind the end ({} bytes) of", self.size);
                    return Err(self.corrupt(doing, place));
                }
                least = offset.into();
                offsets.push(offset);
            }
            at += len as u64;
        }
        Ok(offsets.into_boxed_slice())
    }
}

/// Where the table of offsets begins.
const OFFSETS_AT: u64 = 4;

/// Bytes of a table that are read at once: a multiple of 4.
const PIECE_BYTES: usize = 256 << 10;

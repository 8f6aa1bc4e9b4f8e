//! Files that are compressed as a whole: how they show it, and how each is decoded as a unit.

use crate::compression::Compression;
use crate::dataset::{FileId, FileTable, Span};
use crate::index::window::{Plain, Source};
use bytes::Bytes;
use std::io;
use uringload_core::{Error, ErrorKind, Result};

/// A compressed file.
#[derive(Debug)]
pub(crate) struct PackedFile {
    pub(crate) file: FileId,
    pub(crate) compression: Compression,
    pub(crate) decoded_bytes: u64,
    /// Whether something follows that cannot be read.
    pub(crate) is_cut: bool,
}

impl PackedFile {
    /// Where its bytes are stored: all of the file.
    pub(crate) fn stored(&self, files: &FileTable) -> Span {
        Span { file: self.file, offset: 0, len: files.size(self.file) }
    }

    /// Decodes the file, all bytes of which are in `stored`, into `out`; returns its length.
    ///
    /// # Errors
    /// `Corrupt` where that fails, or where it has another length than the index says.
    pub(crate) fn decode(&self, files: &FileTable, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let PackedFile { file, compression, decoded_bytes, is_cut } = self;
        let stored = stored.first().map_or(&[][..], |stored| &stored[..]);
        // Fits: the caller has allocated this much.
        let whole = (*decoded_bytes as usize).min(out.len());
        let decoded = if *is_cut {
            // What follows cannot be decoded.
            compression.reader(stored).and_then(|mut reader| reader.read_exact(&mut out[..whole])).map(|()| whole)
        } else {
            compression.decode(stored, &mut out[..whole])
        };
        match decoded {
            Ok(bytes) if bytes as u64 == *decoded_bytes => Ok(bytes),
            Ok(bytes) => {
                let what = format!("the file decodes to {bytes} bytes, and its index says {decoded_bytes}");
                Err(Error::new(ErrorKind::Corrupt, what).with_path(files.path(*file)).with_offset(0))
            }
            Err(error) => {
                let what = format!("cannot decode the {} stream", compression.name());
                let error = Error::new(ErrorKind::Corrupt, what).with_source(error);
                Err(error.with_path(files.path(*file)).with_offset(0))
            }
        }
    }
}

/// The first bytes by which [`detect`] recognizes a compression.
const HEAD_BYTES: usize = 6;

/// How a file is compressed that holds no bytes which begin like that otherwise. Names are not reliable.
///
/// # Errors
/// `Io`; `Unavailable` for a compression that is not built in.
pub(crate) fn detect(mut file: Plain<'_>) -> Result<Option<Compression>> {
    let mut head = [0; HEAD_BYTES];
    let have = file.read_at_least(&mut head, 0, HEAD_BYTES)?;
    let found = Compression::of_head(&head[..have]);
    found.map_or(Ok(()), Compression::check)?;
    Ok(found)
}

/// The error for a file, which is a `kind` of file ("archive"), that cannot be decoded.
pub(crate) fn undecodable(kind_of_file: &str, compression: Compression, error: io::Error) -> Error {
    // A failed system call is not the file's fault.
    if error.raw_os_error().is_some() {
        return Error::io("cannot read", error);
    }
    let kind = match error.kind() {
        io::ErrorKind::UnexpectedEof => ErrorKind::Truncated,
        io::ErrorKind::OutOfMemory => ErrorKind::MemoryLimit,
        _ => ErrorKind::Corrupt,
    };
    let what = format!("the {kind_of_file} cannot be decompressed ({}) to its end", compression.name());
    Error::new(kind, what).with_source(error).with_remedy("the file was cut short or damaged: copy it again")
}

/// Adds to an error that its offset counts decoded bytes.
pub(crate) fn in_decoded(error: Error) -> Error {
    let place = "the offset counts decoded bytes";
    let remedy = error.remedy().map_or_else(|| place.to_owned(), |remedy| format!("{remedy}; {place}"));
    error.with_remedy(remedy)
}

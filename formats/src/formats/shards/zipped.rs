//! Shards that are decoded as a whole or some samples at a time: what their units are, and how samples are cut from
//! them.

use super::file::{OFFSETS_AT, OpenFile};
use crate::compression::{Compression, ZstdSamples, zstd_content_bytes};
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::Path;
use uringload_core::{Error, ErrorKind, Result};

/// What an index says about a shard that is compressed as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Zipped {
    pub(crate) compression: Compression,
    /// Name of the file that it decodes to, relative to the folder of the index.
    pub(crate) raw_name: String,
    /// Size of that file.
    pub(crate) raw_bytes: u64,
}

/// A shard that is one unit. It decodes to the same content as an uncompressed shard.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(super) coding: Coding,
    /// Number of samples according to its header.
    pub(crate) items: u64,
    /// Decoded bytes: exactly, or at most.
    pub(super) decoded: u64,
    /// Where samples begin and the bytes of each, if the header does not cut them.
    pub(super) blocks: Option<(u64, u64)>,
}

/// How a shard that is one unit is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As one stream.
    File(Compression),
    /// As a header with the offsets of Zstandard streams, one for each sample.
    Samples,
}

impl Whole {
    /// A shard that an index lists as `zipped`, with `items` samples according to its header. Reads nothing from it.
    ///
    /// # Errors
    /// `Corrupt` for an impossible decoded size: more than 32-bit offsets can reach, less than a header, or more than
    /// the compression can make from a file of that size. A possible size is still only a claim: `decode` returns
    /// exactly that many bytes or fails.
    pub(crate) fn zipped(file: &OpenFile<'_>, zipped: &Zipped, items: u64) -> Result<Whole> {
        let Zipped { compression, raw_bytes, .. } = *zipped;
        let wrong = |what: String| Error::new(ErrorKind::Corrupt, what).with_path(&file.path);
        if raw_bytes < head_bytes(items) {
            return Err(wrong(format!("the index says {raw_bytes} decoded bytes, too few for {items} samples")));
        }
        let most = most_decoded(compression, file.size);
        if raw_bytes > most {
            let what = format!(
                "the index says {raw_bytes} decoded bytes, and the {} of the file can be {most} at most",
                file.size
            );
            return Err(wrong(what));
        }
        Ok(Whole { coding: Coding::File(compression), items, decoded: raw_bytes, blocks: None })
    }

    /// A shard of `items` samples, each compressed on its own. They decode to at most `bytes`.
    pub(crate) fn of_samples(file: &OpenFile<'_>, items: u64, bytes: u64) -> Whole {
        let bytes = bytes.min(most_decoded(Compression::Zstd, file.size));
        let decoded = head_bytes(items).saturating_add(bytes).min(u32::MAX.into());
        Whole { coding: Coding::Samples, items, decoded, blocks: None }
    }

    /// The most bytes that a Zstandard stream of `stored` bytes can decode to.
    pub(crate) fn most_decoded_of_zstd(stored: u64) -> u64 {
        most_decoded(Compression::Zstd, stored)
    }

    /// The same shard with blocks of `bytes` as samples.
    pub(crate) fn in_blocks(self, bytes: u64) -> Whole {
        Whole { blocks: Some((head_bytes(self.items), bytes)), ..self }
    }

    /// Decoded bytes up to the end of the header.
    pub(crate) fn head_bytes(&self) -> u64 {
        head_bytes(self.items)
    }

    /// Bytes of all samples, by the index; an upper bound if each is compressed on its own.
    pub(super) fn bytes(&self) -> u64 {
        self.decoded.saturating_sub(self.head_bytes())
    }

    /// For humans: "zstd shards".
    pub(super) fn packing(&self) -> String {
        match self.coding {
            Coding::File(compression) => format!("{} shards", compression.name()),
            Coding::Samples => "shards of zstd samples".to_owned(),
        }
    }

    /// The place of a sample in the decoded shard; `None` if `decoded` has no such sample.
    pub(super) fn range(&self, number: u64, decoded: &[u8]) -> Option<Range<u64>> {
        if let Some((start, bytes)) = self.blocks {
            let start = number.checked_mul(bytes)?.checked_add(start)?;
            return Some(start..start.checked_add(bytes)?);
        }
        let at = usize::try_from(number.checked_mul(4)?.checked_add(OFFSETS_AT)?).ok()?;
        let ends = decoded.get(at..at.checked_add(8)?)?;
        let of = |at: usize| u64::from(u32::from_le_bytes([ends[at], ends[at + 1], ends[at + 2], ends[at + 3]]));
        Some(of(0)..of(4))
    }

    /// Decodes the file into `out`; the result still needs to be checked.
    pub(super) fn decode(&self, path: &Path, stored: &[u8], out: &mut [u8]) -> Result<usize> {
        let Coding::File(compression) = self.coding else { return decode_samples(path, self.items, stored, out) };
        let bytes = decode_stream(compression, path, 0, stored, out)?;
        if bytes < out.len() {
            let what = format!("the file decodes to {bytes} bytes, and the index says {}", out.len());
            return Err(Error::new(ErrorKind::Corrupt, what).with_path(path).with_offset(0).with_remedy(REMEDY));
        }
        Ok(bytes)
    }

    /// The beginning of the decoded shard, and the place of its first sample in it.
    pub(super) fn first(&self, file: OpenFile<'static>) -> Result<(OpenFile<'static>, Range<u64>)> {
        match self.coding {
            Coding::File(compression) => {
                let stored = 0..file.size;
                let decoded = stream(file, compression, stored, self.decoded)?;
                let first = first_offsets(&decoded, self.items)?;
                Ok((decoded, first))
            }
            Coding::Samples => {
                let stored = first_offsets(&file, self.items)?;
                let most = self.bytes();
                Ok((stream(file, Compression::Zstd, stored, most)?, 0..most))
            }
        }
    }
}

/// A shard that stores several samples at a time as a Zstandard stream.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Samples per frame, except the last; at least 1.
    pub(crate) rows: u64,
    /// Where samples begin in the decoded frames end to end, and where the last one ends: ascending from 0.
    pub(crate) offsets: Box<[u32]>,
    /// They are inside the file, and there are exactly enough for all samples.
    pub(crate) frames: Box<[Frame]>,
}

/// Where a frame is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) at: u64,
    pub(crate) len: u32,
}

impl Frames {
    /// The range of a decoded frame within all decoded frames.
    pub(crate) fn decoded(&self, frame: usize) -> Range<u64> {
        let last = self.offsets.len() as u64 - 1;
        let of = |number: u64| u64::from(self.offsets[number.min(last) as usize]);
        of(frame as u64 * self.rows)..of((frame as u64 + 1) * self.rows)
    }

    /// The frame of a sample.
    pub(super) fn frame(&self, number: u64) -> usize {
        (number / self.rows) as usize
    }

    /// The range of a sample within all decoded frames.
    pub(super) fn range(&self, number: u64) -> Range<u64> {
        self.offsets[number as usize].into()..self.offsets[number as usize + 1].into()
    }

    /// Decodes a frame into `out`, which has exactly its decoded length.
    pub(super) fn decode(&self, frame: usize, path: &Path, stored: &[u8], out: &mut [u8]) -> Result<usize> {
        let at = self.frames[frame].at;
        let bytes = decode_stream(Compression::Zstd, path, at, stored, out)?;
        if bytes < out.len() {
            let what = format!("frame {frame} decodes to {bytes} bytes, and the head says {}", out.len());
            return Err(Error::new(ErrorKind::Corrupt, what).with_path(path).with_offset(at).with_remedy(REMEDY));
        }
        Ok(bytes)
    }

    /// Like [`Whole::first`], for the first frame.
    pub(super) fn first(&self, file: OpenFile<'static>) -> Result<(OpenFile<'static>, Range<u64>)> {
        let Frame { at, len } = self.frames[0];
        let stream = stream(file, Compression::Zstd, at..at + u64::from(len), self.decoded(0).end)?;
        Ok((stream, self.range(0)))
    }
}

/// Bytes of `u32 N; u32 offsets[N + 1]`. No index lists more than 2^32 samples.
fn head_bytes(items: u64) -> u64 {
    OFFSETS_AT + 4 * (items + 1)
}

/// The most bytes that `stored` bytes can decode to, judging by the compression alone; never more than 32-bit offsets
/// can reach. A claimed length is checked against this before it counts against the memory limit.
///
/// Deflate: 258 bytes from 2 bits (RFC 1951, a match whose two codes have one bit each). Snappy: 64 bytes from 3, a
/// copy; the length before them takes more than it gives. Zstandard: a block of 128 KiB from 4 bytes (RFC 8878,
/// 3.1.1.2, RLE). bzip2 makes 900 000 bytes, in which each run of 5 becomes 259, from a block of at least 14 bytes;
/// Brotli makes 16 MiB from a meta-block of at least 4: neither bound matters for a file of more than some hundred
/// bytes.
fn most_decoded(compression: Compression, stored: u64) -> u64 {
    let ratio = match compression {
        Compression::Gzip | Compression::Zlib | Compression::Deflate => 1032,
        Compression::Snappy => 22,
        Compression::Zstd => 32 << 10,
        Compression::Bzip2 | Compression::Brotli => 4 << 20,
    };
    stored.saturating_mul(ratio).min(u32::MAX.into())
}

/// A stream of `most` bytes, decoded from the bytes at `stored` of a file.
fn stream(
    file: OpenFile<'static>,
    compression: Compression,
    stored: Range<u64>,
    most: u64,
) -> Result<OpenFile<'static>> {
    let path = file.path.clone();
    let failed = |source| Error::io("cannot read", source).with_path(&path).with_offset(stored.start);
    let Some(reader) = file.into_reader(stored.start) else {
        return Err(Error::new(ErrorKind::Internal, "what is decoded was to be decoded again").with_path(&path));
    };
    let mut stored_bytes = reader.take(stored.end - stored.start);
    let reader: Box<dyn Read> = match compression {
        // Snappy has no stream format. `most` was checked against what the file can decode to.
        Compression::Snappy => {
            let (mut bytes, mut out) = (Vec::new(), vec![0; usize::try_from(most).unwrap_or(usize::MAX)]);
            stored_bytes.read_to_end(&mut bytes).map_err(failed)?;
            let len = decode_stream(compression, &path, stored.start, &bytes, &mut out)?;
            out.truncate(len);
            Box::new(std::io::Cursor::new(out))
        }
        _ => compression.reader(BufReader::new(stored_bytes)).map_err(failed)?,
    };
    Ok(OpenFile::stream(path, most, reader))
}

/// The place of the first of `items` samples, according to a shard's header.
fn first_offsets(file: &OpenFile<'_>, items: u64) -> Result<Range<u64>> {
    file.check_count(items, 0)?;
    let (start, end) = (file.number(OFFSETS_AT)?.into(), file.number(OFFSETS_AT + 4)?.into());
    if start < head_bytes(items) || end < start || end > file.size {
        return Err(file.corrupt(format!("sample 0 begins at {start} and ends at {end}"), OFFSETS_AT));
    }
    Ok(start..end)
}

/// Decodes one stream, which begins at offset `at` of the file.
fn decode_stream(compression: Compression, path: &Path, at: u64, stored: &[u8], out: &mut [u8]) -> Result<usize> {
    compression.decode(stored, out).map_err(|source| undecodable(compression, path, at).with_source(source))
}

fn undecodable(compression: Compression, path: &Path, at: u64) -> Error {
    Error::new(ErrorKind::Corrupt, format!("cannot decode ({})", compression.name()))
        .with_path(path)
        .with_offset(at)
        .with_remedy(REMEDY)
}

/// Restores a shard whose samples were compressed one by one.
fn decode_samples(path: &Path, items: u64, stored: &[u8], out: &mut [u8]) -> Result<usize> {
    let ends = OpenFile::stored(path.to_path_buf(), stored).read_offsets(items)?;
    let wrong = |what: &'static str| Error::new(ErrorKind::Internal, what).with_path(path);
    let Some((head, mut rest)) =
        usize::try_from(head_bytes(items)).ok().and_then(|head| out.split_at_mut_checked(head))
    else {
        return Err(wrong("there is no room for the head"));
    };
    let mut table = head.chunks_exact_mut(4);
    let mut put = |number: u32| {
        if let Some(place) = table.next() {
            place.copy_from_slice(&number.to_le_bytes());
        }
    };
    // Fits: a decoded shard has at most 2^32 - 1 bytes.
    let start = head_bytes(items) as u32;
    let mut end = start;
    put(items as u32);
    put(start);
    let mut decoder =
        ZstdSamples::new().map_err(|source| undecodable(Compression::Zstd, path, 0).with_source(source))?;
    for (number, pair) in ends.windows(2).enumerate() {
        let sample = &stored[pair[0] as usize..pair[1] as usize];
        let room = rest.len();
        // Frames state their length. If one does not, the decoder notices that there is no room.
        if let Some(bytes) = zstd_content_bytes(sample)
            && bytes > room as u64
        {
            let what = format!("sample {number} has {bytes} bytes, and {room} are left of those that the index allows");
            return Err(Error::new(ErrorKind::Corrupt, what)
                .with_path(path)
                .with_offset(pair[0].into())
                .with_remedy("make chunk_bytes in the config of index.json as large as the largest chunk decoded"));
        }
        let bytes = decoder
            .decode(sample, rest)
            .map_err(|source| undecodable(Compression::Zstd, path, pair[0].into()).with_source(source))?;
        rest = &mut rest[bytes..];
        end += bytes as u32;
        put(end);
    }
    Ok(end as usize)
}

/// What helps if a file cannot be decoded.
const REMEDY: &str = "copy the shard again, or make the index again";

//! Compressions of stored bytes, and decoders for them.

mod zstandard;

use std::io::{self, BufRead, Read};
use uringload_core::Result;
use uringload_core::not_built_in;

pub(super) use zstandard::{ZstdSamples, zstd_content_bytes};

/// A compression of whole files, or of chunks of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// RFC 1952; several consecutive members are one stream.
    Gzip,
    /// RFC 1950.
    Zlib,
    /// RFC 1951, without a header.
    Deflate,
    /// RFC 8878; several consecutive frames are one stream.
    Zstd,
    /// bzip2; several consecutive streams are one.
    Bzip2,
    /// RFC 7932.
    Brotli,
    /// The raw format of Snappy, not the framed one.
    Snappy,
}

/// How a whole file becomes the bytes that contain its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// It is decompressed.
    Packed(Compression),
    /// A tar archive, compressed or not, whose sparse members get their holes back.
    Expanded(Option<Compression>),
}

impl From<Compression> for Coding {
    fn from(compression: Compression) -> Coding {
        Coding::Packed(compression)
    }
}

impl Coding {
    pub(super) fn compression(self) -> Option<Compression> {
        match self {
            Coding::Packed(compression) => Some(compression),
            Coding::Expanded(compression) => compression,
        }
    }
}

impl Compression {
    /// The name, as in file extensions: "gz", "zlib", "deflate", "zstd", "bz2", "br", "snappy".
    pub const fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gz",
            Compression::Zlib => "zlib",
            Compression::Deflate => "deflate",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bz2",
            Compression::Brotli => "br",
            Compression::Snappy => "snappy",
        }
    }

    /// What this build lacks to decode it, in words, and the feature that it needs.
    const fn lacks(self) -> Option<(&'static str, &'static str)> {
        match self {
            Compression::Zstd if !cfg!(feature = "zstd") => Some(("Zstandard", "zstd")),
            Compression::Bzip2 if !cfg!(feature = "bzip2") => Some(("bzip2", "bzip2")),
            Compression::Brotli if !cfg!(feature = "brotli") => Some(("Brotli", "brotli")),
            Compression::Snappy if !cfg!(feature = "snappy") => Some(("Snappy", "snappy")),
            _ => None,
        }
    }

    /// Refuses what this build cannot decode: when a dataset is opened, not at its first sample.
    ///
    /// # Errors
    /// `Unavailable`, without a path.
    pub(super) fn check(self) -> Result<()> {
        self.lacks().map_or(Ok(()), |(what, feature)| Err(not_built_in(what, feature)))
    }

    /// The compression of a file that begins like this; `None` if there is none, or an unsupported one.
    pub(super) fn of_head(head: &[u8]) -> Option<Compression> {
        match *head {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            // A skippable frame, which some programs write first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
            // The level, then the digits of pi that begin a block, or those of its root that end a stream.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, ..] => {
                Some(Compression::Bzip2)
            }
            _ => None,
        }
    }

    /// Decodes all of `stored` into `out`; returns the number of decoded bytes.
    ///
    /// # Errors
    /// `InvalidData` or `UnexpectedEof` if `stored` is incomplete or not of this kind; `FileTooLarge` if it decodes to
    /// more bytes than fit into `out`.
    pub(super) fn decode(self, stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
        match self {
            #[cfg(feature = "snappy")]
            Compression::Snappy => {
                // The length comes first, and is checked before anything is decoded.
                if snap::raw::decompress_len(stored).map_err(io::Error::other)? > out.len() {
                    return Err(too_long(out));
                }
                snap::raw::Decoder::new().decompress(stored, out).map_err(io::Error::other)
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd => zstandard::decode(stored, out),
            _ => fill(&mut *self.reader(stored)?, out),
        }
    }

    /// Decodes `stored` as a stream.
    ///
    /// # Errors
    /// `Unsupported` for Snappy, which has no stream format, and for what is not built in; otherwise what the decoder
    /// reports about its memory.
    pub(super) fn reader<'a>(self, stored: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stored)),
            Compression::Zlib => Box::new(flate2::bufread::ZlibDecoder::new(stored)),
            Compression::Deflate => Box::new(flate2::bufread::DeflateDecoder::new(stored)),
            #[cfg(feature = "zstd")]
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(stored)?),
            #[cfg(feature = "bzip2")]
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(stored)),
            #[cfg(feature = "brotli")]
            Compression::Brotli => Box::new(brotli_decompressor::Decompressor::new(stored, BROTLI_BUFFER_BYTES)),
            // Snappy has no streams; the others are not built in, as was found when the dataset was opened.
            _ => {
                self.check().map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
                return Err(io::ErrorKind::Unsupported.into());
            }
        })
    }
}

/// Read-ahead of the Brotli decoder.
#[cfg(feature = "brotli")]
const BROTLI_BUFFER_BYTES: usize = 64 << 10;

/// Reads until `into` is full, the stream ends, or an error comes after what was read.
pub(super) fn read_full(stream: &mut dyn Read, into: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut have = 0;
    while have < into.len() {
        match stream.read(&mut into[have..]) {
            Ok(0) => break,
            Ok(bytes) => have += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (have, Some(error)),
        }
    }
    (have, None)
}

/// Reads a stream to its end, which must not be past that of `out`.
pub(super) fn fill(stream: &mut dyn Read, out: &mut [u8]) -> io::Result<usize> {
    let filled = match read_full(stream, out) {
        (_, Some(error)) => return Err(error),
        (filled, None) if filled < out.len() => return Ok(filled),
        (filled, None) => filled,
    };
    // At the end, the stream verifies its checksum, and excess bytes show up.
    match stream.read(&mut [0])? {
        0 => Ok(filled),
        _ => Err(too_long(out)),
    }
}

fn too_long(out: &[u8]) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("it decodes to more than the {} bytes that it should", out.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn text() -> Vec<u8> {
        (0..50_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect()
    }

    fn stored(compression: Compression, text: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::fast();
        match compression {
            Compression::Gzip => {
                let mut writer = flate2::write::GzEncoder::new(Vec::new(), level);
                writer.write_all(text).unwrap();
                writer.finish().unwrap()
            }
            Compression::Zlib => {
                let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), level);
                writer.write_all(text).unwrap();
                writer.finish().unwrap()
            }
            Compression::Deflate => {
                let mut writer = flate2::write::DeflateEncoder::new(Vec::new(), level);
                writer.write_all(text).unwrap();
                writer.finish().unwrap()
            }
            Compression::Zstd => zstd::stream::encode_all(text, 1).unwrap(),
            Compression::Bzip2 => {
                let mut writer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                writer.write_all(text).unwrap();
                writer.finish().unwrap()
            }
            Compression::Snappy => snap::raw::Encoder::new().compress_vec(text).unwrap(),
            Compression::Brotli => unreachable!("there is a vector of it"),
        }
    }

    const WRITABLE: [Compression; 6] = [
        Compression::Gzip,
        Compression::Zlib,
        Compression::Deflate,
        Compression::Zstd,
        Compression::Bzip2,
        Compression::Snappy,
    ];

    #[test]
    fn what_was_written_comes_back_and_nothing_else_is_believed() {
        let text = text();
        for compression in WRITABLE {
            let stored = stored(compression, &text);
            assert!(stored.len() < text.len(), "{compression:?}");
            let mut out = vec![0; text.len()];
            assert_eq!(compression.decode(&stored, &mut out).unwrap(), text.len(), "{compression:?}");
            assert!(out == text, "{compression:?}");
            let mut roomy = vec![0; text.len() + 100];
            assert_eq!(compression.decode(&stored, &mut roomy).unwrap(), text.len(), "{compression:?}: room to spare");
            let error = compression.decode(&stored, &mut out[..text.len() - 1]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{compression:?}: {error}");
            for cut in [stored.len() - 1, stored.len() / 2, 3] {
                assert!(compression.decode(&stored[..cut], &mut out).is_err(), "{compression:?} cut to {cut}");
            }
        }
    }

    #[test]
    fn streams_one_behind_the_other_are_one() {
        let text = text();
        for compression in [Compression::Gzip, Compression::Zstd, Compression::Bzip2] {
            let (first, second) = text.split_at(1000);
            let both = [stored(compression, first), stored(compression, second)].concat();
            let mut out = vec![0; text.len()];
            assert_eq!(compression.decode(&both, &mut out).unwrap(), text.len(), "{compression:?}");
            assert!(out == text, "{compression:?}");
        }
    }

    /// "hello" as an uncompressed meta-block and an empty last one, written by hand from RFC 7932, section 9.2.
    #[test]
    fn brotli() {
        let stored = [0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03];
        let mut out = [0; 8];
        assert_eq!(Compression::Brotli.decode(&stored, &mut out).unwrap(), 5);
        assert_eq!(&out[..5], b"hello");
        assert!(Compression::Brotli.decode(&stored[..6], &mut out).is_err());
        assert!(Compression::Brotli.decode(&stored, &mut out[..4]).is_err());
    }
}

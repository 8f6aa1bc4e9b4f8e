//! Zstandard, with more than the decoding of a stream. Without the feature everything here is `Unsupported`: the
//! formats have refused such files when they were opened.

use std::io;

#[cfg(feature = "zstd")]
pub(in crate::compression) use present::decode;
#[cfg(feature = "zstd")]
pub(crate) use present::{ZstdSamples, zstd_content_bytes};

#[cfg(not(feature = "zstd"))]
pub(crate) use absent::{ZstdSamples, zstd_content_bytes};

#[cfg(feature = "zstd")]
mod present {
    use super::io;
    use crate::compression::too_long;
    use zstd::bulk::Decompressor;
    use zstd::zstd_safe::{DCtx, get_error_name, get_frame_content_size, zstd_sys::ZSTD_ErrorCode};

    /// Decodes directly into the destination. A stream would allocate the window that the header claims, up to 128 MiB,
    /// and copy out of it.
    pub(in crate::compression) fn decode(stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
        let mut decoder = DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        // Error codes are negative numbers of the C library, as unsigned ones.
        decoder.decompress(out, stored).map_err(|code| {
            if code.wrapping_neg() == TOO_SMALL {
                too_long(out)
            } else {
                io::Error::new(io::ErrorKind::InvalidData, get_error_name(code))
            }
        })
    }

    /// Zstandard's error code for a destination that is too small.
    const TOO_SMALL: usize = ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize;

    /// What the first bytes of a frame say that it decodes to, if they do.
    pub(crate) fn zstd_content_bytes(head: &[u8]) -> Option<u64> {
        get_frame_content_size(head).ok().flatten()
    }

    /// A decoder for many frames, one after the other.
    pub(crate) struct ZstdSamples(Decompressor<'static>);

    impl ZstdSamples {
        pub(crate) fn new() -> io::Result<ZstdSamples> {
            Decompressor::new().map(ZstdSamples)
        }

        /// Decodes a frame to the beginning of `out`; returns its length.
        pub(crate) fn decode(&mut self, frame: &[u8], out: &mut [u8]) -> io::Result<usize> {
            self.0.decompress_to_buffer(frame, out)
        }
    }
}

#[cfg(not(feature = "zstd"))]
mod absent {
    use super::io;

    pub(crate) fn zstd_content_bytes(_head: &[u8]) -> Option<u64> {
        None
    }

    pub(crate) struct ZstdSamples(());

    impl ZstdSamples {
        pub(crate) fn new() -> io::Result<ZstdSamples> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn decode(&mut self, _frame: &[u8], _out: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

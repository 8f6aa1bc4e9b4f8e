//! What happens to values on their way to a batch.
//!
//! In the loader's threads: encoded images are decoded and augmented by a [`Chain`] ([`Builder::transform`]), and
//! closures make whatever they like ([`Builder::map`]). On a device: pixels are cropped, resized, flipped and
//! normalized, tokens become ids and labels; the kernels of a GPU and the host compute the same bytes.
//!
//! [`Builder::transform`]: crate::Builder::transform
//! [`Builder::map`]: crate::Builder::map

pub(crate) mod column;
pub(crate) mod images;
pub(crate) mod map;
pub(crate) mod tokens;
pub(crate) mod twin;

use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;

pub(crate) use column::{Output, Transform};
pub use images::{Crop, Images};
pub(crate) use map::{DecodeMemory, Map, MapScratch};
pub use map::{Input, MapOutput};
pub use tokens::Tokens;
pub use uringload_images::Chain;

fn refused(what: impl Into<Cow<'static, str>>, remedy: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}

/// Memory for `count` values of `bytes` bytes.
fn zeroed(count: usize, bytes: usize) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    let all = count.checked_mul(bytes).filter(|&all| memory.try_reserve_exact(all).is_ok());
    let Some(all) = all else {
        let what = format!("there is no memory for {count} values of {bytes} bytes");
        return Err(Error::new(ErrorKind::MemoryLimit, what).with_remedy("make smaller batches"));
    };
    memory.resize(all, 0);
    Ok(memory)
}

#[cfg(test)]
mod tests;

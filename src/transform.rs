//! Transforms values on their way to a batch.
//!
//! In the loader's threads: a [`Chain`] decodes and augments encoded images ([`Builder::transform`]), masks and boxes
//! [`Follow`] them ([`Builder::follow`]), batches are mixed ([`Builder::mix`]), closures make any value
//! ([`Builder::map`]), and parts of arrays of numbers are taken ([`Builder::array`]). On a device
//! ([`DeviceBuilder::on_device`]): pixels are cropped, resized, flipped and normalized, tokens become ids and labels;
//! the kernels of a GPU and the host compute the same bytes.
//!
//! [`Builder::array`]: crate::Builder::array
//! [`Builder::transform`]: crate::Builder::transform
//! [`Builder::follow`]: crate::Builder::follow
//! [`Builder::map`]: crate::Builder::map
//! [`Builder::mix`]: crate::Builder::mix
//! [`DeviceBuilder::on_device`]: crate::DeviceBuilder::on_device

pub(crate) mod array;
pub(crate) mod column;
pub(crate) mod follow;
pub(crate) mod images;
pub(crate) mod map;
pub(crate) mod mix;
pub(crate) mod numbers;
pub(crate) mod tokens;
pub(crate) mod twin;

use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;

pub use array::Array;
pub(crate) use array::Arrays;
pub use column::OnDevice;
pub(crate) use column::Output;
pub(crate) use follow::resolve;
pub use follow::{BoxFormat, Boxes, Follow, Mask};
pub use images::{Crop, Images};
pub(crate) use map::{DecodeMemory, Decoded, Map, MapScratch};
pub use map::{Input, MapOutput};
pub use mix::Mix;
pub(crate) use mix::{Mixer, is_integer, shares};
pub(crate) use numbers::Numbers;
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

//! What happens to values on their way to the tensors of a device batch: pixels are cropped, resized, flipped and
//! normalized, tokens become ids and labels. The kernels of a GPU and the host compute the same bytes.

pub(crate) mod column;
pub(crate) mod images;
pub(crate) mod tokens;
pub(crate) mod twin;

use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;

pub(crate) use column::{Output, Transform};
pub use images::{Crop, Images};
pub use tokens::Tokens;

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

//! What happens to values between their bytes and the tensors of a batch: pixels that are cut, resized, mirrored and
//! scaled, tokens that become ids and labels. The same bytes on a GPU, whose kernels do it, and without one, where
//! [`images_on_host`] and [`tokens_on_host`] do.

pub(crate) mod images;
pub(crate) mod tokens;
pub(crate) mod twin;

use crate::dataset::{DType, Field, Shape};
use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;

pub use images::{Crop, Images};
pub use tokens::Tokens;

/// What happens to a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Transform {
    /// Pixels become a tensor.
    Images(Images),
    /// Tokens become ids, and labels.
    Tokens(Tokens),
}

/// What a transform makes of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Element type.
    pub dtype: DType,
    /// Shape, without the batch. `Ragged`: a vector as long as the longest of the batch.
    pub shape: Shape,
}

impl Transform {
    /// What it makes of a sample of that column.
    ///
    /// # Errors
    /// `InvalidArgument` where it cannot be applied to the column, or not at all; says which column and what to do.
    #[doc(hidden)]
    pub fn check(&self, field: &Field) -> Result<Output> {
        match self {
            Transform::Images(images) => images.check(field),
            Transform::Tokens(tokens) => tokens.check(field),
        }
    }
}

impl From<Images> for Transform {
    fn from(images: Images) -> Transform {
        Transform::Images(images)
    }
}

impl From<Tokens> for Transform {
    fn from(tokens: Tokens) -> Transform {
        Transform::Tokens(tokens)
    }
}

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

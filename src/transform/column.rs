//! The transform of a column, of any kind.

use super::{Images, Tokens};
use crate::Result;
use crate::dataset::{DType, Field, Shape};

/// The transform of a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Transform {
    /// Pixels become a tensor.
    Images(Images),
    /// Tokens become ids, and labels.
    Tokens(Tokens),
}

/// The result of a transform for one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Element type.
    pub dtype: DType,
    /// Shape, without the batch. `Ragged`: a vector as long as the longest of the batch.
    pub shape: Shape,
}

impl Transform {
    /// The result for a sample of this column.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be applied to the column, or not at all; names the column and the remedy.
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

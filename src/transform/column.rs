//! What a device makes of a column, of any kind.

use super::{Images, Tokens};
use crate::Result;
use crate::dataset::{DType, Field, Shape};

/// What a device makes of a column: see [`DeviceBuilder::on_device`](crate::DeviceBuilder::on_device).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OnDevice {
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

impl OnDevice {
    /// The result for a sample of this column.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be applied to the column, or not at all; names the column and the remedy.
    #[doc(hidden)]
    pub fn check(&self, field: &Field) -> Result<Output> {
        match self {
            OnDevice::Images(images) => images.check(field),
            OnDevice::Tokens(tokens) => tokens.check(field),
        }
    }
}

impl From<Images> for OnDevice {
    fn from(images: Images) -> OnDevice {
        OnDevice::Images(images)
    }
}

impl From<Tokens> for OnDevice {
    fn from(tokens: Tokens) -> OnDevice {
        OnDevice::Tokens(tokens)
    }
}

//! What a plan first does with an image, as numbers: two passes of weights, which anything can apply that has the
//! pixels, such as a GPU. What comes out is what this crate makes, to the bit.

use crate::decode::{self, Decoding};
use crate::ready::Draw;
use crate::{Chain, Plan};

/// Which pixels of an axis make each pixel that comes out, and by what weights.
///
/// A level that comes out is `(sum of level * weight + 2^21) >> 22`, clamped to 0 and 255, in 32 bits with a sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taps {
    /// The first pixel of the source, for each that comes out.
    pub first: Vec<u32>,
    /// Where its weights end. They start where those before end, and those of the first pixel at 0.
    pub end: Vec<u32>,
    /// Of pixels of the source that follow each other. 2^22 is all of a pixel.
    pub weights: Vec<i32>,
}

/// A cut, a resize and mirrors: the columns of each row that is used are made first, and rows of what that makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Columns of the source, for each column that comes out.
    pub columns: Taps,
    /// Rows of the source, for each row that comes out.
    pub rows: Taps,
}

impl Plan {
    /// The plan as what it first does with the pixels, and the plan of what becomes of that: both in a row are this
    /// one, to the bit. `None` where it does not begin with a cut, a resize or a mirror, and where it shows what is
    /// beside the image, as [`Op::Pad`](crate::Op::Pad) does.
    ///
    /// ```
    /// use uringload_images::Chain;
    ///
    /// # fn main() -> uringload_core::Result<()> {
    /// let chain: Chain = "resize(256x256), random_crop(224), hflip, normalize(imagenet)".parse()?;
    /// let (passes, rest) = chain.draw(42, 0, 7, 375, 500)?.split().expect("it begins with a resize");
    /// assert_eq!((passes.rows.first.len(), passes.columns.first.len()), (224, 224));
    /// assert_eq!(rest.size(), (224, 224));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn split(&self) -> Option<(Passes, Plan)> {
        let view = self.first_view()?;
        let passes = view.passes()?;
        let (height, width) = view.output();
        Some((passes, self.behind_first(height, width)))
    }
}

impl Chain {
    /// [`Plan::split`] for a JPEG whose pixels something else decodes, as [`usual_jpeg`](crate::usual_jpeg) says.
    /// `None` also for one that is to be turned, and where no plan can be drawn.
    #[must_use]
    pub fn split_plan(&self, file: &[u8], how: &Decoding, draw: Draw) -> Option<(Passes, Plan)> {
        let (height, width) = decode::usual_upright(file, how)?;
        self.draw(draw.seed, draw.epoch, draw.sample, height, width).ok()?.split()
    }
}

//! From a file's bytes to a tensor in one call, which decodes only the visible part of a JPEG.

use crate::decode::{self, Decoded, Decoding, Format};
use crate::passes::Passes;
use crate::resample::Patch;
use crate::{Chain, Image, Output, Plan, Scratch, dimensions, refused};
use uringload_core::Result;

/// [`decode`](crate::decode), with memory that is kept for the next image.
///
/// # Errors
/// As [`decode`](crate::decode).
pub fn decode_with(bytes: &[u8], how: &Decoding, scratch: &mut Scratch) -> Result<Image> {
    decode::decode_in(bytes, how, &mut scratch.jpeg)
}

/// The arguments of a sample's random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draw {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the pass over the samples.
    pub epoch: u64,
    /// The sample's number.
    pub sample: u64,
}

impl Chain {
    /// Makes the tensor of an image's file: reads its header, draws the chain for its size, decodes what the chain
    /// looks at, and writes it to `out`, which has as many bytes as the tensor. [`Chain::size`] may give the tensor's
    /// size in advance; otherwise [`dimensions`] and [`Chain::draw`] do.
    ///
    /// ```
    /// use uringload_images::{Chain, Decoding, Draw, Scratch};
    ///
    /// # fn main() -> uringload_core::Result<()> {
    /// # let file = uringload_images::example_bmp();
    /// let chain: Chain = "random_resized_crop(224), hflip, normalize(imagenet)".parse()?;
    /// let mut tensor = vec![0; 3 * 224 * 224 * 4];
    /// let draw = Draw { seed: 42, epoch: 0, sample: 7 };
    /// let made = chain.ready(&file, &Decoding::default(), draw, &mut tensor, &mut Scratch::default())?;
    /// assert_eq!(made.shape(), [3, 224, 224]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`decode`](crate::decode), [`Chain::draw`] and [`Plan::run`].
    pub fn ready(
        &self,
        file: &[u8],
        how: &Decoding,
        draw: Draw,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Output> {
        let drawn = |height, width| self.draw(draw.seed, draw.epoch, draw.sample, height, width);
        if Format::of(file) == Some(Format::Jpeg) {
            let (height, width) = dimensions(file, how)?;
            return drawn(height, width)?.ready(file, how, out, scratch);
        }
        // Files of the other formats are always decoded whole.
        let image = decode_with(file, how, scratch)?;
        let plan = drawn(image.height(), image.width())?;
        plan.run(&image, out, scratch)?;
        Ok(plan.output(image.channels()))
    }
}

impl Chain {
    /// As [`ready`](Chain::ready), for a JPEG that something else has decoded: `image` has all of its pixels as they
    /// are stored, in the size that [`usual_jpeg`](crate::usual_jpeg) returned. It is turned here if necessary.
    ///
    /// # Errors
    /// `Corrupt` for an image of another size, and as [`Chain::draw`] and [`Plan::run`].
    pub fn ready_with(
        &self,
        (file, image): (&[u8], Image),
        how: &Decoding,
        draw: Draw,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Output> {
        let image = decode::jpeg_as_seen(file, image, how)?;
        let plan = self.draw(draw.seed, draw.epoch, draw.sample, image.height(), image.width())?;
        plan.run(&image, out, scratch)?;
        let output = plan.output(image.channels());
        scratch.jpeg.give(image);
        Ok(output)
    }

    /// [`Plan::split`] for a JPEG whose pixels something else decodes, as [`usual_jpeg`](crate::usual_jpeg) says.
    /// `None` also for one that must be turned, and if no plan can be drawn.
    #[must_use]
    pub fn split_plan(&self, file: &[u8], how: &Decoding, draw: Draw) -> Option<(Passes, Plan)> {
        let (height, width) = decode::usual_upright(file, how)?;
        self.draw(draw.seed, draw.epoch, draw.sample, height, width).ok()?.split()
    }
}

impl Plan {
    /// Makes the tensor of the file of an image that has the size for which the plan was drawn; of a JPEG, it decodes
    /// only what the plan looks at.
    ///
    /// With [`Decoding::exact`] the result is that of [`decode`](crate::decode) and [`Plan::run`], to the bit.
    ///
    /// # Errors
    /// As [`decode`](crate::decode) and [`Plan::run`].
    pub fn ready(&self, file: &[u8], how: &Decoding, out: &mut [u8], scratch: &mut Scratch) -> Result<Output> {
        let output = self.output(how.color.channels());
        if out.len() != output.bytes() {
            let what = format!("{} bytes are no {:?} of {}", out.len(), output.shape(), output.dtype);
            return Err(refused(what, format!("give {} bytes", output.bytes())));
        }
        let made = match Format::of(file) {
            Some(Format::Jpeg) => decode::jpeg_part(file, how, (self.source(), self.first_view()), &mut scratch.jpeg)?,
            _ => Decoded::whole(decode_with(file, how, scratch)?),
        };
        if made.divisor == 1 && made.place == (0, 0) && made.is_whole {
            self.run(&made.image, out, scratch)?;
        } else {
            let part = Patch { image: &made.image, place: made.place, divisor: made.divisor };
            self.run_part(part, out, scratch)?;
        }
        scratch.jpeg.give(made.image);
        Ok(output)
    }
}

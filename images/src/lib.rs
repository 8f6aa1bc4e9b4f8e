//! Images ready to train on: decoded, cut, resized, augmented and normalized. Bytes and numbers in, pixels out: this
//! crate opens no file but the library of libjpeg-turbo, starts no thread and needs no C.
//!
//! - [`decode`] makes pixels of a JPEG, PNG, WebP, BMP, GIF or TIFF, recognized by its content and not by its name.
//!   WebP, GIF and TIFF are features of their names, and `jpeg-encoder` is that of [`encode_jpeg`]; `codecs` is all
//!   four.
//! - [`Chain`] is a list of operations, with the names of torchvision and Albumentations, that is planned as a whole:
//!   only visible pixels are resampled, and normalized numbers are written once, to their final place.
//! - [`Chain::draw`] makes a [`Plan`] of one sample: a function of (seed, epoch, sample) alone. Images, masks and boxes
//!   follow it.
//! - [`mix`] has Mixup and CutMix over a batch; [`resize`], [`gaussian_blur`] and [`color`] are single operations.
//!
//! ```
//! use uringload_images::{Chain, Decoding, Scratch, decode};
//!
//! # fn main() -> uringload_core::Result<()> {
//! # let file = uringload_images::example_bmp();
//! let chain: Chain = "random_resized_crop(224), hflip, normalize(imagenet)".parse()?;
//! let image = decode(&file, &Decoding::default())?;
//! let plan = chain.draw(42, 0, 7, image.height(), image.width())?;
//! // [3, 224, 224] of f32.
//! let mut tensor = vec![0; plan.output(image.channels()).bytes()];
//! plan.run(&image, &mut tensor, &mut Scratch::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! Resampling, geometry and colours repeat Pillow's arithmetic; `docs/images.md` of the repository states the measured
//! difference of each operation, and where Pillow orders its passes differently.

#![forbid(unsafe_code)]

// In layer order: a module uses only modules above it (a test enforces it).
mod image;
pub mod color;
mod blur;
mod passes;
mod weights;
mod lanes;
mod resample;
mod view;
mod media;
mod decode;
mod encode;
mod tensor;
mod random;
pub mod mix;
mod warp;
mod auto;
mod op;
mod plan;
mod chain;
mod parse;
mod ready;

pub use auto::Policy;
pub use blur::gaussian_blur;
pub use chain::Chain;
pub use decode::{
    Color, Decoding, Format, Jpeg, JpegDecoder, Limits, decode, decoder, decoder_at, dimensions, usual_jpeg,
};
pub use encode::{encode_bmp, encode_jpeg};
pub use image::{Image, Region};
pub use media::Media;
pub use op::{Between, Erasing, Op, SIDE_MAX, Size};
pub use passes::{Passes, Taps};
pub use plan::{Plan, Rectangle, Scratch};
pub use random::Random;
pub use ready::{Draw, decode_with};
pub use resample::resize;
pub use tensor::{Elements, Output};
pub use weights::Filter;

use std::borrow::Cow;
use uringload_core::{Error, ErrorKind};

/// The error of an argument that cannot work.
fn refused(what: impl Into<Cow<'static, str>>, remedy: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}

/// A BMP of 2 x 1 pixels, for examples.
#[doc(hidden)]
#[must_use]
pub fn example_bmp() -> Vec<u8> {
    let mut file = b"BM\x3e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
    file.resize(54, 0);
    file.extend([0, 0, 255, 0, 255, 0, 0, 0]);
    file
}

/// The program of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

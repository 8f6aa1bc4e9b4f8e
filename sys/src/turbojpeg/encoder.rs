//! From pixels to a JPEG.

use super::decoder::{Instance, Pixels};
use super::{Library, TurboError, abi};
use std::ffi::c_int;

/// Longest side of a JPEG that libjpeg writes.
const SIDE_MAX: u32 = 65_500;

/// `TJSAMP_420` and `TJSAMP_GRAY`.
const SUBSAMPLING_420: c_int = 2;
const SUBSAMPLING_GRAY: c_int = 3;

/// Makes one JPEG after the other: baseline, 4:2:0 of colours, as Pillow writes them. It is of one thread at a time.
#[derive(Debug)]
pub struct Encoder {
    library: Library,
    instance: Option<Instance>,
}

impl Encoder {
    /// An encoder without memory, which the first image takes.
    #[must_use]
    pub fn new(library: Library) -> Encoder {
        Encoder { library, instance: None }
    }

    /// Encodes `height` rows of `width` pixels, `Rgb` or `Gray`, without gaps.
    ///
    /// # Errors
    /// Pixels of another number of bytes, sides beyond 65 500, and what libjpeg-turbo says.
    pub fn encode(
        &mut self,
        (height, width): (u32, u32),
        pixels: Pixels,
        from: &[u8],
        quality: u8,
    ) -> Result<Vec<u8>, TurboError> {
        let bytes = u64::from(height) * u64::from(width) * pixels.channels() as u64;
        let is_within = (1..=SIDE_MAX).contains(&height) && (1..=SIDE_MAX).contains(&width);
        if !is_within || bytes != from.len() as u64 || pixels == Pixels::Cmyk {
            return Err(TurboError::new(format!(
                "{} bytes cannot become a JPEG of {height} x {width} pixels ({pixels:?})",
                from.len()
            )));
        }
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => Instance::new(&self.library, abi::INIT_COMPRESS)?,
        };
        let subsampling = if pixels == Pixels::Gray { SUBSAMPLING_GRAY } else { SUBSAMPLING_420 };
        instance.set(abi::QUALITY, c_int::from(quality.clamp(1, 100)))?;
        instance.set(abi::SUBSAMPLING, subsampling)?;
        instance.set(abi::NO_REALLOC, 1)?;
        let (width, height) = (width as c_int, height as c_int);
        // SAFETY: the type is the header's, and the function only computes.
        let most = unsafe { (instance.table().jpeg_buf_size)(width, height, subsampling) };
        let mut jpeg = vec![0_u8; most];
        let (mut start, mut size) = (jpeg.as_mut_ptr(), most);
        let raw = instance.raw();
        let compress = instance.table().compress;
        // SAFETY: the instance is alive. `from` has the rows of those sizes, without gaps (a pitch of 0), and is only
        // read. `jpeg` has as many bytes as the library says are enough for any such image; `size` passes their number,
        // and the library may not take other memory in its place. Both addresses are of locals, used during the call
        // only.
        let status =
            unsafe { compress(raw, from.as_ptr(), width, 0, height, pixels.number(), &raw mut start, &raw mut size) };
        instance.check(status)?;
        if size > most || start != jpeg.as_mut_ptr() {
            return Err(TurboError::new("libjpeg-turbo wrote to other memory than it was given"));
        }
        jpeg.truncate(size);
        self.instance = Some(instance);
        Ok(jpeg)
    }
}

//! Opens decoders of JPEGs on GPUs. The decoding threads use them (`stage`). Decoded images come back to the host, so
//! that everything after decoding is the same for every image and decoder. The exception is pixels that the host would
//! only pass on again: they stay on the GPU.

use super::{BATCHES_HELD, Opened};
use crate::config::{Cause, Device, Fallback, NvjpegRoute};
use crate::resident::Room;
use crate::{Error, ErrorKind, Result};
use uringload_sys::cuda::{Context, DeviceMemory};
use uringload_sys::nvjpeg::{Decoder, Hardware, Library};

/// Most bytes of a GPU's memory for the pixels of one batch of images: 64 of 500 x 375 take 36 MB.
const BATCH_BYTES_MAX: u64 = 64 << 20;

/// Images whose pixels a GPU has room for, even with small batches: those that its threads decode at a time, and as
/// many decoded ones.
const PIXELS_HELD: u64 = 256;

/// Decoding threads of a GPU: while one waits for the engine, the other parses headers and runs the rest of the chains.
pub(crate) const THREADS: usize = 2;

/// The share of the JPEGs that GPUs decode: one for all of them.
///
/// # Errors
/// `InvalidArgument` for an invalid share, and for two different ones.
pub(crate) fn share(devices: &[Device]) -> Result<f64> {
    let refused = |what: String| {
        Err(Error::new(ErrorKind::InvalidArgument, what)
            .with_remedy("give each GPU the same share of the JPEGs, from 0 (none) to 1 (all)"))
    };
    let shares = || devices.iter().map(|device| device.nvjpeg.share);
    if let Some(share) = shares().find(|share| !(0.0..=1.0).contains(share)) {
        return refused(format!("nvjpeg cannot be {share}"));
    }
    let (least, most) =
        shares().fold((1.0, 0.0), |(least, most): (f64, f64), share| (least.min(share), most.max(share)));
    if least < most { refused(format!("nvjpeg cannot be {least} on one GPU and {most} on another")) } else { Ok(most) }
}

/// The decoders of the devices, each with room for at most `share` bytes of pixels. A decoder that is not available is
/// a fallback.
pub(crate) fn decoders(opened: &mut Opened, devices: &[Device], share: u64) -> Vec<Decoder> {
    let mut decoders = Vec::new();
    let bytes = share.min(BATCH_BYTES_MAX) as usize;
    for (context, device) in opened.contexts.iter().zip(devices) {
        let (made, route) = decoders_of(context, device, bytes, &mut opened.fallbacks);
        decoders.extend(made);
        opened.nvjpeg.push(route);
    }
    decoders
}

/// Memory of the GPU for pixels that stay there until their batch is assembled, of `sample` bytes for each sample: for
/// as many batches of `samples` as a lane holds, and at least [`PIXELS_HELD`]. None with several GPUs, because the
/// batch may be on another one.
pub(crate) fn room_for_pixels(opened: &mut Opened, sample: u64, samples: u64) -> Option<Room> {
    let [context] = &opened.contexts[..] else { return None };
    let bytes = sample.saturating_mul(samples.saturating_mul(BATCHES_HELD).max(PIXELS_HELD));
    match DeviceMemory::new(context, usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Ok(memory) => Some(Room::new(memory)),
        Err(error) => {
            let got = "pixels that come back to the host".to_owned();
            opened.fallbacks.push(Fallback::new(Cause::Nvjpeg, got, None).with_reason(error.to_string()));
            None
        }
    }
}

/// The decoders of one device, and how they decode.
fn decoders_of(
    context: &Context,
    device: &Device,
    bytes: usize,
    fallbacks: &mut Vec<Fallback>,
) -> (Vec<Decoder>, Option<NvjpegRoute>) {
    let (search, mut made) = (&device.nvjpeg, Vec::new());
    let step = |got: String, why: String| Fallback::new(Cause::Nvjpeg, got, None).with_reason(why);
    let found = search.library.as_deref().map_or_else(|| Library::open(&search.places), Library::at);
    let library = match found {
        Ok(library) => library,
        Err(error) => {
            fallbacks.push(step("images decoded by the processor".to_owned(), error.to_string()));
            return (made, None);
        }
    };
    let named = format!("{} (nvJPEG {})", library.path().display(), library.version());
    while made.len() < THREADS {
        match library.decoder(context, bytes) {
            Ok(decoder) => made.push(decoder),
            Err(error) => {
                let got = match made.len() {
                    0 => "images decoded by the processor".to_owned(),
                    some => format!("{some} of {THREADS} threads that decode with the GPU"),
                };
                fallbacks.push(step(got, format!("{named}: {error}")).with_remedy(error.remedy()));
                break;
            }
        }
    }
    let Some(first) = made.first() else { return (made, None) };
    let hardware = first.hardware();
    if let Err(error) = hardware {
        let step = Fallback::new(Cause::NvjpegEngine, "by its multiprocessors", None);
        fallbacks.push(step.with_reason(format!("{named}: {error}")).with_remedy(error.hardware_remedy()));
    }
    let engines = hardware.ok().map(|Hardware { engines, cores }| (engines, cores));
    let route = NvjpegRoute { version: library.version(), share: search.share, engines };
    (made, Some(route))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_one_loader_have_one_share() {
        let of = |shares: &[f64]| {
            let device = |(index, &share): (usize, &f64)| Device::cuda(index as u32).nvjpeg(share);
            share(&shares.iter().enumerate().map(device).collect::<Vec<_>>()).map_err(|error| error.to_string())
        };
        assert_eq!((of(&[0.0]), of(&[0.3, 0.3]), of(&[1.0])), (Ok(0.0), Ok(0.3), Ok(1.0)));
        assert!(of(&[0.3, 0.0]).unwrap_err().contains("nvjpeg cannot be 0 on one GPU and 0.3 on another"));
        assert!(of(&[0.3, 2.0]).unwrap_err().contains("nvjpeg cannot be 2"));
    }
}

//! Opens what decodes JPEGs on GPUs. The threads that decode use it (`stage`); what it decodes comes back to the host,
//! so that everything behind decoding is the same for every image, whoever decoded it.

use super::Opened;
use crate::config::{Cause, Device, Fallback};
use uringload_sys::cuda::Context;
use uringload_sys::nvjpeg::{Decoder, Library};

/// Most bytes of a GPU's memory for the pixels of one batch of images: 64 of 500 x 375 take 36 MB.
const BATCH_BYTES_MAX: u64 = 64 << 20;

/// The decoders that the devices are to have, each with room for `share` bytes of pixels at most. What cannot be had is
/// a step down.
pub(crate) fn decoders(opened: &mut Opened, devices: &[Device], share: u64) -> Vec<Decoder> {
    let mut decoders = Vec::new();
    let bytes = share.min(BATCH_BYTES_MAX) as usize;
    for (context, device) in opened.contexts.iter().zip(devices).filter(|(_, device)| device.nvjpeg.threads > 0) {
        let wanted = device.nvjpeg.threads;
        match decoders_of(context, device, bytes) {
            (made, None) => decoders.extend(made),
            (made, Some(step)) => {
                let got = match made.len() {
                    0 => "images decoded by the processor".to_owned(),
                    some => format!("{some} of {wanted} threads that decode with the GPU"),
                };
                opened.fallbacks.push(Fallback { got: got.into(), ..step });
                decoders.extend(made);
            }
        }
    }
    decoders
}

/// The decoders of one device, and why they are fewer than were asked for.
fn decoders_of(context: &Context, device: &Device, bytes: usize) -> (Vec<Decoder>, Option<Fallback>) {
    let search = &device.nvjpeg;
    let found = search.library.as_deref().map_or_else(|| Library::open(&search.places), Library::at);
    let failed = |why: String| Fallback::new(Cause::Nvjpeg, "", None).with_reason(why);
    let library = match found {
        Ok(library) => library,
        Err(error) => return (Vec::new(), Some(failed(error.to_string()))),
    };
    let mut made = Vec::new();
    for _ in 0..search.threads {
        match library.decoder(context, bytes) {
            Ok(decoder) => made.push(decoder),
            Err(error) => {
                let why = format!("{} (nvJPEG {}): {error}", library.path().display(), library.version());
                let remedy = "leave more of the GPU's memory free, or ask for fewer threads with nvJPEG";
                return (made, Some(failed(why).with_remedy(remedy)));
            }
        }
    }
    (made, None)
}

//! Images of every format, recognized by their content, as colours and as the indexes of a mask.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload_images::{Color, Decoding, Limits, decode};

fuzz_target!(|data: &[u8]| {
    let limits = Limits { pixels: 1 << 18, bytes: 1 << 24 };
    for color in [Color::Rgb, Color::Index] {
        if let Ok(image) = decode(data, &Decoding { color, limits, ..Decoding::default() }) {
            let bytes = u64::from(image.height()) * u64::from(image.width()) * u64::from(image.channels());
            assert_eq!(image.pixels().len() as u64, bytes);
            assert_eq!(image.channels(), color.channels());
        }
    }
});

//! Transform strings, and what they do with an image whose size is in the input's first bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload_images::{Chain, Image, Scratch};

/// More is slow and finds nothing else.
const PIXELS_MAX: u64 = 1 << 18;

fuzz_target!(|data: &[u8]| {
    let Some((&[height, width, sample], text)) = data.split_first_chunk() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(chain) = text.parse::<Chain>() else { return };
    // What an operation in the middle makes can be large where the end is small.
    if text.len() > 200 || text.split(|letter: char| !letter.is_ascii_digit()).any(|number| number.len() > 2) {
        return;
    }
    let (height, width) = (u32::from(height), u32::from(width));
    let Ok(plan) = chain.draw(1, 2, sample.into(), height, width) else { return };
    let output = plan.output(3);
    if u64::from(output.height) * u64::from(output.width) > PIXELS_MAX {
        return;
    }
    let bytes = (height * width * 3) as usize;
    let image = Image::new(height, width, 3, (0..bytes).map(|at| at as u8).collect()).expect("as many bytes");
    let mut out = vec![0; output.bytes()];
    let _ = plan.run(&image, &mut out, &mut Scratch::default());
    let _ = plan.rectangle([1.0, 1.0, width as f32, height as f32]);
});

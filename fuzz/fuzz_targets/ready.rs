//! A tensor of a file in one call, by libjpeg-turbo where there is one and by the embedded decoder, with memory that
//! goes from one input to the next. The first byte chooses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use uringload_images::{Chain, Decoding, Draw, Jpeg, Limits, Scratch, dimensions};

const CHAINS: [&str; 3] = [
    "random_resized_crop(16), hflip",
    "resize(24), center_crop(16), to_tensor(u8, hwc)",
    "random_resized_crop(16, 0.5..1), vflip, color_jitter(0.4), to_tensor(bf16)",
];

thread_local! {
    static MEMORY: RefCell<Scratch> = RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, file)) = data.split_first() else { return };
    let chain: Chain = CHAINS[usize::from(choice) % CHAINS.len()].parse().expect("a chain");
    let limits = Limits { pixels: 1 << 18, bytes: 1 << 24 };
    let jpeg = if choice & 0x40 == 0 { Jpeg::Auto } else { Jpeg::Embedded };
    let how = Decoding { limits, jpeg, exact: choice & 0x80 == 0, ..Decoding::default() };
    let Ok((height, width)) = dimensions(file, &how) else { return };
    let draw = Draw { seed: 1, epoch: 2, sample: choice.into() };
    let Ok(plan) = chain.draw(draw.seed, draw.epoch, draw.sample, height, width) else { return };
    let bytes = plan.output(3).bytes();
    let ready = |fill: u8| {
        let mut out = vec![fill; bytes];
        MEMORY.with_borrow_mut(|memory| chain.ready(file, &how, draw, &mut out, memory)).map(|_| out).ok()
    };
    // Every byte is written, and nothing of the input before is seen.
    assert!(ready(0) == ready(0xff));
});

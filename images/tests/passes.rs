//! A plan as two passes of weights and a rest: a plain implementation of them makes what the plan makes, to the bit.

mod common;

use common::{file, photo};
use uringload_images::{Chain, Decoding, Draw, Image, Passes, Scratch, Taps};

const CHANNELS: usize = 3;

/// One level, as the comment of `Taps` defines it.
fn level(sum: i64) -> u8 {
    let sum = i32::try_from(sum + (1 << 21)).expect("32 bits are enough");
    (sum >> 22).clamp(0, 255) as u8
}

/// Weights and the pixels that they are for.
fn of(taps: &Taps, index: usize) -> impl Iterator<Item = (usize, i64)> {
    let start = if index == 0 { 0 } else { taps.end[index - 1] as usize };
    let weights = taps.weights[start..taps.end[index] as usize].iter();
    (taps.first[index] as usize..).zip(weights.map(|&weight| i64::from(weight)))
}

fn applied(image: &Image, passes: &Passes) -> Image {
    let (height, width) = (passes.rows.first.len(), passes.columns.first.len());
    let (source, row_bytes) = (image.pixels(), image.width() as usize * CHANNELS);
    let mut between = Vec::new();
    for row in source.chunks_exact(row_bytes) {
        for x in 0..width {
            for channel in 0..CHANNELS {
                let taps = of(&passes.columns, x);
                between.push(level(taps.map(|(at, weight)| i64::from(row[at * CHANNELS + channel]) * weight).sum()));
            }
        }
    }
    let mut made = Vec::new();
    for y in 0..height {
        for at in 0..width * CHANNELS {
            let taps = of(&passes.rows, y);
            let levels = taps.map(|(row, weight)| i64::from(between[row * width * CHANNELS + at]) * weight);
            made.push(level(levels.sum()));
        }
    }
    Image::new(height as u32, width as u32, CHANNELS as u32, made).unwrap()
}

#[test]
fn two_passes_and_the_rest_are_the_plan() {
    let chains = [
        "random_resized_crop(56), hflip, normalize(imagenet)",
        "random_resized_crop(48x80, 0.02..0.3), hflip, vflip, to_tensor(u8, hwc)",
        "random_resized_crop(32, 0.02..0.3, 0.75..1.3333, bicubic), vflip(1), to_tensor(f16)",
        "resize(64), center_crop(48), hflip(1), normalize(imagenet)",
        "resize(50x70, lanczos), hflip",
        "resize(33x21, box), to_tensor(bf16)",
        "resize(400x90, nearest), hflip",
        "center_crop(90x30)",
        "hflip(1), vflip(1), center_crop(20)",
        "random_crop(24), hflip",
        "random_resized_crop(40), color_jitter(0.4, 0.4, 0.4, 0.1), rotate(20), random_erasing",
        "random_resized_crop(40), blur(3), hflip, normalize(imagenet), random_erasing(1, value=random)",
    ];
    let mut scratch = Scratch::default();
    let image = photo("photo.jpg");
    let mut split = 0;
    for text in chains {
        let chain: Chain = text.parse().unwrap();
        for sample in 0..8 {
            let plan = chain.draw(1, 2, sample, image.height(), image.width()).unwrap();
            let mut wanted = vec![0; plan.output(3).bytes()];
            plan.run(&image, &mut wanted, &mut scratch).unwrap();
            // Where rows come first, nothing else makes them.
            let Some((passes, rest)) = plan.split() else { continue };
            split += 1;
            assert_eq!(rest.output(3), plan.output(3), "{text}");
            let mut made = vec![0xaa; wanted.len()];
            rest.run(&applied(&image, &passes), &mut made, &mut scratch).unwrap();
            assert!(made == wanted, "{text}, sample {sample}");
        }
    }
    assert!(split > chains.len() * 8 * 3 / 4, "{split}");
}

#[test]
fn what_is_no_cut_and_no_resize_is_not_split() {
    let split = |text: &str| text.parse::<Chain>().unwrap().draw(0, 0, 0, 40, 60).unwrap().split();
    for text in
        ["pad(3)", "random_crop(50, 20)", "rotate(30), center_crop(20)", "grayscale(1), resize(9x9)", "hflip(0)"]
    {
        assert!(split(text).is_none(), "{text}");
    }
    // A pad that a cut takes away again shows nothing.
    assert!(split("pad(3), center_crop(20)").is_some());
}

#[test]
fn files_are_split_that_others_decode_as_they_are_seen() {
    let chain: Chain = "resize(32x32)".parse().unwrap();
    let draw = Draw { seed: 0, epoch: 0, sample: 0 };
    let split = |name: &str, how: &Decoding| chain.split_plan(&file(name), how, draw);
    let how = Decoding::default();
    let (passes, rest) = split("420.jpg", &how).unwrap();
    assert_eq!((passes.rows.first.len(), passes.columns.first.len(), rest.size()), (32, 32, (32, 32)));
    for name in ["exif6.jpg", "gray.jpg", "cmyk.jpg", "coffee.png"] {
        assert!(split(name, &how).is_none(), "{name}");
    }
    // Without a turn, it is seen as it is stored.
    assert!(split("exif6.jpg", &Decoding { orient: false, ..how }).is_some());
    let large: Chain = "center_crop(5), random_crop(9)".parse().unwrap();
    assert!(large.split_plan(&file("420.jpg"), &how, draw).is_none());
}

//! Chains: planning changes only the work, drawing depends only on its arguments, and masks and boxes go where the
//! pixels go.

mod common;

use common::photo;
use proptest::prelude::*;
use uringload_core::ErrorKind;
use uringload_images::{Chain, Erasing, Image, Op, Scratch};

fn chain(text: &str) -> Chain {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn run(chain: &Chain, sample: u64, image: &Image) -> Vec<u8> {
    let plan = chain.draw(5, 1, sample, image.height(), image.width()).unwrap();
    let mut out = vec![0xaa; plan.output(image.channels()).bytes()];
    plan.run(image, &mut out, &mut Scratch::default()).unwrap();
    out
}

/// One operation of geometry, from a number: certain ones, so that nothing is drawn.
fn geometry(kind: usize, a: u32, b: u32) -> String {
    match kind {
        0 => format!("resize({}x{})", 8 + a, 8 + b),
        1 => format!("resize({}, lanczos)", 8 + a),
        2 => format!("center_crop({}x{})", 1 + a, 1 + b),
        3 => "hflip(1)".to_owned(),
        4 => "vflip(1)".to_owned(),
        5 => format!("pad({}:{}:1:2, fill=40)", a % 9, b % 9),
        _ => format!("center_crop({}x{}), resize(20x30, box)", 9 + a, 9 + b),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    /// A chain that is planned as one makes the bytes of its operations one after the other.
    #[test]
    fn planning_changes_no_byte(ops in proptest::collection::vec((0_usize..7, 0_u32..60, 0_u32..60), 1..6)) {
        let texts: Vec<String> = ops.iter().map(|&(kind, a, b)| geometry(kind, a, b)).collect();
        let source = photo("coffee.png");
        let mut scratch = Scratch::default();
        let mut image = source.clone();
        for text in texts.iter().flat_map(|text| text.split("), ")) {
            let text = if text.ends_with(')') { text.to_owned() } else { format!("{text})") };
            let plan = chain(&text).draw(0, 0, 0, image.height(), image.width()).unwrap();
            image = plan.image(&image, &mut scratch).unwrap();
        }
        let whole = chain(&texts.join(", "));
        let plan = whole.draw(0, 0, 0, source.height(), source.width()).unwrap();
        let made = plan.image(&source, &mut scratch).unwrap();
        prop_assert_eq!((made.height(), made.width()), (image.height(), image.width()));
        prop_assert!(made == image, "{}", texts.join(", "));
        let whole = whole.dtype(uringload_core::DType::U8).unwrap().channels_last(true);
        prop_assert_eq!(run(&whole, 0, &source), made.pixels());
    }
}

const EVERYTHING: &str = "random_resized_crop(48), hflip, vflip(0.3), rotate(20, bilinear), \
                          affine(5, 0.1, 0.9..1.1, 3), \
                          color_jitter(0.4, 0.4, 0.4, 0.1), grayscale(0.2), blur(5), auto_augment, rand_augment, \
                          trivial_augment, random_crop(40, 4), normalize(imagenet), random_erasing(0.5, value=random)";

/// The same whichever thread asks, in whatever order, with whatever scratch.
#[test]
fn a_sample_depends_on_seed_epoch_and_id_alone() {
    let (image, all) = (photo("chelsea.png"), chain(EVERYTHING));
    let wanted: Vec<Vec<u8>> = (0..24).map(|sample| run(&all, sample, &image)).collect();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (image, all, wanted) = (&image, &all, &wanted);
            scope.spawn(move || {
                let mut scratch = Scratch::default();
                for sample in (0..24).rev().filter(|sample| sample % 3 != thread) {
                    let plan = all.draw(5, 1, sample, image.height(), image.width()).unwrap();
                    let mut out = vec![0x55; plan.output(3).bytes()];
                    plan.run(image, &mut out, &mut scratch).unwrap();
                    assert!(out == wanted[sample as usize], "sample {sample}");
                }
            });
        }
    });
    let distinct: std::collections::HashSet<&Vec<u8>> = wanted.iter().collect();
    assert_eq!(distinct.len(), wanted.len());
    for (seed, epoch) in [(6, 1), (5, 2), (1, 5)] {
        assert_ne!(all.draw(seed, epoch, 0, 120, 160).unwrap(), all.draw(5, 1, 0, 120, 160).unwrap());
    }
}

/// A saved run draws these again: they may not change.
#[test]
fn what_is_drawn_stays_what_it_is() {
    let all = chain(EVERYTHING);
    let image = photo("chelsea.png");
    let hash = (0..8)
        .flat_map(|sample| run(&all, sample, &image))
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    assert_eq!(format!("{hash:016x}"), "558a2c8eb8b97b7e");
}

/// A white rectangle on black: its box is around it in the output, and so is its mask.
#[test]
fn masks_and_boxes_go_where_the_pixels_go() {
    let (height, width) = (90, 120);
    let mut image = Image::new(height, width, 3, vec![0; 90 * 120 * 3]).unwrap();
    let mut mask = Image::new(height, width, 1, vec![0; 90 * 120]).unwrap();
    for y in 30..70_usize {
        for x in 40..60_usize {
            mask.pixels_mut()[y * 120 + x] = 1;
            image.pixels_mut()[(y * 120 + x) * 3..][..3].fill(255);
        }
    }
    let text = "random_resized_crop(64x80, scale=0.5..1), hflip, vflip, pad(5:3), rotate(25), resize(100), \
                affine(5, 0.1, 0.9..1.1, 5), random_crop(90, 4), color_jitter(hue=0.1)";
    let (chain, mut scratch, mut seen) = (chain(text), Scratch::default(), 0);
    for sample in 0..60 {
        let plan = chain.draw(3, 0, sample, height, width).unwrap();
        let made = plan.image(&image, &mut scratch).unwrap();
        let moved = plan.mask(&mask, 255, &mut scratch).unwrap();
        assert_eq!((made.height(), made.width()), (moved.height(), moved.width()));
        let pixels = made.pixels().as_chunks::<3>().0;
        // Inside the mask it is white, except where the edge was resampled.
        let differ = moved.pixels().iter().zip(pixels).filter(|(class, pixel)| (**class == 1) != (pixel[0] > 127));
        assert!(differ.count() < 120, "sample {sample}");
        let bright = (0..90_u32).flat_map(|y| (0..90_u32).map(move |x| (x, y)));
        let bright: Vec<(u32, u32)> = bright.filter(|(x, y)| moved.pixels()[(y * 90 + x) as usize] == 1).collect();
        let Some(rectangle) = plan.rectangle([40.0, 30.0, 60.0, 70.0]) else {
            assert!(bright.len() < 20, "sample {sample}");
            continue;
        };
        let [left, top, right, bottom] = rectangle;
        for (x, y) in &bright {
            let (x, y) = (*x as f32 + 0.5, *y as f32 + 0.5);
            let is_within = left - 1.5 < x && x < right + 1.5 && top - 1.5 < y && y < bottom + 1.5;
            assert!(is_within, "sample {sample}: ({x}, {y}) and {rectangle:?}");
        }
        seen += usize::from(bright.len() > 100);
    }
    assert!(seen > 40, "{seen}");
    // Without turns, to the pixel.
    let plan = "pad(7:9), hflip(1)".parse::<Chain>().unwrap().draw(0, 0, 0, height, width).unwrap();
    assert_eq!(plan.rectangle([40.0, 30.0, 60.0, 70.0]), Some([67.0, 39.0, 87.0, 79.0]));
    let plan = "center_crop(20)".parse::<Chain>().unwrap().draw(0, 0, 0, height, width).unwrap();
    assert_eq!(plan.rectangle([0.0, 0.0, 10.0, 10.0]), None);
    assert_eq!(
        plan.mask(&Image::new(9, 9, 1, vec![0; 81]).unwrap(), 0, &mut scratch).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn erased_rectangles_are_overwritten_and_nothing_else() {
    let image = photo("coffee.png");
    let plain = run(&chain("normalize(imagenet)"), 0, &image);
    let mut erased_some = 0;
    for sample in 0..20 {
        let made = run(&chain("normalize(imagenet), random_erasing(0.6, value=9.5)"), sample, &image);
        let elements = plain.as_chunks::<4>().0.iter().zip(made.as_chunks::<4>().0);
        let changed = elements.filter(|(before, after)| before != after).map(|(_, after)| f32::from_le_bytes(*after));
        let changed: Vec<f32> = changed.collect();
        assert!(changed.iter().all(|&value| value == 9.5), "sample {sample}");
        let share = changed.len() as f64 / (plain.len() / 4) as f64;
        assert!(share == 0.0 || (0.015..0.34).contains(&share), "sample {sample}: {share}");
        erased_some += u32::from(share > 0.0);
    }
    assert!((6..19).contains(&erased_some), "{erased_some} of 20");
    let erasing = Op::RandomErasing { p: 1.0, scale: (0.1, 0.1), ratio: (1.0, 1.0), value: Erasing::Random };
    assert!(Chain::new().with(erasing).unwrap().with(Op::HorizontalFlip { p: 1.0 }).is_err());
}

#[test]
fn images_of_any_size_are_taken_or_refused() {
    let mut scratch = Scratch::default();
    for text in
        [EVERYTHING, "resize(9)", "center_crop(9)", "random_resized_crop(9)", "blur(1)", "rand_augment, resize(5)"]
    {
        for (height, width) in [(1, 1), (1, 400), (400, 1), (2, 3), (60, 60)] {
            for channels in [1, 3] {
                let bytes = (height * width * channels) as usize;
                let image = Image::new(height, width, channels, (0..bytes).map(|at| at as u8).collect()).unwrap();
                let text = if channels == 1 { text.replace("imagenet", "0.5, 0.5") } else { text.to_owned() };
                let plan = chain(&text).draw(0, 0, 1, height, width).unwrap_or_else(|error| panic!("{text}: {error}"));
                let mut out = vec![0; plan.output(channels).bytes()];
                plan.run(&image, &mut out, &mut scratch)
                    .unwrap_or_else(|error| panic!("{text} of {height} x {width} x {channels}: {error}"));
            }
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    let kind = |result: uringload_core::Result<uringload_images::Plan>| result.unwrap_err().kind();
    assert_eq!(kind(chain("random_crop(33)").draw(0, 0, 0, 32, 40)), ErrorKind::InvalidArgument);
    assert_eq!(kind(chain("hflip").draw(0, 0, 0, 0, 40)), ErrorKind::InvalidArgument);
    assert_eq!(kind(chain("resize(8000000)").draw(0, 0, 0, 9, 9)), ErrorKind::InvalidArgument);
    assert_eq!(kind(chain("resize(300)").draw(0, 0, 0, 1, 8_000_000)), ErrorKind::InvalidArgument);
    let image = photo("coffee.png");
    let mut scratch = Scratch::default();
    let plan = chain("normalize(0.5:0.5, 0.1:0.2)").draw(0, 0, 0, image.height(), image.width()).unwrap();
    let mut out = vec![0; plan.output(3).bytes()];
    assert!(plan.run(&image, &mut out, &mut scratch).unwrap_err().what().contains("2 means"));
    let plan = chain("blur(23)").draw(0, 0, 0, 9, 9).unwrap();
    let small = Image::new(9, 9, 3, vec![0; 243]).unwrap();
    let mut out = vec![0; plan.output(3).bytes()];
    assert!(plan.run(&small, &mut out, &mut scratch).unwrap_err().what().contains("blurred"));
    assert!(plan.run(&small, &mut out[1..], &mut scratch).is_err());
    assert!(plan.run(&image, &mut out, &mut scratch).is_err());
    assert!(chain("to_tensor(u8), normalize(imagenet)").draw(0, 0, 0, 9, 9).is_err());
    assert!(Image::new(2, 2, 3, vec![0; 11]).is_err() && Image::new(2, 2, 5, vec![0; 20]).is_err());
}

#[test]
fn the_size_is_told_before_there_is_an_image() {
    for (text, size) in [
        ("random_resized_crop(224), hflip", Some((224, 224))),
        ("resize(256), center_crop(224x200), pad(1)", Some((226, 202))),
        ("resize(256)", None),
        ("center_crop(30x60), resize(10)", Some((10, 20))),
        ("center_crop(30x60), resize(12), rotate(5)", Some((12, 24))),
    ] {
        let chain = chain(text);
        assert_eq!(chain.size(), size, "{text}");
        let plan = chain.draw(0, 0, 0, 500, 375).unwrap();
        assert!(size.is_none_or(|size| size == plan.size()), "{text}: {:?}", plan.size());
    }
}

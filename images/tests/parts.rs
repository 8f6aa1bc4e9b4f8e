//! A tensor of a file in one call that decodes only a part of a JPEG: it equals a full decode, to the bit; the fast way
//! differs by stated limits.

mod common;

use common::{difference, file, lines};
use proptest::prelude::*;
use uringload_core::ErrorKind;
use uringload_images::{
    Chain, Color, Decoding, Draw, Jpeg, JpegDecoder, Limits, Scratch, decode, decode_with, decoder, dimensions,
};

/// Every JPEG of tests/data.
fn jpegs() -> Vec<String> {
    let names = lines("decoded.txt").iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    names.into_iter().filter(|name| name.ends_with(".jpg")).collect()
}

/// What decodes; without libjpeg-turbo, parts are not tested.
fn turbo() -> bool {
    let JpegDecoder { why_not, .. } = decoder();
    if let Some(why) = &why_not {
        eprintln!("skipped: {why}");
    }
    why_not.is_none()
}

const CHAINS: [&str; 9] = [
    "random_resized_crop(224), hflip, normalize(imagenet)",
    "random_resized_crop(48x80, 0.02..0.3), hflip, vflip",
    "random_resized_crop(32, 0.02..0.3, 0.75..1.3333, bicubic), to_tensor(u8, hwc)",
    "resize(64), center_crop(48), normalize(imagenet)",
    "resize(50x70, lanczos), hflip",
    "center_crop(90x30), to_tensor(bf16)",
    "random_crop(24, 4), hflip, to_tensor(f16)",
    "random_resized_crop(40), color_jitter(0.4, 0.4, 0.4, 0.1), rotate(20), random_erasing",
    "rotate(30), center_crop(32)",
];

fn one_call(chain: &Chain, bytes: &[u8], how: &Decoding, sample: u64, scratch: &mut Scratch) -> Vec<u8> {
    let (height, width) = dimensions(bytes, how).unwrap();
    let size = chain.draw(1, 2, sample, height, width).unwrap().output(how.color.channels()).bytes();
    let mut out = vec![0xaa; size];
    chain.ready(bytes, how, Draw { seed: 1, epoch: 2, sample }, &mut out, scratch).unwrap();
    out
}

fn two_calls(chain: &Chain, bytes: &[u8], how: &Decoding, sample: u64, scratch: &mut Scratch) -> Vec<u8> {
    let image = decode_with(bytes, how, scratch).unwrap();
    let plan = chain.draw(1, 2, sample, image.height(), image.width()).unwrap();
    let mut out = vec![0; plan.output(image.channels()).bytes()];
    plan.run(&image, &mut out, scratch).unwrap();
    out
}

/// All kinds of JPEG, turned and mirrored ones too, and formats that are always decoded whole.
#[test]
fn exactly_what_decoding_all_of_it_makes() {
    let mut scratch = Scratch::default();
    let others = ["rgb.png", "lossy.webp", "rgb.bmp", "still.gif", "rgb.tif"].map(str::to_owned);
    for name in jpegs().into_iter().chain(others) {
        let bytes = file(&name);
        for chain in CHAINS {
            let parsed: Chain = chain.parse().unwrap();
            for jpeg in [Jpeg::Auto, Jpeg::Embedded] {
                for color in [Color::Rgb, Color::Gray] {
                    if color == Color::Gray && chain.contains("imagenet") {
                        continue;
                    }
                    let how = Decoding { jpeg, color, exact: true, ..Decoding::default() };
                    for sample in 0..4 {
                        let one = one_call(&parsed, &bytes, &how, sample, &mut scratch);
                        let two = two_calls(&parsed, &bytes, &how, sample, &mut scratch);
                        assert!(one == two, "{name}, {chain}, {how:?}, sample {sample}");
                    }
                }
            }
        }
    }
}

/// Any rectangle of any kind of subsampling.
#[test]
fn exact_rectangles_are_those_of_the_whole_image() {
    if !turbo() {
        return;
    }
    let mut scratch = Scratch::default();
    let how = Decoding { exact: true, ..Decoding::default() };
    let chain: Chain = "random_resized_crop(24x32, 0.001..1, 0.2..5), to_tensor(u8, hwc)".parse().unwrap();
    for name in jpegs() {
        let bytes = file(&name);
        for sample in 0..150 {
            let one = one_call(&chain, &bytes, &how, sample, &mut scratch);
            assert!(one == two_calls(&chain, &bytes, &how, sample, &mut scratch), "{name}, sample {sample}");
        }
    }
}

/// The loss of the fast way, in levels: as docs/images.md states it.
#[test]
fn the_fast_way_differs_by_what_is_stated() {
    if !turbo() {
        return;
    }
    let mut scratch = Scratch::default();
    let exact = Decoding { exact: true, ..Decoding::default() };
    let fast = Decoding::default();
    // Regions of about the output's size, and regions of more than twice, which are decoded at a half or less.
    for (chain, most_allowed, mean_allowed) in [
        ("random_resized_crop(160, 0.2..1), hflip, to_tensor(u8, hwc)", 40, 1.5),
        ("random_resized_crop(32, 0.5..1), hflip, to_tensor(u8, hwc)", 60, 3.0),
    ] {
        let chain: Chain = chain.parse().unwrap();
        let (mut greatest, mut means) = (0, Vec::new());
        for name in ["photo.jpg", "420.jpg", "422.jpg", "444.jpg", "gray.jpg", "progressive.jpg", "exif6.jpg"] {
            let bytes = file(name);
            for sample in 0..20 {
                let one = one_call(&chain, &bytes, &fast, sample, &mut scratch);
                let two = one_call(&chain, &bytes, &exact, sample, &mut scratch);
                let (most, mean) = difference(&one, &two);
                greatest = greatest.max(most);
                means.push(mean);
            }
        }
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        println!("{chain:?}: greatest difference {greatest}, mean {mean:.3}");
        assert!(greatest <= most_allowed && mean <= mean_allowed, "greatest difference {greatest}, mean {mean}");
    }
}

/// Both decoders accept the same files, and differ in rounding.
#[test]
fn decoders_differ_by_what_they_round() {
    if !turbo() {
        return;
    }
    for name in jpegs() {
        let of = |jpeg| decode(&file(&name), &Decoding { jpeg, ..Decoding::default() }).unwrap();
        let (most, mean) = difference(of(Jpeg::Turbo).pixels(), of(Jpeg::Embedded).pixels());
        assert!(most <= 4 && mean <= 0.5, "{name}: greatest difference {most}, mean {mean}");
    }
}

#[test]
fn what_decodes_is_told() {
    let told = decoder();
    match told.why_not {
        None => assert!(told.name == "libjpeg-turbo" && told.version.starts_with('3'), "{told:?}"),
        Some(_) => {
            assert_eq!(told.name, "zune-jpeg");
            let how = Decoding { jpeg: Jpeg::Turbo, ..Decoding::default() };
            let error = decode(&file("420.jpg"), &how).unwrap_err();
            assert!(error.kind() == ErrorKind::Unavailable && error.remedy().is_some(), "{error}");
        }
    }
}

/// A tensor has all bytes of a sample or none: a wrong length is refused before anything is decoded.
#[test]
fn another_length_is_refused() {
    let chain: Chain = CHAINS[0].parse().unwrap();
    let draw = Draw { seed: 1, epoch: 2, sample: 3 };
    for bytes in [0, 1, 3 * 224 * 224 * 4 - 1, 3 * 224 * 224 * 4 + 1] {
        for name in ["420.jpg", "rgb.png"] {
            let mut out = vec![0; bytes];
            let made = chain.ready(&file(name), &Decoding::default(), draw, &mut out, &mut Scratch::default());
            assert_eq!(made.unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}, {bytes}");
        }
    }
}

/// A JPEG of one pixel, and one of 65 500 columns, which is refused because of its header or decoded.
#[test]
fn extreme_sizes_are_tensors_or_errors() {
    let whole = file("gray.jpg");
    let frame = whole.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let chain: Chain = "random_resized_crop(8), to_tensor(u8, hwc)".parse().unwrap();
    let draw = Draw { seed: 1, epoch: 2, sample: 3 };
    let mut scratch = Scratch::default();
    for (height, width) in [(1_u16, 1_u16), (1, 65_500), (65_500, 1), (16, 16), (65_500, 65_500), (0, 8), (8, 0)] {
        let mut bytes = whole.clone();
        bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
        bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
        for exact in [false, true] {
            for jpeg in [Jpeg::Auto, Jpeg::Embedded] {
                let limits = Limits { pixels: 1 << 20, ..Limits::default() };
                let how = Decoding { jpeg, exact, limits, ..Decoding::default() };
                let mut out = vec![0; 8 * 8 * 3];
                let made = chain.ready(&bytes, &how, draw, &mut out, &mut scratch);
                let is_possible = height > 0 && width > 0 && u64::from(height) * u64::from(width) <= 1 << 20;
                assert!(is_possible || made.is_err(), "{height} x {width}: {made:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Broken files, one after the other with the same memory, and a whole one after each.
    #[test]
    fn broken_files_are_tensors_or_errors_and_harm_nothing(
        index in 0_usize..1000,
        changes in proptest::collection::vec((0_usize..1 << 16, any::<u8>()), 1..8),
        cut in 0_usize..1 << 14,
        exact in any::<bool>(),
    ) {
        let names = jpegs();
        let whole = file(&names[index % names.len()]);
        let limits = Limits { pixels: 1 << 18, bytes: 1 << 24 };
        let how = Decoding { exact, limits, ..Decoding::default() };
        let chain: Chain = "random_resized_crop(24), hflip".parse().unwrap();
        let mut scratch = Scratch::default();
        let mut ready = |bytes: &[u8], fill: u8| {
            let mut out = vec![fill; 24 * 24 * 3 * 4];
            let draw = Draw { seed: 1, epoch: 2, sample: 3 };
            chain.ready(bytes, &how, draw, &mut out, &mut scratch).map(|_| out)
        };
        let wanted = ready(&whole, 0).unwrap();
        let mut bytes = whole.clone();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut % (bytes.len() / 4));
        // The same each time, whatever was in memory before.
        let first = ready(&bytes, 1).ok();
        prop_assert_eq!(ready(&whole, 2).unwrap(), wanted);
        prop_assert!(first == ready(&bytes, 3).ok());
    }
}

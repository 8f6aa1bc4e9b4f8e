//! Parts of files against the same parts of whole images, by the decoder that every build has.

use super::{Cut, Cutter, Gain};
use crate::decode::turbo::JpegBuffers;
use crate::decode::{Decoding, Jpeg, decode, jpeg};
use crate::view::{Frame, View};
use crate::{Image, Region};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use std::path::Path;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// Numbers below each bound, of a seed.
fn numbers(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as u32 % below
    }
}

/// Edges, slopes and noise, in colours.
fn drawn(height: u32, width: u32, channels: u32, seed: u64) -> Vec<u8> {
    let mut number = numbers(seed);
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            for channel in 0..channels {
                let slope = (x * (2 + channel) + y * 3) % 256;
                let edge = if (x / 11 + y / 7 + channel) % 2 == 0 { 90 } else { 0 };
                pixels.push(((slope / 2 + edge + number(20)) % 256) as u8);
            }
        }
    }
    pixels
}

fn encoded(height: u32, width: u32, color: ColorType, set: impl Fn(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 85);
    set(&mut encoder);
    let channels = match color {
        ColorType::Luma => 1,
        ColorType::Rgb => 3,
        _ => 4,
    };
    encoder.encode(&drawn(height, width, channels, 1), width as u16, height as u16, color).unwrap();
    file
}

fn embedded(bytes: &[u8]) -> Image {
    decode(bytes, &Decoding { jpeg: Jpeg::Embedded, orient: false, ..Decoding::default() }).unwrap()
}

fn size(bytes: &[u8]) -> (u32, u32) {
    let image = embedded(bytes);
    (image.height(), image.width())
}

fn pixels(image: &Image, region: Region) -> Vec<u8> {
    let channels = image.channels() as usize;
    let row = |y| &image.row(y)[region.x as usize * channels..][..region.w as usize * channels];
    (region.y..region.y + region.h).flat_map(row).copied().collect()
}

/// Any region of these files is the same in the cut file. Returns how many were cut.
fn compare(cutter: &mut Cutter, bytes: &[u8], name: &str) -> usize {
    let whole = embedded(bytes);
    let (height, width) = (whole.height(), whole.width());
    let mut number = numbers(u64::from(height) << 20 | u64::from(width));
    let mut count = 0;
    for _ in 0..60 {
        let (h, w) = (1 + number(height), 1 + number(width));
        let seen = Region { y: number(height - h + 1), x: number(width - w + 1), h, w };
        let cut = Cut { seen, has_margin: true, gain: Gain::OfAll };
        let Some(place) = cutter.cut(bytes, (height, width), &cut) else { continue };
        let part = embedded(cutter.file());
        assert!(part.pixels().len() < whole.pixels().len(), "{name}, {seen:?}");
        let here = Region { y: seen.y - place.y, x: seen.x - place.x, ..seen };
        assert!(pixels(&part, here) == pixels(&whole, seen), "{name}: {seen:?} of {height} x {width}, at {place:?}");
        count += 1;
    }
    count
}

#[test]
fn parts_are_those_of_the_whole_image() {
    let mut cutter = Cutter::default();
    for name in ["photo.jpg", "420.jpg", "422.jpg", "444.jpg", "gray.jpg", "cmyk.jpg", "restart.jpg", "quality30.jpg"] {
        assert!(compare(&mut cutter, &data(name), name) > 0, "{name}");
    }
    // Its tables have codes for its own numbers alone, and a part of it needs more.
    assert!(compare(&mut cutter, &data("optimized.jpg"), "optimized.jpg") > 10);
}

#[test]
fn parts_of_every_kind_of_chroma_and_restarts_anywhere() {
    let mut cutter = Cutter::default();
    // Others are written in several scans by this encoder.
    for factor in [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_1_2, SamplingFactor::F_2_2] {
        for restart in [0, 1, 3, 7, 40] {
            for (height, width) in [(150, 200), (97, 113), (8, 300), (300, 9)] {
                let bytes = encoded(height, width, ColorType::Rgb, |encoder| {
                    encoder.set_sampling_factor(factor);
                    encoder.set_restart_interval(restart);
                });
                let count = compare(&mut cutter, &bytes, &format!("{factor:?}, restarts after {restart}"));
                assert!(count > 5, "{factor:?}, {restart}, {height} x {width}: {count}");
            }
        }
    }
    for color in [ColorType::Luma, ColorType::Cmyk, ColorType::CmykAsYcck] {
        let bytes = encoded(120, 160, color, |encoder| encoder.set_sampling_factor(SamplingFactor::F_1_1));
        assert!(compare(&mut cutter, &bytes, &format!("{color:?}")) > 10, "{color:?}");
    }
}

/// What it does not know is left to the decoder.
#[test]
fn other_files_and_what_gains_nothing_are_declined() {
    let mut cutter = Cutter::default();
    let corner = Cut { seen: Region { y: 0, x: 0, h: 8, w: 8 }, has_margin: true, gain: Gain::OfAll };
    let bytes = data("420.jpg");
    let (height, width) = size(&bytes);
    assert!(cutter.cut(&bytes, (height, width), &corner).is_some());
    let progressive = data("progressive.jpg");
    assert_eq!(cutter.cut(&progressive, size(&progressive), &corner), None);
    let whole = Cut { seen: Region { y: 0, x: 0, h: height, w: width }, ..corner };
    assert_eq!(cutter.cut(&bytes, (height, width), &whole), None);
    // A header that another reader understood differently.
    assert_eq!(cutter.cut(&bytes, (height + 1, width), &corner), None);
    // Codes that end before the part does.
    let last = Cut { seen: Region { y: height - 8, x: width - 8, h: 8, w: 8 }, ..corner };
    assert!(cutter.cut(&bytes, (height, width), &last).is_some());
    for missing in [40, 400, bytes.len() / 2] {
        assert_eq!(cutter.cut(&bytes[..bytes.len() - missing], (height, width), &last), None, "{missing}");
    }
    // Restarts that are not where they should be.
    let bytes = data("restart.jpg");
    let marker = bytes.windows(2).position(|pair| pair == [0xff, 0xd1]).unwrap();
    let (height, width) = size(&bytes);
    let last = Cut { seen: Region { y: height - 8, x: width - 8, h: 8, w: 8 }, ..corner };
    assert!(cutter.cut(&bytes, (height, width), &last).is_some());
    for changed in [[0xff, 0xd2], [0xff, 0], [0x12, 0x34]] {
        let mut bytes = bytes.clone();
        bytes[marker..marker + 2].copy_from_slice(&changed);
        assert_eq!(cutter.cut(&bytes, (height, width), &last), None, "{changed:x?}");
    }
}

/// Broken files are cut or declined, and the next one is cut as before.
#[test]
fn broken_files_are_declined_or_cut() {
    let mut cutter = Cutter::default();
    let mut number = numbers(7);
    for name in ["420.jpg", "restart.jpg", "cmyk.jpg", "optimized.jpg"] {
        let bytes = data(name);
        let (height, width) = size(&bytes);
        let seen = Region { y: height / 2, x: width / 3, h: height / 4, w: width / 4 };
        let cut = Cut { seen, has_margin: true, gain: Gain::OfAll };
        cutter.cut(&bytes, (height, width), &cut).unwrap();
        let wanted = cutter.file().to_vec();
        for _ in 0..400 {
            let mut broken = bytes.clone();
            for _ in 0..1 + number(4) {
                let at = number(broken.len() as u32) as usize;
                broken[at] = number(256) as u8;
            }
            broken.truncate(broken.len() - number(broken.len() as u32 / 4) as usize);
            let _ = cutter.cut(&broken, (height, width), &cut);
            cutter.cut(&bytes, (height, width), &cut).unwrap();
            assert!(cutter.file() == wanted, "{name}");
        }
    }
}

/// The decoder gets a part, and not all of the file.
#[test]
fn the_embedded_decoder_decodes_parts() {
    let bytes = data("photo.jpg");
    let how = Decoding { jpeg: Jpeg::Embedded, exact: true, ..Decoding::default() };
    let (height, width) = jpeg::dimensions(&bytes, &how).unwrap();
    let middle = Frame { y: i64::from(height / 2) - 32, x: i64::from(width / 2) - 32, h: 64, w: 64 };
    let view = View::whole(height, width).cut(middle, 0);
    let mut buffers = JpegBuffers::default();
    let part = jpeg::part(&bytes, &how, ((height, width), view.as_ref()), &mut buffers).unwrap();
    assert!(!part.is_whole && part.image.height() <= 64 + 2 * 16 && part.image.width() <= 64 + 2 * 16);
}

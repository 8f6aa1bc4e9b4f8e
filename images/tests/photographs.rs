//! Photographs, decoded and transformed, against what Pillow and torchvision made of them (`make.py`).

mod common;

use common::{difference, file, lines, photo};
use uringload_images::{Chain, Color, Decoding, Format, Image, Scratch, color, decode};

/// Greatest and mean difference that is allowed: for JPEG, whose decoders differ in the last bits of the cosine
/// transform and of the colours, and in the chroma between its samples; none for lossless formats.
fn allowed(name: &str) -> (u8, f64) {
    match name {
        "quality30.jpg" => (4, 0.5),
        _ if name.ends_with(".jpg") => (4, 0.5),
        "lossy.webp" => (4, 0.5),
        _ => (0, 0.0),
    }
}

#[test]
fn files_become_the_pixels_that_pillow_makes_of_them() {
    let all = file("decoded.bin");
    let mut wrong = Vec::new();
    for line in lines("decoded.txt") {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, numbers @ ..] = &words[..] else { panic!("{line}") };
        let numbers: Vec<usize> = numbers.iter().map(|word| word.parse().unwrap()).collect();
        let [height, width, at] = numbers[..] else { panic!("{line}") };
        let image = match decode(&file(name), &Decoding::default()) {
            Ok(image) => image,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        if (image.height() as usize, image.width() as usize) != (height, width) {
            wrong.push(format!("{name}: {} x {}, not {height} x {width}", image.height(), image.width()));
            continue;
        }
        let (most, mean) = difference(image.pixels(), &all[at..][..height * width * 3]);
        let (most_allowed, mean_allowed) = allowed(name);
        println!("{name}: greatest difference {most}, mean {mean:.4}");
        if most > most_allowed || mean > mean_allowed {
            wrong.push(format!("{name}: greatest difference {most}, mean {mean}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn fnv(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

fn run(chain: &str, image: &Image) -> Image {
    let chain: Chain = chain.parse().unwrap_or_else(|error| panic!("{chain}: {error}"));
    let plan = chain.draw(1, 2, 3, image.height(), image.width()).unwrap();
    plan.image(image, &mut Scratch::default()).unwrap()
}

fn recolored(call: &str, image: &Image) -> Image {
    let mut image = image.clone();
    let (name, number) = call.split_once(' ').unwrap();
    let number: f32 = number.parse().unwrap();
    match name {
        "sharpness" => color::sharpness(&mut image, number),
        "posterize" => color::posterize(&mut image, number as u32),
        "solarize" => color::solarize(&mut image, number),
        "autocontrast" => color::autocontrast(&mut image),
        "equalize" => color::equalize(&mut image),
        _ => color::invert(&mut image),
    }
    image
}

#[test]
fn operations_make_the_bytes_that_torchvision_makes() {
    let blurred = file("blurred.bin");
    let (mut wrong, mut counted) = (Vec::new(), 0);
    for line in lines("operations.txt") {
        let words: Vec<&str> = line.split('|').collect();
        let [kind, name, call, size, hash] = words[..] else { panic!("{line}") };
        let image = photo(name);
        let (made, bytes) = match kind {
            "tensor" => {
                let chain: Chain = call.parse().unwrap();
                let plan = chain.draw(1, 2, 3, image.height(), image.width()).unwrap();
                let mut out = vec![0; plan.output(3).bytes()];
                plan.run(&image, &mut out, &mut Scratch::default()).unwrap();
                (None, out)
            }
            "color" => (Some(recolored(call, &image)), Vec::new()),
            _ => (Some(run(call, &image)), Vec::new()),
        };
        if let Some(made) = &made {
            assert_eq!(format!("{} {}", made.height(), made.width()), size, "{line}");
        }
        let bytes = made.as_ref().map_or(&bytes[..], Image::pixels);
        counted += 1;
        if kind == "blur" {
            let (most, mean) = difference(bytes, &blurred[hash.parse().unwrap()..][..bytes.len()]);
            println!("{line}: greatest difference {most}, mean {mean:.5}");
            if most > 1 || mean > 0.001 {
                wrong.push(format!("{line}: greatest difference {most}, mean {mean}"));
            }
        } else if fnv(bytes) != hash {
            wrong.push(line.clone());
        }
    }
    assert!(counted > 180, "{counted}");
    assert!(wrong.is_empty(), "{} of {counted} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// A mask has the stored numbers, not the colours that they represent.
#[test]
fn masks_are_the_indexes_that_are_stored() {
    let how = Decoding { color: Color::Index, ..Decoding::default() };
    for name in ["palette.png", "palette.bmp", "still.gif"] {
        let image = match decode(&file(name), &how) {
            Ok(image) => image,
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(image.channels(), 1);
        assert!(image.pixels().iter().all(|&index| index < 37), "{name}");
        // A palette of 37 colours.
        let mut seen = image.pixels().to_vec();
        seen.sort_unstable();
        seen.dedup();
        assert!((20..=37).contains(&seen.len()), "{name}: {}", seen.len());
    }
    let bits = decode(&file("bits.png"), &how).unwrap();
    assert!(bits.pixels().iter().all(|&bit| bit <= 1) && bits.pixels().contains(&1));
    for name in ["rgb.png", "420.jpg", "cmyk.jpg", "lossy.webp", "rgb.tif"] {
        let error = decode(&file(name), &how).expect_err(name);
        assert!(error.remedy().is_some(), "{name}: {error}");
    }
}

#[test]
fn gray_is_the_luminance() {
    let how = Decoding { color: Color::Gray, ..Decoding::default() };
    for name in ["rgb.png", "palette.png", "la.png", "cmyk.tif"] {
        let (gray, rgb) = (decode(&file(name), &how).unwrap(), photo(name));
        let luma = |rgb: &[u8; 3]| {
            let [r, g, b] = rgb.map(u32::from);
            ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16) as u8
        };
        let wanted: Vec<u8> = rgb.pixels().as_chunks().0.iter().map(luma).collect();
        assert_eq!(gray.pixels(), wanted, "{name}");
    }
}

/// Photographs of two formats, recognized by their bytes alone: there is no name.
#[test]
fn the_format_is_told_by_the_content() {
    let cases = [
        ("420.jpg", Format::Jpeg),
        ("rgb.png", Format::Png),
        ("lossy.webp", Format::WebP),
        ("rgb.bmp", Format::Bmp),
        ("still.gif", Format::Gif),
        ("rgb.tif", Format::Tiff),
    ];
    for (name, format) in cases {
        assert_eq!(Format::of(&file(name)), Some(format), "{name}");
        assert_eq!(Format::of(&file(name)[..12]), Some(format), "{name}");
    }
    assert_eq!(Format::of(b"not an image"), None);
}

/// Without the orientation, the eight are one photograph.
#[test]
fn orientation_can_be_left_alone() {
    let how = Decoding { orient: false, ..Decoding::default() };
    let first = decode(&file("exif1.jpg"), &how).unwrap();
    for orientation in 2..=8 {
        let name = format!("exif{orientation}.jpg");
        assert_eq!(decode(&file(&name), &how).unwrap(), first, "{name}");
        assert_ne!(decode(&file(&name), &Decoding::default()).unwrap(), first, "{name}");
    }
}

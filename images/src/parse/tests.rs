//! The meaning of strings, and the errors of strings without one.

use super::*;
use uringload_core::ErrorKind;

fn chain(text: &str) -> Chain {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The message, and the remedy.
fn refused(text: &str) -> (String, String) {
    let error = text.parse::<Chain>().expect_err(text);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}: {error}");
    (error.what().to_owned(), error.remedy().unwrap_or_default().to_owned())
}

#[test]
fn strings_are_chains() {
    let wanted = Chain::new()
        .with(Op::RandomResizedCrop {
            height: 224,
            width: 224,
            scale: (0.08, 1.0),
            ratio: (3.0 / 4.0, 4.0 / 3.0),
            filter: Filter::Bilinear,
        })
        .and_then(|chain| chain.with(Op::HorizontalFlip { p: 0.5 }))
        .and_then(|chain| chain.normalize(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]))
        .unwrap();
    for text in [
        "random_resized_crop(224),hflip,normalize(imagenet)",
        " RandomResizedCrop( size = 224x224 , scale=0.08..1 ) , RandomHorizontalFlip ( 0.5 ), Normalize(ImageNet) ",
        "random_resized_crop(224), hflip(), normalize(mean=0.485:0.456:0.406, std=0.229:0.224:0.225), to_tensor",
    ] {
        assert_eq!(chain(text), wanted, "{text}");
    }
    let jitter =
        Op::ColorJitter { brightness: (0.6, 1.4), contrast: (0.0, 2.5), saturation: (1.0, 1.0), hue: (-0.1, 0.1) };
    assert_eq!(chain("color_jitter(0.4, 1.5, hue=0.1)").ops(), [jitter]);
    assert_eq!(chain("pad(1:2:3:4, fill=9)").ops(), [Op::Pad { padding: [1, 2, 3, 4], fill: 9 }]);
    assert_eq!(chain("resize(9x7, lanczos)").ops(), [Op::Resize { size: Size::Exact(9, 7), filter: Filter::Lanczos }]);
    assert_eq!(chain("rotate(15)").ops(), [Op::Rotate { degrees: (-15.0, 15.0), filter: Filter::Nearest, fill: 0 }]);
    assert_eq!(chain("to_tensor(bf16, hwc)"), Chain::new().dtype(DType::BF16).unwrap().channels_last(true));
    assert_eq!(chain("rand_augment(magnitude=5)").ops(), [Op::RandAugment { ops: 2, magnitude: 5 }]);
    // Every operation with its defaults.
    let all = "resize(9), center_crop(8), random_crop(7, 4), pad(1), hflip, vflip, rotate(3), affine(5, 0.1, 0.9..1.1, \
               shear=4), color_jitter(0.1, 0.1, 0.1, 0.1), grayscale, blur(3), auto_augment(svhn), rand_augment, \
               trivial_augment, normalize(0.5, 0.5), random_erasing(value=random)";
    assert_eq!(chain(all).ops().len(), 15);
}

#[test]
fn errors_point_at_the_character_and_suggest_the_name() {
    let cases = [
        ("resize(256), random_resize_crop(224)", "at character 14 ", "did you mean random_resized_crop?"),
        ("hfilp", "at character 1 ", "did you mean hflip?"),
        ("resize(256, filter=bilinar)", "at character 20 ", "did you mean bilinear?"),
        ("normalize(imagnet)", "at character 11 ", "did you mean imagenet?"),
        ("random_crop(32, paddin=4)", "at character 17 ", "did you mean padding?"),
        ("to_tensor(f64)", "", "f32"),
        ("to_tensor(float)", "at character 11 ", "There are f32, f16, bf16, u8"),
        ("resize", "at character 1 ", "give the shorter side"),
        ("resize(256", "at character 7 ", "write )"),
        ("hflip)", "at character 6 ", "leave it out"),
        ("hflip,,vflip", "at character 7 ", "write operations"),
        ("hflip,", "at character 7 ", "write operations"),
        ("", "at character 1 ", "write operations"),
        ("hflip(0.5) vflip", "at character 12 ", "write a comma"),
        ("resize(12, 7, 7)", "", "did you mean"),
        ("resize(12, bilinear, 7)", "at character 22 ", "there are size, filter"),
        ("resize(12, size=7)", "at character 17 ", "give it once"),
        ("trivial_augment(3)", "at character 17 ", "it takes none"),
        ("hflip(2)", "at character 1 ", "give numbers from 0 to 1"),
        ("ä(1)", "at character 1 ", "There are resize"),
        ("hflip, ä(1)", "at character 8 ", "There are resize"),
        ("blur(4)", "at character 1 ", "odd number"),
        ("normalize(imagenet), hflip", "at character 22 ", "write normalize after it"),
        ("random_erasing, hflip", "at character 17 ", "erase last"),
        ("color_jitter(-1)", "at character 14 ", "give a number"),
    ];
    for (text, place, suggestion) in cases {
        let (what, remedy) = refused(text);
        if !place.is_empty() {
            assert!(what.contains(place), "{text}: {what}");
            assert!(remedy.contains(suggestion), "{text}: {remedy}");
        }
    }
}

//! Files that are cut, changed, lying or large: each gives pixels or an error, and never a panic.

mod common;

use common::{file, lines};
use proptest::prelude::*;
use uringload_core::ErrorKind;
use uringload_images::{Color, Decoding, Jpeg, Limits, decode};

fn names() -> Vec<String> {
    lines("decoded.txt").iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Tight enough that the claims of a changed header are refused and not computed.
fn tight() -> Decoding {
    Decoding { limits: Limits { pixels: 1 << 16, bytes: 1 << 22 }, ..Decoding::default() }
}

#[test]
fn cut_files_are_errors() {
    for name in names() {
        let whole = file(&name);
        // Everywhere in the header, and then every few bytes. At the very end a byte may mean nothing.
        let cuts = (0..whole.len() - 16).filter(|cut| *cut < 300 || cut % 41 == 0);
        for cut in cuts {
            let made = decode(&whole[..cut], &tight());
            let Err(error) = made else {
                // A GIF's second frame, a TIFF's directory at the start, and what follows the pixels may be missing.
                let may_lack = name.starts_with("moving") || name.ends_with(".tif") || name.ends_with(".gif");
                assert!(may_lack || cut + 100 > whole.len(), "{name} cut at {cut} of {} is decoded", whole.len());
                continue;
            };
            let kind = error.kind();
            let is_known =
                matches!(kind, ErrorKind::Truncated | ErrorKind::Corrupt | ErrorKind::Empty | ErrorKind::WrongFileType);
            assert!(is_known || name.ends_with(".tif"), "{name} cut at {cut}: {error:?}");
        }
    }
}

/// Every bit of the first bytes, and some of the others.
#[test]
fn changed_files_are_pixels_or_errors() {
    for name in names() {
        let whole = file(&name);
        for at in (0..whole.len()).filter(|at| *at < 200 || at % 23 == 0) {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                for color in [Color::Rgb, Color::Index] {
                    let _ = decode(&bytes, &Decoding { color, ..tight() });
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn spliced_files_are_pixels_or_errors(
        index in 0_usize..1000,
        changes in proptest::collection::vec((0_usize..1 << 16, any::<u8>()), 1..12),
        cut in 0_usize..1 << 16,
        tail in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let names = names();
        let mut bytes = file(&names[index % names.len()]);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut % bytes.len() / 4);
        bytes.extend(tail);
        let _ = decode(&bytes, &tight());
    }
}

#[test]
fn limits_hold_before_memory_is_taken() {
    for name in names() {
        for limits in [Limits { pixels: 100, ..Limits::default() }, Limits { bytes: 100, ..Limits::default() }] {
            let error = decode(&file(&name), &Decoding { limits, ..Decoding::default() }).expect_err(&name);
            assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{name}: {error}");
            assert!(error.remedy().is_some(), "{name}: {error}");
        }
    }
    // A PNG of 58 bytes that claims 2^31 - 1 columns and rows, and a JPEG of 65 500 by 65 500 pixels.
    let mut bomb = file("rgb.png");
    bomb[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    // Its checksum is wrong then, and that may be reported first.
    assert!(decode(&bomb, &Decoding::default()).is_err());
    let mut bomb = file("420.jpg");
    let frame = bomb.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    bomb[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    assert_eq!(decode(&bomb, &Decoding::default()).unwrap_err().kind(), ErrorKind::MemoryLimit);
}

/// A JPEG takes as much as it claims: pixels twice, and coefficients only where several scans share them.
#[test]
fn a_jpeg_claims_what_its_kind_takes() {
    let least = |name: &str| {
        // 33 x 23 pixels, most of it for the current rows.
        let bytes = file(name);
        let fits = |limit: u64| {
            let limits = Limits { bytes: limit, ..Limits::default() };
            decode(&bytes, &Decoding { limits, jpeg: Jpeg::Embedded, ..Decoding::default() }).is_ok()
        };
        let (mut low, mut high) = (0, 1 << 20);
        while low + 1 < high {
            let middle = (low + high) / 2;
            if fits(middle) { high = middle } else { low = middle }
        }
        high
    };
    let strip = 3 * 64 * 256;
    assert_eq!(least("420.jpg"), 33 * 23 * 6 + strip);
    assert_eq!(least("444.jpg"), 33 * 23 * 6 + strip);
    // 3 x 2 blocks of 16 x 16, with half as many samples of chroma as of luminance.
    assert_eq!(least("progressive.jpg"), 33 * 23 * 6 + strip + 2 * 3 * 2 * 256 * 3 / 2);
    assert_eq!(least("cmyk.jpg"), 33 * 23 * 7 + 4 * 64 * 256);
}

#[test]
fn what_is_no_image_says_so() {
    let kind = |bytes: &[u8]| decode(bytes, &Decoding::default()).unwrap_err().kind();
    assert_eq!(kind(b""), ErrorKind::Empty);
    assert_eq!(kind(b"<html>404</html>"), ErrorKind::WrongFileType);
    assert_eq!(kind(&[0; 100]), ErrorKind::WrongFileType);
    for head in [&b"\xff\xd8\xff"[..], b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP", b"BM", b"GIF89a", b"II*\0", b"MM\0*"]
    {
        let error = decode(head, &Decoding::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Truncated | ErrorKind::Corrupt), "{head:?}: {error:?}");
    }
}

/// A kind of JPEG that is not known here is reported as such: the frame's marker names it.
#[test]
fn unknown_kinds_of_jpeg_are_told() {
    let whole = file("444.jpg");
    let frame = whole.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    for (marker, told) in [(0xc3, "lossless"), (0xc9, "arithmetic"), (0xca, "arithmetic"), (0xc5, "hierarchical")] {
        let mut bytes = whole.clone();
        bytes[frame + 1] = marker;
        // libjpeg-turbo decodes arithmetic coding, and other bytes give some pixels.
        let error = decode(&bytes, &Decoding { jpeg: Jpeg::Embedded, ..Decoding::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.what().contains(told) && error.offset() == Some(frame as u64), "{error}");
    }
    let mut bytes = whole;
    bytes[frame + 4] = 12;
    assert_eq!(decode(&bytes, &Decoding::default()).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Broken EXIF has no orientation; the photograph is not lost.
#[test]
fn broken_exif_is_left_alone() {
    let whole = file("exif6.jpg");
    let upright = decode(&file("exif1.jpg"), &Decoding::default()).unwrap();
    let start = whole.windows(4).position(|bytes| bytes == b"Exif").unwrap() + 6;
    for at in start..start + 24 {
        let mut bytes = whole.clone();
        bytes[at] = 0xee;
        let image = decode(&bytes, &Decoding::default()).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(image.height() == upright.height() || image.height() == upright.width(), "{at}");
    }
}

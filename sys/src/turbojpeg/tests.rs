//! What the library of this machine decodes and refuses. Without one only its absence is tested.

use super::*;

/// The library, where the machine has one.
fn library() -> Option<Library> {
    Library::open(&[]).map_err(|error| eprintln!("skipped: {error}")).ok()
}

/// A JPEG of that size with colours that change along both axes.
fn jpeg(library: &Library, (height, width): (u32, u32)) -> Vec<u8> {
    let level = |at: u32, step: u32| (at * step % 256) as u8;
    let pixels: Vec<u8> =
        (0..height).flat_map(|y| (0..width).flat_map(move |x| [level(x, 3), level(y, 5), level(x + y, 1)])).collect();
    Encoder::new(library.clone()).encode((height, width), Pixels::Rgb, &pixels, 90).unwrap()
}

fn request(pixels: Pixels, scale: Scale, rectangle: Option<Rectangle>) -> Request {
    Request { pixels, scale, rectangle, fast_upsampling: false, scans_max: 100 }
}

fn decoded(library: &Library, jpeg: &[u8], request: &Request) -> Result<Vec<u8>, TurboError> {
    let mut jpeg = Jpeg::new(library, jpeg)?;
    let (rows, columns) = request.size(jpeg.header());
    let mut out = vec![0; rows as usize * columns as usize * request.pixels.channels()];
    jpeg.decode(request, &mut out).map(|()| out)
}

#[test]
fn rectangles_and_scales_are_parts_of_the_whole() {
    let Some(library) = library() else { return };
    let file = jpeg(&library, (120, 200));
    let header = *Jpeg::new(&library, &file).unwrap().header();
    assert_eq!((header.height, header.width, header.components, header.precision), (120, 200, 3, 8));
    assert_eq!(header.subsampling.mcu_width(), Some(16));
    let whole = decoded(&library, &file, &request(Pixels::Rgb, Scale::Whole, None)).unwrap();
    let part = Rectangle { x: 32, y: 17, w: 100, h: 60 };
    let cut = decoded(&library, &file, &request(Pixels::Rgb, Scale::Whole, Some(part))).unwrap();
    // An MCU within its edges it is the same: only beyond does chroma lack its neighbours.
    for y in 0..60 {
        let row = &whole[((17 + y) * 200 + 32) * 3..][..300];
        assert_eq!(cut[y * 300..][48..300 - 48], row[48..300 - 48], "row {y}");
    }
    for scale in [Scale::Half, Scale::Quarter, Scale::Eighth] {
        let small = decoded(&library, &file, &request(Pixels::Rgb, scale, None)).unwrap();
        assert_eq!(small.len() as u32, 120_u32.div_ceil(scale.divisor()) * 200_u32.div_ceil(scale.divisor()) * 3);
    }
    let gray = decoded(&library, &file, &request(Pixels::Gray, Scale::Whole, None)).unwrap();
    assert_eq!(gray.len(), 120 * 200);
}

/// What is asked for and cannot be is refused, and the next image is not harmed by it.
#[test]
fn a_bad_request_is_refused() {
    let Some(library) = library() else { return };
    let file = jpeg(&library, (120, 200));
    let parts = [(8, 0, 16, 16), (0, 0, 201, 1), (192, 0, 16, 1), (0, 119, 1, 2), (0, 0, 0, 1), (0, u32::MAX, 1, 1)];
    for (x, y, w, h) in parts {
        let asked = request(Pixels::Rgb, Scale::Whole, Some(Rectangle { x, y, w, h }));
        let mut out = vec![0; (w * h.min(120) * 3) as usize];
        assert!(Jpeg::new(&library, &file).unwrap().decode(&asked, &mut out).is_err(), "{x} {y} {w} {h}");
    }
    let all = request(Pixels::Rgb, Scale::Whole, None);
    for bytes in [0, 1, 120 * 200 * 3 - 1, 120 * 200 * 3 + 1] {
        assert!(Jpeg::new(&library, &file).unwrap().decode(&all, &mut vec![0; bytes]).is_err(), "{bytes}");
    }
    assert!(decoded(&library, &file, &request(Pixels::Cmyk, Scale::Whole, None)).is_err());
    assert!(decoded(&library, &file, &all).is_ok());
}

/// `tj3DecompressHeader` leaves its reader inside a broken header; the next image was read on from there.
#[test]
fn an_image_behind_a_broken_one_is_whole() {
    let Some(library) = library() else { return };
    let file = jpeg(&library, (64, 64));
    let all = request(Pixels::Rgb, Scale::Whole, None);
    let wanted = decoded(&library, &file, &all).unwrap();
    for cut in [0, 1, 2, 3, 20, 100, 200, 400, file.len() - 2] {
        let _ = Jpeg::new(&library, &file[..cut]);
        let _ = decoded(&library, &file[..cut], &all);
        assert_eq!(decoded(&library, &file, &all).unwrap(), wanted, "behind {cut} bytes");
    }
    for at in 2..file.len().min(700) {
        let mut broken = file.clone();
        broken[at] ^= 0xff;
        let _ = Jpeg::new(&library, &broken);
        let _ = decoded(&library, &broken, &all);
        assert_eq!(decoded(&library, &file, &all).unwrap(), wanted, "behind a change at {at}");
    }
}

/// Files of this one: with its Huffman tables left out, as frames of MJPEG have it, and with one of them broken after
/// bytes between segments. Those are a warning, which hid that the table is an error.
fn without_tables(file: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut bare, mut broken, mut at) = (file[..2].to_vec(), file[..2].to_vec(), 2);
    loop {
        let len = 2 + usize::from(file[at + 2]) * 256 + usize::from(file[at + 3]);
        let mut segment = file[at..at + len].to_vec();
        at += len;
        if segment[1] == 0xc4 {
            segment[5..21].fill(255);
            broken.extend([0, 0x11, 0x22]);
        } else {
            bare.extend(&segment);
        }
        broken.extend(&segment);
        if segment[1] == 0xda {
            break;
        }
    }
    bare.extend(&file[at..]);
    broken.extend(&file[at..]);
    (bare, broken)
}

/// What a decoder has seen changes nothing: a broken file made the next one fail, and one without tables had those of
/// the file before.
#[test]
fn pixels_are_a_function_of_the_files_bytes() {
    let Some(library) = library() else { return };
    let all = request(Pixels::Rgb, Scale::Whole, None);
    let (file, other) = (jpeg(&library, (64, 64)), include_bytes!("../../../images/tests/data/progressive.jpg"));
    let (bare, broken) = without_tables(&file);
    let alone = |file: &[u8]| decoded(&library, file, &all).map_err(|error| error.to_string());
    let wanted = [&file[..], &bare, &broken, other].map(alone);
    assert!(wanted[0].is_ok() && wanted[1] == wanted[0] && wanted[2].is_err() && wanted[3].is_ok(), "{:?}", wanted[2]);
    for order in [[0, 2, 0, 1], [3, 1, 2, 3], [2, 1, 3, 0], [1, 3, 1, 2]] {
        for which in order {
            let file = [&file[..], &bare, &broken, other][which];
            assert_eq!(decoded(&library, file, &all).map_err(|error| error.to_string()), wanted[which], "{order:?}");
        }
    }
}

/// Tables without an image say nothing about a size, and the previous image's size may not replace it.
#[test]
fn tables_without_an_image_are_refused() {
    let Some(library) = library() else { return };
    let file = jpeg(&library, (64, 64));
    let all = request(Pixels::Rgb, Scale::Whole, None);
    decoded(&library, &file, &all).unwrap();
    assert!(Jpeg::new(&library, &[0xff, 0xd8, 0xff, 0xd9]).is_err());
}

#[test]
fn an_absent_library_is_told() {
    let places = [PathBuf::from("/nowhere/libturbojpeg.so.0")];
    match Library::open(&places) {
        Ok(library) => assert!(library.version().starts_with('3'), "{library:?}"),
        Err(error) => assert!(error.to_string().contains("libturbojpeg"), "{error}"),
    }
}

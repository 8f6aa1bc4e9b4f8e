//! What the library of this machine decodes and refuses. Without one only its absence is tested.

use super::*;

/// The library, where the machine has one.
fn library() -> Option<Library> {
    Library::open(&[]).map_err(|error| eprintln!("skipped: {error}")).ok()
}

/// A JPEG of that size, whose colours change along both axes.
fn jpeg(library: &Library, (height, width): (u32, u32)) -> Vec<u8> {
    let level = |at: u32, step: u32| (at * step % 256) as u8;
    let pixels: Vec<u8> =
        (0..height).flat_map(|y| (0..width).flat_map(move |x| [level(x, 3), level(y, 5), level(x + y, 1)])).collect();
    Encoder::new(library.clone()).encode((height, width), Pixels::Rgb, &pixels, 90).unwrap()
}

fn request(pixels: Pixels, scale: Scale, rectangle: Option<Rectangle>) -> Request {
    Request { pixels, scale, rectangle, fast_upsampling: false, scans_max: 100 }
}

fn decoded(decoder: &mut Decoder, jpeg: &[u8], request: &Request) -> Result<Vec<u8>, TurboError> {
    let (rows, columns) = request.size(&decoder.header(jpeg)?);
    let mut out = vec![0; rows as usize * columns as usize * request.pixels.channels()];
    decoder.decode(jpeg, request, &mut out).map(|()| out)
}

#[test]
fn rectangles_and_scales_are_parts_of_the_whole() {
    let Some(library) = library() else { return };
    let file = jpeg(&library, (120, 200));
    let mut decoder = Decoder::new(library);
    let header = decoder.header(&file).unwrap();
    assert_eq!((header.height, header.width, header.components, header.precision), (120, 200, 3, 8));
    assert_eq!(header.subsampling.mcu_width(), Some(16));
    let whole = decoded(&mut decoder, &file, &request(Pixels::Rgb, Scale::Whole, None)).unwrap();
    let part = Rectangle { x: 32, y: 17, w: 100, h: 60 };
    let cut = decoded(&mut decoder, &file, &request(Pixels::Rgb, Scale::Whole, Some(part))).unwrap();
    // An MCU within its edges it is the same: only beyond does chroma lack its neighbours.
    for y in 0..60 {
        let row = &whole[((17 + y) * 200 + 32) * 3..][..300];
        assert_eq!(cut[y * 300..][48..300 - 48], row[48..300 - 48], "row {y}");
    }
    for scale in [Scale::Half, Scale::Quarter, Scale::Eighth] {
        let small = decoded(&mut decoder, &file, &request(Pixels::Rgb, scale, None)).unwrap();
        assert_eq!(small.len() as u32, 120_u32.div_ceil(scale.divisor()) * 200_u32.div_ceil(scale.divisor()) * 3);
    }
    let gray = decoded(&mut decoder, &file, &request(Pixels::Gray, Scale::Whole, None)).unwrap();
    assert_eq!(gray.len(), 120 * 200);
}

/// What is asked for and cannot be is refused, and the next image is not harmed by it.
#[test]
fn a_bad_request_is_refused() {
    let Some(library) = library() else { return };
    let file = jpeg(&library, (120, 200));
    let mut decoder = Decoder::new(library);
    let parts = [(8, 0, 16, 16), (0, 0, 201, 1), (192, 0, 16, 1), (0, 119, 1, 2), (0, 0, 0, 1), (0, u32::MAX, 1, 1)];
    for (x, y, w, h) in parts {
        let asked = request(Pixels::Rgb, Scale::Whole, Some(Rectangle { x, y, w, h }));
        let mut out = vec![0; (w * h.min(120) * 3) as usize];
        assert!(decoder.decode(&file, &asked, &mut out).is_err(), "{x} {y} {w} {h}");
    }
    let all = request(Pixels::Rgb, Scale::Whole, None);
    for bytes in [0, 1, 120 * 200 * 3 - 1, 120 * 200 * 3 + 1] {
        assert!(decoder.decode(&file, &all, &mut vec![0; bytes]).is_err(), "{bytes}");
    }
    assert!(decoded(&mut decoder, &file, &request(Pixels::Cmyk, Scale::Whole, None)).is_err());
    assert!(decoded(&mut decoder, &file, &all).is_ok());
}

/// `tj3DecompressHeader` leaves its reader inside a broken header; the next image was read on from there.
#[test]
fn an_image_behind_a_broken_one_is_whole() {
    let Some(library) = library() else { return };
    let file = jpeg(&library, (64, 64));
    let all = request(Pixels::Rgb, Scale::Whole, None);
    let mut decoder = Decoder::new(library);
    let wanted = decoded(&mut decoder, &file, &all).unwrap();
    for cut in [0, 1, 2, 3, 20, 100, 200, 400, file.len() - 2] {
        let _ = decoder.header(&file[..cut]);
        let _ = decoded(&mut decoder, &file[..cut], &all);
        assert_eq!(decoded(&mut decoder, &file, &all).unwrap(), wanted, "behind {cut} bytes");
    }
    for at in 2..file.len().min(700) {
        let mut broken = file.clone();
        broken[at] ^= 0xff;
        let _ = decoder.header(&broken);
        let _ = decoded(&mut decoder, &broken, &all);
        assert_eq!(decoded(&mut decoder, &file, &all).unwrap(), wanted, "behind a change at {at}");
    }
}

/// Tables without an image say nothing about a size; that of the image before may not stand for it.
#[test]
fn tables_without_an_image_are_refused() {
    let Some(library) = library() else { return };
    let file = jpeg(&library, (64, 64));
    let mut decoder = Decoder::new(library);
    let all = request(Pixels::Rgb, Scale::Whole, None);
    decoded(&mut decoder, &file, &all).unwrap();
    let mut out = vec![7; 64 * 64 * 3];
    assert!(decoder.decode(&[0xff, 0xd8, 0xff, 0xd9], &all, &mut out).is_err());
}

#[test]
fn an_absent_library_is_told() {
    let places = [PathBuf::from("/nowhere/libturbojpeg.so.0")];
    match Library::open(&places) {
        Ok(library) => assert!(library.version().starts_with('3'), "{library:?}"),
        Err(error) => assert!(error.to_string().contains("libturbojpeg"), "{error}"),
    }
}

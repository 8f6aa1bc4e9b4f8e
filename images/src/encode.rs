//! Images as files: `pack` writes those that it made smaller.

use crate::{Image, refused};
use uringload_core::{Error, Result};

/// Bytes before the pixels of a bitmap.
const BMP_HEAD_BYTES: u32 = 54;

/// A baseline JPEG of this quality, from 1 to 100, with chroma of half the rows and columns, as most encoders write it.
///
/// On every machine the encoder is that of the feature `jpeg-encoder`: the same image becomes the same bytes.
///
/// # Errors
/// `InvalidArgument` for another quality, and for an image of more than 65 535 rows or columns or of 2 channels;
/// `Unavailable` without the feature.
pub fn encode_jpeg(image: &Image, quality: u8) -> Result<Vec<u8>> {
    if !(1..=100).contains(&quality) {
        return Err(refused(format!("a JPEG cannot have quality {quality}"), "give 1 to 100"));
    }
    if !matches!(image.channels(), 1 | 3 | 4) {
        return Err(no_file("JPEG", image, &format!("it has {} channels", image.channels())));
    }
    let (Ok(height), Ok(width)) = (u16::try_from(image.height()), u16::try_from(image.width())) else {
        return Err(no_file("JPEG", image, "a side has more than 65535 pixels"));
    };
    if height == 0 || width == 0 {
        return Err(no_file("JPEG", image, "it has no pixels"));
    }
    jpeg_of(image, height, width, quality)
}

#[cfg(feature = "jpeg-encoder")]
fn jpeg_of(image: &Image, height: u16, width: u16, quality: u8) -> Result<Vec<u8>> {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    let color = match image.channels() {
        1 => ColorType::Luma,
        3 => ColorType::Rgb,
        // Transparent pixels are stored as if they were opaque.
        _ => ColorType::Rgba,
    };
    let mut file = Vec::new();
    // With the usual codes. Optimal ones would need a scan for each component, which few files have and which
    // `zune-jpeg` decodes wrong where chroma has fewer samples.
    let mut encoder = Encoder::new(&mut file, quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    let encoded = encoder.encode(image.pixels(), width, height, color);
    let internal = uringload_core::ErrorKind::Internal;
    encoded.map_err(|error| Error::new(internal, "the image cannot be encoded").with_source(error))?;
    Ok(file)
}

#[cfg(not(feature = "jpeg-encoder"))]
fn jpeg_of(_image: &Image, _height: u16, _width: u16, _quality: u8) -> Result<Vec<u8>> {
    Err(uringload_core::not_built_in("an encoder of JPEG", "jpeg-encoder"))
}

/// An uncompressed bitmap of 24 bits (BMP), which every reader of images knows. Its pixels need only be copied.
///
/// # Errors
/// `InvalidArgument` for an image that does not have 3 channels, or has more than 2 GiB.
pub fn encode_bmp(image: &Image) -> Result<Vec<u8>> {
    let (height, width) = (image.height(), image.width());
    if image.channels() != 3 {
        return Err(no_file("BMP", image, &format!("it has {} channels", image.channels())));
    }
    let stride = (3 * u64::from(width)).next_multiple_of(4);
    let bytes = stride.saturating_mul(u64::from(height)).saturating_add(BMP_HEAD_BYTES.into());
    let Some(bytes) = i32::try_from(bytes).ok().map(i32::cast_unsigned) else {
        return Err(no_file("BMP", image, "it has more than 2 GiB"));
    };
    let mut file = Vec::with_capacity(bytes as usize);
    file.extend_from_slice(b"BM");
    // A negative height: rows from the top. 2835 pixels are a meter.
    let top_down = height.cast_signed().wrapping_neg().cast_unsigned();
    let pixels = bytes - BMP_HEAD_BYTES;
    for number in [bytes, 0, BMP_HEAD_BYTES, 40, width, top_down, 1 | 24 << 16, 0, pixels, 2835, 2835, 0, 0] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    let padding = (stride - 3 * u64::from(width)) as usize;
    for row in image.pixels().chunks_exact((3 * width as usize).max(1)) {
        let start = file.len();
        file.extend_from_slice(row);
        file[start..].as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| pixel.swap(0, 2));
        file.extend_from_slice(&[0; 3][..padding]);
    }
    Ok(file)
}

fn no_file(kind: &str, image: &Image, why: &str) -> Error {
    let what = format!("an image of {} x {} pixels cannot be a {kind}: {why}", image.height(), image.width());
    refused(what, "make images of 3 channels and moderate size")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoding, Jpeg, decode};
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
    use uringload_core::ErrorKind;

    /// A picture with slopes and an edge, as photographs have them.
    fn picture(height: u32, width: u32) -> Image {
        let level = |y: u32, x: u32, c: u32| (20 + 90 * y / height + 70 * x / width + 30 * c * u32::from(x > y)) as u8;
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| level(y, x, c))));
        Image::new(height, width, 3, pixels.collect()).expect("an image")
    }

    #[test]
    fn a_bitmap_has_every_pixel() {
        for (height, width) in [(1, 1), (5, 2), (3, 7), (40, 61), (16, 16)] {
            let image = picture(height, width);
            let file = encode_bmp(&image).expect("a bitmap");
            assert_eq!(decode(&file, &Decoding::default()).expect("an image"), image, "{height} x {width}");
        }
        assert!(encode_bmp(&Image::new(1, 1, 1, vec![0]).expect("gray")).is_err());
    }

    #[test]
    fn a_jpeg_is_near_and_smaller_at_lower_quality() {
        let image = picture(120, 160);
        let mut last = usize::MAX;
        for (quality, most) in [(98, 3.0), (90, 4.0), (50, 8.0)] {
            let file = encode_jpeg(&image, quality).expect("a JPEG");
            assert_eq!(encode_jpeg(&image, quality).expect("a JPEG"), file, "the same bytes");
            let how = Decoding { jpeg: Jpeg::Embedded, ..Decoding::default() };
            let again = decode(&file, &how).expect("an image");
            assert_eq!((again.height(), again.width()), (120, 160));
            let pairs = image.pixels().iter().zip(again.pixels());
            let sum: u64 = pairs.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
            let mean = sum as f64 / image.pixels().len() as f64;
            assert!(mean < most && file.len() < last, "quality {quality}: {mean}, {} bytes", file.len());
            last = file.len();
        }
        // A file with a scan for each component, from another encoder, is not decoded wrong.
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        encoder.set_optimized_huffman_tables(true);
        encoder.encode(image.pixels(), 160, 120, ColorType::Rgb).expect("a JPEG");
        let how = Decoding { jpeg: Jpeg::Embedded, ..Decoding::default() };
        assert_eq!(decode(&file, &how).expect_err("several scans").kind(), ErrorKind::Unavailable);
        let gray = Image::new(9, 17, 1, vec![77; 9 * 17]).expect("gray");
        assert!(decode(&encode_jpeg(&gray, 90).expect("a JPEG"), &Decoding::default()).is_ok());
        assert!(encode_jpeg(&image, 0).is_err() && encode_jpeg(&image, 101).is_err());
        assert!(encode_jpeg(&Image::new(1, 65_536, 1, vec![0; 65_536]).expect("wide"), 90).is_err());
    }
}

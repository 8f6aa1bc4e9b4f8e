//! Small pictures of samples, as text within the page.

use std::sync::Arc;
use uringload::dataset::{Dataset, SampleId, Value};
use uringload::inspect::Samples;
use uringload_images::{Decoding, Filter, Region, decode, encode_jpeg, resize};

/// Rows and columns at most, in pixels.
const BOX: u32 = 96;
/// Of the JPEG: some 3 KB each.
const QUALITY: u8 = 70;
/// Values that are longer are not decoded for a picture.
const LONGEST: usize = 64 << 20;

/// The picture of each sample, as the address of an image; `None` for those that hold none.
pub fn of(dataset: &Arc<dyn Dataset>, ids: impl Iterator<Item = SampleId>) -> Vec<Option<String>> {
    let Ok(reader) = Samples::new(Arc::clone(dataset)) else { return Vec::new() };
    ids.map(|id| thumbnail(&reader, id)).collect()
}

/// Whatever cannot be read or decoded has no picture: the run has told what is wrong with it.
fn thumbnail(reader: &Samples, id: SampleId) -> Option<String> {
    let sample = reader.read(id).ok()?;
    let bytes = |value: &Value| if let Value::Bytes(bytes) = value { Some(bytes.clone()) } else { None };
    let image = sample.values.iter().filter_map(bytes).filter(|bytes| bytes.len() <= LONGEST).find_map(|bytes| {
        // Anything else than an image is most of what datasets hold.
        uringload_images::Format::of(&bytes)?;
        decode(&bytes, &Decoding::default()).ok()
    })?;
    let (height, width) = (image.height(), image.width());
    let longest = height.max(width).max(1);
    let fit = |side: u32| (u64::from(side) * u64::from(BOX) / u64::from(longest)).clamp(1, BOX.into()) as u32;
    let small = resize(&image, Region::whole(height, width), (fit(height), fit(width)), Filter::Bilinear).ok()?;
    Some(format!("data:image/jpeg;base64,{}", base64(&encode_jpeg(&small, QUALITY).ok()?)))
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, index| (bits << 8) | u32::from(three.get(index).copied().unwrap_or(0)));
        for digit in 0..4 {
            let is_there = digit <= three.len();
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if is_there { DIGITS[value].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringload::dataset::{Options, open};

    #[test]
    fn base64_as_the_standard_has_it() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn images_have_small_pictures_and_others_none() {
        let folder = tempfile::tempdir().unwrap();
        let image = uringload_images::Image::new(300, 400, 3, vec![90; 300 * 400 * 3]).unwrap();
        std::fs::write(folder.path().join("0.jpg"), encode_jpeg(&image, 90).unwrap()).unwrap();
        std::fs::write(folder.path().join("1.jpg"), b"no image").unwrap();
        std::fs::write(folder.path().join("2.jpg"), [0xff, 0xd8, 0xff, 0xe0, 0, 1]).unwrap();
        let dataset = open(&[folder.path()], &Options::new().format("folder")).unwrap();
        let found = of(&dataset, (0..3).map(SampleId));
        assert!(found[0].as_ref().is_some_and(|text| text.starts_with("data:image/jpeg;base64,/9j/")), "{found:?}");
        assert!(found[0].as_ref().unwrap().len() < 8000 && found[1].is_none() && found[2].is_none());
    }
}

//! Which way is up: the one tag of EXIF that changes pixels.

use crate::{Image, Region};

/// The tag.
const ORIENTATION: u16 = 0x0112;

/// The orientation, 1 to 8, that EXIF data says, from its TIFF header on; 1 where it is broken or says none, as Pillow
/// takes it.
pub fn orientation(exif: &[u8]) -> u16 {
    read(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif)).filter(|value| (1..=8).contains(value)).unwrap_or(1)
}

fn read(exif: &[u8]) -> Option<u16> {
    let is_big = match exif.get(..4)? {
        b"II\x2a\0" => false,
        b"MM\0\x2a" => true,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = *exif.get(at..)?.first_chunk()?;
        Some(if is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    let bytes = *exif.get(4..)?.first_chunk()?;
    let directory = if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) } as usize;
    let entries = usize::from(short(directory)?);
    // An entry is a tag, a type, a count and a value, 12 bytes; type 3 is a short.
    let entry = (0..entries).map(|entry| directory + 2 + 12 * entry);
    let found = entry.take_while(|&at| at < exif.len()).find(|&at| short(at) == Some(ORIENTATION))?;
    (short(found + 2)? == 3).then(|| short(found + 8))?
}

/// The image as it was seen. 2 to 4 mirror and turn by halves, 5 to 8 swap rows and columns before that.
pub fn oriented(image: Image, orientation: u16) -> Image {
    let mut image = if is_turned(orientation) { image.transposed() } else { image };
    if matches!(orientation, 2 | 3 | 6 | 7) {
        image.flip_horizontally();
    }
    if matches!(orientation, 3 | 4 | 7 | 8) {
        image.flip_vertically();
    }
    image
}

/// Whether rows and columns are swapped.
pub fn is_turned(orientation: u16) -> bool {
    (5..=8).contains(&orientation)
}

/// Where a region of a stored image of that size lies in the image as it was seen.
pub fn seen(region: Region, (height, width): (u32, u32), orientation: u16) -> Region {
    let (region, size) =
        if is_turned(orientation) { (transposed(region), (width, height)) } else { (region, (height, width)) };
    mirrored(region, size, orientation)
}

/// Where a region of an image as it was seen lies in the stored image, which has that size.
pub fn stored(region: Region, (height, width): (u32, u32), orientation: u16) -> Region {
    if is_turned(orientation) {
        return transposed(mirrored(region, (width, height), orientation));
    }
    mirrored(region, (height, width), orientation)
}

fn transposed(region: Region) -> Region {
    Region { y: region.x, x: region.y, h: region.w, w: region.h }
}

fn mirrored(mut region: Region, (height, width): (u32, u32), orientation: u16) -> Region {
    if matches!(orientation, 2 | 3 | 6 | 7) {
        region.x = width - region.x - region.w;
    }
    if matches!(orientation, 3 | 4 | 7 | 8) {
        region.y = height - region.y - region.h;
    }
    region
}

//! The orientation: the one tag of EXIF that changes pixels, and the one of XMP that replaces it.

use crate::{Image, Region};

/// The tag.
const ORIENTATION: u16 = 0x0112;

/// The orientation, 1 to 8, from EXIF data, or from XMP where EXIF has no such tag; 1 if neither has one, or a broken
/// one. As in Pillow, `exif` may have the mark before its TIFF header or lack it.
pub fn orientation(exif: &[u8], xmp: &[u8]) -> u16 {
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let value =
        Directory::of(exif).and_then(|directory| directory.orientation()).or_else(|| of_xmp(xmp).map(f64::from));
    (1..=8).find(|&known| value == Some(known.into())).unwrap_or(1)
}

/// The first digit after `tiff:Orientation="` or `tiff:Orientation>`.
fn of_xmp(xmp: &[u8]) -> Option<u8> {
    const NAME: &[u8] = b"tiff:Orientation";
    xmp.windows(NAME.len()).enumerate().filter(|(_, word)| *word == NAME).find_map(|(at, _)| {
        let behind = &xmp[at + NAME.len()..];
        let digit = behind.strip_prefix(b"=\"").or_else(|| behind.strip_prefix(b">"))?.first()?;
        digit.is_ascii_digit().then(|| digit - b'0')
    })
}

/// The first directory of a TIFF.
struct Directory<'a> {
    bytes: &'a [u8],
    is_big: bool,
}

impl Directory<'_> {
    fn of(bytes: &[u8]) -> Option<Directory<'_>> {
        // Writers mixed up the order of the number after the letters, and Pillow reads what they wrote.
        match bytes.get(..4)? {
            b"II\x2a\0" | b"II\0\x2a" => Some(Directory { bytes, is_big: false }),
            b"MM\0\x2a" | b"MM\x2a\0" => Some(Directory { bytes, is_big: true }),
            _ => None,
        }
    }

    /// The value of the tag, or NaN if it is not a number; `None` without such a tag.
    fn orientation(&self) -> Option<f64> {
        let directory = self.long(4)? as usize;
        let entries = (0..usize::from(self.short(directory)?)).map(|entry| directory + 2 + ENTRY_BYTES * entry);
        entries.take_while(|at| at + ENTRY_BYTES <= self.bytes.len()).find_map(|at| {
            if self.short(at)? != ORIENTATION {
                return None;
            }
            let (kind, count) = (self.short(at + 2)?, self.long(at + 4)? as usize);
            let all = count.checked_mul(bytes_of(kind)?)?;
            let value = if all <= 4 { at + 8 } else { self.long(at + 8)? as usize };
            (all > 0 && value.checked_add(all)? <= self.bytes.len())
                .then(|| self.number(kind, value).unwrap_or(f64::NAN))
        })
    }

    /// The first of the numbers of that kind at a place.
    fn number(&self, kind: u16, at: usize) -> Option<f64> {
        Some(match kind {
            3 => self.short(at)?.into(),
            4 | 13 => self.long(at)?.into(),
            5 => f64::from(self.long(at)?) / f64::from(self.long(at + 4)?),
            6 => f64::from(*self.bytes.get(at)? as i8),
            8 => f64::from(self.short(at)? as i16),
            9 => f64::from(self.long(at)? as i32),
            10 => f64::from(self.long(at)? as i32) / f64::from(self.long(at + 4)? as i32),
            11 => f32::from_bits(self.long(at)?).into(),
            12 => f64::from_bits(self.double(at)?),
            16 => self.double(at)? as f64,
            // Text and bytes.
            _ => return None,
        })
    }

    fn short(&self, at: usize) -> Option<u16> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn long(&self, at: usize) -> Option<u32> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn double(&self, at: usize) -> Option<u64> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }
}

/// An entry is a tag, a kind, a count, and a value or its place.
const ENTRY_BYTES: usize = 12;

/// Bytes of a value of that TIFF type; `None` for unknown types, whose entries are ignored.
fn bytes_of(kind: u16) -> Option<usize> {
    Some(match kind {
        1 | 2 | 6 | 7 => 1,
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16 => 8,
        _ => return None,
    })
}

/// The image as it was seen. 2 to 4 mirror and turn by 180 degrees; 5 to 8 swap rows and columns before that.
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

/// The place of a region of a stored image of that size in the image as it was seen.
pub fn seen(region: Region, (height, width): (u32, u32), orientation: u16) -> Region {
    let (region, size) =
        if is_turned(orientation) { (transposed(region), (width, height)) } else { (region, (height, width)) };
    mirrored(region, size, orientation)
}

/// The place of a region of an image as it was seen in the stored image, which has that size.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// EXIF of one entry.
    fn exif(kind: u16, count: u32, value: [u8; 4], more: &[u8]) -> Vec<u8> {
        let mut bytes = b"Exif\0\0II\x2a\0\x08\0\0\0\x01\0".to_vec();
        bytes.extend(ORIENTATION.to_le_bytes().iter().chain(&kind.to_le_bytes()).chain(&count.to_le_bytes()));
        bytes.extend(value.iter().chain(&[0; 4]).chain(more));
        bytes
    }

    #[test]
    fn numbers_of_every_kind_are_read() {
        let at = 26_u32.to_le_bytes();
        for (kind, value, more) in [
            (3, [6, 0, 0, 0], &[][..]),
            (4, [6, 0, 0, 0], &[]),
            (6, [6, 0, 0, 0], &[]),
            (8, [6, 0, 0, 0], &[]),
            (9, [6, 0, 0, 0], &[]),
            (13, [6, 0, 0, 0], &[]),
            (5, at, &[12, 0, 0, 0, 2, 0, 0, 0]),
            (10, at, &[0xf4, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff]),
            (11, 6_f32.to_le_bytes(), &[]),
            (12, at, &6_f64.to_le_bytes()),
            (16, at, &[6, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(orientation(&exif(kind, 1, value, more), b""), 6, "{kind}");
        }
        // The first of several counts; bytes and text are not numbers, and broken entries are ignored.
        assert_eq!(orientation(&exif(3, 2, [6, 0, 8, 0], &[]), b""), 6);
        for (kind, count, value) in [(1, 1, [6, 0, 0, 0]), (2, 2, *b"6\0\0\0"), (3, 1, [9, 0, 0, 0]), (5, 1, at)] {
            assert_eq!(orientation(&exif(kind, count, value, &[]), b""), 1, "{kind}");
        }
    }

    #[test]
    fn xmp_counts_where_exif_has_no_such_tag() {
        let (quoted, tagged) = (b"<a tiff:Orientation=\"8\"/>", b"<tiff:Orientation>3</tiff:Orientation>");
        assert_eq!((orientation(b"", quoted), orientation(b"", tagged)), (8, 3));
        assert_eq!(orientation(b"", b"tiff:Orientation tiff:Orientation=\"x tiff:Orientation>5"), 5);
        assert_eq!(orientation(&exif(3, 1, [6, 0, 0, 0], &[]), quoted), 6);
        assert_eq!(orientation(&exif(3, 1, [0, 0, 0, 0], &[]), quoted), 1, "0 is said, and nothing is turned");
        assert_eq!(orientation(&exif(99, 1, [6, 0, 0, 0], &[]), quoted), 8, "an unknown kind");
        assert_eq!(orientation(b"Exif\0\0junk", quoted), 8);
    }
}

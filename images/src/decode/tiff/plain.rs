//! The samples of a page, read by `tiff` without their colours: with these, it would drop samples before it undoes the
//! predictor, and it knows fewer kinds of colours than of samples.

use super::{BLACK_IS_ZERO, Decoding, FORMAT, File, Page, corrupt, opened, unsupported, wrong};
use std::borrow::Cow;
use tiff::decoder::DecodingResult;
use tiff::tags::{ByteOrder, CompressionMethod, Tag, Type};
use uringload_core::Result;

/// All samples, those of a pixel together. Samples of fewer than 8 bits are packed into bytes, each row separately.
pub fn samples(bytes: &[u8], file: &mut File<'_>, page: &Page, how: &Decoding) -> Result<DecodingResult> {
    let wrong = |error| wrong(bytes, &error);
    let plain = plain(bytes, file, page)?;
    let mut file = opened(&plain, how).map_err(wrong)?;
    let mut samples = DecodingResult::U8(Vec::new());
    let layout = file.read_image_to_buffer(&mut samples).map_err(wrong)?;
    if layout.complete_len != samples.as_buffer(0).byte_len() {
        return Err(corrupt(FORMAT, "its planes need more memory than it may take"));
    }
    if page.is_planar && page.samples > 1 {
        if page.bits < 8 {
            return Err(unsupported(FORMAT, format_args!("planes of {} bits a sample", page.bits)));
        }
        samples = match samples {
            DecodingResult::U8(planes) => DecodingResult::U8(together(&planes, page)),
            DecodingResult::U16(planes) => DecodingResult::U16(together(&planes, page)),
            other => other,
        };
    }
    Ok(samples)
}

/// Planes, one after the other, as pixels.
fn together<T: Copy>(planes: &[T], page: &Page) -> Vec<T> {
    let pixels = page.size.0 as usize * page.size.1 as usize;
    (0..pixels).flat_map(|pixel| planes.iter().skip(pixel).step_by(pixels)).copied().collect()
}

/// The file as one of gray samples, whatever colours they are, without the tags that do not apply to its compression.
fn plain<'a>(bytes: &'a [u8], file: &mut File<'_>, page: &Page) -> Result<Cow<'a, [u8]>> {
    let wrong = |error| wrong(bytes, &error);
    let is_gray = page.photometric == BLACK_IS_ZERO;
    let predictor = file.find_tag_unsigned::<u16>(Tag::Predictor).map_err(wrong)?.unwrap_or(1);
    // libtiff requires it for these alone.
    let is_predicted = matches!(
        page.compression,
        CompressionMethod::LZW | CompressionMethod::Deflate | CompressionMethod::OldDeflate | CompressionMethod::ZSTD
    );
    if is_gray && (is_predicted || predictor == 1) && !page.is_reversed {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut plain = bytes.to_vec();
    let order = file.byte_order();
    let directory = file.ifd_pointer().map_or(0, |pointer| pointer.0);
    write(&mut plain, order, directory, Tag::PhotometricInterpretation, BLACK_IS_ZERO);
    if !is_predicted {
        write(&mut plain, order, directory, Tag::Predictor, 1);
    }
    if page.is_reversed {
        for (offsets, counts) in [(Tag::StripOffsets, Tag::StripByteCounts), (Tag::TileOffsets, Tag::TileByteCounts)] {
            let offsets = file.find_tag_unsigned_vec::<u64>(offsets).map_err(wrong)?.unwrap_or_default();
            let counts = file.find_tag_unsigned_vec::<u64>(counts).map_err(wrong)?.unwrap_or_default();
            for (offset, count) in offsets.into_iter().zip(counts) {
                let end = offset.saturating_add(count).min(bytes.len() as u64);
                // From the original file: two strips may share bytes.
                let range = offset.min(end) as usize..end as usize;
                plain[range.clone()].iter_mut().zip(&bytes[range]).for_each(|(to, from)| *to = from.reverse_bits());
            }
        }
    }
    Ok(Cow::Owned(plain))
}

/// Gives a tag of one number another value, if the directory has it.
fn write(file: &mut [u8], order: ByteOrder, directory: u64, tag: Tag, value: u16) {
    let short = |bytes: [u8; 2]| match order {
        ByteOrder::LittleEndian => u16::from_le_bytes(bytes),
        ByteOrder::BigEndian => u16::from_be_bytes(bytes),
    };
    // BigTIFF counts in 8 bytes where TIFF counts in 2 and 4.
    let is_big = file.get(2..4).is_some_and(|version| version.contains(&43));
    let (head, entry_bytes, value_at) = if is_big { (8, 20, 12) } else { (2, 12, 8) };
    let Some(directory) = usize::try_from(directory).ok().and_then(|at| file.get_mut(at..)) else { return };
    let Some((count, entries)) = directory.split_at_mut_checked(head) else { return };
    // The lower two of eight bytes: a directory cannot have more entries than there are tags.
    let count = match order {
        ByteOrder::LittleEndian => short([count[0], count[1]]),
        ByteOrder::BigEndian => short([count[head - 2], count[head - 1]]),
    };
    let entries = entries.chunks_exact_mut(entry_bytes).take(count.into());
    for entry in entries.filter(|entry| short([entry[0], entry[1]]) == tag.to_u16()) {
        let is_long = short([entry[2], entry[3]]) == Type::LONG.to_u16();
        let (at, value) = match order {
            ByteOrder::LittleEndian => (value_at, value.to_le_bytes()),
            ByteOrder::BigEndian => (value_at + if is_long { 2 } else { 0 }, value.to_be_bytes()),
        };
        entry[at..][..2].copy_from_slice(&value);
    }
}

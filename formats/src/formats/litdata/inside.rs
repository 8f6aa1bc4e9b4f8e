//! Chunks with compressed items inside the file: several at a time ("batch"), or each on its own ("sample").
//!
//! Source: litdata 0.2.76, `streaming/framed_zstd.py`.

use crate::compression::zstd_content_bytes;
use crate::formats::shards::{Frame, Frames, OFFSETS_AT, OpenFile, Whole};
use uringload_core::{Error, ErrorKind, Result};

/// Whether a file begins with a directory of frames.
pub(super) fn is_framed(file: &OpenFile<'_>) -> Result<bool> {
    let mut magic = [0; MAGIC.len()];
    if file.size < MAGIC.len() as u64 {
        return Ok(false);
    }
    file.read(&mut magic, 0)?;
    Ok(&magic == MAGIC)
}

/// Reads the directory of a chunk of `items` items:
///
/// ```text
/// "LDFZ01\0\0"; u16 1; u16 0; u32 N; u32 frame_rows; u32 n_frames
/// u32 offsets[N + 1]                             in what all frames decode to, end to end
/// { u32 first_item; u32 n_items; u64 file_offset; u32 stored_len; u32 decoded_len }[n_frames]
/// ```
pub(super) fn read_frames(file: &OpenFile<'_>, items: u64) -> Result<Frames> {
    let mut head = [0; PREFIX_BYTES as usize];
    file.read(&mut head, 0)?;
    let version = u16::from_le_bytes([head[8], head[9]]);
    if version != 1 {
        let what = format!("framed chunks have version {version}, and only version 1 can be read");
        return Err(Error::new(ErrorKind::Unavailable, what)
            .with_path(&file.path)
            .with_offset(8)
            .with_remedy("write the dataset again"));
    }
    file.check_count(items, 12)?;
    let (count, rows, frame_count) = (items, u32_at(&head, 16), u32_at(&head, 20));
    if rows == 0 || frame_count != count.div_ceil(rows) {
        return Err(file.corrupt(format!("{frame_count} frames of {rows} items cannot hold {count} items"), 16));
    }
    let offsets = file.read_ascending(PREFIX_BYTES, count, 0, u32::MAX.into())?;
    if offsets[0] != 0 {
        return Err(file.corrupt(format!("the first item begins at {}, not at 0", offsets[0]), PREFIX_BYTES));
    }
    let table = PREFIX_BYTES + 4 * (count + 1);
    let frames_at = table + ENTRY_BYTES * frame_count;
    if frames_at > file.size {
        let what = format!("a directory of {frame_count} frames does not fit into the {} bytes of the file", file.size);
        return Err(Error::new(ErrorKind::Truncated, what).with_path(&file.path).with_offset(file.size));
    }
    // Bounded by the length of the file, which contains the directory.
    let mut frames = Frames { rows, offsets, frames: Box::default() };
    let mut found = Vec::with_capacity(frame_count as usize);
    let mut least = frames_at;
    for number in 0..frame_count {
        let place = table + ENTRY_BYTES * number;
        let mut entry = [0; ENTRY_BYTES as usize];
        file.read(&mut entry, place)?;
        let (first, len) = (u32_at(&entry, 0), u32_at(&entry, 4));
        let at = u32_at(&entry, 8) | u32_at(&entry, 12) << 32;
        let (stored, decoded) = (u32_at(&entry, 16), u32_at(&entry, 20));
        let range = frames.decoded(number as usize);
        let wrong = |what: String| Err(file.corrupt(format!("frame {number} has {what}"), place));
        if (first, len) != (number * rows, rows.min(count - number * rows)) {
            return wrong(format!("{len} items from item {first} on"));
        }
        if decoded != range.end - range.start || decoded == 0 {
            return wrong(format!("{decoded} bytes for items of {}", range.end - range.start));
        }
        let end = at.checked_add(stored);
        if at < least || end.is_none_or(|end| end > file.size) {
            return wrong(format!("{stored} bytes at byte {at}, not after what is before it, or past the end"));
        }
        let most = Whole::most_decoded_of_zstd(stored);
        if decoded > most {
            return wrong(format!("{decoded} bytes of {stored}, which can be {most} at most"));
        }
        least = at + stored;
        found.push(Frame { at, len: stored as u32 });
    }
    frames.frames = found.into_boxed_slice();
    Ok(frames)
}

/// A chunk of `items` items, each of which is a stream of its own. Only the streams show how long the items are. One
/// read per item would be too many, so this uses a bound that the writer of the format guarantees: it fills a chunk
/// with whole items up to `full_bytes`, and gives a larger item a chunk of its own.
///
/// If the index does not say when a chunk is full (because chunks hold a fixed number of items), the headers of all
/// streams are read after all.
pub(super) fn read_samples(file: &OpenFile<'_>, items: u64, full_bytes: Option<u64>) -> Result<Whole> {
    file.check_count(items, 0)?;
    let bytes = match full_bytes {
        _ if items == 0 => 0,
        Some(full_bytes) => {
            let last = OFFSETS_AT + 4 * (items - 1);
            let (start, end) = (file.number(last)?.into(), file.number(last + 4)?.into());
            full_bytes.saturating_add(content_bytes(file, start, end)?)
        }
        None => {
            let offsets = file.read_offsets(items)?;
            let mut bytes = 0_u64;
            for pair in offsets.windows(2) {
                bytes = bytes.saturating_add(content_bytes(file, pair[0].into(), pair[1].into())?);
            }
            bytes
        }
    };
    Ok(Whole::of_samples(file, items, bytes))
}

/// Decoded length of the item stored at `start..end`, according to its stream.
fn content_bytes(file: &OpenFile<'_>, start: u64, end: u64) -> Result<u64> {
    let mut head = [0; FRAME_HEAD_BYTES as usize];
    let len = FRAME_HEAD_BYTES.min(end.saturating_sub(start));
    let head = &mut head[..len as usize];
    file.read(head, start)?;
    match zstd_content_bytes(head) {
        Some(bytes) => Ok(bytes.min(Whole::most_decoded_of_zstd(end - start))),
        // An empty item is stored as no bytes.
        _ if start == end => Ok(0),
        None => Err(file.corrupt("an item is no zstd frame that says its length", start)),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]).into()
}

/// The first bytes of a framed chunk.
const MAGIC: &[u8; 8] = b"LDFZ01\0\0";

/// Bytes before the offsets.
const PREFIX_BYTES: u64 = 24;

/// Bytes of a frame's entry in the directory.
const ENTRY_BYTES: u64 = 24;

/// The longest header of a Zstandard frame, RFC 8878, 3.1.1.
const FRAME_HEAD_BYTES: u64 = 18;

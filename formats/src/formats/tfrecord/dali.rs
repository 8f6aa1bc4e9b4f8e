//! The index that DALI's `tfrecord2idx` writes for a file; reused if it can be trusted.
//!
//! It is text with a line for each record: `OFFSET BYTES`, of the frame and not of the payload. DALI prescribes no
//! name; for `a.tfrecord` we look for `a.tfrecord.idx` and `a.idx`. Nothing ties the index to the file, so it is
//! compared with the file's size, its times, and some of its headers. If anything does not match, the file is scanned.

use super::frame::{FRAME_BYTES, HEADER_BYTES, Header, length};
use crate::index::indexes::{Foreign, foreign};
use crate::index::window::Source;
use std::path::{Path, PathBuf};
use uringload_sys::file::Identity;

/// Headers to look at, spread over the file.
const PROBES: usize = 16;

/// The longest index per byte of a file: a record takes at least 16 bytes, and a line at most 41.
const TEXT_BYTES_PER_BYTE: u64 = 3;

/// Offset and length of a record's payload.
pub(super) type Place = (u64, u64);

/// The content of the index beside the file at `path`, if there is one; or why it is not trusted.
pub(super) fn import(path: &Path, records: &Identity, source: &mut impl Source) -> Option<Foreign<Vec<Place>>> {
    let (mut appended, size) = (path.as_os_str().to_owned(), records.size);
    appended.push(".idx");
    let places = [PathBuf::from(appended), path.with_extension("idx")];
    let most = size.saturating_mul(TEXT_BYTES_PER_BYTE);
    foreign(path, records, &places, most, |text| understand(text, size, source))
}

/// Records in the index `text` of a file of `size` bytes.
fn understand(text: &str, size: u64, source: &mut impl Source) -> Result<Vec<Place>, String> {
    let (mut places, mut end) = (Vec::new(), 0);
    for (number, line) in text.lines().enumerate() {
        let words = line
            .split_once(' ')
            .and_then(|(offset, bytes)| Some((offset.parse::<u64>().ok()?, bytes.trim_end().parse::<u64>().ok()?)));
        let (offset, bytes) = words.ok_or_else(|| format!("its line {} is not \"OFFSET BYTES\"", number + 1))?;
        let len = bytes.checked_sub(FRAME_BYTES).filter(|_| offset == end);
        let next = offset.checked_add(bytes).filter(|&next| next <= size);
        let (Some(len), Some(next)) = (len, next) else {
            return Err(format!("the record of its line {} does not follow the one before it in the file", number + 1));
        };
        places.push((offset + HEADER_BYTES, len));
        end = next;
    }
    if end != size {
        return Err(format!("its records end at {end}, and the file at {size}"));
    }
    probe(&places, source)?;
    Ok(places)
}

/// Checks the headers of some records.
fn probe(places: &[Place], source: &mut impl Source) -> Result<(), String> {
    let step = places.len().div_ceil(PROBES).max(1);
    for &(offset, len) in places.iter().step_by(step).chain(places.last()) {
        let mut header: Header = [0; HEADER_BYTES as usize];
        // Fits: the offset is the result of adding this much.
        let start = offset - HEADER_BYTES;
        let read = source
            .read_at_least(&mut header, start, HEADER_BYTES as usize)
            .map_err(|error| error.headline().to_string())?;
        if read < header.len() || length(&header) != Ok(len) {
            return Err(format!("no record of {len} bytes is at {start}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::frame::masked;
    use super::*;
    use proptest::prelude::*;

    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        for payload in [&b"hello"[..], b"", b"third"] {
            let len = (payload.len() as u64).to_le_bytes();
            bytes.extend(len);
            bytes.extend(masked(&len).to_le_bytes());
            bytes.extend(payload);
            bytes.extend(masked(payload).to_le_bytes());
        }
        bytes
    }

    #[test]
    fn what_fits_is_believed_and_nothing_else() {
        let file = file();
        let good = "0 21\n21 16\n37 21\n";
        let of = |text: &str| understand(text, file.len() as u64, &mut &file[..]);
        assert_eq!(of(good), Ok(vec![(12, 5), (33, 0), (49, 5)]));
        assert_eq!(of(&good.replace('\n', "\r\n")), of(good));
        for (bad, words) in [
            (good.replace("37 21", "37 20"), "end at 57"),
            (good.replace("37 21\n", ""), "end at 37"),
            (good.replace("37 21", "37 22"), "line 3 does not follow"),
            (good.replace("21 16\n37 21", "21 37"), "no record of 21 bytes is at 21"),
            (good.replace("0 21\n21 16", "0 20\n20 17"), "no record of 4 bytes is at 0"),
            (good.replace("0 21", "0 15"), "line 1 does not follow"),
            (good.replace("37 21", "18446744073709551615 21"), "line 3 does not follow"),
            (good.replace("37 21", "37 18446744073709551615"), "line 3 does not follow"),
            (good.replace("37 21", "37"), "line 3 is not"),
            (good.replace("37 21", "a b"), "line 3 is not"),
            (good.replace("37 21", "37 -1"), "line 3 is not"),
            (String::new(), "end at 0"),
            ("v1.2 3\n".into(), "line 1 is not"),
        ] {
            assert!(of(&bad).is_err_and(|reason| reason.contains(words)), "{bad:?}: {:?}", of(&bad));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9]{1,2} [0-9]{1,2}\n){0,4}") {
            let file = file();
            if let Ok(places) = understand(&text, file.len() as u64, &mut &file[..]) {
                prop_assert_eq!(places, vec![(12, 5), (33, 0), (49, 5)]);
            }
        }
    }
}

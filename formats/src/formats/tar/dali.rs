//! The index that DALI's `wds2idx` writes beside an archive (`a.idx` for `a.tar`); reused if it can be trusted.
//!
//! It is text: `v1.2 SAMPLES`, then for each sample a line of `ENDING OFFSET SIZE NAME` quadruples. Names with blanks
//! make it ambiguous, version 1.1 has no names, and nothing ties it to the archive. So it is compared with the
//! archive's size, its times, and some of its headers. If anything does not match, the archive is scanned instead.

use super::header::{BLOCK_BYTES, Block, Header, Kind};
use super::keys::Grouper;
use crate::index::indexes::{Foreign, foreign};
use crate::index::window::Source;
use std::path::Path;
use uringload_sys::file::Identity;

/// Headers to look at, spread over the archive.
const PROBES: usize = 16;

/// The content of the index beside the archive at `path`, if there is one; or why it is not trusted.
pub(super) fn import(path: &Path, archive: &Identity, source: &mut impl Source) -> Option<Foreign<Grouper>> {
    let size = archive.size;
    // A line is shorter than the two blocks that a member takes, unless it is malformed.
    foreign(path, archive, &[path.with_extension("idx")], size, |text| understand(text, size, source))
}

/// Samples in the index `text` of an archive of `size` bytes.
pub(super) fn understand(text: &str, size: u64, source: &mut impl Source) -> Result<Grouper, String> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let samples = match head.split_once(' ') {
        Some(("v1.2", count)) => count.trim().parse::<u64>().map_err(|_| "its first line has no count")?,
        _ => return Err(format!("its first line is {head:?}, not \"v1.2 SAMPLES\"")),
    };
    let mut grouper = Grouper::new(BLOCK_BYTES as u32);
    let mut members = Vec::new();
    let (mut lines_read, mut end) = (0_u64, 0);
    for line in lines.filter(|line| !line.is_empty()) {
        lines_read += 1;
        let words: Vec<&str> = line.split(' ').collect();
        if !words.len().is_multiple_of(4) {
            return Err(format!("its line {} is not made of quadruples", lines_read + 1));
        }
        for quadruple in words.chunks_exact(4) {
            let number = |text: &str| text.parse::<u64>().ok();
            let (offset, len) =
                number(quadruple[1]).zip(number(quadruple[2])).ok_or("an offset or size is no number")?;
            let fits = offset.is_multiple_of(BLOCK_BYTES)
                && offset.checked_sub(BLOCK_BYTES).is_some_and(|header| header >= end)
                && offset.checked_add(len).is_some_and(|end| end <= size);
            if !fits {
                return Err(format!("{:?} does not lie in the archive, behind its predecessor", quadruple[3]));
            }
            end = (offset + len).next_multiple_of(BLOCK_BYTES);
            members.push((quadruple[3], offset, len));
        }
    }
    for &(name, offset, len) in &members {
        if let Some(reason) = grouper.push(name.as_bytes(), offset, len)? {
            return Err(format!("{name:?} is no member of a sample: {}", reason.describe()));
        }
    }
    grouper.flush();
    let ours = grouper.builder.len();
    if lines_read != samples || ours != samples {
        return Err(format!("its first line counts {samples} samples, it has {lines_read} lines and {ours} keys"));
    }
    probe(&members, end, size, source)?;
    Ok(grouper)
}

/// Checks the headers of some members, and that nothing follows the last one.
fn probe(members: &[(&str, u64, u64)], end: u64, size: u64, source: &mut impl Source) -> Result<(), String> {
    let mut block = |offset: u64| {
        let mut block: Block = [0; BLOCK_BYTES as usize];
        let read = source
            .read_at_least(&mut block, offset, BLOCK_BYTES as usize)
            .map_err(|error| error.headline().to_string())?;
        if read == block.len() { Ok(block) } else { Err("the archive is shorter than it says".to_owned()) }
    };
    let step = members.len().div_ceil(PROBES).max(1);
    for &(name, offset, len) in members.iter().step_by(step).chain(members.last()) {
        let block = block(offset - BLOCK_BYTES)?;
        let header = Header::parse(&block).ok().flatten();
        let mut found = Vec::new();
        let fits = header.is_some_and(|header| {
            header.name(&mut found);
            // A header holds a name that is too long for it only in part.
            header.kind() == Kind::Regular && header.size() == Ok(len) && name.as_bytes().starts_with(&found)
        });
        if !fits {
            return Err(format!("{name:?} does not lie where it says"));
        }
    }
    if end < size && !matches!(Header::parse(&block(end)?), Ok(None)) {
        return Err("the archive has members behind the last one".into());
    }
    Ok(())
}

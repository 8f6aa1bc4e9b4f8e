//! A look at the content of files: a few blocks of some files distinguish a dataset from another one whose files have
//! the same names and sizes.

use crate::dataset::{FileId, FileTable, Fingerprint};
use crate::index::headers::Source;
use std::ops::Range;
use std::time::Instant;
use uringload_core::Result;

/// Most files that are looked at.
pub const CONTENT_FILES_MAX: usize = 64;
/// Blocks of each, and their length: the first, the last, and others in between.
const BLOCKS: u64 = 4;
const BLOCK_BYTES: u64 = 4096;
/// Groups of neighbouring files of which more are looked at, where there are more files than are known one by one.
pub const CONTENT_GROUPS: usize = 16;
/// Most files of a group that are looked at, one block of each: 16 MiB of all groups.
const GROUP_FILES_MAX: u64 = 256;

/// The files that are looked at: all if there are few, else one of each of 64 stretches, in ascending order. It follows
/// from the number of files alone, so it is the same for every copy of a dataset.
pub fn content_files(files: &FileTable) -> Vec<FileId> {
    let count = files.len() as u64;
    let stretches = count.min(CONTENT_FILES_MAX as u64);
    let start = |stretch: u64| stretch * count / stretches;
    let chosen = (0..stretches).map(|stretch| {
        let (from, to) = (start(stretch), start(stretch + 1));
        // Fits: a table has fewer than 2^32 files.
        FileId((from + spread(&[count, stretch]) % (to - from)) as u32)
    });
    chosen.collect()
}

/// A hash of some blocks of a file: of bytes alone, so that copies with other names and times have the same. `None` if
/// it cannot be read, or is no longer the one that was found.
///
/// States of earlier versions hold these: another choice of blocks needs another name for them there.
pub fn content_of_file(files: &FileTable, file: FileId) -> Option<u64> {
    of_file(files, file).ok()
}

/// The files of a group, without an end, where there are more files than [`content_files`].
pub fn content_group(files: &FileTable, group: usize) -> Range<u64> {
    let (count, groups) = (files.len() as u64, CONTENT_GROUPS as u64);
    (group as u64 * count / groups)..((group as u64 + 1) * count / groups)
}

/// A hash of a group of files, of a block of each of up to 256 of them, 4096 in all groups; of bytes alone, as that of
/// [`content_of_file`]. `None` if one of them cannot be read, or not all were read by the deadline.
///
/// As above: states hold these.
pub fn content_of_group(files: &FileTable, group: usize, deadline: Instant) -> Option<u64> {
    of_group(files, group, deadline).ok().flatten()
}

fn of_group(files: &FileTable, group: usize, deadline: Instant) -> Result<Option<u64>> {
    let mut hash = Fingerprint::new("group");
    let mut block = [0; BLOCK_BYTES as usize];
    for file in files_of_group(files, group) {
        if Instant::now() >= deadline {
            return Ok(None);
        }
        let source = Source::open(files, file)?;
        let offset = offsets(source.size()).into_iter().nth(1).unwrap_or(0);
        let block = &mut block[..BLOCK_BYTES.min(source.size() - offset) as usize];
        source.glance(offset, block)?;
        hash.bytes(block);
    }
    Ok(Some(hash.finish()))
}

/// The files of a group that are looked at: all if there are few, else one of each of 256 stretches, as in
/// [`content_files`].
fn files_of_group(files: &FileTable, group: usize) -> impl Iterator<Item = FileId> {
    let Range { start, end } = content_group(files, group);
    let stretches = (end - start).min(GROUP_FILES_MAX);
    let at = move |stretch: u64| start + stretch * (end - start) / stretches;
    // Fits: a table has fewer than 2^32 files.
    (0..stretches).map(move |stretch| {
        let (from, to) = (at(stretch), at(stretch + 1));
        FileId((from + spread(&[end, stretch]) % (to - from)) as u32)
    })
}

fn of_file(files: &FileTable, file: FileId) -> Result<u64> {
    let source = Source::open(files, file)?;
    let mut hash = Fingerprint::new("content");
    let mut block = [0; BLOCK_BYTES as usize];
    for offset in offsets(source.size()) {
        let block = &mut block[..BLOCK_BYTES.min(source.size() - offset) as usize];
        source.glance(offset, block)?;
        hash.bytes(block);
    }
    Ok(hash.finish())
}

/// Where the blocks of a file of `size` bytes begin.
fn offsets(size: u64) -> Vec<u64> {
    if size <= BLOCKS * BLOCK_BYTES {
        return (0..size).step_by(BLOCK_BYTES as usize).collect();
    }
    let last = size - BLOCK_BYTES;
    let between = (1..BLOCKS - 1).map(|number| spread(&[size, number]) % last);
    [0].into_iter().chain(between).chain([last]).collect()
}

/// A number that follows from others, like a random one.
fn spread(numbers: &[u64]) -> u64 {
    let mut hash = Fingerprint::new("spread");
    numbers.iter().for_each(|&number| hash.number(number));
    // The lower bits of an FNV hash follow from the lower bits of what was hashed.
    hash.finish() >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(count: u32) -> FileTable {
        let mut files = FileTable::new();
        files.push_root("/data");
        (0..count).for_each(|_| assert!(files.push(b"x", 1).is_some()));
        files
    }

    #[test]
    fn files_are_chosen_from_everywhere() {
        for count in [0, 1, 2, 63, 64, 65, 100, 100_000] {
            let chosen = content_files(&table(count));
            assert_eq!(chosen.len(), (count as usize).min(CONTENT_FILES_MAX), "{count}");
            assert!(chosen.windows(2).all(|pair| pair[0].0 < pair[1].0), "{count}");
            assert!(chosen.iter().all(|file| file.0 < count), "{count}");
            let most = chosen.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or(0);
            assert!(most <= 2 * count.div_ceil(64), "{count}: none for {most} files");
        }
    }

    #[test]
    fn groups_have_every_file_of_a_few_thousand() {
        for count in [65, 100, 1000, 4096, 4097, 100_000] {
            let files = table(count);
            let all: Vec<u32> =
                (0..CONTENT_GROUPS).flat_map(|group| files_of_group(&files, group)).map(|file| file.0).collect();
            assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all.iter().all(|&file| file < count), "{count}");
            assert_eq!(all.len(), count.min(4096) as usize, "{count}");
        }
        assert_eq!(content_of_group(&table(65), 0, Instant::now()), None, "the deadline has passed");
    }

    #[test]
    fn small_files_are_read_whole_and_large_ones_at_both_ends() {
        assert!(offsets(0).is_empty());
        assert_eq!(offsets(1), [0]);
        assert_eq!(offsets(16_384), [0, 4096, 8192, 12_288]);
        for size in [16_385, 1 << 20, 10_000_000_000] {
            let offsets = offsets(size);
            assert_eq!((offsets.len(), offsets[0], offsets[3]), (4, 0, size - 4096));
            assert!(offsets.iter().all(|offset| offset + 4096 <= size));
        }
    }
}

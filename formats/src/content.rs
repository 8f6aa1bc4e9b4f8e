//! A look at what files hold: a few blocks of some files tell a dataset from another one whose files have the same
//! names and sizes.

use crate::fingerprint::Fingerprint;
use crate::headers::Source;
use crate::parallel::in_parallel;
use crate::{FileId, FileTable};
use uringload_core::Result;

/// Most files that are looked at.
pub const CONTENT_FILES_MAX: usize = 64;
/// Blocks of each, and their length: the first, the last, and others in between.
const BLOCKS: u64 = 4;
const BLOCK_BYTES: u64 = 4096;
/// The files may be on a disk, which answers several at a time.
const THREADS: usize = 8;

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

/// Hashes of some blocks of each of [`content_files`], in their order: of bytes alone, so that copies with other names
/// and times have the same. `None` for a file that cannot be read, or is no longer the one that was found.
///
/// States of earlier versions hold these: another choice of blocks needs another name for them there.
pub fn content(files: &FileTable) -> Vec<Option<u64>> {
    in_parallel(&content_files(files), THREADS, |&file| of_file(files, file).ok())
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

    #[test]
    fn files_are_chosen_from_everywhere() {
        let table = |count: u32| {
            let mut files = FileTable::new();
            files.push_root("/data");
            (0..count).for_each(|_| assert!(files.push(b"x", 1).is_some()));
            files
        };
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

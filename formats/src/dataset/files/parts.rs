//! Files that several threads find at once, in a table without a copy of what they found.

use super::{FileTable, NamePlace, SEGMENTS_MAX};
use crate::dataset::Stamp;
use crate::parallel::in_parallel;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use uringload_sys::heap::prefer_huge;

impl FileTable {
    /// Adds files that several threads find: `parts` says how many each part has at most, and `find` puts those of a
    /// part into its room. Returns what it says of each; or `None`, with nothing added, if it says that of one or if
    /// there is no room for all of them.
    pub(crate) fn push_parts<R: Send>(
        &mut self,
        parts: &[usize],
        threads: usize,
        find: impl Fn(usize, &mut Room<'_>) -> Option<R> + Sync,
    ) -> Option<Vec<R>> {
        let (start, count) = (self.sizes.len(), parts.iter().sum::<usize>());
        if count >= u32::MAX as usize - start {
            return None;
        }
        let segment = AtomicUsize::new(self.segments.len());
        let (mut names, mut sizes, mut stamps) =
            (grown(&mut self.names, count), grown(&mut self.sizes, count), grown(&mut self.stamps, count));
        let room = |(part, &count): (usize, &usize)| {
            let [names, sizes, stamps] = [&mut names, &mut sizes, &mut stamps].map(|numbers| front(numbers, count));
            let room = Room { names, sizes, stamps, len: 0, segment: &segment, segments: Vec::new(), last: None };
            (part, Mutex::new(room))
        };
        let rooms: Vec<_> = parts.iter().enumerate().map(room).collect();
        let found = in_parallel(&rooms, threads, |(part, room)| {
            find(*part, &mut room.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let rooms = rooms.into_iter().map(|(_, room)| room.into_inner().unwrap_or_else(PoisonError::into_inner));
        let (lens, segments): (Vec<usize>, Vec<_>) = rooms.map(|room| (room.len, room.segments)).unzip();
        // Threads take their numbers as they come.
        let mut segments: Vec<(usize, Vec<u8>)> = segments.into_iter().flatten().collect();
        segments.sort_unstable_by_key(|(number, _)| *number);
        let found: Option<Vec<R>> = found.into_iter().collect();
        let fits = found.is_some() && self.segments.len() + segments.len() <= SEGMENTS_MAX;
        let (mut from, mut to) = (start, start);
        // Without gaps where a part has fewer than it might.
        for (&part, len) in parts.iter().zip(lens).filter(|_| fits) {
            for numbers in [&mut self.names, &mut self.sizes, &mut self.stamps] {
                if from > to {
                    numbers.copy_within(from..from + len, to);
                }
            }
            (from, to) = (from + part, to + len);
        }
        [&mut self.names, &mut self.sizes, &mut self.stamps].into_iter().for_each(|numbers| numbers.truncate(to));
        self.segments.extend(segments.into_iter().filter(|_| fits).map(|(_, names)| names));
        found.filter(|_| fits)
    }
}

/// The room of a part of the files that several threads find.
pub(crate) struct Room<'a> {
    names: &'a mut [u64],
    sizes: &'a mut [u64],
    stamps: &'a mut [u64],
    len: usize,
    /// The number of the next segment of all parts.
    segment: &'a AtomicUsize,
    segments: Vec<(usize, Vec<u8>)>,
    /// The segment whose names come later.
    last: Option<usize>,
}

impl Room<'_> {
    /// Adds a file as [`FileTable::push_in`] does, with a name in the segment that is closed next.
    pub(crate) fn push(&mut self, name: Range<usize>, size: u64, stamp: Stamp) -> Option<()> {
        let segment = *self.last.get_or_insert_with(|| self.segment.fetch_add(1, Ordering::Relaxed));
        *self.names.get_mut(self.len)? = NamePlace::new(segment, name)?.0;
        self.sizes[self.len] = size;
        self.stamps[self.len] = stamp.whole();
        self.len += 1;
        Some(())
    }

    /// The names of the files since the segment before.
    pub(crate) fn close_segment(&mut self, mut names: Vec<u8>) {
        if let Some(segment) = self.last.take() {
            names.shrink_to_fit();
            self.segments.push((segment, names));
        }
    }

    /// Whether a file was added since a segment was closed.
    pub(crate) fn is_open(&self) -> bool {
        self.last.is_some()
    }
}

/// Makes room for so many numbers more, and returns it.
fn grown(numbers: &mut Vec<u64>, by: usize) -> &mut [u64] {
    let before = numbers.len();
    if before == 0 {
        *numbers = vec![0; by];
        prefer_huge(numbers);
    } else {
        numbers.resize(before + by, 0);
    }
    &mut numbers[before..]
}

/// Takes so many numbers from the front.
fn front<'a>(numbers: &mut &'a mut [u64], count: usize) -> &'a mut [u64] {
    numbers.split_off_mut(..count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::FileId;

    #[test]
    fn parts_come_in_their_order_without_gaps() {
        let mut files = FileTable::new();
        files.push_root("/data");
        files.push(b"before", 9).unwrap();
        let parts = [3, 0, 70, 5, 1000];
        let found = |part: usize, room: &mut Room<'_>| {
            let mut names = Vec::new();
            // Every other part has all that it may have; each seventh name begins a segment.
            let count = parts[part] - parts[part] / 2 * (part % 2);
            for number in 0..count {
                let name = format!("{part}-{number}");
                room.push(names.len()..names.len() + name.len(), number as u64, Stamp::default())?;
                names.extend(name.bytes());
                if number % 7 == 0 {
                    room.close_segment(std::mem::take(&mut names));
                }
            }
            room.close_segment(names);
            Some(count)
        };
        for _ in 0..2 {
            let start = files.len();
            let counts = files.push_parts(&parts, 3, found).unwrap();
            assert_eq!(counts, [3, 0, 70, 3, 1000]);
            let all = counts.iter().enumerate().flat_map(|(part, &count)| (0..count).map(move |number| (part, number)));
            for (at, (part, number)) in all.enumerate() {
                let file = FileId((start + at) as u32);
                assert_eq!(files.name(file), format!("{part}-{number}").as_bytes());
                assert_eq!(files.size(file), number as u64);
            }
            assert_eq!(files.len(), start + 1076);
        }
        let refused = files.push_parts(&[2, 2], 2, |part, room| {
            room.push(0..1, 0, Stamp::default())?;
            room.close_segment(b"x".to_vec());
            (part == 0).then_some(())
        });
        assert_eq!((refused, files.len(), files.name(FileId(0))), (None, 2153, &b"before"[..]));
        assert_eq!(files.push(b"after", 1), Some(FileId(2153)));
    }
}

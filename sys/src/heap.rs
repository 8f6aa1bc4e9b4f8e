//! Large memory of the heap.

/// Less is in few pages anyway.
const LEAST_BYTES: usize = 4 << 20;

/// Asks for huge pages for memory that is about to be filled, if it is large: then each 2 MiB of it cost one page fault
/// and not 512, which cost more than what most loops do with the bytes. A kernel without huge pages ignores it.
///
/// ```
/// let mut numbers: Vec<u64> = Vec::with_capacity(1 << 20);
/// uringload_sys::heap::prefer_huge(numbers.spare_capacity_mut());
/// numbers.extend(0..1 << 20);
/// ```
pub fn prefer_huge<T>(memory: &mut [T]) {
    let bytes = size_of_val(memory);
    if bytes < LEAST_BYTES {
        return;
    }
    // Up to the borders of its first and last page, so that neighbours share huge pages.
    let start = memory.as_mut_ptr().cast::<u8>();
    let before = start.addr() % rustix::param::page_size();
    let base = start.wrapping_sub(before).cast();
    // SAFETY: the advice changes how pages are backed, and neither their bytes nor whether they may be accessed. The
    // pages are mapped, because each of them holds bytes of `memory`.
    let _ = unsafe { rustix::mm::madvise(base, before + bytes, rustix::mm::Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_as_they_are() {
        let mut memory: Vec<u8> = (0..5 << 20).map(|at: u32| at as u8).collect();
        let before = memory.clone();
        for range in [0..memory.len(), 1..memory.len() - 1, 0..LEAST_BYTES, 0..0] {
            prefer_huge(&mut memory[range]);
        }
        assert!(memory == before);
    }
}

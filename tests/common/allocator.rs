//! The system allocator, watched: tests see how much memory the library asks for.

use std::alloc::{GlobalAlloc, Layout, System};

/// Calls its first function with the size of each allocation, and its second with the size of what is freed. They must
/// not allocate. For `#[global_allocator]`.
pub struct Watched(pub fn(usize), pub fn(usize));

// SAFETY: every call goes to the system's allocator unchanged, and the functions learn only sizes.
unsafe impl GlobalAlloc for Watched {
    // SAFETY: the caller must uphold the trait's contract.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller must uphold the trait's contract.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: the caller must uphold the trait's contract.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may exist for a moment.
        (self.0)(size);
        // SAFETY: the caller's promise is passed on, and the pointer came from `System`.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        (self.1)(layout.size());
        moved
    }

    // SAFETY: the caller must uphold the trait's contract.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        (self.1)(layout.size());
        // SAFETY: the caller's promise is passed on, and the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

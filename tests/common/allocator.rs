//! The system's allocator, watched: what a test wants to know of the memory that the library asks for.

use std::alloc::{GlobalAlloc, Layout, System};

/// Calls its function with the bytes of each allocation, which must not allocate itself. For `#[global_allocator]`.
pub struct Watched(pub fn(usize));

// SAFETY: every call goes to the system's allocator unchanged, and the function is told of no memory but its size.
unsafe impl GlobalAlloc for Watched {
    // SAFETY: as the trait asks of its caller.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as the trait asks of its caller.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: as the trait asks of its caller.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        (self.0)(size);
        // SAFETY: the caller's promise is passed on, and the pointer came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    // SAFETY: as the trait asks of its caller.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on, and the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

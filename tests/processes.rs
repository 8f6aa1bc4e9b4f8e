//! Loaders in processes that fork, or that may do less than usual.
//!
//! A binary of its own, because its tests fork: a child has a copy of the whole process, with the descriptors and locks
//! of every test that runs beside it.

mod common;

mod processes {
    mod confined;
    mod fork;
}

//! The module `queue` of the library once more, by itself. Its loom tests need a build of their own (`--cfg loom`),
//! which would otherwise compile every format and decoder with it.
#![cfg(loom)]

#[path = "../../../src"]
mod library {
    // Only its tests use it here.
    #[allow(unused, unreachable_pub)]
    mod queue;
}

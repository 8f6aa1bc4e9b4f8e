//! The library's test `faults` once more, by itself. AddressSanitizer needs a build of its own, which would otherwise
//! compile every codec, and all that other tests depend on, with it.

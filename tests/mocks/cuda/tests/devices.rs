//! Our use of the CUDA driver, its mock, and loaders that deliver to devices.

mod common;

mod devices {
    mod allocator;
    mod anything;
    mod bench;
    mod capture;
    mod decoded;
    mod driver;
    mod failures;
    mod kernels;
    mod nvjpeg;
    mod pinned;
    mod pipeline;
    mod straight;
}

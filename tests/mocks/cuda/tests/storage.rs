//! Loaders that read through GPUDirect Storage.
//!
//! A binary of its own, because opening cuFile changes the environment and standard input of its process for a moment.

mod common;

mod storage {
    mod gds;
    mod gds_faults;
}

//! Loaders that read through GPUDirect Storage.
//!
//! A binary of its own, because opening cuFile briefly changes the environment and standard input of its process.

mod common;

mod storage {
    mod gds;
    mod gds_faults;
}

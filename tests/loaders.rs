//! Loaders: what a batch holds, in which order, by which way to read, and what becomes of errors and of states.

mod common;

mod loaders {
    mod anywhere;
    mod asynchronous;
    mod cache;
    mod collation;
    mod columns;
    mod conformance;
    mod decode;
    mod depth;
    mod device;
    mod errors;
    mod faults_disk;
    mod filesystems;
    mod golden_order;
    mod hostile;
    mod images;
    mod kernels_emulated;
    mod locality;
    mod mixing;
    mod outages;
    mod powercut;
    mod promises;
    mod ptx;
    mod resume;
    mod rows;
    mod sharding;
    mod state;
    mod units;
    mod verify;
    mod waiting;
}

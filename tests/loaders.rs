//! Loaders: what a batch holds, in which order, by which way to read, and how errors and states behave.

mod common;

mod loaders {
    mod anywhere;
    mod asynchronous;
    mod arrays;
    mod auto;
    mod budget;
    mod cache;
    mod cached;
    mod cached_folders;
    mod collation;
    mod columns;
    mod conformance;
    mod costs;
    mod crops;
    mod decode;
    mod depth;
    mod device;
    mod epochs;
    mod errors;
    mod faults_disk;
    mod filesystems;
    mod follow;
    mod golden_order;
    mod hostile;
    mod images;
    mod into;
    mod kernels_emulated;
    mod locality;
    mod long;
    mod mix;
    mod mixing;
    mod objects;
    mod outages;
    mod powercut;
    mod prepared;
    mod promises;
    mod ptx;
    mod quota;
    mod reader;
    mod rows;
    mod settings;
    mod sharding;
    mod state;
    mod units;
    mod verify;
    mod waiting;
}

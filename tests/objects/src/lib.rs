//! An object store for tests: the part of S3 that a loader uses, over HTTP/1.1, plain or with TLS, out of a folder.
//!
//! It fails on purpose: which request is answered wrongly is a function of a seed, the key, the range and the attempt,
//! so a run can be repeated. A thread serves each connection. Signatures of pieces of a body are not checked.
#![forbid(unsafe_code)]

mod time;
mod text;
mod fault;
mod options;
mod http;
mod store;
mod listing;
mod sign;
mod stats;
mod azure;
mod s3;
mod reply;
mod server;

pub use options::Options;
pub use server::Server;
pub use stats::Stats;

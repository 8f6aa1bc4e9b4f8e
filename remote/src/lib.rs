//! Reads ranges of objects in S3, GCS, Azure and behind HTTP into memory that is given, in the thread that asks.
#![forbid(unsafe_code)]

mod clock;
#[cfg(test)]
mod draws;
mod failure;
mod sign;
mod url;
mod version;
mod exchange;
mod lock;
mod interrupt;
mod address;
mod tls;
mod connection;
mod pool;
mod client;
mod connector;
mod profile;
mod environment;
mod credentials;
mod access;
mod refusal;
mod listing;
mod store;
mod list;

pub use access::{Access, AccessOptions, Credentials};
pub use failure::{Class, Failure};
pub use interrupt::Interrupt;
pub use list::{ListOptions, Listed, Page};
pub use listing::Object;
pub use store::{Note, Read, Store};
pub use url::{KEY_BYTES_MAX, Scheme, Url};
pub use version::{Known, Version};

//! Reads ranges of objects in S3, GCS, Azure and behind HTTP into memory that is given, in the thread that asks.
//!
//! A [`Store`] is a bucket, a container or a host; [`Access`] is how stores are reached, and shares connections and
//! credentials among them. Each call blocks its thread: there is no runtime, no thread that outlives a call, and
//! nothing that a fork could leave locked. A read makes one request, receives into the slice that it is given, and
//! compares the head of the answer with the question before a byte counts. Whether to ask again is for the caller to
//! say, by the [`Class`](uringload_core::store::Class) of the failure; a listing alone asks for a page again.
//!
//! The library reads no environment: a program that wants its profiles, credentials and proxies hands the variables to
//! [`Access::from_environment`]. No text of this crate shows a secret.
//!
//! ```
//! use uringload_core::store::{Interrupt, Store as _};
//! use uringload_remote::{Access, AccessOptions, Store, Url};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let address = listener.local_addr()?;
//! # std::thread::spawn(move || {
//! #     use std::io::{Read, Write};
//! #     let (mut stream, _) = listener.accept().unwrap();
//! #     stream.read(&mut [0; 4096]).unwrap();
//! #     let head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-4/9\r\nContent-Length: 3\r\n\r\n";
//! #     stream.write_all(format!("{head}abc").as_bytes()).unwrap();
//! # });
//! let url = Url::parse(b"s3://bucket/train/")?;
//! let options = AccessOptions { anonymous: true, endpoint: Some(format!("http://{address}")), ..Default::default() };
//! let store = Store::open(&url, &Access::new(options)?)?;
//!
//! let mut into = [0; 3];
//! let read = store.read(b"train/000.tar", 2, &mut into, None, &Interrupt::new())?;
//! assert_eq!((&into, read.bytes, read.total), (b"abc", 3, Some(9)));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
mod draws;
mod clock;
mod lock;
mod url;
mod version;
mod sign;
mod exchange;
mod address;
mod tls;
mod connection;
mod pool;
mod endpoint;
mod attempt;
mod race;
mod client;
mod connector;
mod profile;
mod environment;
mod credentials;
mod access;
mod refusal;
mod listing;
mod middle;
mod store;
mod list;
mod write;

pub use access::{Access, AccessOptions, Credentials};
pub use store::Store;
pub use url::{KEY_BYTES_MAX, Scheme, Url};

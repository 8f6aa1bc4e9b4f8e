//! The client against a server that answers by a script: what is right, and each way to be wrong.

mod hedges;
mod lists;
mod reads;
mod secure;
mod server;
mod writes;
mod wrongs;

use server::Server;
use std::time::{Duration, Instant};
use uringload_core::store::{Failure, Interrupt, Read, Store as _, Version};
use uringload_remote::{Access, AccessOptions, Credentials, Store, Url};

/// Bytes that are all over the place, and no others than these.
fn data(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8).collect()
}

/// Keys whose secrets are all `hush`.
fn keys() -> Option<Credentials> {
    Some(Credentials::Keys { key_id: "AKIDEXAMPLE".into(), secret: "hush".into(), token: Some("hush".into()) })
}

fn options(server: &Server) -> AccessOptions {
    AccessOptions {
        endpoint: Some(format!("http://{}", server.address)),
        credentials: keys(),
        stall_limit: Some(Duration::from_secs(2)),
        ..AccessOptions::default()
    }
}

fn open(url: &str, options: AccessOptions) -> Store {
    Store::open(&Url::parse(url.as_bytes()).unwrap(), &Access::new(options).unwrap()).unwrap()
}

fn store(server: &Server) -> Store {
    open("s3://bucket/data/", options(server))
}

/// Reads `bytes` from `offset`, and all that a failure says has no secret.
fn read(store: &Store, key: &[u8], offset: u64, bytes: usize) -> Result<(Vec<u8>, Read), Failure> {
    read_as(store, key, offset, bytes, None)
}

fn read_as(
    store: &Store,
    key: &[u8],
    offset: u64,
    bytes: usize,
    expected: Option<Version>,
) -> Result<(Vec<u8>, Read), Failure> {
    let mut into = vec![0; bytes];
    let start = Instant::now();
    let read = store.read(key, offset, &mut into, expected, &Interrupt::new());
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
    match read {
        Ok(read) => {
            into.truncate(read.bytes);
            Ok((into, read))
        }
        Err(failure) => {
            let error = failure.clone().into_error(&store.shown(key));
            let texts = format!("{failure} {failure:?} {error} {error:?} {store:?}");
            assert!(!texts.contains("hush"), "a secret is told: {texts}");
            Err(failure)
        }
    }
}

//! Answers of servers: the first byte says whether the rest is the answer to a read, a page of a listing, or a URL.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::{Mutex, OnceLock};
use std::thread;
use uringload_core::store::{Interrupt, ListOptions, Store as _};
use uringload_remote::{Access, AccessOptions, Store, Url};

/// What is asked for.
const OFFSET: u64 = 5;
const BYTES: usize = 64;

static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static STORE: OnceLock<Store> = OnceLock::new();

/// A store whose server answers each request with `ANSWER` and ends the connection.
fn store() -> Store {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let mut have = 0;
            while !head[..have].ends_with(b"\r\n\r\n") {
                match stream.read(&mut head[have..]) {
                    Ok(bytes) if bytes > 0 => have += bytes,
                    _ => break,
                }
            }
            let answer = ANSWER.lock().expect("no panic").clone();
            let _ = stream.write_all(&answer);
        }
    });
    let options = AccessOptions { endpoint: Some(endpoint), anonymous: true, ..AccessOptions::default() };
    let url = Url::parse(b"s3://bucket/").expect("a URL");
    Store::open(&url, &Access::new(options).expect("no file")).expect("an endpoint")
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let (store, interrupt) = (STORE.get_or_init(store), Interrupt::new());
    match kind % 4 {
        0 => {
            if let Ok(url) = Url::parse(data) {
                assert!(Url::is_remote(data) && data.len() > url.key().len());
            }
        }
        1 => {
            *ANSWER.lock().expect("no panic") =
                [format!("HTTP/1.1 200 x\r\nContent-Length: {}\r\n\r\n", data.len()).as_bytes(), data].concat();
            let _ = store.list(b"", &ListOptions::default(), &interrupt, &mut |page| {
                assert!(page.objects.iter().all(|object| object.size > 0 || !object.key.ends_with(b"/")));
                ControlFlow::Break(())
            });
        }
        _ => {
            *ANSWER.lock().expect("no panic") = data.to_vec();
            let mut into = [0; BYTES];
            if let Ok(read) = store.read(b"k", OFFSET, &mut into, None, &interrupt) {
                let end = OFFSET + read.bytes as u64;
                assert!(read.bytes <= BYTES && (read.bytes == 0 || read.total.is_none_or(|total| end <= total)));
            }
        }
    }
});

//! TLS and proxies.

use crate::server::{Carry, Request, Server, Step, answer, part};
use crate::{data, open, read};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use uringload_core::store::{Class, Interrupt, Store as _};
use uringload_remote::{AccessOptions, Store};

/// A certificate, and the file in which it is trusted.
pub struct Certificate {
    config: Arc<ServerConfig>,
    folder: tempfile::TempDir,
}

impl Certificate {
    pub fn new(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        Certificate { config: Arc::new(config), folder }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub fn server(&self, script: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> Server {
        self.server_by(|| Duration::ZERO, script)
    }

    /// One that waits before it shakes hands.
    pub fn server_by(
        &self,
        waits: impl Fn() -> Duration + Send + Sync + 'static,
        script: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static,
    ) -> Server {
        let config = self.config.clone();
        let wrap = move |stream: TcpStream| {
            std::thread::sleep(waits());
            let session = ServerConnection::new(config.clone()).unwrap();
            Some(Box::new(Ending(StreamOwned::new(session, stream))) as Box<dyn Carry>)
        };
        Server::wrapped(wrap, script)
    }
}

/// Ends its session in order.
struct Ending(StreamOwned<ServerConnection, TcpStream>);

impl Read for Ending {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Ending {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.conn.send_close_notify();
        let _ = self.0.flush();
    }
}

pub fn trusting(ca_file: Option<PathBuf>) -> AccessOptions {
    AccessOptions { ca_file, stall_limit: Some(Duration::from_secs(5)), ..AccessOptions::default() }
}

fn at(server: &Server, ca_file: Option<PathBuf>) -> Store {
    open(&format!("https://127.0.0.1:{}/", server.address.port()), trusting(ca_file))
}

#[test]
fn any_range_comes_as_it_is() {
    let certificate = Certificate::new("127.0.0.1", |_| {});
    let whole = data(3_000_000);
    let bytes = whole.clone();
    let server = certificate.server(move |request| part(request, &bytes, "ETag: \"one\"\r\n"));
    let store = at(&server, Some(certificate.file()));
    let mut place = 1;
    for round in 0..60_usize {
        place = (place * 48_271 + round) % whole.len();
        let bytes = 1 + (place * 31) % [100, 20_000, 1_000_000][round % 3];
        let end = (place + bytes).min(whole.len());
        assert_eq!(read(&store, b"k", place as u64, bytes).unwrap().0, &whole[place..end], "{place} {bytes}");
    }
    assert_eq!(read(&store, b"k", 0, 3_000_000).unwrap().0, whole);
    let hedges = store.counts().unwrap().hedges as usize;
    assert_eq!((server.asked().len(), server.connections()), (61 + hedges, 1 + hedges));
}

#[test]
fn connections_that_end_are_replaced_and_cut_ones_told() {
    let certificate = Certificate::new("127.0.0.1", |_| {});
    let server = certificate.server(|request| {
        let mut steps = part(request, &data(50_000), "");
        steps.push(Step::Close);
        steps
    });
    let store = at(&server, Some(certificate.file()));
    for _ in 0..4 {
        assert_eq!(read(&store, b"k", 0, 50_000).unwrap().0, data(50_000));
    }
    assert_eq!(server.connections(), 4);
    let cut = certificate.server(|_| {
        let head = "HTTP/1.1 206 x\r\nContent-Range: bytes 0-99/100\r\nContent-Length: 100\r\n\r\n".as_bytes();
        vec![Step::Send([head, &data(40)].concat()), Step::Reset]
    });
    // A reset may overtake what was sent before.
    match read(&at(&cut, Some(certificate.file())), b"k", 0, 100) {
        Ok((found, _)) => assert_eq!(found, &data(40)[..found.len()]),
        Err(failure) => assert_eq!(failure.class(), Class::Storage),
    }
}

#[test]
fn threads_share_and_one_is_cancelled() {
    let certificate = Certificate::new("127.0.0.1", |_| {});
    let server = certificate.server(|request| {
        let mut steps = part(request, &data(100_000), "");
        if request.path() == "/stalls" {
            steps.insert(0, Step::Wait(Duration::from_secs(60)));
        }
        steps
    });
    let options = AccessOptions { stall_limit: Some(Duration::from_secs(60)), ..trusting(Some(certificate.file())) };
    let store = open(&format!("https://127.0.0.1:{}/", server.address.port()), options);
    let interrupt = Interrupt::new();
    std::thread::scope(|scope| {
        let stalled = scope.spawn(|| store.read(b"stalls", 0, &mut [0; 10], None, &interrupt).unwrap_err());
        for at in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..10 {
                    assert_eq!(
                        read(store, b"k", at * 1000, 50_000).unwrap().0,
                        &data(100_000)[at as usize * 1000..][..50_000]
                    );
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        let start = std::time::Instant::now();
        interrupt.stop();
        assert_eq!(stalled.join().unwrap().class(), Class::Interrupted);
        assert!(start.elapsed() < Duration::from_secs(10));
    });
    assert!(server.connections() <= 16, "{}", server.connections());
}

#[test]
fn certificates_that_are_no_good() {
    let plain = |request: &Request| part(request, &data(9), "");
    let good = Certificate::new("127.0.0.1", |_| {});
    let other = Certificate::new("other.example", |_| {});
    let old = Certificate::new("127.0.0.1", |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let new = Certificate::new("127.0.0.1", |params| params.not_before = rcgen::date_time_ymd(2900, 1, 1));
    let cases = [
        (&good, None, "ca_file="),
        (&other, Some(other.file()), "as the certificate does"),
        (&old, Some(old.file()), "needs a newer one"),
        (&new, Some(new.file()), "check the clocks"),
    ];
    for (certificate, ca_file, remedy) in cases {
        let server = certificate.server(plain);
        let failure = read(&at(&server, ca_file), b"k", 0, 9).unwrap_err();
        assert!(failure.class() == Class::Untrusted && failure.to_string().contains("not trusted"), "{failure}");
        let error = failure.into_error(std::path::Path::new("https://h/k"));
        assert_eq!(error.kind(), uringload_core::ErrorKind::Unavailable);
        assert!(error.remedy().unwrap().contains(remedy), "{error}");
        assert_eq!(server.asked().len(), 0);
    }
}

#[test]
fn the_wrong_port() {
    let plain = Server::wrapped(
        |mut stream| {
            let mut hello = [0; 64];
            let _ = stream.read(&mut hello);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            None
        },
        |_| Vec::new(),
    );
    let failure = read(&at(&plain, None), b"k", 0, 9).unwrap_err();
    assert!(failure.to_string().contains("does not speak TLS"), "{failure}");
    let silent = Server::wrapped(
        |stream| {
            std::thread::sleep(Duration::from_secs(9));
            drop(stream);
            None
        },
        |_| Vec::new(),
    );
    let options = AccessOptions { stall_limit: Some(Duration::from_millis(500)), ..AccessOptions::default() };
    let store = open(&format!("https://127.0.0.1:{}/", silent.address.port()), options);
    assert_eq!(read(&store, b"k", 0, 9).unwrap_err().class(), Class::Storage);
}

/// A proxy that connects to `to` whatever it is asked for, after it has looked at the first line and the user.
fn proxy(to: &Server) -> (Server, String) {
    let to = to.address;
    let wrap = move |mut stream: TcpStream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|bytes| bytes > 0) {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        if !head.contains("Proxy-Authorization: Basic bWU6aHVzaA==") {
            let _ = stream.write_all(b"HTTP/1.1 407 x\r\nContent-Length: 0\r\n\r\n");
            return None;
        }
        if head.starts_with("CONNECT html.example") {
            let _ = stream.write_all(b"HTTP/1.1 200 x\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>");
            return None;
        }
        let mut behind = TcpStream::connect(to).unwrap();
        if head.starts_with("CONNECT storage.example:443 ") {
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        } else {
            // Without TLS a proxy reads whole URLs.
            behind.write_all(head.replace("GET http://plain.example", "GET ").as_bytes()).unwrap();
        }
        let (mut from, mut into) = (stream.try_clone().unwrap(), behind.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut into));
        std::io::copy(&mut behind, &mut stream).ok();
        None
    };
    let server = Server::wrapped(wrap, |_| Vec::new());
    let url = format!("http://me:hush@{}", server.address);
    (server, url)
}

#[test]
fn proxies_are_gone_through() {
    let certificate = Certificate::new("storage.example", |_| {});
    let server = certificate.server(|request| part(request, &data(500), ""));
    let (kept, url) = proxy(&server);
    let through = |proxy: String| AccessOptions { proxy: Some(proxy), ..trusting(Some(certificate.file())) };
    let store = open("https://storage.example/", through(url.clone()));
    for _ in 0..3 {
        assert_eq!(read(&store, b"k", 0, 500).unwrap().0, data(500));
    }
    assert_eq!((server.connections(), server.asked()[0].field("host")), (1, "storage.example"));
    assert_eq!(server.asked()[0].field("proxy-authorization"), "", "the proxy's user stays with the proxy");
    let failure = read(&open("https://html.example/", through(url)), b"k", 0, 5).unwrap_err();
    assert!(failure.to_string().contains("answered 200 text/html"), "{failure}");
    let without_user = format!("http://{}", kept.address);
    let failure = read(&open("https://storage.example/", through(without_user)), b"k", 0, 5).unwrap_err();
    assert_eq!(failure.class(), Class::Refused);
    let plain = Server::new(|request| match request.path() {
        "/k" => part(request, &data(500), ""),
        _ => answer("404 x", "", b""),
    });
    let (_kept, url) = proxy(&plain);
    let store = open("http://plain.example/", AccessOptions { proxy: Some(url), ..AccessOptions::default() });
    assert_eq!(read(&store, b"k", 7, 100).unwrap().0, &data(500)[7..107]);
    assert_eq!(plain.asked()[0].field("host"), "plain.example");
}

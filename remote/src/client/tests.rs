//! An address that does not answer, beside one that does.

use super::*;
use crate::exchange::Asked;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// A listener of which all places are taken, so that who connects hears nothing.
struct Full {
    _listener: std::os::fd::OwnedFd,
    _taken: Vec<Result<crate::connection::Connection, io::Error>>,
}

impl Full {
    fn new(address: SocketAddr) -> Full {
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &address).unwrap();
        listen(&listener, 0).unwrap();
        let taken = (0..4).map(|_| crate::connection::Connection::dial(address)).collect();
        let silent = TcpStream::connect_timeout(&address, Duration::from_millis(100)).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut, "it answers");
        Full { _listener: listener, _taken: taken }
    }
}

/// Answers each request by the byte `x`, and closes.
fn serve(listener: TcpListener) {
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1000];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.1 206 x\r\nContent-Range: bytes 0-0/9\r\nContent-Length: 1\r\n\r\nx");
        }
    });
}

#[test]
fn another_address_is_tried_beside_one_that_is_silent() {
    let good = TcpListener::bind("127.0.0.2:0").unwrap();
    let port = good.local_addr().unwrap().port();
    let _full = Full::new(SocketAddr::from(([127, 0, 0, 1], port)));
    serve(good);
    let client =
        Client::new(Err(Failure::new(Class::Unavailable, "no TLS here")), Proxies::default(), Duration::from_secs(30));
    let both = [1, 2].map(|last| SocketAddr::from(([127, 0, 0, last], port)));
    client.addresses.put("h.example", port, both.to_vec());
    let peer = Peer { host: "h.example".to_owned(), port, is_secure: false };
    let (endpoint, interrupt) = (Endpoint::default(), Interrupt::new());
    (0..20).for_each(|_| endpoint.learn_first_byte(Duration::from_millis(10)));
    let asking = Asking { peer: &peer, endpoint: &endpoint, interrupt: &interrupt, is_new: true };
    let head = |_| "GET / HTTP/1.1\r\n\r\n".to_owned();
    let asked = Asked { offset: 0, bytes: 1, expected: None };
    for _ in 0..4 {
        let start = Instant::now();
        let mut answer = client.ask(asking, Request { head: &head, asked: Some(asked), body: &[] }).unwrap();
        assert_eq!(answer.collect(9).unwrap(), b"x");
        // An address alone has 3 s.
        assert!(start.elapsed() < Duration::from_millis(2500), "{:?}", start.elapsed());
        answer.finish();
    }
    let counts = endpoint.counts(String::new());
    assert!(counts.hedges_won >= 1 && counts.hedges_won <= 4, "{counts:?}");
}

#[test]
fn who_waits_for_a_silent_address_is_cancelled() {
    let port = TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 3], port));
    let _full = Full::new(address);
    let trust = Err(Failure::new(Class::Unavailable, "no TLS here"));
    let client = Client::new(trust, Proxies::default(), Duration::from_secs(30));
    let peer = Peer { host: "127.0.0.3".to_owned(), port, is_secure: false };
    let (endpoint, interrupt, start) = (Endpoint::default(), Interrupt::new(), Instant::now());
    let head = |_| String::new();
    let failure = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            interrupt.stop();
        });
        let asking = Asking { peer: &peer, endpoint: &endpoint, interrupt: &interrupt, is_new: false };
        client.ask(asking, Request { head: &head, asked: None, body: &[] }).err().unwrap()
    });
    assert_eq!(failure.class(), Class::Interrupted);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

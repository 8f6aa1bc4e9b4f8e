//! What is wrong: each is bounded in time, of the right class, and tells no secret.

use crate::server::{Request, Server, Step, answer, part, refusal, text};
use crate::{data, open, options, read, store};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use uringload_core::ErrorKind;
use uringload_core::store::Class;
use uringload_remote::AccessOptions;

/// The failure of a read of 10 bytes from 5 on, answered by `steps`.
fn failed(
    steps: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static,
) -> (uringload_core::store::Failure, usize, usize) {
    let server = Server::new(steps);
    let failure = read(&store(&server), b"data/k", 5, 10).unwrap_err();
    (failure, server.asked().len(), server.connections())
}

#[test]
fn an_answer_that_contradicts_is_asked_for_once_more_elsewhere() {
    let heads = [
        "206 x\r\nContent-Range: bytes 6-15/100\r\nContent-Length: 10",
        "206 x\r\nContent-Range: bytes 5-14/12\r\nContent-Length: 10",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 11",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 10\r\nContent-Length: 11",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 10\r\nTransfer-Encoding: chunked",
        "206 x\r\nContent-Length: 10",
    ];
    for head in heads {
        let (failure, asked, connections) = failed(move |_| text(format!("HTTP/1.1 {head}\r\n\r\n0123456789")));
        assert_eq!((failure.class(), asked, connections), (Class::Corrupt, 2, 2), "{head}");
    }
    let server = Server::new(|request| match request.before {
        0 => text("HTTP/1.1 206 x\r\nContent-Length: 10\r\n\r\n0123456789"),
        _ => part(request, &data(99), ""),
    });
    assert_eq!(read(&store(&server), b"k", 5, 10).unwrap().0, &data(99)[5..15], "the second is good");
}

#[test]
fn statuses_have_classes() {
    let cases = [
        ("503 x", "SlowDown", Class::Throttled, ErrorKind::Io),
        ("429 x", "", Class::Throttled, ErrorKind::Io),
        ("408 x", "", Class::Throttled, ErrorKind::Io),
        ("500 x", "InternalError", Class::Throttled, ErrorKind::Io),
        ("403 x", "AccessDenied", Class::Refused, ErrorKind::PermissionDenied),
        ("403 x", "SignatureDoesNotMatch", Class::Refused, ErrorKind::PermissionDenied),
        ("403 x", "InvalidAccessKeyId", Class::Refused, ErrorKind::PermissionDenied),
        ("403 x", "InvalidObjectState", Class::Unavailable, ErrorKind::Unavailable),
        ("404 x", "NoSuchKey", Class::Missing, ErrorKind::NotFound),
        ("404 x", "NoSuchBucket", Class::NoBucket, ErrorKind::NotFound),
        ("412 x", "PreconditionFailed", Class::Changed, ErrorKind::Changed),
    ];
    for (status, code, class, kind) in cases {
        let (failure, asked, _) = failed(move |_| refusal(status, code));
        assert_eq!((failure.class(), asked), (class, 1), "{status} {code}");
        assert!(class != Class::Refused || failure.to_string().contains("key ..MPLE"), "{failure}");
        let error = failure.into_error(std::path::Path::new("s3://bucket/data/k"));
        assert_eq!(error.kind(), kind, "{status} {code}");
        assert!(error.to_string().starts_with("s3://bucket/data/k: "), "{error}");
    }
    let (failure, _, _) = failed(|_| answer("503 x", "Retry-After: 3\r\n", b""));
    assert_eq!(failure.after(), Some(Duration::from_secs(3)));
}

#[test]
fn servers_that_lack_something() {
    let (failure, asked, _) = failed(|_| answer("200 OK", "", &data(50_000)));
    assert_eq!((failure.class(), asked), (Class::Unavailable, 1));
    assert!(failure.to_string().contains("does not honour Range"), "{failure}");
    let (failure, _, _) = failed(|request| part(request, &data(50), "Content-Encoding: gzip\r\n"));
    assert!(failure.class() == Class::Unavailable && failure.to_string().contains("gzip"), "{failure}");
    let (failure, _, _) = failed(|_| answer("200 OK", "Content-Type: text/html\r\n", b"<html>sign in, hush</html>"));
    assert!(failure.to_string().contains("text/html"), "{failure}");
}

#[test]
fn what_is_no_http_or_has_no_end() {
    let long = format!("HTTP/1.1 206 x\r\nA: {}\r\n\r\n", "x".repeat(17_000));
    let many = format!("HTTP/1.1 206 x{}\r\n\r\n", "\r\nA: b".repeat(101));
    for start in
        [long, many, "SSH-2.0-OpenSSH\r\n".into(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), "\0\0\0\0\0\0".into()]
    {
        let (failure, _, _) = failed(move |_| text(start.clone()));
        assert_eq!(failure.class(), Class::Foreign, "{failure}");
    }
    let start = Instant::now();
    let (failure, _, _) = failed(|_| {
        let mut steps = text("HTTP/1.1 206 x\r\n");
        (0..100).for_each(|_| steps.extend([Step::Wait(Duration::from_millis(100)), Step::Send(b"A".to_vec())]));
        steps
    });
    assert_eq!(failure.class(), Class::Storage);
    assert!(start.elapsed() < Duration::from_secs(5), "a head that drips ends with the limit of 2 s");
    let (failure, asked, _) = failed(|_| vec![Step::Wait(Duration::from_secs(9))]);
    assert_eq!((failure.class(), asked), (Class::Storage, 1), "silence is not asked again");
}

#[test]
fn a_body_that_breaks_is_a_short_read() {
    let head = "HTTP/1.1 206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 10\r\n\r\n";
    for end in [|| Step::Close, || Step::Reset] {
        let server = Server::new(move |_| {
            let mut steps = text(head);
            steps.extend([Step::Wait(Duration::from_millis(50)), Step::Send(data(15)[5..9].to_vec())]);
            steps.extend([Step::Wait(Duration::from_millis(50)), end()]);
            steps
        });
        let (found, read) = read(&store(&server), b"k", 5, 10).unwrap();
        assert_eq!((found.as_slice(), read.total), (&data(15)[5..9], Some(100)));
        let server = Server::new(move |_| {
            let mut steps = text(head);
            steps.extend([Step::Wait(Duration::from_millis(50)), end()]);
            steps
        });
        assert_eq!(crate::read(&store(&server), b"k", 5, 10).unwrap_err().class(), Class::Storage);
    }
    let chunked =
        "HTTP/1.1 206 x\r\nContent-Range: bytes 5-14/100\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\nzz\r\n";
    let server = Server::new(move |_| text(chunked));
    assert_eq!(read(&store(&server), b"k", 5, 10).unwrap().0, b"abcd", "up to where it is no chunk");
}

#[test]
fn bytes_behind_the_end_of_a_body_are_dropped_with_the_connection() {
    let server = Server::new(|request| {
        let mut steps = part(request, &data(100), "");
        steps.push(Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad".to_vec()));
        steps
    });
    let store = store(&server);
    for _ in 0..5 {
        assert_eq!(read(&store, b"k", 0, 100).unwrap().0, data(100));
        // What is behind may come later than the body.
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.connections(), 5);
}

#[test]
fn no_one_there() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = |endpoint: String| {
        let options = AccessOptions { endpoint: Some(endpoint), anonymous: true, ..AccessOptions::default() };
        let start = Instant::now();
        let failure = read(&open("s3://bucket", options), b"k", 0, 1).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(15));
        failure
    };
    let failure = at(format!("http://{gone}"));
    assert_eq!(failure.class(), Class::Storage);
    assert!(failure.to_string().contains("there is no connection to 127.0.0.1"), "{failure}");
    let failure = at("http://no-such-host.invalid".to_owned());
    assert!(failure.class() == Class::Storage && failure.to_string().contains("is not resolved"), "{failure}");
}

#[test]
fn any_cut_of_a_good_answer_is_short_or_a_failure() {
    let whole =
        "HTTP/1.1 206 x\r\nContent-Range: bytes 5-14/100\r\nETag: \"a\"\r\nContent-Length: 10\r\n\r\n0123456789";
    let server = Server::new(move |request| {
        let end: usize = request.path().rsplit('/').next().unwrap().parse().unwrap();
        let mut steps = text(&whole[..end]);
        steps.push(Step::Close);
        steps
    });
    let store = open("s3://bucket", options(&server));
    let head = whole.len() - 10;
    for end in 0..=whole.len() {
        match read(&store, end.to_string().as_bytes(), 5, 10) {
            Ok((found, _)) => assert_eq!(found, &whole.as_bytes()[head..end], "{end}"),
            Err(failure) => assert!(end <= head && failure.class() == Class::Storage, "{end}: {failure}"),
        }
    }
}

#[test]
fn whatever_fails_no_wrong_byte_comes() {
    let whole = data(200_000);
    let bytes = whole.clone();
    // Every second answer is wrong in one of nine ways, by the number of the request.
    let server = Server::new(move |request| {
        let draw = request.before.wrapping_mul(0x9e37_79b9) >> 7;
        let good = || part(request, &bytes, "ETag: \"one\"\r\n");
        let (first, last) = request.range();
        let head = |first: usize, length: usize| {
            let range = format!("Content-Range: bytes {first}-{last}/200000\r\nETag: \"one\"\r\n");
            format!("HTTP/1.1 206 x\r\n{range}Content-Length: {length}\r\n\r\n").into_bytes()
        };
        let cut = |end: Step| {
            let half = first + (last - first) / 2;
            vec![Step::Send([head(first, last + 1 - first), bytes[first..half].to_vec()].concat()), end]
        };
        match draw % 18 {
            0 => refusal("503 x", "SlowDown"),
            1 => cut(Step::Close),
            2 => cut(Step::Reset),
            3 => vec![Step::Close],
            4 => vec![Step::Send(head(first + 1, last - first)), Step::Send(bytes[first + 1..=last].to_vec())],
            5 => vec![Step::Send(head(first, last - first)), Step::Send(bytes[first..last].to_vec())],
            6 => answer("206 x", "", &bytes[first..=last]),
            7 => text("HTTP/9 what?\r\n\r\n"),
            8 => {
                let mut steps = good();
                steps.extend([Step::Wait(Duration::from_millis(1)), Step::Close]);
                steps
            }
            _ => good(),
        }
    });
    let store = store(&server);
    let mut classes = std::collections::HashSet::new();
    for round in 0..300_usize {
        let at = round * 7919 % 190_000;
        let end = at + 1 + round * 31 % 9_999;
        let (mut found, mut failures) = (Vec::new(), 0);
        while found.len() < end - at {
            match read(&store, b"k", (at + found.len()) as u64, end - at - found.len()) {
                Ok((more, _)) => found.extend(more),
                Err(failure) => {
                    classes.insert(failure.class());
                    failures += 1;
                    assert!(failures < 50, "{failure}");
                }
            }
        }
        assert_eq!(found, &whole[at..end], "round {round}");
    }
    assert!(classes.contains(&Class::Throttled) && classes.contains(&Class::Storage), "{classes:?}");
}

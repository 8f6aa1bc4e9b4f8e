//! Heads of answers: what is taken, what is refused, and that no bytes make it panic.

use super::*;
use crate::draws::Draws;
use uringload_core::store::Known;

fn head(fields: &str) -> Result<Head, Failure> {
    let text = format!("HTTP/1.1 {fields}\r\n\r\n");
    Ok(Head::parse(text.as_bytes())?.unwrap_or_else(|| panic!("incomplete: {text}")))
}

fn judged(fields: &str, offset: u64, bytes: u64) -> Result<Taken, Class> {
    head(fields)
        .and_then(|head| head.judge(&Asked { offset, bytes, expected: None }))
        .map_err(|failure| failure.class())
}

fn taken(bytes: u64, total: Option<u64>) -> Result<Taken, Class> {
    Ok(Taken { bytes, total, version: None })
}

#[test]
fn ranges_as_asked_are_taken() {
    let cases = [
        ("206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 10", 10, Some(100)),
        // A server that answers with 200 and yet gives the part, as rclone does.
        ("200 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 10", 10, Some(100)),
        ("206 x\r\nContent-Range: bytes 5-14/*\r\nTransfer-Encoding: chunked", 10, None),
        ("206 x\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5", 5, Some(10)),
        ("206 x\r\nContent-Range: bytes 5-14/100", 10, Some(100)),
        ("416 x\r\nContent-Range: bytes */5\r\nContent-Length: 0", 0, Some(5)),
        ("200 x\r\nContent-Length: 5", 0, Some(5)),
    ];
    for (fields, bytes, total) in cases {
        assert_eq!(judged(fields, 5, 10), taken(bytes, total), "{fields}");
    }
    assert_eq!(judged("200 x\r\nContent-Length: 7", 0, 10), taken(7, Some(7)));
    assert_eq!(judged("200 x\r\nTransfer-Encoding: chunked", 0, 10), taken(10, None));
}

#[test]
fn what_contradicts_is_refused() {
    let corrupt = [
        "206 x\r\nContent-Range: bytes 6-15/100\r\nContent-Length: 10",
        "206 x\r\nContent-Range: bytes 5-15/100\r\nContent-Length: 11",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 9",
        "206 x\r\nContent-Range: bytes 5-14/12\r\nContent-Length: 10",
        "206 x\r\nContent-Range: bytes 14-5/100",
        "206 x\r\nContent-Range: bytes 0-18446744073709551615/*",
        "206 x\r\nContent-Range: lines 5-14/100",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Range: bytes 5-14/100",
        "206 x\r\nContent-Length: 10",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 10\r\nContent-Length: 10",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: +10",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Length: 10\r\nTransfer-Encoding: chunked",
        "206 x\r\nContent-Range: bytes 5-14/100\r\nTransfer-Encoding: gzip",
        "416 x\r\nContent-Range: bytes */50\r\nContent-Length: 0",
    ];
    for fields in corrupt {
        assert_eq!(judged(fields, 5, 10), Err(Class::Corrupt), "{fields}");
    }
    for fields in ["200 x\r\nContent-Length: 100", "200 x\r\nTransfer-Encoding: chunked"] {
        assert_eq!(judged(fields, 5, 10), Err(Class::Unavailable), "{fields}");
    }
    let gzip = "206 x\r\nContent-Range: bytes 5-14/100\r\nContent-Encoding: gzip";
    let failure = head(gzip).unwrap().judge(&Asked { offset: 5, bytes: 10, expected: None }).unwrap_err();
    assert_eq!(failure.class(), Class::Unavailable);
    assert!(failure.to_string().contains("gzip"), "{failure}");
}

#[test]
fn another_version_is_a_change() {
    let fields = |etag: &str| format!("206 x\r\nContent-Range: bytes 0-9/10\r\nETag: {etag}\r\nContent-Length: 10");
    let asked = |expected| Asked { offset: 0, bytes: 10, expected };
    let found = head(&fields("\"a\"")).unwrap().judge(&asked(None)).unwrap().version;
    assert_eq!(found.unwrap().known_by(), Known::Etag);
    assert_eq!(head(&fields("\"a\"")).unwrap().judge(&asked(found)).unwrap().version, found);
    assert_eq!(head(&fields("\"b\"")).unwrap().judge(&asked(found)).unwrap_err().class(), Class::Changed);
    assert_eq!(head(&fields("W/\"b\"")).unwrap().judge(&asked(found)).unwrap().version, None);
}

#[test]
fn a_head_is_bounded() {
    let endless = format!("HTTP/1.1 200 x\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(Head::parse(endless.as_bytes()).unwrap_err().class(), Class::Foreign);
    let long = format!("200 x\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(head(&long).unwrap_err().class(), Class::Foreign);
    let fields = |count: usize| format!("200 x{}\r\nContent-Length: 0", "\r\nA: b".repeat(count - 1));
    assert!(head(&fields(FIELDS_MAX)).is_ok());
    assert_eq!(head(&fields(FIELDS_MAX + 1)).unwrap_err().class(), Class::Foreign);
    for text in ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "SSH-2.0-x\r\n\r\n", "\0\0\0", "<html>", "HTTP/1.1 101 x\r\n\r\n"]
    {
        assert_eq!(Head::parse(text.as_bytes()).unwrap_err().class(), Class::Foreign, "{text:?}");
    }
}

#[test]
fn connections_and_waits() {
    let keeps = |text: &str| Head::parse(text.as_bytes()).unwrap().unwrap().keeps;
    assert!(keeps("HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n"));
    assert!(!keeps("HTTP/1.1 200 x\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n"));
    assert!(!keeps("HTTP/1.1 200 x\r\n\r\n"));
    assert!(!keeps("HTTP/1.0 200 x\r\nContent-Length: 0\r\n\r\n"));
    assert!(keeps("HTTP/1.0 200 x\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"));
    let after = |fields: &str| head(fields).unwrap().after;
    assert_eq!(after("503 x\r\nRetry-After: 7\r\nContent-Length: 0"), Some(Duration::from_secs(7)));
    assert_eq!(after("503 x\r\nRetry-After: 999999999\r\nContent-Length: 0"), Some(RETRY_AFTER_MAX));
    let dated = "503 x\r\nRetry-After: Sun, 06 Nov 1994 08:49:47 GMT\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(after(dated), Some(Duration::from_secs(10)));
    let two = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 x\r\n\r\nrest";
    let head = Head::parse(two).unwrap().unwrap();
    assert_eq!((head.status, &two[head.bytes..]), (204, b"rest".as_slice()));
}

#[test]
fn chunks_come_together_however_they_are_cut() {
    let mut draws = Draws::new(5);
    for round in 0..500 {
        let body = draws.bytes(0..=300);
        let mut sent = Vec::new();
        let mut rest = &body[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(draws.below(1..=rest.len()));
            sent.extend_from_slice(format!("{:x};a=b\r\n", now.len()).as_bytes());
            sent.extend_from_slice(now);
            sent.extend_from_slice(b"\r\n");
            rest = later;
        }
        sent.extend_from_slice(b"0\r\nField: x\r\n\r\n");
        let (mut chunks, mut found, mut at) = (Chunks::default(), Vec::new(), 0);
        while !chunks.has_ended() {
            let end = (at + draws.below(1..=40)).min(sent.len());
            let mut into = [0; 17];
            let (taken, given) = chunks.take(&sent[at..end], &mut into).unwrap();
            found.extend_from_slice(&into[..given]);
            at += taken;
        }
        assert_eq!((found, at), (body, sent.len()), "round {round}");
    }
    for text in ["x\r\n", "-1\r\n", "2\r\nabc\r\n", "\r\n", "10000000000000000\r\n"] {
        let mut chunks = Chunks::default();
        // What is wrong behind good bytes is told with the next.
        let failure =
            chunks.take(text.as_bytes(), &mut [0; 9]).and_then(|_| chunks.take(b"", &mut [0; 9])).unwrap_err();
        assert_eq!(failure.class(), Class::Corrupt, "{text:?}");
    }
    let endless = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(9999)].concat();
    assert_eq!(Chunks::default().take(&endless, &mut []).unwrap_err().class(), Class::Corrupt);
}

#[test]
fn no_bytes_make_it_panic() {
    let seed = b"HTTP/1.1 206 x\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\nETag: \"a\"\r\n\r\n".to_vec();
    let mut draws = Draws::new(9);
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        for _ in 0..draws.below(1..=4) {
            let at = draws.below(0..=bytes.len() - 1);
            bytes[at] = draws.next() as u8;
        }
        bytes.truncate(draws.below(1..=bytes.len()));
        if let Ok(Some(head)) = Head::parse(&bytes)
            && let Ok(taken) = head.judge(&Asked { offset: 0, bytes: 10, expected: None })
        {
            assert!(taken.bytes <= 10);
        }
        let _ = Chunks::default().take(&bytes, &mut [0; 16]);
    }
}

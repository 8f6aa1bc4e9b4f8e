//! What is right: ranges, keys, versions, connections, credentials.

use crate::server::{Request, Server, Step, answer, part, refusal, text};
use crate::{data, open, options, read, read_as, store};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use uringload_core::Cause;
use uringload_core::store::{Class, Interrupt, Known, Store as _};
use uringload_remote::{Access, AccessOptions, Store, Url};

fn noted(store: &Store) -> Vec<Cause> {
    store.notes().iter().map(|note| note.cause).collect()
}

#[test]
fn any_range_comes_as_it_is() {
    let whole = data(300_000);
    let server = Server::of(whole.clone());
    let store = store(&server);
    let mut at = 1;
    for round in 0..200_usize {
        at = (at * 48_271 + round) % whole.len();
        let bytes = 1 + (at * 31) % 70_000;
        let end = (at + bytes).min(whole.len());
        let (found, read) = read(&store, b"data/k", at as u64, bytes).unwrap();
        assert_eq!(found, &whole[at..end], "{at} {bytes}");
        assert_eq!((read.total, read.version.unwrap().known_by()), (Some(300_000), Known::Etag));
    }
    let hedges = store.counts().unwrap().hedges as usize;
    assert_eq!((server.asked().len(), server.connections()), (200 + hedges, 1 + hedges));
    assert!(server.asked().iter().all(|request| request.field("accept-encoding") == "identity"));
    for offset in [300_000, 300_001, u64::MAX / 2, u64::MAX - 2] {
        let (_, read) = read(&store, b"data/k", offset, 5).unwrap();
        assert_eq!((read.bytes, read.total), (0, Some(300_000)), "behind the end");
    }
    assert_eq!(noted(&store), []);
}

#[test]
fn each_key_is_read_under_exactly_its_name() {
    let server = Server::new(|request| part(request, request.path().as_bytes(), ""));
    let store = open("s3://bucket", options(&server));
    let long = "\u{1F980}".repeat(256);
    let keys =
        ["a//b", "/a", "../x", ".", "..", "a b", "a+b", "%41", "\\", "a/", "A", "a?b=c#d", "\u{1}\u{7f}\r\n", &long];
    for key in keys {
        let (path, _) = read(&store, key.as_bytes(), 0, 5000).unwrap();
        let name = path.strip_prefix(b"/bucket/").unwrap_or_else(|| panic!("{key:?}: {path:?}"));
        assert_eq!(decoded(name), key.as_bytes(), "{key:?}");
    }
    let (path, _) = read(&store, b"\xff\xfe", 0, 100).unwrap();
    assert_eq!(path, b"/bucket/%FF%FE");
}

fn decoded(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        let escape = tail.get(..2).filter(|_| first == b'%').map(|digits| std::str::from_utf8(digits).unwrap());
        decoded.push(escape.map_or(first, |digits| u8::from_str_radix(digits, 16).unwrap()));
        rest = if escape.is_some() { &tail[2..] } else { tail };
    }
    decoded
}

#[test]
fn servers_that_are_right_in_another_way() {
    let whole = data(50);
    let script = move |request: &Request| {
        let (first, last) = request.range();
        let last = last.min(49);
        let range = format!("Content-Range: bytes {first}-{last}/50\r\n");
        let body = &whole[first..=last];
        match request.path() {
            "/bucket/rclone" => answer("200 OK", &range, body),
            "/bucket/whole" => answer("200 OK", "", &whole),
            "/bucket/chunks" => {
                let mut sent = format!("HTTP/1.1 206 x\r\n{range}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
                for piece in body.chunks(7) {
                    sent.extend_from_slice(format!("{:X}\r\n", piece.len()).as_bytes());
                    sent.extend_from_slice(piece);
                    sent.extend_from_slice(b"\r\n");
                }
                sent.extend_from_slice(b"0\r\n\r\n");
                vec![Step::Send(sent)]
            }
            "/bucket/old" => {
                let head = format!("HTTP/1.0 206 x\r\n{range}\r\n");
                vec![Step::Send([head.as_bytes(), body].concat()), Step::Close]
            }
            "/bucket/beyond" => {
                answer("416 x", "", b"<Error><Code>InvalidRange</Code><ActualObjectSize>7</ActualObjectSize></Error>")
            }
            other => panic!("{other}"),
        }
    };
    let server = Server::new(script);
    let store = open("s3://bucket", options(&server));
    let whole = data(50);
    for key in ["rclone", "chunks", "old", "rclone", "chunks"] {
        assert_eq!(read(&store, key.as_bytes(), 10, 20).unwrap().0, &whole[10..30], "{key}");
    }
    assert_eq!(read(&store, b"whole", 0, 60).unwrap().0, whole);
    assert_eq!(read(&store, b"beyond", 7, 1).unwrap().1.total, Some(7));
    assert_eq!(server.connections(), 2, "only HTTP/1.0 ends a connection");
}

#[test]
fn versions_are_compared_before_a_byte_counts() {
    let etag = Arc::new(Mutex::new("ETag: \"one\"\r\n".to_owned()));
    let now = etag.clone();
    let server = Server::new(move |request| part(request, &data(100), &now.lock().unwrap()));
    let store = store(&server);
    let version = read(&store, b"data/k", 0, 10).unwrap().1.version;
    assert_eq!(read_as(&store, b"data/k", 5, 10, version).unwrap().1.version, version);
    *etag.lock().unwrap() = "ETag: \"two\"\r\n".to_owned();
    let failure = read_as(&store, b"data/k", 5, 10, version).unwrap_err();
    assert_eq!(failure.class(), Class::Changed);
    assert_eq!(noted(&store), []);
    *etag.lock().unwrap() = "ETag: W/\"two\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned();
    let weak = read(&store, b"data/k", 0, 10).unwrap().1.version.unwrap();
    assert_eq!((weak.known_by(), noted(&store)), (Known::Modified, vec![Cause::WeakEtag]));
    *etag.lock().unwrap() = String::new();
    assert_eq!(read_as(&store, b"data/k", 0, 10, version).unwrap().1.version, None);
    assert_eq!(noted(&store), [Cause::Unversioned, Cause::WeakEtag]);
}

#[test]
fn connections_are_kept_and_dead_ones_replaced() {
    // Each connection is closed behind its second answer, without a word about it.
    let script = |request: &Request| {
        let mut steps = part(request, &data(100), "");
        if request.before % 2 == 1 {
            steps.push(Step::Close);
        }
        steps
    };
    let server = Server::new(script);
    let store = store(&server);
    for _ in 0..10 {
        assert_eq!(read(&store, b"k", 0, 100).unwrap().0, data(100));
    }
    // A second attempt takes a connection, and shifts which answers are the second of theirs.
    let (hedges, connections) = (store.counts().unwrap().hedges as usize, server.connections());
    assert_eq!(server.asked().len(), 10 + hedges);
    assert!((5..=5 + 2 * hedges).contains(&connections), "{connections} {hedges}");
}

#[test]
fn the_address_of_a_host_that_answers_is_taken() {
    // `localhost` has two addresses on most machines, and the server listens on one.
    let server = Server::of(data(9));
    let endpoint = Some(format!("http://localhost:{}", server.address.port()));
    for _ in 0..4 {
        let store = open("s3://bucket", AccessOptions { endpoint: endpoint.clone(), ..options(&server) });
        assert_eq!(read(&store, b"k", 0, 9).unwrap().0, data(9));
    }
}

#[test]
fn a_connection_that_dies_on_a_request_is_replaced_once() {
    // The second request of a connection is read, and answered by an end.
    let script = |request: &Request| match request.before {
        1 => vec![Step::Close],
        _ => part(request, &data(9), ""),
    };
    let server = Server::new(script);
    let store = store(&server);
    for _ in 0..2 {
        assert_eq!(read(&store, b"k", 0, 9).unwrap().0, data(9));
    }
    let hedges = store.counts().unwrap().hedges as usize;
    assert_eq!((server.asked().len(), server.connections()), (3 + hedges, 2 + hedges));
    let always = Server::new(|_| vec![Step::Close]);
    assert_eq!(read(&crate::store(&always), b"k", 0, 9).unwrap_err().class(), Class::Storage);
    assert_eq!(always.asked().len(), 1, "a new connection that dies is no reason to ask again");
}

#[test]
fn many_threads_share_what_waits() {
    let whole = data(200_000);
    let server = Server::of(whole.clone());
    let store = store(&server);
    let turn = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..40 {
                    let at = turn.fetch_add(1, Ordering::Relaxed) * 7919 % 190_000;
                    assert_eq!(read(&store, b"k", at as u64, 10_000).unwrap().0, &whole[at..at + 10_000]);
                }
            });
        }
    });
    // A second attempt at a request is counted as one.
    assert_eq!(server.asked().len() as u64, 640 + store.counts().unwrap().hedges);
    // The server counts a connection late, so a few more than threads may have been made.
    let hedges = store.counts().unwrap().hedges as usize;
    assert!(server.connections() <= 32 + hedges, "{}", server.connections());
}

#[test]
fn silence_ends_a_read_and_slowness_does_not() {
    let slow = |request: &Request| {
        let body = data(40);
        let head = "HTTP/1.1 206 x\r\nContent-Range: bytes 0-39/40\r\nContent-Length: 40\r\n\r\n".to_owned();
        let mut steps = text(head);
        for piece in body.chunks(4) {
            steps.extend([Step::Wait(Duration::from_millis(250)), Step::Send(piece.to_vec())]);
        }
        if request.path() == "/bucket/stalls" {
            steps.truncate(6);
            steps.push(Step::Wait(Duration::from_secs(10)));
        }
        steps
    };
    let server = Server::new(slow);
    let short = AccessOptions { stall_limit: Some(Duration::from_secs(2)), ..options(&server) };
    let store = open("s3://bucket", short);
    assert_eq!(read(&store, b"slow", 0, 40).unwrap().0, data(40), "2.5 s in all, 0.25 s each");
    let start = Instant::now();
    let (found, _) = read(&store, b"stalls", 0, 40).unwrap();
    assert_eq!(found, data(40)[..8], "a short read: what came is good");
    assert!(start.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_read_is_cancelled_from_another_thread() {
    let server = Server::new(|_| {
        let head = "HTTP/1.1 206 x\r\nContent-Range: bytes 0-39/40\r\nContent-Length: 40\r\n\r\nabc";
        let mut steps = text(head);
        steps.push(Step::Wait(Duration::from_secs(60)));
        steps
    });
    let store = open("s3://bucket", AccessOptions { stall_limit: Some(Duration::from_secs(60)), ..options(&server) });
    let interrupt = Interrupt::new();
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            interrupt.stop();
        });
        let failure = store.read(b"k", 0, &mut [0; 40], None, &interrupt).unwrap_err();
        assert_eq!(failure.class(), Class::Interrupted);
    });
    assert!(start.elapsed() < Duration::from_secs(10));
    let asked = server.asked().len();
    assert_eq!(store.read(b"k", 0, &mut [0; 40], None, &interrupt).unwrap_err().class(), Class::Interrupted);
    assert_eq!(server.asked().len(), asked, "not even asked");
}

#[test]
fn the_region_is_learned_once() {
    let script = |request: &Request| {
        if request.field("authorization").contains("/eu-west-1/s3/") {
            return part(request, &data(9), "ETag: \"one\"\r\n");
        }
        answer("301 x", "x-amz-bucket-region: eu-west-1\r\n", b"<Error><Code>PermanentRedirect</Code></Error>")
    };
    let server = Server::new(script);
    let store = store(&server);
    for _ in 0..3 {
        assert_eq!(read(&store, b"k", 0, 9).unwrap().0, data(9));
    }
    assert_eq!((server.asked().len(), noted(&store)), (4, vec![Cause::Region]));
    assert!(store.notes()[0].to_string().starts_with("the region eu-west-1 instead of "), "{:?}", store.notes());
    let malformed = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>r2</Region></Error>".as_bytes();
    let never = Server::new(move |_| answer("400 x", "", malformed));
    let failure = read(&crate::store(&never), b"k", 0, 9).unwrap_err();
    assert_eq!((failure.class(), never.asked().len()), (Class::Invalid, 2));
    let error = failure.into_error(std::path::Path::new("s3://bucket/k"));
    assert!(error.remedy().unwrap().contains("region=r2"), "{error}");
}

#[test]
fn the_clock_is_learned_from_the_server() {
    let script = |request: &Request| match request.before {
        0 => {
            answer("403 x", &format!("Date: {}\r\n", hour_ahead()), b"<Error><Code>RequestTimeTooSkewed</Code></Error>")
        }
        _ => part(request, &data(9), "ETag: \"one\"\r\n"),
    };
    let server = Server::new(script);
    let store = store(&server);
    assert_eq!(read(&store, b"k", 0, 9).unwrap().0, data(9));
    assert_eq!(noted(&store), [Cause::Clock]);
    let dates: Vec<String> = server.asked().iter().map(|request| request.field("x-amz-date").to_owned()).collect();
    assert_ne!(dates[0][..11], dates[1][..11], "the second is signed an hour later: {dates:?}");
    let always = Server::new(|_| refusal("403 x", "RequestTimeTooSkewed"));
    let failure = read(&crate::store(&always), b"k", 0, 9).unwrap_err();
    assert_eq!((failure.class(), always.asked().len()), (Class::Refused, 1), "no date to learn from");
}

/// A date of HTTP an hour from now.
fn hour_ahead() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 3600;
    let text = std::process::Command::new("date").args(["-u", "-R", "-d", &format!("@{now}")]).output().unwrap();
    String::from_utf8(text.stdout).unwrap().trim().replace("+0000", "GMT")
}

#[test]
fn expired_credentials_are_read_again() {
    let script = |request: &Request| {
        let is_new = request.field("authorization").contains("AKIDNEW");
        if is_new { part(request, &data(9), "") } else { refusal("400 x", "ExpiredToken") }
    };
    let server = Server::new(script);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let write = |key: &str| {
        std::fs::write(&file, format!("[default]\naws_access_key_id={key}\naws_secret_access_key=hush\n")).unwrap();
    };
    write("AKIDOLD");
    let pairs = [
        ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap().to_owned()),
        ("AWS_CONFIG_FILE", "/nonexistent".to_owned()),
        ("AWS_ENDPOINT_URL_S3", format!("http://{}", server.address)),
    ];
    let pairs = pairs.map(|(name, value)| (name.into(), value.into()));
    let access = Access::from_environment(AccessOptions::default(), pairs).unwrap();
    let store = Store::open(&Url::parse(b"s3://bucket/k").unwrap(), &access).unwrap();
    let failure = read(&store, b"k", 0, 9).unwrap_err();
    assert_eq!(failure.class(), Class::Expired);
    assert!(failure.to_string().contains("the profile default, key ..DOLD"), "{failure}");
    write("AKIDNEW");
    // Read again at most every five seconds.
    thread::sleep(Duration::from_millis(5100));
    assert_eq!(read(&store, b"k", 0, 9).unwrap().0, data(9));
    let fixed = crate::store(&server);
    assert_eq!(read(&fixed, b"k", 0, 9).unwrap_err().class(), Class::Expired);
}

#[test]
fn redirections_are_followed_without_credentials() {
    let other = Server::of(data(30));
    let place = format!("Location: http://{}/else?sig=hush\r\n", other.address);
    let script = move |request: &Request| match request.path() {
        "/own" => answer("307 x", "Location: /there?x=1\r\n", b""),
        "/there" => part(request, &data(10), ""),
        "/circle" => answer("308 x", "Location: /circle\r\n", b""),
        "/nowhere" => answer("302 x", "Location: gopher://hush/\r\n", b""),
        _ => answer("302 x", &place, b""),
    };
    let server = Server::new(script);
    let url = format!("http://me:hush@{}/", server.address);
    let store = open(&url, AccessOptions::default());
    assert_eq!(read(&store, b"own", 0, 10).unwrap().0, data(10));
    assert_eq!(read(&store, b"away", 3, 10).unwrap().0, &data(30)[3..13]);
    assert!(server.asked().iter().all(|request| request.field("authorization") == "Basic bWU6aHVzaA=="));
    let away = other.asked();
    assert_eq!((away[0].target.as_str(), away[0].field("authorization")), ("/else?sig=hush", ""));
    let failure = read(&store, b"circle", 0, 1).unwrap_err();
    assert!(failure.to_string().contains("in a circle"), "{failure}");
    assert_eq!(read(&store, b"nowhere", 0, 1).unwrap_err().class(), Class::Foreign);
}

#[test]
fn the_query_of_a_url_is_sent_and_never_told() {
    let server = Server::new(|request| match request.query() {
        "X-Amz-Signature=hush" => part(request, &data(9), "ETag: \"one\"\r\n"),
        _ => refusal("403 x", "AccessDenied"),
    });
    let store = open(&format!("http://{}/a/k?X-Amz-Signature=hush", server.address), AccessOptions::default());
    assert_eq!(read(&store, b"a/k", 0, 9).unwrap().0, data(9));
    assert_eq!(read(&store, b"a/other", 0, 9).unwrap_err().class(), Class::Refused, "it is of one object");
    let version = Server::new(|request| match request.query() {
        "versionId=v1" => part(request, &data(9), ""),
        _ => refusal("404 x", "NoSuchVersion"),
    });
    let store = open("s3://bucket/k?versionId=v1", options(&version));
    assert_eq!(read(&store, b"k", 0, 9).unwrap().0, data(9));
    assert_eq!(read(&store, b"other", 0, 9).unwrap_err().class(), Class::Missing);
}

#[test]
fn who_pays_and_who_does_not_sign() {
    let server = Server::of(data(9));
    let pays = open("s3://bucket", AccessOptions { requester_pays: true, ..options(&server) });
    read(&pays, b"k", 0, 9).unwrap();
    let unsigned = open("s3://bucket", AccessOptions { anonymous: true, ..options(&server) });
    read(&unsigned, b"k", 0, 9).unwrap();
    let asked = server.asked();
    assert_eq!(asked[0].field("x-amz-request-payer"), "requester");
    assert!(asked[0].field("authorization").contains("x-amz-request-payer"));
    assert_eq!(asked[0].field("x-amz-security-token"), "hush");
    assert_eq!(asked[1].field("authorization"), "");
}

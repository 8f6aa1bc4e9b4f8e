//! The server, asked by a client that is nothing but a socket.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use uringload_content::{content, first_wrong, key_of};
use uringload_objects::{Options, Server};

/// Bytes of the objects here.
const SIZE: usize = 10_000;
/// Longest wait for an answer, which only a hang reaches.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Why the body ended early.
    broken: Option<std::io::ErrorKind>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The texts of the elements `name`.
    fn elements(&self, name: &str) -> Vec<String> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let text = self.text();
        text.split(&open).skip(1).map(|rest| rest.split(&close).next().unwrap().to_owned()).collect()
    }
}

fn start(arguments: &[&str]) -> Server {
    Server::start(Options::parse(arguments).unwrap()).unwrap()
}

/// A server of the folder `root`, with a bucket `b` that has the object `k` and two more.
fn served(root: &Path, arguments: &[&str]) -> Server {
    for key in ["k", "d/one", "d/two"] {
        let path = root.join("b").join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content(key_of(key.as_bytes()), 0, SIZE)).unwrap();
    }
    start(&[&["--root", root.to_str().unwrap()], arguments].concat())
}

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(server.url().strip_prefix("http://").unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends one request over a connection of its own and reads to its end.
fn ask(server: &Server, method: &str, target: &str, headers: &str, body: &[u8]) -> Answer {
    let mut socket = connect(server);
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    write!(socket, "{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}{length}\r\n").unwrap();
    socket.write_all(body).unwrap();
    answer(&mut BufReader::new(socket), method == "HEAD")
}

fn get(server: &Server, target: &str, headers: &str) -> Answer {
    ask(server, "GET", target, headers, b"")
}

/// The bytes 100 to 199 of the object `k`.
fn part(server: &Server) -> Answer {
    get(server, "/b/k", "Range: bytes=100-199\r\n")
}

fn answer(input: &mut impl BufRead, bare: bool) -> Answer {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
    let pairs = lines[1..].iter().map(|line| line.split_once(": ").unwrap());
    let headers: Vec<(String, String)> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut answer = Answer { status, headers, body: Vec::new(), broken: None };
    if !bare {
        answer.broken = input.read_to_end(&mut answer.body).err().map(|error| error.kind());
    }
    answer
}

#[test]
fn objects_and_their_parts_are_served() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &[]);
    let whole = get(&server, "/b/d/one", "");
    assert_eq!((whole.status, whole.body.len()), (200, SIZE));
    assert_eq!(first_wrong(key_of(b"d/one"), 0, &whole.body), None);
    for (asked, range, first, length) in [
        ("100-199", "bytes 100-199/10000", 100, 100),
        ("9990-", "bytes 9990-9999/10000", 9990, 10),
        ("-10", "bytes 9990-9999/10000", 9990, 10),
        ("9990-20000", "bytes 9990-9999/10000", 9990, 10),
    ] {
        let part = get(&server, "/b/k", &format!("Range: bytes={asked}\r\n"));
        assert_eq!((part.status, part.header("Content-Range"), part.body.len()), (206, Some(range), length));
        assert_eq!(first_wrong(key_of(b"k"), first, &part.body), None);
    }
    let behind = get(&server, "/b/k", "Range: bytes=10000-\r\n");
    assert_eq!((behind.status, behind.header("Content-Range")), (416, Some("bytes */10000")));
    let head = ask(&server, "HEAD", "/b/k", "", b"");
    assert_eq!(
        (head.status, head.header("Content-Length"), head.header("ETag")),
        (200, Some("10000"), part(&server).header("ETag"))
    );
    assert!(head.header("Last-Modified").unwrap().ends_with(" GMT") && head.header("Date").is_some());
    for (target, code) in
        [("/b/none", "NoSuchKey"), ("/b/d", "NoSuchKey"), ("/c/k", "NoSuchBucket"), ("/b/../b/k", "NoSuchKey")]
    {
        let missing = get(&server, target, "");
        assert_eq!((missing.status, missing.elements("Code")), (404, vec![code.to_owned()]), "{target}");
    }
    // What cannot be opened is not missing.
    std::os::unix::fs::symlink("circle", root.path().join("b/circle")).unwrap();
    assert_eq!(get(&server, "/b/circle", "").elements("Code"), ["InternalError"]);
    let etag = head.header("ETag").unwrap();
    assert_eq!(get(&server, "/b/k", &format!("If-Match: {etag}\r\n")).status, 200);
    assert_eq!(get(&server, "/b/k", "If-Match: \"other\"\r\n").status, 412);
    assert_eq!(get(&server, "/b/k", &format!("If-None-Match: {etag}\r\n")).status, 304);
    let stats = server.stats();
    assert_eq!((stats.requests["GET"], stats.requests["HEAD"], stats.unsigned), (15, 1, 16));
    assert_eq!((stats.ranges[0].clone(), stats.ranges.len()), (("b/k".to_owned(), 100, 200), 6));
    assert_eq!(stats.statuses[&206], 5);
}

#[test]
fn a_connection_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &[]);
    let mut socket = BufReader::new(connect(&server));
    for first in [0, 5] {
        write!(socket.get_mut(), "GET /b/k HTTP/1.1\r\nHost: h\r\nRange: bytes={first}-9\r\n\r\n").unwrap();
        let head = answer(&mut socket, true);
        let mut body = vec![0; head.header("Content-Length").unwrap().parse().unwrap()];
        socket.read_exact(&mut body).unwrap();
        assert_eq!(body, content(key_of(b"k"), first, 10 - first as usize));
    }
    let mut other = connect(&server);
    other.write_all(b"no HTTP at all\r\n\r\n").unwrap();
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
    assert_eq!(server.stats().connections, 2);
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    drop(server);
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    // After an outage it is where it was.
    assert_eq!(part(&served(root.path(), &["--listen", &address])).status, 206);
}

#[test]
fn listings_have_pages_prefixes_and_delimiters() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &[]);
    let list = |query: &str| get(&server, &format!("/b?list-type=2{query}"), "");
    assert_eq!(list("").elements("Key"), ["d/one", "d/two", "k"]);
    assert_eq!(list("").elements("Size"), ["10000"; 3]);
    assert_eq!(list("&prefix=d/t").elements("Key"), ["d/two"]);
    assert_eq!(list("&start-after=d/one").elements("Key"), ["d/two", "k"]);
    let folders = list("&delimiter=/");
    assert_eq!(
        (folders.elements("Key"), folders.elements("CommonPrefixes")),
        (vec!["k".to_owned()], vec!["<Prefix>d/</Prefix>".to_owned()])
    );
    let first = list("&max-keys=2");
    let token = &first.elements("NextContinuationToken")[0];
    assert_eq!((first.elements("Key").len(), first.elements("IsTruncated")), (2, vec!["true".to_owned()]));
    let second = list(&format!("&max-keys=2&continuation-token={token}"));
    assert_eq!(
        (second.elements("Key"), second.elements("IsTruncated")),
        (vec!["k".to_owned()], vec!["false".to_owned()])
    );
    assert_eq!(list("&continuation-token=x").elements("Code"), ["InvalidArgument"]);
    assert_eq!(get(&server, "/b", "").status, 501);
    assert_eq!(get(&server, "/", "").elements("Name"), ["b"]);
    ask(&server, "PUT", "/b/a%20%26%01", "", b"x");
    assert_eq!(list("&prefix=a").elements("Key"), ["a &amp;&#x1;"]);
    assert_eq!(list("&prefix=a&encoding-type=url").elements("Key"), ["a%20%26%01"]);
}

#[test]
fn a_synthetic_bucket_is_listed_and_read() {
    let server = start(&["--synthetic", "1000000:5000"]);
    let list = |query: &str| get(&server, &format!("/synthetic?list-type=2{query}"), "");
    let first = list("&start-after=0000999/0000999997.bin");
    assert_eq!(first.elements("Key"), ["0000999/0000999998.bin", "0000999/0000999999.bin"]);
    let folders = list("&delimiter=/&prefix=");
    assert_eq!((folders.elements("Prefix").len(), folders.elements("IsTruncated")), (1001, vec!["false".to_owned()]));
    let token = &list("").elements("NextContinuationToken")[0];
    assert_eq!(list(&format!("&continuation-token={token}")).elements("Key")[0], "0000001/0000001000.bin");
    let key = "0000007/0000007123.bin";
    let part = get(&server, &format!("/synthetic/{key}"), "Range: bytes=1001-\r\n");
    assert_eq!((part.status, part.body.len()), (206, 3999));
    assert_eq!(first_wrong(key_of(key.as_bytes()), 1001, &part.body), None);
    assert_eq!(get(&server, "/synthetic/0000007/0000008123.bin", "").status, 404);
    assert_eq!(ask(&server, "PUT", "/synthetic/x", "", b"x").status, 403);
}

#[test]
fn objects_are_put_under_conditions_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &[]);
    let put = |target: &str, headers: &str| ask(&server, "PUT", target, headers, b"content");
    assert_eq!(put("/new", "").status, 200);
    assert_eq!(put("/new", "").status, 409);
    // Neither a path nor two objects of the same folder stand in the way of a key.
    for key in ["x", "x/y", "x//y", "/x", "../x", ".", "x/", "d", "%2541"] {
        let made = put(&format!("/new/{key}"), "If-None-Match: *\r\n");
        assert_eq!(made.status, 200, "{key}");
        let found = get(&server, &format!("/new/{key}"), "");
        assert_eq!((found.text().as_str(), found.header("ETag")), ("content", made.header("ETag")), "{key}");
        assert_eq!(put(&format!("/new/{key}"), "If-None-Match: *\r\n").status, 412, "{key}");
        assert_eq!(put(&format!("/new/{key}"), "If-Match: \"other\"\r\n").status, 412, "{key}");
        let replaced = put(&format!("/new/{key}"), &format!("If-Match: {}\r\n", made.header("ETag").unwrap()));
        assert_eq!(replaced.status, 200, "{key}");
        assert_ne!(replaced.header("ETag"), made.header("ETag"), "{key}");
    }
    let listed = get(&server, "/new?list-type=2", "").elements("Key");
    assert_eq!(listed, ["%41", ".", "../x", "/x", "d", "x", "x/", "x//y", "x/y"]);
    assert_eq!(std::fs::read(root.path().join("new/d")).unwrap(), b"content");
    for key in ["x", "x/y"] {
        assert_eq!(ask(&server, "DELETE", &format!("/new/{key}"), "", b"").status, 204);
        assert_eq!(get(&server, &format!("/new/{key}"), "").status, 404);
    }
    let listed = "<Delete><Object><Key>x//y</Key></Object><Object><Key>&#100;</Key></Object></Delete>";
    let deleted = ask(&server, "POST", "/new?delete", "", listed.as_bytes());
    assert_eq!(deleted.elements("Key"), ["x//y", "d"]);
    assert_eq!(get(&server, "/new?list-type=2", "").elements("Key"), ["%41", ".", "../x", "/x", "x/"]);
    assert_eq!(put("/new/absent", "If-Match: \"x\"\r\n").status, 404);
    assert_eq!(put(&format!("/new/{}", "x".repeat(1025)), "").status, 400);
    // As programs send bodies whose length they do not know.
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3;chunk-signature=x\r\nabc\r\n0\r\n";
    assert_eq!(ask(&server, "PUT", "/new/chunked", chunked, b"").status, 200);
    assert_eq!(get(&server, "/new/chunked", "").text(), "abc");
}

#[test]
fn objects_are_put_in_parts() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &[]);
    let begun = ask(&server, "POST", "/b/m?uploads", "", b"");
    let upload = begun.elements("UploadId")[0].clone();
    let send = |number: u32, bytes: &[u8]| {
        let sent = ask(&server, "PUT", &format!("/b/m?partNumber={number}&uploadId={upload}"), "", bytes);
        sent.header("ETag").unwrap().to_owned()
    };
    let large = content(1, 0, 5 << 20);
    let tags = HashMap::from([(1, send(1, &large)), (2, send(2, b"small")), (3, send(3, b"last"))]);
    let complete = |numbers: &[u32], headers: &str| {
        let parts: String = numbers
            .iter()
            .map(|number| format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", tags[number]))
            .collect();
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        ask(&server, "POST", &format!("/b/m?uploadId={upload}"), headers, body.as_bytes())
    };
    assert_eq!(complete(&[2, 1], "").elements("Code"), ["InvalidPartOrder"]);
    assert_eq!(complete(&[1, 2, 3], "").elements("Code"), ["EntityTooSmall"]);
    assert_eq!(complete(&[], "").elements("Code"), ["MalformedXML"]);
    assert_eq!(get(&server, "/b/m", "").status, 404);
    let done = complete(&[1, 3], "If-None-Match: *\r\n");
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(get(&server, "/b/m", "").body, [&*large, b"last"].concat());
    assert_eq!(complete(&[1, 3], "").elements("Code"), ["NoSuchUpload"]);
    let other = ask(&server, "POST", "/b/m?uploads", "", b"").elements("UploadId")[0].clone();
    let abort = || ask(&server, "DELETE", &format!("/b/m?uploadId={other}"), "", b"").status;
    assert_eq!((abort(), abort()), (204, 404));
}

#[test]
fn signatures_are_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &["--keys", "AKIDEXAMPLE:secret", "--clock", "86400"]);
    assert_eq!(get(&server, "/b/k", "").elements("Code"), ["AccessDenied"]);
    let signed = |id: &str, date: &str| {
        let hash = "0".repeat(64);
        format!(
            "x-amz-date: {date}\r\nx-amz-content-sha256: {hash}\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential={id}/20130524/r/s3/aws4_request, SignedHeaders=host, Signature=0\r\n"
        )
    };
    let refused = get(&server, "/b/k", &signed("AKIDEXAMPLE", "20130524T000000Z"));
    assert_eq!((refused.status, refused.elements("Code")), (403, vec!["RequestTimeTooSkewed".to_owned()]));
    assert_eq!(server.stats().unsigned, 1);
}

/// What every fault looks like to who asks for 100 bytes.
#[test]
fn each_fault_is_as_it_is_told() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &[]);
    let right = part(&server);
    let with = |fault: &str, check: &dyn Fn(Answer)| {
        server.tune("fault", fault).unwrap();
        check(part(&server));
        let kind = fault.split('=').next().unwrap();
        assert_eq!(server.stats().faults[kind], 1, "{fault}");
        get(&server, "/_reset", "");
    };
    let refused = |status: u16, code: &'static str, after: Option<&'static str>| {
        move |answer: Answer| {
            assert_eq!((answer.status, answer.elements("Code")), (status, vec![code.to_owned()]));
            assert_eq!(answer.header("Retry-After"), after);
        }
    };
    with("503=100:7", &refused(503, "SlowDown", Some("7")));
    with("429=100", &refused(429, "SlowDown", Some("1")));
    with("500=100", &refused(500, "InternalError", None));
    with("403=100", &refused(403, "AccessDenied", None));
    with("expired=100", &refused(400, "ExpiredToken", None));
    with("redirect=100:http://other:80", &|answer| {
        assert_eq!((answer.status, answer.header("Location")), (307, Some("http://other:80/b/k?redirected=1")));
    });
    with("circle=100", &|answer| assert_eq!((answer.status, answer.header("Location")), (307, Some("/b/k"))));
    for slow in ["stall=100:50", "slow-start=100:50"] {
        let start = Instant::now();
        with(slow, &|answer| assert_eq!(answer.body, right.body));
        assert!(start.elapsed() >= Duration::from_millis(50), "{slow}");
    }
    let start = Instant::now();
    with("drip=100:1", &|answer| assert_eq!(answer.body, right.body));
    assert!(start.elapsed() >= Duration::from_millis(100), "drip");
    with("reset=100", &|answer| {
        assert!(answer.body.len() < 100);
        assert_eq!(answer.broken, Some(std::io::ErrorKind::ConnectionReset));
    });
    with("short=100", &|answer| {
        assert!(answer.body.len() < 100 && right.body.starts_with(&answer.body));
        assert_eq!((answer.broken, answer.header("Content-Length")), (None, Some("100")));
    });
    with("long=100", &|answer| {
        assert!(answer.body.starts_with(&right.body));
        assert_eq!((answer.body.len(), answer.header("Content-Length")), (1100, Some("100")));
    });
    with("wrong-range=100", &|answer| assert_eq!(answer.header("Content-Range"), Some("bytes 101-200/10000")));
    with("200-for-206=100", &|answer| {
        assert_eq!((answer.status, answer.body.len(), answer.header("Content-Range")), (200, SIZE, None));
    });
    with("no-length=100", &|answer| {
        assert_eq!((answer.header("Content-Length"), answer.header("Connection")), (None, Some("close")));
        assert_eq!(answer.body, right.body);
    });
    with("two-lengths=100", &|answer| {
        let lengths = answer.headers.iter().filter(|(name, _)| name == "Content-Length");
        assert_eq!(lengths.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["100", "101"]);
    });
    with("chunked=100", &|answer| {
        assert_eq!((answer.header("Transfer-Encoding"), answer.header("Content-Length")), (Some("chunked"), None));
        assert_eq!(answer.body, [b"64\r\n", &*right.body, b"\r\n0\r\n\r\n"].concat());
    });
    with("gzip=100", &|answer| assert_eq!(answer.header("Content-Encoding"), Some("gzip")));
    let etag = right.header("ETag").unwrap();
    with("changed-etag=100", &|answer| assert_eq!(answer.header("ETag").unwrap(), etag.replacen('"', "\"changed-", 1)));
    with("weak-etag=100", &|answer| assert_eq!(answer.header("ETag").unwrap(), format!("W/{etag}")));
    with("no-etag=100", &|answer| assert!(answer.header("ETag").is_none() && answer.header("Last-Modified").is_some()));
    with("no-stamp=100", &|answer| {
        assert!(answer.header("ETag").is_none() && answer.header("Last-Modified").is_none())
    });
    with("big-head=100", &|answer| assert!(answer.headers.len() > 200));
}

#[test]
fn faults_without_a_response() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &[]);
    let begins = |fault: &str, length: usize| {
        get(&server, &format!("/_fault?fault={fault}"), "");
        let mut socket = connect(&server);
        socket.write_all(b"GET /b/k HTTP/1.1\r\n\r\n").unwrap();
        let mut bytes = vec![0; length];
        socket.read_exact(&mut bytes).unwrap();
        bytes
    };
    assert!(!begins("garbage=100", 64).starts_with(b"HTTP"));
    assert_eq!(begins("http2=100", 9), [0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let head = begins("endless-head=100:1", 200);
    assert!(head.starts_with(b"HTTP/1.1 206") && head.ends_with(b"xxxxx"));
}

#[test]
fn listings_fail_too() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &["--verbs", "LIST"]);
    let with = |fault: &str, query: &str| {
        get(&server, &format!("/_fault?fault={fault}"), "");
        get(&server, &format!("/b?list-type=2{query}"), "")
    };
    assert_eq!(with("unsorted=100", "").elements("Key"), ["k", "d/two", "d/one"]);
    assert!(!with("cut-xml=100", "").text().contains("</ListBucketResult>"));
    let again = with("repeated-token=100", "&max-keys=1&continuation-token=page-1");
    assert_eq!(again.elements("NextContinuationToken"), ["page-1"]);
    assert_eq!(part(&server).status, 206);
}

#[test]
fn faults_repeat_and_end_with_the_attempts() {
    let root = tempfile::tempdir().unwrap();
    let arguments = ["--fault", "503=50", "--attempts", "2", "--seed", "3"];
    let server = served(root.path(), &arguments);
    let statuses = || -> Vec<u16> {
        let ranges = (0..20).flat_map(|first| std::iter::repeat_n(first, 4));
        ranges.map(|first| get(&server, "/b/k", &format!("Range: bytes={first}-99\r\n")).status).collect()
    };
    let one = statuses();
    let failed = one.iter().filter(|&&status| status == 503).count();
    assert!((8..32).contains(&failed), "{failed}");
    assert!(one.chunks(4).all(|four| four[2..] == [206, 206]), "{one:?}");
    assert_eq!(statuses(), [206; 80]);
    get(&server, "/_reset", "");
    assert_eq!(statuses(), one);
    get(&server, "/_reset", "");
    get(&server, "/_fault?seed=4", "");
    assert_ne!(statuses(), one);
    assert_eq!(get(&server, "/_fault?fault=x=1", "").status, 400);
    assert_eq!(get(&server, "/_nothing", "").status, 404);
}

#[test]
fn delays_rates_and_limits_hold() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &["--delay-ms", "60"]);
    let start = Instant::now();
    part(&server);
    assert!(start.elapsed() >= Duration::from_millis(60));
    get(&server, "/_fault?delay-ms=0&bandwidth=100000", "");
    let start = Instant::now();
    assert_eq!(get(&server, "/b/k", "").body.len(), SIZE);
    assert!(start.elapsed() >= Duration::from_millis(100));
    // The one that is answered holds its place until the body has been received.
    get(&server, "/_fault?bandwidth=0&limit=1&fault=stall=100:10000&attempts=1", "");
    let mut first = BufReader::new(connect(&server));
    first.get_mut().write_all(b"GET /b/d/one HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(answer(&mut first, true).status, 200);
    let second = part(&server);
    assert_eq!((second.status, second.header("Retry-After")), (503, Some("1")));
    assert_eq!(server.stats().most_at_once, 2);
}

#[test]
fn an_object_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let server = served(root.path(), &[]);
    let before = part(&server);
    assert_eq!(get(&server, "/_replace/b/k", "").status, 200);
    let after = part(&server);
    assert_ne!(after.header("ETag"), before.header("ETag"));
    assert_eq!(after.body, before.body.iter().map(|byte| !byte).collect::<Vec<u8>>());
    ask(&server, "POST", "/_replace/b/k", "", b"short");
    assert_eq!(get(&server, "/b/k", "").text(), "short");
    assert_eq!(get(&server, "/_replace/b/none", "").status, 404);
    let told = get(&server, "/_stats?ranges=1", "").text();
    assert!(told.contains("\"requests\":{\"GET\":3}") && told.contains("\"ranges\":[[\"b/k\",100,200]"), "{told}");
}

#[test]
fn what_cannot_be_served_is_told() {
    let failed = |arguments: &[&str]| Server::start(Options::parse(arguments).unwrap()).err().unwrap().to_string();
    assert!(failed(&["--root", "/no/such/folder"]).contains("/no/such/folder: No such file"));
    let synthetic = ["--synthetic", "1:1"];
    assert!(failed(&[&synthetic[..], &["--listen", "nowhere"]].concat()).contains("nowhere: "));
    let nowhere = ["--tls", "good", "--cert-out", "/no/such/folder/c.pem"];
    assert!(failed(&[&synthetic[..], &nowhere].concat()).contains("/no/such/folder/c.pem: "));
}

#[test]
fn session_tokens_expire() {
    let root = tempfile::tempdir().unwrap();
    let tokens = ["--keys", "ID:secret", "--token-until", "old:0", "--token-until", "new:3600"];
    let server = served(root.path(), &tokens);
    let with = |token: &str| {
        // `Sun, 29 Nov 2026 00:18:44 GMT` as 20261129T001844Z.
        let date = get(&server, "/_stats", "").header("Date").unwrap().replace(':', "");
        let words: Vec<&str> = date.split(' ').collect();
        let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let month = months.find(words[2]).unwrap() / 3 + 1;
        let date = format!("{}{month:02}{}T{}Z", words[3], words[1], words[4]);
        let headers = format!(
            "x-amz-date: {date}\r\nx-amz-security-token: {token}\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=ID/{}/r/s3/aws4_request,SignedHeaders=host,Signature=0\r\n",
            &date[..8]
        );
        get(&server, "/b/k", &headers).elements("Code")
    };
    assert_eq!(with("old"), ["ExpiredToken"]);
    assert_eq!(with("none"), ["InvalidToken"]);
    assert_eq!(with("new"), ["SignatureDoesNotMatch"]);
}

/// The bare client, plain and with TLS, and what it says about certificates that it must not take.
#[test]
fn the_bare_client_counts_what_it_received() {
    let root = tempfile::tempdir().unwrap();
    let pem = root.path().join("certificate.pem");
    let pem = pem.to_str().unwrap();
    let run = |server: &Server, more: &[&str]| {
        let place = format!("{}/b/d", server.url());
        let arguments = [&[&*place, "--conns", "3", "--size", "4000", "--requests", "60"], more].concat();
        std::process::Command::new(env!("CARGO_BIN_EXE_bare")).args(arguments).output().unwrap()
    };
    // Two objects, each of two whole pieces and one of 2000 bytes.
    let counted = |server: &Server, more: &[&str]| {
        let output = run(server, more);
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.contains("\"requests\":60,\"bytes\":200000,"), "{told} {:?}", String::from_utf8(output.stderr));
        assert_eq!((server.stats().requests["GET"], server.stats().bytes > 200_000), (60, true));
        assert_eq!(server.stats().connections, 4);
    };
    counted(&served(root.path(), &[]), &[]);
    counted(&served(root.path(), &["--tls", "good", "--cert-out", pem]), &["--ca-file", pem]);
    for (kind, told) in [("expired", "certificate expired"), ("other-name", "not valid for name")] {
        let output = run(&served(root.path(), &["--tls", kind, "--cert-out", pem]), &["--ca-file", pem]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(told), "{kind}: {error}");
    }
    let random = run(&served(root.path(), &[]), &["--random", "--keep", "40000"]);
    assert!(String::from_utf8(random.stdout).unwrap().contains("\"random\":true,\"tls\":false,\"requests\":60,"));
    let refusing = served(root.path(), &["--keys", "ID:secret"]);
    assert!(String::from_utf8(run(&refusing, &[]).stderr).unwrap().contains("HTTP/1.1 403"));
}

#[test]
fn the_command_tells_its_url_and_what_is_wrong() {
    let command = || std::process::Command::new(env!("CARGO_BIN_EXE_uringload-objects"));
    let wrong = command().arg("--rot").output().unwrap();
    let told = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        told.contains("there is no option --rot") && told.contains("  drip            a byte each ARG ms"),
        "{told}"
    );
    let mut server = command();
    let mut server = server.args(["--synthetic", "1:10"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let mut socket = TcpStream::connect(url.trim_end().strip_prefix("http://").unwrap()).unwrap();
    socket.write_all(b"GET /synthetic/0000000/0000000000.bin HTTP/1.1\r\n\r\n").unwrap();
    let mut first = [0; 15];
    socket.read_exact(&mut first).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
}
